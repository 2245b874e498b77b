// SPDX-License-Identifier: Apache-2.0
// Vector-Jacobian products of com.microsoft's EmbedLayerNormalization, MatMulNBits and GatherBlockQuantized, which compute in float32.
#pragma once

#include <vector>

#include "graph/gradient/backward.hpp"
#include "graph/gradient/ops/normalization.hpp"
#include "graph/ops/embeddings.hpp"
#include "graph/ops/qgemm.hpp"

namespace qk::graph::gradient {

/// The operator adds up rows of tables and normalizes the sum: gradients go through the normalization and back to the rows.
inline void embed_normalization_backward(backward_call& call) {
    op_context context = call.context();
    const tensor tables[] = {call.real<float>(2), call.real<float>(3), call.optional_real<float>(4)};
    const tensor gamma = call.real<float>(5);
    const std::size_t hidden = gamma.size(), tokens = call.input(0).size(), length = static_cast<std::size_t>(call.input(0).dim(1));
    const std::vector<std::int64_t> words = ops::integers(context, 0);
    const std::vector<std::int64_t> segments = ops::optional_integers(context, 1), places = ops::optional_integers(context, 8);
    const auto row = [&](std::size_t table, std::size_t token) -> std::size_t {
        if (table == 0) return static_cast<std::size_t>(words[token]);
        if (table == 2) return segments.empty() ? 0 : static_cast<std::size_t>(segments[token]);
        return places.empty() ? token % length : static_cast<std::size_t>(places[places.size() == words.size() ? token : token % length]);
    };
    tensor given[] = {zeros<float>(tables[0].shape()), zeros<float>(tables[1].shape()),
                      tables[2].empty() ? tensor() : zeros<float>(tables[2].shape())};
    tensor dgamma = zeros<float>(gamma.shape()), dbeta = zeros<float>(gamma.shape());
    std::vector<float> x(hidden), h(hidden), n(hidden), dx(hidden);
    const double epsilon = static_cast<double>(call.node().get_float("epsilon", 1e-12f));
    for (std::size_t token = 0; token < tokens; ++token) {
        std::fill(x.begin(), x.end(), 0.0f), std::fill(dx.begin(), dx.end(), 0.0f);
        for (std::size_t t = 0; t < 3; ++t)
            for (std::size_t i = 0; !tables[t].empty() && i < hidden; ++i) x[i] += tables[t].as<float>()[row(t, token) * hidden + i];
        if (call.has_gradient(0)) {
            const float* g = call.gradient(0).as<float>().data() + token * hidden;
            for (std::size_t i = 0; i < hidden; ++i) h[i] = g[i] * gamma.as<float>()[i];
            normalized_row_gradient(x.data(), h.data(), hidden, epsilon, true, n.data(), dx.data());
            for (std::size_t i = 0; i < hidden; ++i) dgamma.as<float>()[i] += g[i] * n[i], dbeta.as<float>()[i] += g[i];
        }
        for (std::size_t i = 0; call.has_gradient(2) && i < hidden; ++i) dx[i] += call.gradient(2).as<float>()[token * hidden + i];
        for (std::size_t t = 0; t < 3; ++t)
            for (std::size_t i = 0; !given[t].empty() && i < hidden; ++i) given[t].as<float>()[row(t, token) * hidden + i] += dx[i];
    }
    for (std::size_t t = 0; t < 3; ++t)
        if (!given[t].empty()) call.give(2 + t, given[t]);
    call.give(5, dgamma);
    call.give(6, dbeta);
}

/// Handles A times packed weights: by A, by the weights' scales, by the bias. If the operator rounds A to bytes, that counts as the
/// identity (straight-through).
inline void matmul_nbits_backward(backward_call& call) {
    op_context context = call.context();
    const tensor zero_points = ops::optional_input(context, 3), blocks_of = ops::optional_input(context, 4);
    const tensor weights = ops::detail::unpacked_nbits(call.node(), call.input(1), call.input(2), zero_points, blocks_of);
    const ops::detail::nbits_shape s(call.node());
    const tensor a = call.real<float>(0), g = as_real<float>(call.gradient());
    const auto rows = static_cast<std::int64_t>(a.size()) / s.k;
    if (call.wants(3)) call.fail("no vector-Jacobian product for the zero points of MatMulNBits");
    if (call.wants(0)) {
        tensor da = zeros<float>(a.shape());
        ops::multiply(g.as<float>().data(), false, weights.as<float>().data(), false, da.as<float>().data(), rows, s.k, s.n);
        call.give(0, da);
    }
    if (call.wants(2)) {
        tensor dw = zeros<float>(weights.shape()), ones(data_type::float32, call.input(2).shape()), d = zeros<float>(call.input(2).shape());
        std::fill(ones.as<float>().begin(), ones.as<float>().end(), 1.0f);
        const tensor codes = ops::detail::unpacked_nbits(call.node(), call.input(1), ones, zero_points, blocks_of);
        ops::multiply(g.as<float>().data(), true, a.as<float>().data(), false, dw.as<float>().data(), s.n, s.k, rows);
        const std::vector<std::int64_t> groups = ops::optional_integers(context, 4);
        for (std::int64_t r = 0; r < s.n; ++r)
            for (std::int64_t i = 0; i < s.k; ++i) {
                const std::int64_t block = groups.empty() ? i / s.block : groups[static_cast<std::size_t>(i)];
                const auto at = static_cast<std::size_t>(r * s.k + i);
                d.as<float>()[static_cast<std::size_t>(r * s.blocks + block)] += dw.as<float>()[at] * codes.as<float>()[at];
            }
        call.give(2, d);
    }
    if (call.wants(5)) call.give(5, reduced_to<float>(g.reshaped({rows, s.n}), {s.n}));
}

/// The result is (code - zero point) * scale: run with scales of 1, the operator gives its derivative by the scales.
inline void gather_block_backward(backward_call& call) {
    const tensor& scales = call.input(2);
    std::vector<tensor> in(call.inputs().begin(), call.inputs().end());
    in[2] = tensor(data_type::float32, scales.shape());
    std::fill(in[2].as<float>().begin(), in[2].as<float>().end(), 1.0f);
    const tensor codes = as_real<float>(call.forward(in)[0]), g = as_real<float>(call.gradient());
    op_context context = call.context();
    const std::vector<std::int64_t> indices = ops::integers(context, 1);
    const std::int64_t rows = call.input(0).dim(0), block = call.node().get_int("block_size", 128), width = codes.shape().back(),
                       blocks = (width + block - 1) / block;
    tensor d = zeros<float>(scales.shape());
    for (std::size_t n = 0; n < indices.size(); ++n)
        for (std::int64_t i = 0; i < width; ++i) {
            const std::size_t at = n * static_cast<std::size_t>(width) + static_cast<std::size_t>(i);
            const std::int64_t row = indices[n] < 0 ? indices[n] + rows : indices[n];
            d.as<float>()[static_cast<std::size_t>(row * blocks + i / block)] += g.as<float>()[at] * codes.as<float>()[at];
        }
    call.give(2, d);
}

inline constexpr backward_entry packed_backward_rows[] = {
    {"com.microsoft", "EmbedLayerNormalization", 1, embed_normalization_backward},
    {"com.microsoft", "MatMulNBits", 1, matmul_nbits_backward},
    {"com.microsoft", "GatherBlockQuantized", 1, gather_block_backward},
};

}  // namespace qk::graph::gradient
