// SPDX-License-Identifier: Apache-2.0
// Vector-Jacobian products of operators that only move elements of their inputs: Reshape, Transpose, Concat, Slice, Gather, Pad, Where, ...
//
// movement_backward() fits them all: it runs the operator itself on numbers that count its inputs' elements, so the result says where each
// of its elements came from. Every attribute and every version is right because the operator is. Some operators have faster products.
#pragma once

#include <cstring>
#include <vector>

#include "graph/gradient/backward.hpp"
#include "graph/gradient/reduce_to.hpp"
#include "graph/model/operator_name.hpp"
#include "graph/ops/resize.hpp"
#include "graph/ops/transpose.hpp"

namespace qk::graph::gradient {

/// Returns as bits which inputs' elements an operator moves; its other inputs are indices, shapes, conditions.
constexpr unsigned moved_inputs(operator_name op) {
    if (op == "Concat") return ~0u;
    if (op == "Where") return 0b110;
    if (op == "Pad" || op == "Scatter" || op == "ScatterElements" || op == "ScatterND") return 0b101;
    if (op == "TensorScatter") return 0b11;
    if (op == "OneHot") return 0b100;
    return 1;
}

template <class T>
void follow_elements(backward_call& call) {
    const unsigned moved = moved_inputs(operator_of(call.node()));
    std::vector<tensor> numbered(call.inputs().begin(), call.inputs().end());
    std::vector<std::int64_t> first(numbered.size() + 1, 1);  // 0 marks an element that comes from no input: padding
    for (std::size_t i = 0; i < numbered.size(); ++i) {
        first[i + 1] = first[i];
        if (!call.has_input(i) || (moved >> std::min<std::size_t>(i, 31) & 1) == 0) continue;
        numbered[i] = tensor(data_type::int64, call.input(i).shape());
        for (std::int64_t& n : numbered[i].as<std::int64_t>()) n = first[i + 1]++;
    }
    const std::vector<tensor> from = call.forward(numbered, call.output_count());
    std::vector<tensor> given(numbered.size());
    std::vector<T*> place(static_cast<std::size_t>(first.back()), nullptr);  // where the gradient of each numbered element goes
    for (std::size_t i = 0; i < numbered.size(); ++i) {
        if (!call.wants(i)) continue;
        given[i] = zeros<T>(call.input(i).shape());
        for (std::int64_t n = first[i]; n < first[i + 1]; ++n)
            place[static_cast<std::size_t>(n)] = given[i].as<T>().data() + (n - first[i]);
    }
    for (std::size_t k = 0; k < call.output_count(); ++k) {
        if (!call.has_gradient(k)) continue;
        const auto g = call.gradient(k).as<T>();
        const auto number = from[k].as<std::int64_t>();
        for (std::size_t i = 0; i < g.size(); ++i)
            if (T* to = place[static_cast<std::size_t>(number[i])]; to != nullptr) *to += g[i];
    }
    for (std::size_t i = 0; i < numbered.size(); ++i)
        if (call.wants(i)) call.give(i, given[i]);
}

inline void movement_backward(backward_call& call) {
    with_gradient_type(call, [&]<class T>(T) { follow_elements<T>(call); });
}
inline void scatter_backward(backward_call& call) {
    if (const std::string how = call.node().get_string("reduction", "none"); how != "none")
        call.fail("no vector-Jacobian product for " + std::string(call.node().op_type()) + " with reduction '" + how + "'");
    movement_backward(call);
}

/// Handles operators that keep the elements and their order, such as Reshape.
inline void same_order_backward(backward_call& call) {
    if (call.has_gradient()) call.give(0, call.gradient());
}
/// Handles Dropout at inference; in training mode it fails.
inline void dropout_backward(backward_call& call) {
    if (call.has_input(2) && call.input(2).size() == 1) {
        op_context context = call.context();
        if (ops::scalar_value<bool>(context, call.input(2))) call.fail("no vector-Jacobian product for Dropout while it trains");
    }
    same_order_backward(call);
}

inline void transpose_backward(backward_call& call) {
    op_context context = call.context();
    const std::size_t rank = call.input(0).rank();
    std::vector<std::size_t> back(rank);
    const auto perm = call.node().get_ints("perm");
    for (std::size_t i = 0; i < rank; ++i) back[perm.empty() ? rank - 1 - i : ops::normal_axis(context, perm[i], rank)] = i;
    call.give(0, ops::transposed(context, call.gradient(), back));
}

inline void concat_backward(backward_call& call) {
    const std::size_t axis = ops::normal_axis(call.context(), call.node().get_int("axis", 1), call.input(0).rank());
    const tensor& g = call.gradient();
    const ops::axis_split s = ops::split_at(g.shape(), axis);
    const std::size_t width = size_of(g.type()), row = s.length * s.inner * width;
    const std::byte* from = g.bytes();
    for (std::size_t k = 0; k < call.input_count(); ++k) {
        const std::size_t piece = static_cast<std::size_t>(call.input(k).dim(axis)) * s.inner * width;
        if (call.wants(k)) {
            tensor d(g.type(), call.input(k).shape());
            for (std::size_t o = 0; piece != 0 && o < s.outer; ++o) std::memcpy(d.bytes() + o * piece, from + o * row, piece);
            call.give(k, d);
        }
        from += piece;
    }
}

/// Sends the gradients of TopK's values to where its indices say.
inline void top_k_backward(backward_call& call) {
    with_gradient_type(call, [&]<class T>(T) {
        op_context context = call.context();
        const tensor& x = call.input(0);
        const std::size_t axis = ops::normal_axis(context, call.node().get_int("axis", -1), x.rank());
        const std::vector<tensor> made = call.forward(call.inputs(), 2);
        const ops::axis_split s = ops::split_at(x.shape(), axis);
        const std::size_t n = static_cast<std::size_t>(made[1].dim(axis));
        tensor dx = zeros<T>(x.shape());
        const auto index = made[1].as<std::int64_t>();
        for (std::size_t o = 0; o < s.outer; ++o)
            for (std::size_t i = 0; i < n; ++i)
                for (std::size_t j = 0; j < s.inner; ++j) {
                    const std::size_t at = (o * n + i) * s.inner + j;
                    dx.as<T>()[(o * s.length + static_cast<std::size_t>(index[at])) * s.inner + j] += call.gradient().as<T>()[at];
                }
        call.give(0, dx);
    });
}

/// Resize and Upsample multiply by a matrix along each axis; this multiplies by the transposes, last axis first.
inline void resize_backward(backward_call& call) {
    with_gradient_type(call, [&]<class T>(T) {
        op_context context = call.context();
        const dims& shape = call.input(0).shape();
        const auto plans = operator_of(call.node()) == "Upsample" ? ops::plan_upsample(context) : ops::plan_resize(context);
        tensor g = call.gradient();
        for (std::size_t a = shape.size(); a-- > 0;) {
            const ops::resize_axis& plan = plans.axes[a];
            if (plan.identity(shape[a])) continue;
            dims smaller = g.shape();
            smaller[a] = shape[a];
            tensor d = zeros<T>(smaller);
            const ops::axis_split s = ops::split_at(smaller, a);
            const T* from = g.as<T>().data();
            for (std::size_t o = 0; o < s.outer; ++o)
                for (std::size_t i = 0; i < static_cast<std::size_t>(plan.output); ++i, from += s.inner)
                    for (std::size_t t = 0; t < plan.taps && !plan.outside[i]; ++t) {
                        T* to = d.as<T>().data() + (o * s.length + static_cast<std::size_t>(plan.index[i * plan.taps + t])) * s.inner;
                        const T w = plan.taps == 1 ? T{1} : static_cast<T>(plan.weight[i * plan.taps + t]);
                        for (std::size_t j = 0; j < s.inner; ++j) to[j] += w * from[j];
                    }
            g = d;
        }
        call.give(0, g);
    });
}

inline constexpr backward_entry movement_backward_rows[] = {
    {"", "Identity", 1, same_order_backward},
    {"", "Cast", 1, same_order_backward},
    {"", "CastLike", 1, same_order_backward},
    {"", "Reshape", 1, same_order_backward},
    {"", "Flatten", 1, same_order_backward},
    {"", "Squeeze", 1, same_order_backward},
    {"", "Unsqueeze", 1, same_order_backward},
    {"", "Dropout", 1, dropout_backward},
    {"", "Transpose", 1, transpose_backward},
    {"", "Concat", 1, concat_backward},
    {"", "Split", 1, movement_backward},
    {"", "Slice", 1, movement_backward},
    {"", "Gather", 1, movement_backward},
    {"", "GatherElements", 1, movement_backward},
    {"", "GatherND", 1, movement_backward},
    {"", "Compress", 1, movement_backward},
    {"", "Expand", 1, movement_backward},
    {"", "Tile", 1, movement_backward},
    {"", "Pad", 1, movement_backward},
    {"", "CenterCropPad", 1, movement_backward},
    {"", "DepthToSpace", 1, movement_backward},
    {"", "SpaceToDepth", 1, movement_backward},
    {"", "ReverseSequence", 1, movement_backward},
    {"", "Trilu", 1, movement_backward},
    {"", "Where", 1, movement_backward},
    {"", "OneHot", 1, movement_backward},
    {"", "Scatter", 1, scatter_backward},
    {"", "ScatterElements", 1, scatter_backward},
    {"", "ScatterND", 1, scatter_backward},
    {"", "TensorScatter", 1, movement_backward},
    {"", "TopK", 1, top_k_backward},
    {"", "Resize", 1, resize_backward},
    {"", "Upsample", 1, resize_backward},
    {"", "MaxUnpool", 9, movement_backward},
    {"", "OptionalGetElement", 15, same_order_backward},
};

}  // namespace qk::graph::gradient
