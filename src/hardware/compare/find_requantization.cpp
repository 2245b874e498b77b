// SPDX-License-Identifier: Apache-2.0
#include "find_requantization.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>

#include "dot_questions.hpp"

namespace qk::compare {
namespace {

constexpr std::int64_t largest_sum = std::numeric_limits<std::int32_t>::max();
constexpr std::size_t most_candidates = 128;

/// Brackets the least sum of one sign, by magnitude, whose code is `distance` or more away from that of 0.
struct threshold {
    std::int64_t sign, distance;
    std::int64_t below = 0, reached = 0;  ///< it lies above `below` and, if any sum gets there, is `reached` at most
};

class requantization_finder {
  public:
    requantization_finder(int d_bits, std::uint64_t seed, const sum_codes& ask) : d_bits_(d_bits), random_{seed * 2 + 99}, ask_(ask) {}

    std::optional<requantization> find() {
        if (!survey()) return std::nullopt;
        std::vector<threshold> all = thresholds();
        std::vector<requantization> left = candidates(all);
        keep(left);
        for (int round = 0; round < 3 && left.size() > 1; ++round) {
            std::vector<std::int64_t> telling = sums_that_tell(left);
            if (telling.empty()) break;
            learn(telling);
            keep(left);
        }
        return left.empty() ? std::nullopt : std::optional(left.front());
    }

  private:
    std::int64_t as_code(std::uint64_t d) const {
        const std::uint64_t code = d & (d_bits_ >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << d_bits_) - 1);
        const std::uint64_t half = std::uint64_t{1} << (d_bits_ - 1);
        return output_.is_signed ? static_cast<std::int64_t>(code ^ half) - static_cast<std::int64_t>(half)
                                 : static_cast<std::int64_t>(code);
    }
    void learn(const std::vector<std::int64_t>& sums) {
        if (sums.empty()) return;
        const std::vector<std::uint64_t> d = ask_(sums);
        for (std::size_t i = 0; i < sums.size(); ++i) known_[sums[i]] = d[i];
    }
    std::int64_t code_of(std::int64_t sum) const { return as_code(known_.at(sum)); }
    bool rises(std::int64_t limit) const {
        std::int64_t last = std::numeric_limits<std::int64_t>::min();
        for (const auto& [sum, d] : known_) {
            if (sum < -limit || sum > limit) continue;
            if (as_code(d) < last) return false;
            last = as_code(d);
        }
        return true;
    }

    /// Finds whether codes are signed, their width, the zero point, and how far sums reach before the register wraps. Returns false if
    /// there is nothing to search.
    bool survey() {
        std::vector<std::int64_t> sums{0, largest_sum, -largest_sum - 1};
        for (int n = 0; n < 31; ++n)
            for (const std::int64_t sign : {1, -1}) sums.push_back(sign * (std::int64_t{1} << n));
        learn(sums);
        if (d_bits_ >= 32 && code_of(1 << 10) == 1 << 10 && code_of(0) == 0) return false;  // codes are the sums themselves
        for (limit_ = largest_sum;; limit_ /= 2) {
            for (const bool is_signed : {true, false}) {
                output_.is_signed = is_signed;
                if (rises(limit_)) return limit_ >= 256 && finish_survey();
            }
        }
    }
    bool finish_survey() {
        std::int64_t low = code_of(0), high = low;
        for (const auto& [sum, d] : known_) {
            if (sum >= -limit_ && sum <= limit_) low = std::min(low, as_code(d)), high = std::max(high, as_code(d));
        }
        zero_point_ = static_cast<int>(code_of(0));
        output_.bits = std::min(d_bits_, 32);
        for (int bits = 2; bits <= output_.bits; ++bits) {
            integer narrower = output_;
            narrower.bits = bits;
            if (qmax(narrower) != high) continue;
            symmetric_ = narrower.is_signed && low == -high;
            relu_ = !symmetric_ && low != qmin(narrower) && low == zero_point_;
            if (low != qmin(narrower) && !symmetric_ && !relu_) continue;
            output_ = narrower;
            break;
        }
        low_ = low, high_ = high;
        return low != high;
    }

