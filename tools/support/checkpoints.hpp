// SPDX-License-Identifier: Apache-2.0
// What inspect, convert, compare and lint do with checkpoints: safetensors and GGUF files.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "options/option_table.hpp"

namespace qk::tool {

/// Told by the end of the name: .safetensors, .gguf, or .json (the index of shards).
bool is_checkpoint(const std::string& file);
/// Returns a checkpoint, or else `other` with the words for it, as "a model".
given_input checkpoint_or(input_kind other, const std::string& file, const std::string& words);
/// Says that a verb takes models alone; `file` is read when the verb runs.
void takes_models(option_table& verb, std::shared_ptr<const std::string> file);

struct checkpoint_conversion {
    std::string input, output, format, like;
    std::vector<std::string> tensors;  ///< GLOB=FORMAT
    std::string plan;                  ///< a requests file
    std::string shard_size;            ///< bytes, or with MB, GB; empty: one file
    bool overwrite = false;
    std::string system, importance;
    int threads = 0;  ///< 0: one for each core
    bool names_as_they_are = false;
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
void rank_formats(const std::string& file, const std::vector<std::string>& formats, const std::string& importance, int threads, bool json);
struct size_search {
    std::string input, save_plan, output, importance;
    std::vector<std::string> formats;
    std::vector<std::string> share;  ///< globs: what fits one and is of one layer gets one format
    double budget = 0;               ///< bytes of all matrices, or bits of each of their values
    bool budget_is_bits = false;
    int threads = 0;
    bool json = false, overwrite = false, names_as_they_are = false;
};
/// `qk search FILE --budget`: a format for each matrix. Returns whether the budget can be met.
bool search_formats(const size_search& given);
/// Returns whether nothing was found.
bool lint_checkpoint(const std::string& file, bool json);

}  // namespace qk::tool
