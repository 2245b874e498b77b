// SPDX-License-Identifier: Apache-2.0
// What a quantizer's node says beyond its inputs.
#pragma once

#include <string>

#include "qk/graph/base/tensor.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph::detail {

/// Reads a node's doc_string into `how`: semantics, and a format whose codes are fewer than the type's, or signed and stored unsigned.
void refine(quantizer& how, const std::string& text);

/// The integer format, of 16 bits or fewer, whose values with the quantizer's one scale lie from `low` to `high`; false: there is none.
bool narrow(quantizer& how, const tensor& low, const tensor& high);

/// Codes of 8 bits that were stored half their range higher become codes of the signed format `f`.
void make_signed(quantizer& how, integer f);

}  // namespace qk::graph::detail
