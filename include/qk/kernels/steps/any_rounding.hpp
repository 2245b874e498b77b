// SPDX-License-Identifier: Apache-2.0
// The fast forms for roundings other than half-even, and for the signs of zero that only named systems have. An element is counted in steps
// of its grid, which is exact, and the fraction of the count decides which way it goes.
#pragma once

#include "qk/kernels/rounding/counting.hpp"
#include "qk/kernels/steps/fast_blocks.hpp"

namespace qk::kernels {

/// Flushes subnormals in front of a form's rounding and behind it; does nothing where the semantics keeps them.
struct fast_flush {
    std::int32_t least_input, least_result;

    explicit fast_flush(std::int32_t input, std::int32_t result) noexcept : least_input(input), least_result(result) {}
    template <class Arch>
    QK_INLINE vf<Arch> input(vf<Arch> x) const noexcept {
        return __builtin_expect(least_input != 0, 0) ? flushed<Arch>(x, least_input) : x;
    }
    template <class Arch>
    QK_INLINE vi<Arch> magnitude(vi<Arch> a) const noexcept {
        return least_result != 0 ? select(a < vi<Arch>(least_result), vi<Arch>(0), a) : a;
    }
    /// Flushes a product by the scale.
    template <class Arch>
    QK_INLINE vf<Arch> product(vf<Arch> y) const noexcept {
        return least_result != 0 ? flushed<Arch>(y, min_normal_bits) : y;
    }
};

/// The form of floating formats. Products need no flush: results above 2^-60, as those that are not flushed are, times a scale above 2^-60
/// are normal numbers.
template <class Arch>
struct rounded_floating {
    fast_floating<Arch> fast;
    fast_rounding<Arch> rounds;
    fast_flush flush;
    int mantissa_bits;
    bool lone_zero;  ///< the format has no -0

    rounded_floating(const fast_floating<Arch>& q, const floating_rules& r) noexcept
        : fast(q),
          rounds(r.how, r.random),
          flush(r.least_input, r.flush_below),
          mantissa_bits(r.mantissa_bits),
          lone_zero(r.zero_signs == 0) {}

    template <bool Scaled>
    QK_INLINE vf<Arch> prepare(vf<Arch> x, const fast_scale<Arch>& by) const noexcept {
        return flush.input<Arch>(fast.template prepare<Scaled>(flush.input<Arch>(x), by));
    }
    template <bool Scaled>
    QK_INLINE vf<Arch> finish(vf<Arch> x, std::size_t i, const fast_scale<Arch>& by) const noexcept {
        using V = vi<Arch>;
        const V u = as_int<Arch>(x), m(mantissa_bits << 23);
        const V c = max(u & V(exponent_mask), fast.least);
        const vf<Arch> k = rounds.count(as_float<Arch>(u & V(magnitude_bits)), as_float<Arch>(V(254 << 23) + m - c), u, rounds.words(i));
        const V r = flush.magnitude<Arch>(as_int<Arch>(min(k * as_float<Arch>(c - m), fast.largest)));
        const vf<Arch> y = as_float<Arch>(r | (lone_zero ? select(r == V(0), V(0), u & V(sign_bit)) : u & V(sign_bit)));
        return multiplied<Scaled>(y, by);
    }
};

/// The form of formats with float32's exponents: rounding up carries through the bits, into the exponent and to Inf.
template <class Arch>
struct rounded_truncation {
    fast_truncation<Arch> fast;
    fast_rounding<Arch> rounds;
    fast_flush flush;
    vi<Arch> above, below;  ///< what is added to positive elements, to negative ones

    rounded_truncation(const fast_floating<Arch>& q, const floating_rules& r) noexcept
        : fast(q), rounds(r.how, r.random), flush(r.least_input, r.flush_below) {
        // all - from, added to the bits, carries where the fraction is at least `from`.
        const std::int32_t all = 1 << q.shift, half = all / 2;
        const auto from = upward<std::int32_t>::of(r.how, half, half + 1, 1, all);
        above = vi<Arch>(all - from.above);
        below = vi<Arch>(all - from.below);
    }

