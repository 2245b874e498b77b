// SPDX-License-Identifier: Apache-2.0
// Where the bits of a packed tensor are: layout version 1 of docs/reference/layouts.md, as constexpr functions of format and shape.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

#include "qk/formats/format.hpp"
#include "qk/parameters.hpp"

namespace qk {

/// Written into files beside packed bytes; changes when any bit of any plane moves.
inline constexpr int layout_version = 1;

/// `count` codes of `bits` each, without gaps: code i is the bits [i * bits, (i + 1) * bits) of the plane, and bit 0 is the lowest bit
/// of the first byte. So 4-bit codes stand two to a byte, the first in the low nibble; four 6-bit codes in three bytes; 16-bit codes
/// little endian: for the types that ONNX has, TensorProto.raw_data. Unused bits of the last byte are 0.
struct plane {
    std::size_t offset = 0;  ///< of the first byte in a buffer that holds all planes
    std::size_t count = 0;
    int bits = 0;
    constexpr std::size_t bytes() const { return (count * static_cast<std::size_t>(bits) + 7) / 8; }
};

/// The planes of one tensor in their order. Codes of a plane stand in the tensor's own order; scales and shifts in that of
/// [outer][blocks][inner], as ONNX's blocked QuantizeLinear has it.
struct packed_layout {
    plane elements;  ///< a code for each value
    plane scales;    ///< block formats: a shared exponent or scale for each block
    plane shifts;    ///< microexponents: `shift_bits` for each sub-block
    plane tensor;    ///< NVFP4: the tensor scale, one float32
    constexpr std::size_t bytes() const { return tensor.offset + tensor.bytes(); }
};

/// {1, n, 1} for the default axis (the whole span is one row), else the axis itself.
constexpr along_axis resolved(along_axis a, std::size_t n) { return a.inner == 0 ? along_axis{1, n, 1} : a; }

namespace detail {

constexpr std::size_t divide_up(std::size_t n, int d) { return (n + static_cast<std::size_t>(d) - 1) / static_cast<std::size_t>(d); }
constexpr std::size_t blocks_of(along_axis a, int block_size) { return a.outer * divide_up(a.length, block_size) * a.inner; }

constexpr int element_width(floating f) { return bits(f); }
constexpr int element_width(integer f) { return f.bits; }
constexpr int element_width(const block_float& f) { return 1 + f.mantissa_bits; }
constexpr int element_width(const microexponent& f) { return 1 + f.mantissa_bits; }
constexpr int element_width(const microscaling& f) { return element_bits(f); }
constexpr int element_width(const nvfloat& f) { return bits(f.element); }

constexpr int scale_width(const block_float& f) { return f.exponent_bits; }
constexpr int scale_width(const microexponent& f) { return f.exponent_bits; }
constexpr int scale_width(const microscaling&) { return 8; }
constexpr int scale_width(const nvfloat& f) { return bits(f.scale); }

/// Sub-blocks begin anew with every block; a row of `length` values has this many.
constexpr std::size_t sub_blocks_of(const microexponent& f, std::size_t length) {
    const auto block = static_cast<std::size_t>(f.block_size);
    return length / block * divide_up(block, f.sub_block_size) + divide_up(length % block, f.sub_block_size);
}

/// Where the shared codes of the value at (outer, along, across) stand: in the plane of scales, and in that of shifts.
template <class Format>
constexpr std::size_t scale_index(const Format& f, along_axis a, std::size_t outer, std::size_t along, std::size_t across) {
    return (outer * divide_up(a.length, f.block_size) + along / static_cast<std::size_t>(f.block_size)) * a.inner + across;
}
template <class Format>
constexpr std::size_t shift_index(const Format& f, along_axis a, std::size_t outer, std::size_t along, std::size_t across) {
    if constexpr (std::is_same_v<Format, microexponent>)
        return (outer * sub_blocks_of(f, a.length) + sub_blocks_of(f, along + 1) - 1) * a.inner + across;
    else return 0;
}

constexpr void add_scales(packed_layout&, floating, along_axis) {}
constexpr void add_scales(packed_layout&, integer, along_axis) {}
constexpr void add_scales(packed_layout& l, const block_float& f, along_axis a) {
    l.scales = {0, blocks_of(a, f.block_size), scale_width(f)};
}
constexpr void add_scales(packed_layout& l, const microexponent& f, along_axis a) {
    l.scales = {0, blocks_of(a, f.block_size), scale_width(f)};
    l.shifts = {0, a.outer * sub_blocks_of(f, a.length) * a.inner, f.shift_bits};
}
constexpr void add_scales(packed_layout& l, const microscaling& f, along_axis a) {
    l.scales = {0, blocks_of(a, f.block_size), scale_width(f)};
}
constexpr void add_scales(packed_layout& l, const nvfloat& f, along_axis a) {
    l.scales = {0, blocks_of(a, f.block_size), scale_width(f)};
    l.tensor = {0, 1, 32};
}

}  // namespace detail

/// The planes of a tensor of outer * length * inner values, one after the other, each from a whole byte on.
template <class Format>
requires(!std::is_same_v<Format, format>) constexpr packed_layout layout_of(const Format& f, along_axis a) {
    packed_layout l;
    l.elements = {0, a.outer * a.length * a.inner, detail::element_width(f)};
    detail::add_scales(l, f, a);
    l.scales.offset = l.elements.bytes();
    l.shifts.offset = l.scales.offset + l.scales.bytes();
    l.tensor.offset = l.shifts.offset + l.shifts.bytes();
    return l;
}
constexpr packed_layout layout_of(const format& f, along_axis a) {
    return detail::with_family(f, [a](const auto& g) { return layout_of(g, a); });
}

/// Bytes of a packed tensor: the size of the buffer that `encode` fills.
template <auto Format>
constexpr std::size_t packed_bytes(std::size_t n) {
    return layout_of(Format, along_axis{1, n, 1}).bytes();
}
template <auto Format>
constexpr std::size_t packed_bytes(along_axis a) {
    return layout_of(Format, a).bytes();
}
constexpr std::size_t packed_bytes(const format& f, along_axis a) { return layout_of(f, a).bytes(); }

/// The planes as memory; each may lie anywhere. Planes that a format lacks are empty.
template <class Byte>
struct basic_planes {
    std::span<Byte> elements, scales, shifts, tensor;
};
using planes = basic_planes<std::byte>;
using const_planes = basic_planes<const std::byte>;

/// One buffer cut into its planes.
template <class Byte>
constexpr basic_planes<Byte> planes_of(const packed_layout& l, std::span<Byte> buffer) {
    const auto cut = [&](const plane& p) { return buffer.subspan(p.offset, p.bytes()); };
    return {cut(l.elements), cut(l.scales), cut(l.shifts), cut(l.tensor)};
}

}  // namespace qk
