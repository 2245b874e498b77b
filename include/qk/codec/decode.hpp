// SPDX-License-Identifier: Apache-2.0
// The driver of `decode`: walks the planes in the tensor's order, tile by tile, whatever the axis.
#pragma once

#include <algorithm>

#include "qk/codec/layout.hpp"
#include "qk/codec/unpack.hpp"

namespace qk::detail {

/// Scales that the caller supplies, of every granularity: index (o, l, i) of the array has scale (o * groups + l / group) * inner + i,
/// or for a channel scale l. `scale` empty: none.
struct supplied_scales {
    std::span<const float> scale;
    std::span<const std::int64_t> zero_point;
    along_axis axis;        ///< resolved
    std::size_t group = 0;  ///< 0: one scale for the tensor; per channel: 1 with `channel`
    bool channel = false;
    std::size_t index(std::size_t o, std::size_t l, std::size_t i) const {
        if (group == 0) return 0;
        if (channel) return l;
        return (o * ((axis.length + group - 1) / group) + l / group) * axis.inner + i;
    }
};

template <storage T>
QK_INLINE void store_tile(const float* in, T* out, std::size_t n) {
    if constexpr (std::same_as<T, float>) {
        std::memcpy(out, in, n * sizeof(float));
    } else {
        for (std::size_t i = 0; i < n; ++i) out[i] = narrow<T>(in[i]);
    }
}

/// Runs of the array along which `index` of a scale changes in the simplest way: visit(o, l, i, first, count), where `first` is the
/// position in the array. inner == 1: a run lies along `length` and starts at a multiple of `align`; else it lies along `inner`.
template <class Visit>
QK_INLINE void for_each_run(along_axis a, std::size_t align, Visit visit) {
    if (a.inner == 1) {
        const std::size_t step = align == 0 || align > tile ? tile : tile / align * align;
        for (std::size_t o = 0; o < a.outer; ++o) {
            for (std::size_t l = 0; l < a.length; l += step) visit(o, l, std::size_t{0}, o * a.length + l, std::min(step, a.length - l));
        }
        return;
    }
    for (std::size_t o = 0; o < a.outer; ++o) {
        for (std::size_t l = 0; l < a.length; ++l) {
            for (std::size_t i = 0; i < a.inner; i += tile) visit(o, l, i, (o * a.length + l) * a.inner + i, std::min(tile, a.inner - i));
        }
    }
}

/// y = element * scale for floats, (q - zero_point) * scale for integers.
template <class Format, storage T>
QK_INLINE void decode_scaled(const Format& f, const_planes p, std::span<T> y, const supplied_scales& s) {
    const int width = element_width(f);
    for_each_run(s.axis, 0, [&](std::size_t o, std::size_t l, std::size_t i, std::size_t first, std::size_t n) {
        alignas(64) std::uint32_t code[tile];
        alignas(64) float value[tile], scale[tile];
        std::int64_t zero[tile];
        const bool along = s.axis.inner == 1;
        const bool single = s.group == 0 || (!along && s.channel);
        for (std::size_t k = 0; k < (single ? 1 : n); ++k) {
            const std::size_t at = along ? s.index(o, l + k, i) : s.index(o, l, i + k);
            scale[k] = s.scale.empty() ? 1.0f : s.scale[at];
            zero[k] = s.zero_point.empty() ? 0 : s.zero_point[at];
        }
        get_codes(p.elements, first, n, width, code);
        if constexpr (std::same_as<Format, integer>) {
            if (width <= 16 && single) {
                const auto z = static_cast<std::int32_t>(zero[0]);
                const int up = 32 - width;
                for (std::size_t k = 0; k < n; ++k) {
                    const std::int32_t q =
                        f.is_signed ? static_cast<std::int32_t>(code[k] << up) >> up : static_cast<std::int32_t>(code[k]);
                    value[k] = static_cast<float>(q - z);
                }
            } else {
                for (std::size_t k = 0; k < n; ++k) value[k] = static_cast<float>(value_of(f, code[k]) - zero[single ? 0 : k]);
            }
        } else {
            elements_of(f, code, value, n);
        }
        if (single) {
            if (!s.scale.empty()) {
                for (std::size_t k = 0; k < n; ++k) value[k] *= scale[0];
            }
        } else {
            for (std::size_t k = 0; k < n; ++k) value[k] *= scale[k];
        }
        store_tile(value, y.data() + first, n);
    });
}

/// The factor of every element of a run, from the planes of scales. Filled by runs that share one where the run lies along the blocks.
template <class Format>
QK_INLINE void block_scales(const Format& f, const_planes p, along_axis a, std::size_t o, std::size_t l, std::size_t i, std::size_t n,
                            float* scale) {
    const auto block = static_cast<std::size_t>(f.block_size);
    const std::size_t blocks = (a.length + block - 1) / block;
    float tensor = 1;
    if constexpr (std::same_as<Format, nvfloat>) std::memcpy(&tensor, p.tensor.data(), sizeof tensor);
    const auto scale_at = [&](std::size_t along, std::size_t across) {
        const std::uint32_t code = get_code(p.scales, (o * blocks + along / block) * a.inner + across, scale_width(f));
        if constexpr (std::same_as<Format, microexponent>) {
            const auto sub = static_cast<std::size_t>(f.sub_block_size);
            const std::size_t per_block = (block + sub - 1) / sub, sub_blocks = sub_blocks_of(f, a.length);
            const std::size_t s = along / block * per_block + along % block / sub;
            return scale_of(f, code, get_code(p.shifts, (o * sub_blocks + s) * a.inner + across, f.shift_bits));
        } else if constexpr (std::same_as<Format, nvfloat>) {
            return scale_of(f, code, tensor);
        } else {
            return scale_of(f, code);
        }
    };
    if (a.inner != 1) {
        for (std::size_t k = 0; k < n; ++k) scale[k] = scale_at(l, i + k);
        return;
    }
    std::size_t share = block;
    if constexpr (std::same_as<Format, microexponent>) share = static_cast<std::size_t>(f.sub_block_size);
    for (std::size_t k = 0; k < n;) {
        const std::size_t in_block = (l + k) % block;
        const std::size_t until = std::min(n, k + std::min(block - in_block, share - in_block % share));
        const float v = scale_at(l + k, 0);
        for (; k < until; ++k) scale[k] = v;
    }
}

/// Block formats along any axis.
template <class Format, storage T>
QK_INLINE void decode_blocks(const Format& f, const_planes p, std::span<T> y, along_axis a) {
    for_each_run(a, static_cast<std::size_t>(f.block_size),
                 [&](std::size_t o, std::size_t l, std::size_t i, std::size_t first, std::size_t n) {
                     alignas(64) std::uint32_t code[tile];
                     alignas(64) float value[tile], scale[tile];
                     get_codes(p.elements, first, n, element_width(f), code);
                     elements_of(f, code, value, n);
                     block_scales(f, p, a, o, l, i, n, scale);
                     for (std::size_t k = 0; k < n; ++k) value[k] *= scale[k];
                     store_tile(value, y.data() + first, n);
                 });
}

}  // namespace qk::detail
