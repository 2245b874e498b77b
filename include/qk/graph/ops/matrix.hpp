// SPDX-License-Identifier: Apache-2.0
// Row-major matrix products on raw pointers: Eigen for floats, plain loops for integers. One thread; the order of a sum depends on sizes
// only.
#pragma once

#include <Eigen/Core>
#include <type_traits>

#include "qk/graph/base/tensor.hpp"

namespace qk::graph::ops {

template <class T>
using row_matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class T>
using matrix_view = Eigen::Map<row_matrix<T>, Eigen::Unaligned, Eigen::OuterStride<>>;
template <class T>
using const_matrix_view = Eigen::Map<const row_matrix<T>, Eigen::Unaligned, Eigen::OuterStride<>>;

/// c[m,n] = a * b, where a is [m,k] (or [k,m] read transposed) and b is [k,n] (or [n,k] read transposed). Integers wrap.
template <class T>
void multiply(const T* a, bool a_transposed, const T* b, bool b_transposed, T* c, std::int64_t m, std::int64_t n, std::int64_t k) {
    if (m == 0 || n == 0) return;
    if constexpr (std::is_floating_point_v<T>) {
        const_matrix_view<T> am(a, a_transposed ? k : m, a_transposed ? m : k, Eigen::OuterStride<>(a_transposed ? m : k));
        const_matrix_view<T> bm(b, b_transposed ? n : k, b_transposed ? k : n, Eigen::OuterStride<>(b_transposed ? k : n));
        matrix_view<T> cm(c, m, n, Eigen::OuterStride<>(n));
        if (k == 0) cm.setZero();
        else if (!a_transposed && !b_transposed) cm.noalias() = am * bm;
        else if (a_transposed && !b_transposed) cm.noalias() = am.transpose() * bm;
        else if (!a_transposed) cm.noalias() = am * bm.transpose();
        else cm.noalias() = am.transpose() * bm.transpose();
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
