// SPDX-License-Identifier: Apache-2.0
// Takes operands of any format apart: each element is a whole number times a power of two, its block's scale included.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "qk/codec/layout/layout.hpp"
#include "qk/dot/numbers.hpp"
#include "qk/formats/codes/code.hpp"
#include "qk/isa.hpp"
#include "qk/memory/bits.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// How many elements are taken apart together; a dot product holds them on the stack.
inline constexpr std::size_t dot_tile = 256;

// Exponents beyond every finite one, so that the largest exponent of many terms tells whether special values are among them.
inline constexpr int infinite_exponent = 1 << 16, nan_exponent = 1 << 20, first_special = 1 << 15, first_nan = 1 << 19;

/// Value i is n[i] * 2^(exponent[i] - fraction). `base` is the exponent of the block's scale alone. An infinite value is +-1 with
/// infinite_exponent.
struct element_tile {
    std::int32_t n[dot_tile];
    std::int32_t exponent[dot_tile];
    std::int32_t base[dot_tile];
    std::uint8_t negative[dot_tile];
};

/// What is the same for all elements of an operand.
struct element_kind {
    int fraction = 0;  ///< fraction bits of n, scale included
    int lowest = 0;    ///< least exponent of a nonzero element, without its scale
    int highest = 0;   ///< largest one
    int width = 0;     ///< bits of |n|
    bool whole = false;
};

constexpr element_kind kind_of(floating f) { return {f.mantissa_bits, min_exponent(f), max_exponent(f), f.mantissa_bits + 1, false}; }
constexpr element_kind kind_of(integer f) {
    const int top = f.is_signed ? f.bits - 2 : f.bits - 1;
    return {top < 0 ? 0 : top, top < 0 ? 0 : top, top < 0 ? 0 : top, f.bits, true};
}
constexpr element_kind kind_of(const table&) { return kind_of(fp32); }
constexpr element_kind kind_of(const block_float& f) { return {f.mantissa_bits - 1, 0, 0, f.mantissa_bits + 1, false}; }
constexpr element_kind kind_of(const microexponent& f) { return {f.mantissa_bits - 1, 1 - (1 << f.shift_bits), 0, f.mantissa_bits, false}; }
constexpr element_kind kind_of(const microscaling& f) {
    if (!has_integer_elements(f)) return kind_of(f.element);
    return {f.integer_bits - 2, 0, 0, f.integer_bits, false};
}
template <under_floating_scales Format>
constexpr element_kind kind_of(const Format& f) {
    element_kind k = kind_of(f.element);
    k.fraction += f.scale.mantissa_bits;
    k.width += f.scale.mantissa_bits + 1;
    return k;
}

/// One floating code taken apart: significand, exponent (-126 for zero), sign. take_apart keeps `cut` fraction bits if `cut` > 0, and turns
/// subnormals into zeros as `flush` says.
struct element {
    std::int32_t n = 0, exponent = 0;
    bool negative = false;
};
/// take_apart for formats that are not classic.
constexpr element take_apart_by_facts(floating f, std::uint32_t code, int cut, input_flush flush) {
    const std::uint32_t dropped = cut > 0 && cut < f.mantissa_bits ? (std::uint32_t{1} << (f.mantissa_bits - cut)) - 1 : 0;
    code_number x = number_of(f, code & ~dropped);
    if (x.nan) return {0, nan_exponent, false};
    if (x.infinite) return {x.negative ? -1 : 1, infinite_exponent, x.negative};
    if (flush != input_flush::none && x.digits >> f.mantissa_bits == 0) {
        x.negative = x.negative && (x.digits == 0 || flush == input_flush::kept_sign);
        x.digits = 0;
    }
    const auto n = static_cast<std::int32_t>(x.digits);
    return {x.negative ? -n : n, n == 0 ? -126 : x.exponent + f.mantissa_bits, x.negative};
}
QK_INLINE constexpr element take_apart(floating f, std::uint32_t code, int cut, input_flush flush) {
    if (f == e8m0) return (code & 255u) == 255 ? element{0, nan_exponent, false} : element{1, static_cast<int>(code & 255u) - 127, false};
    if (!is_classic(f)) return take_apart_by_facts(f, code, cut, flush);
    const int m = f.mantissa_bits, magnitude_bits = f.exponent_bits + m;
    const std::uint32_t dropped = cut > 0 && cut < m ? (std::uint32_t{1} << (m - cut)) - 1 : 0, hidden = std::uint32_t{1} << m;
    const std::uint32_t magnitude =
        code & ((std::uint32_t{1} << magnitude_bits) - 1) & ~dropped;  // a NaN becomes Inf if all its mantissa bits are dropped
    const std::uint32_t field = magnitude >> m, all = (std::uint32_t{1} << magnitude_bits) - 1;
    bool negative = (code >> magnitude_bits & 1u) != 0;
    const bool infinite = f.specials == specials::ieee && magnitude == (all ^ (hidden - 1));
    const bool nan = (f.specials == specials::ieee && magnitude > (all ^ (hidden - 1))) ||
                     (f.specials == specials::fn && magnitude == all) || (f.specials == specials::fnuz && negative && magnitude == 0);
    std::uint32_t significand = field != 0 ? (magnitude & (hidden - 1)) | hidden : magnitude;
    if (flush != input_flush::none && field == 0) {
        significand = 0;
        negative = negative && (magnitude == 0 || flush == input_flush::kept_sign);
    }
    int exponent = (field != 0 ? static_cast<int>(field) : 1) - f.bias;
    exponent = significand == 0 ? -126 : exponent;
    exponent = infinite ? infinite_exponent : nan ? nan_exponent : exponent;
    const auto n = static_cast<std::int32_t>(infinite ? 1u : nan ? 0u : significand);
    return {negative ? -n : n, exponent, negative};
}

