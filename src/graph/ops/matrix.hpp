// SPDX-License-Identifier: Apache-2.0
// Multiplies row-major matrices on raw pointers: with Eigen for floats, with plain loops for integers. It uses one thread, and the order of
// a sum depends on sizes only.
#pragma once

#include <cstdint>

namespace qk::graph::ops {

/// A row-major operand of a product: its rows are `stride` elements apart, and it is read as it lies or transposed.
template <class T>
struct matrix_operand {
    const T* data;
    std::int64_t stride;
    bool transposed = false;
};

/// Computes c[m,n] = a * b, with rows of c `c_stride` elements apart. T is float or double.
template <class T>
void multiply(matrix_operand<T> a, matrix_operand<T> b, T* c, std::int64_t c_stride, std::int64_t m, std::int64_t n, std::int64_t k);

/// Computes c[m,n] = a * b, where a is [m,k] (or [k,m] read transposed) and b is [k,n] (or [n,k] read transposed). T is float, double, or
/// an integer of 32 or 64 bits, which wraps.
template <class T>
void multiply(const T* a, bool a_transposed, const T* b, bool b_transposed, T* c, std::int64_t m, std::int64_t n, std::int64_t k);

}  // namespace qk::graph::ops
