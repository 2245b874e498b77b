// SPDX-License-Identifier: Apache-2.0
#include "graph/calibrate/searched_scales.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "graph/base/kernel_calls.hpp"
#include "qk/reference/codes.hpp"

namespace qk::graph::detail {

namespace {

constexpr double without_end = std::numeric_limits<double>::infinity();

/// The numbers of a format on one side of 0, as magnitudes from 0 on, and what a value is divided by to find where its code changes:
/// half-way from each number to the one before.
struct side_levels {
    std::vector<double> at{0.0}, middle{0.0};

    void add(double magnitude) {
        middle.push_back((at.back() + magnitude) / 2);
        at.push_back(magnitude);
    }
    std::size_t last() const { return at.size() - 1; }
};
struct levels {
    side_levels up, down;

    levels(const qk::format& f, std::int64_t zero_point) {
        std::vector<double> all;
        if (const integer* whole = std::get_if<integer>(&f)) {
            for (std::int64_t q = qmin(*whole); q <= qmax(*whole); ++q) all.push_back(static_cast<double>(q - zero_point));
        } else if (const floating* split = std::get_if<floating>(&f)) {
            for (std::uint32_t code = 0; code < (1u << bits(*split)); ++code)
                all.push_back(static_cast<double>(reference::value_of(*split, code)));
        } else if (const table* listed = std::get_if<table>(&f)) {
            for (int code = 0; code < listed->size(); ++code)
                all.push_back(static_cast<double>(value_of(*listed, static_cast<std::uint32_t>(code))));
        }
        std::erase_if(all, [](double v) { return !std::isfinite(v); });
        std::ranges::sort(all);
        all.erase(std::unique(all.begin(), all.end()), all.end());
        for (const double v : all)
            if (v > 0) up.add(v);
        for (auto v = all.rbegin(); v != all.rend(); ++v)
            if (*v < 0) down.add(-*v);
    }
};

/// Returns the levels of a format. The scales of a tensor are searched one after the other, so they are kept until another format comes.
const levels& levels_of(const qk::format& f, std::int64_t zero_point) {
    thread_local qk::format last = fp32;
    thread_local std::map<std::int64_t, levels> known;
    if (!(last == f)) known.clear(), last = f;
    return known.try_emplace(zero_point, f, zero_point).first->second;
}

/// Where the code of a value changes as the scale falls, or (mae) where the value is met: the odd steps change, the even ones meet.
struct scale_event {
    double scale;
    std::uint32_t value, step;
};

/// Finds the best scale over all sets of levels that it is shown.
class scale_search {
  public:
    double least = without_end;  ///< error of the best so far
    double scale = 0;            ///< 0: none was better
    std::int64_t zero_point = 0;

    scale_search(std::span<const float> values, std::span<const float> weights, scale_objective objective)
        : absolute_(objective == scale_objective::mae) {
        for (std::size_t i = 0; i < values.size(); ++i) {
            const double x = static_cast<double>(values[i]), w = weights.empty() ? 1.0 : static_cast<double>(weights[i]);
            if (std::isfinite(x) && x != 0 && w > 0) values_.push_back({std::abs(x), w, x < 0});
        }
    }
    bool empty() const { return values_.empty(); }

    /// Tries every scale for these levels, from `most` down.
    void look_at(const levels& l, std::int64_t zero, bool powers_of_two) {
        levels_ = &l, now_ = zero;
        double most = 0;
        for (const value& v : values_)
            if (const side_levels& s = side(v); s.last() > 0) most = std::max(most, v.size / s.middle[1]);
        if (!(most > 0)) return;
        if (powers_of_two) return look_at_powers(most);
        look_between(lowest(most), highest(most));
    }

  private:
    struct value {
        double size, weight;
        bool negative;
    };
    const side_levels& side(const value& v) const { return v.negative ? levels_->down : levels_->up; }
    double cost(double distance) const { return absolute_ ? distance : distance * distance; }

