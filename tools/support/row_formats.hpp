// SPDX-License-Identifier: Apache-2.0
// Formats of the library for the rows of a checkpoint's matrices, to measure what they would do.
#pragma once

#include <optional>
#include <string>

#include "qk/checkpoint.hpp"

namespace qk::tool {

/// A format of `qk formats` along rows: blocks as they are, integers and floats of up to 8 bits under a float16 scale for each row, or for
/// each N values of a row with "_gN" behind the name, as "int4_g128". nullopt for other names.
std::optional<checkpoint::row_format> row_format_named(const std::string& name);
/// Whether a .gguf has a type of that name.
bool is_ggml_format(const std::string& name);

}  // namespace qk::tool
