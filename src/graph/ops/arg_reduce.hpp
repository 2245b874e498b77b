// SPDX-License-Identifier: Apache-2.0
// Implements ArgMax and ArgMin: the first (or with select_last_index the last) position of the extreme along one axis.
#pragma once

#include "graph/ops/dispatch.hpp"
#include "graph/ops/types.hpp"
#include "graph/ops/walk/rules.hpp"

namespace qk::graph::ops {

template <bool Largest>
void arg_reduce(op_context& call) {
    const tensor& x = call.input(0);
    const std::size_t axis = x.rank() == 0 ? 0 : normal_axis(call, call.node().get_int("axis", 0), x.rank());
    const bool last = call.node().get_int("select_last_index", 0) != 0;
    const axis_split s = split_at(x.shape(), axis);
    dims shape = x.shape();
    if (!shape.empty()) {
        if (call.node().get_int("keepdims", 1) != 0) shape[axis] = 1;
        else shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(axis));
    }
    tensor& y = call.output(0, data_type::int64, shape);
    if (s.length == 0 && y.size() != 0) call.fail("the axis is empty");
    dispatch(call, x.type(), number_types, [&]<class T>(type_tag<T>) {
        const T* from = x.as<T>().data();
        std::int64_t* to = y.as<std::int64_t>().data();
        for (std::size_t o = 0; o < s.outer; ++o, from += s.length * s.inner)
            for (std::size_t j = 0; j < s.inner; ++j) {
                std::size_t best = 0;
                T value = from[j];
                for (std::size_t i = 1; i < s.length; ++i) {
                    const T v = from[i * s.inner + j];
                    const bool better = Largest ? v > value : v < value;
                    // The first NaN counts as the extreme, as in numpy.
                    if (better || (last && v == value) || (v != v && value == value)) best = i, value = v;
                }
                *to++ = static_cast<std::int64_t>(best);
            }
    });
}

inline constexpr op_entry arg_reduce_ops[] = {
    {"", "ArgMax", 1, through_float32<arg_reduce<true>>, nullptr, {follow_arg}, {.traits = reduces, .types = gives_int64}},
    {"", "ArgMin", 1, through_float32<arg_reduce<false>>, nullptr, {follow_arg}, {.traits = reduces, .types = gives_int64}},
};

}  // namespace qk::graph::ops
