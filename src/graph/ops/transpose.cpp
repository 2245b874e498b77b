// SPDX-License-Identifier: Apache-2.0
// Definitions of transpose.hpp.
#include "graph/ops/transpose.hpp"

namespace qk::graph::ops {

merged_permutation::merged_permutation(std::span<const std::int64_t> shape, std::span<const std::size_t> order) {
    const auto strides = row_major_strides(shape);
    for (const std::size_t from : order) {
        const auto n = static_cast<std::size_t>(shape[from]);
        if (n == 1) continue;
        if (!length.empty() && stride.back() == strides[from] * n) {
            length.back() *= n;
            stride.back() = strides[from];
        } else {
            length.push_back(n);
            stride.push_back(strides[from]);
        }
    }
    if (length.empty()) {
        length.push_back(1);
        stride.push_back(1);
    }
}

tensor transposed(op_context& call, const tensor& x, std::span<const std::size_t> order) {
    dims shape(x.rank());
    for (std::size_t i = 0; i < shape.size(); ++i) shape[i] = x.dim(order[i]);
    if (merged_permutation(x.shape(), order).length.size() == 1 && x.size() != 0) return x.reshaped(shape);  // nothing moves
    tensor y = call.scratch(x.type(), shape);
    dispatch_width(call, x.type(), [&]<class T>(type_tag<T>) { transpose_elements(x.as<T>().data(), x.shape(), order, y.as<T>().data()); });
    return y;
}

void transpose(op_context& call) {
    const tensor& x = call.input(0);
    std::vector<std::size_t> order(x.rank());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = order.size() - 1 - i;
    if (call.node().has("perm")) {
        const auto perm = call.node().get_ints("perm");
        std::vector<bool> seen(x.rank());
        if (perm.size() != x.rank())
            call.fail("perm has " + std::to_string(perm.size()) + " entries for an input of shape " + to_string(x.shape()));
        for (std::size_t i = 0; i < perm.size(); ++i) {
            order[i] = normal_axis(call, perm[i], x.rank());
            if (seen[order[i]]) call.fail("perm names an axis twice");
            seen[order[i]] = true;
        }
    }
    call.set_output(0, transposed(call, x, order));
}

}  // namespace qk::graph::ops
