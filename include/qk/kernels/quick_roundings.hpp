// SPDX-License-Identifier: Apache-2.0
// The short forms in the roundings other than half-even, and with the signs of zero that only named systems have: an element is counted
// in steps of its grid, which is exact, and the fraction of the count decides.
#pragma once

#include "qk/kernels/quick_blocks.hpp"

namespace qk::kernels {

/// Rounds a count of steps.
template <class Arch>
struct quick_rounding {
    rounding how;
    random_source random;
    vf<Arch> above, below;  ///< a fraction from here on goes up: of positive elements, of negative ones
    vi<Arch> lane_numbers = iota<Arch>();
    std::uint32_t key;  ///< of the indices that share the upper half of first_index

    quick_rounding(rounding r, const random_source& source) noexcept
        : how(r), random(source), above(never), below(never), key(random_key(source.seed, source.first_index)) {
        switch (r) {
            case rounding::half_away: above = below = vf<Arch>(0.5f); break;
            case rounding::half_up:
                above = vf<Arch>(0.5f);
                below = vf<Arch>(0x1.000002p-1f);  // a fraction above a half is this at least
                break;
            case rounding::up: above = vf<Arch>(least); break;
            case rounding::down: below = vf<Arch>(least); break;
            default: break;
        }
    }

    /// random_lanes of neighbours.
    vi<Arch> words(std::size_t position) const noexcept {
        if (!random.used) return vi<Arch>(0);
        const std::uint64_t index = random.first_index + position;
        if (random.words != nullptr || (random.first_index ^ (index + lanes<Arch> - 1)) >> 32 != 0) return random_lanes<Arch>(random, position, 1, lanes<Arch>);
        return mixed<Arch>(as_unsigned<Arch>(lane_numbers + vi<Arch>(static_cast<std::int32_t>(index))) ^ vu<Arch>(key));
    }

    /// a * per_step, a magnitude of the element whose bits are u, to a whole number.
    vf<Arch> count(vf<Arch> a, vf<Arch> per_step, vi<Arch> u, vi<Arch> words) const noexcept {
        using V = vi<Arch>;
        vf<Arch> v = a * per_step;
        if (how == rounding::half_even) return (v + vf<Arch>(0x1p23f)) - vf<Arch>(0x1p23f);
        // A product that underflows is not zero to the roundings that look at every fraction.
        v = xsimd::max(v, xsimd::min(a, vf<Arch>(0x1p-64f)));
        const vf<Arch> whole = xsimd::trunc(v), fraction = v - whole;
        mask<Arch> up = u < V(0);
        if (random.used) {
            // floor(fraction * 2^32) + word >= 2^32, as unsigned: the upper half of the fractions has the sign bit.
            const mask<Arch> upper = as_int<Arch>(fraction) >= as_int<Arch>(vf<Arch>(0.5f));
            const vf<Arch> lower = fraction - as_float<Arch>(xsimd::select(upper, as_int<Arch>(vf<Arch>(0.5f)), V(0)));
            const V scaled = xsimd::to_int(lower * vf<Arch>(0x1p32f)) + xsimd::select(upper, V(0), V(sign_bit));
            up = scaled > (~words ^ V(sign_bit));
        } else {
            up = as_int<Arch>(fraction) >= xsimd::select(u < V(0), as_int<Arch>(below), as_int<Arch>(above));
        }
        return whole + as_float<Arch>(xsimd::select(up, as_int<Arch>(vf<Arch>(1.0f)), V(0)));
    }

private:
    static constexpr float never = 2.0f, least = 0x1p-149f;
};

/// Floating formats.
template <class Arch>
struct rounded_floating {
    quick_floating<Arch> quick;
    quick_rounding<Arch> rounds;
    std::int32_t limit;
    int mantissa_bits;
    std::size_t position;

    rounded_floating(const quick_floating<Arch>& q, const floating_rules& r, std::size_t at) noexcept
        : quick(q), rounds(r.how, r.random), limit(q.limit), mantissa_bits(r.mantissa_bits), position(at) {}

    template <bool Scaled>
    vf<Arch> prepare(vf<Arch> x) const noexcept {
        return quick.template prepare<Scaled>(x);
    }
    template <bool Scaled>
    vf<Arch> finish(vf<Arch> x, std::size_t i) const noexcept {
        using V = vi<Arch>;
        const V u = as_int<Arch>(x), m(mantissa_bits << 23);
        const V c = xsimd::max(u & V(exponent_mask), quick.least);
        const vf<Arch> k = rounds.count(as_float<Arch>(u & V(magnitude_bits)), as_float<Arch>(V(254 << 23) + m - c), u, rounds.words(position + i));
        const V r = as_int<Arch>(xsimd::min(k * as_float<Arch>(c - m), quick.largest));
        const vf<Arch> y = as_float<Arch>(r | xsimd::select(r == V(0), u & quick.kept_sign, u & V(sign_bit)));
        if constexpr (Scaled) return y * quick.scale;
        return y;
    }
};

/// Integers.
template <class Arch>
struct rounded_integer {
    quick_integer<Arch> quick;
    quick_rounding<Arch> rounds;
    std::int32_t limit;
    vf<Arch> low, high;
    std::size_t position;

