// SPDX-License-Identifier: Apache-2.0
// A folder that is removed with its content when its object goes.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <initializer_list>
#include <string>

#include "qk/graph/base/error.hpp"

namespace qk::graph {

class temporary_folder {
  public:
    /// Makes the folder in the first of `places` that allows it, otherwise in the system's folder for temporary files. `what` names the use
    /// in errors; the folder's name begins with `stem`.
    explicit temporary_folder(const std::string& stem, const std::string& what, std::initializer_list<std::filesystem::path> places = {}) {
        std::error_code none;
        const std::filesystem::path last = std::filesystem::temp_directory_path(none);
        for (const std::filesystem::path& place : places)
            if (made_in(place, stem)) return;
        if (!made_in(last, stem)) throw error("cannot make a folder for " + what + " in " + last.string());
    }
    ~temporary_folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    temporary_folder(const temporary_folder&) = delete;
    temporary_folder& operator=(const temporary_folder&) = delete;

    const std::filesystem::path& path() const { return path_; }
    std::filesystem::path operator/(const std::filesystem::path& name) const { return path_ / name; }

  private:
    bool made_in(const std::filesystem::path& place, const std::string& stem) {
        std::string name = (place / (stem + "-XXXXXX")).string();
        if (::mkdtemp(name.data()) == nullptr) return false;
        path_ = name;
        return true;
    }
    std::filesystem::path path_;
};

}  // namespace qk::graph
