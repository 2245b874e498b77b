// SPDX-License-Identifier: Apache-2.0
// Implements MatMul as numpy's matmul: leading axes broadcast, vectors become matrices.
#pragma once

#include "graph/base/inner_loop.hpp"
#include "graph/ops/dispatch.hpp"
#include "graph/ops/matrix.hpp"
#include "graph/ops/product_axes.hpp"
#include "graph/ops/walk/rules.hpp"

namespace qk::graph::ops {

/// How two shapes multiply: a batch of [m,k] x [k,n] products.
struct matmul_plan {
    std::int64_t m = 1, n = 1, k = 1;
    dims shape;                    ///< shape of the result
    dims a_batch, b_batch, batch;  ///< leading axes: of a and b, padded with ones, and of the result

    /// Calls f(product, matrix of a, matrix of b) for every product.
    template <class F>
    void each(F&& f) const {
        each(0, static_cast<std::int64_t>(element_count(batch)), f);
    }
    /// Calls f for the products in [first, last) only.
    template <class F>
    void each(std::int64_t first, std::int64_t last, F&& f) const {
        for (std::int64_t i = first; i < last; ++i) {
            std::int64_t rest = i, ia = 0, ib = 0, sa = 1, sb = 1;
            for (std::size_t d = batch.size(); d-- > 0;) {
                const std::int64_t at = rest % batch[d];
                rest /= batch[d];
                ia += (a_batch[d] == 1 ? 0 : at) * sa, ib += (b_batch[d] == 1 ? 0 : at) * sb;
                sa *= a_batch[d], sb *= b_batch[d];
            }
            f(i, ia, ib);
        }
    }
};

matmul_plan plan_matmul(const node_view& node, dims a, dims b);

template <class T>
void matmul_of(op_context& c) {
    const tensor &a = c.input(0), &b = c.input(1);
    if (a.type() != b.type()) c.fail("both operands must have one type");
    const matmul_plan p = plan_matmul(c.node(), a.shape(), b.shape());
    tensor& y = c.output(0, a.type(), p.shape);
    const T *ap = a.as<T>().data(), *bp = b.as<T>().data();
    T* yp = y.as<T>().data();
    bool one_matrix = b.rank() == 2 && a.rank() >= 2;  // b is one matrix (weights): one product for all rows of a
    if (y.size() == 0) return;
    if (one_matrix) return multiply(ap, false, bp, false, yp, static_cast<std::int64_t>(y.size()) / p.n, p.n, p.k);
    const auto work = static_cast<std::size_t>(p.m * p.n) * static_cast<std::size_t>(p.k) / 8;
    for_each_range(element_count(p.batch), work, [&](std::size_t first, std::size_t last) {
        p.each(static_cast<std::int64_t>(first), static_cast<std::int64_t>(last), [&](std::int64_t i, std::int64_t ia, std::int64_t ib) {
            multiply(ap + ia * p.m * p.k, false, bp + ib * p.k * p.n, false, yp + i * p.m * p.n, p.m, p.n, p.k);
        });
    });
}

inline void matmul(op_context& c) {
    run_by_type(c, product_types, "operand of type ", " is not a type of MatMul",
                []<class T>(type_tag<T>, op_context& call) { matmul_of<T>(call); });
}

// clang-format off
inline constexpr op_entry matmul_ops[] = {
    {"", "MatMul", 1, matmul, nullptr, {follow_matmul}, {.traits = layer | moves_channels | sums_axes, .inputs = 2, .axes = matmul_axes}}};
// clang-format on

}  // namespace qk::graph::ops
