// SPDX-License-Identifier: Apache-2.0
// Models as bytes in memory.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace onnx {
class ModelProto;
}

namespace qk::graph {

/// Returns the bytes that save() writes into one file. Throws above 2 GB.
std::string serialized(const onnx::ModelProto& m);

/// Returns how many names of a serialized model are not UTF-8, which loading converts; 0 for what is no model.
std::size_t count_renamed(std::string_view bytes);

}  // namespace qk::graph
