// SPDX-License-Identifier: Apache-2.0
// Implements CumSum and CumProd along one axis, forwards or backwards, including or excluding the element itself.
#pragma once

#include "graph/ops/binary.hpp"
#include "graph/ops/walk/rules.hpp"

namespace qk::graph::ops {

template <class F>
void cumulate(op_context& call, int neutral) {
    const tensor& x = call.input(0);
    const std::size_t axis = normal_axis(call, scalar_value<std::int64_t>(call, call.input(1)), x.rank());
    const bool exclusive = call.node().get_int("exclusive", 0) != 0, reverse = call.node().get_int("reverse", 0) != 0;
    const axis_split s = split_at(x.shape(), axis);
    tensor& y = call.output(0, x.type(), x.shape());
    dispatch(call, x.type(), number_types, [&]<class T>(type_tag<T>) {
        for (std::size_t o = 0; o < s.outer; ++o)
            for (std::size_t j = 0; j < s.inner; ++j) {
                T total = static_cast<T>(neutral);
                for (std::size_t i = 0; i < s.length; ++i) {
                    const std::size_t at = (o * s.length + (reverse ? s.length - 1 - i : i)) * s.inner + j;
                    const T next = F{}(total, x.as<T>()[at]);
                    y.as<T>()[at] = exclusive ? total : next;
                    total = next;
                }
            }
    });
}

inline void cum_sum(op_context& call) { cumulate<functions::add>(call, 0); }
inline void cum_prod(op_context& call) { cumulate<functions::multiply>(call, 1); }

inline constexpr op_entry cumulative_ops[] = {
    {"", "CumSum", 11, through_float32<cum_sum>, nullptr, {follow_cumulative}, {0, all_but_first}},
    {"", "CumProd", 26, through_float32<cum_prod>, nullptr, {follow_cumulative}},
};

}  // namespace qk::graph::ops
