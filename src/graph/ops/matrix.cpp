// SPDX-License-Identifier: Apache-2.0
// Defines matrix.hpp in one file, because every file that includes Eigen takes seconds to compile.
#include "graph/ops/matrix.hpp"

#include <Eigen/Core>
#include <type_traits>

namespace qk::graph::ops {

template <class T>
void multiply(matrix_operand<T> a, matrix_operand<T> b, T* c, std::int64_t c_stride, std::int64_t m, std::int64_t n, std::int64_t k) {
    using rows = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    using read = Eigen::Map<const rows, Eigen::Unaligned, Eigen::OuterStride<>>;
    if (m == 0 || n == 0) return;
    const read left(a.data, a.transposed ? k : m, a.transposed ? m : k, Eigen::OuterStride<>(a.stride));
    const read right(b.data, b.transposed ? n : k, b.transposed ? k : n, Eigen::OuterStride<>(b.stride));
    Eigen::Map<rows, Eigen::Unaligned, Eigen::OuterStride<>> to(c, m, n, Eigen::OuterStride<>(c_stride));
    if (k == 0) to.setZero();
    else if (!a.transposed && !b.transposed) to.noalias() = left * right;
    else if (a.transposed && !b.transposed) to.noalias() = left.transpose() * right;
    else if (!a.transposed) to.noalias() = left * right.transpose();
    else to.noalias() = left.transpose() * right.transpose();
}

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

template void multiply<float>(matrix_operand<float>, matrix_operand<float>, float*, std::int64_t, std::int64_t, std::int64_t, std::int64_t);
template void multiply<double>(matrix_operand<double>, matrix_operand<double>, double*, std::int64_t, std::int64_t, std::int64_t,
                               std::int64_t);
#define QK_MULTIPLY(T) template void multiply<T>(const T*, bool, const T*, bool, T*, std::int64_t, std::int64_t, std::int64_t)
QK_MULTIPLY(float);
QK_MULTIPLY(double);
QK_MULTIPLY(std::int32_t);
QK_MULTIPLY(std::uint32_t);
QK_MULTIPLY(std::int64_t);
QK_MULTIPLY(std::uint64_t);
#undef QK_MULTIPLY

}  // namespace qk::graph::ops
