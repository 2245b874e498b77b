// SPDX-License-Identifier: Apache-2.0
// Multiplies the gradients of several passes by weights at once: as rows of one matrix, so that weights are read and packed once for all
// passes and not once for each.
#pragma once

#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "graph/evaluate/execute/network.hpp"
#include "graph/gradient/product.hpp"
#include "graph/ops/matmul.hpp"

namespace qk::graph::gradient {

/// Is true if only the gradient by input 0 is wanted and the node multiplies its rows by a matrix: MatMul, or Gemm with alpha 1 and without
/// transA.
inline bool multiplies_rows(const execute::net_node& node, std::span<const tensor> read, std::span<const char> wanted) {
    const std::string_view op = node.view.op_type();
    if (!node.view.proto().domain().empty() || (op != "MatMul" && op != "Gemm") || read.size() < 2) return false;
    for (std::size_t i = 0; i < wanted.size(); ++i)
        if ((wanted[i] != 0) != (i == 0)) return false;
    if (read[0].rank() < 2 || read[1].rank() != 2 || read[0].size() == 0 || read[1].size() == 0) return false;
    return op == "MatMul" || (node.view.get_int("transA", 0) == 0 && node.view.get_float("alpha", 1.0f) == 1.0f);
}

/// Writes to `given`, by pass, the gradients by input 0. `gradients`, those of the result, are freed as they are read; for empty ones
/// nothing is written.
template <class T>
void rows_through_weights(const execute::net_node& node, const tensor& x, const tensor& weights, std::span<tensor> gradients,
                          std::span<tensor> given) {
    const bool turned = node.view.op_type() == "Gemm" && node.view.get_int("transB", 0) != 0;
    const tensor w = as_real<T>(weights);
    const std::int64_t n = w.dim(!turned), k = w.dim(turned);
    constexpr std::size_t most_bytes = std::size_t{16} << 20;  // bytes of gradients that are copied into one matrix
    for (std::size_t first = 0; first < gradients.size();) {
        std::vector<std::size_t> taken;
        std::size_t bytes = 0;
        for (; first < gradients.size() && (taken.empty() || bytes + gradients[first].size_bytes() <= most_bytes); ++first) {
            if (gradients[first].empty()) continue;
            taken.push_back(first);
            bytes += gradients[first].size_bytes();
        }
        if (taken.empty()) return;
        const std::int64_t rows = static_cast<std::int64_t>(x.size()) / k, all = rows * static_cast<std::int64_t>(taken.size());
        tensor together = gradients[taken[0]];
        if (taken.size() > 1) {
            together = tensor(type_of<T>, {all, n});
            std::byte* to = together.bytes();
            for (const std::size_t p : taken) {
                std::memcpy(to, std::as_const(gradients[p]).bytes(), gradients[p].size_bytes());
                to += gradients[p].size_bytes();
            }
        }
        for (const std::size_t p : taken) gradients[p] = tensor();
        tensor result(type_of<T>, {all, k});
        ops::multiply(std::as_const(together).as<T>().data(), false, w.as<T>().data(), !turned, result.as<T>().data(), all, k, n);
        const std::size_t size = x.size() * sizeof(T);
        for (std::size_t i = 0; i < taken.size(); ++i) {
            tensor& g = given[taken[i]] = tensor(type_of<T>, x.shape());
            std::memcpy(g.bytes(), std::as_const(result).bytes() + i * size, size);
        }
    }
}

/// Calls the function above with the element type of the gradients.
inline void rows_through_weights(const execute::net_node& node, std::span<const tensor> read, std::span<tensor> gradients,
                                 std::span<tensor> given) {
    for (const tensor& g : gradients) {
        if (g.empty()) continue;
        return g.type() == data_type::float64 ? rows_through_weights<double>(node, read[0], read[1], gradients, given)
                                              : rows_through_weights<float>(node, read[0], read[1], gradients, given);
    }
}

}  // namespace qk::graph::gradient
