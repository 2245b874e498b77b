// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/search/spread.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace qk::graph {
namespace {

void add(metric_terms& sums, const metric_terms& one, double sign = 1) {
    for (std::size_t k = 0; k < sums.size(); ++k) sums[k] += sign * one[k];
}
metric_terms summed(std::span<const metric_terms> samples) {
    metric_terms sums{};
    for (const metric_terms& one : samples) add(sums, one);
    return sums;
}
double finished(const metric& m, const metric_terms& sums) { return m.finish(sums, static_cast<std::size_t>(std::llround(sums[counted]))); }

/// Numbers below a bound from SplitMix64, the same everywhere.
class generator {
  public:
    std::size_t below(std::size_t bound) {
        std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return static_cast<std::size_t>((z ^ (z >> 31)) % bound);
    }

  private:
    std::uint64_t state_ = 0;
};

}  // namespace

double value_over(const metric& m, std::span<const metric_terms> samples) { return finished(m, summed(samples)); }

double student(double z, std::size_t samples) {
    // The first terms of Fisher's expansion: within 1 % of tables from 5 samples on, for z up to 3.
    const double free = static_cast<double>(std::max<std::size_t>(samples, 2) - 1), z2 = z * z;
    return z + z * (z2 + 1) / (4 * free) + z * ((5 * z2 + 16) * z2 + 3) / (96 * free * free);
}

interval bootstrapped(const metric& m, std::span<const metric_terms> samples) {
    constexpr double none = std::numeric_limits<double>::infinity();
    const std::size_t n = samples.size();
    if (n < 2) return {-none, none};
    const double value = value_over(m, samples);
    generator random;
    const auto drawn = [&] {
        metric_terms sums{};
        for (std::size_t i = 0; i < n; ++i) add(sums, samples[random.below(n)]);
        return sums[counted] > 0 ? finished(m, sums) : std::numeric_limits<double>::quiet_NaN();
    };
    std::vector<double> values;
    for (std::size_t d = 0; d < (n > 20000 ? 200u : 1000u); ++d)
        if (const double v = value + (drawn() - drawn()); !std::isnan(v)) values.push_back(v);
    if (values.empty()) return {-none, none};
    std::ranges::sort(values);
    const double wide = student(1.959964, n) * std::sqrt(static_cast<double>(n) / static_cast<double>(n - 1));
    const double share = 0.5 * std::erfc(wide / std::sqrt(2.0));
    const auto place = static_cast<std::size_t>(share * static_cast<double>(values.size()));
    return {values[place], values[values.size() - 1 - place]};
}

double error_of_difference(const metric& m, std::span<const metric_terms> before, std::span<const metric_terms> after) {
    const std::size_t n = before.size();
    if (n < 2) return std::numeric_limits<double>::infinity();
    const metric_terms all_before = summed(before), all_after = summed(after);
    std::vector<double> differences;
    double mean = 0;
    for (std::size_t i = 0; i < n; ++i) {
        metric_terms b = all_before, a = all_after;
        add(b, before[i], -1), add(a, after[i], -1);
        differences.push_back(finished(m, a) - finished(m, b));
        mean += differences.back() / static_cast<double>(n);
    }
    double squares = 0;
    for (const double d : differences) squares += (d - mean) * (d - mean);
    const double error = std::sqrt(squares * static_cast<double>(n - 1) / static_cast<double>(n));
    return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
}

/// Returns the part of an interval in which a metric can lie.
static interval within(const metric& m, interval i) { return m.is_accuracy ? interval{std::max(i.low, 0.0), std::min(i.high, 1.0)} : i; }

measured_difference difference_of(const metric& m, std::span<const metric_terms> before, std::span<const metric_terms> after) {
    return {.metric = within(m, bootstrapped(m, after)),
            .value = value_over(m, after) - value_over(m, before),
            .chance = student(1.959964, before.size()) * error_of_difference(m, before, after)};
}

measured_difference difference_by_draws(double before, double after, std::size_t samples, std::size_t draws,
                                        const std::function<std::pair<double, double>(std::span<const std::size_t>)>& measured) {
    generator random;
    std::vector<double> values, differences;
    std::vector<std::size_t> which(samples);
    for (std::size_t d = 0; d < draws; ++d) {
        for (std::size_t& s : which) s = random.below(samples);
        const auto [b, a] = measured(which);
        if (!std::isfinite(b) || !std::isfinite(a)) continue;
        values.push_back(a), differences.push_back(a - b);
    }
    const double z = student(1.959964, samples), none = std::numeric_limits<double>::infinity();
    const auto deviation = [](const std::vector<double>& all) {
        double mean = 0, squares = 0;
        for (const double v : all) mean += v / static_cast<double>(all.size());
        for (const double v : all) squares += (v - mean) * (v - mean);
        return std::sqrt(squares / static_cast<double>(all.size() - 1));
    };
    if (values.size() < 8) return {.metric = {-none, none}, .value = after - before, .chance = none};
    const double wide = z * std::sqrt(2.0) * deviation(values);  // of two sets of samples
    return {.metric = {after - wide, after + wide}, .value = after - before, .chance = z * deviation(differences)};
}

}  // namespace qk::graph
