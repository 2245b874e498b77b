// SPDX-License-Identifier: Apache-2.0
// Row-major matrix products on raw pointers: Eigen for floats (compiled once, in src/graph/ops/matrix.cpp), plain loops for integers. One
// thread; the order of a sum depends on sizes only.
#pragma once

#include <type_traits>

#include "qk/graph/base/tensor.hpp"

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

/// c[m,n] = a * b, where a is [m,k] (or [k,m] read transposed) and b is [k,n] (or [n,k] read transposed). Integers wrap.
template <class T>
void multiply(const T* a, bool a_transposed, const T* b, bool b_transposed, T* c, std::int64_t m, std::int64_t n, std::int64_t k) {
    if constexpr (std::is_floating_point_v<T>) {
        multiply<T>({a, a_transposed ? m : k, a_transposed}, {b, b_transposed ? k : n, b_transposed}, c, n, m, n, k);
    } else {
        using U = std::make_unsigned_t<T>;  // wraps without undefined behaviour
        for (std::int64_t i = 0; i < m; ++i)
            for (std::int64_t j = 0; j < n; ++j) {
                U sum = 0;
                for (std::int64_t p = 0; p < k; ++p)
                    sum = static_cast<U>(sum + static_cast<U>(static_cast<U>(a[a_transposed ? p * m + i : i * k + p]) *
                                                              static_cast<U>(b[b_transposed ? j * k + p : p * n + j])));
                c[i * n + j] = static_cast<T>(sum);
            }
    }
}

}  // namespace qk::graph::ops
