// SPDX-License-Identifier: Apache-2.0
// Builds block formats from standard operators: what qk/reference/ computes for one block, computed for all blocks at once.
//
// Scales are computed in float64, where every float32 is normal; elements in float32, or in float64 where float32 is not exact.
// Blocks have the shape [..., block, inner], microexponents [..., sub-blocks, sub-block, inner].
#pragma once

#include <algorithm>
#include <limits>

#include "qk/formats/format.hpp"
#include "qk/graph/export/portable/arithmetic.hpp"
#include "qk/reference/block_float.hpp"
#include "qk/reference/microscaling.hpp"

namespace qk::graph::detail {

/// What is known of each block before any rounding.
class surveyed_blocks {
  public:
    surveyed_blocks(function_builder& f, const operand& x, block_specials rule) : f_(f), a_(f, data_type::float32), x_(x) {
        const operand every = a_.abs(x);
        // A sum of magnitudes is NaN if one of them is; for a maximum that is not certain.
        const operand sum = rule == block_specials::pass_through ? "" : f.reduce("ReduceSum", every, {-2});
        const operand most = rule == block_specials::pass_through ? "" : f.reduce("ReduceMax", every, {-2});
        if (rule == block_specials::block_nan) {
            amax_ = most;
            const operand worst = a_.where(a_.is_nan(sum), sum, most);
            poison_ = a_.sub(worst, worst);
            return;
        }
        const operand infinity = a_.c(std::numeric_limits<double>::infinity());
        passes_ = a_.is_nan(a_.sub(x, x));
        x_ = a_.where(passes_, a_.c(0), x);
        amax_ = f.reduce("ReduceMax", a_.abs(x_), {-2});
        passed_ = x;
        if (rule == block_specials::nan_only) {
            poison_ = a_.where(a_.is_nan(sum), sum, a_.c(0));
            dead_ = a_.equal(most, infinity);
            passed_ = a_.add(x, poison_);
        }
    }

    const operand& x() const { return x_; }        ///< 0 in place of what passes through
    const operand& amax() const { return amax_; }  ///< of the finite values
    /// Returns a block's scale for the multiplication that makes the results: NaN where the block becomes NaN.
    operand scale_of_results(const arithmetic& a, const operand& scale) const {
        if (poison_.empty()) return scale;
        return a.add(scale, a.of_single(poison_));
    }
    /// Returns the results y (float32) joined with what passes through.
    operand results(operand y) const {
        if (!dead_.empty()) {  // zeros take x's sign from 1 / x, which is never a zero whose sign `where` would lose
            const operand sign = a_.clip(a_.div(a_.c(1), x_), -1, 1);
            y = a_.mul(a_.where(dead_, a_.add(sign, poison_), y), a_.where(dead_, a_.c(0), a_.c(1)));
        }
        return passes_.empty() ? y : a_.where(passes_, passed_, y);
    }

