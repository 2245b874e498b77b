// SPDX-License-Identifier: Apache-2.0
// Reads a whole file at once, with an error that names it. atomic_file.hpp writes.
#pragma once

#include <filesystem>
#include <string>

#include "qk/graph/base/error.hpp"

namespace qk::graph {

/// Returns the bytes of a file. Throws error naming it when it is missing, a folder or unreadable.
std::string read_file(const std::filesystem::path& file);

}  // namespace qk::graph
