// SPDX-License-Identifier: Apache-2.0
#include "regions.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace qk::compare {
namespace {

/// Bits that one more property in a description costs: there are fewer than 64.
constexpr double bits_of_property = 6;

/// Returns how many bits it takes to say which `k` of `n` values are meant.
double bits_to_tell(std::size_t k, std::size_t n) {
    if (k == 0 || k == n) return 0;
    const double p = static_cast<double>(k) / static_cast<double>(n);
    return -static_cast<double>(n) * (p * std::log2(p) + (1 - p) * std::log2(1 - p));
}

}  // namespace

std::size_t value_set::count() const {
    std::size_t n = 0;
    for (const std::uint64_t w : words_) n += static_cast<std::size_t>(std::popcount(w));
    return n;
}
std::size_t value_set::count_with(const value_set& other) const {
    std::size_t n = 0;
    for (std::size_t k = 0; k < words_.size(); ++k) n += static_cast<std::size_t>(std::popcount(words_[k] & other.words_[k]));
    return n;
}
value_set operator&(value_set a, const value_set& b) {
    for (std::size_t k = 0; k < a.words_.size(); ++k) a.words_[k] &= b.words_[k];
    return a;
}
value_set value_set::without(const value_set& other) const {
    value_set r = *this;
    for (std::size_t k = 0; k < words_.size(); ++k) r.words_[k] &= ~other.words_[k];
    return r;
}

value_set value_set::among(std::span<const std::size_t> at) const {
    value_set r(at.size());
    for (std::size_t k = 0; k < at.size(); ++k) {
        if (contains(at[k])) r.insert(k);
    }
    return r;
}

properties properties::among(std::span<const std::size_t> at) const {
    properties r;
    r.count_ = at.size();
    for (const property& k : all_) r.all_.push_back({k.words, k.values.among(at)});
    return r;
}

void properties::add(std::string words, value_set v) {
    const std::size_t n = v.count();
    if (n == 0 || n == count_) return;  // says nothing
    for (const property& known : all_) {
        if (known.values.count() == n && known.values.count_with(v) == n) return;
    }
    all_.push_back({std::move(words), std::move(v)});
}

std::string properties::words(const region& r) const {
    std::string s;
    for (const int k : r.properties) s += (s.empty() ? "" : " and ") + (*this)[k].words;
    return s;
}
value_set properties::values(const region& r) const {
    value_set v(count_);
    for (std::size_t i = 0; i < count_; ++i) v.insert(i);
    for (const int k : r.properties) v = v & (*this)[k].values;
    return v;
}

region properties::describe(const value_set& target, double least_share) const {
    const std::size_t wanted = target.count();
    const auto cost = [&](const value_set& v, std::size_t length) {
        const std::size_t n = v.count(), hit = v.count_with(target);
        return bits_of_property * static_cast<double>(length) + bits_to_tell(hit, n) + bits_to_tell(wanted - hit, count_ - n);
    };
    struct candidate {
        region r;
        value_set values;
        double bits;
    };
    region best;
    double least = bits_to_tell(wanted, count_);
    std::vector<candidate> level;
    for (int k = 0; k < static_cast<int>(all_.size()); ++k) level.push_back({region{{k}}, all_[static_cast<std::size_t>(k)].values, 0});
    for (std::size_t length = 1; length <= 3; ++length) {
        for (candidate& c : level) c.bits = cost(c.values, length);
        std::stable_sort(level.begin(), level.end(), [](const candidate& a, const candidate& b) { return a.bits < b.bits; });
        for (const candidate& c : level) {
            if (c.bits >= least) break;
            if (static_cast<double>(c.values.count_with(target)) < least_share * static_cast<double>(wanted)) continue;
            least = c.bits;
            best = c.r;
        }
        if (level.size() > 12) level.resize(12);
        std::vector<candidate> next;
        for (const candidate& c : level) {
            for (int k = 0; k < static_cast<int>(all_.size()); ++k) {
                if (std::find(c.r.properties.begin(), c.r.properties.end(), k) != c.r.properties.end()) continue;
                region r = c.r;
                r.properties.push_back(k);
                next.push_back({std::move(r), c.values & all_[static_cast<std::size_t>(k)].values, 0});
            }
        }
        level = std::move(next);
    }
    return best;
}

