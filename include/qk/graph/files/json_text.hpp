// SPDX-License-Identifier: Apache-2.0
// JSON as every file and every --json has it: valid UTF-8 whatever its strings hold, and nothing in it that a terminal obeys.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace qk::graph {
/// The one way in which JSON becomes text. Bytes that are not UTF-8 become U+FFFD; NaN and infinities, which JSON lacks, null.
std::string json_text(const nlohmann::ordered_json& value, int indent = -1);
std::string json_text(const nlohmann::json& value, int indent = -1);

}  // namespace qk::graph
