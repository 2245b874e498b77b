// SPDX-License-Identifier: Apache-2.0
// Rounds values to the grid of a format, in units of its scale: in roundings other than half-even, with zero points added before, or with
// subnormals flushed. encode turns the results into codes by its half-even coders, which do not change them.
#pragma once

#include <concepts>
#include <type_traits>

#include "qk/formats/codes/unpack.hpp"
#include "qk/isa.hpp"
#include "qk/kernels/choose.hpp"
#include "qk/memory/values.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// Rounds to whole numbers: to the nearest or, where the distance from it passes a threshold, to the next one on that side.
template <class Arch>
struct number_rounding {
    kernels::vi<Arch> up_above, up_below, down_above,
        down_below;  ///< thresholds, as bits of the distance, for positive (above) and negative (below) numbers

    explicit number_rounding(rounding how) noexcept {
        constexpr std::int32_t never = INT32_MAX, half = 0x3effffff, any = 0;
        const auto set = [&](std::int32_t ua, std::int32_t ub, std::int32_t da, std::int32_t db) {
            using V = kernels::vi<Arch>;
            up_above = V(ua), up_below = V(ub), down_above = V(da), down_below = V(db);
        };
        switch (how) {
            case rounding::half_up: set(half, half, never, never); break;
            case rounding::half_away: set(half, never, never, half); break;
            case rounding::up: set(any, any, never, never); break;
            case rounding::down: set(never, never, any, any); break;
            case rounding::toward_zero: set(never, any, any, never); break;
            default: set(never, never, never, never); break;
        }
    }
    /// Requires |q| of at most 2^22.
    QK_INLINE kernels::vf<Arch> operator()(kernels::vf<Arch> q) const noexcept {
        using V = kernels::vi<Arch>;
        const kernels::vf<Arch> middle(kernels::fast_integer<Arch>::middle), sum = q + middle;
        const V distance = kernels::as_int<Arch>(q - (sum - middle)), one(1), zero(0);
        const kernels::mask<Arch> negative = kernels::as_int<Arch>(q) < zero;
        const V up = select(distance > select(negative, up_below, up_above), one, zero);
        const V down = select((distance ^ V(kernels::sign_bit)) > select(negative, down_below, down_above), one, zero);
        return kernels::as_float<Arch>(kernels::as_int<Arch>(sum) + up - down) - middle;
    }
};

/// Computes y = round(x) for at most a tile, a whole vector at a time. Returns false, with useless y, if a magnitude is beyond `limit`.
/// Only y needs room for whole vectors.
template <class Arch, class Round>
QK_INLINE bool round_each(const float* x, float* y, std::size_t n, std::int32_t limit, const Round& round) noexcept {
    constexpr std::size_t w = kernels::lanes<Arch>;
    using V = kernels::vi<Arch>;
    V most(INT32_MIN);
    std::size_t i = 0;
    for (; i + 2 * w <= n; i += 2 * w) {
        const V first = round(i, kernels::load<Arch>(x + i), y + i), second = round(i + w, kernels::load<Arch>(x + i + w), y + i + w);
        most = max(most, max(first, second));
    }
    for (; i < n; i += w) most = max(most, round(i, kernels::load_first<Arch>(x + i, std::min(w, n - i)), y + i));
    return !any(most > V(limit));
}

