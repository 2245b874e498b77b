// SPDX-License-Identifier: Apache-2.0
// The pieces of ggml's block types: each function takes whole blocks of a row. ggml_plain.cpp, ggml_k.cpp and ggml_search.cpp hold them,
// ggml.cpp their table.
#pragma once

#include <array>

#include "numbers.hpp"

namespace qk::systems::ggml {

using floats = std::span<const float>;
using bytes = std::span<std::byte>;
using const_bytes = std::span<const std::byte>;

/// float to int as x86 does it: out of range, Inf and NaN give INT_MIN, whose low byte is 0.
inline int truncated(float v) {
    if (!(v > -2147483904.0f && v < 2147483648.0f)) return std::numeric_limits<int>::min();
    return static_cast<int>(v);
}
/// Rounds to nearest even by the mantissa of v + 1.5 * 2^23; keeps only 23 bits of what does not fit, as ggml does.
inline int nearest(float v) { return static_cast<int>(bits_of(v + 12582912.0f) & 0x7fffffu) - 0x400000; }
inline int within(int low, int v, int high) { return v < low ? low : v > high ? high : v; }

inline void store_half(std::byte* to, float v) {
    const std::uint16_t code = to_half(v);
    to[0] = static_cast<std::byte>(code & 0xff);
    to[1] = static_cast<std::byte>(code >> 8);
}
inline float load_half(const std::byte* from) {
    return from_half(static_cast<std::uint16_t>(std::to_integer<unsigned>(from[0]) | std::to_integer<unsigned>(from[1]) << 8));
}
inline unsigned number(std::byte b) { return std::to_integer<unsigned>(b); }
inline std::byte byte_of(unsigned v) { return static_cast<std::byte>(v & 0xff); }

/// Weights of a block under an importance: more where the row's mean square or the value's own is large.
inline void weigh(floats x, floats importance, float mean_square, std::span<float> weights) {
    for (std::size_t i = 0; i < x.size(); ++i) weights[i] = importance[i] * std::sqrt(mean_square + x[i] * x[i]);
}

/// Calls write(block of x, block of importance (or empty), its bytes) for each block of a row.
template <class Write>
void each_block(std::size_t values, std::size_t size, floats row, floats importance, bytes to, Write write) {
    for (std::size_t b = 0; b < row.size() / values; ++b) {
        write(row.subspan(b * values, values), importance.empty() ? floats{} : importance.subspan(b * values, values), &to[b * size]);
    }
}
template <class Read>
void each_block(std::size_t values, std::size_t size, const_bytes from, std::span<float> row, Read read) {
    for (std::size_t b = 0; b < row.size() / values; ++b) read(&from[b * size], row.subspan(b * values, values));
}

/// Twice the magnitudes of E2M1 with their signs, in the order in which ggml tries them.
inline constexpr float twice_e2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/// The first index of least distance: ties go to the smaller magnitude, and an x so large that all distances round to the same float
/// becomes 0.
inline unsigned nearest_e2m1(float x, float half_scale) {
    unsigned best = 0;
    float least = std::abs(twice_e2m1[0] * half_scale - x);
    for (unsigned i = 1; i < 16; ++i) {
        const float distance = std::abs(twice_e2m1[i] * half_scale - x);
        if (distance < least) {
            least = distance;
            best = i;
        }
    }
    return best;
}
/// Half of an E8M0 scale.
inline float half_e8m0(unsigned e) { return power_of_two(static_cast<int>(e) - 128); }

/// The scale searches that several types share. Each writes the codes, and returns the scale.
/// Signed codes from 0, that is, code - half, for a scale alone: rounds at 1 + 18 scales near the one that puts the extreme value on -half
/// and keeps the one of least weighted squared error. Without weights they are x^2.
float search_signed(int half, floats x, floats weights, std::span<std::int8_t> codes);
/// The same for 4 codes on either side, improved value by value instead (q3_K without importance).
float refine_signed(int half, floats x, std::span<std::int8_t> codes);
/// Scale and minimum together: x is about scale * code - minimum, minimum >= 0.
struct affine_search {
    int most;           ///< highest code
    float first, step;  ///< scales tried: (most + first + step * i) / range
    int steps;
    bool absolute;     ///< sum of |error| instead of its square
    bool from_matrix;  ///< the variant that ggml uses with an importance
};
float search_affine(const affine_search& how, floats x, floats weights, std::span<std::uint8_t> codes, float& minimum);
/// Codes from 0 to `most` for values that are not negative: the scales of a super-block.
float search_positive(int most, floats x, floats weights, std::span<std::uint8_t> codes);

void quantize_q1_0(floats, floats, bytes);
void quantize_q2_0(floats, floats, bytes);
void quantize_q4_0(floats, floats, bytes);
void quantize_q4_1(floats, floats, bytes);
void quantize_q5_0(floats, floats, bytes);
void quantize_q5_1(floats, floats, bytes);
void quantize_q8_0(floats, floats, bytes);
void quantize_tq1_0(floats, floats, bytes);
void quantize_tq2_0(floats, floats, bytes);
void quantize_mxfp4(floats, floats, bytes);
void quantize_nvfp4(floats, floats, bytes);
void quantize_iq4_nl(floats, floats, bytes);
void quantize_iq4_xs(floats, floats, bytes);
void quantize_q2_k(floats, floats, bytes);
void quantize_q3_k(floats, floats, bytes);
void quantize_q4_k(floats, floats, bytes);
void quantize_q5_k(floats, floats, bytes);
void quantize_q6_k(floats, floats, bytes);

void dequantize_q1_0(const_bytes, std::span<float>);
void dequantize_q2_0(const_bytes, std::span<float>);
void dequantize_q4_0(const_bytes, std::span<float>);
void dequantize_q4_1(const_bytes, std::span<float>);
void dequantize_q5_0(const_bytes, std::span<float>);
void dequantize_q5_1(const_bytes, std::span<float>);
void dequantize_q8_0(const_bytes, std::span<float>);
void dequantize_tq1_0(const_bytes, std::span<float>);
void dequantize_tq2_0(const_bytes, std::span<float>);
void dequantize_mxfp4(const_bytes, std::span<float>);
void dequantize_nvfp4(const_bytes, std::span<float>);
void dequantize_iq4_nl(const_bytes, std::span<float>);
void dequantize_iq4_xs(const_bytes, std::span<float>);
void dequantize_q2_k(const_bytes, std::span<float>);
void dequantize_q3_k(const_bytes, std::span<float>);
void dequantize_q4_k(const_bytes, std::span<float>);
void dequantize_q5_k(const_bytes, std::span<float>);
void dequantize_q6_k(const_bytes, std::span<float>);

}  // namespace qk::systems::ggml
