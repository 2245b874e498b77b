// SPDX-License-Identifier: Apache-2.0
// The layout of a packed tensor (memory/planes.hpp) as a function of its format.
#pragma once

#include <cstddef>

#include "qk/formats/format.hpp"
#include "qk/isa.hpp"
#include "qk/memory/planes.hpp"
#include "qk/parameters.hpp"

namespace qk {

namespace detail {
inline namespace QK_ISA {

constexpr packing packing_of(const format& f) {
    return with_family(f, [](const auto& g) { return packing_of(g); });
}

template <class Format>
constexpr int element_width(const Format& f) {
    return packing_of(f).element_width;
}
template <class Format>
constexpr int scale_width(const Format& f) {
    return packing_of(f).scale_width;
}

}  // namespace QK_ISA
}  // namespace detail

/// Bits of the code of an element, and of the scale or exponent that a block shares (0 for a format without blocks).
using detail::element_width, detail::scale_width;

inline namespace QK_ISA {

/// Returns the planes of a tensor of outer * length * inner values in a format (qk::format or a family's struct) with blocks along an axis.
template <class Format>
constexpr packed_layout layout_of(const Format& f, along_axis a) {
    if constexpr (std::is_same_v<Format, format>) {
        if (const auto* g = std::get_if<ggml_blocks>(&f)) return layout_of(*g, a);
    }
    return detail::layout_of(detail::packing_of(f), a);
}

/// Returns the bytes of a packed tensor: the size of the buffer that `encode` fills.
template <auto Format>
constexpr std::size_t packed_bytes(std::size_t n) {
    return layout_of(Format, along_axis{1, n, 1}).bytes();
}
template <auto Format>
constexpr std::size_t packed_bytes(along_axis a) {
    return layout_of(Format, a).bytes();
}
constexpr std::size_t packed_bytes(const format& f, along_axis a) { return layout_of(f, a).bytes(); }

}  // namespace QK_ISA

}  // namespace qk