    std::vector<threshold> thresholds() {
        std::vector<threshold> all;
        for (const std::int64_t sign : {1, -1}) {
            const std::int64_t reach = sign > 0 ? high_ - zero_point_ : zero_point_ - low_;
            std::vector<std::int64_t> distances{reach, reach - 1, reach * 3 / 4, reach / 2, reach / 3, 3, 2, 1};
            std::sort(distances.begin(), distances.end());
            distances.erase(std::unique(distances.begin(), distances.end()), distances.end());
            for (const std::int64_t d : distances)
                if (d >= 1 && d <= reach) all.push_back({sign, d, 0, limit_});
        }
        constexpr std::int64_t pieces = 32;
        for (int round = 0; round < 8; ++round) {
            std::vector<std::int64_t> sums;
            for (const threshold& t : all)
                for (std::int64_t n = 1; n <= pieces; ++n) {
                    const std::int64_t s = t.below + (t.reached - t.below) * n / pieces;
                    if (s > t.below && s <= t.reached && !known_.contains(t.sign * s)) sums.push_back(t.sign * s);
                }
            std::sort(sums.begin(), sums.end());
            sums.erase(std::unique(sums.begin(), sums.end()), sums.end());
            if (sums.empty()) break;
            learn(sums);
            for (threshold& t : all) {
                for (const auto& [sum, d] : known_) {
                    const std::int64_t s = sum * t.sign;
                    if (s <= t.below || s > t.reached) continue;
                    if ((as_code(d) - zero_point_) * t.sign >= t.distance) t.reached = std::min(t.reached, s);
                }
                for (const auto& [sum, d] : known_) {
                    const std::int64_t s = sum * t.sign;
                    if (s > t.below && s < t.reached && (as_code(d) - zero_point_) * t.sign < t.distance) t.below = s;
                }
            }
        }
        return all;
    }

