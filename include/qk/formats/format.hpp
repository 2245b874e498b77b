// SPDX-License-Identifier: Apache-2.0
// Any format as one run-time value: what files, command lines and plans hold.
#pragma once

#include "qk/exact/begin.hpp"

#include <variant>

#include "qk/formats/block_float.hpp"
#include "qk/formats/floating.hpp"
#include "qk/formats/integer.hpp"
#include "qk/formats/microexponent.hpp"
#include "qk/formats/microscaling.hpp"
#include "qk/formats/table.hpp"

namespace qk {

using format = std::variant<floating, integer, block_float, microexponent, microscaling, nvfloat, table>;

namespace detail {

/// Calls `call` with the family's struct in `f`. (std::visit would go through a table, can throw, and takes the compiler longer.)
template <class Call>
constexpr auto with_family(const format& f, const Call& call) noexcept {
    if (const auto* g = std::get_if<floating>(&f)) return call(*g);
    if (const auto* g = std::get_if<integer>(&f)) return call(*g);
    if (const auto* g = std::get_if<block_float>(&f)) return call(*g);
    if (const auto* g = std::get_if<microexponent>(&f)) return call(*g);
    if (const auto* g = std::get_if<microscaling>(&f)) return call(*g);
    if (const auto* g = std::get_if<nvfloat>(&f)) return call(*g);
    return call(*std::get_if<table>(&f));
}

}  // namespace detail

constexpr double bits_per_value(floating f) { return bits(f); }
constexpr double bits_per_value(integer f) { return f.bits; }
constexpr double bits_per_value(const table& f) { return bits(f); }
/// Storage per value in bits, shared scales and exponents spread over their blocks.
constexpr double bits_per_value(const format& f) {
    return detail::with_family(f, [](const auto& g) -> double { return bits_per_value(g); });
}

constexpr int block_size(floating) { return 0; }
constexpr int block_size(integer) { return 0; }
constexpr int block_size(const table&) { return 0; }
constexpr int block_size(const block_float& f) { return f.block_size; }
constexpr int block_size(const microexponent& f) { return f.block_size; }
constexpr int block_size(const microscaling& f) { return f.block_size; }
constexpr int block_size(const nvfloat& f) { return f.block_size; }
/// Values that share a scale or exponent by the format's own rule; 0 for elementwise formats.
constexpr int block_size(const format& f) {
    return detail::with_family(f, [](const auto& g) { return block_size(g); });
}

constexpr bool is_block_format(const format& f) { return block_size(f) > 0; }
constexpr bool is_table_format(const format& f) { return std::holds_alternative<table>(f); }
constexpr bool is_integer_format(const format& f) { return std::holds_alternative<integer>(f); }
constexpr bool is_identity(const format& f) {
    const floating* g = std::get_if<floating>(&f);
    return g != nullptr && *g == fp32;
}

}  // namespace qk

#include "qk/exact/end.hpp"
