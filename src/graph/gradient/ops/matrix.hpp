// SPDX-License-Identifier: Apache-2.0
// Vector-Jacobian products of Gemm, MatMul, Einsum, and of com.microsoft's FusedGemm and FusedMatMul.
#pragma once

#include <utility>
#include <vector>

#include "graph/gradient/backward.hpp"
#include "graph/gradient/ops/convolution.hpp"
#include "graph/gradient/reduce_to.hpp"
#include "graph/ops/einsum.hpp"
#include "graph/ops/matmul.hpp"

namespace qk::graph::gradient {

template <class T>
tensor scaled(const tensor& x, float factor) {
    if (factor == 1.0f) return x;
    tensor y(type_of<T>, x.shape());
    for (std::size_t i = 0; i < x.size(); ++i) y.as<T>()[i] = x.as<T>()[i] * static_cast<T>(factor);
    return y;
}

/// Gives the gradients of alpha * A * B + beta * C from g, that of the result.
template <class T>
void gemm_product_of(backward_call& call, const tensor& g) {
    const node_view& node = call.node();
    const bool ta = node.get_int("transA", 0) != 0, tb = node.get_int("transB", 0) != 0;
    const tensor a = call.real<T>(0), b = call.real<T>(1);
    const std::int64_t m = a.dim(ta), k = a.dim(!ta), n = b.dim(!tb);
    const tensor d = scaled<T>(g, node.get_float("alpha", 1.0f));
    const T *pa = a.as<T>().data(), *pb = b.as<T>().data(), *pd = d.as<T>().data();
    if (call.wants(0)) {
        tensor da = zeros<T>(a.shape());
        if (ta) ops::multiply(pb, tb, pd, true, da.as<T>().data(), k, m, n);
        else ops::multiply(pd, false, pb, !tb, da.as<T>().data(), m, k, n);
        call.give(0, da);
    }
    if (call.wants(1)) {
        tensor db = zeros<T>(b.shape());
        if (tb) ops::multiply(pd, true, pa, ta, db.as<T>().data(), n, k, m);
        else ops::multiply(pa, !ta, pd, false, db.as<T>().data(), k, n, m);
        call.give(1, db);
    }
    if (call.wants(2)) call.give(2, reduced_to<T>(scaled<T>(g, node.get_float("beta", 1.0f)), call.input(2).shape()));
}

inline void gemm_backward(backward_call& call) {
    with_gradient_type(call, [&]<class T>(T) { gemm_product_of<T>(call, call.gradient()); });
}
inline void fused_gemm_backward(backward_call& call) {
    with_gradient_type(call, [&]<class T>(T) {
        const double first = static_cast<double>(call.node().get_float("activation_alpha", 0.01f)),
                     second = static_cast<double>(call.node().get_float("activation_beta", 0.5f));
        gemm_product_of<T>(call, through_fused_activation<T>(call, call.result<T>(0), first, second));
    });
}

/// Adds up products of matrices, matrix by matrix of one tensor. The first product for a matrix is stored, so each matrix must get one at
/// least.
template <class T>
class added_products {
  public:
    added_products(tensor* to, std::int64_t rows, std::int64_t columns) : to_(to), rows_(rows), columns_(columns) {
        if (to != nullptr) begun_.assign(to->size() / std::max<std::size_t>(static_cast<std::size_t>(rows * columns), 1), 0);
    }
    void add(std::int64_t at, const T* a, bool a_transposed, const T* b, bool b_transposed, std::int64_t inner) {
        T* place = to_->template as<T>().data() + at * rows_ * columns_;
        if (std::exchange(begun_[static_cast<std::size_t>(at)], 1) == 0)
            return ops::multiply(a, a_transposed, b, b_transposed, place, rows_, columns_, inner);
        part_.resize(static_cast<std::size_t>(rows_ * columns_));
        ops::multiply(a, a_transposed, b, b_transposed, part_.data(), rows_, columns_, inner);
        add_into(part_.data(), part_.size(), place);
    }

