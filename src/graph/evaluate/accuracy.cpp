// SPDX-License-Identifier: Apache-2.0
// Top-k and differences, in double whatever the outputs' type is.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "qk/graph/evaluate/accuracy.hpp"
#include "qk/graph/ops/elements.hpp"

namespace qk::graph {
namespace detail {

inline std::vector<double> as_doubles(const tensor& t, const std::string& what) {
    std::vector<double> v(t.size());
    if (!ops::read_elements(t.type(), t.bytes(), std::span<double>(v)))
        throw error(what + " holds " + name_of(t.type()) + ", which are no numbers");
    return v;
}

}  // namespace detail

double top_k(const tensor& output, std::span<const std::int64_t> labels, std::size_t k) {
    const std::size_t samples = labels.size();
    if (samples == 0 || output.rank() == 0 || output.size() % samples != 0)
        throw error("an output of shape " + to_string(output.shape()) + " cannot be read as scores for " + std::to_string(samples) +
                    " labels");
    const std::size_t classes = output.size() / samples;
    const auto scores = detail::as_doubles(output, "the output");
    std::size_t right = 0;
    for (std::size_t s = 0; s < samples; ++s) {
        if (labels[s] < 0 || labels[s] >= static_cast<std::int64_t>(classes))
            throw error("label " + std::to_string(labels[s]) + " of sample " + std::to_string(s) + " is outside of " +
                        std::to_string(classes) + " classes");
        const double* row = scores.data() + s * classes;
        const auto label = static_cast<std::size_t>(labels[s]);
        const double own = row[label];
        if (std::isnan(own)) continue;
        std::size_t before = 0;
        for (std::size_t c = 0; c < classes; ++c) before += row[c] > own || (row[c] == own && c < label);
        right += before < k;
    }
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
