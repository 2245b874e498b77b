// SPDX-License-Identifier: Apache-2.0
// Any format as one run-time value: what files, command lines and plans hold.
#pragma once

#include "qk/exact/begin.hpp"

#include <type_traits>
#include <variant>

#include "qk/formats/block_float/format.hpp"
#include "qk/formats/floating/format.hpp"
#include "qk/formats/ggml/format.hpp"
#include "qk/formats/integer/format.hpp"
#include "qk/formats/microexponent/format.hpp"
#include "qk/formats/microscaling/format.hpp"
#include "qk/formats/nvfloat/format.hpp"
#include "qk/formats/table/format.hpp"
#include "qk/isa.hpp"

namespace qk {

using format = std::variant<floating, integer, block_float, microexponent, microscaling, nvfloat, table, ggml_blocks>;

namespace detail {
inline namespace QK_ISA {

/// Calls `call` with the family's struct in `f`. (std::visit would go through a table, can throw, and takes the compiler longer.) ggml's
/// blocks, to which nothing is rounded, count as no_format: NaN comes out, and no code.
template <class Call>
constexpr auto with_family(const format& f, const Call& call) noexcept {
    if (const auto* g = std::get_if<floating>(&f)) return call(*g);
    if (const auto* g = std::get_if<integer>(&f)) return call(*g);
    if (const auto* g = std::get_if<block_float>(&f)) return call(*g);
    if (const auto* g = std::get_if<microexponent>(&f)) return call(*g);
    if (const auto* g = std::get_if<microscaling>(&f)) return call(*g);
    if (const auto* g = std::get_if<nvfloat>(&f)) return call(*g);
    if (const auto* g = std::get_if<table>(&f)) return call(*g);
    return call(no_format);
}
/// The same for what only reads codes, or speaks of formats: ggml's blocks come as they are.
template <class Call>
constexpr auto with_read_family(const format& f, const Call& call) noexcept {
    if (const auto* g = std::get_if<ggml_blocks>(&f)) return call(*g);
    return with_family(f, call);
}

// What kernels, codec, products and tools ask of a family in place of its name.

template <class Format>
concept has_blocks = requires(const Format& f) {
    f.block_size;
};
/// Sub-blocks have shifts of their own.
template <class Format>
concept has_sub_blocks = has_blocks<Format> && requires(const Format& f) {
    f.sub_block_size;
};
/// Elements are a format of their own, under a scale.
template <class Format>
concept has_elements = has_blocks<Format> && requires(const Format& f) {
    f.element;
};
/// The scale is a number of a floating format, and the tensor may have one above it.
template <class Format>
concept under_floating_scales = has_elements<Format> && requires(const Format& f) {
    f.scale;
};

/// The scale is a power of two.
template <class Format>
concept under_power_scales = has_elements<Format> && !under_floating_scales<Format>;
/// Elements are counted in steps that a shared exponent gives, alone.
template <class Format>
concept in_plain_blocks = has_blocks<Format> && !has_elements<Format> && !has_sub_blocks<Format>;
/// Elementwise families: whole numbers less a zero point, floats, and codes whose values are listed.
template <class Format>
concept has_zero_points = requires(const Format& f) {
    f.symmetric;
};
template <class Format>
concept is_float = requires(const Format& f) {
    f.specials;
};
template <class Format>
concept has_listed_values = requires(const Format& f) {
    f.values;
};

}  // namespace QK_ISA
}  // namespace detail

inline namespace QK_ISA {

/// Storage per value in bits, shared scales and exponents spread over their blocks.
constexpr double bits_per_value(const format& f) {
    return detail::with_read_family(f, [](const auto& g) -> double { return bits_per_value(g); });
}

/// Values that share a scale or exponent by the format's own rule; 0 for elementwise formats.
constexpr int block_size(const format& f) {
    return detail::with_read_family(f, [](const auto& g) { return block_size(g); });
}

constexpr bool is_block_format(const format& f) { return block_size(f) > 0; }
constexpr bool is_table_format(const format& f) { return std::holds_alternative<table>(f); }
constexpr bool is_integer_format(const format& f) { return std::holds_alternative<integer>(f); }
/// Is true for formats that are only read, by decode and products: ggml's blocks.
constexpr bool is_read_only(const format& f) { return std::holds_alternative<ggml_blocks>(f); }
/// Is true for blocks under floating scales, which the tensor may have one above: NVFP4 and its like.
constexpr bool has_floating_scales(const format& f) {
    return detail::with_family(f, [](const auto& g) { return detail::under_floating_scales<std::remove_cvref_t<decltype(g)>>; });
}
/// Return the floating format of a block format's elements, or of its scales; null where they are none.
constexpr const floating* element_float(const format& f) {
    return detail::with_family(f, [](const auto& g) -> const floating* {
        if constexpr (requires { has_integer_elements(g); }) return has_integer_elements(g) ? nullptr : &g.element;
        else if constexpr (requires { g.element; }) return &g.element;
        else return nullptr;
    });
}
constexpr const floating* scale_float(const format& f) {
    return detail::with_family(f, [](const auto& g) -> const floating* {
        if constexpr (requires { g.scale; }) return &g.scale;
        else return nullptr;
    });
}
/// Returns the floating format itself, or that of a block format's elements; null where numbers are no floats.
constexpr const floating* number_float(const format& f) {
    const floating* own = std::get_if<floating>(&f);
    return own != nullptr ? own : element_float(f);
}
/// Is true for formats with floating scales in which the tensor has a scale, too.
constexpr bool has_tensor_scale(const format& f) {
    return detail::with_family(f, [](const auto& g) {
        if constexpr (requires { g.tensor_scale; }) return g.tensor_scale;
        else return false;
    });
}
/// Returns blocks of these elements under these scales and a scale of the tensor.
constexpr format in_floating_scales(int block, floating element, floating scale) {
    return nvfloat{.block_size = block, .element = element, .scale = scale};
}
constexpr bool is_identity(const format& f) {
    const floating* g = std::get_if<floating>(&f);
    return g != nullptr && *g == fp32;
}

}  // namespace QK_ISA

}  // namespace qk

#include "qk/exact/end.hpp"
