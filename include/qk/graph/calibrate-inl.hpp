// SPDX-License-Identifier: Apache-2.0
// Definitions of calibrate.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "qk/graph/calibrate.hpp"

namespace qk::graph {

namespace detail {

/// What one thread has seen. Merging is exact and does not depend on order: minima, maxima and integer counts.
struct seen_by_thread {
    std::unordered_map<std::string, tensor_statistics> tensors;
    std::unordered_map<std::string, std::map<std::size_t, value_range>> samples;  // moving averages need the order
};

inline void observe(tensor_statistics& s, const tensor& value, bool histogram) {
    const std::span<const float> x = value.as<float>();
    if (s.count == 0 || value.shape() < s.shape) s.shape = value.shape();  // one shape whatever the order
    float lo = std::numeric_limits<float>::infinity(), hi = -lo;
    std::uint64_t finite = 0;
    for (const float v : x) {
        const bool ok = std::fabs(v) <= std::numeric_limits<float>::max();
        finite += ok;
        lo = std::min(lo, ok ? v : lo);
        hi = std::max(hi, ok ? v : hi);
    }
    if (finite > 0) {
        const bool first = s.count == s.not_finite;
        s.range = first ? value_range{lo, hi} : value_range{std::min(s.range.lo, lo), std::max(s.range.hi, hi)};
    }
    s.count += x.size();
    s.not_finite += x.size() - finite;
    if (histogram) s.histogram.add(x);
}

inline void merge(tensor_statistics& into, const tensor_statistics& from) {
    if (from.count > from.not_finite) {
        const bool first = into.count == into.not_finite;
        into.range = first ? from.range : value_range{std::min(into.range.lo, from.range.lo), std::max(into.range.hi, from.range.hi)};
    }
    // Samples of one model may differ in shape; the smallest one by order is kept so that threads do not matter.
    if (into.shape.empty() || (!from.shape.empty() && from.shape < into.shape)) into.shape = from.shape;
    into.count += from.count;
    into.not_finite += from.not_finite;
    into.histogram.add(from.histogram);
}
}  // namespace detail

QK_GRAPH_INLINE calibrate_options options_for(range_method method) {
    return {.histograms = method != range_method::min_max && method != range_method::moving_average,
            .moving_average = method == range_method::moving_average};
}

QK_GRAPH_INLINE calibration calibrate(const model& m, const named_tensors& inputs, const calibrate_options& options, const progress& report) {
    std::mutex lock;
    std::unordered_map<std::thread::id, std::unique_ptr<detail::seen_by_thread>> threads;
    const auto mine = [&]() -> detail::seen_by_thread& {
        const std::lock_guard guard(lock);
        auto& place = threads[std::this_thread::get_id()];
        if (!place) place = std::make_unique<detail::seen_by_thread>();
        return *place;
    };
    const auto observe = [&](const std::string& name, const tensor& value, std::size_t sample) {
        if (value.type() != data_type::float32 || value.size() == 0) return;
        if (!options.tensors.empty() && !options.tensors.contains(name)) return;
        if (m.is_constant(name)) return;
        detail::seen_by_thread& own = mine();
        detail::observe(own.tensors[name], value, options.histograms);
        if (options.moving_average) own.samples[name][sample] = range_of(value.as<float>());
    };
    // One sample a run: shapes and moving averages then mean the same for every model and thread count.
    const evaluator run(m, {.threads = options.threads, .batch = 1, .keep_outputs = false, .limits = options.limits});
    calibration result;
    result.samples = run.run(inputs, {}, observe, report).samples;

    std::map<std::string, std::map<std::size_t, value_range>> samples;
    for (const auto& [id, own] : threads) {
        for (const auto& [name, s] : own->tensors) detail::merge(result.tensors[name], s);
        for (auto& [name, s] : own->samples) samples[name].merge(s);
    }
    const double keep = 1 - options.average_weight;
    for (const auto& [name, ranges] : samples) {
        tensor_statistics& s = result.tensors.at(name);
        double lo = 0, hi = 0;
        bool first = true;
        for (const auto& [sample, r] : ranges) {
            const double l = static_cast<double>(r.lo), h = static_cast<double>(r.hi);
            lo = first ? l : keep * lo + options.average_weight * l;
            hi = first ? h : keep * hi + options.average_weight * h;
            first = false;
        }
        s.average = {static_cast<float>(lo), static_cast<float>(hi)};
        s.averaged = true;
    }
    return result;
}

}  // namespace qk::graph