region properties::separate(const value_set& wanted, const value_set& not_wanted, double weight, bool blocks) const {
    constexpr double bits_of_value = 12;
    const std::size_t all_wanted = wanted.count();
    const auto cost = [&](std::size_t length, std::size_t hit, std::size_t taken) {
        return bits_of_property * static_cast<double>(length) +
               bits_of_value * (static_cast<double>(all_wanted - hit) + weight * static_cast<double>(taken));
    };
    region best;
    double least = cost(0, all_wanted, not_wanted.count());
    struct candidate {
        int k;
        value_set in, out;
        double bits;
    };
    std::vector<candidate> singles;
    for (int k = 0; k < static_cast<int>(all_.size()); ++k) {
        if (blocks && !all_[static_cast<std::size_t>(k)].of_blocks()) continue;
        candidate c{k, wanted & all_[static_cast<std::size_t>(k)].values, not_wanted & all_[static_cast<std::size_t>(k)].values, 0};
        c.bits = cost(1, c.in.count(), c.out.count());
        singles.push_back(std::move(c));
    }
    std::stable_sort(singles.begin(), singles.end(), [](const candidate& a, const candidate& b) { return a.bits < b.bits; });
    if (!singles.empty() && singles.front().bits < least) {
        least = singles.front().bits;
        best = {{singles.front().k}};
    }
    // Pairs of properties: one of the best ten, with any other.
    for (std::size_t a = 0; a < std::min<std::size_t>(10, singles.size()) && least > 2 * bits_of_property; ++a) {
        for (const candidate& b : singles) {
            if (b.k == singles[a].k) continue;
            const double bits = cost(2, singles[a].in.count_with(b.in), singles[a].out.count_with(b.out));
            if (bits < least) {
                least = bits;
                best = {{singles[a].k, b.k}};
            }
        }
    }
    return best;
}

