// SPDX-License-Identifier: Apache-2.0
// `decode` of elementwise formats: walks the planes in the tensor's order, tile by tile, whatever the axis of the scales.
#pragma once

#include <algorithm>

#include "qk/codec/decode/fast_values.hpp"
#include "qk/codec/layout/parameters.hpp"
#include "qk/codec/layout/pieces.hpp"
#include "qk/codec/layout/scales_of_tile.hpp"
#include "qk/codec/layout/unpack.hpp"
#include "qk/lanes/streaming.hpp"
#include "qk/trace.hpp"

namespace qk::detail {

/// Decodes a run with one scale by the fast form. Returns how many values were done.
template <class Arch, int Width, class Format>
std::size_t decode_fast(const Format& f, std::span<const std::byte> plane, std::size_t first, float* y, std::size_t n, float scale,
                        std::int64_t zero, bool streaming) noexcept {
    const int width = element_width(f);
    if (n < 4 * kernels::lanes<Arch> || first * static_cast<std::size_t>(width) % 8 != 0 || !decodes_fast<Arch>(width)) return 0;
    streaming = streaming && reinterpret_cast<std::uintptr_t>(y) % sizeof(kernels::vf<Arch>) == 0;
    if constexpr (has_listed_values<Format>) {
        if constexpr (kernels::is_baseline<Arch>) return 0;
        else return decode_row<Arch, Width>(listed_values<Arch>(f), plane, first, y, n, width, scale, streaming);
    } else if constexpr (has_zero_points<Format>) {
        return decode_row<Arch, Width>(integer_values<Arch>(f, zero), plane, first, y, n, width, scale, streaming);
    } else {
        const floating_values<Arch> values(f);
        return values.usable ? decode_row<Arch, Width>(values, plane, first, y, n, width, scale, streaming) : 0;
    }
}

/// A decode_fast of any width: the code around it is compiled once for all widths.
template <class Format>
using fast_decoder = std::size_t (*)(const Format&, std::span<const std::byte>, std::size_t, float*, std::size_t, float, std::int64_t,
                                     bool) noexcept;

/// Computes y = element * scale for floats, (q - zero_point) * scale for integers.
template <class Arch, class Format>
void decode_elements(const Format& f, const_planes planes, values_out y, const codec_parameters& p,
                     fast_decoder<Format> decode_fast) noexcept {
    const int width = element_width(f);
    const along_axis a = walk_of(p, y.size());
    const bool streaming = y.floats() != nullptr && kernels::streams<Arch>(nullptr, y.floats(), y.size());
    const auto decode_tile = [&](std::size_t o, std::size_t l, std::size_t i, std::size_t first, std::size_t n) QK_APART {
        alignas(64) std::uint32_t code[tile];
        alignas(64) float value[tile];
        scale_tile<Arch> s;
        s.fill(p, a, o, l, i, n);
        if (s.one_zero(n)) {
            float* to = y.floats() != nullptr ? y.floats() + first : value;
            const float scale = s.single ? s.scale[0] : 1.0f;
            if (const std::size_t done = decode_fast(f, planes.elements, first, to, n, scale, s.zero_of(0), false); done == n) {
                if (!s.single) s.multiply(to, n);
                if (to == value) y.template copy<Arch>(value, first, n);
                return;
            }
        }
        QK_TRACE("general values", first, n, Format);
        get_codes<Arch>(planes.elements, first, n, width, code);
        if constexpr (has_zero_points<Format>) {
            if (width <= 16 && s.single) {
                const auto z = static_cast<std::int32_t>(s.zero_of(0));
                const int up = 32 - width;
                for (std::size_t k = 0; k < n; ++k) {
                    const std::int32_t q =
                        f.is_signed ? static_cast<std::int32_t>(code[k] << up) >> up : static_cast<std::int32_t>(code[k]);
                    value[k] = static_cast<float>(q - z);
                }
            } else {
                for (std::size_t k = 0; k < n; ++k) value[k] = static_cast<float>(value_of(f, code[k]) - s.zero_of(k));
            }
        } else {
            elements_of<Arch>(f, code, value, n);
        }
        if constexpr (is_float<Format>) {
            if (f == fp32) return y.template copy<Arch>(value, first, n);  // the identity, whatever the scale
        }
        s.multiply(value, n);
        y.template copy<Arch>(value, first, n);
    };
    if (p.one_scale()) {  // float memory is one piece
        alignas(64) float value[widened];
        const std::size_t piece = y.floats() != nullptr ? y.size() : widened;
        for (std::size_t k = 0; k < y.size(); k += piece) {
            const std::size_t n = std::min(piece, y.size() - k);
            float* to = y.floats() != nullptr ? y.floats() : value;
            std::size_t done = decode_fast(f, planes.elements, k, to, n, p.one.scale, p.one.zero_point, streaming);
            if (y.floats() == nullptr) y.template copy<Arch>(value, k, done);
            for (; done < n; done += tile) decode_tile(0, k + done, 0, k + done, std::min(tile, n - done));
        }
        if (streaming) kernels::end_streaming<Arch>();
        return;
    }
    for_each_run(a, 0, decode_tile);
}

}  // namespace qk::detail
