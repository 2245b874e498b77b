// SPDX-License-Identifier: Apache-2.0
// What inspect, convert, compare and lint do with checkpoints: safetensors and GGUF files.
#pragma once

#include <string>
#include <vector>

namespace qk::tool {

/// Told by the end of the name: .safetensors, .gguf, or .json (the index of shards).
bool is_checkpoint(const std::string& file);

struct checkpoint_conversion {
    std::string input, output, format, like;
    std::vector<std::string> tensors;  ///< GLOB=FORMAT
    std::string plan;                  ///< a requests file
    std::string shard_size;            ///< bytes, or with MB, GB; empty: one file
    bool overwrite = false;
    std::string to = {};  ///< SYSTEM:SCHEME
    bool lossless = false, requantize = false, json = false;
};
/// The words that --to takes.
std::vector<std::string> scheme_words();
void convert_checkpoint(const checkpoint_conversion& given);
void inspect_checkpoint(const std::string& file, bool json);
/// Returns whether both hold the same.
bool compare_checkpoints(const std::string& first, const std::string& second, bool json);
/// `qk sensitivity --weights-only`: what each format would do to each matrix, the worst first.
void rank_formats(const std::string& file, const std::vector<std::string>& formats, const std::string& importance, bool json);
struct size_search {
    std::string input, save_plan, output, importance;
    std::vector<std::string> formats;
    double budget = 0;  ///< bytes of all matrices
    bool json = false, overwrite = false;
};
/// `qk search FILE --budget`: a format for each matrix. Returns whether the budget can be met.
bool search_formats(const size_search& given);
/// Returns whether nothing was found.
bool lint_checkpoint(const std::string& file, bool json);

}  // namespace qk::tool
