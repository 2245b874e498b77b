// SPDX-License-Identifier: Apache-2.0
// Rounds the count of an element, in steps of its grid, to a whole number: by the fraction of the count, or by random words that are made
// for many elements at a time.
#pragma once

#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/steps/general.hpp"

namespace qk::kernels {
inline namespace QK_ISA {

/// The least fraction of a step, in some unit, at which a magnitude goes up to the next step, for positive and for negative elements.
template <class Unit>
struct upward {
    Unit above, below;

    /// Returns the fractions for a rounding: a half, the next fraction past it, any above 0, or `never`, which no fraction reaches.
    static constexpr upward of(rounding r, Unit half, Unit past_half, Unit any, Unit never) {
        switch (r) {
            case rounding::half_away: return {half, half};
            case rounding::half_up: return {half, past_half};
            case rounding::up: return {any, never};
            case rounding::down: return {never, any};
            default: return {never, never};
        }
    }
};

/// Rounds a count of steps.
template <class Arch>
struct fast_rounding {
    rounding how;
    random_source random;
    vf<Arch> above, below;                ///< fractions from here on go up: of positive elements, of negative ones
    std::uint32_t key;                    ///< random_key() of indices with the upper half of first_index
    const std::uint32_t* made = nullptr;  ///< random words of the elements from `first` on
    std::size_t first = 0;

    fast_rounding(rounding r, const random_source& source) noexcept
        : how(r), random(source), key(random_key(source.seed, source.first_index)) {
        // A fraction above a half is 0x1.000002p-1 at least.
        const auto from = upward<float>::of(r, 0.5f, 0x1.000002p-1f, 0x1p-149f, 2.0f);
        above = vf<Arch>(from.above);
        below = vf<Arch>(from.below);
    }

    /// Makes the random words of n elements from `position` on, in `to`, which has room for whole vectors; does nothing if elements are not
    /// rounded by words. Many are made at a time: a loop that only hashes keeps its constants in registers, and so does the one that
    /// rounds.
    QK_INLINE void make_words(std::uint32_t* to, std::size_t position, std::size_t n) noexcept { make_words(to, position, {1, n, 0}); }
    /// Makes the words of several rows, in whole vectors each; use_words() then selects the row whose elements follow.
    QK_INLINE void make_words(std::uint32_t* to, std::size_t position, element_rows of) noexcept {
        if (!random.used) return;
        const std::uint64_t index = random.first_index + position;
        if (__builtin_expect(random.words != nullptr || (random.first_index ^ (index + of.span() - 1)) >> 32 != 0, 0)) {
            const std::size_t each = (of.n + lanes<Arch> - 1) / lanes<Arch> * lanes<Arch>;
            for (std::size_t k = 0; k < of.rows; ++k)
                store_random<Arch>(random_source(random), position + k * of.stride, of.n, to + k * each);
        } else {
            store_hashes<Arch>(static_cast<std::uint32_t>(index), key, of, to);
        }
        use_words(to, position);
    }
    QK_INLINE void use_words(const std::uint32_t* words, std::size_t position) noexcept {
        made = words;
        first = position;
    }
    /// Returns the words of the elements from position i on, a lane each, which must be made already; 0 if no words are used.
    QK_INLINE vi<Arch> words(std::size_t i) const noexcept { return random.used ? made_words(i) : vi<Arch>(0); }
    /// words() where random.used is known.
    QK_INLINE vi<Arch> made_words(std::size_t i) const noexcept {
        return load<Arch>(reinterpret_cast<const std::int32_t*>(made) + (i - first));
    }

    /// Rounds t, of a magnitude below 2^31, to an integer by random words.
    static QK_INLINE vi<Arch> by_words(vf<Arch> t, vi<Arch> words) noexcept {
        const vf<Arch> v = as_float<Arch>(as_int<Arch>(t) & vi<Arch>(magnitude_bits));
        return signed_as<Arch>(one_more<Arch>(to_int(v), carries<Arch>(v, words)), as_int<Arch>(t));
    }
    /// Rounds a * per_step, a magnitude of the element whose bits are u, to a whole number: a float or, if `Integers`, an integer.
    template <bool Integers = false>
    QK_INLINE auto count(vf<Arch> a, vf<Arch> per_step, vi<Arch> u, vi<Arch> words) const noexcept {
        const vf<Arch> v = a * per_step;
        if constexpr (Integers) {
            if (random.used) return one_more<Arch>(to_int(v), carries<Arch>(v, words));
            return to_int(directed(v, a, u));
        } else {
            if (random.used) return one_more<Arch>(trunc(v), carries<Arch>(v, words));
            return directed(v, a, u);
        }
    }

  private:
    QK_INLINE vf<Arch> directed(vf<Arch> v, vf<Arch> a, vi<Arch> u) const noexcept {
        if (how == rounding::half_even) return nearest(v);
        // A product that underflows must not be zero for the roundings that look at every fraction.
        v = max(v, min(a, vf<Arch>(0x1p-64f)));
        const vf<Arch> whole = trunc(v), fraction = v - whole;
        return one_more<Arch>(whole, as_int<Arch>(fraction) >= select(u < vi<Arch>(0), as_int<Arch>(below), as_int<Arch>(above)));
    }
};

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

/// Returns the magnitude `a`, of an element with one digit of precision in this binade, such that a tie between two numbers goes to the
/// even code when the count of its steps is rounded half-even: without its last bit where the lower code is even. Code 1 is the number
/// whose binade is `least`.
template <class Arch>
QK_INLINE vi<Arch> tied_by_code(vi<Arch> a, vi<Arch> binade, vi<Arch> least) noexcept {
    return max(a - (((binade ^ least) >> 23) & vi<Arch>(1)), vi<Arch>(0));
}

/// An element as a rounded number of steps, not yet clamped to the range. `binade` is the one whose step it has, `sign` the result's sign
/// bit.
template <class Arch, bool Integers = false>
struct counted {
    std::conditional_t<Integers, vi<Arch>, vf<Arch>> steps;
    vi<Arch> binade, sign;
};

}  // namespace QK_ISA
}  // namespace qk::kernels
