// SPDX-License-Identifier: Apache-2.0
// The functions of an ONNX file in qk's domain, read from its bytes alone.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace qk::onnxruntime {

/// Returns the names of a file's functions that the library computes, in their order. Throws refusal where the file cannot be read, or a
/// function is not as qk wrote it.
std::vector<std::string> functions_of(const std::filesystem::path& model);

/// Returns whether the library takes the place of functions of this name: those that decode constants once, when a session is made, stay
/// functions, so that onnxruntime folds them.
bool is_computed(std::string_view function);

}  // namespace qk::onnxruntime