  private:
    function_builder& f_;
    arithmetic a_;
    operand x_, amax_;
    operand poison_;  ///< 0, or NaN for blocks that become NaN
    operand dead_;    ///< blocks in which an Inf leaves nothing but zeros
    operand passes_;  ///< which elements pass through; passed_: as what
    operand passed_;
};

/// Returns the largest power of two in amax (float32), as float64.
inline operand top_power(function_builder& f, const operand& amax) {
    return arithmetic(f, data_type::float64).power_below(f.cast(amax, data_type::float64), 1);
}

/// Returns 1 for blocks of zeros, which need no scale: the smallest scale is subnormal, and slow to multiply with.
inline operand unless_zero(function_builder& f, const operand& amax, const operand& scale) {
    return f.op("Where", {f.op("Equal", {amax, f.number(0, data_type::float32)}), f.number(1, data_type::float64), scale});
}

[[noreturn]] inline void refuse_search() {
    throw error("has block scales that are searched, which no standard operator does; for activations choose the scale rule even or rceil");
}

/// Returns the power-of-two scale of MX blocks, in float64: qk::reference::scale_exponent.
inline operand block_scale(function_builder& f, const microscaling& format, const operand& amax, const semantics& how) {
    const arithmetic d(f, data_type::float64);
    const operand exact = f.cast(amax, data_type::float64), top = d.power_below(exact, 1);
    const double below = power_of_two(-element_max_exponent(format));
    operand scale;
    switch (how.scale_rule) {
        case scale_rule::floor: scale = d.mul(top, below); break;
        case scale_rule::ceil: scale = d.mul(d.where(d.less(top, exact), d.mul(top, 2), top), below); break;
        case scale_rule::rceil: {
            const double largest = reference::element_max(format);
            const operand least = d.mul(top, power_of_two(-reference::exponent_of(largest)));
            scale = d.where(d.less(d.mul(least, largest), exact), d.mul(least, 2), least);
            break;
        }
        case scale_rule::ceil_7_25: {
            const double stretched = stretched_maximum(format);
            const operand least = d.mul(top, power_of_two(-reference::exponent_of(stretched)));
            scale = d.where(d.less(d.mul(least, stretched), exact), d.mul(least, 2), least);
            break;
        }
        case scale_rule::four_over_six:
        case scale_rule::search: refuse_search(); break;
        case scale_rule::even: {  // amax at or beyond the tie below the next power of two counts as that power
            const operand tie = d.mul(top, 2 - power_of_two(-reference::element_mantissa_bits(format) - 1));
            scale = d.mul(d.where(d.less(exact, tie), top, d.mul(top, 2)), below);
            break;
        }
    }
    return unless_zero(f, amax, how.clamp_mx_scale ? d.clip(scale, 0x1p-127, 0x1p127) : scale);
}

inline operand fake_quantize(function_builder& f, const microscaling& format, const operand& x, const semantics& how) {
    const bool integers = has_integer_elements(format);
    // Scales that are not clamped need not fit float32.
    const arithmetic a(f, is_directed(how.rounding) || !how.clamp_mx_scale || !(integers || fits_float32(format.element))
                              ? data_type::float64
                              : data_type::float32);
    const surveyed_blocks b(f, x, how.mx_specials);
    const operand scale64 = block_scale(f, format, b.amax(), how);
    const double unit = integers ? power_of_two(-(format.integer_bits - 2)) : 1;
    const operand scale = a.of_double(arithmetic(f, data_type::float64).mul(scale64, unit));
    const operand quotient = a.div(a.of_single(b.x()), scale);
    operand element;
    zero_sign rule = zero_sign::positive;
    if (integers) {
        const double highest = power_of_two(format.integer_bits - 1) - 1;
        element = a.clip(a.round(quotient, how.rounding), how.mxint_uses_lowest ? -highest - 1 : -highest, highest);
        rule = how.mxint_zero;
    } else {
        element = on_grid(a, format.element, quotient, how.rounding);
        if (has_negative_zero(format.element)) rule = how.mx_zero;
    }
    // Whether a quotient is zero does not depend on the unit, but where it underflows does.
    const operand tested = integers && rule != zero_sign::positive && rule != zero_sign::kept ? a.mul(quotient, unit) : quotient;
    return b.results(a.to_single(a.mul(a.with_zero_sign(element, tested, rule, how.rounding), b.scale_of_results(a, scale))));
}

inline operand fake_quantize(function_builder& f, const block_float& format, const operand& x, const semantics& how) {
    const arithmetic d(f, data_type::float64);
    const arithmetic a(f, is_directed(how.rounding) ? data_type::float64 : data_type::float32);
    const surveyed_blocks b(f, x, how.bfp_specials);
    const double lowest_power = power_of_two(-reference::exponent_bias(format));
    const double highest_power = power_of_two(reference::largest_exponent_code(format) - reference::exponent_bias(format));
    // An exponent field of 0 stands for 2^-127, whatever the subnormal.
    operand top = unless_zero(f, b.amax(), d.min(d.max(top_power(f, b.amax()), std::max(0x1p-127, lowest_power)), highest_power));
    const auto step_of = [&](const operand& power) { return a.of_double(d.mul(power, power_of_two(1 - format.mantissa_bits))); };
    const operand in = a.of_single(b.x());
    const double highest = reference::highest_element(format);
    operand step = step_of(top), quotient = a.div(in, step), element = a.round(quotient, how.rounding);
    if (format.bump) {
        const auto lowest_of = [&](const operand& power) {  // -2^128 is not a float32
            return a.of_double(d.where(d.less(power, d.c(0x1p127)), d.c(-highest - 1), d.c(-highest)));
        };
        const operand above = a.less(a.c(highest), f.reduce("ReduceMax", element, {-2}));
        const operand below = a.less(f.reduce("ReduceMin", element, {-2}), lowest_of(top));
        const operand can = d.less(top, d.c(highest_power));
        top = d.where(d.both(can, d.either(above, below)), d.mul(top, 2), top);
        step = step_of(top);
        quotient = a.div(in, step);
        element = a.min(f.op("Max", {a.round(quotient, how.rounding), lowest_of(top)}), highest);
    } else {
        element = a.clip(element, -highest, highest);
    }
    const zero_sign rule = has_negative_zero(format) ? how.bfp_zero : zero_sign::positive;
    return b.results(a.to_single(a.mul(a.with_zero_sign(element, quotient, rule, how.rounding), b.scale_of_results(a, step))));
}

inline operand fake_quantize(function_builder& f, const microexponent& format, const operand& x, const semantics& how) {
    const arithmetic d(f, data_type::float64), a(f, data_type::float32);
    const operand magnitude = a.abs(x);
    const operand sum = f.reduce("ReduceSum", magnitude, {-3, -2}), pair_amax = f.reduce("ReduceMax", magnitude, {-2}),
                  amax = f.reduce("ReduceMax", pair_amax, {-3});
    const operand worst = a.where(a.is_nan(sum), sum, amax), poison = a.sub(worst, worst);
    // Exponent fields as powers of two; field 0 stands for 2^-127.
    const operand pair = d.max(top_power(f, pair_amax), 0x1p-127), top = unless_zero(f, amax, d.max(top_power(f, amax), 0x1p-127));
    const operand shifted = f.op("Max", {pair, d.mul(top, power_of_two(-((1 << format.shift_bits) - 1)))});
    const operand step64 = d.mul(shifted, power_of_two(1 - format.mantissa_bits)), step = f.cast(step64, data_type::float32);
    const double largest = power_of_two(format.mantissa_bits) - 1;
    operand element = is_directed(how.rounding)
                          ? f.cast(d.round(d.div(f.cast(x, data_type::float64), step64), how.rounding), data_type::float32)
                          : a.round(a.div(x, step), how.rounding);
    element = a.clip(element, -largest, largest);
    const operand normal = f.cast(a.less(a.c(0x1.fffffcp-127), magnitude), data_type::float32);  // subnormals become zeros
    return a.mul(a.mul(element, normal), a.add(step, poison));
}

/// `tensor_scale` is the scale of the whole tensor, a scalar; if empty, it is computed from the tensor itself.
inline operand fake_quantize(function_builder& f, const nvfloat& format, const operand& x, const semantics& how, operand tensor_scale) {
    if (reference::is_searched(how.scale_rule)) refuse_search();
    const arithmetic a(f, data_type::float32), d(f, data_type::float64);
    const surveyed_blocks b(f, x, how.mx_specials);
    if (tensor_scale.empty()) {
        const operand all = f.op("Reshape", {x, f.integers({-1})}),
                      finite = a.where(a.less(a.abs(all), a.c(std::numeric_limits<double>::infinity())), all, a.c(0));
        const operand amax = f.op("Reshape", {f.reduce("ReduceMax", a.abs(finite), {0}), f.integers({1})});
        tensor_scale = a.div(amax, a.c(max_value(format.element) * max_value(format.scale)));
    }
    const operand none = a.equal(tensor_scale, a.c(0));
    const operand of_max = a.div(a.div(b.amax(), a.c(max_value(format.element))), a.where(none, a.c(1), tensor_scale));
    const operand block = f.cast(on_grid(d, format.scale, f.cast(of_max, data_type::float64), rounding::half_even), data_type::float32);
    const operand scale = a.mul(a.where(none, a.c(0), block), tensor_scale), empty = a.equal(scale, a.c(0)),
                  divisor = a.where(empty, a.c(1), scale);
    const operand quotient = a.div(b.x(), divisor);
    operand element = fits_float32(format.element) && !is_directed(how.rounding)
                          ? on_grid(a, format.element, quotient, how.rounding)
                          : f.cast(on_grid(d, format.element, f.cast(quotient, data_type::float64), how.rounding), data_type::float32);
    element = a.with_zero_sign(element, quotient, has_negative_zero(format.element) ? how.mx_zero : zero_sign::positive, how.rounding);
    return b.results(a.mul(a.where(empty, a.c(0), element), b.scale_of_results(a, divisor)));
}

}  // namespace qk::graph::detail
