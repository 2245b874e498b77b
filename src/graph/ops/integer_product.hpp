// SPDX-License-Identifier: Apache-2.0
// Multiplies integer matrices exactly at the speed of float32: codes minus zero points, with sums split before they could round.
#pragma once

#include <algorithm>
#include <cmath>

#include "graph/ops/elements.hpp"
#include "graph/ops/matrix.hpp"
#include "graph/ops/op.hpp"
#include "graph/ops/working_type.hpp"

namespace qk::graph::ops {

/// Fails unless the codes are integers of 8 or 16 bits, which integer products take.
inline void check_codes(const op_context& call, const tensor& codes) {
    switch (codes.type()) {
        case data_type::int8:
        case data_type::uint8:
        case data_type::int16:
        case data_type::uint16: return;
        default: call.fail(std::string("type ") + name_of(codes.type()) + " is no integer of 8 or 16 bits");
    }
}

/// Writes codes minus the zero point as floats. This is exact, because codes have at most 16 bits.
inline void center(const tensor& codes, std::size_t begin, std::span<float> out, float zero_point) {
    read_elements<float>(codes.type(), codes.bytes() + begin * size_of(codes.type()), out);
    if (zero_point == 0) return;
    for (float& v : out) v -= zero_point;
}

/// Computes c[m,n] += a[m,k] * b[k,n] for integers held as floats. `piece` is working memory for m * n floats.
///
/// Every partial sum over a piece of `k` is at most 2^24 in magnitude, so float32 holds it exactly in any order of additions. The pieces
/// are added as integers, which wrap as the standard's int32 does.
inline void multiply_integers(const float* a, const float* b, std::int32_t* c, std::int64_t m, std::int64_t n, std::int64_t k,
                              float* piece) {
    if (m == 0 || n == 0 || k == 0) return;
    float largest_a = 1, largest_b = 1;
    for (std::int64_t i = 0; i < m * k; ++i) largest_a = std::max(largest_a, std::fabs(a[i]));
    for (std::int64_t i = 0; i < k * n; ++i) largest_b = std::max(largest_b, std::fabs(b[i]));
    if (static_cast<double>(largest_a) * static_cast<double>(largest_b) > 0x1p24) {  // 16 by 16 bits: one product can already exceed 2^24
        for (std::int64_t i = 0; i < m; ++i)
            for (std::int64_t l = 0; l < k; ++l) {
                const auto left = static_cast<std::int64_t>(a[i * k + l]);
                for (std::int64_t j = 0; j < n; ++j)
                    c[i * n + j] = static_cast<std::int32_t>(static_cast<std::uint32_t>(c[i * n + j]) +
                                                             static_cast<std::uint32_t>(left * static_cast<std::int64_t>(b[l * n + j])));
            }
        return;
    }
    const auto step =
        std::max<std::int64_t>(1, static_cast<std::int64_t>(0x1p24 / (static_cast<double>(largest_a) * static_cast<double>(largest_b))));
    for (std::int64_t from = 0; from < k; from += step) {
        const std::int64_t length = std::min(step, k - from);
        multiply<float>({a + from, k}, {b + from * n, n}, piece, n, m, n, length);
        for (std::int64_t i = 0; i < m * n; ++i) {
            c[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(c[i]) +
                                             static_cast<std::uint32_t>(static_cast<std::int32_t>(piece[i])));
        }
    }
}

/// Writes round(sum * multiplier) + zero_point, clamped to the codes of T; ties go to even.
template <class T>
void requantize(const std::int32_t* sum, std::size_t n, float multiplier, std::int64_t zero_point, T* y) {
    constexpr auto lowest = static_cast<float>(std::numeric_limits<T>::min());
    constexpr auto highest = static_cast<float>(std::numeric_limits<T>::max());
    const auto zero = static_cast<float>(zero_point);
    const auto shift = static_cast<std::int32_t>(zero_point);
    for (std::size_t i = 0; i < n; ++i) {
        float q = std::nearbyint(static_cast<float>(sum[i]) * multiplier);
        q = std::min(std::max(lowest - zero, q), highest - zero);  // in this order NaN (0 * Inf, a scale of NaN) gives the lowest code
        y[i] = static_cast<T>(static_cast<std::int32_t>(q) + shift);
    }
}

/// Calls f with an int8 or a uint8, according to `t`. Fails for other types.
template <class F>
void with_byte_type(const op_context& call, data_type t, F&& f) {
    if (t == data_type::int8) f(std::int8_t{});
    else if (t == data_type::uint8) f(std::uint8_t{});
    else call.fail(std::string("type ") + name_of(t) + " is not int8 or uint8");
}

/// Returns the value of input i, a scalar, or 0 when it is absent. Fails if it holds several values.
inline float optional_scalar(op_context& call, std::size_t i) {
    if (!call.has_input(i)) return 0;
    const tensor t = input_as<float>(call, i);
    if (t.size() != 1) call.fail("input " + std::to_string(i) + " must be one value, not " + to_string(t.shape()));
    return t.as<float>()[0];
}

}  // namespace qk::graph::ops
