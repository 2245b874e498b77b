// SPDX-License-Identifier: Apache-2.0
// Implements Det by Gaussian elimination with row exchanges, in double.
#pragma once

#include <cmath>
#include <utility>

#include "qk/graph/ops/dispatch.hpp"

namespace qk::graph::ops {

/// Returns the determinant of a row-major n x n matrix, which it overwrites.
inline double determinant(std::vector<double>& m, std::size_t n) {
    double d = 1;
    for (std::size_t k = 0; k < n; ++k) {
        std::size_t pivot = k;
        for (std::size_t i = k + 1; i < n; ++i)
            if (std::abs(m[i * n + k]) > std::abs(m[pivot * n + k])) pivot = i;
        if (m[pivot * n + k] == 0) return 0;
        if (pivot != k) {
            for (std::size_t j = k; j < n; ++j) std::swap(m[k * n + j], m[pivot * n + j]);
            d = -d;
        }
        d *= m[k * n + k];
        for (std::size_t i = k + 1; i < n; ++i) {
            const double f = m[i * n + k] / m[k * n + k];
            for (std::size_t j = k + 1; j < n; ++j) m[i * n + j] -= f * m[k * n + j];
        }
    }
    return d;
}

inline void det(op_context& call) {
    const tensor& x = call.input(0);
    if (x.rank() < 2 || x.dim(x.rank() - 1) != x.dim(x.rank() - 2))
        call.fail("the last two axes of " + to_string(x.shape()) + " are not a square matrix");
    const auto n = static_cast<std::size_t>(x.shape().back());
    tensor& y = call.output(0, x.type(), dims(x.shape().begin(), x.shape().end() - 2));
    dispatch(call, x.type(), float_types, [&]<class T>(type_tag<T>) {
        for (std::size_t i = 0; i < y.size(); ++i) {
            std::vector<double> m(x.as<T>().begin() + static_cast<std::ptrdiff_t>(i * n * n),
                                  x.as<T>().begin() + static_cast<std::ptrdiff_t>((i + 1) * n * n));
            y.as<T>()[i] = static_cast<T>(determinant(m, n));
        }
    });
}

inline constexpr op_entry determinant_ops[] = {{"", "Det", 11, through_float32<det>}};

}  // namespace qk::graph::ops
