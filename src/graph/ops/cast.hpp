// SPDX-License-Identifier: Apache-2.0
// Implements Cast and CastLike: any numeric type to any other, with the bits that the standard's tables give.
#pragma once

#include <cstring>

#include "graph/ops/elements.hpp"
#include "graph/ops/op.hpp"
#include "graph/ops/types.hpp"
#include "graph/ops/walk/rules.hpp"

namespace qk::graph::ops {

/// Converts `from` to the type of `to`, which has the same shape.
inline void cast_elements(const op_context& call, const tensor& from, tensor& to, cast_rules rules = {}) {
    if (from.type() == to.type()) {
        std::memcpy(to.bytes(), from.bytes(), from.size_bytes());
        return;
    }
    constexpr std::size_t chunk = 512;  // fits the L1 cache even in the widest type
    const std::size_t in_size = size_of(from.type());
    const std::size_t out_size = size_of(to.type());
    const auto through = [&]<class Wide>(Wide) {
        Wide wide[chunk];
        for (std::size_t begin = 0; begin < from.size(); begin += chunk) {
            const std::size_t n = std::min(chunk, from.size() - begin);
            const bool read = read_elements<Wide>(from.type(), from.bytes() + begin * in_size, std::span<Wide>(wide, n));
            const bool written = read && write_elements<Wide>(std::span<const Wide>(wide, n), to.type(), to.bytes() + begin * out_size,
                                                              rules, from.type() == data_type::uint64);
            if (!written) {
                call.fail(std::string("cannot cast ") + name_of(from.type()) + " to " + name_of(to.type()));
            }
        }
    };
    if (is_integer_type(from.type()) || from.type() == data_type::boolean) through(std::int64_t{});
    else if (from.type() == data_type::float64) through(double{});
    else through(float{});
}

namespace detail {

inline void cast_to(op_context& call, data_type type) {
    const tensor& x = call.input(0);
    if (type == x.type()) {
        call.set_output(0, x);
        return;
    }
    cast_rules rules;
    rules.saturate = call.node().get_int("saturate", 1) != 0;
    const std::string mode = call.node().get_string("round_mode", "up");
    if (mode == "down") rules.round_mode = cast_rules::e8m0_rounding::down;
    else if (mode == "nearest") rules.round_mode = cast_rules::e8m0_rounding::nearest;
    else if (mode != "up") call.fail("round_mode '" + mode + "' is none of up, down, nearest");
    if (size_of(type) == 0 || size_of(x.type()) == 0) {
        call.fail(std::string("cannot cast ") + name_of(x.type()) + " to " + name_of(type) + ": strings are not supported");
    }
    cast_elements(call, x, call.output(0, type, x.shape()), rules);
}

}  // namespace detail

inline void run_cast(op_context& call) {
    if (call.node().version() < 6) {
        const std::string to = call.node().get_string("to", "");
        const data_type type = type_called(to);
        if (type == data_type::undefined) call.fail("attribute to='" + to + "' is not a type this evaluator casts to");
        return detail::cast_to(call, type);
    }
    const auto to = static_cast<data_type>(call.node().get_int("to", 0));
    detail::cast_to(call, to);
}

inline void run_cast_like(op_context& call) { detail::cast_to(call, call.input(1).type()); }

// clang-format off
inline constexpr op_entry cast_ops[] = {
    {"", "Cast", 1, run_cast, nullptr,
     {follow_cast, 0, 1}, {.traits = exact | reckons | keeps_all | repeats, .values = first_input, .types = cast_types}},
    {"", "CastLike", 15, run_cast_like, nullptr, {follow_unary}, {.traits = reckons, .types = like<1>}},
};
// clang-format on

}  // namespace qk::graph::ops
