// SPDX-License-Identifier: Apache-2.0
// Mistakes in the scales of blocks, as changes of the factors that elements are multiplied by.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "model.hpp"
#include "qk/reference.hpp"
#include "qk/storage.hpp"

namespace qk::compare {

template <int Power>
void scales_off(const problem&, const conversion& c, std::span<const float>, std::span<float> unit) {
    const bool limited = std::holds_alternative<microscaling>(c.format);
    for (float& u : unit) {
        u = std::ldexp(u, Power);
        if (limited && u == u) u = std::clamp(u, 0x1p-127f, 0x1p127f);
    }
}
/// Takes the factors from values that are a power of two too large or too small, before the exponent is held within its range.
template <int Power>
void scales_off_before_range(const problem&, const conversion& c, std::span<const float> x, std::span<float> unit);

/// Takes the factors from the scales of another input: change(first, stride, count, x) edits a block of its copy.
template <class Change>
void scales_from(const conversion& c, std::span<const float> x, std::span<float> unit, Change change) {
    std::vector<float> other(x.begin(), x.end());
    for_each_block(c, [&](std::size_t first, std::size_t stride, std::size_t count) { change(first, stride, count, other); });
    const std::vector<float> units = units_of(c, other);
    for (std::size_t i = 0; i < unit.size(); ++i) {
        if (unit[i] == unit[i]) unit[i] = units[i];
    }
}
template <int Power>
void scales_off_before_range(const problem& p, const conversion& c, std::span<const float> x, std::span<float> unit) {
    constexpr float most = 0x1.fffffep+127f / (Power > 0 ? 2 : 1);
    const std::vector<float> right(unit.begin(), unit.end());
    std::vector<float> beyond(right);
    scales_off<Power>(p, c, x, beyond);
    scales_from(c, x, unit, [&](std::size_t first, std::size_t stride, std::size_t count, std::span<float> v) {
        for (std::size_t k = 0; k < count; ++k) v[first + k * stride] = std::ldexp(v[first + k * stride], Power);
    });
    for_each_block(c, [&](std::size_t first, std::size_t stride, std::size_t count) {
        bool fits = true;
        for (std::size_t k = 0; k < count; ++k) fits = fits && std::abs(x[first + k * stride]) <= most;
        for (std::size_t k = 0; k < count && !fits; ++k) unit[first + k * stride] = beyond[first + k * stride];
    });
}
inline std::size_t largest_of(std::span<const float> x, std::size_t first, std::size_t stride, std::size_t count) {
    std::size_t at = first;
    for (std::size_t k = 0; k < count; ++k) {
        if (std::abs(x[first + k * stride]) > std::abs(x[at])) at = first + k * stride;
    }
    return at;
}
inline void scales_rounded_up(const problem&, const conversion& c, std::span<const float> x, std::span<float> unit) {
    scales_from(c, x, unit, [](std::size_t first, std::size_t stride, std::size_t count, std::span<float> v) {
        float& most = v[largest_of(v, first, stride, count)];
        const float a = std::abs(most);
        if (most != 0 && std::isfinite(a) && std::ldexp(1.0f, std::ilogb(a)) < a) most = std::ldexp(1.0f, std::ilogb(a) + 1);
    });
}
/// Takes the OR of all exponent fields for the largest exponent.
inline void scales_of_ored_exponents(const problem&, const conversion& c, std::span<const float> x, std::span<float> unit) {
    std::vector<std::size_t> beyond;  // blocks whose OR is the field of Inf, an exponent above that of every number
    scales_from(c, x, unit, [&](std::size_t first, std::size_t stride, std::size_t count, std::span<float> v) {
        float& most = v[largest_of(v, first, stride, count)];
        std::uint32_t fields = 0;
        for (std::size_t k = 0; k < count; ++k) fields |= std::bit_cast<std::uint32_t>(v[first + k * stride]) & 0x7f800000u;
        if (fields == 0 || !std::isfinite(most)) return;
        if (fields == 0x7f800000u) {
            fields = 0x7f000000u;
            for (std::size_t k = 0; k < count; ++k) beyond.push_back(first + k * stride);
        }
        most = std::bit_cast<float>(fields | (std::bit_cast<std::uint32_t>(most) & 0x007fffffu));
    });
    for (const std::size_t i : beyond) unit[i] *= 2;
}
/// Takes the power of two whose logarithm is nearest to that of largest value / largest element, as MLX did.
inline void scales_nearest(const problem&, const conversion& c, std::span<const float> x, std::span<float> unit) {
    const auto grid = element_grid::of(c);
    for_each_block(c, [&](std::size_t first, std::size_t stride, std::size_t count) {
        const double most = std::abs(static_cast<double>(x[largest_of(x, first, stride, count)]));
        if (!grid || !(most > 0) || !std::isfinite(most)) return;
        const int e = std::clamp(static_cast<int>(std::nearbyint(std::log2(most / grid->largest))), -127, 127);
        for (std::size_t k = 0; k < count; ++k) {
            if (unit[first + k * stride] == unit[first + k * stride]) unit[first + k * stride] = std::ldexp(1.0f, e);
        }
    });
}
/// Returns the exponent that the code of a scale is counted from.
inline int least_scale_exponent(const qk::format& f) {
    if (const auto* b = std::get_if<block_float>(&f)) return -((1 << (b->exponent_bits - 1)) - 1) - (b->mantissa_bits - 1);
    return -127;
}
/// A bit of the scale's code is always 0 or always 1.
template <int Bit, bool One>
void scales_with_stuck_bit(const problem&, const conversion& c, std::span<const float>, std::span<float> unit) {
    const int least = least_scale_exponent(c.format);
    for (float& u : unit) {
        if (!(u > 0)) continue;
        const unsigned right = static_cast<unsigned>(std::ilogb(u) - least), code = One ? right | 1u << Bit : right & ~(1u << Bit);
        u = code == 255 && std::holds_alternative<microscaling>(c.format) ? std::numeric_limits<float>::quiet_NaN()
                                                                          : std::ldexp(1.0f, static_cast<int>(code) + least);
    }
}
/// A scale's code is read as NaN: 0 if `Least`, else the largest.
template <bool Least>
void scales_read_as_nan(const problem&, const conversion& c, std::span<const float>, std::span<float> unit) {
    const int e = Least ? least_scale_exponent(c.format) : 127;
    for (float& u : unit) {
        if (u == std::ldexp(1.0f, e)) u = std::numeric_limits<float>::quiet_NaN();
    }
}
inline void scales_of_positive(const problem&, const conversion& c, std::span<const float> x, std::span<float> unit) {
    scales_from(c, x, unit, [](std::size_t first, std::size_t stride, std::size_t count, std::span<float> v) {
        for (std::size_t k = 0; k < count; ++k) v[first + k * stride] = v[first + k * stride] < 0 ? 0.0f : v[first + k * stride];
    });
}
inline void scales_without_last(const problem&, const conversion& c, std::span<const float> x, std::span<float> unit) {
    scales_from(c, x, unit,
                [](std::size_t first, std::size_t stride, std::size_t count, std::span<float> v) { v[first + (count - 1) * stride] = 0; });
}
inline void scales_without_first(const problem&, const conversion& c, std::span<const float> x, std::span<float> unit) {
    scales_from(c, x, unit, [](std::size_t first, std::size_t, std::size_t, std::span<float> v) { v[first] = 0; });
}
/// Gives every block the scale of its neighbour in the order in which they are stored.
template <bool Next>
void scales_of_neighbour(const problem&, const conversion& c, std::span<const float>, std::span<float> unit) {
    const std::vector<float> right(unit.begin(), unit.end());
    std::vector<std::array<std::size_t, 3>> blocks;
    for_each_block(c, [&](std::size_t first, std::size_t stride, std::size_t count) { blocks.push_back({first, stride, count}); });
    for (std::size_t b = 0; b < blocks.size(); ++b) {
        if (Next ? b + 1 == blocks.size() : b == 0) continue;
        const auto [first, stride, count] = blocks[b];
        const float other = right[blocks[Next ? b + 1 : b - 1][0]];
        for (std::size_t k = 0; k < count; ++k) unit[first + k * stride] = other;
    }
}
/// Takes the scale from an inexact logarithm. Each logarithm errs at other values, so a block whose largest value lies beside a power of
/// two gets the next scale if the device differs there and the scale can hold its values.
inline void scales_by_logarithm(const problem& p, const conversion& c, std::span<const float> x, std::span<float> unit) {
    for_each_block(c, [&](std::size_t first, std::size_t stride, std::size_t count) {
        const float most = std::abs(x[largest_of(x, first, stride, count)]);
        if (!(most > 0) || !std::isfinite(most)) return;
        const float part = most / std::ldexp(1.0f, std::ilogb(most));
        const int power = part > 1.99999f ? 1 : part < 1.00001f ? -1 : 0;
        std::size_t differ = 0, beyond = 0;
        const auto grid = element_grid::of(c);
        for (std::size_t k = 0; k < count && grid; ++k) {
            const std::size_t i = first + k * stride;
            differ += !same_value(p.expected[i], p.device[i]);
            beyond += std::abs(static_cast<double>(p.device[i])) > grid->largest * static_cast<double>(unit[i]);
        }
        if (power == 0 || differ == 0 || (power < 0 && beyond != 0)) return;
        for (std::size_t k = 0; k < count; ++k) unit[first + k * stride] = std::ldexp(unit[first + k * stride], power);
    });
}
/// Takes each block's scale without the values at positions k for which skip(k, count) is true.
template <class Skip>
void scales_without(const conversion& c, std::span<const float> x, std::span<float> unit, Skip skip) {
    scales_from(c, x, unit, [&](std::size_t first, std::size_t stride, std::size_t count, std::span<float> v) {
        for (std::size_t k = 0; k < count; ++k) {
            if (skip(k, count)) v[first + k * stride] = 0;
        }
    });
}
/// Returns the position in a block at which the largest value most often stands in blocks where that value is wrong.
inline std::size_t overlooked_position(const problem& p) {
    std::vector<std::size_t> wrong(static_cast<std::size_t>(std::max(1, block_size(p.asked.format))), 0);
    for_each_block(p.asked, [&](std::size_t first, std::size_t stride, std::size_t count) {
        const std::size_t at = largest_of(p.x, first, stride, count);
        if (std::isfinite(p.x[at]) && !same_value(p.expected[at], p.device[at])) ++wrong[(at - first) / stride];
    });
    return static_cast<std::size_t>(std::max_element(wrong.begin(), wrong.end()) - wrong.begin());
}
inline std::string position_left_out(const problem& p) { return std::to_string(overlooked_position(p)); }
inline void scales_without_one(const problem& p, const conversion& c, std::span<const float> x, std::span<float> unit) {
    scales_without(c, x, unit, [one = overlooked_position(p)](std::size_t k, std::size_t) { return k == one; });
}
inline void scales_of_first_half(const problem&, const conversion& c, std::span<const float> x, std::span<float> unit) {
    scales_without(c, x, unit, [](std::size_t k, std::size_t count) { return 2 * k >= count; });
}
inline void scales_of_second_half(const problem&, const conversion& c, std::span<const float> x, std::span<float> unit) {
    scales_without(c, x, unit, [](std::size_t k, std::size_t count) { return 2 * k < count; });
}
template <std::size_t Odd>
void scales_of_every_other(const problem&, const conversion& c, std::span<const float> x, std::span<float> unit) {
    scales_without(c, x, unit, [](std::size_t k, std::size_t) { return k % 2 != Odd; });
}
/// Looks for the largest value in a window that is one value off within its row: it takes in the next value of the row, or the one before,
/// in place of one of the block's own.
template <bool Late>
void scales_of_window(const problem&, const conversion& c, std::span<const float> x, std::span<float> unit) {
    const along_axis a = c.blocks;
    scales_from(c, x, unit, [&](std::size_t first, std::size_t stride, std::size_t count, std::span<float> v) {
        const std::size_t l = first / a.inner % a.length;
        if (Late) v[first] = l + count < a.length ? x[first + count * stride] : 0.0f;
        else v[first + (count - 1) * stride] = l > 0 ? x[first - stride] : 0.0f;
    });
}

inline float as_bfloat16(float x) { return widen(narrow<bfloat16>(x)); }
inline void scales_from_bfloat16(const problem&, const conversion& c, std::span<const float> x, std::span<float> unit) {
    scales_from(c, x, unit, [](std::size_t first, std::size_t stride, std::size_t count, std::span<float> v) {
        for (std::size_t k = 0; k < count; ++k) {
            const float rounded = as_bfloat16(v[first + k * stride]);
            if (std::isfinite(rounded)) v[first + k * stride] = rounded;
        }
    });
}
/// Returns the scale of the tensor of NVFP4: as given, or by its largest value.
inline float tensor_scale_of(const conversion& c, std::span<const float> x) {
    float tensor = c.given == conversion::granularity::none ? 1.0f : c.scale[0];
    if (c.given == conversion::granularity::none) {
        std::visit(
            [&](const auto& f) {
                if constexpr (requires { f.scale; }) tensor = reference::tensor_scale(f, x, c.how);
            },
            c.format);
    }
    return tensor;
}
/// Replaces the scales of NVFP4, which are numbers of a small float: scale_of(of, quotient) is the one of a block.
template <class ScaleOf>
void nvfloat_scales(const conversion& c, std::span<const float> x, std::span<float> unit, const ScaleOf& scale_of) {
    const floating element = *element_float(c.format), of_scale = *scale_float(c.format);
    const float tensor = tensor_scale_of(c, x);
    for_each_block(c, [&](std::size_t first, std::size_t stride, std::size_t count) {
        const float most = std::abs(x[largest_of(x, first, stride, count)]);
        if (!std::isfinite(most) || tensor == 0) return;
        const float quotient = reference::divide(reference::divide(most, static_cast<float>(max_value(element))), tensor);
        const float scale = reference::multiply(scale_of(of_scale, quotient), tensor);
        for (std::size_t k = 0; k < count; ++k) unit[first + k * stride] = scale;
    });
}
/// They are rounded in another way.
template <rounding R>
void nvfloat_scales_rounded(const problem&, const conversion& c, std::span<const float> x, std::span<float> unit) {
    qk::semantics how;
    how.overflow = overflow_rule::saturate;
    how.rounding = R;
    nvfloat_scales(c, x, unit, [&](const floating& of, float quotient) { return reference::to_grid(of, quotient, how, 0); });
}

/// The least scale is read as 0, as an exponent field of 0 is in a float.
inline void scales_read_as_zero(const problem&, const conversion& c, std::span<const float>, std::span<float> unit) {
    const float least = std::ldexp(1.0f, least_scale_exponent(c.format));
    std::replace(unit.begin(), unit.end(), least, 0.0f);
}
/// Returns the largest finite magnitude of a block, or what was there before.
inline float largest_finite(std::span<const float> x, std::size_t first, std::size_t stride, std::size_t count, float most) {
    for (std::size_t k = 0; k < count; ++k) {
        const float magnitude = std::abs(x[first + k * stride]);
        if (std::isfinite(magnitude)) most = std::max(most, magnitude);
    }
    return most;
}
/// The register of the largest value keeps what it has from block to block; `Rows`: it is cleared where a row ends.
template <bool Rows>
void scales_not_cleared(const problem&, const conversion& c, std::span<const float> x, std::span<float> unit) {
    const along_axis a = c.blocks;
    float most = 0;
    std::size_t row = 0;
    scales_from(c, x, unit, [&](std::size_t first, std::size_t stride, std::size_t count, std::span<float> v) {
        const std::size_t here = first / (a.length * a.inner);
        if (Rows && here != row) most = 0, row = here;
        most = largest_finite(x, first, stride, count, most);
        if (std::isfinite(v[first])) v[first] = std::copysign(most, v[first]);
    });
}
/// The largest value of the block before counts, too: the register is cleared a block late.
inline void scales_cleared_late(const problem&, const conversion& c, std::span<const float> x, std::span<float> unit) {
    float before = 0;
    scales_from(c, x, unit, [&](std::size_t first, std::size_t stride, std::size_t count, std::span<float> v) {
        const float most = largest_finite(x, first, stride, count, 0);
        if (std::isfinite(v[first]) && before > most) v[first] = std::copysign(before, v[first]);
        before = most;
    });
}
/// The shared exponent has fewer bits: it is held within them, `Wraps`: or cut to them.
template <int Bits, bool Wraps>
void scales_of_few_bits(const problem&, const conversion& c, std::span<const float>, std::span<float> unit) {
    const int offset = least_scale_exponent(c.format) + 127, low = 1 - (1 << (Bits - 1)), high = 1 << (Bits - 1);
    for (float& u : unit) {
        if (!(u > 0) || !std::isfinite(u)) continue;
        const int e = std::ilogb(u) - offset;
        const int held = Wraps ? ((e - low) & ((1 << Bits) - 1)) + low : std::clamp(e, low, high);
        if (held != e) u = std::ldexp(1.0f, held + offset);
    }
}
/// NVFP4's scale is rounded to so many mantissa bits before it is rounded to its format; 0 bits: its subnormal numbers become 0.
template <int Bits>
void nvfloat_scales_twice(const problem&, const conversion& c, std::span<const float> x, std::span<float> unit) {
    qk::semantics how;
    how.overflow = overflow_rule::saturate;
    nvfloat_scales(c, x, unit, [&](const floating& of, float quotient) {
        if (Bits > 0 && quotient > 0 && std::isfinite(quotient)) {
            const double step = std::ldexp(1.0, std::ilogb(quotient) - Bits);
            quotient = static_cast<float>(std::nearbyint(static_cast<double>(quotient) / step) * step);
        }
        const float scale = reference::to_grid(of, quotient, how, 0);
        return Bits == 0 && static_cast<double>(scale) < min_normal(of) ? 0.0f : scale;
    });
}

}  // namespace qk::compare
