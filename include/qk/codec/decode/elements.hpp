// SPDX-License-Identifier: Apache-2.0
// `decode` of elementwise formats: walks the planes in the tensor's order, tile by tile, whatever the axis of the scales.
#pragma once

#include <algorithm>

#include "qk/codec/decode/fast_values.hpp"
#include "qk/codec/layout/pieces.hpp"
#include "qk/codec/layout/scales_of_tile.hpp"
#include "qk/formats/codes/unpack.hpp"
#include "qk/isa.hpp"
#include "qk/lanes/streaming.hpp"
#include "qk/memory/values.hpp"
#include "qk/trace.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// What a run's values are multiplied by, and what is taken from codes of integers before.
template <class Arch>
struct one_scale_of_run {
    float scale;
    std::int64_t zero;
    one_factor<Arch> factors() const noexcept { return one_factor<Arch>(scale); }
    integer_values<Arch> values(integer f) const noexcept { return integer_values<Arch>(f, zero); }
};
template <class Arch, bool Whole>
struct scales_of_run {
    group_table<Arch>* table;
    float* room;  ///< for as many factors as the table has
    table_factors<Arch, Whole> factors() const noexcept { return {table->scale, table->at, table->number, room}; }
    integer_values_by_table<Arch, Whole> values(integer f) const noexcept { return {f, *table}; }
};

/// Decodes a run by the fast form. Returns how many values were done.
template <class Arch, int Width, class Format, class Scales>
std::size_t decode_fast(const Format& f, std::span<const std::byte> plane, std::size_t first, float* y, std::size_t n, const Scales& s,
                        bool streaming) noexcept {
    const int width = element_width(f);
    if (n < 4 * kernels::lanes<Arch> || first * static_cast<std::size_t>(width) % 8 != 0 || !decodes_fast<Arch>(width)) return 0;
    streaming = streaming && reinterpret_cast<std::uintptr_t>(y) % sizeof(kernels::vf<Arch>) == 0;
    if constexpr (has_listed_values<Format>) {
        if constexpr (kernels::is_baseline<Arch>) return 0;
        else return decode_row<Arch, Width>(listed_values<Arch>(f), plane, first, y, n, width, s.factors(), streaming);
    } else if constexpr (has_zero_points<Format>) {
        return decode_row<Arch, Width>(s.values(f), plane, first, y, n, width, s.factors(), streaming);
    } else {
        const floating_values<Arch> values(f);
        return values.usable ? decode_row<Arch, Width>(values, plane, first, y, n, width, s.factors(), streaming) : 0;
    }
}

/// decode_fast of any width: the code around it is compiled once for all widths.
template <class Arch, class Format>
struct fast_decoders {
    /// Loops of their own for runs of whole tiles: those of floats are many, and would gain little.
    static constexpr bool whole = !is_float<Format>;
    template <class Scales>
    using decoder = std::size_t (*)(const Format&, std::span<const std::byte>, std::size_t, float*, std::size_t, const Scales&,
                                    bool) noexcept;
    decoder<one_scale_of_run<Arch>> under_one;
    decoder<scales_of_run<Arch, whole>> under_whole;
    decoder<scales_of_run<Arch, false>> under_table;
};
template <class Arch, int Width, class Format>
constexpr fast_decoders<Arch, Format> fast_decoders_of() noexcept {
    using one = one_scale_of_run<Arch>;
    constexpr bool whole = fast_decoders<Arch, Format>::whole;
    if constexpr (kernels::is_baseline<Arch>) return {&decode_fast<Arch, Width, Format, one>, nullptr, nullptr};
    else
        return {&decode_fast<Arch, Width, Format, one>, &decode_fast<Arch, Width, Format, scales_of_run<Arch, whole>>,
                &decode_fast<Arch, Width, Format, scales_of_run<Arch, false>>};
}

/// Decodes rows whose vectors have one scale each, in pieces; what the fast form leaves goes to tile_of(o, l, i, first, n).
template <class Arch, class Format, class Tile>
QK_APART void decode_by_tables(const Format& f, const_planes planes, const values_out& y, const codec_parameters& p, along_axis a,
                               bool streaming, const fast_decoders<Arch, Format>& fast, const Tile& tile_of) noexcept {
    using table_type = group_table<Arch>;
    table_type table(p.group);
    alignas(64) float room[table_type::most], value[widened];
    const std::size_t most = y.floats() != nullptr ? table_type::piece : widened;
    if (a.length % p.group == 0 && p.block_rows == 1) a = {1, a.outer * a.length, 1};  // no short run: all rows are one
    for (std::size_t o = 0; o < a.outer; ++o) {
        for (std::size_t l = 0, n = 0; l < a.length; l += n) {
            n = std::min(most, a.length - l);
            const std::size_t first = o * a.length + l, whole = n - n % table.at.tile_of_four;
            std::size_t done = 0;
            if (whole != 0) {
                table.fill(p, a, o, l, whole, has_zero_points<Format>);
                float* to = y.floats() != nullptr ? y.floats() + first : value;
                done = table.at.is_whole() ? fast.under_whole(f, planes.elements, first, to, whole, {&table, room}, streaming)
                                           : fast.under_table(f, planes.elements, first, to, whole, {&table, room}, streaming);
                if (to == value && done != 0) y.template copy<Arch>(value, first, done);
            }
            for (std::size_t some = 0; done < n; done += some) {
                some = std::min(tile, n - done);
                tile_of(o, l + done, 0, first + done, some);
            }
        }
    }
    if (streaming) kernels::end_streaming<Arch>();
}

/// Computes y = element * scale for floats, (q - zero_point) * scale for integers.
template <class Arch, class Format>
void decode_elements(const Format& f, const_planes planes, values_out y, const codec_parameters& p,
                     const fast_decoders<Arch, Format>& fast) noexcept {
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
            if (const std::size_t done = fast.under_one(f, planes.elements, first, to, n, {scale, s.zero_of(0)}, false); done == n) {
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
            std::size_t done = fast.under_one(f, planes.elements, k, to, n, {p.one.scale, p.one.zero_point}, streaming);
            if (y.floats() == nullptr) y.template copy<Arch>(value, k, done);
            for (; done < n; done += tile) decode_tile(0, k + done, 0, k + done, std::min(tile, n - done));
        }
        if (streaming) kernels::end_streaming<Arch>();
        return;
    }
    if constexpr (!kernels::is_baseline<Arch>) {
        if (has_group_tables<Arch>(a, p) && decodes_fast<Arch>(width))
            return decode_by_tables<Arch>(f, planes, y, p, a, streaming, fast, decode_tile);
    }
    const bool each_own = a.inner == 1 && p.group <= 1 && p.zero_point.empty() && p.scale.data() != nullptr;
    if (!each_own || y.floats() == nullptr) return for_each_run(a, 0, decode_tile);
    // A scale for each value of a row, in memory as floats: longer pieces, since no buffer holds scales or values.
    scale_tile<Arch> s;
    for (std::size_t o = 0; o < a.outer; ++o) {
        for (std::size_t l = 0, n = 0; l < a.length; l += n) {
            n = std::min(widened, a.length - l);
            const std::size_t first = o * a.length + l;
            float* to = y.floats() + first;
            std::size_t done = fast.under_one(f, planes.elements, first, to, n, {1.0f, 0}, false);
            s.fill(p, a, o, l, 0, n);
            s.multiply(to, done);
            for (std::size_t some = 0; done < n; done += some) {
                some = std::min(tile, n - done);
                decode_tile(o, l + done, 0, first + done, some);
            }
        }
    }
}

}  // namespace QK_ISA
}  // namespace qk::detail
