// SPDX-License-Identifier: Apache-2.0
// Which files data is read from.
#pragma once

#include <filesystem>
#include <vector>

namespace qk::graph {

/// Every file that read_tensors(path) reads, external data of .pb files included. Nothing for what is not there.
std::vector<std::filesystem::path> files_of_tensors(const std::filesystem::path& path);

}  // namespace qk::graph
