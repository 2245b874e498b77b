// SPDX-License-Identifier: Apache-2.0
// A whole file read at once, with an error that names it. Writing is atomic_file.hpp's.
#pragma once

#include <filesystem>
#include <string>

#include "qk/graph/base/error.hpp"

namespace qk::graph {

/// The bytes of a file. Throws error naming it: missing, a folder, unreadable.
std::string read_file(const std::filesystem::path& file);

}  // namespace qk::graph
