// SPDX-License-Identifier: Apache-2.0
// The words that options take, from the tables that parse them: for completion, and for help texts that list them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "qk/graph/report.hpp"
#include "qk/option_names.hpp"

namespace qk::tool {

using word_list = std::vector<std::string>;

/// Returns the names in a table.
template <class Table>
word_list words_of(const Table& table) {
    word_list words;
    for (const auto& entry : table) words.emplace_back(entry.name);
    return words;
}

word_list format_words();
word_list metric_words();
word_list strategy_words();
word_list style_words();           ///< values of --export
std::string style_lines();         ///< what --export says of them
word_list weight_storage_words();  ///< values of --weights
/// Returns the calibration methods, then `more`.
word_list method_words(const word_list& more = {});

using graph::comma_separated;

}  // namespace qk::tool
