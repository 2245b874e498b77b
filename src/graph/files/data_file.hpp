// SPDX-License-Identifier: Apache-2.0
// A file that is read in pieces over time: all pieces come from one unchanged file, or there is an error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

namespace qk::graph {

class data_file {
  public:
    /// Throws error naming the file when it is missing, unreadable or no regular file.
    explicit data_file(std::filesystem::path file);
    ~data_file();
    data_file(const data_file&) = delete;
    data_file& operator=(const data_file&) = delete;

    const std::filesystem::path& path() const { return path_; }
    std::uint64_t size() const { return size_; }
    /// Reads the bytes from `offset` on into `to`. Throws error naming the file when it is shorter, or was changed since it was opened.
    void read(std::uint64_t offset, std::span<std::byte> to) const;

  private:
    void check(int file) const;

    std::filesystem::path path_;
    int file_ = -1;  ///< -1: opened again for each piece, because many files are open already
    std::uint64_t size_ = 0, device_ = 0, number_ = 0;
    std::int64_t seconds_ = 0, nanoseconds_ = 0;
};

/// A whole file mapped into memory; the system loads its pages when they are read.
class mapped_file {
  public:
    /// Throws error naming the file.
    explicit mapped_file(const std::filesystem::path& file);
    ~mapped_file();
    mapped_file(const mapped_file&) = delete;
    mapped_file& operator=(const mapped_file&) = delete;

    std::string_view bytes() const { return {start_, size_}; }

  private:
    const char* start_ = nullptr;
    std::size_t size_ = 0;
};

}  // namespace qk::graph
