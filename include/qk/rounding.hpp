// SPDX-License-Identifier: Apache-2.0
// How a value between two codes chooses one.
#pragma once

#include <cstdint>

#include "qk/isa.hpp"

namespace qk {

enum class rounding : std::uint8_t {
    half_even,     ///< nearest, ties to the even code (IEEE roundTiesToEven)
    half_away,     ///< nearest, ties away from zero
    half_up,       ///< nearest, ties toward +infinity
    toward_zero,   ///< truncate
    up,            ///< toward +infinity
    down,          ///< toward -infinity
    stochastic,    ///< away from zero with the probability of the remainder; random bits from (seed, element index)
    to_odd,        ///< what is no number of the format goes to the neighbour with the odd code
    stochastic_b,  ///< as stochastic, with the fraction rounded half up to as many bits as there are random ones (IEEE P3109's StochasticB)
    stochastic_c,  ///< as stochastic, with the fraction rounded half even to as many bits (StochasticC); `stochastic` cuts it (StochasticA)
};

inline namespace QK_ISA {

/// Is true for the roundings that need random bits.
constexpr bool is_stochastic(rounding r) { return r == rounding::stochastic || r == rounding::stochastic_b || r == rounding::stochastic_c; }

// Stochastic rounding, exactly. With f the fraction of a step by which |x| exceeds the code below it, and h the 32 random bits
// of the element, |x| goes up when floor(f * 2^32) + h >= 2^32. The bits are a function of the seed and of the element's index in
// the array alone, so a result depends neither on vector width nor on threads nor, given the index, on how an array was cut.
// With n random bits (semantics::stochastic_bits), h is the upper n bits of the word and 2^n stands for 2^32.

/// A bijection of 32-bit words whose output bits each depend on every input bit (two rounds of xor-shift and multiply).
constexpr std::uint32_t mix_bits(std::uint32_t v) {
    v = (v ^ (v >> 16)) * 0x7feb352du;
    v = (v ^ (v >> 15)) * 0x846ca68bu;
    return v ^ (v >> 16);
}

/// What the seed and the upper half of an index contribute: one value for each 2^32 elements.
constexpr std::uint32_t random_key(std::uint64_t seed, std::uint64_t index) {
    const std::uint32_t low = mix_bits(static_cast<std::uint32_t>(seed) + 0x9e3779b9u);
    const std::uint32_t high = mix_bits(static_cast<std::uint32_t>(seed >> 32) ^ low);
    return mix_bits(static_cast<std::uint32_t>(index >> 32) + high);
}

/// The 32 random bits of an element.
constexpr std::uint32_t random_bits(std::uint64_t seed, std::uint64_t index) {
    return mix_bits(static_cast<std::uint32_t>(index) ^ random_key(seed, index));
}

}  // namespace QK_ISA

}  // namespace qk
