// SPDX-License-Identifier: Apache-2.0
// Definitions of resumed_file.hpp.
#include "resumed_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>

#include "qk/checkpoint.hpp"

namespace qk::checkpoint {
namespace {

/// FNV-1a, 64 bits: names a part, protects nothing.
std::uint64_t hash_of(std::string_view text) {
    std::uint64_t h = 0xcbf29ce484222325u;
    for (const char ch : text) h = (h ^ static_cast<unsigned char>(ch)) * 0x100000001b3u;
    return h;
}

std::string identity_of(const std::vector<std::filesystem::path>& inputs, const std::string& what) {
    std::string all = what;
    for (const std::filesystem::path& p : inputs) {
        struct stat facts {};
        ::stat(p.c_str(), &facts);
        all += "\n" + std::filesystem::absolute(p).string() + " " + std::to_string(facts.st_size) + " " +
               std::to_string(facts.st_mtim.tv_sec) + "." + std::to_string(facts.st_mtim.tv_nsec);
    }
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash_of(all)));
    return text;
}

}  // namespace

resumed_file::resumed_file(std::filesystem::path target, const std::vector<std::filesystem::path>& inputs, const std::string& what)
    : target_(std::move(target)) {
    std::error_code ignored;
    place_ = std::filesystem::weakly_canonical(target_, ignored);
    if (ignored || place_.empty()) place_ = target_;
    if (std::filesystem::is_directory(place_, ignored)) throw error(target_.string() + ": is a folder");
    if (std::filesystem::exists(place_, ignored) && !std::filesystem::is_regular_file(place_, ignored))
        throw error(target_.string() + ": is a pipe or device; name a file");
    part_ = place_.parent_path() / ("." + place_.filename().string() + ".qk-" + identity_of(inputs, what) + ".part");
    file_ = ::open(part_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file_ < 0) fail(errno);
    if (::flock(file_, LOCK_EX | LOCK_NB) != 0) {
        ::close(file_);
        file_ = -1;
        throw error(target_.string() + ": another process is writing it");
    }
    struct stat facts {};
    if (::fstat(file_, &facts) != 0) fail(errno);
    size_ = static_cast<std::uint64_t>(facts.st_size);
}

resumed_file::~resumed_file() {
    if (file_ >= 0) ::close(file_);
    if (!put_ && file_ >= 0) ::unlink(part_.c_str());  // an error; a killed process does not come here
}

void resumed_file::fail(int number) const { throw error(target_.string() + ": cannot be written: " + std::strerror(number)); }

bool resumed_file::read_at(std::uint64_t offset, char* to, std::size_t n) const {
    return ::pread(file_, to, n, static_cast<off_t>(offset)) == static_cast<ssize_t>(n);
}
void resumed_file::cut(std::uint64_t size) {
    buffer_.clear();
    if (::ftruncate(file_, static_cast<off_t>(size)) != 0) fail(errno);
    size_ = size;
}
void resumed_file::write_all(std::uint64_t offset, const char* data, std::size_t n) {
    while (n != 0) {
        const ssize_t done = ::pwrite(file_, data, n, static_cast<off_t>(offset));
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) fail(done < 0 ? errno : ENOSPC);
        data += done, offset += static_cast<std::uint64_t>(done), n -= static_cast<std::size_t>(done);
    }
}
void resumed_file::flush() {
    write_all(size_ - buffer_.size(), buffer_.data(), buffer_.size());
    buffer_.clear();
}
void resumed_file::append(std::string_view bytes) {
    if (buffer_.size() + bytes.size() > std::size_t{1} << 20) flush();
    size_ += bytes.size();
    if (bytes.size() > std::size_t{1} << 20) return write_all(size_ - bytes.size(), bytes.data(), bytes.size());
    buffer_ += bytes;
}
void resumed_file::write_at(std::uint64_t offset, std::string_view bytes) {
    flush();
    write_all(offset, bytes.data(), bytes.size());
}
void resumed_file::put() {
    flush();
    if (::fsync(file_) != 0 && errno != EINVAL) fail(errno);
    if (::rename(part_.c_str(), place_.c_str()) != 0) fail(errno);
    put_ = true;
}

}  // namespace qk::checkpoint
