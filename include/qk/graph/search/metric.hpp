// SPDX-License-Identifier: Apache-2.0
// Metrics say how far a quantized model's outputs are from the float model's: one number over all samples, from a few sums for each sample.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "qk/graph/base/names.hpp"
#include "qk/graph/base/tensor.hpp"

namespace qk::graph {

/// Terms that one sample contributes; each metric gives them its own meaning. Sums over samples run in sample order, so they do not depend
/// on threads.
using metric_terms = std::array<double, 5>;
/// Index of the last term, which counts the samples or positions that were added up.
inline constexpr std::size_t counted = 4;

/// A measure over the samples of one model output.
struct metric {
    std::string_view name;
    bool higher_is_better;
    bool needs_labels;
    bool is_accuracy;  ///< a share of the samples, from 0 to 1
    bool by_position;  ///< measures a choice among classes; in an output [N, S, C] one at each position (positions.hpp)
    /// Returns the terms of one sample. y and reference are its outputs, flattened, as float32. Throws an error where labels are needed and
    /// this one is no class; other metrics take no notice of it.
    metric_terms (*sample)(std::span<const float> y, std::span<const float> reference, std::int64_t label);
    /// Returns the metric from the summed terms of all samples (or positions) and their number.
    double (*finish)(const metric_terms& sums, std::size_t samples);
    std::string_view what;  ///< definition for --help and pages; y: the sample's output, r: its reference
};

/// Returns l2 mse sqnr psnr cosine kl loss perplexity top1 top5 agreement.
std::span<const metric> all_metrics();

/// Finds a metric by name. Throws with the known and the nearest names.
const metric& find_metric(std::string_view name);

/// Is true for a measure of the user's own, which is known by its number alone.
inline bool is_users(const metric& m) { return m.sample == nullptr; }

/// Is true when a is better than b under the metric; NaN is worse than everything.
bool better(const metric& m, double a, double b);

namespace detail {
/// Returns the entry of that name. Throws, with the nearest names, for an unknown name; the error calls the entries `kind`.
template <class Table>
const auto& named_entry(const Table& table, const std::string& kind, std::string_view name) {
    std::vector<std::string> known;
    for (const auto& entry : table) {
        if (entry.name == name) return entry;
        known.emplace_back(entry.name);
    }
    throw error("unknown " + kind + " '" + std::string(name) + "'; choose one of " + comma_separated(known) + "." +
                did_you_mean(name, known));
}

inline double squared_distance(std::span<const float> y, std::span<const float> r) {
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
        const double d = double(y[i]) - double(r[i]);
        sum += d * d;
    }
    return sum;
}
}  // namespace detail

}  // namespace qk::graph
