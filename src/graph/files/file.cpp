// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include "qk/graph/files/file.hpp"

namespace qk::graph {

std::string read_file(const std::filesystem::path& file) {
    std::error_code status;
    if (std::filesystem::is_directory(file, status)) throw error("'" + file.string() + "' is a folder, not a file");
    std::ifstream in(file, std::ios::binary);
    if (!in) throw error("cannot read '" + file.string() + "': " + std::strerror(errno));
    std::string bytes;
    if (const auto size = std::filesystem::file_size(file, status); !status) bytes.reserve(size);
    char buffer[1 << 16];
    while (in.read(buffer, sizeof buffer) || in.gcount() > 0) bytes.append(buffer, static_cast<std::size_t>(in.gcount()));
    if (in.bad()) throw error("cannot read '" + file.string() + "': " + std::strerror(errno));
    return bytes;
}

}  // namespace qk::graph
