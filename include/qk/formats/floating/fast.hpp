// SPDX-License-Identifier: Apache-2.0
// The fast forms of floating formats (steps/fast.hpp says why they are exact), and which of them applies. Half-even by sums;
// other roundings by counting an element in steps of its grid, which is exact: the fraction of the count decides which way it goes.
#pragma once

#include <concepts>

#include "qk/formats/floating/step.hpp"
#include "qk/isa.hpp"
#include "qk/steps/counting.hpp"
#include "qk/steps/fast.hpp"
#include "qk/steps/scale_table.hpp"

namespace qk::kernels {
inline namespace QK_ISA {

/// The half-even form. prepare(x, by) divides by the scale, limit is the largest quotient that the form covers, and finish(x, i, by) rounds
/// the quotient and multiplies. The vector stands at position i. A form that has code(x) gives the code of the same rounding.
template <class Arch>
struct fast_floating {
    std::int32_t limit = no_value;
    bool saturates = false;  ///< values beyond the largest become the largest; the limit is the last value of a binade
    int tie_bits = 0;        ///< significant bits of a tie of the grid, for has_fast_quotient(); 0: divide
    int shift = 0;           ///< formats with float32's exponents: mantissa bits that are cut off; 0: round by float addition
    vi<Arch> least, kept_sign;
    vf<Arch> magic, largest;

    explicit fast_floating(const floating_rules& r) noexcept : kept_sign(r.zero_signs & sign_bit) {
        const int field = r.least_step + r.mantissa_bits - step_bias + 127;  // exponent field of the smallest normal number
        if (r.flush_below != 0 || r.least_input != 0 || r.powers_of_two || r.general) return;
        if (field < 1 || r.mantissa_bits > 20) return;
        saturates = r.infinity == r.largest && r.beyond[0] == r.largest && r.beyond[1] == r.largest;
        // Sums that carry into the exponent of Inf are right unless finite values saturate and Inf stays.
        const bool passes = r.how == rounding::toward_zero || r.beyond[0] != r.largest || r.beyond[1] != r.largest;
        if (field == 1 && passes && r.infinity == infinity_bits && r.zero_signs != 0 && r.largest >> 23 == 254) {
            shift = 23 - r.mantissa_bits;
            limit = infinity_bits;
        } else {
            limit = saturates ? ((std::min(230 + r.mantissa_bits, 254) << 23) | 0x7fffff)
                              : std::min<std::int32_t>(r.largest, ((230 + r.mantissa_bits) << 23) | 0x7fffff);
        }
        least = vi<Arch>(field << 23);
        magic = as_float<Arch>(vi<Arch>(((150 - r.mantissa_bits) << 23) | half_bit));
        largest = as_float<Arch>(vi<Arch>(r.largest));
        // Quotients so small that the product of two floats underflows must lie far below half of the least step.
        if (shift == 0 && r.mantissa_bits <= 18 && r.least_step > step_bias - 90) tie_bits = r.mantissa_bits + 2;
    }

    template <bool Scaled>
    QK_INLINE vf<Arch> prepare(vf<Arch> x, const fast_scale<Arch>& by) const noexcept {
        return divided<Scaled>(x, by);
    }
    template <bool Scaled>
    QK_INLINE vf<Arch> finish(vf<Arch> x, std::size_t, const fast_scale<Arch>& by) const noexcept {
        const vf<Arch> r = clamp_magnitude<Arch>(to_grid<Arch>(x, least, magic), largest);
        const vf<Arch> y = as_float<Arch>(as_int<Arch>(r) | (as_int<Arch>(x) & kept_sign));
        return multiplied<Scaled>(y, by);
    }
};

/// fast_floating for formats without a sign: what is below zero becomes +0.
template <class Arch>
struct fast_unsigned {
    fast_floating<Arch> fast;

    template <bool Scaled>
    QK_INLINE vf<Arch> prepare(vf<Arch> x, const fast_scale<Arch>& by) const noexcept {
        return divided<Scaled>(x, by);
    }
    template <bool Scaled>
    QK_INLINE vf<Arch> finish(vf<Arch> x, std::size_t, const fast_scale<Arch>& by) const noexcept {
        const vf<Arch> r = to_grid<Arch>(x, fast.least, fast.magic);
        return multiplied<Scaled>(min(max(r, vf<Arch>(0.0f)), fast.largest), by);
    }
};

/// The half-even form of formats whose numbers are 0 and powers of two, such as E3M0. A value halfway between two of them goes to the even
/// code, so half of a binade, less a bit where the lower code is even, is added before the digits behind the exponent are cut off.
template <class Arch>
struct fast_single_digit {
    std::int32_t limit = no_value;
    vi<Arch> parity, least, zero_up_to, largest, kept_sign;

    explicit fast_single_digit(const floating_rules& r) noexcept : parity(r.grid.bias - 127), kept_sign(r.zero_signs & sign_bit) {
        const int field = r.least_step - step_bias + 127;  // of the smallest number
        const bool served = r.grid.by_code && r.grid.subnormals && r.how == rounding::half_even && !r.random.used && !r.nonnegative &&
                            !r.no_zero && r.flush_below == 0 && r.least_input == 0 && field >= 2;
        if (!served) return;
        const bool saturates = r.infinity == r.largest && r.beyond[0] == r.largest && r.beyond[1] == r.largest;
        limit = saturates ? 0x7f7fffff : r.largest;
        least = vi<Arch>(field << 23);
        zero_up_to = vi<Arch>((field - 1) << 23);  // half of the smallest number is a tie, and 0 has an even code
        largest = vi<Arch>(r.largest);
    }
    bool usable() const noexcept { return limit != no_value; }

    template <bool Scaled>
    QK_INLINE vf<Arch> prepare(vf<Arch> x, const fast_scale<Arch>& by) const noexcept {
        return divided<Scaled>(x, by);
    }
    template <bool Scaled>
    QK_INLINE vf<Arch> finish(vf<Arch> x, std::size_t, const fast_scale<Arch>& by) const noexcept {
        using V = vi<Arch>;
        const V u = as_int<Arch>(x), a = u & V(magnitude_bits), odd = ((a >> 23) + parity) & V(1);
        const V power = min(max((a + V(half_bit - 1) + odd) & V(exponent_mask), least), largest);
        const V y = ((power | (u & V(sign_bit))) & all_bits<Arch>(a > zero_up_to)) | (u & kept_sign);
        return multiplied<Scaled>(as_float<Arch>(y), by);
    }
};

/// The half-even form of formats with float32's exponents, such as bf16, by integer addition; overflow becomes Inf by itself.
template <class Arch>
struct fast_truncation {
    std::int32_t limit;
    int shift;
    vi<Arch> below_half, one, kept;

    explicit fast_truncation(const fast_floating<Arch>& q) noexcept
        : limit(q.limit), shift(q.shift), below_half((1 << (q.shift - 1)) - 1), one(1), kept(-(1 << q.shift)) {}

    template <bool Scaled>
    QK_INLINE vf<Arch> prepare(vf<Arch> x, const fast_scale<Arch>& by) const noexcept {
        return divided<Scaled>(x, by);
    }
    template <bool Scaled>
    QK_INLINE vf<Arch> finish(vf<Arch> x, std::size_t, const fast_scale<Arch>& by) const noexcept {
        const vf<Arch> y = as_float<Arch>(sum(x) & kept);
        return multiplied<Scaled>(y, by);
    }
    /// Returns the codes of quotients: the same sum, whose kept bits they are.
    QK_INLINE vi<Arch> code(vf<Arch> x) const noexcept { return as_int<Arch>(as_unsigned<Arch>(sum(x)) >> shift); }

  private:
    QK_INLINE vi<Arch> sum(vf<Arch> x) const noexcept {
        const vi<Arch> bits = as_int<Arch>(x);
        return bits + below_half + ((bits >> shift) & one);
    }
};

/// The fast form of e8m0: a normal number becomes the nearest power of two, a negative one NaN.
template <class Arch>
struct fast_power_of_two {
    static constexpr bool declines_zero = true;
    std::int32_t limit = no_value;
    vi<Arch> nan;
    vi<Arch> half = opaque<Arch>(vi<Arch>(half_bit)), exponent = opaque<Arch>(vi<Arch>(exponent_mask));  ///< stay in registers

    explicit fast_power_of_two(const floating_rules& r) noexcept : nan(r.nan) {
        // From 1.5 * 2^127 on magnitudes round beyond the largest.
        if (r.powers_of_two && r.how == rounding::half_away && r.flush_below == 0 && r.least_input == 0)
            limit = (0x7f3fffff - min_normal_bits) ^ sign_bit;
    }
    bool usable() const noexcept { return limit != no_value; }

    /// Returns the distance from the smallest normal number, in unsigned order: what lies below that number is beyond every limit.
    QK_INLINE vi<Arch> tested(vf<Arch> x) const noexcept {
        return ((as_int<Arch>(x) & vi<Arch>(magnitude_bits)) - vi<Arch>(min_normal_bits)) ^ vi<Arch>(sign_bit);
    }
    template <bool Scaled>
    QK_INLINE vf<Arch> prepare(vf<Arch> x, const fast_scale<Arch>& by) const noexcept {
        return divided<Scaled>(x, by);
    }
    template <bool Scaled>
    QK_INLINE vf<Arch> finish(vf<Arch> x, std::size_t, const fast_scale<Arch>& by) const noexcept {
        using V = vi<Arch>;
        const V u = as_int<Arch>(x);
        const vf<Arch> y = as_float<Arch>(select(u < V(0), nan, (u + half) & exponent));
        return multiplied<Scaled>(y, by);
    }
    /// Returns the codes of quotients: the exponent field of the nearest power of two, or NaN's.
    QK_INLINE vi<Arch> code(vf<Arch> x) const noexcept {
        const vi<Arch> u = as_int<Arch>(x);
        return select(u < vi<Arch>(0), vi<Arch>(255), (u + half) >> 23);
    }
};

/// fast_floating without a division, for scales with has_fast_quotient(), and an operation shorter. Where values saturate, the tile test
/// takes the exponents that are at hand; where they do not, nothing is clamped, since what is not beyond the largest value does not round
/// to more.
template <class Arch, bool Saturates>
struct floating_by_product {
    fast_floating<Arch> fast;

    template <bool>
    QK_INLINE vf<Arch> prepare(vf<Arch> x, const fast_scale<Arch>& by) const noexcept {
        return fast_quotient<Arch>(x, {by.high, by.low});
    }
    QK_INLINE vi<Arch> tested(vf<Arch> q) const noexcept {
        if constexpr (Saturates) return max(as_int<Arch>(q) & vi<Arch>(exponent_mask), fast.least);
        return as_int<Arch>(q) & vi<Arch>(magnitude_bits);
    }
    template <bool>
    QK_INLINE vf<Arch> finish(vf<Arch> q, std::size_t, const fast_scale<Arch>& by) const noexcept {
        vf<Arch> r = to_grid<Arch>(q, fast.least, fast.magic);
        if constexpr (Saturates) r = clamp_magnitude<Arch>(r, fast.largest);
        return as_float<Arch>(as_int<Arch>(r) | (as_int<Arch>(q) & fast.kept_sign)) * by.scale;
    }
};

/// The form for any rounding. Products need no flush: results above 2^-60, as those that are not flushed are, times a scale above 2^-60
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

/// What is known of a floating format when compiling: `odd` has no sign, or no digit behind the leading one. Only the fast forms that the
/// format may need are compiled then.
enum class floating_kind : std::uint8_t { any, power_of_two, float32_exponents, odd, other };
constexpr floating_kind kind_of(floating f) {
    if (f == e8m0) return floating_kind::power_of_two;
    if (min_exponent(f) != -126 && ((!f.is_signed && has_zero(f)) || f.mantissa_bits == 0)) return floating_kind::odd;
    return min_exponent(f) == -126 ? floating_kind::float32_exponents : floating_kind::other;
}
constexpr bool may_be(floating_kind known, floating_kind what) { return known == floating_kind::any || known == what; }

/// What the rows (or columns) of an array have in common while each has a scale and a zero point of its own: the rules of the family, its
/// fast forms, and which of them applies.
template <class Arch, floating_kind Known>
struct floating_rows {
    floating_rules rules;
    fast_floating<Arch> fast;
    fast_power_of_two<Arch> power;
    fast_single_digit<Arch> single_digit;
    bool is_unsigned;  ///< fast_unsigned serves
    bool flushes, other_rounding, usable, scales_apply, streaming;

    floating_rows(floating f, const semantics& how, bool /*one_scale*/, bool stream_rows) noexcept
        : rules(rules_of(f, how)),
          fast(without_flush(with_sign(rules))),
          power(rules),
          single_digit(rules),
          is_unsigned(rules.nonnegative && !asks_other_rounding() && fast.limit != no_value && !kernels::flushes(rules) &&
                      rules.least_step + rules.mantissa_bits > step_bias - 126),
          flushes(kernels::flushes(rules)),
          other_rounding(!power.usable() && asks_other_rounding()),
          usable(is_served()),
          scales_apply(f != fp32),
          streaming(stream_rows) {}
    /// Returns the rules as those of a format with a sign, which is all that keeps some formats from the sums of `fast`.
    static floating_rules with_sign(floating_rules r) noexcept {
        if (r.nonnegative) r.nonnegative = false, r.general = r.grid.needed() || !kernels::is_counted(r.how, r.random);
        return r;
    }
    /// Is true where the sums of `fast` round otherwise than asked. Rounding to nearest makes subnormal inputs zero anyway, except in
    /// formats with float32's exponents; results are flushed by the forms of the other roundings.
    bool asks_other_rounding() const noexcept {
        return rules.how != rounding::half_even || rules.random.used || rules.flush_below != 0 || (fast.shift != 0 && flushes);
    }
    /// Is true where the other roundings have a form: a step of the grid, and the factor that counts in steps, must be normal numbers.
    bool is_counted() const noexcept {
        if (is_baseline<Arch>) return false;
        return rules.powers_of_two || fast.shift != 0 || !any(fast.least <= vi<Arch>((rules.mantissa_bits + 1) << 23));
    }
    /// Is true where one of the fast forms applies.
    bool is_served() const noexcept {
        if (!default_environment<Arch>()) return false;
        if (is_unsigned || single_digit.usable()) return true;
        if (rules.general) return false;
        if (power.usable()) return true;
        return (fast.limit != no_value || rules.powers_of_two) && (!other_rounding || is_counted());
    }
    std::int32_t limit_of(float scale) const noexcept {
        if (single_digit.usable()) return single_digit.limit;
        if (power.usable()) return power.limit;
        if (rules.powers_of_two) return rounded_power<Arch>::limit;
        const bool flush_is_served = fast.shift != 0 || (rules.least_step > step_bias - 60 && scale > 0x1p-60f);
        return flushes && !flush_is_served ? no_value : fast.limit;
    }

    /// Fills `t` from the caller's scales. `worth`: it pays to make quotients products where these are exact.
    template <std::size_t Size>
    void fill(scale_table<Arch, Size>& t, const float* scale, const std::int64_t*, std::size_t count, bool worth) const noexcept {
        for (std::size_t k = 0; k < count; ++k) {
            t.scale[k] = scales_apply ? scale[k] : 1.0f;
            t.lowest[k] = t.highest[k] = 0;
            t.limit[k] = limit_of(t.scale[k]);
        }
        t.finish(count, worth && !other_rounding && !is_unsigned ? fast.tie_bits : 0, false);
    }
    template <std::size_t Size>
    floating_step<Arch> step(const scale_table<Arch, Size>& t, std::size_t k, const std::int64_t*) const noexcept {
        return {rules, vf<Arch>(t.scale[k]), t.scale[k] != 1.0f};
    }
    template <std::size_t Size>
    floating_step<Arch> step_across(const scale_table<Arch, Size>& t, std::size_t i, std::size_t, const std::int64_t*) const noexcept {
        return {rules, load<Arch>(t.scale + i), scales_apply};
    }

    /// Calls call(form, is it scaled) with the fast form that applies.
    template <class Scaled, class Call>
    void with_form(Scaled scaled, bool product, const Call& call) const noexcept {
        const auto either = [&](const auto& form) {
            if constexpr (std::same_as<Scaled, bool>) scaled ? call(form, std::true_type()) : call(form, std::false_type());
            else call(form, scaled);
        };
        if constexpr (may_be(Known, floating_kind::power_of_two)) {
            if (power.usable()) return either(power);
            if constexpr (!is_baseline<Arch>) {
                if (rules.powers_of_two) return call(rounded_power<Arch>(rules), std::true_type());
            }
        }
        if constexpr (may_be(Known, floating_kind::float32_exponents)) {
            if constexpr (!is_baseline<Arch>) {
                if (fast.shift != 0 && other_rounding) return call(rounded_truncation<Arch>(fast, rules), std::true_type());
            }
            if (fast.shift != 0) return either(fast_truncation<Arch>(fast));
        }
        if constexpr (Known == floating_kind::power_of_two) return;
        if constexpr (may_be(Known, floating_kind::odd)) {
            if (is_unsigned) return either(fast_unsigned<Arch>{fast});
            if (single_digit.usable()) return either(single_digit);
        }
        if constexpr (!is_baseline<Arch>) {
            if (other_rounding) return call(rounded_floating<Arch>(fast, rules), std::true_type());
        }
        if constexpr (has_fused<Arch>()) {
            if (product && scaled)
                return fast.saturates ? call(floating_by_product<Arch, true>{fast}, std::true_type())
                                      : call(floating_by_product<Arch, false>{fast}, std::true_type());
        }
        either(fast);
    }
};

/// Returns what the rows of one array have in common; `stream_rows`: their results are stored past the caches.
template <class Arch, floating_kind Known = floating_kind::any>
floating_rows<Arch, Known> rows_of(floating f, const semantics& how, bool one_scale, bool stream_rows) noexcept {
    return {f, how, one_scale, stream_rows};
}

/// Is true for fp32 without a flush, which leaves every value as it is.
constexpr bool is_identity(floating f, const semantics& how) { return f == fp32 && !how.flush_inputs && !how.flush_outputs; }

}  // namespace QK_ISA
}  // namespace qk::kernels
