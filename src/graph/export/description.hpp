// SPDX-License-Identifier: Apache-2.0
// Describes a quantizer beside the nodes that carry it out, so that recovery need not guess: in the doc_string of a node, call or constant.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "qk/graph/plan/plan.hpp"

namespace qk::graph::detail {

/// Returns the quantizer as text. Scales and zero points are left out unless `with_scales`: the model itself holds them. Returns "" if the
/// semantics have no textual form.
std::string describe(quantizer q, bool with_scales = false);

/// Returns the quantizer that `describe` wrote, with the scales and zero points that it left out; nullopt for any other text.
std::optional<quantizer> described(const std::string& text, const std::vector<float>& scale = {},
                                   std::vector<std::int64_t> zero_point = {});

}  // namespace qk::graph::detail
