// SPDX-License-Identifier: Apache-2.0
// Row-major matrix products on raw pointers: Eigen for floats, plain loops for integers. One thread; the order of a sum depends on sizes
// only.
#pragma once

#include <cstdint>

namespace qk::graph::ops {

/// A row-major matrix as a product reads it: rows `stride` elements apart, read as they lie or transposed.
template <class T>
struct matrix_operand {
    const T* data;
    std::int64_t stride;
    bool transposed = false;
};

/// c[m,n] = a * b, rows of c `c_stride` elements apart; T is float or double.
template <class T>
void multiply(matrix_operand<T> a, matrix_operand<T> b, T* c, std::int64_t c_stride, std::int64_t m, std::int64_t n, std::int64_t k);

/// c[m,n] = a * b, where a is [m,k] (or [k,m] read transposed) and b is [k,n] (or [n,k] read transposed). T is a float of 32 or 64 bits or
/// an integer of as many, which wraps.
template <class T>
void multiply(const T* a, bool a_transposed, const T* b, bool b_transposed, T* c, std::int64_t m, std::int64_t n, std::int64_t k);

}  // namespace qk::graph::ops
