// SPDX-License-Identifier: Apache-2.0
// The fast forms of integers, and which of them applies (steps/fast.hpp says why they are exact).
#pragma once

#include <concepts>

#include "qk/formats/floating/fast.hpp"
#include "qk/formats/integer/step.hpp"
#include "qk/isa.hpp"
#include "qk/steps/counting.hpp"
#include "qk/steps/fast.hpp"
#include "qk/steps/scale_table.hpp"

namespace qk::kernels {
inline namespace QK_ISA {

/// The half-even form of integers of up to 20 bits: adding 1.5 * 2^23 rounds the quotient, which the tile test bounds. The bits of the sum
/// are its integer plus a constant, so the sum is clamped as an integer: a processor does more of that at a time than of floats.
template <class Arch>
struct fast_integer {
    static constexpr float middle = 0x1.8p23f;

    bool multiply;
    std::int32_t least_scale;  ///< least scale covered, as bits: loops over scales have this one condition, so compilers vectorise them

    explicit fast_integer(const integer_rules& r) noexcept
        : multiply(r.multiply), least_scale(r.flush_below == 0 && r.least_input == 0 && !r.zero_before ? min_normal_bits : INT32_MAX) {}

    /// Returns the largest magnitude that the form covers under a scale and these limits of the rounded quotient; no_value if none.
    QK_INLINE std::int32_t limit_of(float s, float lowest, float highest) const noexcept {
        // A subnormal scale has an infinite reciprocal, and 0 times that would be NaN. 2^21 times the scale must be finite.
        const auto bits = std::bit_cast<std::int32_t>(s);
        if (lowest < -0x1p21f || highest > 0x1p21f || bits < least_scale || bits >= infinity_bits - (22 << 23)) return no_value;
        return bits + (21 << 23);  // larger elements are far beyond the codes
    }
    /// Returns the same for rounded_integer's wide limits, which a quotient of this magnitude (2^40) always exceeds.
    QK_INLINE std::int32_t wide_limit_of(float s) const noexcept {
        const auto bits = std::bit_cast<std::int32_t>(s);
        return bits < least_scale || bits >= infinity_bits - (41 << 23) ? no_value : bits + (40 << 23);
    }
    /// Returns a limit of the rounded quotient as the bits that fast_scale holds.
    static QK_INLINE std::int32_t sum_of(float bound) noexcept { return std::bit_cast<std::int32_t>(bound + middle); }
    template <bool>
    QK_INLINE vf<Arch> prepare(vf<Arch> x, const fast_scale<Arch>&) const noexcept {
        return x;
    }
    /// Returns the bits of `middle` plus the clamped integer.
    template <bool Multiply>
    QK_INLINE vi<Arch> sum(vf<Arch> x, const fast_scale<Arch>& by) const noexcept {
        return clamped(Multiply ? opaque<Arch>(x * by.high) : quotient<Arch>(x, by.scale), by);
    }
    QK_INLINE vi<Arch> clamped(vf<Arch> t, const fast_scale<Arch>& by) const noexcept {
        return min(max(as_int<Arch>(t + vf<Arch>(middle)), by.lowest), by.highest);
    }
    template <bool Multiply>
    QK_INLINE vf<Arch> finish(vf<Arch> x, std::size_t, const fast_scale<Arch>& by) const noexcept {
        return value(sum<Multiply>(x, by), by);
    }
    QK_INLINE vf<Arch> value(vi<Arch> sum, const fast_scale<Arch>& by) const noexcept {
        return (as_float<Arch>(sum) - vf<Arch>(middle)) * by.scale;  // never -0: half-even gives x - x = +0
    }
};

/// fast_integer without a division, for scales with has_fast_quotient().
template <class Arch>
struct integer_by_product {
    fast_integer<Arch> fast;

    template <bool>
    QK_INLINE vf<Arch> prepare(vf<Arch> x, const fast_scale<Arch>&) const noexcept {
        return x;
    }
    template <bool>
    QK_INLINE vf<Arch> finish(vf<Arch> x, std::size_t, const fast_scale<Arch>& by) const noexcept {
        return fast.value(fast.clamped(fast_quotient<Arch>(x, {by.high, by.low}), by), by);
    }
};

/// Returns what is rounded to an integer: the quotient or, where the semantics says so (seldom), the product by the reciprocal.
template <class Arch>
QK_INLINE vf<Arch> ratio(const fast_integer<Arch>& q, vf<Arch> x, const fast_scale<Arch>& by) noexcept {
    return __builtin_expect(q.multiply, 0) ? opaque<Arch>(x * by.high) : quotient<Arch>(x, by.scale);
}

/// The form of integers. Products need no flush: results times a scale above 2^-60 are normal numbers.
template <class Arch>
struct rounded_integer {
    fast_integer<Arch> fast;
    fast_rounding<Arch> rounds;
    fast_flush flush;
    bool zero_before;  ///< the zero point is added before rounding
    bool wide;         ///< the limits are floats, and not the bits of fast's sums
    vi<Arch> lowest;   ///< fast_scale's `lowest` for the zero point 0

    rounded_integer(const fast_integer<Arch>& q, const integer_rules& r, bool has_wide_limits) noexcept
        : fast(q),
          rounds(r.how, r.random),
          flush(r.least_input, 0),
          zero_before(r.zero_before && !has_wide_limits),
          wide(has_wide_limits),
          lowest(zero_before ? q.sum_of(static_cast<float>(r.lowest)) : 0) {}

    template <bool>
    QK_INLINE vf<Arch> prepare(vf<Arch> x, const fast_scale<Arch>&) const noexcept {
        return flush.input<Arch>(x);
    }
    template <bool>
    QK_INLINE vf<Arch> finish(vf<Arch> x, std::size_t i, const fast_scale<Arch>& by) const noexcept {
        using V = vi<Arch>;
        V t = as_int<Arch>(ratio<Arch>(fast, x, by));
        vf<Arch> zero(0.0f);
        if (zero_before) {
            zero = to_float<Arch>(lowest - by.lowest);
            t = as_int<Arch>(as_float<Arch>(t) + zero);
        }
        const vf<Arch> k = rounds.count(as_float<Arch>(t & V(magnitude_bits)), vf<Arch>(1.0f), t, rounds.words(i));
        const vf<Arch> from(wide ? 0.0f : fast_integer<Arch>::middle), low = as_float<Arch>(by.lowest) - from,
                                                                       high = as_float<Arch>(by.highest) - from;
        vf<Arch> n = as_float<Arch>(as_int<Arch>(k) | (t & V(sign_bit)));
        if (zero_before) n = n - zero;
        return (clamp<Arch>(n, low, high) + vf<Arch>(0.0f)) * by.scale;
    }
};

/// The form of integers for random words, in integer arithmetic: limits are not wide, and zero points are added after rounding.
template <class Arch>
struct integer_by_words {
    fast_integer<Arch> fast;
    fast_rounding<Arch> rounds;
    fast_flush flush;

    integer_by_words(const fast_integer<Arch>& q, const integer_rules& r) noexcept
        : fast(q), rounds(r.how, r.random), flush(r.least_input, 0) {}

    template <bool>
    QK_INLINE vf<Arch> prepare(vf<Arch> x, const fast_scale<Arch>&) const noexcept {
        return flush.input<Arch>(x);
    }
    template <bool>
    QK_INLINE vf<Arch> finish(vf<Arch> x, std::size_t i, const fast_scale<Arch>& by) const noexcept {
        const vf<Arch> t = ratio<Arch>(fast, x, by);
        const vi<Arch> middle(std::bit_cast<std::int32_t>(fast_integer<Arch>::middle)), n = rounds.by_words(t, rounds.made_words(i));
        return to_float(min(max(n, by.lowest - middle), by.highest - middle)) * by.scale;
    }
};

constexpr floating_kind kind_of(integer) { return floating_kind::any; }

/// What the rows (or columns) of an array have in common, as floating_rows.
template <class Arch>
struct integer_rows {
    static constexpr bool rounds_apart = true;  ///< columns: the forms of other roundings would crowd out the half-even one
    integer_rules rules;
    fast_integer<Arch> fast;
    bool wide;  ///< more codes than fast's sums hold
    bool flushes, other_rounding, usable, streaming;
    int tie_bits;  ///< significant bits of a tie between two codes less the zero point; 0: divide

    integer_rows(integer f, const semantics& how, bool one_scale, bool stream_rows) noexcept
        : rules(rules_of(f, how, one_scale)),
          fast(without_flush(rules)),
          wide(f.bits > 20),
          flushes(kernels::flushes(rules)),
          other_rounding(rules.how != rounding::half_even || rules.random.used || rules.zero_before || wide),
          usable(default_environment<Arch>() && is_counted(rules.how, rules.random) && !(other_rounding && is_baseline<Arch>)),
          streaming(stream_rows),
          tie_bits(f.bits < 20 && !fast.multiply ? f.bits + 1 : 0) {
        if (flushes) fast.least_scale = std::bit_cast<std::int32_t>(0x1p-60f) + 1;
    }

    template <std::size_t Size>
    void fill(scale_table<Arch, Size>& t, const float* scale, const std::int64_t* zero, std::size_t count, bool worth) const noexcept {
        if (wide) return fill_wide(t, scale, zero, count);
        for (std::size_t k = 0; k < count; ++k) {  // which compilers vectorise
            const auto lowest = static_cast<float>(rules.lowest - (zero == nullptr ? 0 : zero[k])),
                       highest = static_cast<float>(rules.highest - (zero == nullptr ? 0 : zero[k]));
            t.scale[k] = scale[k];
            t.limit[k] = fast.limit_of(scale[k], lowest, highest);
            t.lowest[k] = fast.sum_of(lowest);
            t.highest[k] = fast.sum_of(highest);
        }
        t.finish(count, worth && !other_rounding ? tie_bits : 0, fast.multiply);
    }
    template <std::size_t Size>
    QK_APART void fill_wide(scale_table<Arch, Size>& t, const float* scale, const std::int64_t* zero, std::size_t count) const noexcept {
        for (std::size_t k = 0; k < count; ++k) {
            const std::int64_t z = zero == nullptr ? 0 : zero[k];
            const bool is_served = !(rules.zero_before && z != 0);
            t.scale[k] = scale[k];
            t.limit[k] = is_served ? fast.wide_limit_of(scale[k]) : no_value;
            t.lowest[k] = std::bit_cast<std::int32_t>(static_cast<float>(rules.lowest - z));
            t.highest[k] = std::bit_cast<std::int32_t>(static_cast<float>(rules.highest - z));
        }
        t.finish(count, 0, fast.multiply);
    }
    template <std::size_t Size>
    integer_step<Arch> step(const scale_table<Arch, Size>& t, std::size_t k, const std::int64_t* zero) const noexcept {
        return {rules, t.scale[k], zero == nullptr ? 0 : zero[k]};
    }
    template <std::size_t Size>
    integer_step<Arch> step_across(const scale_table<Arch, Size>& t, std::size_t i, std::size_t count,
                                   const std::int64_t* zero) const noexcept {
        return {rules, load<Arch>(t.scale + i), zero == nullptr ? nullptr : zero + i, count};
    }

    /// Calls call(form, does it multiply by the reciprocal) with the fast form that applies.
    template <class Scaled, class Call>
    void with_form(Scaled, bool product, const Call& call) const noexcept {
        if constexpr (!is_baseline<Arch>) {
            if (rules.random.used && !rules.zero_before && !wide) return call(integer_by_words<Arch>(fast, rules), std::false_type());
            if (other_rounding) return call(rounded_integer<Arch>(fast, rules, wide), std::false_type());
        }
        if constexpr (has_fused<Arch>()) {
            if (product) return call(integer_by_product<Arch>{fast}, std::false_type());
        }
        fast.multiply ? call(fast, std::true_type()) : call(fast, std::false_type());
    }
};

template <class Arch, floating_kind = floating_kind::any>
integer_rows<Arch> rows_of(integer f, const semantics& how, bool one_scale, bool stream_rows) noexcept {
    return {f, how, one_scale, stream_rows};
}

constexpr bool is_identity(integer, const semantics&) { return false; }

}  // namespace QK_ISA
}  // namespace qk::kernels
