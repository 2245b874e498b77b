// SPDX-License-Identifier: Apache-2.0
// Definitions of pending_file.hpp.
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>
#include <utility>

#include "qk/graph/base/error.hpp"
#include "qk/graph/files/atomic_file.hpp"

namespace qk::graph {

pending_file::pending_file(std::filesystem::path target) : target_(std::move(target)) {
    namespace fs = std::filesystem;
    const fs::path folder = target_.has_parent_path() ? target_.parent_path() : fs::path(".");
    std::error_code failed;
    if (!fs::is_directory(folder, failed)) throw error("cannot write " + target_.string() + ": there is no folder " + folder.string());
    if (!target_.has_filename() || fs::is_directory(target_, failed)) {
        throw error("cannot write " + target_.string() + ": it is a folder, give the name of a file");
    }
    static std::atomic<unsigned> serial{0};  // two pending files of one process may have the same target
    temporary_ = folder / ("." + target_.filename().string() + "." + std::to_string(::getpid()) + "." + std::to_string(serial++) + ".part");
}

pending_file::pending_file(pending_file&& other) noexcept
    : target_(std::move(other.target_)), temporary_(std::exchange(other.temporary_, {})) {}

pending_file::~pending_file() {
    std::error_code ignored;
    if (!temporary_.empty()) std::filesystem::remove(temporary_, ignored);
}

void pending_file::commit() {
    std::error_code failed;
    // A pipe or device (/dev/stdout, /dev/null) is written through, never replaced.
    if (std::filesystem::exists(target_, failed) && !std::filesystem::is_regular_file(target_, failed)) {
        std::ifstream from(temporary_, std::ios::binary);
        std::ofstream to(target_, std::ios::binary);
        if (from.peek() != std::ifstream::traits_type::eof()) to << from.rdbuf();
        if (!to.flush()) throw error("cannot write " + target_.string() + ": " + std::strerror(errno));
        return;
    }
    std::filesystem::rename(temporary_, target_, failed);
    if (failed) throw error("cannot write " + target_.string() + ": " + failed.message());
    temporary_.clear();
}

void write_file(const std::filesystem::path& path, std::string_view content) {
    pending_file file(path);
    std::ofstream out(file.temporary(), std::ios::binary);
    out.write(content.data(), static_cast<std::streamsize>(content.size()));
    out.close();
    if (!out) throw error("cannot write " + path.string() + ": " + std::strerror(errno));
    file.commit();
}

}  // namespace qk::graph
