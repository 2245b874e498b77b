// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/files/atomic_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>  // RENAME_EXCHANGE
#include <cstring>
#include <system_error>
#include <utility>

#include "qk/graph/base/error.hpp"

namespace qk::graph {
namespace {

namespace fs = std::filesystem;

fs::path folder_of(const fs::path& file) { return file.has_parent_path() ? file.parent_path() : fs::path("."); }

/// Returns what the names of all temporary files of `place` begin with. Long names are cut: a name has at most 255 bytes.
std::string prefix_of(const fs::path& place) { return "." + place.filename().string().substr(0, 180) + ".qk-"; }

/// Writes all of `content`. Returns the error's number, or 0.
int write_all(int file, std::string_view content) {
    while (!content.empty()) {
        const ::ssize_t n = ::write(file, content.data(), std::min(content.size(), std::size_t{1} << 30));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno;
        content.remove_prefix(static_cast<std::size_t>(n));
    }
    return 0;
}

/// Removes files that have names of temporary files of `place` and that no living process has locked.
void remove_leftovers(const fs::path& folder, const fs::path& place) {
    const std::string prefix = prefix_of(place), suffix = ".part";
    std::error_code failed;
    for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end; entry.increment(failed)) {
        const std::string name = entry->path().filename().string();
        if (!name.starts_with(prefix) || !name.ends_with(suffix) || name.size() <= prefix.size() + suffix.size()) continue;
        if (name.find_first_not_of("0123456789-", prefix.size()) != name.size() - suffix.size()) continue;
        const int file = ::open(entry->path().c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (file < 0) continue;
        struct ::stat found {};
        if (::fstat(file, &found) == 0 && S_ISREG(found.st_mode) && ::flock(file, LOCK_EX | LOCK_NB) == 0) ::unlink(entry->path().c_str());
        ::close(file);
    }
}

/// Returns a new, locked file, or -1 with errno.
int open_locked(const fs::path& temporary) {
    for (int attempt = 0; attempt < 100; ++attempt) {
        const int file = ::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file < 0) return -1;
        ::flock(file, LOCK_EX | LOCK_NB);
        struct ::stat found {};
        if (::fstat(file, &found) == 0 && found.st_nlink > 0) return file;
        ::close(file);  // another process took it for a leftover before it was locked
    }
    return -1;
}

/// Exchanges two files in one step, so that the way back exists at every moment. Returns false where the system cannot.
bool exchange([[maybe_unused]] const fs::path& a, [[maybe_unused]] const fs::path& b) {
#ifdef RENAME_EXCHANGE
    return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0;
#else
    return false;
#endif
}

/// Returns the number N of /proc/self/fd/N and /dev/fd/N; -1 for other names.
int open_file_number(const fs::path& place) {
    const std::string text = place.filename().string(), folder = place.parent_path().string();
    if (folder != "/dev/fd" && folder != "/proc/self/fd") return -1;
    int number = -1;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
    return read.ec == std::errc() && read.ptr == text.data() + text.size() ? number : -1;
}

}  // namespace

destination destination_of(const fs::path& file) {
    fs::path at = file;
    std::error_code failed;
    for (int links = 0; links < 40; ++links) {
        const std::string full = fs::absolute(at, failed).lexically_normal().string();
        if (full.starts_with("/proc/") || full.starts_with("/dev/fd/")) return {full, true};
        if (!fs::is_symlink(at, failed)) break;
        const fs::path next = fs::read_symlink(at, failed);
        at = next.is_absolute() ? next : at.parent_path() / next;
    }
    const fs::file_status there = fs::status(at, failed);
    return {at, fs::exists(there) && !fs::is_regular_file(there) && !fs::is_directory(there)};
}