/// How a device reads its operands.
struct reading {
    int cut = 0;
    input_flush flush = input_flush::none;
    std::int64_t zero_point = 0;
};
constexpr reading reading_of(const accumulator& how, std::int64_t zero_point = 0) {
    return {how.operand_bits, flush_of_operands(how), zero_point};
}

// Take the codes of a family's elements apart into a tile, without scales.
QK_INLINE void take_codes(floating f, const std::uint32_t* code, std::size_t n, const reading& how, element_tile& t) {
    for (std::size_t i = 0; i < n; ++i) {
        const element e = take_apart(f, code[i], how.cut, how.flush);
        t.n[i] = e.n;
        t.exponent[i] = e.exponent;
        t.negative[i] = e.negative;
    }
}
QK_INLINE void take_whole(std::int64_t v, int exponent, std::size_t i, element_tile& t) {
    t.n[i] = static_cast<std::int32_t>(v);
    t.exponent[i] = exponent;
    t.negative[i] = v < 0;
}
QK_INLINE void take_signed(int width, int exponent, const std::uint32_t* code, std::size_t n, element_tile& t) {
    for (std::size_t i = 0; i < n; ++i) take_whole(static_cast<std::int32_t>(code[i] << (32 - width)) >> (32 - width), exponent, i, t);
}
QK_INLINE void take_magnitudes(int width, const std::uint32_t* code, std::size_t n, element_tile& t) {
    for (std::size_t i = 0; i < n; ++i) {
        const auto magnitude = static_cast<std::int32_t>(code[i] & low_bits(width));
        t.negative[i] = (code[i] >> width & 1u) != 0;
        t.n[i] = t.negative[i] != 0 ? -magnitude : magnitude;
        t.exponent[i] = 0;
    }
}
QK_INLINE void take_codes(integer f, const std::uint32_t* code, std::size_t n, const reading& how, element_tile& t) {
    const int exponent = kind_of(f).fraction;
    for (std::size_t i = 0; i < n; ++i) take_whole(value_of(f, code[i]) - how.zero_point, exponent, i, t);
}
QK_INLINE void take_codes(const table& f, const std::uint32_t* code, std::size_t n, const reading& how, element_tile& t) {
    std::uint32_t number[dot_tile];  // a table's numbers are float32
    for (std::size_t i = 0; i < n; ++i) number[i] = std::bit_cast<std::uint32_t>(value_of(f, code[i]));
    take_codes(fp32, number, n, how, t);
}
QK_INLINE void take_codes(const block_float& f, const std::uint32_t* code, std::size_t n, const reading&, element_tile& t) {
    f.bump ? take_signed(1 + f.mantissa_bits, 0, code, n, t) : take_magnitudes(f.mantissa_bits, code, n, t);
}
QK_INLINE void take_codes(const microexponent& f, const std::uint32_t* code, std::size_t n, const reading&, element_tile& t) {
    take_magnitudes(f.mantissa_bits, code, n, t);
}
QK_INLINE void take_codes(const microscaling& f, const std::uint32_t* code, std::size_t n, const reading& how, element_tile& t) {
    if (has_integer_elements(f)) return take_signed(f.integer_bits, 0, code, n, t);
    take_codes(f.element, code, n, how, t);
}
template <under_floating_scales Format>
QK_INLINE void take_codes(const Format& f, const std::uint32_t* code, std::size_t n, const reading& how, element_tile& t) {
    take_codes(f.element, code, n, how, t);
}

