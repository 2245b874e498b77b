// SPDX-License-Identifier: Apache-2.0
// Computes top-k and differences, in double whatever the outputs' type is.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "graph/ops/elements.hpp"
#include "qk/graph/evaluate/accuracy.hpp"

namespace qk::graph {
namespace detail {

inline std::vector<double> as_doubles(const tensor& t, const std::string& what) {
    std::vector<double> v(t.size());
    if (!ops::read_elements(t.type(), t.bytes(), std::span<double>(v)))
        throw error(what + " holds " + name_of(t.type()) + ", which are no numbers");
    return v;
}

}  // namespace detail

namespace {

bool is_in_top_k(std::span<const double> row, std::int64_t of, std::size_t k, std::size_t sample) {
    if (of < 0 || of >= static_cast<std::int64_t>(row.size()))
        throw error("label " + std::to_string(of) + " of sample " + std::to_string(sample) + " is outside of " +
                    std::to_string(row.size()) + " classes");
    const auto label = static_cast<std::size_t>(of);
    const double own = row[label];
    if (std::isnan(own)) return false;
    std::size_t before = 0;
    for (std::size_t c = 0; c < row.size(); ++c) before += row[c] > own || (row[c] == own && c < label);
    return before < k;
}

}  // namespace

bool in_top_k(const tensor& output, std::int64_t label, std::size_t k, std::size_t sample) {
    return is_in_top_k(detail::as_doubles(output, "the output"), label, k, sample);
}

double top_k(const tensor& output, std::span<const std::int64_t> labels, std::size_t k) {
    const std::size_t samples = labels.size();
    if (samples == 0 || output.rank() == 0 || output.size() % samples != 0)
        throw error("an output of shape " + to_string(output.shape()) + " cannot be read as scores for " + std::to_string(samples) +
                    " labels");
    const std::size_t classes = output.size() / samples;
    const auto scores = detail::as_doubles(output, "the output");
    std::size_t right = 0;
    for (std::size_t s = 0; s < samples; ++s) right += is_in_top_k(std::span(scores).subspan(s * classes, classes), labels[s], k, s);
    return static_cast<double>(right) / static_cast<double>(samples);
}

output_difference compare_outputs(const tensor& got, const tensor& expected, const std::string& name) {
    if (got.shape() != expected.shape())
        throw error("output '" + name + "' has shape " + to_string(got.shape()) + ", the expected one has " + to_string(expected.shape()));
    const auto a = detail::as_doubles(got, "output '" + name + "'"), b = detail::as_doubles(expected, "the expected output '" + name + "'");
    output_difference d;
    for (std::size_t i = 0; i < a.size(); ++i) {
        if (std::isfinite(b[i])) d.largest = std::max(d.largest, std::abs(b[i]));
        if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
        const double gap = std::abs(a[i] - b[i]);
        d.absolute = std::max(d.absolute, std::isnan(gap) ? std::numeric_limits<double>::infinity() : gap);
    }
    d.relative = d.absolute == 0 ? 0 : d.absolute / d.largest;
    return d;
}

}  // namespace qk::graph
