// SPDX-License-Identifier: Apache-2.0
#include "disk/input_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <utility>

namespace qk::disk {
namespace {

std::atomic<int> kept_open = 0;
constexpr int most_open = 64;  // a process has 1024 in all, a model may have a file for each tensor

/// Returns why a file of this kind is not read; empty for a regular file.
std::string refusal(::mode_t mode) {
    if (S_ISREG(mode)) return {};
    if (S_ISDIR(mode)) return "it is a folder, not a file";
    if (S_ISFIFO(mode))
        return "it is a pipe, not a regular file; write what comes out of it to a file and name that, or give - and pipe into standard "
               "input";
    const std::string what = S_ISSOCK(mode) ? "a socket" : "a device";
    return "it is " + what + ", not a regular file; write what comes out of it to a file and name that";
}

}  // namespace

input_file::descriptor::descriptor(const input_file& of) : number_(of.file_), own_(of.file_ < 0) {
    if (!own_) return;
    struct ::stat there {};
    if (::stat(of.path_.c_str(), &there) != 0) of.fail(std::strerror(errno));
    if (const std::string why = refusal(there.st_mode); !why.empty()) of.fail(why);
    number_ = ::open(of.path_.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (number_ < 0) of.fail(std::strerror(errno));
    if (::fstat(number_, &there) == 0 && S_ISREG(there.st_mode)) return;
    ::close(number_);
    of.fail(refusal(there.st_mode));
}
input_file::descriptor::~descriptor() {
    if (own_) ::close(number_);
}

input_file::input_file(std::filesystem::path file, complaint complain) : path_(std::move(file)), complain_(complain) {
    descriptor opened(*this);
    struct ::stat there {};
    if (::fstat(opened.number(), &there) != 0) fail(std::strerror(errno));
    size_ = static_cast<std::uint64_t>(there.st_size);
    device_ = static_cast<std::uint64_t>(there.st_dev), number_ = static_cast<std::uint64_t>(there.st_ino);
    seconds_ = there.st_mtim.tv_sec, nanoseconds_ = there.st_mtim.tv_nsec;
    if (kept_open < most_open) file_ = opened.keep(), ++kept_open;
}

input_file::~input_file() {
    if (file_ >= 0) ::close(file_), --kept_open;
}

void input_file::fail(const std::string& why) const {
    complain_(path_, why);
    std::terminate();  // a complaint throws
}

void input_file::check(const descriptor& file) const {
    struct ::stat now {};
    if (::fstat(file.number(), &now) != 0 || static_cast<std::uint64_t>(now.st_size) != size_ ||
        static_cast<std::uint64_t>(now.st_dev) != device_ || static_cast<std::uint64_t>(now.st_ino) != number_ ||
        now.st_mtim.tv_sec != seconds_ || now.st_mtim.tv_nsec != nanoseconds_)
        fail("it was changed while it was in use");
}
void input_file::check() const { check(descriptor(*this)); }

void input_file::read(std::uint64_t offset, std::span<std::byte> to) const {
    const descriptor from(*this);
    if (offset > size_ || to.size() > size_ - offset) fail("it is too short");
    while (!to.empty()) {
        const ::ssize_t n = ::pread(from.number(), to.data(), std::min(to.size(), std::size_t{1} << 30), static_cast<::off_t>(offset));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) fail(std::strerror(errno));
        if (n == 0) break;  // check() says that it has become shorter
        to = to.subspan(static_cast<std::size_t>(n)), offset += static_cast<std::uint64_t>(n);
    }
    check(from);
    if (!to.empty()) fail("it is too short");
}

std::size_t input_file::read_some(std::uint64_t offset, std::span<std::byte> to) const {
    const descriptor from(*this);
    for (;;) {
        const ::ssize_t n = ::pread(from.number(), to.data(), to.size(), static_cast<::off_t>(offset));
        if (n >= 0) return static_cast<std::size_t>(n);
        if (errno != EINTR) fail(std::strerror(errno));
    }
}

std::string read_whole(const std::filesystem::path& file, complaint complain, std::uint64_t most) {
    const input_file from(file, complain);
    if (from.size() > most)
        complain(file, std::to_string(from.size()) + " bytes are more than the " + std::to_string(most) + " that it may have");
    std::string bytes(from.size(), '\0');
    from.read(0, std::as_writable_bytes(std::span(bytes)));
    return bytes;
}

}  // namespace qk::disk
