// SPDX-License-Identifier: Apache-2.0
// repack(): codes, scales and zero points from one layout to another, and what changes on the way.
#pragma once

#include <array>
#include <string_view>

#include "qk/layout/planes.hpp"

namespace qk {

/// What two layouts do not share. Views are of literals.
struct layout_changes {
    bool possible = true;  ///< the codes mean the same, and the groups of one divide those of the other
    bool exact = true;     ///< every matrix keeps its numbers; else repack() counts what does not fit
    std::array<std::string_view, 8> says{};
    int count = 0;

    constexpr void add(std::string_view sentence, bool still_exact) {
        if (count < 8) says[static_cast<std::size_t>(count++)] = sentence;
        exact = exact && still_exact;
    }
    constexpr void refuse(std::string_view sentence) {
        possible = false;
        add(sentence, false);
    }
};

/// What repack() did.
struct repack_result {
    bool done = false;
    std::size_t scales_rounded = 0;  ///< scales that the other type does not have
    std::size_t zeros_lost = 0;      ///< zero points that it cannot hold
    bool global_rounded = false;     ///< the reciprocal of the global scale is not exact
    bool global_dropped = false;     ///< the other layout has none: keep it beside (ggml's NAME.scale)
};

namespace layout_parts {

/// A block type whose codes and scales other layouts have, too, as a layout of planes with the same numbers.
constexpr layout planes_of(const layout& l) {
    if (l.order != code_order::ggml_blocks) return l;
    layout p = l;
    p.codes = element::unsigned_integer, p.scale = scale_type::f16;
    switch (l.block) {
        case ggml_type::q4_0: p.bits = 4, p.group_columns = 32, p.offset = 8; return p;
        case ggml_type::q5_0: p.bits = 5, p.group_columns = 32, p.offset = 16; return p;
        case ggml_type::q8_0: p.codes = element::signed_integer, p.bits = 8, p.group_columns = 32; return p;
        case ggml_type::q4_1: p.bits = 4, p.group_columns = 32, p.zero = zero_type::bias; return p;
        case ggml_type::q5_1: p.bits = 5, p.group_columns = 32, p.zero = zero_type::bias; return p;
        case ggml_type::q2_0: p.bits = 2, p.group_columns = 64, p.offset = 1; return p;
        case ggml_type::tq2_0:
        case ggml_type::tq1_0: p.bits = 2, p.group_columns = 256, p.offset = 1; return p;
        case ggml_type::mxfp4: p.codes = element::e2m1, p.bits = 4, p.group_columns = 32, p.scale = scale_type::e8m0; return p;
        case ggml_type::nvfp4: p.codes = element::e2m1, p.bits = 4, p.group_columns = 16, p.scale = scale_type::ue4m3; return p;
        default: return l;
    }
}
constexpr unsigned scale_byte(ggml_type t) {
    using enum ggml_type;
    return t == tq1_0 ? 52u : t == tq2_0 ? 64u : 0u;
}

inline std::uint32_t block_scale(const layout& planes, matrix_shape s, std::span<const std::byte> codes, std::size_t row, std::size_t g,
                                 bool bias) {
    const ggml_facts f = facts_of(planes.block);
    const std::size_t in_block = f.values / static_cast<std::size_t>(planes.group_columns),
                      width = static_cast<std::size_t>(bits_of(planes.scale) / 8);
    const auto* block = raw(codes) + (row * (s.columns / f.values) + g / in_block) * f.bytes;
    std::uint32_t v = 0;
    std::memcpy(&v, block + scale_byte(planes.block) + g % in_block * width + (bias ? 2 : 0), width);
    return v;
}
inline void put_block_scale(const layout& planes, matrix_shape s, std::span<std::byte> codes, std::size_t row, std::size_t g, bool bias,
                            std::uint32_t v) {
    const ggml_facts f = facts_of(planes.block);
    const std::size_t in_block = f.values / static_cast<std::size_t>(planes.group_columns),
                      width = static_cast<std::size_t>(bits_of(planes.scale) / 8);
    auto* block = raw(codes) + (row * (s.columns / f.values) + g / in_block) * f.bytes;
    std::memcpy(block + scale_byte(planes.block) + g % in_block * width + (bias ? 2 : 0), &v, width);
}

/// The bits of the nearest value that a scale's type has, and whether it is `x` itself.
struct stored_scale {
    std::uint32_t bits;
    bool exact;
};
inline stored_scale store_scale(scale_type t, float x) {
    const std::uint32_t u = std::bit_cast<std::uint32_t>(x);
    switch (t) {
        case scale_type::f32: return {u, true};
        case scale_type::bf16: return {narrow<bfloat16>(x).bits, round_to_bfloat(x) == x};
        case scale_type::f16: return {narrow<float16>(x).bits, round_to_half(x) == x};
        case scale_type::e8m0:
        case scale_type::e4m3:
        case scale_type::ue4m3: {  // few codes: the nearest, the even one on a tie
            std::uint32_t best = 0;
            float least = -1;
            for (std::uint32_t c = 0; c < (t == scale_type::e8m0 ? 255u : 127u); ++c) {
                const float d = std::fabs(scale_value(t, c) - x);
                if (least < 0 || d < least || (d == least && best % 2 != 0)) best = c, least = d;
            }
            return {best, least == 0};
        }
        default: return {0, x == 1};
    }
}

/// Whether every scale of type `a` has a value in type `b`.
constexpr bool holds_all(scale_type a, scale_type b) {
    using enum scale_type;
    if (a == b || b == f32) return true;
    if (b == bf16) return a == e8m0 || a == e4m3 || a == ue4m3;
    if (b == f16) return a == e4m3 || a == ue4m3;
    return a == ue4m3 && b == e4m3;
}

/// Interleaves ggml's blocks of several rows, or takes them apart again.
inline void exchange_rows(const layout& rows, matrix_shape s, const std::uint8_t* in, std::uint8_t* out, bool apart) {
    const ggml_facts f = facts_of(rows.block);
    const auto n = static_cast<std::size_t>(rows.interleaved), turn = static_cast<std::size_t>(rows.interleaved_bytes);
    const std::size_t blocks = s.columns / f.values, head = rows.block == ggml_type::mxfp4 ? 1 : 2, body = f.bytes - head;
    const std::uint8_t flip = rows.block == ggml_type::q4_0 ? 0x88 : 0;  // ggml's repacked q4_0 has signed nibbles
    for (std::size_t band = 0; band < s.rows / n; ++band)
        for (std::size_t x = 0; x < blocks; ++x) {
            const std::size_t together = (band * blocks + x) * n * f.bytes;
            const auto single = [&](std::size_t row) { return ((band * n + row) * blocks + x) * f.bytes; };
            for (std::size_t row = 0; row < n; ++row)
                for (std::size_t k = 0; k < head; ++k)
                    if (apart) out[single(row) + k] = in[together + row * head + k];
                    else out[together + row * head + k] = in[single(row) + k];
            for (std::size_t i = 0; i < n * body; ++i) {
                const std::size_t part = i / turn, row = part % n, byte = part / n * turn + i % turn;
                if (apart) out[single(row) + head + byte] = in[together + n * head + i] ^ flip;
                else out[together + n * head + i] = in[single(row) + head + byte] ^ flip;
            }
        }
}
}  // namespace layout_parts

/// Says whether matrices can go from one layout to the other code by code, and what is not the same in both.
constexpr layout_changes compare_layouts(const layout& from, const layout& to) {
    layout_changes c;
    if (from == to) return c;
    const bool rows = from.order == code_order::ggml_rows || to.order == code_order::ggml_rows;
    if (rows) {
        if (from.block != to.block || from.codes != element::ggml || to.codes != element::ggml)
            c.refuse("repacked rows of ggml come from blocks of the same type, and go back to them");
        return c;
    }
    const layout a = layout_parts::planes_of(from), b = layout_parts::planes_of(to);
    if (a.codes == element::ggml || b.codes == element::ggml) {
        if (from.block != to.block || from.codes != to.codes) c.refuse("this block type's codes exist in no other layout");
        return c;
    }
    const bool integers = (a.codes == element::unsigned_integer || a.codes == element::signed_integer) &&
                          (b.codes == element::unsigned_integer || b.codes == element::signed_integer);
    if ((a.codes != b.codes && !integers) || a.bits != b.bits) c.refuse("the codes are of different formats");
    if (a.group_rows != b.group_rows && !(a.group_rows > 1 && b.group_rows == 1)) c.refuse("a scale covers other rows");
    if (a.group_columns != b.group_columns && (b.group_columns == 0 || (a.group_columns != 0 && a.group_columns % b.group_columns != 0)))
        c.refuse("a scale covers more values than before");
    else if (a.group_columns != b.group_columns || a.group_rows != b.group_rows) c.add("scales are repeated for smaller groups", true);
    if (!layout_parts::holds_all(a.scale, b.scale)) c.add("scales are rounded to a type that does not have all of them", false);
    if ((a.zero == zero_type::bias) != (b.zero == zero_type::bias))
        c.refuse("zero points of one are floats added after scaling, of the other integers subtracted before");
    else if (a.zero != b.zero || a.offset != b.offset)
        c.add("zero points must fit the other layout", a.zero == zero_type::none && b.zero != zero_type::none);
    if (a.global != b.global) {
        if (a.global == global_type::none) c.add("the global scale is 1", true);
        else if (b.global == global_type::none) c.add("the global scale stays outside", false);
        else c.add("the global scale becomes its reciprocal", false);
    }
    if (a.positive_zero != b.positive_zero || from.codes != to.codes) {
        if (a.codes == element::e2m1) c.add("the code of -0 means +0 in one of them", true);
    }
    if (a.product != b.product) c.add("the readers multiply in different number types", true);
    return c;
}

/// Moves a matrix from one layout to another. `out` has the sizes of sizes_of(to, shape) and is overwritten; `scratch` has a byte for each
/// column. `done` is false where compare_layouts says that it is impossible; where a scale or zero point did not fit, it is counted.
inline repack_result repack(const layout& from, matrix_shape s, const matrix_planes& in, const layout& to, const mutable_planes& out,
                            std::span<std::uint8_t> scratch) {
    repack_result made;
    if (!compare_layouts(from, to).possible) return made;
    made.done = true;
    const auto copy = [](std::span<const std::byte> a, std::span<std::byte> b) {
        if (!a.empty()) std::memcpy(b.data(), a.data(), a.size() < b.size() ? a.size() : b.size());
    };
    if (out.global != nullptr) *out.global = in.global;
    if (from == to || layout_parts::planes_of(from).codes == element::ggml) {
        const bool apart = from.order == code_order::ggml_rows;
        if (from.order == to.order) copy(in.codes, out.codes), copy(in.scales, out.scales), copy(in.zeros, out.zeros);
        else layout_parts::exchange_rows(apart ? from : to, s, layout_parts::raw(in.codes), layout_parts::raw(out.codes), apart);
        return made;
    }
    if (from.order == code_order::ggml_rows || to.order == code_order::ggml_rows) {
        const bool apart = from.order == code_order::ggml_rows;
        layout_parts::exchange_rows(apart ? from : to, s, layout_parts::raw(in.codes), layout_parts::raw(out.codes), apart);
        return made;
    }
    const layout a = layout_parts::planes_of(from), b = layout_parts::planes_of(to);
    const bool from_blocks = from.order == code_order::ggml_blocks, to_blocks = to.order == code_order::ggml_blocks;
    for (std::span<std::byte> plane : {out.codes, out.scales, out.zeros})
        if (!plane.empty()) std::memset(plane.data(), 0, plane.size());
    if (out.global != nullptr && a.global != b.global && a.global != global_type::none && b.global != global_type::none) {
        *out.global = 1 / in.global;
        made.global_rounded = 1 / *out.global != in.global || !(std::fma(*out.global, in.global, -1.0f) == 0);
    }
    made.global_dropped = a.global != global_type::none && b.global == global_type::none;
    const unsigned mask = (1u << a.bits) - 1, flip = a.codes != b.codes ? 1u << (a.bits - 1) : 0;  // two's complement or offset
    const int moved = flip == 0 ? 0 : b.codes == element::unsigned_integer ? 1 << (a.bits - 1) : -(1 << (a.bits - 1));
    const std::size_t groups = groups_of(b, s), scale_rows = scale_rows_of(b, s);
    const std::size_t width = b.group_columns == 0 ? s.columns : static_cast<std::size_t>(b.group_columns);
    for (std::size_t row = 0; row < s.rows; ++row) {
        unpack_row(from, s, in.codes, row, scratch.data());
        if (flip != 0)
            for (std::size_t c = 0; c < s.columns; ++c) scratch[c] = static_cast<std::uint8_t>((scratch[c] ^ flip) & mask);
        pack_row(to, s, scratch.data(), row, out.codes);
    }
    for (std::size_t r = 0; r < scale_rows; ++r) {
        const std::size_t row = b.group_rows == 0 ? 0 : r * static_cast<std::size_t>(b.group_rows);
        const std::size_t r_in = a.group_rows == 0 ? 0 : row / static_cast<std::size_t>(a.group_rows);
        for (std::size_t g = 0; g < groups; ++g) {
            const std::size_t g_in = a.group_columns == 0 ? 0 : g * width / static_cast<std::size_t>(a.group_columns);
            const auto move_scale = [&](bool bias) {
                const std::span<const std::byte> plane = bias ? in.zeros : in.scales;
                const std::uint32_t bits = a.scale == scale_type::none ? 0
                                           : from_blocks               ? layout_parts::block_scale(a, s, in.codes, row, g_in, bias)
                                                                       : scale_bits(a, s, plane, r_in, g_in);
                layout_parts::stored_scale stored{bits, true};
                if (a.scale != b.scale) stored = layout_parts::store_scale(b.scale, scale_value(a.scale, bits));
                made.scales_rounded += !stored.exact;
                if (b.scale == scale_type::none) return;
                if (to_blocks) layout_parts::put_block_scale(b, s, out.codes, row, g, bias, stored.bits);
                else put_scale_bits(b, s, bias ? out.zeros : out.scales, r, g, stored.bits);
            };
            move_scale(false);
            if (b.zero == zero_type::bias) move_scale(true);
            else
                made.zeros_lost += !put_zero(b, s, out.zeros, r, g, (from_blocks ? a.offset : zero_at(a, s, in.zeros, r_in, g_in)) + moved);
        }
    }
    return made;
}

}  // namespace qk
