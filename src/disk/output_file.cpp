// SPDX-License-Identifier: Apache-2.0
#include "disk/output_file.hpp"

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
#include <exception>
#include <system_error>
#include <utility>

namespace qk::disk {
namespace {

namespace fs = std::filesystem;

fs::path folder_of(const fs::path& file) { return file.has_parent_path() ? file.parent_path() : fs::path("."); }

/// Returns what the names of all parts of `place` begin with. Long names are cut: a name has at most 255 bytes.
std::string prefix_of(const fs::path& place) { return "." + place.filename().string().substr(0, 180) + ".qk-"; }

/// Writes all of `content`, at `offset` or, if that is negative, at the end. Returns the error's number, or 0.
int write_all(int file, std::string_view content, ::off_t offset = -1) {
    while (!content.empty()) {
        const std::size_t some = std::min(content.size(), std::size_t{1} << 30);
        const ::ssize_t n = offset < 0 ? ::write(file, content.data(), some) : ::pwrite(file, content.data(), some, offset);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n < 0 ? errno : ENOSPC;
        content.remove_prefix(static_cast<std::size_t>(n));
        if (offset >= 0) offset += n;
    }
    return 0;
}

/// Removes files that have names of parts of `place` and that no living process has locked.
void remove_leftovers(const fs::path& folder, const fs::path& place) {
    const std::string prefix = prefix_of(place), suffix = ".part";
    std::error_code failed;
    for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end; entry.increment(failed)) {
        const std::string name = entry->path().filename().string();
        if (!name.starts_with(prefix) || !name.ends_with(suffix) || name.size() <= prefix.size() + suffix.size()) continue;
        const std::size_t digits = name.find_first_not_of("0123456789-", prefix.size());
        if (digits != name.size() - suffix.size() || name.find('-', prefix.size()) == std::string::npos) continue;
        const int file = ::open(entry->path().c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (file < 0) continue;
        struct ::stat found {};
        if (::fstat(file, &found) == 0 && S_ISREG(found.st_mode) && ::flock(file, LOCK_EX | LOCK_NB) == 0) ::unlink(entry->path().c_str());
        ::close(file);
    }
}

/// Returns a new, locked file, or -1 with errno.
int open_locked(const fs::path& part) {
    for (int attempt = 0; attempt < 100; ++attempt) {
        const int file = ::open(part.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
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
    for (int links = 0;; ++links) {
        const std::string full = fs::absolute(at, failed).lexically_normal().string();
        if (full.starts_with("/proc/") || full.starts_with("/dev/fd/")) return {full, true};
        if (!fs::is_symlink(at, failed)) break;
        if (links == 40) return {file, false, true};  // as many as Linux follows
        const fs::path next = fs::read_symlink(at, failed);
        at = next.is_absolute() ? next : at.parent_path() / next;
    }
    const fs::file_status there = fs::status(at, failed);
    return {at, fs::exists(there) && !fs::is_regular_file(there) && !fs::is_directory(there)};
}

void output_file::resolve() {
    destination to = destination_of(target_);
    if (to.circle) fail("its links lead in a circle (" + std::string(std::strerror(ELOOP)) + ")");
    place_ = std::move(to.place);
    stream_ = to.stream;
    const fs::path folder = stream_ ? fs::temp_directory_path() : folder_of(place_);
    std::error_code failed;
    if (!fs::is_directory(folder, failed)) fail("there is no folder " + folder.string());
    if (!place_.has_filename() || fs::is_directory(place_, failed)) fail("it is a folder, give the name of a file");
    remove_leftovers(folder, place_);
}

fs::path output_file::unique_name() const {
    static std::atomic<unsigned> serial{0};  // two parts of one process may have the same target
    const fs::path folder = stream_ ? fs::temp_directory_path() : folder_of(place_);
    return folder / (prefix_of(place_) + std::to_string(::getpid()) + "-" + std::to_string(serial++) + ".part");
}

output_file::output_file(fs::path target, complaint complain) : target_(std::move(target)), complain_(complain) {
    resolve();
    const fs::path name = unique_name();
    file_ = open_locked(name);
    if (file_ < 0) fail(errno);
    part_ = name;
}

output_file::output_file(fs::path target, const std::string& identity, complaint complain)
    : target_(std::move(target)), complain_(complain), taken_up_(true) {
    resolve();
    if (stream_) fail("it is a pipe or device, give the name of a file");
    const fs::path name = folder_of(place_) / (prefix_of(place_) + identity + ".part");
    file_ = ::open(name.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (file_ < 0) fail(errno);
    struct ::stat found {};
    const bool locked = ::flock(file_, LOCK_EX | LOCK_NB) == 0, regular = ::fstat(file_, &found) == 0 && S_ISREG(found.st_mode);
    if (locked && regular) {
        part_ = name;
        return;
    }
    ::close(file_);
    fail(regular ? "another process is writing it" : name.string() + " is in the way");
}

output_file::~output_file() {
    if (!part_.empty()) ::unlink(part_.c_str());  // after an exchange this is what the target was before
    if (file_ >= 0) ::close(file_);
}

void output_file::fail(const std::string& why) const {
    complain_(target_, why);
    std::terminate();  // a complaint throws
}
void output_file::fail(int number) const { fail(std::strerror(number)); }

std::uint64_t output_file::bytes() const {
    struct ::stat found {};
    return ::fstat(file_, &found) == 0 ? static_cast<std::uint64_t>(found.st_size) : 0;
}

void output_file::append(std::string_view content) {
    if (const int number = write_all(file_, content); number != 0) fail(number);
}
void output_file::write_at(std::uint64_t offset, std::string_view content) {
    if (const int number = write_all(file_, content, static_cast<::off_t>(offset)); number != 0) fail(number);
}
void output_file::cut(std::uint64_t size) {
    if (::ftruncate(file_, static_cast<::off_t>(size)) != 0) fail(errno);
}
bool output_file::read_at(std::uint64_t offset, char* to, std::size_t n) const {
    return ::pread(file_, to, n, static_cast<::off_t>(offset)) == static_cast<::ssize_t>(n);
}

void output_file::sync() {
    if (!stream_ && ::fsync(file_) != 0 && errno != EINVAL && errno != ENOTSUP) fail(errno);  // some filesystems have no fsync
}

void output_file::pour() {
    const int number = open_file_number(place_);
    const int out = number >= 0 ? ::dup(number) : ::open(place_.c_str(), O_WRONLY | O_CLOEXEC);
    if (out < 0) fail(errno);
    std::string piece(std::size_t{1} << 20, '\0');
    int problem = 0;
    for (::off_t at = 0; problem == 0;) {
        const ::ssize_t n = ::pread(file_, piece.data(), piece.size(), at);
        if (n == 0) break;
        problem = n < 0 ? errno : write_all(out, std::string_view(piece).substr(0, static_cast<std::size_t>(n)));
        at += n;
    }
    if (::close(out) != 0 && problem == 0) problem = errno;
    state_ = state::replaced;  // a part of the content may have been written
    if (problem != 0) fail(problem);
}

void output_file::put() {
    if (stream_) return pour();
    if (taken_up_) {  // what the target was before must never lie where a later run looks for a part
        const fs::path name = unique_name();
        if (::rename(part_.c_str(), name.c_str()) != 0) fail(errno);
        part_ = name;
        taken_up_ = false;
    }
    std::error_code failed;
    struct ::stat before {};
    const bool there = ::lstat(place_.c_str(), &before) == 0;
    if (there && S_ISREG(before.st_mode) && ::fchmod(file_, before.st_mode & 0777u) != 0)
        failed.clear();  // permissions are kept where they can be
    if (there && !fs::is_directory(place_, failed) && exchange(part_, place_)) {
        state_ = state::exchanged;
        return;
    }
    fs::rename(part_, place_, failed);
    if (failed) fail(failed.value());
    part_.clear();
    state_ = there ? state::replaced : state::appeared;
}

bool output_file::take_back() noexcept {
    switch (std::exchange(state_, state::pending)) {
        case state::pending: return true;
        case state::appeared: return ::unlink(place_.c_str()) == 0;
        case state::exchanged: return exchange(part_, place_);
        case state::replaced: return false;
    }
    return false;
}

void output_file::sync_folder() const noexcept {
    if (stream_) return;
    const int folder = ::open(folder_of(place_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return;
    ::fsync(folder);
    ::close(folder);
}

void append_to(const fs::path& file, std::string_view content, complaint complain) {
    struct ::stat there {};
    if (::stat(file.c_str(), &there) == 0 && !S_ISREG(there.st_mode)) complain(file, "it is no regular file");
    const int out = ::open(file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
    if (out < 0) complain(file, std::strerror(errno));
    const bool regular = ::fstat(out, &there) == 0 && S_ISREG(there.st_mode);
    int problem = regular ? write_all(out, content) : 0;
    if (::close(out) != 0 && problem == 0) problem = errno;
    if (!regular) complain(file, "it is no regular file");
    if (problem != 0) complain(file, std::strerror(problem));
}

}  // namespace qk::disk
