// SPDX-License-Identifier: Apache-2.0
// How a device adds products, as a value: template argument and run-time argument alike. docs/reference/numerics.md, "Dot products".
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include "qk/formats/check.hpp"
#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/rounding.hpp"

namespace qk {

// Floating formats of registers that are not storage formats of the catalogue.
inline constexpr floating fp64{11, 52, 1023, specials::ieee};
inline constexpr floating e8m13{8, 13, 127, specials::ieee};  ///< float32 cut to 13 fraction bits: fp8 on Ada Lovelace and Hopper

/// How the terms of a group become one number.
enum class summation : std::uint8_t {
    exact,       ///< added without any error
    aligned,     ///< shifted to the largest exponent, cut to `align` fraction bits, added without further error
    sequential,  ///< one after the other, each sum rounded to `partial`
    pairwise,    ///< neighbours, then neighbours of those sums, each sum rounded to `partial`
    integer,     ///< whole numbers, in a register of `width` bits
};

/// Where the accumulator joins a group.
enum class place : std::uint8_t {
    inside,  ///< it is one more term: the first one where there is an order
    after,   ///< the group is summed by itself and then added
};

/// What results of 2^(largest exponent + 1) and more become.
enum class too_large : std::uint8_t {
    ieee,      ///< Inf, or the largest finite number where the rounding points away from Inf (IEEE 754-2019, 7.4)
    infinity,  ///< Inf, also where the rounding truncates
    saturate,  ///< the largest finite number
};

/// Signs of zeros.
enum class zero_rule : std::uint8_t {
    ieee,               ///< IEEE 754-2019, 6.3: -0 only where every term is -0, or by underflow
    positive_products,  ///< as ieee, but a product that is zero is +0 (a product is an fma with +0)
    exact_positive,     ///< a sum of zero is +0; underflow keeps its sign
    positive,           ///< every zero is +0
};

/// How subnormal operands are read, C included.
enum class input_flush : std::uint8_t {
    none,       ///< as they are
    positive,   ///< they become +0
    kept_sign,  ///< they become zero of their sign (x86's DAZ)
    addend,     ///< C alone becomes zero of its sign: operands are widened first, and are no subnormals of float32 (AMX-FP16)
};

enum class nan_answer : std::uint8_t {
    quiet,     ///< sign 0, the highest mantissa bit
    all_ones,  ///< sign 0, exponent and mantissa all ones (NVIDIA)
};

/// How a sum of integers becomes a code.
enum class requantize_by : std::uint8_t {
    nothing,
    scale,       ///< round(float(sum) * scale), half to even: ONNX Runtime
    gemmlowp,    ///< saturating rounding doubling high multiply, then rounding shift: gemmlowp, TFLite
    multiplier,  ///< one rounding of sum * multiplier * 2^(shift - 31), ties up: TFLite with single rounding
};

/// How the last step of a requantization rounds.
enum class requantize_rounding : std::uint8_t {
    usual,        ///< as its kind does
    down,         ///< bits are dropped from two's complement: a shift without a rounding constant
    toward_zero,  ///< the magnitude is truncated
};

/// code = clamp(round(sum * factor) + zero_point, lowest code, highest code) of `output`.
struct requantization {
    requantize_by by = requantize_by::nothing;
    std::uint32_t scale_bits = 0x3f800000u;  ///< the float32 factor's bits (by == scale)
    std::int32_t multiplier = 1 << 30;       ///< times 2^-31: the factor's significand, in [2^30, 2^31)
    int shift = 1;                           ///< left where above 0: the factor is multiplier * 2^(shift - 31)
    int zero_point = 0;
    integer output = int8;
    requantize_rounding round = requantize_rounding::usual;  ///< by == scale or multiplier
    bool relu = false;                                       ///< the lowest code is that of zero
    bool symmetric = false;                                  ///< the lowest code is minus the highest one
    friend QK_INLINE constexpr bool operator==(const requantization&, const requantization&) = default;
};

/// A unit that multiplies and adds. Terms are products of two operands' elements; "the accumulator" is the register of the sum, C at first.
struct accumulator {
    summation sum = summation::exact;
    int groups = 0;        ///< terms added at once; 0: all
    int lanes = 1;         ///< a group's terms l, l + lanes, ... are summed apart, and then the lanes' sums in the same way
    bool chunked = false;  ///< sequential, pairwise: a lane's terms are neighbours, ceil(terms / lanes) of them
    int bundle = 1;        ///< this many neighbouring products are first added exactly: they are one term
    qk::place place = place::inside;
    // aligned
    int align = 0;                         ///< fraction bits that a term keeps, relative to the largest exponent
    rounding cut = rounding::toward_zero;  ///< how terms are cut: toward_zero, down or to_odd (the lost bits make the last one 1)
    bool lost_is_zero = false;             ///< cut=to_odd: a term that keeps none of its bits is zero
    int join = 0;  ///< place::after: fraction bits that the group's sum keeps when it meets the accumulator; 0: rounded to `partial`
    int join_addend = 24;                ///< likewise: those that the accumulator keeps
    int join_drop = 0;                   ///< likewise: the accumulator is dropped where its exponent is more than this below; 0: never
    rounding join_cut = rounding::down;  ///< how sums are cut that are added to sums: as `cut`
    // sequential, pairwise
    bool fused = true;  ///< a product is not rounded before it is added
    // formats
    floating addend = fp32;   ///< of C
    floating partial = fp32;  ///< of the sum carried from group to group, and of every sum where sums are rounded
    floating result = fp32;   ///< or a format of 3 to 8 bits, with or without NaN: see is_narrow_result
    rounding partial_round = rounding::half_even;
    rounding round = rounding::half_even;  ///< of the result
    int operand_bits = 0;                  ///< operands are truncated to this many fraction bits (tf32: 10); 0: as they are
    bool reverse = false;                  ///< sequential: a group's last term comes first
    input_flush flush_inputs = input_flush::none;
    bool flush_partials = false;    ///< subnormal results of any step become zero of their sign
    bool flush_tiny = false;        ///< tiny ones do: below the smallest normal number if their exponent had no end (IEEE 754-2019, 7.5)
    bool product_overflow = false;  ///< aligned: a product of 2^128 and more is Inf
    /// aligned: a product whose factors' exponents add up to 128 and more is Inf, to -128 and less zero; to a zero nothing is aligned
    bool product_range = false;
    too_large overflow = too_large::ieee;
    zero_rule zero = zero_rule::ieee;
    nan_answer nan = nan_answer::quiet;
    // integer
    int width = 32;         ///< bits of the register, two's complement
    bool saturate = false;  ///< every sum that is carried on saturates; otherwise it wraps
    requantization requantize{};
    friend QK_INLINE constexpr bool operator==(const accumulator&, const accumulator&) = default;
};

/// Return how subnormal operands are read, and how a subnormal C is.
constexpr input_flush flush_of_operands(const accumulator& a) {
    return a.flush_inputs == input_flush::addend ? input_flush::none : a.flush_inputs;
}
constexpr input_flush flush_of_c(const accumulator& a) {
    return a.flush_inputs == input_flush::addend ? input_flush::kept_sign : a.flush_inputs;
}

/// Is true where small results become zero, whichever they are.
constexpr bool flushes_results(const accumulator& a) { return a.flush_partials || a.flush_tiny; }

namespace accumulators {

/// Products and the sum are exact; the result is rounded once.
inline constexpr accumulator exact{};
/// `for (i) sum = fma(a[i], b[i], sum)` in float32.
inline constexpr accumulator sequential_fp32{.sum = summation::sequential};
/// `for (i) sum += a[i] * b[i]` in float32, product and sum rounded.
inline constexpr accumulator loop_fp32{.sum = summation::sequential, .fused = false};
inline constexpr accumulator pairwise_fp32{.sum = summation::pairwise};
inline constexpr accumulator fma_fp64{.sum = summation::sequential, .addend = fp64, .partial = fp64, .result = fp64};
inline constexpr accumulator int32_wrapping{.sum = summation::integer};
inline constexpr accumulator int32_saturating{.sum = summation::integer, .groups = 1, .saturate = true};

}  // namespace accumulators

namespace detail {
inline namespace QK_ISA {

constexpr bool is_register(floating f) {
    return f == fp64 || (f.specials == specials::ieee && f.exponent_bits >= 2 && f.exponent_bits <= 8 && f.mantissa_bits >= 1 &&
                         f.mantissa_bits <= 23 && f.bias == (1 << (f.exponent_bits - 1)) - 1);
}
/// Is true for what a result may be and a register may not: 3 to 8 bits with a sign, subnormals and the usual bias, where all codes are
/// numbers (none), but for one NaN (fn, fnuz).
constexpr bool is_narrow_result(floating f) {
    const bool fnuz = f.specials == specials::fnuz, kind = fnuz || f.specials == specials::fn || f.specials == specials::none;
    return kind && f.is_signed && f.subnormals && f.exponent_bits >= 1 && f.exponent_bits <= 7 && f.mantissa_bits >= 0 && bits(f) >= 3 &&
           bits(f) <= 8 && f.bias == (1 << (f.exponent_bits - 1)) - int{!fnuz};
}
/// Returns the register of partial sums where only the result's format is said.
constexpr floating usual_partial(floating result) { return is_narrow_result(result) ? fp32 : result; }
constexpr message check_register(std::string_view what, floating f) {
    if (is_register(f)) return {};
    return message(what).append(
        " must be fp64, or a float of 2 to 8 exponent and 1 to 23 mantissa bits with Inf and NaN: fp32, tf32, fp16, bf16, e8m13");
}
constexpr message check_result(floating f) {
    if (is_register(f) || is_narrow_result(f)) return {};
    return "result must be fp64, a float of 2 to 8 exponent and 1 to 23 mantissa bits with Inf and NaN (fp32, tf32, fp16, bf16, e8m13), or "
           "one of 3 to 8 bits: fp8_e4m3fn, fp6_e2m3, fp4_e2m1, or eXmY with fn, fnuz or finite behind it";
}
/// Sets the fields that mean nothing for this kind of sum to their defaults.
constexpr accumulator meaningful(accumulator a) {
    const accumulator usual{};
    const bool wholes = a.sum == summation::integer, aligned = a.sum == summation::aligned, exact = a.sum == summation::exact;
    const bool sequential = a.sum == summation::sequential, rounded = sequential || a.sum == summation::pairwise;
    if (!aligned) a.align = usual.align, a.cut = usual.cut, a.product_overflow = a.product_range = false, a.join = 0;
    if (a.cut != rounding::to_odd) a.lost_is_zero = false;
    if (a.flush_tiny) a.flush_partials = false;
    if (exact || wholes) a.lanes = a.bundle = 1;
    if (is_narrow_result(a.result)) a.nan = usual.nan;
    if (!sequential) a.fused = usual.fused, a.reverse = false;
    if (!rounded || a.lanes == 1) a.chunked = false;
    if (sequential && a.place == place::inside && a.lanes == 1 && !a.reverse && a.groups >= 0) a.groups = usual.groups;
    if (a.join == 0) a.join_addend = usual.join_addend, a.join_drop = usual.join_drop;
    if (!aligned || (a.join == 0 && a.lanes == 1)) a.join_cut = usual.join_cut;
    if (wholes) {
        accumulator kept{.sum = a.sum, .groups = a.groups, .place = a.place};
        kept.width = a.width, kept.saturate = a.saturate, kept.requantize = a.requantize;
        a = kept;
    } else {
        a.width = usual.width, a.saturate = false, a.requantize = {};
    }
    const requantize_by by = a.requantize.by;
    if (by == requantize_by::nothing) a.requantize = {};
    if (by != requantize_by::scale) a.requantize.scale_bits = usual.requantize.scale_bits;
    if (by == requantize_by::scale) a.requantize.multiplier = usual.requantize.multiplier, a.requantize.shift = usual.requantize.shift;
    if (by == requantize_by::gemmlowp) a.requantize.round = requantize_rounding::usual;
    if (a.requantize.relu) a.requantize.symmetric = false;
    return a;
}
/// Names the first field that means nothing for this kind of sum and is not at its default.
constexpr message check_meaning(const accumulator& a) {
    const accumulator m = meaningful(a);
    if (m == a) return {};
    const requantization &q = a.requantize, &r = m.requantize;
    const std::pair<bool, std::string_view> changed[] = {
        {a.align != m.align, "align needs sum=aligned"},
        {a.cut != m.cut, "cut needs sum=aligned"},
        {a.lost_is_zero != m.lost_is_zero, "lost-is-zero needs sum=aligned and cut=to-odd"},
        {a.product_overflow != m.product_overflow, "product-overflow needs sum=aligned"},
        {a.product_range != m.product_range, "product-range needs sum=aligned"},
        {a.flush_partials != m.flush_partials && a.flush_tiny, "flush-tiny says more than flush-partials; give one of them"},
        {a.lanes != m.lanes, "lanes need sum=aligned, sequential or pairwise"},
        {a.bundle != m.bundle, "bundle needs sum=aligned, sequential or pairwise"},
        {a.join != m.join, "join needs sum=aligned"},
        {a.fused != m.fused, "fused needs sum=sequential; in pairs every product is rounded"},
        {a.reverse != m.reverse, "reverse needs sum=sequential"},
        {a.groups != m.groups, "groups of a sequential sum need place=after, lanes or reverse: its terms are added one by one"},
        {!(a.sum == summation::integer) && a.nan != m.nan, "nan needs a result with Inf and NaN: this format has one NaN or none"},
        {a.chunked != m.chunked, "chunked needs lanes and sum=sequential or sum=pairwise"},
        {a.join_addend != m.join_addend, "join-addend needs join"},
        {a.join_drop != m.join_drop, "join-drop needs join"},
        {a.join_cut != m.join_cut, "join-cut needs sum=aligned with lanes or join"},
        {a.width != m.width, "width needs sum=integer"},
        {a.saturate != m.saturate, "saturate needs sum=integer; overflow=saturate is of floating sums"},
        {q.by != r.by, "requantize needs sum=integer"},
        {q.scale_bits != r.scale_bits, "scale needs requantize=scale"},
        {q.multiplier != r.multiplier, "multiplier needs requantize=multiplier or gemmlowp"},
        {q.shift != r.shift, "shift needs requantize=multiplier or gemmlowp"},
        {q.zero_point != r.zero_point, "zero-point needs requantize"},
        {q.output != r.output, "output needs requantize"},
        {q.round != r.round, "requantize-round needs requantize=scale or multiplier"},
        {q.relu != r.relu, "relu needs requantize"},
        {q.symmetric != r.symmetric, q.relu ? "symmetric means nothing with relu" : "symmetric needs requantize"}};
    for (const auto& [here, sentence] : changed) {
        if (here) return sentence;
    }
    return "c, partial, result, round, partial-round, operands, flush-inputs, flush-partials, flush-tiny, overflow, zero and nan are of "
           "floating sums";
}
constexpr message check_cut(std::string_view what, rounding r) {
    if (r == rounding::toward_zero || r == rounding::down || r == rounding::to_odd) return {};
    return message(what).append(" must be toward-zero, down or to-odd");
}
constexpr message check_fused(const accumulator& a) {
    const message ranges = first_of({in_range("align", a.align, a.sum == summation::aligned ? 1 : 0, 60), in_range("join", a.join, 0, 60),
                                     in_range("join-addend", a.join_addend, 1, 60), in_range("join-drop", a.join_drop, 0, 1000),
                                     check_cut("cut", a.cut), check_cut("join-cut", a.join_cut)});
    if (!ranges.empty()) return ranges;
    if (a.partial == fp64 || a.result == fp64 || a.addend == fp64) return "fp64 needs sum=sequential or sum=pairwise";
    if (a.sum == summation::exact && (a.lanes != 1 || a.join != 0)) return "lanes and join are no question where the sum is exact";
    if (a.lanes > 1 && a.place == place::inside) return "lanes need place=after: the accumulator is in no lane";
    if (a.join > 0 && a.place == place::inside) return "join needs place=after";
    if (a.reverse) return "reverse needs sum=sequential";
    if (a.product_range && a.bundle != 1) return "product-range needs bundle=1: it is a question of each product";
    if (a.zero == zero_rule::positive_products) return "zero=positive-products needs sum=sequential or sum=pairwise";
    return {};
}
constexpr message check_rounded(const accumulator& a) {
    if (a.lanes > 1 && a.place == place::inside) return "lanes need place=after: the accumulator is in no lane";
    if (a.align != 0 || a.join != 0) return "align and join need sum=aligned";
    if (a.product_overflow) return "product-overflow needs sum=aligned";
    if (a.reverse && (a.sum != summation::sequential || a.lanes != 1 || a.groups == 0 || a.groups > 256))
        return "reverse needs sum=sequential, groups of 1 to 256 terms and one lane";
    const bool doubles = a.partial == fp64;
    if (doubles != (a.result == fp64) || doubles != (a.addend == fp64)) return "with fp64, c, partial and result must all be fp64";
    if (doubles &&
        (!a.fused || a.bundle != 1 || a.round != rounding::half_even || a.partial_round != rounding::half_even ||
         a.flush_inputs != input_flush::none || flushes_results(a) || a.reverse || a.sum != summation::sequential || a.lanes != 1 ||
         a.place != place::inside || a.overflow != too_large::ieee || a.operand_bits != 0 || a.zero != zero_rule::ieee)) {
        return "fp64 is added by fma, one after the other, half-even";
    }
    return {};
}
constexpr message check_integer(const accumulator& a) {
    const message ranges =
        first_of({in_range("width", a.width, 2, 64), in_range("shift", a.requantize.shift, -31, 30), check(a.requantize.output)});
    if (!ranges.empty()) return ranges;
    if (a.lanes != 1 || a.bundle != 1 || a.align != 0 || a.join != 0) return "lanes, bundle, align and join are of floating sums";
    if (a.requantize.by == requantize_by::gemmlowp && a.width > 32) return "requantize=gemmlowp needs a width of at most 32";
    if (a.requantize.symmetric && !a.requantize.output.is_signed) return "symmetric needs an output with a sign";
    if (a.requantize.relu && (a.requantize.zero_point < qmin(a.requantize.output) || a.requantize.zero_point > qmax(a.requantize.output)))
        return "relu needs a zero point among the codes of the output";
    if (a.requantize.by != requantize_by::nothing && a.requantize.multiplier < 0) return "multiplier must not be negative";
    if (a.requantize.by == requantize_by::multiplier && a.width > 32) return "requantize=multiplier needs a width of at most 32";
    const float scale = std::bit_cast<float>(a.requantize.scale_bits);
    if (a.requantize.by == requantize_by::scale && !(scale > 0 && scale <= 0x1.fffffep127f)) return "scale must be a finite number above 0";
    return {};
}

}  // namespace QK_ISA
}  // namespace detail

/// What a register may be, what a result may be beside that, and the register of partial sums where only the result is said.
using detail::is_register, detail::is_narrow_result, detail::usual_partial;
/// meaningful(a): a with the fields at their defaults that mean nothing for its kind of sum.
using detail::meaningful;

inline namespace QK_ISA {

/// Returns a sentence that says why the accumulator cannot be computed, empty if it can.
constexpr message check(const accumulator& a) {
    const message common = detail::first_of({detail::in_range("groups", a.groups, 0, detail::largest_block),
                                             detail::in_range("lanes", a.lanes, 1, 64), detail::in_range("bundle", a.bundle, 1, 64),
                                             detail::in_range("operands", a.operand_bits, 0, 23), detail::check_register("c", a.addend),
                                             detail::check_result(a.result), detail::check_register("partial", a.partial)});
    if (!common.empty()) return common;
    if (a.groups % a.bundle != 0) return "groups must be a multiple of bundle";
    if (is_stochastic(a.round) || is_stochastic(a.partial_round)) return "round=stochastic is not for accumulators";
    message own;
    switch (a.sum) {
        case summation::exact:
        case summation::aligned: own = detail::check_fused(a); break;
        case summation::sequential:
        case summation::pairwise: own = detail::check_rounded(a); break;
        case summation::integer: own = detail::check_integer(a); break;
    }
    return own.empty() ? detail::check_meaning(a) : own;
}

}  // namespace QK_ISA

}  // namespace qk
