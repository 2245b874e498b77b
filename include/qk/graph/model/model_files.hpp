// SPDX-License-Identifier: Apache-2.0
// The files of a model: which ones loading reads, and saving as one of several outputs.
#pragma once

#include <cstddef>
#include <filesystem>
#include <vector>

#include "qk/graph/files/output_set.hpp"
#include "qk/graph/model/model.hpp"

namespace qk::graph {

/// What model::load(file) reads: the file itself, then its external data. Only the file where it is no model: loading will say so.
struct model_files {
    std::vector<std::filesystem::path> all;
    std::size_t renamed = 0;  ///< names that are not UTF-8 and that loading makes so (utf8_names.hpp)
};
model_files files_of_model(const std::filesystem::path& file);

inline constexpr std::size_t largest_model_file = (std::size_t{1} << 31) - (std::size_t{1} << 20);

/// model::save as one of several outputs; `out` commits. Above `largest` bytes weights go to FILE.data.
void save(const model& m, output_set& out, const std::filesystem::path& file, std::size_t largest = largest_model_file);

}  // namespace qk::graph
