// SPDX-License-Identifier: Apache-2.0
// Products of floats by Eigen, which takes the compiler seconds wherever it stands.
#include "qk/graph/ops/matrix.hpp"

#include <Eigen/Core>

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

template void multiply<float>(matrix_operand<float>, matrix_operand<float>, float*, std::int64_t, std::int64_t, std::int64_t, std::int64_t);
template void multiply<double>(matrix_operand<double>, matrix_operand<double>, double*, std::int64_t, std::int64_t, std::int64_t,
                               std::int64_t);

}  // namespace qk::graph::ops
