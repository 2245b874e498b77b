// SPDX-License-Identifier: Apache-2.0
// A file that appears whole or not at all: it is written beside its place, put on the disk, then renamed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

namespace qk::disk {
class output_file;
}

namespace qk::graph {

/// Call write(), then commit(). Without commit() the destructor removes what was written, so an error leaves no partial file, and a file
/// that was there before stays. output_set.hpp is for several outputs of one command.
///
/// The temporary file is .NAME.qk-PROCESS-NUMBER.part in the folder of its target (a rename is atomic there) and locked as long as its
/// writer lives. What a killed process left is removed by the next pending_file of the same target, which finds it unlocked.
/// A target that is a link is written where the link leads. A pipe or device (/dev/stdout, /dev/null) is never replaced: commit() writes
/// the content into it.
class pending_file {
  public:
    /// Makes the temporary file. Throws qk::graph::error naming the target: its folder is missing, it is a folder, or it is not writable.
    explicit pending_file(std::filesystem::path target);
    pending_file(pending_file&& other) noexcept;
    pending_file& operator=(pending_file&&) = delete;
    ~pending_file();

    const std::filesystem::path& target() const;
    const std::filesystem::path& temporary() const;
    bool is_stream() const;        ///< a pipe or device
    std::uintmax_t bytes() const;  ///< written so far

    /// Appends `content`. Throws when the disk is full.
    void write(std::string_view content);
    /// Calls sync(), put() and sync_folder().
    void commit();

    /// Puts what was written on the disk. Throws on failure.
    void sync();
    /// Makes what was written the target. Throws on failure.
    void put();
    /// After put(), makes the target again what it was before. Returns false if that is impossible: for a stream, or on a filesystem that
    /// cannot exchange two files.
    bool take_back() noexcept;
    /// Puts the folder's entry on the disk. Errors are ignored: nothing can be done about them any more.
    void sync_folder() const noexcept;

  private:
    std::unique_ptr<disk::output_file> file_;
};

/// Writes the whole content at once through a pending_file. Throws qk::graph::error naming the path.
void write_file(const std::filesystem::path& path, std::string_view content);

/// Appends to a regular file, which is made where there is none. Throws qk::graph::error naming the path.
void append_to_file(const std::filesystem::path& path, std::string_view content);

}  // namespace qk::graph