    /// Returns the least and greatest factor with which every threshold lies where it was found; `slack`, in codes, is what the kind of
    /// rounding may shift.
    std::pair<double, double> bounds(const std::vector<threshold>& all, requantize_rounding how, double slack) const {
        double low = 0, high = std::numeric_limits<double>::infinity();
        for (const threshold& t : all) {
            // The least quotient, by magnitude, that is `distance` codes away.
            const double less = how == requantize_rounding::usual ? 0.5 : how == requantize_rounding::down && t.sign < 0 ? 1.0 : 0.0;
            const double half = static_cast<double>(t.distance) - less;
            if (half <= 0) continue;
            low = std::max(low, (half - slack) / static_cast<double>(t.reached));
            if (t.below > 0) high = std::min(high, (half + slack) / static_cast<double>(t.below));
        }
        return {low * (1 - 0x1p-23), high * (1 + 0x1p-23)};
    }
    /// Returns some whole numbers of [low, high]: those with most zero bits at the end first, then evenly spaced ones.
    static std::vector<std::int64_t> some_between(std::int64_t low, std::int64_t high) {
        std::vector<std::int64_t> v;
        for (int zeros = 62; zeros >= 0 && low <= high; --zeros) {
            const std::int64_t step = std::int64_t{1} << zeros, n = (low + step - 1) / step * step;
            if (n >= low && n <= high && n > 0 && std::find(v.begin(), v.end(), n) == v.end()) v.push_back(n);
        }
        const std::int64_t room = high - low;
        for (std::int64_t n = 0; n <= 48 && room >= 0; ++n)
            v.push_back(low + static_cast<std::int64_t>(static_cast<double>(room) * static_cast<double>(n) / 48));
        return v;
    }
    /// Returns the number of the interval with the fewest decimal digits.
    static double shortest_between(double low, double high) {
        for (int digits = 1; digits <= 9; ++digits) {
            const double unit = std::pow(10.0, std::floor(std::log10(low)) + 1 - digits), n = std::ceil(low / unit);
            if (n * unit <= high) return n * unit;
        }
        return low;
    }
    /// Returns how many bits it takes to state the factor: of several that give the same codes the simplest is named.
    static double bits_of(const requantization& r) {
        if (r.by != requantize_by::scale) return 31 - std::countr_zero(static_cast<std::uint32_t>(r.multiplier));
        const std::uint32_t significand = (r.scale_bits & 0x7fffffu) | 0x800000u;
        char text[32];
        const auto end = std::to_chars(text, text + sizeof text, std::bit_cast<float>(r.scale_bits)).ptr;
        const auto digits = std::count_if(static_cast<char*>(text), end, [](char c) { return c >= '1' && c <= '9'; });
        return std::min<double>(24 - std::countr_zero(significand), 3.4 * static_cast<double>(digits));
    }
    std::vector<requantization> candidates(const std::vector<threshold>& all) const {
        std::vector<requantization> found;
        using how = requantize_rounding;
        for (const auto& [by, round] : {std::pair{requantize_by::scale, how::usual},
                                        {requantize_by::multiplier, how::usual},
                                        {requantize_by::gemmlowp, how::usual},
                                        {requantize_by::scale, how::down},
                                        {requantize_by::scale, how::toward_zero},
                                        {requantize_by::multiplier, how::down},
                                        {requantize_by::multiplier, how::toward_zero}}) {
            requantization r{
                .by = by, .zero_point = zero_point_, .output = output_, .round = round, .relu = relu_, .symmetric = symmetric_};
            auto [low, high] = bounds(all, round, 0);
            if (!(low > 0) || !(low < 0x1p40)) continue;
            if (by == requantize_by::gemmlowp)
                std::tie(low, high) = bounds(all, round, 0.5 * std::ldexp(1.0, std::min(0, std::ilogb(low) + 1)));
            if (!(high > 0) || !std::isfinite(high)) high = low * 1.001;
            low = std::max(low, 0x1p-126);
            if (by == requantize_by::scale) {
                r.scale_bits = std::bit_cast<std::uint32_t>(static_cast<float>(shortest_between(low, high)));
                found.push_back(r);
            }
            for (int e = std::ilogb(low); e <= std::ilogb(high); ++e) {
                // The factor is n * 2^(e - fraction) with n of fraction + 1 bits.
                const int fraction = by == requantize_by::scale ? 23 : 30;
                const double unit = std::ldexp(1.0, e - fraction), least = std::ldexp(1.0, fraction);
                const auto first = static_cast<std::int64_t>(std::max(least, std::ceil(low / unit))),
                           last = static_cast<std::int64_t>(std::min(2 * least - 1, std::floor(high / unit)));
                for (const std::int64_t n : some_between(first, last)) {
                    if (by == requantize_by::scale)
                        r.scale_bits = std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<double>(n) * unit));
                    r.multiplier = by == requantize_by::scale ? requantization{}.multiplier : static_cast<std::int32_t>(n);
                    r.shift = by == requantize_by::scale ? requantization{}.shift : e + 1;
                    if (r.shift >= -31 && r.shift <= 30 && std::find(found.begin(), found.end(), r) == found.end()) found.push_back(r);
                }
            }
        }
        return found;
    }
    /// Keeps the candidates that give the codes of all sums so far, the simplest first.
    void keep(std::vector<requantization>& v) const {
        std::erase_if(v, [&](const requantization& r) {
            for (const auto& [sum, d] : known_) {
                if (sum >= -limit_ && sum <= limit_ && requantize(sum, r) != as_code(d)) return true;
            }
            return false;
        });
        std::stable_sort(v.begin(), v.end(), [](const requantization& a, const requantization& b) { return bits_of(a) < bits_of(b); });
        if (v.size() > most_candidates) v.resize(most_candidates);
    }
    std::vector<std::int64_t> sums_that_tell(const std::vector<requantization>& v) {
        std::vector<std::int64_t> sums;
        for (int n = 0; n < 100000 && sums.size() < 256; ++n) {
            const std::int64_t any = static_cast<std::int32_t>(random_.word()) >> random_.below(31);
            if (any < -limit_ || any > limit_ || known_.contains(any)) continue;
            const std::int64_t first = requantize(any, v.front());
            if (std::any_of(v.begin() + 1, v.end(), [&](const requantization& r) { return requantize(any, r) != first; }))
                sums.push_back(any);
        }
        std::sort(sums.begin(), sums.end());
        sums.erase(std::unique(sums.begin(), sums.end()), sums.end());
        return sums;
    }

    int d_bits_;
    random_source random_;
    const sum_codes& ask_;
    std::map<std::int64_t, std::uint64_t> known_;
    integer output_ = int8;
    int zero_point_ = 0;
    bool relu_ = false, symmetric_ = false;
    std::int64_t limit_ = largest_sum, low_ = 0, high_ = 0;
};

}  // namespace

std::optional<requantization> find_requantization(int d_bits, std::uint64_t seed, const sum_codes& ask) {
    return requantization_finder(d_bits, seed, ask).find();
}

}  // namespace qk::compare
