// SPDX-License-Identifier: Apache-2.0
#include "options/words.hpp"

#include "qk/formats/catalogue.hpp"
#include "qk/graph/export.hpp"
#include "qk/graph/quantize.hpp"
#include "qk/graph/search.hpp"

namespace qk::tool {

word_list format_words() { return words_of(catalogue); }
word_list metric_words() { return words_of(graph::all_metrics()); }
word_list strategy_words() { return words_of(graph::all_strategies()); }
word_list style_words() {
    word_list words;
    for (const graph::export_style s : graph::export_styles()) words.emplace_back(s.name());
    return words;
}
std::string style_lines() {
    std::string lines;
    for (const graph::export_style s : graph::export_styles())
        lines += std::string(s.name()) + (lines.empty() ? " (default): " : ": ") + s.help() + "; ";
    return lines + "docs/guide/export.md";
}
word_list weight_storage_words() { return {"packed", "float", "product"}; }

word_list method_words(const word_list& more) { return graph::range_method_names(more); }

}  // namespace qk::tool