    double clipped(double scale_now) const {
        double sum = 0;
        for (const value& v : values_) sum += v.weight * cost(std::max(0.0, v.size - scale_now * side(v).at.back()));
        return sum;
    }
    /// Returns a scale at and below which the clipped values alone cost as much as the best that was found; 0 if there is none.
    double lowest(double most) const {
        double low = 0, high = most;
        if (!(least < without_end)) return least > 0 && clipped(0) >= least ? 0 : most * 0x1p-40;
        for (int i = 0; i < 14; ++i) {
            const double now = (low + high) / 2;
            (clipped(now) >= least ? low : high) = now;
        }
        return low > 0 ? low : high * 0x1p-40;
    }

    /// Returns a scale at and above which the values that become 0 alone cost as much as the best that was found.
    double highest(double most) const {
        if (!(least < without_end)) return most * 1.000001;
        const auto lost = [&](double scale_now) {
            double sum = 0;
            for (const value& v : values_) {
                const side_levels& s = side(v);
                if (s.last() == 0 || v.size < scale_now * s.middle[1] * 0.999999) sum += v.weight * cost(v.size);
            }
            return sum;
        };
        double low = 0, high = most * 1.000001;
        for (int i = 0; i < 10; ++i) {
            const double now = (low + high) / 2;
            (lost(now) >= least ? high : low) = now;
        }
        return high;
    }

    void look_at_powers(double most) {
        for (int e = std::ilogb(most) + 1; e > -126; --e) {
            const double now = std::ldexp(1.0, e);
            double sum = 0;
            for (const value& v : values_) {
                const side_levels& s = side(v);
                const std::size_t code = steps_until(s.middle, v.size, now);
                sum += v.weight * cost(std::abs(v.size - now * s.at[code]));
            }
            take(sum, now);
            if (clipped(now) >= least) return;
        }
    }

    /// Returns how many of `points` (without the first) a value divided by them has at or above a scale: it falls from point to point.
    static std::size_t steps_until(const std::vector<double>& points, double size, double at_least) {
        const auto end = std::partition_point(points.begin() + 1, points.end(), [&](double p) { return size / p >= at_least; });
        return static_cast<std::size_t>(end - points.begin()) - 1;
    }

    void take(double error, double at) {
        if (error < least && at > 0) least = error, scale = at, zero_point = now_;
    }

    /// Tries the scales from `low` to below `high`. Many events are cut into parts, whose sums begin anew.
    void look_between(double low, double high) {
        if (!(low < high) || least == 0) return;
        constexpr std::size_t most = std::size_t{1} << 18;
        std::size_t count = values_.size() * std::max(levels_->up.last(), levels_->down.last());  // at most
        if (count > most) {
            count = 0;
            for (const value& v : values_) {
                const side_levels& s = side(v);
                count += steps_until(s.middle, v.size, low) - steps_until(s.middle, v.size, high);
            }
        }
        if (count > most && high > low * 1.0001) {
            const double middle = std::sqrt(low) * std::sqrt(high);
            look_between(middle, high);
            return look_between(std::max(low, lowest(high)), middle);
        }
        events_.clear();
        events_.reserve(count * (absolute_ ? 2 : 1));
        absolute_ ? walk_lines(low, high) : walk_parabolas(low, high);
    }
    void add_events(std::uint32_t i, const std::vector<double>& points, double low, double high, std::uint32_t odd) {
        const double size = values_[i].size;
        for (std::size_t k = steps_until(points, size, high) + 1; k < points.size() && size / points[k] >= low; ++k)
            events_.push_back({size / points[k], i, static_cast<std::uint32_t>(2 * k) - odd});
    }
    static bool comes_before(const scale_event& a, const scale_event& b) {
        return a.scale != b.scale ? a.scale > b.scale : a.value != b.value ? a.value < b.value : a.step < b.step;
    }
    /// Sorts the events, whose scales lie from `low` to below `high`: into as many parts of equal ratio as there are events, then each
    /// part.
    void sort_events(double low, double high) {
        const std::size_t n = events_.size();
        const auto place = [](double positive) { return std::bit_cast<std::uint64_t>(positive); };  // in the order of the numbers
        const std::uint64_t top = place(high), range = top - place(low);
        const int shift = std::max(0, static_cast<int>(std::bit_width(range)) - static_cast<int>(std::bit_width(n)));
        starts_.assign((range >> shift) + 2, 0);
        for (const scale_event& e : events_) ++starts_[((top - place(e.scale)) >> shift) + 1];
        if (n < 32 || *std::ranges::max_element(starts_) > 64) return void(std::ranges::sort(events_, comes_before));
        for (std::size_t k = 1; k < starts_.size(); ++k) starts_[k] += starts_[k - 1];
        sorted_.resize(n);
        for (const scale_event& e : events_) sorted_[starts_[(top - place(e.scale)) >> shift]++] = e;
        for (std::size_t i = 1; i < n; ++i) {
            const scale_event moved = sorted_[i];
            std::size_t k = i;
            for (; k > 0 && comes_before(moved, sorted_[k - 1]); --k) sorted_[k] = sorted_[k - 1];
            sorted_[k] = moved;
        }
        events_.swap(sorted_);
    }

