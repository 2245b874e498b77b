// SPDX-License-Identifier: Apache-2.0
// The vector-Jacobian product of CumProd.
#pragma once

#include <vector>

#include "graph/gradient/backward.hpp"
#include "graph/gradient/ops/signal.hpp"

namespace qk::graph::gradient {

/// The gradient by x[k] sums g[i] times the product of all factors of element i but x[k], over the elements i that x[k] is a factor of.
inline void cumulative_product_backward(backward_call& call) {
    const bool exclusive = call.node().get_int("exclusive", 0) != 0, reverse = call.node().get_int("reverse", 0) != 0;
    op_context context = call.context();
    const tensor x = call.real<double>(0), g = as_real<double>(call.gradient());
    const auto axis = ops::normal_axis(context, ops::scalar_value<std::int64_t>(context, call.input(1)), x.rank());
    const ops::axis_split s = ops::split_at(x.shape(), axis);
    std::vector<double> d(x.size(), 0.0);
    for (std::size_t o = 0; o < s.outer; ++o)
        for (std::size_t j = 0; j < s.inner; ++j) {
            const auto at = [&](std::size_t k) { return (o * s.length + (reverse ? s.length - 1 - k : k)) * s.inner + j; };
            double before = 1;
            for (std::size_t k = 0; k < s.length; ++k) {
                double others = before;  // product of all factors of element i but x[k]
                for (std::size_t i = k; i < s.length; ++i) {
                    if (exclusive && i + 1 == s.length) break;
                    if (i > k) others *= x.as<double>()[at(i)];
                    d[at(k)] += g.as<double>()[at(exclusive ? i + 1 : i)] * others;
                }
                before *= x.as<double>()[at(k)];
            }
        }
    give_doubles(call, 0, d);
}

inline constexpr backward_entry cumulative_backward_rows[] = {{"", "CumProd", 26, cumulative_product_backward}};

}  // namespace qk::graph::gradient