namespace {

/// Collects the values for which each property holds.
struct collector {
    const problem& p;
    std::vector<std::pair<const char*, value_set>> sets;
    value_set& operator()(const char* words) {
        for (auto& [w, s] : sets) {
            if (w == words) return s;  // literals: the address identifies them
        }
        return sets.emplace_back(words, value_set(p.x.size())).second;
    }
    void when(bool holds, const char* words, std::size_t i) {
        if (holds) (*this)(words).insert(i);
    }
};

void ask_inputs(collector& set, std::size_t i) {
    const float x = set.p.x[i];
    set.when(std::signbit(x), "the input is negative", i);
    set.when(!std::signbit(x), "the input is positive", i);
    set.when(x == 0, "the input is zero", i);
    set.when(x == 0 && std::signbit(x), "the input is -0", i);
    set.when(x != 0 && std::abs(x) < 0x1p-126f, "the input is a subnormal float32", i);
    set.when(std::isinf(x), "the input is Inf", i);
    set.when(std::isnan(x), "the input is NaN", i);
}

/// Properties of rounding: the fraction of a step above the code below, and that code's last bit.
void ask_rounding(collector& set, const element_grid& g, float x, float unit, float expected, std::size_t i) {
    const double q = std::abs(static_cast<double>(x) / static_cast<double>(unit)), steps = q / g.step_at(q);
    const double floor = std::floor(steps), rest = steps - floor;
    const bool odd = std::fmod(floor, 2) != 0;
    set.when(!g.fixed && q < g.least_normal() && x != 0, "the input lies in the format's subnormal range", i);
    set.when(!g.fixed && expected != 0 && static_cast<double>(std::abs(expected)) < g.least_normal() * static_cast<double>(unit),
             "the result is subnormal", i);
    set.when(x != 0 && expected == 0, "the result underflows to zero", i);
    if (!g.fixed && x != 0 && q < g.least_normal()) {  // as a converter sees it that detects tininess after rounding
        const double own = std::ldexp(1.0, std::ilogb(q) - g.mantissa);
        set.when(std::nearbyint(q / own) * own < g.least_normal(),
                 "the input is tiny after rounding: at full precision it would stay below the normal numbers", i);
    }
    set.when(!g.fixed && x != 0 && std::ilogb(q) % 2 != 0, "the exponent of the input is odd", i);
    const double highest = std::signbit(x) ? -g.lowest : g.largest;
    if (!set.p.asked.zero_point.empty() || q <= highest) {
        set.when(rest == 0, "the input is a number of the format", i);
        set.when(rest != 0, "the input lies between two numbers of the format", i);
        set.when(rest == 0.5, "the input is a tie", i);
        set.when(rest > 0.5 && rest <= 0.625, "the input lies just above a tie", i);
        set.when(rest > 0.5, "the input lies above a tie", i);
        set.when(rest != 0 && rest < 0.5, "the input lies below a tie", i);
        set.when(odd, "the mantissa below the input is odd", i);
        set.when(!odd, "the mantissa below the input is even", i);
        set.when(!g.fixed && rest != 0 && std::fmod(floor + 1, std::ldexp(1.0, g.mantissa)) == 0, "rounding up changes the exponent", i);
    } else {
        set.when(true, "the input lies beyond the largest number", i);
    }
    set.when(static_cast<double>(std::abs(expected)) >= g.largest * static_cast<double>(unit), "the result is the largest number", i);
}

/// Properties of integers' codes, whose range has a zero point.
void ask_integers(collector& set, const integer& f, float expected, float unit, std::int64_t zero, std::size_t i) {
    const double code = std::nearbyint(static_cast<double>(expected) / static_cast<double>(unit)) + static_cast<double>(zero);
    set.when(code == static_cast<double>(qmin(f)), "the result is the lowest code", i);
    set.when(code == static_cast<double>(qmax(f)), "the result is the highest code", i);
}

/// Returns the least and the greatest exponent that a block's factor (units_of) can have.
std::pair<int, int> scale_exponents(const qk::format& f) {
    if (const auto* b = std::get_if<block_float>(&f)) {
        const int bias = (1 << (b->exponent_bits - 1)) - 1;
        return {-bias - (b->mantissa_bits - 1), (1 << b->exponent_bits) - 2 - bias - (b->mantissa_bits - 1)};
    }
    return {-127, 127};
}

void ask_block(collector& set, std::span<const float> unit, std::size_t first, std::size_t stride, std::size_t count) {
    const conversion& c = set.p.asked;
    float most = 0, signed_most = 0;
    std::size_t at = first;
    bool special = false;
    for (std::size_t k = 0; k < count; ++k) {
        const float x = set.p.x[first + k * stride];
        if (!std::isfinite(x)) special = true;
        else if (std::abs(x) > most) most = std::abs(x), signed_most = x, at = first + k * stride;
    }
    const auto size = static_cast<std::size_t>(block_size(c.format));
    const std::size_t l = first / c.blocks.inner % c.blocks.length;
    const float power = most == 0 ? 0 : std::ldexp(1.0f, std::ilogb(most)), part = most == 0 ? 0 : most / power;
    const bool exact_scale = std::holds_alternative<microscaling>(c.format) || std::holds_alternative<block_float>(c.format);
    const auto [low, high] = scale_exponents(c.format);
    const int e = unit[first] > 0 ? std::ilogb(unit[first]) : 0;
    if (most != 0 && std::isfinite(most)) set("the value is the largest of its block").insert(at);
    if (count != 0) {
        set("the value is the first of its block").insert(first);
        set("the value is the last of its block").insert(first + (count - 1) * stride);
    }
    for (std::size_t k = 0; k < count; ++k) {
        const std::size_t i = first + k * stride;
        set.when(special, "the block holds an Inf or NaN", i);
        set.when(most == 0, "the block is all zeros", i);
        set.when(exact_scale && most != 0 && e == low, "the block's scale is the least there is", i);
        set.when(exact_scale && most != 0 && e == high, "the block's scale is the largest there is", i);
        set.when(part == 1, "the block's largest magnitude is a power of two", i);
        set.when(part > 1, "the block's largest magnitude is no power of two", i);
        set.when(part > 1.99999f || (part > 0 && part < 1.00001f), "the block's largest magnitude lies at or beside a power of two", i);
        set.when(signed_most < 0, "the block's largest magnitude is negative", i);
        set.when(most > 0 && most < 0x1p-126f, "the block's largest magnitude is a subnormal float32", i);
        set.when(l + size >= c.blocks.length, "the block is the last of its row", i);
        set.when(l == 0, "the block is the first of its row", i);
        set.when(count < size, "the block is shorter than the others", i);
        set.when(k % 2 == 1, "the position in the block is odd", i);
        set.when(k % 2 == 0, "the position in the block is even", i);
        set.when(2 * k >= size, "the value is in the second half of its block", i);
        set.when(k % 4 == 3, "the position in the block is 3, 7, 11, ...", i);
    }
}

}  // namespace

