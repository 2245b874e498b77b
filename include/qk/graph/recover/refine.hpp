// SPDX-License-Identifier: Apache-2.0
// What a quantizer's node says beyond its inputs.
#pragma once

#include <optional>
#include <string>

#include "qk/graph/plan/plan.hpp"

namespace qk::graph::detail {

/// Reads a node's doc_string into `how`: semantics, and a format whose codes are fewer than the type's, or signed and stored unsigned.
void refine(quantizer& how, const std::string& text);

/// The integer format whose codes lie from `lowest` to `highest`, if there is one of 16 bits or fewer.
std::optional<integer> format_between(std::int64_t lowest, std::int64_t highest, bool is_signed);

/// Codes of 8 bits that were stored half their range higher become codes of the signed format `f`.
void make_signed(quantizer& how, integer f);

}  // namespace qk::graph::detail
