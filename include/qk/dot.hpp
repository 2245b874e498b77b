// SPDX-License-Identifier: Apache-2.0
// Dot products and matrix products as a device adds them: packed operands of any two formats, an accumulator that is a value.
//
//   qk::dot<qk::mxfp4, qk::mxfp8_e4m3, qk::accumulators::exact>({packed_a, k}, {packed_b, k}, c)
//   qk::dot<qk::fp8_e4m3fn, qk::fp8_e4m3fn, qk::devices::nvidia_hopper_wgmma_f32_e4m3_e4m3.accumulator>(a, b, c)
//   qk::matrix_multiply_add(format_a, format_b, accumulator, {m, n, k}, packed_a, packed_b, c, d)     known when running: the same bits
//
// Contract, for every overload:
//   - Operands are what qk::encode writes (docs/reference/layouts.md). A is [m][k] with blocks along k, B is [k][n] with blocks along k.
//     An integer's zero point is subtracted from its codes; a scale that the caller keeps is the caller's to apply (or `requantize`'s).
//     Scales of blocks belong to the terms, as on the device. NVFP4's tensor scales belong to the terms of an exact sum; elsewhere their
//     float32 product multiplies the sum of the products, and C is added by an fma, as an epilogue does it.
//   - C and the result are values that `addend` and `result` hold: float, double for fp64, std::int64_t for integers, or codes.
//   - NaN and Inf follow IEEE 754 for the exact sum of all terms; an accumulator's fields say what else a device does.
//   - Nothing is allocated or thrown; one thread; re-entrant. Preconditions: check_operands(a, b, accumulator) is empty, spans are as large
//     as the shapes say, the processor rounds to nearest without flushing, integers of more than 30 bits under a floating sum have zero
//     point 0.
#pragma once

#include "qk/exact/begin.hpp"

#include <type_traits>

#include "qk/dot/check_operands.hpp"
#include "qk/dot/fused.hpp"
#include "qk/dot/rounded.hpp"
#include "qk/dot/whole.hpp"
#include "qk/isa.hpp"

namespace qk {

/// A packed row of `size` values.
struct packed_vector {
    std::span<const std::byte> bytes;
    std::size_t size = 0;
    std::int64_t zero_point = 0;
};

/// Rows of A and D, columns of B and D, terms of a sum.
struct product_shape {
    std::size_t m = 1, n = 1, k = 0;
};

struct packed_matrix {
    const_planes planes;
    std::int64_t zero_point = 0;
};

/// The type in which a sum is returned.
template <accumulator Acc>
using sum_type = std::conditional_t<Acc.sum == summation::integer, std::int64_t, std::conditional_t<Acc.result == fp64, double, float>>;

inline namespace QK_ISA {

/// Returns a[0] * b[0] + ... + c.
template <auto A, auto B, accumulator Acc>
sum_type<Acc> dot(packed_vector a, packed_vector b, sum_type<Acc> c = 0, dot_counts* counts = nullptr) noexcept;

/// Computes the same with everything known only at run time. C and the result are stored codes: 16 bits for fp16 and bf16, 64 bits for
/// fp64, 64-bit two's complement for integers, otherwise float32's bits.
inline std::uint64_t dot(const format& fa, const format& fb, const accumulator& acc, packed_vector a, packed_vector b, std::uint64_t c,
                         dot_counts* counts = nullptr) noexcept;

/// Computes D = A B + C, [m][n] each; c may be empty for zeros, and may be d.
template <auto A, auto B, accumulator Acc>
void matrix_multiply_add(product_shape shape, packed_matrix a, packed_matrix b, std::span<const sum_type<Acc>> c,
                         std::span<sum_type<Acc>> d, dot_counts* counts = nullptr) noexcept;
inline void matrix_multiply_add(const format& fa, const format& fb, const accumulator& acc, product_shape shape, packed_matrix a,
                                packed_matrix b, std::span<const std::uint64_t> c, std::span<std::uint64_t> d,
                                dot_counts* counts = nullptr) noexcept;

}  // namespace QK_ISA

}  // namespace qk

#include "qk/dot/multiply.hpp"

#include "qk/exact/end.hpp"
