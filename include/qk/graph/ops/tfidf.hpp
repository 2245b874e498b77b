// SPDX-License-Identifier: Apache-2.0
// Implements TfIdfVectorizer on integers: counts each n-gram of a pool in a row; its items may be up to max_skip_count + 1 apart.
#pragma once

#include <map>

#include "qk/graph/ops/dispatch.hpp"

namespace qk::graph::ops {

inline void tfidf_vectorizer(op_context& call) {
    const node_view& node = call.node();
    const tensor& x = call.input(0);
    const auto pool = node.get_ints("pool_int64s"), starts = node.get_ints("ngram_counts"), places = node.get_ints("ngram_indexes");
    const auto weights = node.get_floats("weights");
    const std::int64_t shortest = node.get_int("min_gram_length", 1), longest = node.get_int("max_gram_length", 1),
                       skips = node.get_int("max_skip_count", 0);
    const std::string mode = node.get_string("mode", "TF");
    if (!node.has("pool_int64s")) call.fail("only a pool of integers is supported");
    if (mode != "TF" && mode != "IDF" && mode != "TFIDF") call.fail("unknown mode '" + mode + "'");
    if (x.rank() > 2 || shortest < 1 || longest < shortest || skips < 0) call.fail("the input or the gram lengths are out of bounds");

    // Maps every n-gram of the pool, of all lengths, to the column in which it is counted.
    std::map<std::vector<std::int64_t>, std::size_t> columns;
    std::vector<bool> pooled(starts.size() + 1);  // by length of the n-gram
    std::size_t gram = 0, width = 0;
    for (std::size_t n = 1; n <= starts.size(); ++n) {
        const std::int64_t from = starts[n - 1], to = n < starts.size() ? starts[n] : static_cast<std::int64_t>(pool.size());
        if (from < 0 || to < from || to > static_cast<std::int64_t>(pool.size())) call.fail("ngram_counts do not fit the pool");
        for (auto at = from; at + static_cast<std::int64_t>(n) <= to; at += static_cast<std::int64_t>(n), ++gram) {
            if (gram >= places.size() || places[gram] < 0 || places[gram] > 1 << 28) call.fail("ngram_indexes do not fit the pool");
            columns[{pool.begin() + at, pool.begin() + at + static_cast<std::ptrdiff_t>(n)}] = static_cast<std::size_t>(places[gram]);
            pooled[n] = true;
        }
    }
    for (const std::int64_t p : places) width = std::max(width, static_cast<std::size_t>(std::max<std::int64_t>(p, 0)) + 1);
    if (!weights.empty() && weights.size() < width) call.fail("there are too few weights");

    const auto values = int_values(call, x);
    const std::size_t rows = x.rank() == 2 ? static_cast<std::size_t>(x.dim(0)) : 1, length = rows == 0 ? 0 : values.size() / rows;
    dims shape{static_cast<std::int64_t>(width)};
    if (x.rank() == 2) shape.insert(shape.begin(), x.dim(0));
    tensor& y = call.output(0, data_type::float32, shape);
    std::fill_n(y.as<float>().data(), y.size(), 0.0f);
    for (std::size_t r = 0; r < rows; ++r) {
        float* count = y.as<float>().data() + r * width;
        // No n-gram is longer than the pool's longest, and none reaches beyond the row.
        for (std::size_t n = static_cast<std::size_t>(shortest); n <= std::min(static_cast<std::size_t>(longest), starts.size()); ++n)
            for (std::size_t step = 1; pooled[n] && step <= (n == 1 ? 1 : static_cast<std::size_t>(skips) + 1) && (n - 1) * step < length;
                 ++step)
                for (std::size_t i = 0; i + (n - 1) * step < length; ++i) {
                    std::vector<std::int64_t> items(n);
                    for (std::size_t k = 0; k < n; ++k) items[k] = values[r * length + i + k * step];
                    if (const auto found = columns.find(items); found != columns.end()) ++count[found->second];
                }
        for (std::size_t j = 0; mode != "TF" && j < width; ++j) {
            if (mode == "IDF") count[j] = count[j] > 0 ? 1.0f : 0.0f;
            if (!weights.empty()) count[j] *= weights[j];
        }
    }
}

inline constexpr op_entry tfidf_ops[] = {{"", "TfIdfVectorizer", 9, tfidf_vectorizer}};

}  // namespace qk::graph::ops