    rounded_integer(const quick_integer<Arch>& q, const integer_rules& r, float lowest, float highest, std::size_t at) noexcept
        : quick(q), rounds(r.how, r.random), limit(q.limit), low(lowest), high(highest), position(at) {}

    template <bool>
    vf<Arch> prepare(vf<Arch> x) const noexcept {
        return x;
    }
    template <bool Multiply>
    vf<Arch> finish(vf<Arch> x, std::size_t i) const noexcept {
        using V = vi<Arch>;
        const V t = as_int<Arch>(Multiply ? rounded<Arch>(x * quick.reciprocal) : quotient<Arch>(x, quick.scale));
        const vf<Arch> k = rounds.count(as_float<Arch>(t & V(magnitude_bits)), vf<Arch>(1.0f), t, rounds.words(position + i));
        const vf<Arch> n = clamp<Arch>(as_float<Arch>(as_int<Arch>(k) | (t & V(sign_bit))), low, high);
        return (n + vf<Arch>(0.0f)) * quick.scale;
    }
};

/// Block formats but nvfloat, a vector of a row at a time: a step as run_vectors_of_blocks takes it.
template <class Arch, class Step>
struct rounded_blocks {
    const Step& step;
    quick_block<Arch> quick;
    quick_rounding<Arch> rounds;
    block_rules rules;
    int block_size, sub_block_size;
    static constexpr bool bump = false;

    struct shared {
        quick_shared<Arch> scale;
        vi<Arch> block;  ///< what sub-blocks are held to
    };

    explicit rounded_blocks(const Step& s) noexcept
        : step(s), quick(s, true), rounds(s.rules.how, s.rules.random), rules(s.rules), block_size(s.block_size), sub_block_size(s.sub_block_size) {
        if (quick.usable()) quick.raise_lowest();
    }

    vi<Arch> words(std::size_t position) const noexcept { return rounds.words(position); }

    /// False: the complete form is wanted.
    bool serves(const seen<Arch>& all) const noexcept {
        quick_shared<Arch> b;
        return quick.template share<0>(all.all, b);
    }
    shared plan(const seen<Arch>& all) const noexcept {
        shared s{};
        quick.template share<0>(all.all, s.scale);
        s.block = as_int<Arch>(s.scale.base) - quick.to_base - quick.largest_shift;
        return s;
    }
    shared narrow(const shared& b, const seen<Arch>& pair) const noexcept {
        return {quick.held({as_float<Arch>(b.block), as_float<Arch>(b.block)}, pair.all), b.block};
    }
    vf<Arch> apply(vf<Arch> x, const shared& b, vi<Arch> words) const noexcept {
        using V = vi<Arch>;
        const V u = as_int<Arch>(x), base = as_int<Arch>(b.scale.base);
        V a = u & V(magnitude_bits);
        a = xsimd::select(a < V(rules.least_input), V(0), a);
        V size;  // bits of the step
        if (quick.grid)
            size = xsimd::max(u & V(exponent_mask), base) - V(quick.mantissa_bits << 23);
        else
            size = (base & V(exponent_mask)) - V(23 << 23);
        const vf<Arch> k = rounds.count(as_float<Arch>(a), as_float<Arch>(V(254 << 23) - size), u, words);
        const V r = as_int<Arch>(xsimd::min(k * as_float<Arch>(size), b.scale.limit));
        const V sign = u & V(sign_bit);
        V zero = sign;
        if (rules.zero == zero_sign::positive) zero = V(0);
        if (rules.zero == zero_sign::underflow_positive || rules.zero == zero_sign::zero_quotient_positive) {
            // Is the float32 quotient by the scale zero? Of block float the scale is the step.
            const V scale = quick.scale_from_base + (base & V(exponent_mask));
            const mask<Arch> lost = as_int<Arch>(as_float<Arch>(a) * as_float<Arch>(V(254 << 23) - scale)) == V(0);
            zero = rules.zero == zero_sign::underflow_positive ? xsimd::select(lost, sign, V(0)) : xsimd::select(lost, V(0), sign);
        }
        return as_float<Arch>(r | xsimd::select(r == V(0), zero, sign));
    }
};

}  // namespace qk::kernels
