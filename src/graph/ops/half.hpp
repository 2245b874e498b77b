// SPDX-License-Identifier: Apache-2.0
// Converts float16 and bfloat16 to float32, which is exact, and back, rounding to nearest even. The loops vectorise.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "qk/graph/base/tensor.hpp"

namespace qk::graph::ops {

constexpr float to_float(brain x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16); }

constexpr float to_float(half x) {
    const std::uint32_t sign = static_cast<std::uint32_t>(x.bits & 0x8000u) << 16;
    const std::uint32_t magnitude = x.bits & 0x7fffu;
    // Going from 5 to 8 exponent bits is a multiplication by 2^(127-15), which also turns subnormals into normal numbers.
    const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
    const std::uint32_t special = magnitude << 13 | 0x7f800000u;  // Inf and NaN keep their payload
    const std::uint32_t bits = magnitude >= 0x7c00u ? special : std::bit_cast<std::uint32_t>(scaled);
    return std::bit_cast<float>(bits | sign);
}

constexpr brain to_brain(float x) {
    const std::uint32_t u = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t rounded = u + 0x7fffu + (u >> 16 & 1u);
    const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
    return {static_cast<std::uint16_t>((nan ? u | 0x400000u : rounded) >> 16)};
}

constexpr half to_half(float x) {
    const std::uint32_t u = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t magnitude = u & 0x7fffffffu;
    // Normal results: drop 13 bits with ties to even and change the bias. A carry may raise the exponent, even to Inf.
    const std::uint32_t normal = (magnitude + 0xfffu + (magnitude >> 13 & 1u) - 0x38000000u) >> 13;
    // Subnormal results are multiples of 2^-24, which is the ulp of floats in [0.5, 1): adding 0.5 rounds to such a multiple.
    const std::uint32_t subnormal =
        std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude < 0x38800000u ? magnitude : 0u) + 0.5f) - 0x3f000000u;
    std::uint32_t code = magnitude < 0x38800000u ? subnormal : normal;
    code = magnitude >= 0x477ff000u ? 0x7c00u : code;  // 65520 and above
    code = magnitude > 0x7f800000u ? 0x7e00u : code;
    return {static_cast<std::uint16_t>(code | (u >> 16 & 0x8000u))};
}

template <class Narrow>
void widen(std::span<const Narrow> x, std::span<float> y) {
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = to_float(x[i]);
}
inline void narrow(std::span<const float> x, std::span<half> y) {
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = to_half(x[i]);
}
inline void narrow(std::span<const float> x, std::span<brain> y) {
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = to_brain(x[i]);
}

}  // namespace qk::graph::ops
