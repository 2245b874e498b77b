// SPDX-License-Identifier: Apache-2.0
// Rounding to a multiple of a power of two, in every mode, by integer arithmetic on the bits of a float.
//
// This is the general form, for slow paths: it holds for every float32, for every step from 2^-149 up (and leaves values alone when the
// step is finer), and reads neither the rounding mode nor the flush modes of the processor.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>

#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/lanes/simd.hpp"
#include "qk/rounding.hpp"
#include "qk/semantics.hpp"

namespace qk::kernels {
inline namespace QK_ISA {

inline constexpr std::int32_t sign_bit = INT32_MIN;
inline constexpr std::int32_t magnitude_bits = INT32_MAX;
inline constexpr std::int32_t infinity_bits = 0x7f800000;
inline constexpr std::int32_t nan_bits = 0x7fc00000;
inline constexpr std::int32_t min_normal_bits = 0x00800000;

/// A step 2^k is passed as k + step_bias. A float with exponent field e (1 for subnormals) is an integer times 2^(e - step_bias).
inline constexpr std::int32_t step_bias = 150;

/// Where stochastic rounding gets the random bits of the element at a position of the span.
struct random_source {
    bool used = false;
    int bits = 32;  ///< how many of the upper bits of a word count
    std::uint64_t seed = 0;
    std::uint64_t first_index = 0;
    const std::uint32_t* words = nullptr;

    constexpr random_source() = default;
    constexpr explicit random_source(const semantics& how)
        : used(is_stochastic(how.rounding)),
          bits(how.stochastic_bits),
          seed(how.seed),
          first_index(how.first_index),
          words(how.random_words.data()) {}
};

/// A rounding and the number of its random bits, as the general form needs them.
struct rounding_rule {
    rounding how;
    int bits = 32;
    constexpr rounding_rule(rounding r) : how(r) {}
    constexpr rounding_rule(rounding r, const random_source& source) : how(r), bits(source.bits) {}
};

/// Is true for the roundings that the fast forms know, which count steps and compare fractions or add whole random words. The others have
/// the general form.
constexpr bool is_counted(rounding how, const random_source& source) {
    return how != rounding::to_odd && (!source.used || (how == rounding::stochastic && source.bits == 32));
}

/// Returns whether the fraction part / 2^shift of a step, below 1, goes up by the word: both brought to the rule's number of bits. `part`
/// has 24 bits at most.
constexpr bool goes_up_by_chance(std::uint64_t part, int shift, rounding_rule rule, std::uint32_t word) noexcept {
    const int drop = shift - rule.bits;  // bits of the fraction that are lost
    std::uint64_t count = drop <= 0 ? part << -drop : drop < 32 ? part >> drop : 0;
    if (drop > 0 && drop <= 32) {
        const std::uint64_t rest = part - (count << drop), half = std::uint64_t{1} << (drop - 1);
        if (rule.how == rounding::stochastic_b && rest >= half) ++count;
        if (rule.how == rounding::stochastic_c && (rest > half || (rest == half && count % 2 != 0))) ++count;
    }
    return count + (word >> (32 - rule.bits)) >= std::uint64_t{1} << rule.bits;
}

/// The factors of mix_bits.
template <class Arch>
struct mixing_factors {
    vu<Arch> first = vu<Arch>(0x7feb352du), second = vu<Arch>(0x846ca68bu);
};
/// Returns mix_bits of each lane. Loops over many vectors keep the factors: to make them anew for each costs as much as the rest.
template <class Arch>
QK_INLINE vi<Arch> mixed(vu<Arch> v, const mixing_factors<Arch>& by = {}) noexcept {
    v = (v ^ (v >> 16)) * by.first;
    v = (v ^ (v >> 15)) * by.second;
    return as_int<Arch>(v ^ (v >> 16));
}

/// Returns the random bits (qk::random_bits) of the elements at position, position + stride, ..., a lane each.
template <class Arch>
vi<Arch> random_lanes(const random_source& source, std::size_t position, std::size_t stride, std::size_t count) noexcept {
    if (!source.used) return vi<Arch>(0);
    const std::uint64_t index = source.first_index + position, last = index + (lanes<Arch> - 1) * stride;
    if (source.words != nullptr || index >> 32 != last >> 32) {  // the latter once in 2^32 elements
        alignas(64) std::int32_t lane[lanes<Arch>] = {};
        for (std::size_t i = 0; i < count; ++i) {
            const std::uint32_t word =
                source.words != nullptr ? source.words[position + i * stride] : random_bits(source.seed, index + i * stride);
            lane[i] = std::bit_cast<std::int32_t>(word);
        }
        return load<Arch>(lane);
    }
    vu<Arch> v =
        as_unsigned<Arch>(iota<Arch>()) * vu<Arch>(static_cast<std::uint32_t>(stride)) + vu<Arch>(static_cast<std::uint32_t>(index));
    return mixed<Arch>(v ^ vu<Arch>(random_key(source.seed, index)));
}

/// `rows` rows of n neighbouring elements; each row begins `stride` elements behind the one before.
struct element_rows {
    std::size_t rows, n, stride;
    std::size_t span() const noexcept { return (rows - 1) * stride + n; }  ///< from the first element to the last
};
/// Stores the random bits of elements whose indices share their upper half. `index` is the lower half of the first index, `key` the
/// random_key() of them all. Each row fills whole vectors of `out`.
template <class Arch>
QK_APART void store_hashes(std::uint32_t index, std::uint32_t key, element_rows of, std::uint32_t* out) noexcept {
    const mixing_factors<Arch> by{opaque<Arch>(mixing_factors<Arch>().first), opaque<Arch>(mixing_factors<Arch>().second)};
    for (; of.rows != 0; --of.rows, index += static_cast<std::uint32_t>(of.stride)) {
        vu<Arch> number = as_unsigned<Arch>(iota<Arch>()) + vu<Arch>(index);
        for (std::size_t k = 0; k < of.n; k += lanes<Arch>, out += lanes<Arch>) {
            store<Arch>(reinterpret_cast<std::int32_t*>(out), mixed<Arch>(number ^ vu<Arch>(key), by));
            number = number + vu<Arch>(static_cast<std::uint32_t>(lanes<Arch>));
        }
    }
}
/// Stores the random bits of n neighbouring elements from `position` on; leaves the rest of the last vector as it is.
template <class Arch>
void store_random(const random_source& source, std::size_t position, std::size_t n, std::uint32_t* out) noexcept {
    constexpr std::size_t w = lanes<Arch>;
    for (std::size_t k = 0; k < n; k += w) {
        const std::size_t some = std::min(w, n - k);
        alignas(64) std::int32_t lane[w];
        store<Arch>(lane, random_lanes<Arch>(source, position + k, 1, some));
        std::memcpy(out + k, lane, some * sizeof *out);
    }
}

/// Returns the lanes that go up by chance: those of parts `rest` of steps of 2^shift.
template <class Arch>
QK_APART mask<Arch> chance_lanes(vi<Arch> rest, vi<Arch> shift, rounding_rule rule, vi<Arch> random) noexcept {
    alignas(64) std::int32_t part[lanes<Arch>], right[lanes<Arch>], word[lanes<Arch>], up[lanes<Arch>];
    store<Arch>(part, rest);
    store<Arch>(right, shift);
    store<Arch>(word, random);
    for (std::size_t i = 0; i < lanes<Arch>; ++i)
        up[i] = right[i] > 0 && goes_up_by_chance(static_cast<std::uint32_t>(part[i]), right[i], rule, static_cast<std::uint32_t>(word[i]))
                    ? -1
                    : 0;
    return load<Arch>(up) < vi<Arch>(0);
}

/// Returns |x| (as bits, finite) rounded to a multiple of the step. `negative` is the sign of x, for the roundings that look at it;
/// `odd_powers` (or null): where the code of the number below x is odd, for formats whose numbers are powers of two and roundings that look
/// at codes; in other formats the count of steps says it. A result beyond the largest float is the bits of Inf.
template <class Arch>
vi<Arch> round_magnitude(vi<Arch> a, vi<Arch> step, mask<Arch> negative, rounding_rule rule, vi<Arch> random,
                         const mask<Arch>* odd_powers = nullptr) noexcept {
    using V = vi<Arch>;
    const rounding how = rule.how;
    const V zero(0), one(1);
    const V shift = step - max(a >> 23, one);  // low bits of the significand that lie below the step
    // With 25 or more the value is less than half a step, and 24-bit arithmetic says so too.
    const V s = min(max(shift, zero), V(25));
    const V significand = (a & V(0x7fffff)) | select(a > V(0x7fffff), V(0x800000), zero);
    const V unit = one << s;
    const V below = unit - one;
    const V rest = significand & below;
    const V half = unit >> 1;
    const mask<Arch> whole = shift <= zero;
    mask<Arch> odd = ((significand & unit) != zero);
    if (odd_powers != nullptr) odd = *odd_powers;
    mask<Arch> up = negative;
    switch (how) {
        case rounding::half_even: up = (rest > half) | ((rest == half) & odd); break;
        case rounding::half_away: up = rest >= half; break;
        case rounding::half_up: up = (rest > half) | ((rest == half) & ~negative); break;
        case rounding::toward_zero: up = rest > V(0x7fffffff); break;
        case rounding::up: up = (rest > zero) & ~negative; break;
        case rounding::down: up = (rest > zero) & negative; break;
        case rounding::to_odd: up = (rest > zero) & ~odd; break;
        case rounding::stochastic_b:
        case rounding::stochastic_c: up = chance_lanes<Arch>(rest, shift, rule, random); break;
        case rounding::stochastic: {
            if (rule.bits != 32) {
                up = chance_lanes<Arch>(rest, shift, rule, random);
                break;
            }
            const V left = min(max(V(32) - shift, zero), V(31));
            const V right = min(max(shift - V(32), zero), V(31));
            const V fraction = select(shift > V(32), rest >> right, rest << left);
            up = (fraction ^ V(sign_bit)) > (~random ^ V(sign_bit));  // fraction + random >= 2^32, compared as unsigned
            break;
        }
    }
    // From 24 on nothing of the value is kept, and going up gives one step, which is a normal number.
    const mask<Arch> vanishes = s > V(23);
    const V kept = select(vanishes, zero, a & ~below);
    const V increment = select(vanishes, min(step - V(23), V(255)) << 23, unit);
    const V rounded_up = kept + select(up, increment, zero);
    return select(whole, a, rounded_up);
}

/// Returns the bits of |x| as if exponents had no lower end: (exponent + 127) << 23 | fraction, where exponent + 127 may be negative. 0 has
/// a very small exponent.
template <class Arch>
vi<Arch> normalised(vi<Arch> a) noexcept {
    const vi<Arch> small = as_int<Arch>(to_float(a & vi<Arch>(0x7fffff))) - vi<Arch>(149 << 23);
    return select(a > vi<Arch>(0x7fffff), a, small);
}

/// Returns the largest bits b with value(b) <= value(constant) * 2^exponent, for a normal constant; Inf beyond the largest float.
template <class Arch>
vi<Arch> scaled_constant(std::int32_t constant, vi<Arch> exponent) noexcept {
    using V = vi<Arch>;
    const V field = V(constant >> 23) + exponent;
    const V normal = select(field > V(254), V(infinity_bits), V(constant) + (exponent << 23));
    const V subnormal = V((constant & 0x7fffff) | 0x800000) >> min(max(V(1) - field, V(0)), V(31));
    return select(field > V(0), normal, subnormal);
}

/// Is set where the float32 quotient |x| / 2^k is zero: |x| <= 2^(k - 150), since the tie goes to the even 0.
template <class Arch>
mask<Arch> quotient_is_zero(vi<Arch> a, vi<Arch> step) noexcept {
    using V = vi<Arch>;
    const V k = step - V(2 * step_bias);
    const V normal = (k + V(127)) << 23;
    const V subnormal = V(1) << min(max(k + V(149), V(0)), V(31));
    const V threshold = select(k > V(-127), normal, select(k > V(-150), subnormal, V(0)));
    return a <= threshold;
}

constexpr std::int32_t float_bits(double v) { return std::bit_cast<std::int32_t>(static_cast<float>(v)); }

/// Returns the bits of 2^e, from 2^-149 on, whatever the processor does to subnormals.
constexpr std::int32_t power_bits(int e) { return e >= -126 ? (e + 127) << 23 : e >= -149 ? 1 << (e + 149) : 0; }

/// Is true when the rules of a family flush subnormal inputs or results.
template <class Rules>
QK_INLINE constexpr bool flushes(const Rules& r) noexcept {
    return r.least_input != 0 || r.flush_below != 0;
}
/// Returns x with magnitudes below `least` replaced by zero of their sign.
template <class Arch>
vf<Arch> flushed(vf<Arch> x, std::int32_t least) noexcept {
    using V = vi<Arch>;
    const V bits = as_int<Arch>(x);
    return as_float<Arch>(select((bits & V(magnitude_bits)) < V(least), bits & V(sign_bit), bits));
}

/// Returns the rules of the half-even forms, without flushes and without a zero point that is added before rounding: only the forms of
/// other roundings need these, unless scales are very small.
template <class Rules>
QK_INLINE Rules without_flush(Rules r) noexcept {
    r.flush_below = r.least_input = 0;
    if constexpr (requires { r.zero_before; }) r.zero_before = false;
    return r;
}

}  // namespace QK_ISA
}  // namespace qk::kernels