    template <bool Scaled>
    QK_INLINE vf<Arch> prepare(vf<Arch> x, const fast_scale<Arch>& by) const noexcept {
        return flush.input<Arch>(fast.template prepare<Scaled>(flush.input<Arch>(x), by));
    }
    template <bool Scaled>
    QK_INLINE vf<Arch> finish(vf<Arch> x, std::size_t i, const fast_scale<Arch>& by) const noexcept {
        using V = vi<Arch>;
        if (rounds.how == rounding::half_even) {  // comes here only where subnormals are flushed
            const vf<Arch> y = flush.product<Arch>(fast.template finish<false>(x, i, by));
            return Scaled ? flush.product<Arch>(y * by.scale) : y;
        }
        const V u = as_int<Arch>(x);
        // fraction + word >= 2^32 means fraction + (the word's upper bits) >= one step: the fraction has no more bits than that.
        const V more =
            rounds.random.used ? as_int<Arch>(as_unsigned<Arch>(rounds.words(i)) >> (32 - fast.shift)) : select(u < V(0), below, above);
        const vf<Arch> y = flush.product<Arch>(as_float<Arch>((u + more) & fast.kept));
        return flush.product<Arch>(multiplied<Scaled>(y, by));
    }
};

/// The form of e8m0 for normal numbers up to 2^127: the power of two above is in the format as well as the one below.
template <class Arch>
struct rounded_power {
    static constexpr bool declines_zero = true;
    static constexpr std::int32_t limit = (0x7f000000 - min_normal_bits) ^ sign_bit;
    fast_rounding<Arch> rounds;
    fast_flush flush;
    vi<Arch> more, nan;

    explicit rounded_power(const floating_rules& r) noexcept
        : rounds(r.how, r.random),
          flush(r.least_input, r.flush_below),
          more(r.how == rounding::half_away ? half_bit
               : r.how == rounding::up      ? 0x7fffff
                                            : 0),
          nan(r.nan) {}

