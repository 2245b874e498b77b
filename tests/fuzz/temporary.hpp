// SPDX-License-Identifier: Apache-2.0
// A file in a folder of this process, for readers that take only a path.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace qk_fuzz {

class temporary {
  public:
    temporary(std::string_view bytes, const std::string& name)
        : path_(std::filesystem::temp_directory_path() / ("qk_fuzz_" + std::to_string(getpid())) / name) {
        std::filesystem::create_directory(path_.parent_path());
        std::ofstream(path_, std::ios::binary) << bytes;
    }
    ~temporary() {
        std::error_code ignored;
        std::filesystem::remove(path_, ignored);
        std::filesystem::remove(path_.parent_path(), ignored);  // the last one
    }
    temporary(const temporary&) = delete;
    temporary& operator=(const temporary&) = delete;
    const std::filesystem::path& path() const { return path_; }

  private:
    std::filesystem::path path_;
};

}  // namespace qk_fuzz
