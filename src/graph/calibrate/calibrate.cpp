// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "graph/calibrate/of_values.hpp"
#include "graph/ops/widened.hpp"
#include "qk/graph/calibrate/calibrate.hpp"

namespace qk::graph {

namespace detail {

/// What one thread has seen. Merging is exact and does not depend on order: minima, maxima and integer counts.
struct seen_by_thread {
    std::unordered_map<std::string, tensor_statistics> tensors;
    std::unordered_map<std::string, std::map<std::size_t, value_range>> samples;  // moving averages need the order
};

struct finite_range {
    value_range range;
    std::size_t count = 0;  ///< number of finite values
};

/// Returns the range of the finite values; -0 counts as 0. Compares them as integers in the order of the floats and without branches, so
/// that compilers vectorize it: a minimum of floats would have to heed NaN.
inline finite_range range_of_finite(std::span<const float> x) {
    constexpr std::int32_t infinity = 0x7f800000;
    std::int32_t lo = infinity, hi = -infinity;
    std::size_t count = 0;
    for (std::size_t begin = 0; begin < x.size(); begin += 65536) {
        const float* p = x.data() + begin;
        const auto n = static_cast<int>(std::min<std::size_t>(x.size() - begin, 65536));
        std::int32_t finite = 0;
        for (int i = 0; i < n; ++i) {
            const auto bits = std::bit_cast<std::int32_t>(p[i]);
            const std::int32_t magnitude = bits & 0x7fffffff, sign = bits >> 31, key = (magnitude ^ sign) - sign;
            const std::int32_t ok = magnitude < infinity ? -1 : 0, low = ok ? key : infinity, high = ok ? key : -infinity;
            finite -= ok;
            lo = low < lo ? low : lo;
            hi = high > hi ? high : hi;
        }
        count += static_cast<std::size_t>(finite);
    }
    const auto value = [](std::int32_t key) { return key < 0 ? -std::bit_cast<float>(-key) : std::bit_cast<float>(key); };
    return {count > 0 ? value_range{value(lo), value(hi)} : value_range{}, count};
}

/// Widens the range by `more`, whose values are not counted yet.
inline void widen(tensor_statistics& s, value_range more) {
    const bool first = s.count == s.not_finite;
    s.range = first ? more : value_range{std::min(s.range.lo, more.lo), std::max(s.range.hi, more.hi)};
}

inline void note_nan(tensor_statistics& s, std::uint64_t more, std::uint64_t sample) {
    if (more > 0) s.nan_sample = s.nan > 0 ? std::min(s.nan_sample, sample) : sample;
    s.nan += more;
}

inline void observe(tensor_statistics& s, const tensor& value, std::size_t sample, bool histogram) {
    const std::span<const float> x = value.as<float>();
    if (s.count == 0 || value.shape() < s.shape) s.shape = value.shape();  // keeps one shape whatever the order
    const finite_range seen = range_of_finite(x);
    if (seen.count > 0) widen(s, seen.range);
    s.count += x.size();
    s.not_finite += x.size() - seen.count;
    if (seen.count < x.size())
        note_nan(s, static_cast<std::uint64_t>(std::ranges::count_if(x, [](float v) { return std::isnan(v); })), sample);
    if (histogram) s.histogram.add(x);
}

inline void merge(tensor_statistics& into, const tensor_statistics& from) {
    if (from.count > from.not_finite) widen(into, from.range);
    // Samples of one model may differ in shape; the smallest one by order is kept so that threads do not matter.
    if (into.shape.empty() || (!from.shape.empty() && from.shape < into.shape)) into.shape = from.shape;
    into.count += from.count;
    into.not_finite += from.not_finite;
    note_nan(into, from.nan, from.nan_sample);
    into.histogram.add(from.histogram);
}
}  // namespace detail

calibrate_options options_for(range_method method) {
    return {.histograms = method != range_method::min_max && method != range_method::moving_average,
            .moving_average = method == range_method::moving_average};
}

calibration calibrate(const model& m, const named_tensors& inputs, const calibrate_options& options, const progress& report,
                      named_tensors* outputs) {
    memory_budget budget(options.limits.memory);
    const auto take = [&](std::size_t bytes) {
        try {
            budget.take(bytes);
        } catch (const error&) {
            throw error("what is recorded of the activations takes more memory than the run may; calibrate ranges only, or fewer tensors");
        }
    };
    std::mutex lock;
    std::unordered_map<std::thread::id, std::unique_ptr<detail::seen_by_thread>> threads;
    static std::atomic<std::uint64_t> calls = 0;
    const std::uint64_t call = ++calls;
    const auto mine = [&]() -> detail::seen_by_thread& {
        thread_local std::pair<std::uint64_t, detail::seen_by_thread*> latest{0, nullptr};
        if (latest.first == call) return *latest.second;
        const std::lock_guard guard(lock);
        auto& place = threads[std::this_thread::get_id()];
        if (!place) place = std::make_unique<detail::seen_by_thread>();
        latest = {call, place.get()};
        return *place;
    };
    const auto observe = [&](const std::string& name, const tensor& given, std::size_t sample) {
        if ((given.type() != data_type::float32 && !ops::is_half(given.type())) || given.size() == 0) return;
        if (!options.tensors.empty() && !options.tensors.contains(name)) return;
        if (m.is_constant(name)) return;
        const tensor value = ops::widened(given);
        detail::seen_by_thread& own = mine();
        tensor_statistics& seen = own.tensors[name];
        const std::size_t before = seen.histogram.bytes();
        detail::observe(seen, value, sample, options.histograms);
        const std::size_t now = seen.histogram.bytes();
        if (now > before) take(now - before);
        if (options.moving_average) {
            take(sizeof(std::pair<const std::size_t, value_range>) + 4 * sizeof(void*));  // a node of the map
            own.samples[name][sample] = range_of(value.as<float>());
        }
    };
    // Each run has one sample, or all rows if they are none by themselves: shapes and moving averages then mean the same for every thread
    // count.
    const evaluator run(m, {.threads = options.threads, .keep_outputs = outputs != nullptr, .any_order = true, .limits = options.limits});
    calibration result;
    evaluate_result ran = run.run(inputs, {}, observe, report);
    result.samples = ran.samples;
    result.whole = ran.whole;
    if (outputs != nullptr) *outputs = std::move(ran.outputs);

    std::map<std::string, std::map<std::size_t, value_range>> samples;
    for (const auto& [id, own] : threads) {
        while (!own->tensors.empty()) {  // the first one is moved, and freed at once: histograms are large
            auto one = own->tensors.extract(own->tensors.begin());
            const auto [at, is_new] = result.tensors.try_emplace(one.key(), std::move(one.mapped()));
            if (!is_new) detail::merge(at->second, one.mapped());
        }
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

void observe_values(calibration& into, const std::map<std::string, tensor>& values, std::size_t run) {
    for (const auto& [name, given] : values)
        if ((given.type() == data_type::float32 || ops::is_half(given.type())) && given.size() > 0)
            detail::observe(into.tensors[name], ops::widened(given), run, true);
    into.samples = std::max(into.samples, run + 1);
}

}  // namespace qk::graph
