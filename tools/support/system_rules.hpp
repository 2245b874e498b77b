// SPDX-License-Identifier: Apache-2.0
// Other systems' rules (qk::systems) on the command line: `qk convert --system`, `qk formats --systems`.
#pragma once

#include <string>
#include <vector>

#include "options/format_options.hpp"
#include "qk/graph/files.hpp"
#include "qk/systems.hpp"

namespace qk::tool {

/// Returns the rule of a name; throws graph::error with the nearest names.
const systems::rule& system_rule(const std::string& name);
std::vector<std::string> system_words();

/// Throws graph::error when an option that describes a conversion of our own stands beside --system.
void refuse_beside_system(const quantize_options& given);

struct converted_by_system {
    graph::tensor values;
    std::string archive;  ///< .npz of the planes: codes, scales, global, amax, zeros, those that the system has
};
/// `x` is float32 or float16, its last axis the columns; for the casts to UE5M3 also uint8 codes. `importance` names a .npy file, or is
/// empty.
converted_by_system convert_by(const systems::rule& rule, graph::tensor x, const std::string& file, const std::string& importance);

/// Prints the rules whose names contain one of the words (all without words).
void print_systems(const std::vector<std::string>& words, bool json);

}  // namespace qk::tool
