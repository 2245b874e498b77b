// SPDX-License-Identifier: Apache-2.0
// Where the bits of a packed tensor are: layout version 1 of docs/reference/layouts.md, as constexpr functions of widths and shape.
#pragma once

#include <cstddef>
#include <iterator>
#include <span>
#include <type_traits>
#include <utility>

#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/parameters.hpp"

namespace qk {

/// Written into files beside packed bytes; changes when any bit of any plane moves.
inline constexpr int layout_version = 1;

/// Holds `count` codes of `bits` bits each without gaps: code i is the bits [i * bits, (i + 1) * bits) of the plane, and bit 0 is the
/// lowest bit of the first byte. So a byte holds two 4-bit codes, the first in the low nibble; three bytes hold four 6-bit codes; 16-bit
/// codes are little endian. For the types that ONNX has, the bytes are those of TensorProto.raw_data. Unused bits of the last byte are 0.
struct plane {
    std::size_t offset = 0;  ///< of the first byte in a buffer that holds all planes
    std::size_t count = 0;
    int bits = 0;
    QK_INLINE constexpr std::size_t bytes() const { return (count * static_cast<std::size_t>(bits) + 7) / 8; }
};

/// The planes of one tensor in the order of a buffer. Elements are in the tensor's own order; scales and shifts are in the order
/// [outer][blocks][inner], as in ONNX's blocked QuantizeLinear.
struct packed_layout {
    plane elements;  ///< a code for each value
    plane scales;    ///< block formats: a shared exponent or scale for each block
    plane shifts;    ///< microexponents: `shift_bits` for each sub-block
    plane tensor;    ///< NVFP4: the tensor scale, one float32
    QK_INLINE constexpr std::size_t bytes() const { return tensor.offset + tensor.bytes(); }
};

inline namespace QK_ISA {

/// Returns {1, n, 1} for the default axis (the whole span is one row), else the axis itself.
constexpr along_axis resolved(along_axis a, std::size_t n) { return a.inner == 0 ? along_axis{1, n, 1} : a; }

}  // namespace QK_ISA

namespace detail {
inline namespace QK_ISA {

constexpr std::size_t divide_up(std::size_t n, int d) { return (n + static_cast<std::size_t>(d) - 1) / static_cast<std::size_t>(d); }

/// The widths and block sizes of a format's planes. Code that only walks planes takes this, so it is compiled once for all formats.
struct packing {
    int element_width = 0;                   ///< bits of a value's code
    int block_size = 0, scale_width = 0;     ///< block formats: values of a block, bits of its shared code
    int sub_block_size = 0, shift_bits = 0;  ///< microexponents: values of a sub-block, bits of its shift
    bool has_tensor_scale = false;           ///< NVFP4
};

/// Returns the number of sub-blocks in a row of `length` values (0 without microexponents). Every block begins a new sub-block.
constexpr std::size_t sub_blocks_of(const packing& p, std::size_t length) {
    if (p.shift_bits == 0) return 0;
    const auto block = static_cast<std::size_t>(p.block_size);
    return length / block * divide_up(block, p.sub_block_size) + divide_up(length % block, p.sub_block_size);
}

/// Return the number of the code that the value at (outer, along, across) shares: in the plane of scales, and in that of shifts.
constexpr std::size_t scale_index(const packing& p, along_axis a, std::size_t outer, std::size_t along, std::size_t across) {
    return (outer * divide_up(a.length, p.block_size) + along / static_cast<std::size_t>(p.block_size)) * a.inner + across;
}
constexpr std::size_t shift_index(const packing& p, along_axis a, std::size_t outer, std::size_t along, std::size_t across) {
    if (p.shift_bits == 0) return 0;
    return (outer * sub_blocks_of(p, a.length) + sub_blocks_of(p, along + 1) - 1) * a.inner + across;
}

/// Returns the planes of a tensor of outer * length * inner values, one after the other; each begins at a whole byte.
constexpr packed_layout layout_of(const packing& p, along_axis a) {
    packed_layout l;
    l.elements = {0, a.outer * a.length * a.inner, p.element_width};
    if (p.block_size != 0) l.scales = {0, a.outer * divide_up(a.length, p.block_size) * a.inner, p.scale_width};
    if (p.shift_bits != 0) l.shifts = {0, a.outer * sub_blocks_of(p, a.length) * a.inner, p.shift_bits};
    if (p.has_tensor_scale) l.tensor = {0, 1, 32};
    l.scales.offset = l.elements.bytes();
    l.shifts.offset = l.scales.offset + l.scales.bytes();
    l.tensor.offset = l.shifts.offset + l.shifts.bytes();
    return l;
}

}  // namespace QK_ISA
}  // namespace detail

/// The memory of a plane: a span, whose constructor says what it takes.
template <class Byte>
struct plane_bytes : std::span<Byte> {
    constexpr plane_bytes() = default;
    template <class R>
    requires requires(R& r) { std::data(r), std::size(r); }
    QK_INLINE constexpr plane_bytes(R&& bytes) : std::span<Byte>(of(std::forward<R>(bytes))) {}
    QK_INLINE constexpr plane_bytes(Byte* first, std::size_t n) : std::span<Byte>(first, n) {}

  private:
    template <class R>
    QK_INLINE static constexpr std::span<Byte> of(R&& bytes) {
        constexpr bool are_bytes = std::is_convertible_v<R, std::span<Byte>>;
        static_assert(
            are_bytes,
            "the bytes of a plane are a span, vector or array of std::byte: write std::as_bytes(std::span(v)) for other bytes that are "
            "read, std::as_writable_bytes(std::span(v)) for those that are written");
        if constexpr (are_bytes) return bytes;
        else return {};
    }
};

/// The planes as memory; each may lie anywhere. Planes that a format lacks are empty.
template <class Byte>
struct basic_planes {
    plane_bytes<Byte> elements{}, scales{}, shifts{}, tensor{};
    QK_INLINE constexpr operator basic_planes<const Byte>() const requires(!std::is_const_v<Byte>) {
        return {elements, scales, shifts, tensor};
    }
};
using planes = basic_planes<std::byte>;
using const_planes = basic_planes<const std::byte>;

inline namespace QK_ISA {

/// Returns whether the planes have the bytes of a layout.
constexpr bool holds(const_planes p, const packed_layout& l) {
    return p.elements.size() >= l.elements.bytes() && p.scales.size() >= l.scales.bytes() && p.shifts.size() >= l.shifts.bytes() &&
           p.tensor.size() >= l.tensor.bytes();
}
/// Returns the planes cut to a layout's bytes: a coder takes the end of a plane for the end of its codes.
template <class Byte>
constexpr basic_planes<Byte> cut_to(const packed_layout& l, basic_planes<Byte> p) {
    return {p.elements.first(l.elements.bytes()), p.scales.first(l.scales.bytes()), p.shifts.first(l.shifts.bytes()),
            p.tensor.first(l.tensor.bytes())};
}

/// Cuts one buffer into its planes.
template <class Byte>
constexpr basic_planes<Byte> planes_of(const packed_layout& l, std::span<Byte> buffer) {
    const auto cut = [&](const plane& p) { return buffer.subspan(p.offset, p.bytes()); };
    return {cut(l.elements), cut(l.scales), cut(l.shifts), cut(l.tensor)};
}

}  // namespace QK_ISA

}  // namespace qk
