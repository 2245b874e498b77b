// SPDX-License-Identifier: Apache-2.0
// The one place that writes outputs: a file is a hidden part beside its target until it is whole, then it gets the target's name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "disk/input_file.hpp"

namespace qk::disk {

/// Where a file leads through links, whether it leads to a pipe or device or to an open file of this process (/dev/stdout, /dev/fd/3),
/// and whether its links lead nowhere because they lead in a circle.
struct destination {
    std::filesystem::path place;
    bool stream = false, circle = false;
};
destination destination_of(const std::filesystem::path& file);

/// A part that becomes its target. Without put() the destructor removes it, so that an error leaves no partial file, and what the target
/// was before stays. The part is locked as long as its writer lives; what a killed process left is removed by the next part of the same
/// target, unless it has an identity by which a later run takes it up.
class output_file {
  public:
    /// Makes the part: .NAME.qk-PROCESS-NUMBER.part in the target's folder, a rename is atomic there; for a pipe or device in the folder
    /// of temporary files. Complains when the target is a folder, has none, or cannot be written.
    output_file(std::filesystem::path target, complaint complain);
    /// Takes up the part .NAME.qk-IDENTITY.part that an earlier run left, or makes it. Complains about a pipe or device, too, and when
    /// another process is writing the part.
    output_file(std::filesystem::path target, const std::string& identity, complaint complain);
    output_file(const output_file&) = delete;
    output_file& operator=(const output_file&) = delete;
    ~output_file();

    const std::filesystem::path& target() const { return target_; }
    const std::filesystem::path& part() const { return part_; }
    bool is_stream() const { return stream_; }
    std::uint64_t bytes() const;  ///< of the part

    /// Complains when the disk is full.
    void append(std::string_view content);
    void write_at(std::uint64_t offset, std::string_view content);
    void cut(std::uint64_t size);
    bool read_at(std::uint64_t offset, char* to, std::size_t n) const;

    /// Puts the part on the disk.
    void sync();
    /// Makes the part the target; a stream gets its content.
    void put();
    /// After put(), makes the target again what it was before. Returns false if that is impossible: for a stream, or on a filesystem that
    /// cannot exchange two files.
    bool take_back() noexcept;
    /// Puts the folder's entry on the disk. Errors are ignored: nothing can be done about them any more.
    void sync_folder() const noexcept;

  private:
    enum class state { pending, appeared, exchanged, replaced };
    void resolve();
    std::filesystem::path unique_name() const;
    void pour();
    [[noreturn]] void fail(const std::string& why) const;
    [[noreturn]] void fail(int number) const;

    std::filesystem::path target_, place_, part_;  ///< place_: target_ with its links resolved
    complaint complain_;
    state state_ = state::pending;
    bool stream_ = false, taken_up_ = false;
    int file_ = -1;
};

/// Appends to a regular file, which is made where there is none.
void append_to(const std::filesystem::path& file, std::string_view content, complaint complain);

}  // namespace qk::disk
