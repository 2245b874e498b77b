// SPDX-License-Identifier: Apache-2.0
// Reads what a quantizer's node says beyond its inputs.
#pragma once

#include <string>

#include "qk/graph/base/tensor.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph::detail {

/// Reads a node's doc_string into `how`: semantics, and a format whose codes are fewer than the type's, or signed and stored unsigned.
void refine(quantizer& how, const std::string& text);

/// Narrows the format to the integer format, of 16 bits or fewer, whose values with the quantizer's one scale reach from `low` to `high`.
/// Returns false if there is none.
bool narrow(quantizer& how, const tensor& low, const tensor& high);

/// Turns codes of 8 bits that were stored half their range higher into codes of the signed format `f`.
void make_signed(quantizer& how, integer f);

}  // namespace qk::graph::detail
