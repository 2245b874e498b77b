// SPDX-License-Identifier: Apache-2.0
// The one place that opens files for reading: regular files alone, read in pieces or mapped, every byte from one unchanged file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace qk::disk {

/// Throws the caller's own kind of error about `file`; it does not return.
using complaint = void (*)(const std::filesystem::path& file, const std::string& why);

/// A regular file that is read over time: all bytes come from the file as it was when it was opened, or there is an error. A pipe, socket
/// or device is refused without being opened, since reading one may wait for ever, or never end; where something else takes the file's
/// place between the look and the opening, the opening does not wait, and what was opened is looked at again.
class input_file {
  public:
    /// Complains about a file that is missing, unreadable or no regular file.
    input_file(std::filesystem::path file, complaint complain);
    ~input_file();
    input_file(const input_file&) = delete;
    input_file& operator=(const input_file&) = delete;

    const std::filesystem::path& path() const { return path_; }
    std::uint64_t size() const { return size_; }
    /// Reads the bytes from `offset` on into `to`. Complains when the file is shorter, or was changed since it was opened.
    void read(std::uint64_t offset, std::span<std::byte> to) const;
    /// Reads what there is from `offset` on, and returns how much: 0 at the end. Does not ask whether the file grew meanwhile.
    std::size_t read_some(std::uint64_t offset, std::span<std::byte> to) const;
    /// Complains when the file was changed since it was opened.
    void check() const;

  private:
    friend class mapping;
    /// The file while it is open: the one that is kept, or one of its own that is closed at the end.
    class descriptor {
      public:
        explicit descriptor(const input_file& of);
        ~descriptor();
        descriptor(const descriptor&) = delete;
        descriptor& operator=(const descriptor&) = delete;
        int number() const { return number_; }
        int keep() { return own_ = false, number_; }

      private:
        int number_;
        bool own_;
    };
    void check(const descriptor& file) const;
    [[noreturn]] void fail(const std::string& why) const;

    std::filesystem::path path_;
    complaint complain_;
    int file_ = -1;  ///< -1: opened again for each piece, because many files are open already
    std::uint64_t size_ = 0, device_ = 0, number_ = 0;
    std::int64_t seconds_ = 0, nanoseconds_ = 0;
};

/// Returns all bytes of a regular file; complains when they are more than `most`.
std::string read_whole(const std::filesystem::path& file, complaint complain, std::uint64_t most = UINT64_MAX);

/// A whole file in the process's memory; the system loads its pages when they are read. The file outlives it.
///
/// Where another process cuts the file short, reading what is gone would end this process by a signal (SIGBUS). While a mapping lives, a
/// handler of that signal puts zeros there instead, in whatever thread it happens, and check() complains. So whoever reads bytes() calls
/// check() before anything that was made of them is given away. Signals at other addresses go on to the handler that was there before.
class mapping {
  public:
    explicit mapping(const input_file& file);
    ~mapping();
    mapping(const mapping&) = delete;
    mapping& operator=(const mapping&) = delete;

    std::span<const std::byte> bytes() const { return {start_, size_}; }
    /// Gives back the pages of a part that was read. Reading it again fetches it from the file.
    void release(std::span<const std::byte> part) const noexcept;
    /// Complains when the file was changed since it was opened, or a part of it could not be read.
    void check() const;

  private:
    struct region;

    const input_file& file_;
    const std::byte* start_ = nullptr;
    std::size_t size_ = 0;
    region* guarded_ = nullptr;
    friend struct bus_errors;
};

/// Does `work` on what `mapped` has, a mapping or whatever has a check(), and returns its result. What came of it counts only if nothing
/// was changed meanwhile: then whatever went wrong, if something did.
template <class Mapped, class Work>
auto unchanged(const Mapped& mapped, Work work) {
    try {
        auto made = work();
        mapped.check();
        return made;
    } catch (...) {
        mapped.check();
        throw;
    }
}

}  // namespace qk::disk
