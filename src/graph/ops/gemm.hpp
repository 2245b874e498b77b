// SPDX-License-Identifier: Apache-2.0
// Implements Gemm: alpha * A * B + beta * C, where A and B may be transposed and C is broadcast to the result.
#pragma once

#include "graph/ops/binary.hpp"
#include "graph/ops/dispatch.hpp"
#include "graph/ops/matrix.hpp"
#include "graph/ops/product_axes.hpp"
#include "graph/ops/walk/rules.hpp"

namespace qk::graph::ops {

template <class T>
void gemm_of(op_context& c) {
    const tensor &a = c.input(0), &b = c.input(1);
    if (a.rank() != 2 || b.rank() != 2)
        c.fail("A of shape " + to_string(a.shape()) + " and B of shape " + to_string(b.shape()) + " must be matrices");
    if (a.type() != b.type()) c.fail("A and B must have one type");
    const bool ta = c.node().get_int("transA", 0) != 0, tb = c.node().get_int("transB", 0) != 0;
    const std::int64_t m = a.dim(ta), k = a.dim(!ta), n = b.dim(!tb);
    if (b.dim(tb) != k) c.fail("A of shape " + to_string(a.shape()) + " and B of shape " + to_string(b.shape()) + " cannot be multiplied");
    tensor& y = c.output(0, a.type(), {m, n});
    T* yp = y.as<T>().data();
    multiply(a.as<T>().data(), ta, b.as<T>().data(), tb, yp, m, n, k);
    const float alpha = c.node().get_float("alpha", 1.0f), beta = c.node().get_float("beta", 1.0f);
    const functions::multiply times{};  // integers wrap
    if (alpha != 1.0f)
        for (T& v : y.as<T>()) v = times(number_as<T>(alpha), v);
    if (!c.has_input(2) || beta == 0.0f) return;
    const tensor& add = c.input(2);
    const std::int64_t rows = add.rank() < 2 ? 1 : add.dim(0), columns = add.rank() < 1 ? 1 : add.dim(add.rank() - 1);
    if (add.type() != a.type() || add.rank() > 2 || (rows != 1 && rows != m) || (columns != 1 && columns != n))
        c.fail("C of shape " + to_string(add.shape()) + " cannot be broadcast to " + to_string(y.shape()));
    const T* ap = add.as<T>().data();
    for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j) {
            const T v = ap[(rows == 1 ? 0 : i) * columns + (columns == 1 ? 0 : j)];
            yp[i * n + j] = functions::add{}(yp[i * n + j], beta == 1.0f ? v : times(number_as<T>(beta), v));
        }
}

inline void gemm(op_context& c) {
    run_by_type(c, product_types, "A of type ", " is not a type of Gemm", []<class T>(type_tag<T>, op_context& call) { gemm_of<T>(call); });
}

// clang-format off
inline constexpr op_entry gemm_ops[] = {
    {"", "Gemm", 1, gemm, nullptr, {follow_gemm}, {.traits = layer | moves_channels | biased | sums_axes, .inputs = 2, .axes = gemm_axes}}};
// clang-format on

}  // namespace qk::graph::ops
