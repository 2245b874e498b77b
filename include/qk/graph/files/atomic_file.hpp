// SPDX-License-Identifier: Apache-2.0
// A file that appears whole or not at all: written beside its place, then renamed.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace qk::graph {

/// Write to temporary(), then commit(). Without commit() the destructor removes what was written, so an error leaves no partial
/// file, and a file that stood there before stays. Several outputs of one command: commit them together, at the end.
class pending_file {
  public:
    explicit pending_file(std::filesystem::path target);
    pending_file(pending_file&& other) noexcept;
    pending_file& operator=(pending_file&&) = delete;
    ~pending_file();

    const std::filesystem::path& target() const { return target_; }
    const std::filesystem::path& temporary() const { return temporary_; }  ///< in the target's own folder: a rename is atomic there
    /// Throws qk::graph::error naming the target when the file cannot be renamed to it.
    void commit();

  private:
    std::filesystem::path target_;
    std::filesystem::path temporary_;
};

/// The whole content at once: pending_file, write, commit. Throws qk::graph::error naming the path.
void write_file(const std::filesystem::path& path, std::string_view content);

}  // namespace qk::graph
