// SPDX-License-Identifier: Apache-2.0
// The search for the mistakes that make a device's values: alone, in pairs and in threes, each everywhere or in a region of its own.
#pragma once

#include "qk/compare/compare.hpp"
#include "regions.hpp"

namespace qk::compare {

/// Fills in where, causes, unexplained, alternatives and nearest.
void diagnose(const problem& p, const properties& all, report& r);

}  // namespace qk::compare
