// SPDX-License-Identifier: Apache-2.0
// Puts every difference in a class, and describes what the input exercises.
#include "qk/compare/compare.hpp"

#include <cmath>
#include <cstdio>
#include <set>

#include "diagnose.hpp"
#include "qk/formats/codes/code.hpp"
#include "qk/reference.hpp"

namespace qk::compare {

std::string hexadecimal(std::uint32_t code) {
    char text[16];
    std::snprintf(text, sizeof text, "0x%x", code);
    return text;
}

namespace {

constexpr std::size_t shown = 8;

/// Returns the index of a value's code among the codes in order of value, or nullopt if it has none; `unit` as units_of gives it.
std::optional<std::int64_t> ordinal(const qk::format& f, float value, float unit) {
    const double v = static_cast<double>(value) / static_cast<double>(unit);
    const auto whole = [](double n) -> std::optional<std::int64_t> {
        if (!(std::abs(n) < 0x1p40) || n != std::floor(n)) return std::nullopt;
        return static_cast<std::int64_t>(n);
    };
    const auto among = [&](floating g) -> std::optional<std::int64_t> {
        const float element = static_cast<float>(v);
        float rounded = 0;
        if (g == fp32) return std::nullopt;
        reference::fake_quantize(g, std::span(&element, 1), std::span(&rounded, 1));
        if (rounded != element) return std::nullopt;
        const std::int64_t magnitude = code_of(g, std::abs(element));
        return element < 0 ? -magnitude : magnitude;
    };
    if (const floating* g = std::get_if<floating>(&f)) return among(*g);
    if (const table* t = std::get_if<table>(&f)) {  // its place among the numbers
        std::int64_t below = 0;
        bool known = false;
        for (const float number : std::span(t->values->number).first(static_cast<std::size_t>(t->size()))) {
            const float scaled = reference::multiply(number, unit);
            below += scaled < value ? 1 : 0;
            known = known || scaled == value;
        }
        return known ? std::optional(below) : std::nullopt;
    }
    if (const floating* g = element_float(f)) return among(*g);
    if (const microscaling* g = std::get_if<microscaling>(&f)) return whole(v * power_of_two(g->integer_bits - 2));
    if (is_integer_format(f)) return whole(std::nearbyint(v * 1048576) / 1048576);
    return whole(v);
}

std::string code_text(const conversion& c, std::size_t i, float value, float unit) {
    if (const floating* g = std::get_if<floating>(&c.format)) {
        if (*g == fp32) return {};
        if (value != value) return has_nan(*g) ? hexadecimal(nan_code(*g)) : "";
        if (!std::isinf(value) && !ordinal(c.format, value, unit)) return {};
        return hexadecimal(code_of(*g, value / unit));
    }
    if (const table* t = std::get_if<table>(&c.format)) {
        for (int code = 0; code < t->size(); ++code) {
            const float number = reference::multiply(t->values->number[static_cast<std::size_t>(code)], unit);
            if (same_value(number, value)) return hexadecimal(static_cast<std::uint32_t>(code));
        }
        return {};
    }
    const auto n = ordinal(c.format, value, unit);
    if (!n) return {};
    if (is_integer_format(c.format)) return std::to_string(*n + zero_point_of(c, i));
    return (*n < 0 || std::signbit(value) ? "-" : "") + std::to_string(std::abs(*n)) + " x 2^" + std::to_string(std::ilogb(unit));
}

/// How a block differs as a whole.
enum class block_fate { values, shifted, other_grid };

/// Returns `shifted` if every value is off by the same power of two, `other_grid` if most values differ and some lie off the block's grid
/// or all lie on the next coarser one.
block_fate fate_of(const problem& p, float unit, std::size_t first, std::size_t stride, std::size_t count) {
    std::size_t different = 0, telling = 0, shifted = 0, coarse = 0, off = 0;
    double ratio = 0;
    for (std::size_t k = 0; k < count; ++k) {
        const std::size_t at = first + k * stride;
        const float expected = p.expected[at], device = p.device[at];
        different += !same_value(expected, device);
        if (!(p.x[at] != 0) || !std::isfinite(expected) || !std::isfinite(device) || expected == 0) continue;
        ++telling;
        const double r = static_cast<double>(device) / static_cast<double>(expected);
        int exponent = 0;
        if (r > 0 && r != 1 && std::frexp(r, &exponent) == 0.5 && (ratio == 0 || r == ratio)) {
            ratio = r;
            ++shifted;
        }
        off += !ordinal(p.asked.format, device, unit);
        coarse += ordinal(p.asked.format, device, 2 * unit).has_value();
    }
    if (telling < 2 || different == 0) return block_fate::values;
    if (shifted == telling) return block_fate::shifted;
    return 2 * different > telling && different > 2 && (off != 0 || coarse == telling) ? block_fate::other_grid : block_fate::values;
}

/// Classifies the differences of blocks that differ as a whole, and counts the blocks that differ.
void mark_blocks(const problem& p, std::span<const float> unit, std::vector<difference>& kind, report& result) {
    for_each_block(p.asked, [&](std::size_t first, std::size_t stride, std::size_t count) {
        bool touched = false;
        for (std::size_t k = 0; k < count; ++k)
            touched = touched || !same_value(p.expected[first + k * stride], p.device[first + k * stride]);
        if (!touched) return;
        ++result.blocks_touched;
        const block_fate fate = fate_of(p, unit[first], first, stride, count);
        if (fate == block_fate::values) return;
        for (std::size_t k = 0; k < count; ++k) {
            const std::size_t at = first + k * stride;
            const float expected = p.expected[at], device = p.device[at];
            if (!same_value(expected, device) && device == device && expected == expected)
                kind[at] = fate == block_fate::shifted ? difference::block_shifted : difference::block_scale;
        }
    });
}

input_coverage cover(const problem& p, std::span<const float> down, std::span<const float> up, std::span<const float> unit) {
    input_coverage k;
    k.values = p.x.size();
    std::set<int> binades;
    for (std::size_t i = 0; i < p.x.size(); ++i) {
        const float v = p.x[i];
        k.negative += std::signbit(v);
        k.nan += v != v;
        k.infinite += std::isinf(v);
        k.positive_zero += v == 0 && !std::signbit(v);
        k.negative_zero += v == 0 && std::signbit(v);
        k.subnormal += v != 0 && std::abs(v) < 0x1p-126f;
        if (!std::isfinite(v)) continue;
        if (v != 0) binades.insert(std::ilogb(v));
        k.exact += v == p.expected[i];
        k.ties += down[i] != up[i] &&
                  static_cast<double>(v) - static_cast<double>(down[i]) == static_cast<double>(up[i]) - static_cast<double>(v);
        k.overflow += std::isinf(p.expected[i]) || (down[i] == up[i] && std::abs(v) > std::abs(p.expected[i]));
        k.underflow += v != 0 && p.expected[i] == 0;
    }
    k.binades = binades.size();
    std::set<float> scales;
    for_each_block(p.asked, [&](std::size_t first, std::size_t, std::size_t) {
        ++k.blocks;
        if (unit[first] == unit[first]) scales.insert(unit[first]);
    });
    k.scales = scales.size();
    return k;
}

difference classify(const conversion& c, float x, float expected, float device, float down, float up, float unit) {
    if ((expected != expected) != (device != device)) return difference::nan;
    if (expected == 0 && device == 0) return difference::zero_sign;
    if (std::isinf(expected) || std::isinf(device) || (down == up && std::abs(x) > std::abs(expected))) return difference::overflow;
    if (expected == 0 || device == 0) return difference::underflow;
    const double below = static_cast<double>(x) - static_cast<double>(down), above = static_cast<double>(up) - static_cast<double>(x);
    if (down != up && below == above && (device == down || device == up)) return difference::tie;
    if (device == down || device == up) return difference::one_code;
    const auto a = ordinal(c.format, expected, unit), b = ordinal(c.format, device, unit);
    return a && b && std::abs(*a - *b) == 1 ? difference::one_code : difference::other;
}

}  // namespace

std::vector<float> rounded(const conversion& c, rounding r, std::span<const float> x) {
    conversion directed = c;
    directed.how.rounding = r;
    std::vector<float> y(x.size());
    fake_quantize(directed, x, y);
    return y;
}

const char* name_of(difference d) {
    constexpr const char* names[] = {"nan",       "block_shifted", "block_scale", "zero_sign", "overflow",
                                     "underflow", "tie",           "one_code",    "other"};
    return names[static_cast<int>(d)];
}
const char* meaning_of(difference d) {
    constexpr const char* meanings[] = {"NaN on one side only",
                                        "a whole block is off by the same power of two",
                                        "most of a block lies on the grid of another scale",
                                        "zero of the other sign",
                                        "beyond the largest value: saturation or Inf",
                                        "zero on one side only",
                                        "a tie went the other way",
                                        "the neighbouring code",
                                        "further away"};
    return meanings[static_cast<int>(d)];
}

std::string to_text(const location& p) {
    const bool all = p.values == p.differences;
    const std::string count =
        all ? "all of these " + std::to_string(p.values) : std::to_string(p.differences) + " of these " + std::to_string(p.values);
    return (p.words.empty() ? "everywhere: " : "where " + p.words + ": ") + count + (p.values == 1 ? " value" : " values");
}

std::string to_text(const location& p, std::size_t mismatches) {
    if (mismatches == 1) return to_text(p) + ", the one difference";
    const std::string all = std::to_string(mismatches) + " differences";
    return to_text(p) + ", " + (p.differences == mismatches ? "all " + all : std::to_string(p.differences) + " of the " + all);
}

flag_counts count_flags(const conversion& c, std::span<const float> x, std::span<const float> y) {
    flag_counts n;
    n.values = x.size();
    const std::vector<float> unit = units_of(c, x);
    const auto grid = element_grid::of(c);
    const integer* codes = std::get_if<integer>(&c.format);
    for (std::size_t i = 0; i < x.size(); ++i) {
        n.nan += y[i] != y[i];
        n.invalid += y[i] != y[i] && x[i] == x[i];
        if (x[i] != x[i]) continue;
        bool beyond = false;
        if (grid && unit[i] > 0) {
            const double zero = codes != nullptr ? static_cast<double>(zero_point_of(c, i)) : 0;
            const double highest = (grid->largest - zero) * static_cast<double>(unit[i]),
                         lowest = (grid->lowest - zero) * static_cast<double>(unit[i]);
            beyond = static_cast<double>(x[i]) > highest || static_cast<double>(x[i]) < lowest;
            n.saturation += beyond && (static_cast<double>(y[i]) == highest || static_cast<double>(y[i]) == lowest);
            n.underflow += x[i] != 0 && y[i] != x[i] && std::isfinite(y[i]) && !grid->fixed &&
                           static_cast<double>(std::abs(y[i])) < grid->least_normal() * static_cast<double>(unit[i]);
        }
        n.underflow += x[i] != 0 && y[i] == 0 && (!grid || grid->fixed);
        if (!std::isfinite(x[i])) continue;
        n.overflow += beyond || std::isinf(y[i]);
        n.inexact += y[i] == y[i] && y[i] != x[i];
    }
    return n;
}

report classified(const problem& p, std::span<const float> down, std::span<const float> up, std::span<const float> unit) {
    report result;
    const conversion& c = p.asked;
    result.values = p.x.size();
    result.coverage = cover(p, down, up, unit);
    std::vector<difference> kind(p.x.size(), difference::count);
    if (is_block_format(c.format)) mark_blocks(p, unit, kind, result);
    for (std::size_t i = 0; i < p.x.size(); ++i) {
        const float x = p.x[i], expected = p.expected[i], device = p.device[i];
        if (same_value(expected, device)) continue;
        ++result.mismatches;
        if (kind[i] == difference::count) kind[i] = classify(c, x, expected, device, down[i], up[i], unit[i]);
        difference_class& k = result.classes[static_cast<std::size_t>(kind[i])];
        if (k.count++ < shown)
            k.examples.push_back({i, x, expected, device, code_text(c, i, expected, unit[i]), code_text(c, i, device, unit[i])});
    }
    return result;
}

report examine(const conversion& c, std::span<const std::int64_t> shape, std::span<const float> x, std::span<const float> device) {
    std::vector<float> expected(x.size());
    expected_values(c, x, expected);
    const problem p{c, shape, x, expected, device};
    const std::vector<float> down = rounded(c, rounding::down, x), up = rounded(c, rounding::up, x), unit = units_of(c, x);
    report result = classified(p, down, up, unit);
    result.flags = count_flags(c, x, expected);
    if (result.mismatches != 0) diagnose(p, properties(p, unit), result);
    return result;
}

namespace {

/// Returns the values that a selection leaves out.
value_set left_out(const problem& p, const selection& which) {
    const auto grid = element_grid::of(p.asked);
    const std::vector<float> unit = units_of(p.asked, p.x);
    value_set out(p.x.size());
    for (std::size_t i = 0; i < p.x.size(); ++i) {
        const double q = unit[i] > 0 ? std::abs(static_cast<double>(p.x[i]) / static_cast<double>(unit[i])) : 0;
        const bool measured = grid && std::isfinite(p.x[i]) && unit[i] > 0;
        if ((!which.zeros && (p.x[i] == 0 || p.expected[i] == 0)) || (!which.specials && !std::isfinite(p.x[i])) ||
            (!which.subnormals && ((measured && !grid->fixed && q < grid->least_normal()) || std::abs(p.x[i]) < 0x1p-126f)) ||
            (!which.overflow && measured && q > (std::signbit(p.x[i]) ? -grid->lowest : grid->largest)))
            out.insert(i);
    }
    for_each_block(p.asked, [&](std::size_t first, std::size_t stride, std::size_t count) {
        bool special = false;
        for (std::size_t k = 0; k < count; ++k) special = special || !std::isfinite(p.x[first + k * stride]);
        for (std::size_t k = 0; k < count && special && !which.specials; ++k) out.insert(first + k * stride);
    });
    return out;
}

}  // namespace

std::optional<std::vector<float>> selected(const conversion& c, std::span<const std::int64_t> shape, std::span<const float> x,
                                           std::span<const float> device, const selection& which) {
    std::vector<float> expected(x.size()), y(device.begin(), device.end());
    expected_values(c, x, expected);
    const problem p{c, shape, x, expected, device};
    value_set out = left_out(p, which);
    if (!which.where.empty()) {
        const properties all(p, units_of(c, x));
        region r;
        std::string rest = which.where;
        if (rest.starts_with("where ")) rest.erase(0, 6);
        for (const std::string both = " and "; !rest.empty();) {
            const std::size_t end = rest.find(both);
            const std::string words = rest.substr(0, end);
            int k = 0;
            while (k < static_cast<int>(all.size()) && all[k].words != words) ++k;
            if (k == static_cast<int>(all.size())) return std::nullopt;
            r.properties.push_back(k);
            rest = end == std::string::npos ? "" : rest.substr(end + both.size());
        }
        const value_set inside = all.values(r);
        for (std::size_t i = 0; i < x.size(); ++i)
            if (!inside.contains(i)) out.insert(i);
    }
    for (std::size_t i = 0; i < y.size(); ++i)
        if (out.contains(i)) y[i] = expected[i];
    return y;
}

}  // namespace qk::compare
