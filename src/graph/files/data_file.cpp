// SPDX-License-Identifier: Apache-2.0
#include "graph/files/data_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>

#include "qk/graph/base/error.hpp"

namespace qk::graph {
namespace {

std::atomic<int> kept_open = 0;
constexpr int most_open = 64;  // a process has 1024 in all, a model may have a file for each tensor

[[noreturn]] void fail(const std::filesystem::path& file, const std::string& why) {
    throw error("cannot read '" + file.string() + "': " + why);
}

int opened_for_reading(const std::filesystem::path& file) {
    const int opened = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (opened < 0) fail(file, std::strerror(errno));
    return opened;
}

}  // namespace

data_file::data_file(std::filesystem::path file) : path_(std::move(file)) {
    const int opened = opened_for_reading(path_);
    struct ::stat there {};
    if (::fstat(opened, &there) != 0 || !S_ISREG(there.st_mode)) {
        ::close(opened);
        fail(path_, "it is no regular file");
    }
    size_ = static_cast<std::uint64_t>(there.st_size);
    device_ = static_cast<std::uint64_t>(there.st_dev), number_ = static_cast<std::uint64_t>(there.st_ino);
    seconds_ = there.st_mtim.tv_sec, nanoseconds_ = there.st_mtim.tv_nsec;
    if (kept_open < most_open) file_ = opened, ++kept_open;
    else ::close(opened);
}

data_file::~data_file() {
    if (file_ >= 0) ::close(file_), --kept_open;
}

void data_file::check(int file) const {
    struct ::stat now {};
    if (::fstat(file, &now) != 0 || static_cast<std::uint64_t>(now.st_size) != size_ || static_cast<std::uint64_t>(now.st_dev) != device_ ||
        static_cast<std::uint64_t>(now.st_ino) != number_ || now.st_mtim.tv_sec != seconds_ || now.st_mtim.tv_nsec != nanoseconds_)
        fail(path_, "it was changed while it was in use");
}

void data_file::read(std::uint64_t offset, std::span<std::byte> to) const {
    struct opened {
        int file;
        bool own;
        ~opened() {
            if (own) ::close(file);
        }
    };
    const opened from{file_ >= 0 ? file_ : opened_for_reading(path_), file_ < 0};
    check(from.file);
    if (offset > size_ || to.size() > size_ - offset) fail(path_, "it is too short");
    for (std::size_t done = 0; done < to.size();) {
        const auto n = ::pread(from.file, to.data() + done, to.size() - done, static_cast<off_t>(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) fail(path_, n < 0 ? std::strerror(errno) : "it was changed while it was in use");
        done += static_cast<std::size_t>(n);
    }
}

mapped_file::mapped_file(const std::filesystem::path& file) {
    const int opened = opened_for_reading(file);
    struct ::stat there {};
    void* at = MAP_FAILED;
    if (::fstat(opened, &there) == 0 && S_ISREG(there.st_mode)) {
        size_ = static_cast<std::size_t>(there.st_size);
        at = size_ == 0 ? nullptr : ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, opened, 0);
    }
    ::close(opened);
    if (at == MAP_FAILED) fail(file, "it cannot be mapped into memory");
    start_ = static_cast<const char*>(at);
}

mapped_file::~mapped_file() {
    if (start_ != nullptr) ::munmap(const_cast<char*>(start_), size_);
}

}  // namespace qk::graph
