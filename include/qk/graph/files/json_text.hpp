// SPDX-License-Identifier: Apache-2.0
// JSON text as every file and every --json has it: valid UTF-8 whatever its strings hold, without characters that a terminal obeys.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace qk::graph {
/// All JSON becomes text through this function. Bytes that are not UTF-8 become U+FFFD; NaN and infinities, which JSON lacks, become null.
std::string json_text(const nlohmann::ordered_json& value, int indent = -1);
std::string json_text(const nlohmann::json& value, int indent = -1);

}  // namespace qk::graph