    /// Squares: with codes v the error is A - 2 s B + s^2 C, at least A - B^2 / C, where s = B / C. Other codes than the nearest do not
    /// make it less, so the least of all codes is the least of all scales.
    void walk_parabolas(double low, double high) {
        double all = 0, b = 0, c = 0;
        for (std::uint32_t i = 0; i < values_.size(); ++i) {
            const value& v = values_[i];
            const side_levels& s = side(v);
            const double at = s.at[steps_until(s.middle, v.size, high)];
            all += v.weight * v.size * v.size, b += v.weight * v.size * at, c += v.weight * at * at;
            add_events(i, s.middle, low, high, 1);
        }
        sort_events(low, high);
        if (c > 0) take(all - b * b / c, b / c);
        for (const scale_event& e : events_) {
            const value& v = values_[e.value];
            const side_levels& s = side(v);
            const std::size_t k = (e.step + 1) / 2;
            const double rise = s.at[k] - s.at[k - 1];
            b += v.weight * v.size * rise;
            c += v.weight * rise * (s.at[k] + s.at[k - 1]);
            if (c > 0 && b * b > (all - least) * c * 0.999999) take(all - b * b / c, b / c);
        }
    }

    /// Magnitudes: between events the error is P - s Q, a line, and it is least where a value is met.
    void walk_lines(double low, double high) {
        double p = 0, q = 0;
        for (std::uint32_t i = 0; i < values_.size(); ++i) {
            const value& v = values_[i];
            const side_levels& s = side(v);
            const std::size_t code = steps_until(s.middle, v.size, high), met = steps_until(s.at, v.size, high);
            const double sign = met < code ? -v.weight : v.weight;
            p += sign * v.size, q += sign * s.at[code];
            add_events(i, s.middle, low, high, 1);
            add_events(i, s.at, low, high, 0);
        }
        sort_events(low, high);
        for (const scale_event& e : events_) {
            const value& v = values_[e.value];
            const side_levels& s = side(v);
            const std::size_t k = (e.step + 1) / 2;
            if (e.step % 2 == 1) {
                p -= 2 * v.weight * v.size;
                q -= v.weight * (s.at[k] + s.at[k - 1]);
            } else {
                take(p - e.scale * q, e.scale);
                p += 2 * v.weight * v.size;
                q += 2 * v.weight * s.at[k];
            }
        }
    }