pending_file::pending_file(fs::path target) : target_(std::move(target)) {
    destination to = destination_of(target_);
    place_ = std::move(to.place);
    stream_ = to.stream;
    const fs::path folder = stream_ ? fs::temp_directory_path() : folder_of(place_);
    std::error_code failed;
    if (!fs::is_directory(folder, failed)) throw error("cannot write " + target_.string() + ": there is no folder " + folder.string());
    if (!place_.has_filename() || fs::is_directory(place_, failed))
        throw error("cannot write " + target_.string() + ": it is a folder, give the name of a file");
    remove_leftovers(folder, place_);
    static std::atomic<unsigned> serial{0};  // two pending files of one process may have the same target
    temporary_ = folder / (prefix_of(place_) + std::to_string(::getpid()) + "-" + std::to_string(serial++) + ".part");
    file_ = open_locked(temporary_);
    if (file_ < 0) {
        const int number = errno;
        temporary_.clear();
        fail(number);
    }
}

pending_file::pending_file(pending_file&& other) noexcept
    : target_(std::move(other.target_)),
      place_(std::move(other.place_)),
      temporary_(std::exchange(other.temporary_, {})),
      state_(other.state_),
      stream_(other.stream_),
      file_(std::exchange(other.file_, -1)) {}

pending_file::~pending_file() {
    std::error_code ignored;
    if (!temporary_.empty()) fs::remove(temporary_, ignored);  // after an exchange this is what the target was before
    if (file_ >= 0) ::close(file_);
}

void pending_file::fail(int number) const { throw error("cannot write " + target_.string() + ": " + std::strerror(number)); }

std::uintmax_t pending_file::bytes() const {
    struct ::stat found {};
    return ::fstat(file_, &found) == 0 ? static_cast<std::uintmax_t>(found.st_size) : 0;
}

void pending_file::write(std::string_view content) {
    if (const int number = write_all(file_, content); number != 0) fail(number);
}

void pending_file::sync() {
    if (!stream_ && ::fsync(file_) != 0 && errno != EINVAL && errno != ENOTSUP) fail(errno);  // some filesystems have no fsync
}

void pending_file::pour() {
    const int number = open_file_number(place_);
    const int out = number >= 0 ? ::dup(number) : ::open(place_.c_str(), O_WRONLY | O_CLOEXEC);
    if (out < 0) fail(errno);
    std::string part(std::size_t{1} << 20, '\0');
    int problem = 0;
    for (::off_t at = 0; problem == 0;) {
        const ::ssize_t n = ::pread(file_, part.data(), part.size(), at);
        if (n == 0) break;
        problem = n < 0 ? errno : write_all(out, std::string_view(part).substr(0, static_cast<std::size_t>(n)));
        at += n;
    }
    if (::close(out) != 0 && problem == 0) problem = errno;
    state_ = state::replaced;  // a part of the content may have been written
    if (problem != 0) fail(problem);
}

void pending_file::put() {
    if (stream_) return pour();
    std::error_code failed;
    struct ::stat before {};
    const bool there = ::lstat(place_.c_str(), &before) == 0;
    if (there && S_ISREG(before.st_mode) && ::fchmod(file_, before.st_mode & 0777u) != 0)
        failed.clear();  // permissions are kept where they can be
    if (there && !fs::is_directory(place_, failed) && exchange(temporary_, place_)) {
        state_ = state::exchanged;
        return;
    }
    fs::rename(temporary_, place_, failed);
    if (failed) fail(failed.value());
    temporary_.clear();
    state_ = there ? state::replaced : state::appeared;
}

bool pending_file::take_back() noexcept {
    switch (std::exchange(state_, state::pending)) {
        case state::pending: return true;
        case state::appeared: return ::unlink(place_.c_str()) == 0;
        case state::exchanged: return exchange(temporary_, place_);
        case state::replaced: return false;
    }
    return false;
}

void pending_file::sync_folder() const noexcept {
    if (stream_) return;
    const int folder = ::open(folder_of(place_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return;
    ::fsync(folder);
    ::close(folder);
}

void pending_file::commit() {
    sync();
    put();
    sync_folder();
}

void write_file(const fs::path& path, std::string_view content) {
    pending_file file(path);
    file.write(content);
    file.commit();
}

}  // namespace qk::graph
