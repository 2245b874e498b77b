// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "qk/graph/calibrate/statistics.hpp"

namespace qk::graph {

double magnitude_histogram::width() const { return std::ldexp(1.0, exponent_); }

namespace {

/// Calls use(counters) with a histogram's counters of whatever width; does nothing while it is a list.
template <class Counts, class Use>
void with_counters(Counts& counts, const Use& use) {
    std::visit(
        [&](auto& all) {
            if constexpr (std::is_integral_v<std::remove_cvref_t<decltype(all[0])>>) use(all);
        },
        counts);
}

std::uint64_t sum_at_most(std::uint64_t a, std::uint64_t b) { return a + std::min(b, std::numeric_limits<std::uint64_t>::max() - a); }

}  // namespace

template <class Visit>
void magnitude_histogram::for_each(const Visit& visit) const {
    if (const few* list = std::get_if<few>(&counts_))
        for (const bin_count& b : *list) visit(std::size_t{b.place}, b.count);
    with_counters(counts_, [&](const auto& all) {
        for (std::size_t i = 0; i < all.size(); ++i)
            if (all[i] != 0) visit(i, std::uint64_t{all[i]});
    });
}

std::vector<std::uint64_t> magnitude_histogram::side(std::size_t first) const {
    std::vector<std::uint64_t> counts(bins);
    for_each([&](std::size_t place, std::uint64_t n) {
        if (place >= first && place < first + bins) counts[place - first] = n;
    });
    return counts;
}

std::size_t magnitude_histogram::bytes() const {
    return std::visit([](const auto& all) { return all.capacity() * sizeof(all[0]); }, counts_);
}

void magnitude_histogram::widen(int exponent) {
    if (count_ == 0) exponent_ = exponent;
    if (exponent <= exponent_) return;
    const int shift = std::min(exponent - exponent_, 62);
    const auto moved = [&](std::size_t place) { return place < bins ? place >> shift : bins + ((place - bins) >> shift); };
    exponent_ = exponent;
    if (few* list = std::get_if<few>(&counts_)) {
        for (bin_count& b : *list) b.place = static_cast<std::uint32_t>(moved(b.place));
        add(std::vector<bin_count>{});
    }
    with_counters(counts_, [&](auto& all) {
        using counter = std::remove_cvref_t<decltype(all[0])>;
        for (std::size_t i = 0; i < all.size(); ++i) {  // a bin's new place is no later than its own
            const counter n = std::exchange(all[i], counter{});
            all[moved(i)] = static_cast<counter>(all[moved(i)] + n);
        }
    });
}

/// Chooses how to count so many more values in so many more bins.
void magnitude_histogram::make_room(std::size_t places, std::uint64_t more) {
    constexpr std::size_t most_listed = 512;  // half of what the narrowest counters take
    const few* list = std::get_if<few>(&counts_);
    if (list != nullptr && list->size() + places <= most_listed) return;
    const auto count_in = [&]<class Counter>(Counter) {
        if (std::holds_alternative<std::vector<Counter>>(counts_)) return;
        std::vector<Counter> all(2 * bins);
        for_each([&](std::size_t place, std::uint64_t n) { all[place] = static_cast<Counter>(n); });
        counts_ = std::move(all);
    };
    const std::uint64_t all = sum_at_most(count_, more);
    if (all <= std::numeric_limits<std::uint16_t>::max()) count_in(std::uint16_t{});
    else if (all <= std::numeric_limits<std::uint32_t>::max()) count_in(std::uint32_t{});
    else count_in(std::uint64_t{});
}

/// Adds entries in any order.
void magnitude_histogram::add(std::vector<bin_count> more) {
    std::uint64_t sum = 0;
    for (const bin_count& b : more) sum = sum_at_most(sum, b.count);
    make_room(more.size(), sum);
    count_ = sum_at_most(count_, sum);
    with_counters(counts_, [&](auto& all) {
        for (const bin_count& b : more) all[b.place] = static_cast<std::remove_cvref_t<decltype(all[0])>>(all[b.place] + b.count);
    });
    few* list = std::get_if<few>(&counts_);
    if (list == nullptr) return;
    more.insert(more.end(), list->begin(), list->end());
    std::ranges::sort(more, {}, &bin_count::place);
    list->clear();
    for (const bin_count& b : more) {
        if (!list->empty() && list->back().place == b.place) list->back().count += b.count;
        else list->push_back(b);
    }
}

void magnitude_histogram::add(std::span<const float> values) {
    float largest = 0;
    std::size_t finite = 0;
    for (const float v : values) {
        const float m = std::fabs(v);
        if (!(m <= std::numeric_limits<float>::max())) continue;
        ++finite;
        largest = std::max(largest, m);
    }
    if (finite == 0) return;
    // Smallest exponent with largest < bins * 2^exponent; 2^-149 is the smallest magnitude there is.
    int e = -149;
    if (largest > 0) {
        std::frexp(largest, &e);  // largest < 2^e
        e = std::max(e - std::countr_zero(bins), -149);
    }
    widen(e);
    make_room(finite, finite);
    const double inverse = std::ldexp(1.0, -exponent_);
    const auto each_place = [&](const auto& use) {
        for (const float v : values) {
            const float m = std::fabs(v);
            if (!(m <= std::numeric_limits<float>::max())) continue;
            use(static_cast<std::size_t>(static_cast<std::int32_t>(static_cast<double>(m) * inverse)) + (v < 0 ? bins : 0));
        }
    };
    if (std::holds_alternative<few>(counts_)) {
        std::vector<bin_count> more;
        each_place([&](std::size_t place) { more.push_back({static_cast<std::uint32_t>(place), 1}); });
        return add(std::move(more));
    }
    count_ += finite;
    with_counters(counts_, [&](auto& all) { each_place([&](std::size_t place) { ++all[place]; }); });
}

void magnitude_histogram::add(const magnitude_histogram& other) {
    if (other.empty()) return;
    widen(other.exponent_);
    const int shift = std::min(exponent_ - other.exponent_, 62);
    std::vector<bin_count> more;
    other.for_each([&](std::size_t place, std::uint64_t n) {
        const std::size_t first = place < bins ? 0 : bins;
        more.push_back({static_cast<std::uint32_t>(first + ((place - first) >> shift)), n});
    });
    add(std::move(more));
}

magnitude_histogram magnitude_histogram::restore(int exponent, const std::vector<std::uint64_t>& positive,
                                                 const std::vector<std::uint64_t>& negative) {
    if (positive.size() > bins || negative.size() > bins || exponent < -149 || exponent > 128)
        throw error("a histogram with more bins or another width than ours");
    std::vector<bin_count> all;
    for (const auto* side : {&positive, &negative})
        for (std::size_t i = 0; i < side->size(); ++i)
            if ((*side)[i] != 0) all.push_back({static_cast<std::uint32_t>(i + (side == &negative ? bins : 0)), (*side)[i]});
    magnitude_histogram h;
    h.exponent_ = exponent;
    h.add(std::move(all));
    return h;
}

namespace detail {

/// Returns the magnitude below which `share` (0 to 1) of the counts lie: the upper edge of that bin.
inline double quantile(const std::vector<std::uint64_t>& counts, double width, double share) {
    std::uint64_t all = 0, seen = 0;
    for (const std::uint64_t c : counts) all += c;
    const double wanted = share * static_cast<double>(all);
    for (std::size_t i = 0; i < counts.size(); ++i) {
        seen += counts[i];
        if (seen > 0 && static_cast<double>(seen) >= wanted) return static_cast<double>(i + 1) * width;
    }
    return static_cast<double>(counts.size()) * width;
}

inline std::vector<std::uint64_t> magnitudes(const magnitude_histogram& h) {
    std::vector<std::uint64_t> both = h.positive();
    const std::vector<std::uint64_t> negative = h.negative();
    for (std::size_t i = 0; i < both.size(); ++i) both[i] += negative[i];
    return both;
}

/// Returns a threshold on magnitudes as a range inside what was seen.
inline value_range within(value_range seen, double lo, double hi) {
    return {std::max(seen.lo, static_cast<float>(lo)), std::min(seen.hi, static_cast<float>(hi))};
}

inline value_range percentile_range(const tensor_statistics& s, double percentile, bool symmetric) {
    const magnitude_histogram& h = s.histogram;
    if (symmetric) {
        const double t = quantile(magnitudes(h), h.width(), percentile / 100);
        return within(s.range, -t, t);
    }
    // Two-sided: half of what is cut comes off each end of the signed order.
    const double cut = (100 - percentile) / 200 * static_cast<double>(h.count());
    const auto end = [&](const std::vector<std::uint64_t>& near, const std::vector<std::uint64_t>& far, double sign) {
        double left = cut;
        for (std::size_t i = near.size(); i-- > 0;) {
            left -= static_cast<double>(near[i]);
            if (left < 0) return sign * static_cast<double>(i + 1) * h.width();
        }
        for (std::size_t i = 0; i < far.size(); ++i) {
            left -= static_cast<double>(far[i]);
            if (left < 0) return -sign * static_cast<double>(i) * h.width();
        }
        return 0.0;
    };
    return within(s.range, end(h.negative(), h.positive(), -1), end(h.positive(), h.negative(), 1));
}

/// Returns the magnitude that loses least information: Kullback-Leibler divergence between the clipped histogram and its image on `levels`
/// levels (Migacz, "8-bit inference with TensorRT", GTC 2017). Bin 0 is left out: zero is always exact.
inline double entropy_threshold(const std::vector<std::uint64_t>& counts, double width, std::size_t levels) {
    std::size_t used = counts.size();
    while (used > 0 && counts[used - 1] == 0) --used;
    if (used <= levels) return static_cast<double>(used) * width;
    double total = 0;
    for (std::size_t i = 1; i < used; ++i) total += static_cast<double>(counts[i]);
    double best = std::numeric_limits<double>::infinity();
    std::size_t chosen = used;
    double inside = 0;
    std::size_t summed = 1;
    const std::size_t step = std::max<std::size_t>(1, used / 512);
    for (std::size_t n = levels; n <= used; n = n < used && n + step > used ? used : n + step) {
        for (; summed < n; ++summed) inside += static_cast<double>(counts[summed]);
        const double outliers = total - inside;
        if (!(inside > 0)) continue;
        double divergence = 0;
        for (std::size_t level = 0; level < levels; ++level) {
            const std::size_t from = std::max<std::size_t>(1, level * n / levels), to = (level + 1) * n / levels;
            double sum = 0;
            std::size_t filled = 0;
            for (std::size_t i = from; i < to; ++i) sum += static_cast<double>(counts[i]), filled += counts[i] != 0;
            for (std::size_t i = from; i < to; ++i) {
                double p = static_cast<double>(counts[i]);
                if (i + 1 == n) p += outliers;
                if (p == 0) continue;
                const double q = counts[i] != 0 ? sum / static_cast<double>(filled) / inside : 1e-9;
                divergence += p / total * std::log(p / total / q);
            }
        }
        if (divergence < best) best = divergence, chosen = n;
        if (n == used) break;
    }
    return static_cast<double>(chosen) * width;
}

inline double range_error(integer f, value_range r, bool symmetric, const histogram_points& points) {
    return squared_error(f, scale_of(f, r, symmetric), points.values, points.weights);
}

/// Shrinks both ends together, then each alone, and returns the range of least error.
inline value_range mse_range(const tensor_statistics& s, integer f, bool symmetric) {
    const histogram_points points = points_of(s);
    value_range best = s.range;
    double least = range_error(f, best, symmetric, points);
    const auto attempt = [&](value_range r) {
        const double e = range_error(f, r, symmetric, points);
        if (e < least) least = e, best = r;
    };
    for (int i = 1; i < 100; ++i)
        attempt({s.range.lo * (1 - 0.01f * static_cast<float>(i)), s.range.hi * (1 - 0.01f * static_cast<float>(i))});
    if (symmetric) return best;
    const value_range both = best;
    for (int i = 1; i < 60; ++i) attempt({best.lo, both.hi * (1 - 0.01f * static_cast<float>(i))});
    for (int i = 1; i < 60; ++i) attempt({both.lo * (1 - 0.01f * static_cast<float>(i)), best.hi});
    return best;
}
}  // namespace detail

histogram_points points_of(const tensor_statistics& seen) {
    histogram_points points;
    const magnitude_histogram& h = seen.histogram;
    const auto add = [&](const std::vector<std::uint64_t>& counts, double sign) {
        for (std::size_t i = 0; i < counts.size(); ++i) {
            if (counts[i] == 0) continue;
            // Bin 0 stands for zero itself: behind a Relu it holds most of the values.
            const double centre = i == 0 ? 0.0 : sign * (static_cast<double>(i) + 0.5) * h.width();
            points.values.push_back(std::clamp(static_cast<float>(centre), std::min(seen.range.lo, 0.0f), std::max(seen.range.hi, 0.0f)));
            points.weights.push_back(static_cast<double>(counts[i]));
        }
    };
    add(h.negative(), -1);
    add(h.positive(), 1);
    return points;
}

bool can_choose(const tensor_statistics& seen, range_method method) {
    if (seen.count == seen.not_finite || method == range_method::min_max) return true;
    return method == range_method::moving_average ? seen.averaged : !seen.histogram.empty();
}

value_range choose_range(const tensor_statistics& seen, const range_options& o, const std::string& tensor) {
    if (seen.count == seen.not_finite) return {0, 0};
    if (o.method == range_method::min_max) return seen.range;
    if (o.method == range_method::moving_average) {
        if (!can_choose(seen, o.method))
            throw error("tensor '" + tensor + "': the calibration holds no moving average; calibrate again with --method moving_average");
        return seen.average;
    }
    if (!can_choose(seen, o.method))
        throw error("tensor '" + tensor + "': the calibration holds ranges only; calibrate again with --method " + name_of(o.method));
    if (!(o.percentile > 0 && o.percentile <= 100))
        throw error("percentile " + std::to_string(o.percentile) + " is not above 0 and at most 100");
    if (o.method == range_method::percentile) return detail::percentile_range(seen, o.percentile, o.symmetric);
    // The methods below compare errors, which a scale makes; a format with no scale, or with more steps than bins, keeps the whole range.
    const integer* whole = std::get_if<integer>(&o.format);
    if (whole == nullptr || used_bits(*whole) > 10) return seen.range;
    switch (o.method) {
        case range_method::entropy: {
            const bool one_sided = seen.range.lo >= 0 && !(o.symmetric && whole->is_signed);
            const std::size_t levels = std::size_t{1} << (one_sided ? used_bits(*whole) : std::max(used_bits(*whole) - 1, 1));
            const double t = detail::entropy_threshold(detail::magnitudes(seen.histogram), seen.histogram.width(), levels);
            return detail::within(seen.range, -t, t);
        }
        case range_method::mse: return detail::mse_range(seen, *whole, o.symmetric);
        default: {
            const histogram_points points = points_of(seen);
            value_range best = seen.range;
            double least = std::numeric_limits<double>::infinity();
            for (const double p : {99.99, 99.999, 99.99999}) {
                const value_range r = detail::percentile_range(seen, p, o.symmetric);
                const double e = detail::range_error(*whole, r, o.symmetric, points);
                if (e < least) least = e, best = r;
            }
            return best;
        }
    }
}

double estimated_error(const tensor_statistics& seen, const quantizer& q) {
    if (seen.histogram.empty() || is_block_format(q.format) || q.scale.size() > 1) return std::numeric_limits<double>::quiet_NaN();
    const histogram_points points = points_of(seen);
    if (points.values.empty()) return 0;
    std::vector<float> y(points.values.size());
    apply(q, make_tensor<float>({static_cast<std::int64_t>(y.size())}, points.values), y);
    double sum = 0, all = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
        const double e = static_cast<double>(points.values[i]) - static_cast<double>(y[i]);
        sum += points.weights[i] * e * e;
        all += points.weights[i];
    }
    return sum / all;
}

}  // namespace qk::graph