  private:
    tensor* to_;
    std::int64_t rows_, columns_;
    std::vector<char> begun_;
    std::vector<T> part_;  ///< a product to be added
};

/// Computes the gradients of numpy's matmul from g into *da and *db, which may be null; vectors count as a row and as a column.
template <class T>
void matmul_gradients(const node_view& node, const tensor& a, const tensor& b, const tensor& g, tensor* da, tensor* db) {
    const ops::matmul_plan p = ops::plan_matmul(node, a.shape(), b.shape());
    const T *pa = a.as<T>().data(), *pb = b.as<T>().data(), *pg = g.as<T>().data();
    if (g.size() == 0) {
        if (da != nullptr) *da = zeros<T>(a.shape());
        if (db != nullptr) *db = zeros<T>(b.shape());
        return;
    }
    if (da != nullptr) *da = tensor(type_of<T>, a.shape());
    if (db != nullptr) *db = tensor(type_of<T>, b.shape());
    if (b.rank() == 2 && a.rank() >= 2) {  // b is a single matrix: all rows at once
        const std::int64_t rows = static_cast<std::int64_t>(g.size()) / p.n;
        if (da != nullptr) ops::multiply(pg, false, pb, true, da->as<T>().data(), rows, p.k, p.n);
        if (db != nullptr) ops::multiply(pa, true, pg, false, db->as<T>().data(), p.k, p.n, rows);
        return;
    }
    added_products<T> of_a(da, p.m, p.k), of_b(db, p.k, p.n);
    p.each([&](std::int64_t i, std::int64_t ia, std::int64_t ib) {
        const T* from = pg + i * p.m * p.n;
        if (da != nullptr) of_a.add(ia, from, false, pb + ib * p.k * p.n, true, p.n);
        if (db != nullptr) of_b.add(ib, pa + ia * p.m * p.k, true, from, false, p.m);
    });
}

inline void matmul_backward(backward_call& call) {
    with_gradient_type(call, [&]<class T>(T) {
        tensor da, db;
        matmul_gradients<T>(call.node(), call.real<T>(0), call.real<T>(1), call.gradient(), call.wants(0) ? &da : nullptr,
                            call.wants(1) ? &db : nullptr);
        if (call.wants(0)) call.give(0, da);
        if (call.wants(1)) call.give(1, db);
    });
}

inline std::vector<std::size_t> inverse_order(const std::vector<std::size_t>& order) {
    std::vector<std::size_t> back(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) back[order[i]] = i;
    return back;
}

inline void fused_matmul_backward(backward_call& call) {
    const node_view& node = call.node();
    with_gradient_type(call, [&]<class T>(T) {
        op_context context = call.context();
        const auto order_a =
            ops::detail::fused_order(call.input(0).rank(), node.get_int("transA", 0) != 0, node.get_int("transBatchA", 0) != 0);
        const auto order_b =
            ops::detail::fused_order(call.input(1).rank(), node.get_int("transB", 0) != 0, node.get_int("transBatchB", 0) != 0);
        const tensor a = ops::transposed(context, call.real<T>(0), order_a), b = ops::transposed(context, call.real<T>(1), order_b);
        tensor da, db;
        matmul_gradients<T>(node, a, b, scaled<T>(call.gradient(), node.get_float("alpha", 1)), &da, &db);
        if (call.wants(0)) call.give(0, ops::transposed(context, da, inverse_order(order_a)));
        if (call.wants(1)) call.give(1, ops::transposed(context, db, inverse_order(order_b)));
    });
}

/// The gradient of operand i is the same sum of products with g in the operand's place. It is repeated along labels that stand in no other
/// term; labels that stand twice in the operand put it on the diagonal.
inline void einsum_backward(backward_call& call) {
    with_gradient_type(call, [&]<class T>(T) {
        op_context context = call.context();
        std::vector<std::size_t> ranks;
        for (std::size_t i = 0; i < call.input_count(); ++i) ranks.push_back(call.input(i).rank());
        const ops::einsum_equation e = ops::parse_einsum(context, ranks);
        for (std::size_t i = 0; i < ranks.size(); ++i) {
            if (!call.wants(i)) continue;
            std::string own;  // the labels of operand i, each once
            for (const char c : e.inputs[i])
                if (own.find(c) == std::string::npos) own += c;
            ops::labelled total{call.gradient(), e.output};
            for (std::size_t k = 0; k < ranks.size(); ++k) {
                if (k == i) continue;
                std::string keep = own;
                for (std::size_t later = k + 1; later < ranks.size(); ++later)
                    if (later != i) keep += e.inputs[later];
                total = ops::contract(context, ops::take_diagonals(context, {call.real<T>(k), e.inputs[k]}), total, keep);
            }
            const tensor one = make_tensor<T>({}, std::array{T{1}});
            total = ops::contract(context, total, {one, ""}, own);  // labels that only the result has are summed
            const tensor small = ops::arranged(context, total, own);
            const dims& shape = call.input(i).shape();
            const auto strides = ops::row_major_strides(shape);
            dims extent;
            std::vector<std::size_t> step(own.size(), 0);
            for (std::size_t l = 0; l < own.size(); ++l) {
                extent.push_back(1);
                for (std::size_t a = 0; a < shape.size(); ++a)
                    if (e.inputs[i][a] == own[l]) extent[l] = shape[a], step[l] += strides[a];
            }
            // Where an axis of length 1 meets a longer one, the gradient is summed; along a label that stands nowhere else it is repeated.
            dims all = extent;
            for (std::size_t l = 0; l < own.size(); ++l) all[l] = std::max(extent[l], small.dim(l));
            tensor d = zeros<T>(shape);
            std::vector<std::int64_t> at(own.size(), 0);
            const auto from_strides = ops::row_major_strides(small.shape());
            if (element_count(all) != 0) do {
                    std::size_t to = 0, from = 0;
                    for (std::size_t l = 0; l < own.size(); ++l) {
                        to += extent[l] == 1 ? 0 : static_cast<std::size_t>(at[l]) * step[l];
                        from += small.dim(l) == 1 ? 0 : static_cast<std::size_t>(at[l]) * from_strides[l];
                    }
                    d.as<T>()[to] += small.as<T>()[from];
                } while (ops::advance(at, all));
            call.give(i, d);
        }
    });
}

inline constexpr backward_entry matrix_backward_rows[] = {
    {"", "Gemm", 1, gemm_backward},
    {"", "MatMul", 1, matmul_backward},
    {"", "Einsum", 1, einsum_backward},
    {"com.microsoft", "FusedGemm", 1, fused_gemm_backward},
    {"com.microsoft", "FusedMatMul", 1, fused_matmul_backward},
    {"com.microsoft", "TransposeMatMul", 1, fused_matmul_backward},
};

}  // namespace qk::graph::gradient
