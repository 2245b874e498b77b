// SPDX-License-Identifier: Apache-2.0
// Lists the files that loading a model reads, and saves a model as one of several outputs.
#pragma once

#include <cstddef>
#include <filesystem>
#include <vector>

#include "qk/graph/files/output_set.hpp"
#include "qk/graph/model/model.hpp"

namespace qk::graph {

/// The files that model::load(file) reads: the file itself, then its external data. Only the file if it is no model: loading will say so.
struct model_files {
    std::vector<std::filesystem::path> all;
    std::size_t renamed = 0;  ///< names that are not UTF-8, which loading converts (utf8_names.hpp)
};
model_files files_of_model(const std::filesystem::path& file);

inline constexpr std::size_t largest_model_file = (std::size_t{1} << 31) - (std::size_t{1} << 20);

/// Does what model::save does, as one of several outputs; `out` commits. Above `largest` bytes weights go to FILE.data.
void save(const model& m, output_set& out, const std::filesystem::path& file, std::size_t largest = largest_model_file);

}  // namespace qk::graph
