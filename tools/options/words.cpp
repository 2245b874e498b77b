// SPDX-License-Identifier: Apache-2.0
#include "options/words.hpp"

#include "qk/formats/catalogue.hpp"
#include "qk/graph/export/export.hpp"
#include "qk/graph/quantize/plan_file.hpp"
#include "qk/graph/search/metric.hpp"
#include "qk/graph/search/trials.hpp"

namespace qk::tool {
namespace {
template <class Table>
word_list names_in(const Table& table) {
    word_list words;
    for (const auto& entry : table) words.emplace_back(entry.name);
    return words;
}
}  // namespace

word_list format_words() { return names_in(catalogue); }
word_list metric_words() { return names_in(graph::all_metrics()); }
word_list strategy_words() { return names_in(graph::all_strategies()); }
word_list style_words() { return {"portable", "qdq", "qoperator", "qinteger", "amd", "nbits"}; }
word_list weight_storage_words() { return {"packed", "float"}; }

word_list method_words(const word_list& more) { return graph::range_method_names(more); }

}  // namespace qk::tool