/// Rounds n values, divided by one scale, to whole numbers without clamping them; adds the zero point before if the rules say so. Results
/// reach 2^40 with `Wide`, else 2^21; returns false where a value, the scale or the zero point is too large or too small for that.
/// `position` is that of x[0] in the caller's span.
template <class Arch, bool Wide = false>
QK_APART bool round_numbers(const kernels::integer_rules& r, const float* x, float* y, std::size_t n, std::size_t position, float scale,
                            std::int64_t zero) noexcept {
    using V = kernels::vi<Arch>;
    constexpr std::int64_t far = Wide ? std::int64_t{1} << 32 : 1 << 20;
    constexpr std::int32_t most = Wide ? 40 : 20;
    const auto bits = std::bit_cast<std::int32_t>(scale);
    if (!kernels::is_counted(r.how, r.random)) return false;
    // The scale times the largest quotient must be finite, and a subnormal quotient must be far below a half.
    if (!(scale > (kernels::flushes(r) ? 0x1p-60f : 0x1p-126f)) || bits >= kernels::infinity_bits - ((most + 2) << 23) || zero <= -far ||
        zero >= far)
        return false;
    const kernels::vf<Arch> s(scale), reciprocal = kernels::quotient<Arch>(kernels::vf<Arch>(1.0f), s),
                                      before(r.zero_before ? static_cast<float>(zero) : 0.0f);
    const bool multiply = r.multiply, zero_before = r.zero_before;
    const std::int32_t least_input = r.least_input;
    const auto prepare = [&](kernels::vf<Arch> v) QK_INLINE_CALL {
        if (__builtin_expect(least_input != 0, 0)) v = kernels::flushed<Arch>(v, least_input);
        const kernels::vf<Arch> t = __builtin_expect(multiply, 0) ? kernels::opaque<Arch>(v * reciprocal) : kernels::quotient<Arch>(v, s);
        return __builtin_expect(zero_before, 0) ? kernels::opaque<Arch>(t) + before : t;
    };
    const auto magnitude = [](kernels::vf<Arch> v) QK_INLINE_CALL { return kernels::as_int<Arch>(v) & V(kernels::magnitude_bits); };
    const std::int32_t limit = bits + (most << 23);
    if (!Wide && !r.random.used) {
        const number_rounding<Arch> rounds(r.how);
        return round_each<Arch>(x, y, n, limit, [&](std::size_t, kernels::vf<Arch> v, float* to) QK_INLINE_CALL {
            kernels::store<Arch>(to, rounds(prepare(v)));
            return magnitude(v);
        });
    }
    alignas(64) std::uint32_t words[tile];
    kernels::fast_rounding<Arch> rounds(r.how, r.random);
    rounds.make_words(words, position, n);
    return round_each<Arch>(x, y, n, limit, [&](std::size_t i, kernels::vf<Arch> v, float* to) QK_INLINE_CALL {
        const kernels::vf<Arch> t = prepare(v);
        if constexpr (Wide) {
            const V u = kernels::as_int<Arch>(t);
            const kernels::vf<Arch> k =
                rounds.count(kernels::as_float<Arch>(magnitude(t)), kernels::vf<Arch>(1.0f), u, rounds.words(position + i));
            kernels::store<Arch>(to, kernels::as_float<Arch>(kernels::as_int<Arch>(k) | (u & V(kernels::sign_bit))));
        } else {
            kernels::store<Arch>(to, to_float(rounds.by_words(t, rounds.made_words(position + i))));
        }
        return magnitude(v);
    });
}

/// Rounds n values, divided by the scale, to values of a floating format. Returns false where the fast forms cannot.
template <class Arch>
QK_APART bool round_quotients(const kernels::floating_rules& r, const float* x, float* y, std::size_t n, std::size_t position,
                              float scale) noexcept {
    using V = kernels::vi<Arch>;
    const kernels::vf<Arch> s(scale);
    const kernels::fast_scale<Arch> by{s, s, s, V(0), V(0), 0};
    alignas(64) std::uint32_t words[tile];
    const auto run = [&](auto form, std::int32_t limit) {
        form.rounds.make_words(words, position, n);
        return round_each<Arch>(x, y, n, limit, [&](std::size_t i, kernels::vf<Arch> v, float* to) QK_INLINE_CALL {
            const kernels::vf<Arch> q = form.template prepare<true>(v, by);
            kernels::vf<Arch> value = form.template finish<false>(q, position + i, by);
            if constexpr (std::same_as<std::remove_cvref_t<decltype(form)>, kernels::rounded_power<Arch>>) {
                // The coder treats negative values as NaN, but does not recognize NaN itself.
                value = kernels::as_float<Arch>(
                    select(kernels::as_int<Arch>(q) < V(0), kernels::as_int<Arch>(q), kernels::as_int<Arch>(value)));
            }
            kernels::store<Arch>(to, value);
            return kernels::tested<Arch>(form, q);
        });
    };
    if (r.general) return false;
    if (r.powers_of_two) return run(kernels::rounded_power<Arch>(r), kernels::rounded_power<Arch>::limit);
    kernels::floating_rules kept = r;
    kept.flush_below = kept.least_input = 0;
    const kernels::fast_floating<Arch> fast(kept);
    if (fast.limit == kernels::no_value) return false;
    if (fast.shift != 0) return run(kernels::rounded_truncation<Arch>(fast, r), fast.limit);
    const bool flushes = kernels::flushes(r), countable = !any(fast.least <= V((r.mantissa_bits + 1) << 23));
    if (!countable || (flushes && !(r.least_step > kernels::step_bias - 60 && scale > 0x1p-60f))) return false;
    return run(kernels::rounded_floating<Arch>(fast, r), fast.limit);
}

}  // namespace QK_ISA
}  // namespace qk::detail
