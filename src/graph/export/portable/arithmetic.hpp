// SPDX-License-Identifier: Apache-2.0
// Builds exact arithmetic from standard operators: the power of two below a value, and rounding in every mode. docs/guide/export.md has it
// under "How the functions compute".
#pragma once

#include "graph/export/portable/function_builder.hpp"
#include "qk/formats/floating.hpp"
#include "qk/reference/floating.hpp"
#include "qk/semantics.hpp"

namespace qk::graph::detail {

/// Operators on values of one floating type, float32 or float64.
class arithmetic {
  public:
    arithmetic(function_builder& f, data_type type) : f_(f), type_(type) {}

    operand c(double v) const { return f_.number(v, type_); }
    operand add(const operand& a, const operand& b) const { return f_.op("Add", {a, b}); }
    operand sub(const operand& a, const operand& b) const { return f_.op("Sub", {a, b}); }
    operand mul(const operand& a, const operand& b) const { return f_.op("Mul", {a, b}); }
    operand mul(const operand& a, double b) const { return b == 1 ? a : mul(a, c(b)); }  // a product with 1 needs no node
    operand div(const operand& a, const operand& b) const { return f_.op("Div", {a, b}); }
    operand abs(const operand& a) const { return f_.op("Abs", {a}); }
    operand root(const operand& a) const { return f_.op("Sqrt", {a}); }
    /// These use Clip, which onnxruntime computes faster than Max and Min. They need not keep a NaN.
    operand max(const operand& a, double b) const { return f_.op("Clip", {a, c(b)}); }
    operand min(const operand& a, double b) const { return f_.op("Clip", {a, "", c(b)}); }
    operand clip(const operand& a, double lowest, double highest) const { return f_.op("Clip", {a, c(lowest), c(highest)}); }
    /// `yes` must not be -0, of which onnxruntime's Where makes +0; `no` may. The condition must be no Not: the optimizer swaps the two
    /// values.
    operand where(const operand& condition, const operand& yes, const operand& no) const { return f_.op("Where", {condition, yes, no}); }
    operand less(const operand& a, const operand& b) const { return f_.op("Less", {a, b}); }
    operand equal(const operand& a, const operand& b) const { return f_.op("Equal", {a, b}); }
    operand is_nan(const operand& a) const { return f_.op("IsNaN", {a}); }
    operand either(const operand& a, const operand& b) const { return f_.op("Or", {a, b}); }
    operand both(const operand& a, const operand& b) const { return f_.op("And", {a, b}); }
    operand negate(const operand& a) const { return f_.op("Not", {a}); }

    /// Returns `factor` times the largest power of two that is at most |a|; 0 for 0. With u = 2^-p, p bits of precision, and q = (1 / 2u +
    /// 1) a, q - (1 - u) q leaves a's highest bit alone: S. M. Rump, T. Ogita, S. Oishi, Accurate floating-point summation, part I, SIAM J.
    /// Sci. Comput. 31 (2008), algorithm 3.5. The factor, a power of two, is part of q. Requires (1 / 2u + 1) |a| factor to be finite.
    operand power_below(const operand& a, double factor) const {
        if (type_ == data_type::float32) {
            const operand q = mul(a, c((0x1p23 + 1) * factor));
            return abs(sub(q, mul(q, c(1 - 0x1p-24))));
        }
        // Written as q - u q: onnxruntime takes a float64 factor that rounds to 1.0f for 1, and drops the multiplication.
        const operand q = mul(a, c((0x1p52 + 1) * factor));
        return abs(sub(q, sub(q, mul(q, c(0x1p-53)))));
    }