// Return a block's scale as n * 2^(exponent - mantissa bits). NVFP4's has no sign (ue4m3).
QK_INLINE constexpr element scale_code_of(const block_float& f, std::uint32_t code) {
    return code == low_bits(f.exponent_bits) ? element{0, nan_exponent}
                                             : element{1, static_cast<int>(code) - ((1 << (f.exponent_bits - 1)) - 1)};
}
QK_INLINE constexpr element scale_code_of(const microexponent& f, std::uint32_t code) {
    return code == low_bits(f.exponent_bits) ? element{0, nan_exponent} : element{1, static_cast<int>(code) - 127};
}
QK_INLINE constexpr element scale_code_of(const microscaling&, std::uint32_t code) { return take_apart(e8m0, code, 0, input_flush::none); }
template <under_floating_scales Format>
QK_INLINE constexpr element scale_code_of(const Format& f, std::uint32_t code) {
    const element e = take_apart(f.scale, code, 0, input_flush::none);
    return {e.n < 0 ? -e.n : e.n, e.exponent == infinite_exponent ? nan_exponent : e.exponent};
}

/// A row of a packed tensor, as an operand: the values at (outer, 0..length, across).
template <class Format>
struct packed_row {
    Format format;
    const_planes packed;
    along_axis axis;
    std::size_t outer = 0, across = 0;
    reading how;
    float tensor = 1;  ///< NVFP4's tensor scale, where it belongs to the terms; 1: it does not

    element_kind kind() const noexcept {
        element_kind k = kind_of(format);
        if (tensor != 1) k.fraction += fp32.mantissa_bits, k.width += fp32.mantissa_bits + 1;
        return k;
    }

    const element_tile& load(std::size_t first, std::size_t n, element_tile& t) const noexcept {
        std::uint32_t code[dot_tile];
        const int width = element_width(format);
        const std::size_t start = (outer * axis.length + first) * axis.inner + across;
        if (axis.inner == 1) get_codes(packed.elements, start, n, width, code);
        else
            for (std::size_t i = 0; i < n; ++i) code[i] = get_code(packed.elements, start + i * axis.inner, width);
        take_codes(format, code, n, how, t);
        if constexpr (has_blocks<Format>) scale(first, n, t);
        else std::fill_n(t.base, n, 0);
        return t;
    }

  private:
    void scale(std::size_t first, std::size_t n, element_tile& t) const noexcept requires has_blocks<Format> {
        const auto block = static_cast<std::size_t>(format.block_size);
        element whole{1, 0};
        if (tensor != 1) {
            whole = take_apart(fp32, std::bit_cast<std::uint32_t>(tensor), 0, input_flush::none);
            if (whole.exponent >= first_special) whole = {0, nan_exponent};
        }
        for (std::size_t i = 0; i < n;) {
            const std::size_t end = std::min(n, ((first + i) / block + 1) * block - first);
            const element s = scale_code_of(
                format, get_code(packed.scales, scale_index(packing_of(format), axis, outer, first + i, across), scale_width(format)));
            for (; i < end; ++i) {
                if constexpr (has_sub_blocks<Format>)
                    t.exponent[i] -= static_cast<int>(
                        get_code(packed.shifts, shift_index(packing_of(format), axis, outer, first + i, across), format.shift_bits));
                t.base[i] = s.exponent + whole.exponent;
                t.exponent[i] += s.exponent + whole.exponent;
                t.n[i] *= s.n * whole.n;
                t.negative[i] ^= std::uint8_t{whole.negative};
            }
        }
    }
};

/// A row of any format, as a sum reads it. Refers to the row that it was made of.
struct row_source {
    const void* row = nullptr;
    const element_tile& (*loader)(const void*, std::size_t, std::size_t, element_tile&) = nullptr;
    element_kind kind;
    bool scaled = false;

    const element_tile& load(std::size_t first, std::size_t n, element_tile& t) const noexcept { return loader(row, first, n, t); }
};
template <class Format>
row_source source_of(const packed_row<Format>& r) noexcept {
    const auto load = [](const void* row, std::size_t first, std::size_t n, element_tile& t) -> const element_tile& {
        return static_cast<const packed_row<Format>*>(row)->load(first, n, t);
    };
    return {&r, load, r.kind(), has_blocks<Format>};
}
/// Returns a source of elements that are taken apart already; they fit a tile.
inline row_source held_source(const element_tile& held, const row_source& of) noexcept {
    return {&held,
            [](const void* row, std::size_t, std::size_t, element_tile&) -> const element_tile& {
                return *static_cast<const element_tile*>(row);
            },
            of.kind, of.scaled};
}

}  // namespace QK_ISA
}  // namespace qk::detail

namespace qk::device_sums {
inline namespace QK_ISA {

/// Elements taken apart into whole numbers and exponents, at most dot_tile at once; exponents from first_special on are Inf, from first_nan
/// on NaN.
using detail::element_tile, detail::dot_tile, detail::first_special, detail::first_nan;
/// What is the same for all elements of an operand, and how a device reads them; take_codes takes codes apart.
using detail::element_kind, detail::reading, detail::reading_of, detail::take_codes;

}  // namespace QK_ISA
}  // namespace qk::device_sums
