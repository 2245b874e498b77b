// SPDX-License-Identifier: Apache-2.0
#include "support/comparison.hpp"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "support/packed_file.hpp"
#include "qk/dispatch.hpp"
#include "qk/qk.hpp"

namespace qk::tool {
namespace {

constexpr std::size_t shown = 8;

/// The number of a value's code among the codes in order of value, if it has one; `unit` as units_of gives it.
std::optional<std::int64_t> ordinal(const qk::format& f, float value, float unit) {
    const double v = static_cast<double>(value) / static_cast<double>(unit);
    const auto whole = [](double n) -> std::optional<std::int64_t> {
        if (!(std::abs(n) < 0x1p40) || n != std::floor(n)) return std::nullopt;
        return static_cast<std::int64_t>(n);
    };
    const auto among = [&](floating g) -> std::optional<std::int64_t> {
        float element = static_cast<float>(v), rounded = 0;
        if (g == fp32) return std::nullopt;
        fake_quantize(g, std::span(&element, 1), std::span(&rounded, 1));
        if (rounded != element) return std::nullopt;
        const std::int64_t magnitude = code_of(g, std::abs(element));
        return element < 0 ? -magnitude : magnitude;
    };
    if (const floating* g = std::get_if<floating>(&f)) return among(*g);
    if (const microscaling* g = std::get_if<microscaling>(&f))
        return has_integer_elements(*g) ? whole(v * power_of_two(g->integer_bits - 2)) : among(g->element);
    if (const nvfloat* g = std::get_if<nvfloat>(&f)) return among(g->element);
    if (is_integer_format(f)) return whole(std::nearbyint(v * 1048576) / 1048576);
    return whole(v);
}

std::string code_text(const conversion& c, std::size_t i, float value, float unit) {
    if (const floating* g = std::get_if<floating>(&c.format)) {
        if (*g == fp32) return {};
        if (value != value) return has_nan(*g) ? fmt::format("0x{:x}", nan_code(*g)) : "";
        if (!std::isinf(value) && !ordinal(c.format, value, unit)) return {};
        return fmt::format("0x{:x}", code_of(*g, value / unit));
    }
    const auto n = ordinal(c.format, value, unit);
    if (!n) return {};
    if (is_integer_format(c.format)) {
        std::int64_t zero = 0;
        if (!c.zero_point.empty()) {
            const along_axis a = c.scale_blocks;
            const std::size_t l = a.inner == 0 ? 0 : i / a.inner % (a.length == 0 ? 1 : a.length);
            zero = c.given == conversion::granularity::tensor    ? c.zero_point[0]
                   : c.given == conversion::granularity::channel ? c.zero_point[l]
                                                                 : 0;
            if (c.given == conversion::granularity::block)
                zero = c.zero_point[c.grid().zero_point.empty()
                                        ? 0
                                        : codec_parameters(c.grid()).index(a, i / (a.inner * a.length), l, i % a.inner)];
        }
        return fmt::format("{}", *n + zero);
    }
    return fmt::format("{}{} x 2^{}", *n < 0 || std::signbit(value) ? "-" : "", std::abs(*n), std::ilogb(unit));
}

/// A block's positions in the array.
struct block_walk {
    along_axis a;
    std::size_t size = 0;
    template <class Visit>
    void each(Visit visit) const {
        for (std::size_t o = 0; o < a.outer; ++o) {
            for (std::size_t l = 0; l < a.length; l += size) {
                for (std::size_t i = 0; i < a.inner; ++i) visit((o * a.length + l) * a.inner + i, a.inner, std::min(size, a.length - l));
            }
        }
    }
};

/// Marks what befell whole blocks: every value off by the same power of two, or most values on another grid.
void mark_blocks(const conversion& c, std::span<const float> x, std::span<const float> expected, std::span<const float> device,
                 std::vector<difference>& kind, comparison& result) {
    const block_walk walk{c.blocks, static_cast<std::size_t>(block_size(c.format))};
    walk.each([&](std::size_t first, std::size_t stride, std::size_t count) {
        std::size_t different = 0, telling = 0, shifted = 0;
        double ratio = 0;
        for (std::size_t k = 0; k < count; ++k) {
            const std::size_t at = first + k * stride;
            different += !same_value(expected[at], device[at]);
            if (!(x[at] != 0) || !std::isfinite(expected[at]) || !std::isfinite(device[at]) || expected[at] == 0) continue;
            ++telling;
            const double r = static_cast<double>(device[at]) / static_cast<double>(expected[at]);
            int exponent = 0;
            if (r > 0 && r != 1 && std::frexp(r, &exponent) == 0.5 && (ratio == 0 || r == ratio)) {
                ratio = r;
                ++shifted;
            }
        }
        if (different == 0) return;
        ++result.blocks_touched;
        if (telling < 2) return;
        const bool whole = shifted == telling, most = 2 * different > telling && different > 2;
        if (!whole && !most) return;
        for (std::size_t k = 0; k < count; ++k) {
            const std::size_t at = first + k * stride;
            if (!same_value(expected[at], device[at]) && device[at] == device[at] && expected[at] == expected[at]) {
                kind[at] = whole ? difference::block_shifted : difference::block_scale;
            }
        }
    });
}

input_coverage cover(const conversion& c, std::span<const float> x, std::span<const float> expected, std::span<const float> down,
                     std::span<const float> up, std::span<const float> unit) {
    input_coverage k;
    k.values = x.size();
    std::set<int> binades;
    for (std::size_t i = 0; i < x.size(); ++i) {
        const float v = x[i];
        k.negative += std::signbit(v);
        k.nan += v != v;
        k.infinite += std::isinf(v);
        k.positive_zero += v == 0 && !std::signbit(v);
        k.negative_zero += v == 0 && std::signbit(v);
        k.subnormal += v != 0 && std::abs(v) < 0x1p-126f;
        if (!std::isfinite(v)) continue;
        if (v != 0) binades.insert(std::ilogb(v));
        k.exact += v == expected[i];
        k.ties += down[i] != up[i] &&
                  static_cast<double>(v) - static_cast<double>(down[i]) == static_cast<double>(up[i]) - static_cast<double>(v);
        k.overflow += std::isinf(expected[i]) || (down[i] == up[i] && std::abs(v) > std::abs(expected[i]));
        k.underflow += v != 0 && expected[i] == 0;
    }
    k.binades = binades.size();
    if (is_block_format(c.format)) {
        std::set<float> scales;
        block_walk{c.blocks, static_cast<std::size_t>(block_size(c.format))}.each([&](std::size_t first, std::size_t, std::size_t) {
            ++k.blocks;
            if (unit[first] == unit[first]) scales.insert(unit[first]);
        });
        k.scales = scales.size();
    }
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

const char* name_of(difference d) {
    constexpr const char* names[] = {"nan",       "block_shifted", "block_scale", "zero_sign", "overflow",
                                     "underflow", "tie",           "one_code",    "other"};
    return names[static_cast<int>(d)];
}
const char* meaning_of(difference d) {
    constexpr const char* meanings[] = {"NaN on one side only",
                                        "a whole block is off by the same power of two",
                                        "most of a block lies on another grid: its scale is wrong",
                                        "zero of the other sign",
                                        "beyond the largest value: saturation or Inf",
                                        "zero on one side only",
                                        "a tie went the other way",
                                        "the neighbouring code",
                                        "further away"};
    return meanings[static_cast<int>(d)];
}

std::vector<float> units_of(const conversion& c, std::span<const float> x) {
    std::vector<float> unit(x.size(), 1.0f);
    if (x.empty()) return unit;
    if (is_block_format(c.format)) {
        qk::semantics how = c.how;  // only the scales matter here: any special value marks its block
        how.mx_specials = how.bfp_specials = block_specials::block_nan;
        how.clamp_mx_scale = true;
        how.mxint_zero = zero_sign::positive;
        std::vector<std::byte> packed(packed_bytes(c.format, c.blocks));
        if (dispatch::encode(c.format, x, packed, parameters_of(c), how) != encode_status::done) return unit;
        const const_planes planes = planes_of(layout_of(c.format, c.blocks), std::span<const std::byte>(packed));
        qk::detail::with_family(c.format, [&](const auto& f) {
            if constexpr (requires { f.block_size; }) {
                float tensor = 1;
                if (planes.tensor.size() == sizeof tensor) std::memcpy(&tensor, planes.tensor.data(), sizeof tensor);
                qk::detail::for_each_run(c.blocks, static_cast<std::size_t>(f.block_size),
                                         [&](std::size_t o, std::size_t l, std::size_t i, std::size_t first, std::size_t n) {
                                             qk::detail::factors_of<kernels::native>(f, planes, c.blocks, o, l, i, n, tensor, unit.data() + first);
                                         });
            }
        });
        return unit;
    }
    if (c.given == conversion::granularity::tensor) std::fill(unit.begin(), unit.end(), c.scale[0]);
    if (c.given == conversion::granularity::channel || c.given == conversion::granularity::block) {
        const codec_parameters p = parameters_of(c);
        const along_axis a = c.scale_blocks;
        for (std::size_t i = 0; i < x.size(); ++i)
            unit[i] = c.scale[p.index(a, i / (a.inner * a.length), i / a.inner % a.length, i % a.inner)];
    }
    return unit;
}

comparison compare(const conversion& c, const graph::dims& shape, std::span<const float> x, std::span<const float> device) {
    comparison result;
    result.values = x.size();
    std::vector<float> expected(x.size()), down(x.size()), up(x.size());
    expected_values(c, x, expected);
    conversion directed = c;
    directed.how.rounding = rounding::down;
    fake_quantize(directed, x, down);
    directed.how.rounding = rounding::up;
    fake_quantize(directed, x, up);
    const std::vector<float> unit = units_of(c, x);
    result.coverage = cover(c, x, expected, down, up, unit);
    std::vector<difference> kind(x.size(), difference::count);
    if (is_block_format(c.format)) mark_blocks(c, x, expected, device, kind, result);
    for (std::size_t i = 0; i < x.size(); ++i) {
        if (same_value(expected[i], device[i])) continue;
        ++result.mismatches;
        if (kind[i] == difference::count) kind[i] = classify(c, x[i], expected[i], device[i], down[i], up[i], unit[i]);
        difference_class& k = result.classes[static_cast<std::size_t>(kind[i])];
        if (k.count++ < shown) {
            k.examples.push_back(
                {i, x[i], expected[i], device[i], code_text(c, i, expected[i], unit[i]), code_text(c, i, device[i], unit[i])});
        }
    }
    if (result.mismatches != 0) result.causes = find_causes(c, shape, x, expected, device, unit, result.mismatches);
    return result;
}

}  // namespace qk::tool