    /// Rounds `t` to a whole number. Zeros keep the sign of `t`.
    operand round(const operand& t, rounding how) const {
        switch (how) {
            case rounding::half_even: return f_.op("Round", {t});
            case rounding::up: return f_.op("Ceil", {t});
            case rounding::down: return f_.op("Floor", {t});
            case rounding::toward_zero: return where(less(c(0), t), f_.op("Floor", {t}), f_.op("Ceil", {t}));
            case rounding::half_up:
            case rounding::half_away: {
                // Ties are where t lies half a unit from its nearest; t - r is exact.
                const operand r = f_.op("Round", {t}), rest = sub(t, r), tie = equal(rest, c(0.5));
                if (how == rounding::half_up) return where(tie, add(r, c(1)), r);
                const operand up = where(both(tie, less(c(0), t)), add(r, c(1)), r);
                return where(both(equal(rest, c(-0.5)), less(t, c(0))), sub(r, c(1)), up);
            }
            case rounding::to_odd: throw error("is rounded to odd, which no standard operator does");
            case rounding::stochastic:
            case rounding::stochastic_b:
            case rounding::stochastic_c: break;
        }
        throw error("is rounded stochastically, which no standard operator does");
    }

    /// Turns -0 into +0.
    operand without_negative_zero(const operand& y) const { return where(equal(y, c(0)), c(0), y); }

    /// Applies the sign rule to a result y that is zero; `quotient` is x over its scale.
    operand with_zero_sign(const operand& y, const operand& quotient, zero_sign rule, rounding how) const {
        switch (rule) {
            case zero_sign::kept: return y;
            case zero_sign::positive: return without_negative_zero(y);
            case zero_sign::underflow_positive:
                if (how != rounding::half_even) return y;
                return where(both(equal(y, c(0)), negate(lost(quotient))), c(0), y);
            case zero_sign::zero_quotient_positive: return where(lost(quotient), c(0), y);
        }
        return y;
    }

    /// These turn a float32 into this type, a float64 into this type, and this type into a float32.
    operand of_single(const operand& x) const { return is_wide() ? f_.cast(x, data_type::float64) : x; }
    operand of_double(const operand& x) const { return is_wide() ? x : f_.cast(x, data_type::float32); }
    operand to_single(const operand& y) const { return is_wide() ? f_.cast(y, data_type::float32) : y; }

    data_type type() const { return type_; }
    bool is_wide() const { return type_ == data_type::float64; }

  private:
    /// Returns whether the quotient, as a float32, is zero or underflowed.
    operand lost(const operand& quotient) const {
        if (type_ == data_type::float32) return equal(quotient, c(0));
        return f_.op("Equal", {f_.cast(quotient, data_type::float32), f_.number(0, data_type::float32)});
    }
    function_builder& f_;
    data_type type_;
};

/// Is true for roundings that make the smallest value count: they tell apart quotients that float32 flushes to zero.
constexpr bool is_directed(rounding how) { return how == rounding::up || how == rounding::down; }

/// Returns whether float32 arithmetic suffices for on_grid and this format: the factor of power_below must not overflow, and the smallest
/// step must lie well above the subnormals.
constexpr bool fits_float32(floating f) { return max_exponent(f) <= 96 && min_exponent(f) - f.mantissa_bits >= -100; }

/// Rounds v to the numbers of f, ties by `how`. What is beyond the largest saturates (`saturate`), or stays beyond it; without a sign, what
/// is below 0 becomes 0. NaN is not handled.
inline operand on_grid(const arithmetic& a, floating f, const operand& v, rounding how, bool saturate = true) {
    const double beyond = saturate ? max_value(f) : 4 * max_value(f);
    const operand inside = a.clip(v, is_signed(f) ? -beyond : 0, beyond);
    const operand step = a.max(a.power_below(inside, power_of_two(-f.mantissa_bits)), power_of_two(min_exponent(f) - f.mantissa_bits));
    const operand count = a.div(inside, step);
    if (f.mantissa_bits > 0 || how != rounding::half_even) return a.mul(a.round(count, how), step);
    // Powers of two: a tie goes to the even code. Codes count exponents, and the root of a power with an even one is a power itself.
    const operand root = a.root(a.mul(step, power_of_two(f.bias % 2 == 0 ? 0 : 1)));
    const operand even = a.equal(a.power_below(root, 1), root), tie = a.equal(a.abs(count), a.c(1.5));
    return a.mul(a.where(a.both(tie, even), a.div(count, a.c(1.5)), a.round(count, how)), step);
}

}  // namespace qk::graph::detail
