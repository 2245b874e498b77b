// SPDX-License-Identifier: Apache-2.0
// Builds elementwise formats from standard operators, with given or computed scales: what qk/reference/ computes for one value.
#pragma once

#include <algorithm>
#include <limits>

#include "qk/formats/format.hpp"
#include "qk/graph/export/portable/arithmetic.hpp"
#include "qk/reference/table.hpp"

namespace qk::graph::detail {

/// A scale and, for integers, a zero point of type `zero_point_type`. Empty operands mean scale 1 and zero point 0.
struct element_scale {
    operand scale, zero_point;
};

/// Returns float64 where float32 cannot hold every difference of two codes.
constexpr data_type zero_point_type(integer f) { return f.bits > 16 ? data_type::float64 : data_type::float32; }

/// y = scale * cast(x / scale)
inline operand fake_quantize(function_builder& f, floating format, const operand& x, const element_scale& s, const semantics& how) {
    const arithmetic single(f, data_type::float32);
    const arithmetic a(f, fits_float32(format) && !is_directed(how.rounding) ? data_type::float32 : data_type::float64);
    const bool saturate = reference::saturates(format, how.overflow);
    const double largest = max_value(format), infinity = std::numeric_limits<double>::infinity();
    const operand quotient = s.scale.empty() ? x : single.div(x, s.scale);
    const operand v = a.of_single(quotient);
    operand y = on_grid(a, format, v, how.rounding, saturate);
    if (!saturate) {
        // Roundings toward zero stop at the largest finite value, unless they start from Inf.
        operand stopped = y;
        if (how.rounding == rounding::toward_zero || how.rounding == rounding::down) stopped = a.min(stopped, largest);
        if (how.rounding == rounding::toward_zero || how.rounding == rounding::up) stopped = a.max(stopped, -largest);
        if (stopped != y) y = a.where(a.equal(a.abs(v), a.c(infinity)), y, stopped);
        y = a.where(a.less(a.c(largest), a.abs(y)),
                    has_infinity(format) ? a.mul(y, infinity) : a.c(std::numeric_limits<double>::quiet_NaN()), y);
    }
    y = a.to_single(has_negative_zero(format) ? y : a.without_negative_zero(y));
    const bool keeps_nan = has_nan(format) || how.nan_without_code == nan_rule::nan;
    const operand nan = single.is_nan(x);
    y = single.where(nan, single.c(keeps_nan ? std::numeric_limits<double>::quiet_NaN() : 0), y);
    if (!keeps_nan && how.nan_without_code == nan_rule::negative_zero) y = single.mul(y, single.where(nan, single.c(-1), single.c(1)));
    return s.scale.empty() ? y : single.mul(y, s.scale);
}

/// y = (clamp(round(x / scale) + zero point) - zero point) * scale. `one_scale`: one for the whole tensor, which decides what +Inf becomes.
inline operand fake_quantize(function_builder& f, integer format, const operand& x, const element_scale& s, bool one_scale,
                             const semantics& how) {
    const arithmetic single(f, data_type::float32), a(f, zero_point_type(format));
    // 1 / scale is computed as twice 0.5 / scale: onnxruntime turns x * (1 / scale) into x / scale.
    const operand quotient = how.integer_mode == integer_mode::division ? single.div(x, s.scale)
                                                                        : single.mul(x, single.mul(single.div(single.c(0.5), s.scale), 2));
    const auto bound = [&](std::int64_t code) {
        return s.zero_point.empty() ? a.c(static_cast<double>(code)) : a.sub(a.c(static_cast<double>(code)), s.zero_point);
    };
    const operand lowest = bound(qmin(format)), highest = bound(qmax(format));
    const auto held = [&](const operand& v) { return f.op("Min", {f.op("Max", {v, lowest}), highest}); };
    operand offset;  // the code minus the zero point
    if (how.zero_point_before && !s.zero_point.empty()) {
        const operand sum = single.add(quotient, a.to_single(s.zero_point));
        offset = held(a.sub(a.round(a.of_single(sum), how.rounding), s.zero_point));
    } else if (!a.is_wide() && how.rounding == rounding::half_even) {
        const operand magic = a.c(0x1.8p23);                  // whole numbers from here to 2^24: the sum rounds
        offset = a.sub(a.add(held(quotient), magic), magic);  // and never gives -0
    } else {
        offset = held(a.round(a.of_single(quotient), how.rounding));
    }
    const auto special = [&](integer_special rule) {
        return rule == integer_special::zero_point ? a.c(0) : rule == integer_special::lowest ? lowest : highest;
    };
    const integer_special infinity = one_scale ? how.integer_infinity : how.integer_infinity_per_channel;
    if (infinity != integer_special::highest)
        offset = a.where(single.equal(x, single.c(std::numeric_limits<double>::infinity())), special(infinity), offset);
    if (how.rounding != rounding::half_even || how.zero_point_before || a.is_wide()) offset = a.without_negative_zero(offset);
    offset = a.where(single.is_nan(quotient), special(how.integer_nan), offset);
    return single.mul(a.to_single(offset), s.scale);
}

/// Returns the numbers of a table in ascending order, and for each but the first the least float32 that becomes it or a larger one.
inline std::pair<std::vector<float>, std::vector<float>> thresholds_of(const table& t, const semantics& how) {
    std::vector<float> numbers, from;
    for (int i = 0; i < t.size; ++i)
        if (const float v = t.values[static_cast<std::size_t>(i)]; v == v) numbers.push_back(v);
    std::ranges::sort(numbers);
    numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
    // Floats in order as integers, so that a threshold is found by halving.
    const auto ordered = [](float v) {
        const auto u = std::bit_cast<std::int32_t>(v);
        return u < 0 ? std::int64_t{INT32_MIN} - u : std::int64_t{u};
    };
    const auto number = [](std::int64_t n) { return std::bit_cast<float>(static_cast<std::int32_t>(n < 0 ? INT32_MIN - n : n)); };
    for (std::size_t k = 1; k < numbers.size(); ++k) {
        std::int64_t low = ordered(numbers[k - 1]), high = ordered(numbers[k]);
        while (high - low > 1) {
            const std::int64_t middle = low + (high - low) / 2;
            const int code = reference::code_of(t, number(middle), how, 0);
            (t.values[static_cast<std::size_t>(code)] >= numbers[k] ? high : low) = middle;
        }
        from.push_back(number(high));
    }
    return {numbers, from};
}

/// y = scale * (the number that x / scale becomes): halves the list of numbers until one is left.
inline operand fake_quantize(function_builder& f, const table& format, const operand& x, const element_scale& s, const semantics& how) {
    const arithmetic a(f, data_type::float32);
    auto [numbers, from] = thresholds_of(format, how);
    std::size_t width = 1;
    while (width < numbers.size()) width *= 2;
    from.insert(from.begin(), 0.0f);
    from.resize(width, std::numeric_limits<float>::quiet_NaN());  // which no value reaches
    numbers.resize(width, 0.0f);
    const auto list = [&](const std::vector<float>& v, const char* stem) {
        return f.constant(make_tensor<float>({static_cast<std::int64_t>(v.size())}, v), stem);
    };
    const operand quotient = s.scale.empty() ? x : a.div(x, s.scale), starts = list(from, "starts");
    operand at = f.op("Mul", {f.cast(a.is_nan(quotient), data_type::int64), f.number(0, data_type::int64)});
    for (std::size_t step = width / 2; step != 0; step /= 2) {
        const operand next = f.op("Add", {at, f.number(static_cast<double>(step), data_type::int64)}),
                      start = f.op("Gather", {starts, next});
        at = f.op("Where", {a.either(a.less(start, quotient), a.equal(start, quotient)), next, at});
    }
    const float for_nan = reference::quantize(format, std::numeric_limits<float>::quiet_NaN(), 1, how, 0);
    const operand y = a.where(a.is_nan(quotient), a.c(static_cast<double>(for_nan)), f.op("Gather", {list(numbers, "numbers"), at}));
    return s.scale.empty() ? y : a.mul(y, s.scale);
}

/// Returns the largest magnitude that a format without a zero point reaches at scale 1.
inline double reach_of(const format& f) {
    if (const table* t = std::get_if<table>(&f)) return reach(*t);
    return max_value(std::get<floating>(f));
}

/// Computes scale and zero point from the values themselves, in the float64 steps of execute::range_scale.
inline element_scale range_scale(function_builder& f, const format& of, const operand& x) {
    const arithmetic single(f, data_type::float32), d(f, data_type::float64);
    const operand all = f.op("Reshape", {x, f.integers({-1})});
    const operand finite = single.where(single.less(single.abs(all), single.c(std::numeric_limits<double>::infinity())), all,
                                        single.c(0));  // -0 or +0: no matter
    const auto scalar = [&](const char* type) {
        return f.cast(f.op("Reshape", {f.reduce(type, finite, {0}), f.integers({})}), data_type::float64);
    };
    const operand high = d.max(scalar("ReduceMax"), 0), low = d.min(scalar("ReduceMin"), 0);
    const auto largest = [&] { return f.op("Max", {f.op("Neg", {low}), high}); };
    operand scale, zero;
    if (const integer* g = std::get_if<integer>(&of)) {
        const auto qlow = static_cast<double>(qmin(*g)), qhigh = static_cast<double>(qmax(*g));
        if (g->symmetric || g->pow2) {
            scale = g->is_signed ? d.div(largest(), d.c(qhigh)) : d.div(d.mul(largest(), 2), d.c(qhigh - qlow));
            if (!g->is_signed) zero = d.c(power_of_two(used_bits(*g) - 1));
            if (g->pow2) {
                const operand below = d.power_below(scale, 1);
                scale = d.where(d.less(below, scale), d.mul(below, 2), below);
            }
        } else {
            scale = d.div(d.sub(high, low), d.c(qhigh - qlow));
            zero = d.clip(f.op("Round", {d.sub(d.c(qlow), d.div(low, scale))}), qlow, qhigh);
        }
    } else {
        scale = d.div(largest(), d.c(reach_of(of)));
    }
    const operand rounded = f.cast(scale, data_type::float32),
                  tiny = single.less(rounded, single.c(static_cast<double>(std::numeric_limits<float>::min())));
    element_scale s{.scale = single.where(tiny, single.c(1), rounded), .zero_point = {}};
    if (!zero.empty()) {
        zero = d.where(tiny, d.c(0), zero);
        s.zero_point = zero_point_type(std::get<integer>(of)) == data_type::float64 ? zero : f.cast(zero, data_type::float32);
    }
    return s;
}

}  // namespace qk::graph::detail
