// SPDX-License-Identifier: Apache-2.0
// What a quantizer is, written beside what carries it out, so that the way back need not guess: the doc_string of a call or of a rounded
// constant.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "qk/graph/plan/plan.hpp"

namespace qk::graph::detail {

/// Scales and zero points that stand in the model itself are left out. Empty if the semantics have no textual form.
std::string describe(quantizer q, bool with_scales = false);

/// The quantizer that `describe` wrote, with the scales and zero points that were left out; nullopt for any other text.
std::optional<quantizer> described(const std::string& text, const std::vector<float>& scale = {},
                                   std::vector<std::int64_t> zero_point = {});

}  // namespace qk::graph::detail