    std::vector<value> values_;
    std::vector<scale_event> events_, sorted_;
    std::vector<std::uint32_t> starts_;
    const levels* levels_ = nullptr;
    std::int64_t now_ = 0;
    bool absolute_;
};

/// Returns the error of a scale on these values, by the kernel that will round them.
class true_error {
  public:
    true_error(const qk::format& f, qk::semantics how, std::span<const float> values, std::span<const float> weights)
        : format_(f), how_(how), values_(values), weights_(weights), rounded_(values.size()) {
        how_.rounding = rounding::half_even, how_.random_words = {}, how_.flush_outputs = false;
    }
    double of(scale_pair s) {
        kernel_calls::fake_quantize(format_, values_, rounded_, affine{s.scale, s.zero_point}, how_);
        double sum = 0;
        for (std::size_t i = 0; i < values_.size(); ++i) {
            const double w = weights_.empty() ? 1.0 : static_cast<double>(weights_[i]);
            const double d = std::abs(static_cast<double>(values_[i]) - static_cast<double>(rounded_[i]));
            if (std::isfinite(values_[i]) && w > 0) sum += w * (how_.scale_objective == scale_objective::mae ? d : d * d);
        }
        return sum;
    }

  private:
    qk::format format_;
    qk::semantics how_;
    std::span<const float> values_, weights_;
    std::vector<float> rounded_;
};

}  // namespace

bool has_searched_scale(const qk::format& f) {
    if (const integer* whole = std::get_if<integer>(&f)) return whole->bits <= 8;
    if (const floating* split = std::get_if<floating>(&f)) return is_scaled(*split) && bits(*split) <= 8;
    const table* listed = std::get_if<table>(&f);
    if (listed == nullptr) return false;
    for (int code = 0; code < listed->size(); ++code)
        if (value_of(*listed, static_cast<std::uint32_t>(code)) == 0) return true;
    return false;  // without a 0 no value is far enough below every level
}

scale_pair searched_scale(const qk::format& f, const qk::semantics& how, zero_points allowed, scale_pair start,
                          std::span<const float> values, std::span<const float> weights) {
    scale_search search(values, weights, how.scale_objective);
    if (search.empty()) return start;
    true_error errors(f, how, values, weights);
    const double before = errors.of(start);
    if (before == 0) return start;
    if (std::isfinite(before)) search.least = before;
    const integer* whole = std::get_if<integer>(&f);
    const bool powers = whole != nullptr && whole->pow2;
    search.look_at(levels_of(f, start.zero_point), start.zero_point, powers);
    if (whole != nullptr && allowed.first < allowed.last) {
        const std::int64_t reach = whole->bits <= 5 ? 64 : 4;
        for (std::int64_t z = std::max(allowed.first, start.zero_point - reach); z <= std::min(allowed.last, start.zero_point + reach); ++z)
            if (z != start.zero_point) search.look_at(levels_of(f, z), z, powers);
    }
    scale_pair best = start;
    double least = before;
    const auto try_scale = [&](float scale) {
        if (!(scale >= std::numeric_limits<float>::min() && std::isfinite(scale))) return;
        const scale_pair s{scale, search.zero_point};
        const double error = errors.of(s);
        if (error < least || !std::isfinite(least)) least = error, best = s;
    };
    const auto found = static_cast<float>(search.scale);
    try_scale(found);
    // Values that lie on a grid already get their own scale back, not one beside it.
    if (!powers && search.scale > 0 && search.least < 1e-9 * before) {
        const float above = std::nextafter(found, std::numeric_limits<float>::infinity()), below = std::nextafter(found, 0.0f);
        for (const float beside :
             {above, below, std::nextafter(above, std::numeric_limits<float>::infinity()), std::nextafter(below, 0.0f)})
            try_scale(beside);
    }
    return best;
}

}  // namespace qk::graph::detail

bool qk::graph::searches_scales(const qk::format& format, const qk::semantics& how) {
    return how.scale_rule == scale_rule::search && detail::has_searched_scale(format);
}
