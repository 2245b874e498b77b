// SPDX-License-Identifier: Apache-2.0
// A file that is read in pieces over time, with the graph module's errors: all pieces come from one unchanged file.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "disk/input_file.hpp"

namespace qk::graph {

/// Throws error: "cannot read 'FILE': WHY".
void cannot_read(const std::filesystem::path& file, const std::string& why);

class data_file : public disk::input_file {
  public:
    explicit data_file(std::filesystem::path file) : input_file(std::move(file), cannot_read) {}
};

/// Maps a file for `work`, which gets its bytes, and returns what it makes of them; throws error if they changed meanwhile, whatever
/// came of it.
template <class Work>
auto while_mapped(const data_file& file, Work work) {
    const disk::mapping mapped(file);
    const auto bytes = mapped.bytes();
    return disk::unchanged(mapped, [&] { return work(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size())); });
}

}  // namespace qk::graph