properties::properties(const problem& p, std::span<const float> unit) : count_(p.x.size()) {
    collector set{p, {}};
    const auto grid = element_grid::of(p.asked);
    const integer* codes = std::get_if<integer>(&p.asked.format);
    for (std::size_t i = 0; i < count_; ++i) {
        ask_inputs(set, i);
        if (grid && std::isfinite(p.x[i]) && unit[i] > 0) ask_rounding(set, *grid, p.x[i], unit[i], p.expected[i], i);
        if (codes != nullptr && std::isfinite(p.x[i])) ask_integers(set, *codes, p.expected[i], unit[i], zero_point_of(p.asked, i), i);
    }
    if (is_block_format(p.asked.format)) {
        for_each_block(p.asked, [&](std::size_t first, std::size_t stride, std::size_t n) { ask_block(set, unit, first, stride, n); });
    } else if (p.asked.blocks.length != 0) {
        for (std::size_t i = 0; i < count_; ++i) {
            const std::size_t l = i / p.asked.blocks.inner % p.asked.blocks.length;
            set.when(l % 2 == 1, "the position in the row is odd", i);
            set.when(l + 1 == p.asked.blocks.length, "the value is the last of its row", i);
            set.when(l == 0, "the value is the first of its row", i);
        }
    }
    for (auto& [words, values] : set.sets) add(words, std::move(values));
    if (is_block_format(p.asked.format)) add_every_nth(p);
    if (p.asked.given == conversion::granularity::channel) {
        const along_axis a = p.asked.scale_blocks;
        add_outliers(p, "the channel is ", a.length, [&](std::size_t i) { return i / a.inner % a.length; });
    }
    if (is_block_format(p.asked.format)) {
        const along_axis a = p.asked.blocks;
        const auto size = static_cast<std::size_t>(block_size(p.asked.format));
        add_outliers(p, "the position in the block is ", size, [&](std::size_t i) { return i / a.inner % a.length % size; });
    }
}

/// Adds the blocks that come at equal distances, if those in which the device errs do: every fifth, say.
void properties::add_every_nth(const problem& p) {
    std::vector<std::size_t> wrong;
    std::size_t number = 0;
    for_each_block(p.asked, [&](std::size_t first, std::size_t stride, std::size_t count) {
        bool differs = false;
        for (std::size_t k = 0; k < count && !differs; ++k)
            differs = !same_value(p.expected[first + k * stride], p.device[first + k * stride]);
        if (differs) wrong.push_back(number);
        ++number;
    });
    std::size_t distance = 0;
    for (std::size_t k = 1; k < wrong.size(); ++k) distance = std::gcd(distance, wrong[k] - wrong[0]);
    if (distance < 2 || wrong.size() < 3) return;
    value_set v(count_);
    number = 0;
    const std::size_t from = wrong[0] % distance;
    for_each_block(p.asked, [&](std::size_t first, std::size_t stride, std::size_t count) {
        if (number++ % distance != from) return;
        for (std::size_t k = 0; k < count; ++k) v.insert(first + k * stride);
    });
    add("the block is one of every " + std::to_string(distance) + ", from block " + std::to_string(from) + " on", std::move(v));
}

/// Adds properties for numbered places (a channel, a position in the block): for all if they are few, else for those in which the device
/// errs most often or furthest.
template <class Place>
void properties::add_outliers(const problem& p, const char* words, std::size_t count, Place place) {
    constexpr std::size_t few = 16, shown = 2;
    std::vector<double> differ(count, 0), distance(count, 0);
    for (std::size_t i = 0; i < count_; ++i) {
        if (same_value(p.expected[i], p.device[i])) continue;
        differ[place(i)] += 1;
        const double off = std::abs(static_cast<double>(p.device[i]) - static_cast<double>(p.expected[i])) /
                           std::max(std::abs(static_cast<double>(p.expected[i])), 0x1p-126);
        distance[place(i)] += off < 1 ? off : 1;
    }
    std::vector<char> taken(count, count <= few ? 1 : 0);
    for (const std::vector<double>& how_much : {differ, distance}) {
        std::vector<std::size_t> order(count);
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return how_much[a] > how_much[b]; });
        for (std::size_t k = 0; k < std::min(shown, count); ++k) taken[order[k]] = 1;
    }
    for (std::size_t k = 0; k < count; ++k) {
        if (taken[k] == 0 || differ[k] == 0) continue;
        value_set v(count_);
        for (std::size_t i = 0; i < count_; ++i) {
            if (place(i) == k) v.insert(i);
        }
        add(words + std::to_string(k), std::move(v));
    }
}

}  // namespace qk::compare
