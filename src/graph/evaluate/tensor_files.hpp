// SPDX-License-Identifier: Apache-2.0
// Lists the files that data is read from.
#pragma once

#include <filesystem>
#include <vector>

namespace qk::graph {

/// Returns every file that read_tensors(path) reads, external data of .pb files included; none if `path` does not exist.
std::vector<std::filesystem::path> files_of_tensors(const std::filesystem::path& path);

/// Returns what read_tensors(path) passes over in a folder: files that are no data, images beside arrays, sub-folders. Outputs of ONNX test
/// data are not among them.
std::vector<std::filesystem::path> passed_over(const std::filesystem::path& path);

}  // namespace qk::graph
