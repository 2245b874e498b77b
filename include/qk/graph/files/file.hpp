// SPDX-License-Identifier: Apache-2.0
// Reads regular files, with an error that names them; a pipe or device is none. atomic_file.hpp writes.
#pragma once

#include <filesystem>
#include <istream>
#include <memory>
#include <string>

#include "qk/graph/base/error.hpp"

namespace qk::graph {

/// Returns the bytes of a file. Throws error naming it when it is missing, unreadable, no regular file, or changed meanwhile.
std::string read_file(const std::filesystem::path& file);

/// A file as a stream, for what is read line by line; it may grow meanwhile. The constructor throws error as read_file does.
class file_stream : public std::istream {
  public:
    explicit file_stream(const std::filesystem::path& file);
    ~file_stream() override;

  private:
    std::unique_ptr<std::streambuf> buffer_;
};

}  // namespace qk::graph
