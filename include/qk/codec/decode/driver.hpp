// SPDX-License-Identifier: Apache-2.0
// The driver of `decode`: walks the planes in the tensor's order, tile by tile, whatever the axis.
#pragma once

#include <algorithm>

#include "qk/codec/decode/fast_blocks.hpp"
#include "qk/codec/decode/fast_values.hpp"
#include "qk/codec/layout/parameters.hpp"
#include "qk/codec/layout/pieces.hpp"
#include "qk/codec/layout/scales_of_tile.hpp"
#include "qk/codec/layout/unpack.hpp"
#include "qk/kernels/lanes/streaming.hpp"

namespace qk::detail {

/// A run under one scale, by the fast form; how many values were done.
template <class Arch, int Width, class Format>
std::size_t decode_quickly(const Format& f, std::span<const std::byte> plane, std::size_t first, float* y, std::size_t n, float scale,
                           std::int64_t zero, bool streaming) noexcept {
    const int width = element_width(f);
    if (n < 4 * kernels::lanes<Arch> || first * static_cast<std::size_t>(width) % 8 != 0 || !decodes_quickly<Arch>(width)) return 0;
    streaming = streaming && reinterpret_cast<std::uintptr_t>(y) % sizeof(kernels::vf<Arch>) == 0;
    if constexpr (std::same_as<Format, integer>) {
        return decode_row<Arch, Width>(integer_values<Arch>(f, zero), plane, first, y, n, width, scale, streaming);
    } else {
        const floating_values<Arch> values(f);
        return values.usable ? decode_row<Arch, Width>(values, plane, first, y, n, width, scale, streaming) : 0;
    }
}

/// decode_quickly of some width: what stands around it is compiled once for all widths.
template <class Format>
using fast_decoder = std::size_t (*)(const Format&, std::span<const std::byte>, std::size_t, float*, std::size_t, float, std::int64_t,
                                     bool) noexcept;

/// y = element * scale for floats, (q - zero_point) * scale for integers.
template <class Arch, class Format>
void decode_elements(const Format& f, const_planes planes, values_out y, const codec_parameters& p,
                     fast_decoder<Format> decode_quickly) noexcept {
    const int width = element_width(f);
    const along_axis a = walk_of(p, y.size());
    const bool streaming = y.floats() != nullptr && kernels::streams<Arch>(nullptr, y.floats(), y.size());
    const auto decode_tile = [&](std::size_t o, std::size_t l, std::size_t i, std::size_t first, std::size_t n) QK_APART {
        alignas(64) std::uint32_t code[tile];
        alignas(64) float value[tile];
        scale_tile<Arch> s;
        s.fill(p, a, o, l, i, n);
        if (s.one_zero(n)) {
            const float scale = s.single ? s.scale[0] : 1.0f;
            if (const std::size_t done = decode_quickly(f, planes.elements, first, value, n, scale, s.zero[0], false); done == n) {
                if (!s.single) s.multiply(value, n);
                return y.template copy<Arch>(value, first, n);
            }
        }
        get_codes<Arch>(planes.elements, first, n, width, code);
        if constexpr (std::same_as<Format, integer>) {
            if (width <= 16 && s.single) {
                const auto z = static_cast<std::int32_t>(s.zero[0]);
                const int up = 32 - width;
                for (std::size_t k = 0; k < n; ++k) {
                    const std::int32_t q =
                        f.is_signed ? static_cast<std::int32_t>(code[k] << up) >> up : static_cast<std::int32_t>(code[k]);
                    value[k] = static_cast<float>(q - z);
                }
            } else {
                for (std::size_t k = 0; k < n; ++k) value[k] = static_cast<float>(value_of(f, code[k]) - s.zero[s.single ? 0 : k]);
            }
        } else {
            elements_of<Arch>(f, code, value, n);
        }
        if constexpr (std::same_as<Format, floating>) {
            if (f == fp32) return y.template copy<Arch>(value, first, n);  // the identity, whatever the scale
        }
        s.multiply(value, n);
        y.template copy<Arch>(value, first, n);
    };
    if (p.one_scale() && y.floats() != nullptr) {
        std::size_t done = decode_quickly(f, planes.elements, 0, y.floats(), y.size(), p.one.scale, p.one.zero_point, streaming);
        if (streaming) kernels::end_streaming<Arch>();
        for (; done < y.size(); done += tile) decode_tile(0, done, 0, done, std::min(tile, y.size() - done));
        return;
    }
    for_each_run(a, 0, decode_tile);
}

/// The factors of n values that lie across the axis.
template <class Arch, class Format>
QK_INLINE void factors_across(const Format& f, const_planes p, along_axis a, std::size_t o, std::size_t along, std::size_t across,
                              std::size_t n, float tensor, float* factor) {
    const std::size_t scale = scale_index(f, a, o, along, across), shift = shift_index(f, a, o, along, across);
    for (std::size_t k = factors_quickly<Arch>(f, p, scale, shift, n, tensor, factor); k < n; ++k) {
        const std::uint32_t code = get_code(p.scales, scale + k, scale_width(f));
        if constexpr (std::same_as<Format, microexponent>) factor[k] = scale_of(f, code, get_code(p.shifts, shift + k, f.shift_bits));
        else if constexpr (std::same_as<Format, nvfloat>) factor[k] = scale_of(f, code, tensor);
        else factor[k] = scale_of(f, code);
    }
}

/// Values that lie next to each other with the same factor, at most, along the axis.
template <class Format>
constexpr std::size_t share_of(const Format& f) {
    if constexpr (std::same_as<Format, microexponent>) return static_cast<std::size_t>(f.sub_block_size);
    else return static_cast<std::size_t>(f.block_size);
}
/// How many of them there are from l on, in a row of `length`.
template <class Format>
constexpr std::size_t sharing(const Format& f, std::size_t l, std::size_t length) {
    const auto block = static_cast<std::size_t>(f.block_size);
    const std::size_t in_block = l % block, share = share_of(f);
    return std::min({length - l, block - in_block, share - in_block % share});
}

/// The factor of every value of a piece; along the axis a run of values that share one is filled at once.
template <class Arch, class Format>
QK_INLINE void factors_of(const Format& f, const_planes p, along_axis a, std::size_t o, std::size_t l, std::size_t i, std::size_t n,
                          float tensor, float* factor) {
    if (a.inner != 1) return factors_across<Arch>(f, p, a, o, l, i, n, tensor, factor);
    for (std::size_t k = 0; k < n;) {
        const std::size_t until = k + sharing(f, l + k, l + n);
        float v = 0;
        factors_across<Arch>(f, p, a, o, l + k, 0, 1, tensor, &v);
        std::fill(factor + k, factor + until, v);
        k = until;
    }
}

/// Block formats along a strided axis: rows that share their factors, a piece of them at a time. How many values were done: all or none.
template <class Arch, known_codes Known, class Format>
std::size_t decode_columns(const Format& f, const_planes p, values_out y, along_axis a, float tensor) noexcept {
    return with_element_values<Arch, Known>(f, [&](const auto& values) {
        alignas(64) float factor[tile], value[tile];
        for (std::size_t o = 0; o < a.outer; ++o) {
            for (std::size_t l = 0, rows = 0; l < a.length; l += rows) {
                rows = sharing(f, l, a.length);
                for (std::size_t i = 0; i < a.inner; i += tile) {
                    const std::size_t n = std::min(tile, a.inner - i);
                    factors_across<Arch>(f, p, a, o, l, i, n, tensor, factor);
                    for (std::size_t j = 0; j < rows; ++j) {
                        const std::size_t at = (o * a.length + l + j) * a.inner + i;
                        float* to = y.floats() != nullptr ? y.floats() + at : value;
                        decode_row<Arch, Known.width>(values, p.elements, at, to, n, element_width(f), factor);
                        if (y.floats() == nullptr) y.template copy<Arch>(value, at, n);
                    }
                }
            }
        }
        return y.size();
    });
}

/// The fast forms for what is known of a format: what stands around them is compiled once for a family.
template <class Format>
struct fast_decoders {
    std::size_t (*rows)(const Format&, const_planes, float*, std::size_t, float, bool) noexcept;
    std::size_t (*columns)(const Format&, const_planes, values_out, along_axis, float) noexcept;
};
template <class Arch, known_codes Known, class Format>
inline constexpr fast_decoders<Format> fast_decoders_of = {&decode_blocks_quickly<Arch, Known, Format>,
                                                           &decode_columns<Arch, Known, Format>};

template <class Arch, class Format>
void decode_blocks(const Format& f, const_planes p, values_out y, along_axis a, const fast_decoders<Format>& fast) noexcept;

/// Rows whose last block is short, gathered.
template <class Arch, class Format>
void decode_gathered(const Format& f, const_planes p, values_out y, along_axis a, const fast_decoders<Format>& fast) noexcept {
    gathered_rows<Format> g(f);
    std::memset(g.packed, 0, sizeof g.packed);  // what fills blocks up has codes, too
    if (!p.tensor.empty()) std::memcpy(g.staged.tensor.data(), p.tensor.data(), sizeof(float));
    g.each(a, [&] {
        g.each_code(p, [](std::span<const std::byte> from, std::size_t bit, std::span<std::byte> to, std::size_t to_bit, std::size_t bits) {
            copy_bits<Arch>(to, to_bit, from, bit, bits);
        });
        const const_planes staged{g.staged.elements, g.staged.scales, g.staged.shifts, g.staged.tensor};
        decode_blocks<Arch>(f, staged, std::span<float>(g.values, g.length()), along_axis{1, g.length(), 1}, fast);
        for (const auto& piece : std::span(g.pieces, g.number))
            y.template copy<Arch>(g.values + piece.block * g.size(), piece.at, piece.count);
    });
}

/// Block formats along any axis.
template <class Arch, class Format>
void decode_blocks(const Format& f, const_planes p, values_out y, along_axis a, const fast_decoders<Format>& fast) noexcept {
    float tensor = 1;
    if constexpr (std::same_as<Format, nvfloat>) std::memcpy(&tensor, p.tensor.data(), sizeof tensor);
    const auto block = static_cast<std::size_t>(f.block_size);
    if (a.inner == 1 && a.length % block == 0) a = {1, a.outer * a.length, 1};  // no ragged block: the rows are one
    const auto decode_tile = [&](std::size_t o, std::size_t l, std::size_t i, std::size_t first, std::size_t n) QK_APART {
        alignas(64) std::uint32_t code[tile];
        alignas(64) float value[tile], factor[tile];
        get_codes<Arch>(p.elements, first, n, element_width(f), code);
        elements_of<Arch>(f, code, value, n);
        factors_of<Arch>(f, p, a, o, l, i, n, tensor, factor);
        for (std::size_t k = 0; k < n; ++k) value[k] *= factor[k];
        y.template copy<Arch>(value, first, n);
    };
    if (a.inner != 1 && y.size() != 0 && fast.columns(f, p, y, a, tensor) != 0) return;
    if (a.inner == 1 && a.outer != 1 && block <= widened_block) return decode_gathered<Arch>(f, p, y, a, fast);
    if (a.inner != 1 || a.outer != 1 || (y.floats() == nullptr && block > widened_block)) return for_each_run(a, block, decode_tile);
    if (y.floats() == nullptr) {
        alignas(64) float value[widened];
        return for_each_widened(f, p, a.length, [&](std::size_t first, std::size_t n, const_planes part) {
            decode_blocks<Arch>(f, part, std::span<float>(value, n), along_axis{1, n, 1}, fast);
            y.template copy<Arch>(value, first, n);
        });
    }
    const bool aligned = reinterpret_cast<std::uintptr_t>(y.floats()) % sizeof(kernels::vf<Arch>) == 0;
    const bool streaming = aligned && kernels::streams<Arch>(nullptr, y.floats(), a.length);
    const std::size_t done = fast.rows(f, p, y.floats(), a.length / block, tensor, streaming);
    const std::size_t step = block > tile ? tile : tile / block * block;
    for (std::size_t k = done; k < a.length; k += step) decode_tile(0, k, 0, k, std::min(step, a.length - k));
}

}  // namespace qk::detail
