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

bool is_in_top_k(std::span<const double> row, std::size_t label, std::size_t k) {
    const double own = row[label];
    if (std::isnan(own)) return false;
    std::size_t before = 0;
    for (std::size_t c = 0; c < row.size(); ++c) before += row[c] > own || (row[c] == own && c < label);
    return before < k;
}

}  // namespace

choice_rows choices_of(const dims& shape, std::size_t labels) {
    std::size_t values = 1;
    for (const std::int64_t d : shape) values *= static_cast<std::size_t>(d);
    if (shape.size() == 3 && shape[0] * shape[1] > 0)
        return {static_cast<std::size_t>(shape[0] * shape[1]), static_cast<std::size_t>(shape[1]), static_cast<std::size_t>(shape[2]),
                true};
    if (shape.size() == 2 && labels > 1 && static_cast<std::size_t>(shape[0]) == labels)
        return {labels, labels, static_cast<std::size_t>(shape[1]), true};
    return {1, 1, values, false};
}

std::string label_index(std::size_t at, std::size_t each) {
    if (each <= 1) return "index " + std::to_string(at);
    return "index [" + std::to_string(at / each) + "," + std::to_string(at % each) + "]";
}

void check_class(std::int64_t label, std::size_t classes, const std::string& where) {
    if (label >= 0 && static_cast<std::uint64_t>(label) < classes) return;
    throw error("label " + std::to_string(label) + (where.empty() ? "" : " at " + where) + " is none of the " + std::to_string(classes) +
                " classes (from 0): mend it, or leave such labels out with --ignore-label " + std::to_string(label));
}

void check_labels(std::span<const std::int64_t> labels, std::size_t each, std::size_t classes, std::int64_t ignored, std::size_t first) {
    const auto is_wrong = [&](std::int64_t label) {
        return label != ignored && (label < 0 || static_cast<std::uint64_t>(label) >= classes);
    };
    const auto wrong = std::ranges::find_if(labels.subspan(first), is_wrong);
    if (wrong != labels.end()) check_class(*wrong, classes, label_index(static_cast<std::size_t>(wrong - labels.begin()), each));
}

void check_label_count(std::span<const std::int64_t> labels, std::size_t samples, const choice_rows& of) {
    const std::size_t wanted = samples * of.rows, each = labels.size() / samples, first = each > of.rows ? of.rows : wanted;
    if (labels.size() == wanted) return;
    throw error("there are " + std::to_string(labels.size()) + " labels for " + std::to_string(samples) + " samples" +
                (of.rows > 1 ? " of " + std::to_string(of.rows) + " positions: give one for each position" : ": give one for each") +
                (labels.size() > wanted ? "; label " + std::to_string(labels[first]) + " at " +
                                              label_index(first, labels.size() % samples == 0 ? each : 1) + " is of none"
                                        : ""));
}

std::size_t counting_labels(std::span<const std::int64_t> labels, std::int64_t ignored, const std::string& name) {
    const auto count = static_cast<std::size_t>(std::ranges::count_if(labels, [&](std::int64_t label) { return label != ignored; }));
    if (count > 0) return count;
    throw error(labels.empty() ? "no label counts: " + name + " has none"
                               : "no label counts: all " + std::to_string(labels.size()) + " of " + name + " are " +
                                     std::to_string(ignored) + ", which --ignore-label leaves out");
}

bool in_top_k(const tensor& output, std::int64_t label, std::size_t k) {
    check_class(label, output.size());
    return is_in_top_k(detail::as_doubles(output, "the output"), static_cast<std::size_t>(label), k);
}

double top_k(const tensor& output, std::span<const std::int64_t> labels, std::size_t k, std::int64_t ignored) {
    const std::size_t samples = labels.size();
    if (samples == 0 || output.rank() == 0 || output.size() % samples != 0)
        throw error("an output of shape " + to_string(output.shape()) + " cannot be read as scores for " + std::to_string(samples) +
                    " labels");
    const std::size_t classes = output.size() / samples, count = counting_labels(labels, ignored, "the labels");
    check_labels(labels, 1, classes, ignored);
    const auto scores = detail::as_doubles(output, "the output");
    std::size_t right = 0;
    for (std::size_t s = 0; s < samples; ++s)
        if (labels[s] != ignored)
            right += is_in_top_k(std::span(scores).subspan(s * classes, classes), static_cast<std::size_t>(labels[s]), k);
    return static_cast<double>(right) / static_cast<double>(count);
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
