// SPDX-License-Identifier: Apache-2.0
// Searches for the mistakes that reproduce a device's values: up to four together, each made everywhere or in a region of its own.
#pragma once

#include "qk/compare/compare.hpp"
#include "regions.hpp"

namespace qk::compare {

/// Sets where, causes, unexplained, alternatives and nearest of `r`.
void diagnose(const problem& p, const properties& all, report& r);

}  // namespace qk::compare