    QK_INLINE vi<Arch> tested(vf<Arch> x) const noexcept {
        return ((as_int<Arch>(x) & vi<Arch>(magnitude_bits)) - vi<Arch>(min_normal_bits)) ^ vi<Arch>(sign_bit);
    }
    template <bool Scaled>
    QK_INLINE vf<Arch> prepare(vf<Arch> x, const fast_scale<Arch>& by) const noexcept {
        return divided<Scaled>(flush.input<Arch>(x), by);
    }
    template <bool Scaled>
    QK_INLINE vf<Arch> finish(vf<Arch> x, std::size_t i, const fast_scale<Arch>& by) const noexcept {
        using V = vi<Arch>;
        const V u = as_int<Arch>(x);
        // The fraction has 23 bits; the upper 23 bits of a word, added to it, carry.
        const V add = rounds.random.used ? as_int<Arch>(as_unsigned<Arch>(rounds.words(i)) >> 9) : more;
        const vf<Arch> y = as_float<Arch>(select(u < V(0), nan, (u + add) & V(exponent_mask)));
        return flush.product<Arch>(multiplied<Scaled>(y, by));
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

/// The signs of results whose magnitude is zero.
template <class Arch>
struct signs_of_zeros {
    bool kept;
    vi<Arch> lost, other;  ///< the bits of a sign that stay: where the float32 quotient by the scale is zero, and elsewhere

    explicit signs_of_zeros(zero_sign rule) noexcept
        : kept(rule == zero_sign::kept),
          lost(rule == zero_sign::underflow_positive ? -1 : 0),
          other(rule == zero_sign::zero_quotient_positive ? -1 : 0) {}
    /// Returns the signs of results of `steps` steps, where those of the inputs are `sign`. is_lost() tells where the quotient is zero.
    template <class Steps, class Lost>
    QK_INLINE vi<Arch> of(vi<Arch> sign, Steps steps, const Lost& is_lost) const noexcept {
        using V = vi<Arch>;
        if (kept) return sign;
        const V zero = sign & select(is_lost(), lost, other);
        return select(V(__builtin_bit_cast(typename V::register_type, steps.data)) == V(0), zero, sign);
    }
};

/// An element as a rounded number of steps, not yet clamped to the range. `binade` is the one whose step it has, `sign` the result's sign
/// bit.
template <class Arch, bool Integers = false>
struct counted {
    std::conditional_t<Integers, vi<Arch>, vf<Arch>> steps;
    vi<Arch> binade, sign;
};

/// The form of block formats other than nvfloat. `fast` computes what blocks share.
template <class Arch>
struct rounded_block {
    fast_block<Arch> fast;
    fast_rounding<Arch> rounds;
    block_rules rules;
    signs_of_zeros<Arch> zeros;
    bool uses_lowest = false;  ///< two's complement: negative elements go one step further
    vi<Arch> further{0};       ///< from the limit of positive elements to that of negative ones
    vi<Arch> step_below;       ///< from the exponent of a binade to that of its step
    vi<Arch> per_step_over;    ///< less the exponent of a binade: that of one over its step
    vi<Arch> per_scale_over;   ///< less the base of a block: the exponent of one over its scale
    bool half_even;            ///< value() rounds by a sum, as the other fast forms do
    vi<Arch> to_many;          ///< from a binade to 2^23 of its steps, the number by whose sum it is rounded

    template <class Step>
    explicit rounded_block(const Step& s) noexcept
        : fast(s, true), rounds(s.rules.how, s.rules.random), rules(s.rules), zeros(s.rules.zero) {
        if constexpr (requires { s.largest_negative; }) uses_lowest = s.largest_negative != s.largest;
        if (fast.usable()) fast.raise_lowest();
        using V = vi<Arch>;
        fast.to_base = fast.to_base & V(~half_bit);  // the base is not added here: it is the binade of elements with one step
        step_below = V((fast.grid ? fast.mantissa_bits : 23) << 23);
        if (uses_lowest) further = V(1 << 23) - (fast.to_limit & V(0x7fffff));
        per_step_over = V(254 << 23) + step_below;
        per_scale_over = V(254 << 23) - fast.scale_from_base;
        half_even = s.rules.how == rounding::half_even && !s.rules.random.used;
        to_many = V(23 << 23) - step_below;
    }

    /// Counts an element in steps and rounds the count. Where a block has one step, its base lies above every element, and is the binade of
    /// them all. `OneStep`: blocks are known to have one step; `Signless`: nothing depends on the sign of a zero; `Integers`: the count is
    /// an integer.
    template <bool OneStep = false, bool Signless = false, bool Integers = false>
    QK_INLINE counted<Arch, Integers> count(std::size_t i, vf<Arch> x, const block_shared<Arch>& b) const noexcept {
        using V = vi<Arch>;
        const V u = as_int<Arch>(x), binade = binade_of<OneStep>(u, b), a = magnitude(u);
        const auto k = rounds.template count<Integers>(as_float<Arch>(a), as_float<Arch>(per_step_over - binade), u, rounds.words(i));
        return {k, binade, Signless ? u & V(sign_bit) : sign(u, a, k, b)};
    }
    template <bool OneStep = false>
    QK_INLINE vf<Arch> value(std::size_t i, vf<Arch> x, const block_shared<Arch>& b) const noexcept {
        using V = vi<Arch>;
        const V u = as_int<Arch>(x), limit = as_int<Arch>(b.largest) + (further & (u >> 31));
        if (half_even) {
            const V a = magnitude(u);
            const vf<Arch> many = as_float<Arch>(binade_of<OneStep>(u, b) + to_many), v = (as_float<Arch>(a) + many) - many;
            return as_float<Arch>(as_int<Arch>(min(v, as_float<Arch>(limit))) | sign(u, a, v, b));
        }
        const counted<Arch> c = count<OneStep>(i, x, b);
        return as_float<Arch>(as_int<Arch>(min(c.steps * as_float<Arch>(c.binade - step_below), as_float<Arch>(limit))) | c.sign);
    }

  private:
    template <bool OneStep>
    static QK_INLINE vi<Arch> binade_of(vi<Arch> u, const block_shared<Arch>& b) noexcept {
        return OneStep ? as_int<Arch>(b.base) : max(u & vi<Arch>(exponent_mask), as_int<Arch>(b.base));
    }
    QK_INLINE vi<Arch> magnitude(vi<Arch> u) const noexcept {
        const vi<Arch> a = u & vi<Arch>(magnitude_bits);
        return rules.least_input != 0 ? select(a < vi<Arch>(rules.least_input), vi<Arch>(0), a) : a;
    }
    /// Returns the sign of an element with the magnitude `a` that is rounded to `to`, of which only 0 matters.
    template <class Rounded>
    QK_INLINE vi<Arch> sign(vi<Arch> u, vi<Arch> a, Rounded to, const block_shared<Arch>& b) const noexcept {
        return zeros.of(u & vi<Arch>(sign_bit), to, [&] {  // for block float the scale is the step
            return as_int<Arch>(as_float<Arch>(a) * as_float<Arch>(per_scale_over - as_int<Arch>(b.base))) == vi<Arch>(0);
        });
    }
};

/// The form of nvfloat.
template <class Arch>
struct rounded_nvfloat {
    static constexpr bool uses_lowest = false;
    fast_nvfloat<Arch, false> fast;
    int mantissa_bits;
    fast_rounding<Arch> rounds;
    signs_of_zeros<Arch> zeros;
    fast_flush flush;

    explicit rounded_nvfloat(const nvfloat_step<Arch>& s) noexcept
        : fast(s, true),
          mantissa_bits(s.element.mantissa_bits),
          rounds(s.rules.how, s.rules.random),
          zeros(s.rules.zero),
          flush(s.rules.least_input, 0) {}

    template <bool = false, bool = false, bool Integers = false>
    QK_INLINE counted<Arch, Integers> count(std::size_t i, vf<Arch> x, const nvfloat_shared<Arch, false>& b) const noexcept {
        using V = vi<Arch>;
        const V q = as_int<Arch>(clamp_magnitude<Arch>(quotient<Arch>(flush.input<Arch>(x), b.scale), fast.largest)), u = as_int<Arch>(x),
                m(mantissa_bits << 23);
        const V c = max(q & V(exponent_mask), fast.least), a = q & V(magnitude_bits);
        const auto k = rounds.template count<Integers>(as_float<Arch>(a), as_float<Arch>(V(254 << 23) + m - c), u, rounds.words(i));
        V sign = u & as_int<Arch>(b.kept_sign);
        sign = zeros.of(sign, k, [&] { return a == V(0); });
        return {k, c, sign};
    }
    template <bool = false>
    QK_INLINE vf<Arch> value(std::size_t i, vf<Arch> x, const nvfloat_shared<Arch, false>& b) const noexcept {
        const counted<Arch> c = count(i, x, b);
        const vf<Arch> size = as_float<Arch>(c.binade - vi<Arch>(mantissa_bits << 23));
        return as_float<Arch>(as_int<Arch>(opaque<Arch>(c.steps * size) * b.scale) | c.sign);
    }
};

/// Returns the form of a step that covers every rounding and sign of zero.
template <class Arch>
rounded_nvfloat<Arch> rounded_of(const nvfloat_step<Arch>& step) noexcept {
    return rounded_nvfloat<Arch>(step);
}
template <class Arch, class Step>
rounded_block<Arch> rounded_of(const Step& step) noexcept {
    return rounded_block<Arch>(step);
}

/// values_of_blocks (kernels/drivers/block_tiles.hpp) for any rounding; the drivers get the form `rounded.fast`. `OneStep`: each block has
/// one step.
template <class Arch, class Rounded, bool OneStep = false>
struct rounded_values_of_blocks {
    static constexpr bool flat = false, any_rounding = true, in_fours = false, may_stream = false, reads_ahead = false, looks_ahead = true,
                          compact = false;
    float* y;
    Rounded rounded;
    std::size_t position = 0;  ///< of the first value in the caller's span
    bool streaming = false;

    rounded_values_of_blocks at(float* to, std::size_t first, bool streams, const std::uint32_t* words = nullptr) const noexcept {
        rounded_values_of_blocks there{to, rounded, first, streams};
        if (words != nullptr && random() != nullptr) there.rounded.rounds.random.words = words;
        return there;
    }
    /// Makes the random words of n values from number i on, in `to` (fast_rounding).
    QK_INLINE void make_words(std::uint32_t* to, std::size_t i, std::size_t n) noexcept { rounded.rounds.make_words(to, position + i, n); }
    /// Returns the source of the random bits that elements are rounded by, or null if they are not.
    const random_source* random() const noexcept { return rounded.rounds.random.used ? &rounded.rounds.random : nullptr; }
    template <bool, class Form>
    QK_INLINE vf<Arch> value(std::size_t i, vf<Arch> x, const typename Form::shared_type& b, const Form&) const noexcept {
        return rounded.template value<OneStep>(position + i, x, b);
    }
    template <bool Grid, bool, class Form>
    QK_INLINE void put(std::size_t i, bool, vf<Arch> x, const typename Form::shared_type& b, const Form& form) const noexcept {
        store<Arch>(y + i, value<Grid>(i, x, b, form));
    }
    void pairs(std::size_t, vi<Arch>, vi<Arch>) const noexcept {}
    template <class Form>
    void finish(std::size_t, vi<Arch>, vf<Arch>, const Form&) const noexcept {}
};

}  // namespace qk::kernels
