// SPDX-License-Identifier: Apache-2.0
// Reads and writes the parts of a matrix in a layout: its codes row by row, its scales and zero points one by one, and what they mean.
// The caller has checked sizes with sizes_of(); nothing here allocates or throws.
#pragma once

#include <cmath>
#include <span>

#include "qk/isa.hpp"
#include "qk/layout/ggml.hpp"

namespace qk {

struct matrix_shape {
    std::size_t rows = 0, columns = 0;
};

/// The parts of one matrix. Layouts without scales, zero points or global scale leave those empty.
struct matrix_planes {
    std::span<const std::byte> codes, scales, zeros;
    float global = 1;
    std::span<const std::byte> group_of = {};  ///< an int32 for each column: its group, where they are not in order (GPTQ's g_idx)
};

inline namespace QK_ISA {

/// The group of a column that `group_of` names.
inline std::size_t named_group(std::span<const std::byte> group_of, std::size_t column) {
    std::int32_t g;
    std::memcpy(&g, group_of.data() + 4 * column, 4);
    return static_cast<std::size_t>(g);
}

}  // namespace QK_ISA
struct mutable_planes {
    std::span<std::byte> codes, scales, zeros;
    float* global = nullptr;
};

inline namespace QK_ISA {

constexpr int bits_of(scale_type s) {
    switch (s) {
        case scale_type::none: return 0;
        case scale_type::e8m0:
        case scale_type::e4m3:
        case scale_type::ue4m3: return 8;
        case scale_type::f16:
        case scale_type::bf16: return 16;
        case scale_type::f32: return 32;
    }
    return 0;
}

constexpr std::size_t divide_up(std::size_t a, std::size_t b) { return a / b + (a % b != 0); }

/// Groups along a row, and rows of scales.
constexpr std::size_t groups_of(const layout& l, matrix_shape s) {
    return l.group_columns == 0 ? 1 : divide_up(s.columns, static_cast<std::size_t>(l.group_columns));
}
constexpr std::size_t scale_rows_of(const layout& l, matrix_shape s) {
    return l.group_rows == 0 ? 1 : divide_up(s.rows, static_cast<std::size_t>(l.group_rows));
}

}  // namespace QK_ISA

struct plane_sizes {
    std::size_t codes = 0, scales = 0, zeros = 0;
};

inline namespace QK_ISA {

/// Bytes of each part. `shape` is that of a file that was checked: no product overflows.
constexpr plane_sizes sizes_of(const layout& l, matrix_shape s) {
    const auto bits = static_cast<std::size_t>(l.bits);
    const std::size_t groups = groups_of(l, s), rows = scale_rows_of(l, s);
    plane_sizes n;
    switch (l.order) {
        case code_order::rows:
            n.codes = s.rows * divide_up(s.columns * bits, static_cast<std::size_t>(l.row_bits)) * static_cast<std::size_t>(l.row_bits) / 8;
            break;
        case code_order::columns: n.codes = divide_up(s.columns * bits, 32) * 4 * s.rows; break;
        case code_order::awq: n.codes = s.columns * divide_up(s.rows, 8) * 4; break;
        case code_order::row_pairs: n.codes = divide_up(s.rows, 2) * s.columns; break;
        case code_order::high_first: n.codes = s.rows * divide_up(s.columns, 2); break;
        case code_order::ggml_blocks:
        case code_order::ggml_rows: n.codes = s.rows * (s.columns / facts_of(l.block).values) * facts_of(l.block).bytes; return n;
    }
    const auto scale_bytes = static_cast<std::size_t>(bits_of(l.scale) / 8);
    n.scales = (l.scales == scale_order::swizzled ? divide_up(rows, 128) * 128 * divide_up(groups, 4) * 4 : rows * groups) * scale_bytes;
    switch (l.zero) {
        case zero_type::none: break;
        case zero_type::packed_rows: n.zeros = divide_up(rows * bits, 32) * 4 * groups; break;
        case zero_type::packed_words:
        case zero_type::packed_words_m1: n.zeros = divide_up(rows * bits, 32) * 4 * groups; break;
        case zero_type::packed_groups: n.zeros = rows * divide_up(groups * bits, 8); break;
        case zero_type::int8: n.zeros = rows * groups; break;
        case zero_type::bias: n.zeros = rows * groups * scale_bytes; break;
    }
    return n;
}

}  // namespace QK_ISA

namespace layout_parts {
inline namespace QK_ISA {

/// Reads and writes `bits` (at most 8) from bit number `bit` of a stream, within its bytes.
inline unsigned stream_bits(const std::uint8_t* p, std::size_t bit, unsigned bits) {
    const unsigned shift = bit % 8;
    unsigned window = p[bit / 8];
    if (shift + bits > 8) window |= static_cast<unsigned>(p[bit / 8 + 1]) << 8;
    return window >> shift & ((1u << bits) - 1);
}
inline void put_stream_bits(std::uint8_t* p, std::size_t bit, unsigned bits, unsigned value) {
    const unsigned shift = bit % 8, mask = ((1u << bits) - 1) << shift;
    const unsigned moved = value << shift & mask;
    p[bit / 8] = static_cast<std::uint8_t>((p[bit / 8] & ~mask) | (moved & 255));
    if (shift + bits > 8) p[bit / 8 + 1] = static_cast<std::uint8_t>((p[bit / 8 + 1] & ~(mask >> 8)) | moved >> 8);
}

/// The byte that holds byte `byte` of column `column`'s stream, where int32 words of `columns` streams lie side by side.
constexpr std::size_t word_byte(std::size_t byte, std::size_t column, std::size_t columns) {
    return (byte / 4 * columns + column) * 4 + byte % 4;
}
inline unsigned column_bits(const std::uint8_t* p, std::size_t bit, unsigned bits, std::size_t column, std::size_t columns) {
    const unsigned shift = bit % 8;
    unsigned window = p[word_byte(bit / 8, column, columns)];
    if (shift + bits > 8) window |= static_cast<unsigned>(p[word_byte(bit / 8 + 1, column, columns)]) << 8;
    return window >> shift & ((1u << bits) - 1);
}
inline void put_column_bits(std::uint8_t* p, std::size_t bit, unsigned bits, std::size_t column, std::size_t columns, unsigned value) {
    const unsigned shift = bit % 8, mask = ((1u << bits) - 1) << shift, moved = value << shift & mask;
    std::uint8_t& low = p[word_byte(bit / 8, column, columns)];
    low = static_cast<std::uint8_t>((low & ~mask) | (moved & 255));
    if (shift + bits <= 8) return;
    std::uint8_t& high = p[word_byte(bit / 8 + 1, column, columns)];
    high = static_cast<std::uint8_t>((high & ~(mask >> 8)) | moved >> 8);
}

inline constexpr unsigned awq_shift[8] = {0, 16, 4, 20, 8, 24, 12, 28};  // of row j of eight in a word
/// Byte and shift of the nibble of AWQ's word row `word_row`, with `rows` rows.
struct nibble_place {
    std::size_t byte;
    unsigned shift;
};
constexpr nibble_place awq_place(std::size_t word_row, std::size_t row, std::size_t rows) {
    const unsigned shift = awq_shift[row % 8];
    return {(word_row * divide_up(rows, 8) + row / 8) * 4 + shift / 8, shift % 8};
}
inline void put_nibble(std::uint8_t& byte, unsigned shift, unsigned value) {
    byte = static_cast<std::uint8_t>((byte & ~(15u << shift)) | (value & 15u) << shift);
}
inline const std::uint8_t* raw(std::span<const std::byte> s) { return reinterpret_cast<const std::uint8_t*>(s.data()); }
inline std::uint8_t* raw(std::span<std::byte> s) { return reinterpret_cast<std::uint8_t*>(s.data()); }

inline float round_to_bfloat(float x) { return widen(narrow<bfloat16>(x)); }
inline float round_to_half(float x) { return widen(narrow<float16>(x)); }
inline float round_to(scale_type t, float x) {
    return t == scale_type::f16 ? round_to_half(x) : t == scale_type::bf16 ? round_to_bfloat(x) : x;
}

/// Values of all codes of 8 bits or fewer.
struct code_table {
    float of[256];
};
constexpr code_table table_of(element e) {
    code_table t{};
    for (unsigned c = 0; c < 256; ++c) {
        switch (e) {
            case element::e2m1: t.of[c] = minifloat(c & 15, 2, 1); break;
            case element::e2m3: t.of[c] = minifloat(c & 63, 2, 3); break;
            case element::e3m2: t.of[c] = minifloat(c & 63, 3, 2); break;
            case element::e4m3: t.of[c] = e4m3_to_float(static_cast<std::uint8_t>(c)); break;
            case element::e5m2: t.of[c] = e5m2_to_float(static_cast<std::uint8_t>(c)); break;
            case element::unsigned_integer: t.of[c] = static_cast<float>(c); break;
            case element::signed_integer: t.of[c] = static_cast<float>(static_cast<std::int8_t>(c)); break;
            case element::ggml: t.of[c] = 0; break;
        }
    }
    return t;
}
template <element E>
inline constexpr code_table table = table_of(E);
inline const float* values_of(element e) {
    switch (e) {
        case element::e2m1: return table<element::e2m1>.of;
        case element::e2m3: return table<element::e2m3>.of;
        case element::e3m2: return table<element::e3m2>.of;
        case element::e4m3: return table<element::e4m3>.of;
        case element::e5m2: return table<element::e5m2>.of;
        case element::signed_integer: return table<element::signed_integer>.of;
        default: return table<element::unsigned_integer>.of;
    }
}
/// The signed number of a two's-complement code of `bits` bits.
constexpr int sign_extended(unsigned code, int bits) {
    const unsigned top = 1u << (bits - 1);
    return static_cast<int>(code ^ top) - static_cast<int>(top);
}
constexpr std::size_t scale_place(const layout& l, matrix_shape s, std::size_t r, std::size_t g) {
    const std::size_t groups = groups_of(l, s);
    switch (l.scales) {
        case scale_order::columns: return g * scale_rows_of(l, s) + r;
        case scale_order::swizzled: return (r / 128 * divide_up(groups, 4) + g / 4) * 512 + r % 32 * 16 + r % 128 / 32 * 4 + g % 4;
        default: return r * groups + g;
    }
}
}  // namespace QK_ISA
}  // namespace layout_parts

inline namespace QK_ISA {

/// Writes the codes of one row to `out`, one byte each. A code of ggml_rows is not reached this way: repack() takes such rows apart.
inline void unpack_row(const layout& l, matrix_shape s, std::span<const std::byte> codes, std::size_t row, std::uint8_t* out) {
    const std::uint8_t* p = layout_parts::raw(codes);
    const auto bits = static_cast<unsigned>(l.bits);
    switch (l.order) {
        case code_order::rows: {
            const auto unit = static_cast<std::size_t>(l.row_bits);
            p += row * (divide_up(s.columns * bits, unit) * unit / 8);
            if (bits == 8) std::memcpy(out, p, s.columns);
            else if (bits == 4) {
                for (std::size_t i = 0; i < s.columns / 2; ++i) out[2 * i] = p[i] & 15, out[2 * i + 1] = p[i] >> 4;
                if (s.columns % 2 != 0) out[s.columns - 1] = p[s.columns / 2] & 15;
            } else
                for (std::size_t c = 0; c < s.columns; ++c)
                    out[c] = static_cast<std::uint8_t>(layout_parts::stream_bits(p, c * bits, bits));
            return;
        }
        case code_order::columns:
            for (std::size_t c = 0; c < s.columns; ++c)
                out[c] = static_cast<std::uint8_t>(layout_parts::column_bits(p, c * bits, bits, row, s.rows));
            return;
        case code_order::awq:
            for (std::size_t c = 0; c < s.columns; ++c) {
                const auto at = layout_parts::awq_place(c, row, s.rows);
                out[c] = p[at.byte] >> at.shift & 15;
            }
            return;
        case code_order::row_pairs:
            for (std::size_t c = 0; c < s.columns; ++c) out[c] = p[row / 2 * s.columns + c] >> (row % 2 * 4) & 15;
            return;
        case code_order::high_first:
            p += row * divide_up(s.columns, 2);
            for (std::size_t c = 0; c < s.columns; ++c) out[c] = p[c / 2] >> (c % 2 == 0 ? 4 : 0) & 15;
            return;
        case code_order::ggml_blocks: {
            const ggml_facts f = facts_of(l.block);
            p += row * (s.columns / f.values) * f.bytes;
            for (std::size_t c = 0; c < s.columns; ++c)
                out[c] = static_cast<std::uint8_t>(ggml_code(l.block, p + c / f.values * f.bytes, static_cast<unsigned>(c % f.values)));
            return;
        }
        case code_order::ggml_rows: return;
    }
}

/// Writes a row of codes, one byte each, to their places; other rows stay as they are. Padding is not touched.
inline void pack_row(const layout& l, matrix_shape s, const std::uint8_t* in, std::size_t row, std::span<std::byte> codes) {
    std::uint8_t* p = layout_parts::raw(codes);
    const auto bits = static_cast<unsigned>(l.bits);
    switch (l.order) {
        case code_order::rows: {
            const auto unit = static_cast<std::size_t>(l.row_bits);
            p += row * (divide_up(s.columns * bits, unit) * unit / 8);
            if (bits == 8) std::memcpy(p, in, s.columns);
            else
                for (std::size_t c = 0; c < s.columns; ++c) layout_parts::put_stream_bits(p, c * bits, bits, in[c]);
            return;
        }
        case code_order::columns:
            for (std::size_t c = 0; c < s.columns; ++c) layout_parts::put_column_bits(p, c * bits, bits, row, s.rows, in[c]);
            return;
        case code_order::awq:
            for (std::size_t c = 0; c < s.columns; ++c) {
                const auto at = layout_parts::awq_place(c, row, s.rows);
                layout_parts::put_nibble(p[at.byte], at.shift, in[c]);
            }
            return;
        case code_order::row_pairs:
            for (std::size_t c = 0; c < s.columns; ++c) layout_parts::put_nibble(p[row / 2 * s.columns + c], row % 2 * 4, in[c]);
            return;
        case code_order::high_first:
            p += row * divide_up(s.columns, 2);
            for (std::size_t c = 0; c < s.columns; ++c) layout_parts::put_nibble(p[c / 2], c % 2 == 0 ? 4 : 0, in[c]);
            return;
        case code_order::ggml_blocks: {
            const ggml_facts f = facts_of(l.block);
            p += row * (s.columns / f.values) * f.bytes;
            for (std::size_t c = 0; c < s.columns; c += f.values) {
                std::uint8_t* block = p + c / f.values * f.bytes;
                if (l.block == ggml_type::tq1_0) put_trits(block, in + c);
                else
                    for (unsigned i = 0; i < f.values; ++i) put_ggml_code(l.block, block, i, in[c + i]);
            }
            return;
        }
        case code_order::ggml_rows: return;
    }
}

/// The bits of the scale of scale row `r` (a row divided by group_rows) and group `g`.
inline std::uint32_t scale_bits(const layout& l, matrix_shape s, std::span<const std::byte> scales, std::size_t r, std::size_t g) {
    std::uint32_t v = 0;
    const auto width = static_cast<std::size_t>(bits_of(l.scale) / 8);
    std::memcpy(&v, scales.data() + layout_parts::scale_place(l, s, r, g) * width, width);
    return v;
}
inline void put_scale_bits(const layout& l, matrix_shape s, std::span<std::byte> scales, std::size_t r, std::size_t g, std::uint32_t v) {
    const auto width = static_cast<std::size_t>(bits_of(l.scale) / 8);
    std::memcpy(scales.data() + layout_parts::scale_place(l, s, r, g) * width, &v, width);
}
inline float scale_value(scale_type t, std::uint32_t bits) {
    switch (t) {
        case scale_type::none: return 1;
        case scale_type::e8m0: return layout_parts::e8m0_to_float(static_cast<std::uint8_t>(bits));
        case scale_type::e4m3: return layout_parts::e4m3_to_float(static_cast<std::uint8_t>(bits));
        case scale_type::ue4m3: return layout_parts::ue4m3_to_float(static_cast<std::uint8_t>(bits));
        case scale_type::f16: return layout_parts::half_to_float(static_cast<std::uint16_t>(bits));
        case scale_type::bf16: return layout_parts::bfloat_to_float(static_cast<std::uint16_t>(bits));
        case scale_type::f32: return std::bit_cast<float>(bits);
    }
    return 1;
}
inline float scale_at(const layout& l, matrix_shape s, std::span<const std::byte> scales, std::size_t r, std::size_t g) {
    return l.scale == scale_type::none ? 1.0f : scale_value(l.scale, scale_bits(l, s, scales, r, g));
}

/// What is subtracted from the codes of group `g` in scale row `r`; for zero_type::bias see bias_at.
inline int zero_at(const layout& l, matrix_shape s, std::span<const std::byte> zeros, std::size_t r, std::size_t g) {
    const std::uint8_t* p = layout_parts::raw(zeros);
    const auto bits = static_cast<unsigned>(l.bits);
    const std::size_t groups = groups_of(l, s), rows = scale_rows_of(l, s);
    switch (l.zero) {
        case zero_type::packed_rows: return static_cast<int>(layout_parts::column_bits(p, r * bits, bits, g, groups));
        case zero_type::packed_words:
        case zero_type::packed_words_m1: {
            if (l.order == code_order::awq) {
                const auto at = layout_parts::awq_place(g, r, rows);
                return p[at.byte] >> at.shift & 15;
            }
            const auto z = static_cast<int>(layout_parts::stream_bits(p + g * divide_up(rows * bits, 32) * 4, r * bits, bits));
            return z + (l.zero == zero_type::packed_words_m1 ? 1 : 0);
        }
        case zero_type::packed_groups:
            return static_cast<int>(layout_parts::stream_bits(p + r * divide_up(groups * bits, 8), g * bits, bits));
        case zero_type::int8: return static_cast<std::int8_t>(p[r * groups + g]) + l.offset;
        default: return l.offset;
    }
}
/// Stores a zero point; false if the layout cannot hold it.
inline bool put_zero(const layout& l, matrix_shape s, std::span<std::byte> zeros, std::size_t r, std::size_t g, int zero) {
    std::uint8_t* p = layout_parts::raw(zeros);
    const auto bits = static_cast<unsigned>(l.bits);
    const std::size_t groups = groups_of(l, s), rows = scale_rows_of(l, s);
    if (l.zero == zero_type::none || l.zero == zero_type::bias) return zero == l.offset;
    const int stored = zero - (l.zero == zero_type::packed_words_m1 ? 1 : l.zero == zero_type::int8 ? l.offset : 0);
    if (l.zero == zero_type::int8) {
        p[r * groups + g] = static_cast<std::uint8_t>(stored);
        return stored >= -128 && stored <= 127;
    }
    if (stored < 0 || stored >= 1 << bits) return false;
    const auto z = static_cast<unsigned>(stored);
    if (l.zero == zero_type::packed_rows) layout_parts::put_column_bits(p, r * bits, bits, g, groups, z);
    else if (l.zero == zero_type::packed_groups) layout_parts::put_stream_bits(p + r * divide_up(groups * bits, 8), g * bits, bits, z);
    else if (l.order == code_order::awq) {
        const auto at = layout_parts::awq_place(g, r, rows);
        layout_parts::put_nibble(p[at.byte], at.shift, z);
    } else layout_parts::put_stream_bits(p + g * divide_up(rows * bits, 32) * 4, r * bits, bits, z);
    return true;
}
inline float bias_at(const layout& l, matrix_shape s, std::span<const std::byte> zeros, std::size_t r, std::size_t g) {
    return scale_value(l.scale, scale_bits(l, s, zeros, r, g));
}

}  // namespace QK_ISA

namespace layout_parts {
inline namespace QK_ISA {
/// The rows' values of one group: `n` codes with one scale. `table` has the values of all codes.
inline void decode_group(const layout& l, const float* table, const std::uint8_t* codes, std::size_t n, float scale, float zero, float bias,
                         float* y) {
    switch (l.product) {
        case arithmetic::float32:
        case arithmetic::power_of_two:
            for (std::size_t i = 0; i < n; ++i) y[i] = (table[codes[i]] - zero) * scale;
            break;
        case arithmetic::bfloat16:
            for (std::size_t i = 0; i < n; ++i) y[i] = round_to_bfloat((table[codes[i]] - zero) * scale);
            break;
        case arithmetic::scale:
            if (l.zero == zero_type::bias)
                for (std::size_t i = 0; i < n; ++i) y[i] = round_to(l.scale, round_to(l.scale, table[codes[i]] * scale) + bias);
            else
                for (std::size_t i = 0; i < n; ++i) y[i] = round_to(l.scale, (table[codes[i]] - zero) * scale);
            break;
    }
}
}  // namespace QK_ISA
}  // namespace layout_parts

inline namespace QK_ISA {

/// Writes the numbers of one row as its system's own reader gives them. `scratch` holds a byte for each column.
inline void decode_row(const layout& l, matrix_shape s, const matrix_planes& from, std::size_t row, std::uint8_t* scratch, float* y) {
    if (l.order == code_order::ggml_blocks) {
        const ggml_facts f = facts_of(l.block);
        const std::uint8_t* p = layout_parts::raw(from.codes) + row * (s.columns / f.values) * f.bytes;
        for (std::size_t c = 0; c < s.columns; c += f.values, p += f.bytes) decode_ggml(l.block, p, y + c);
        return;
    }
    unpack_row(l, s, from.codes, row, scratch);
    float own[256];
    const float* table = layout_parts::values_of(l.codes);
    if (l.positive_zero || (l.codes == element::signed_integer && l.bits < 8)) {
        for (unsigned c = 0; c < 256; ++c) {
            own[c] = l.codes == element::signed_integer ? static_cast<float>(layout_parts::sign_extended(c & ((1u << l.bits) - 1), l.bits))
                                                        : table[c];
            if (l.positive_zero && own[c] == 0) own[c] = 0.0f;
        }
        table = own;
    }
    const std::size_t r = l.group_rows == 0 ? 0 : row / static_cast<std::size_t>(l.group_rows), groups = groups_of(l, s);
    const std::size_t width = l.group_columns == 0 ? s.columns : static_cast<std::size_t>(l.group_columns);
    const auto group = [&](std::size_t g, std::size_t first, std::size_t n) {
        float scale = scale_at(l, s, from.scales, r, g);
        if (l.global == global_type::multiplies) scale *= from.global;
        if (l.global == global_type::divides) scale /= from.global;
        if (l.product == arithmetic::power_of_two && scale_bits(l, s, from.scales, r, g) == 255) {  // 2^128: only the product fits
            for (std::size_t i = first; i < first + n; ++i) y[i] = table[scratch[i]] * 0x1p127f * 2;
            return;
        }
        const bool bias = l.zero == zero_type::bias;
        layout_parts::decode_group(l, table, scratch + first, n, scale, bias ? 0.0f : static_cast<float>(zero_at(l, s, from.zeros, r, g)),
                                   bias ? bias_at(l, s, from.zeros, r, g) : 0.0f, y + first);
    };
    if (!from.group_of.empty()) {
        for (std::size_t c = 0; c < s.columns; ++c) group(named_group(from.group_of, c), c, 1);
        return;
    }
    for (std::size_t g = 0; g < groups; ++g) group(g, g * width, width < s.columns - g * width ? width : s.columns - g * width);
}

}  // namespace QK_ISA

}  // namespace qk
