// SPDX-License-Identifier: Apache-2.0
// The fast form of `encode` for blocks along an axis that is not the last. A vector holds neighbouring columns, so each lane has a block of
// its own. Codes of a row lie side by side in the plane, as the values do, so nothing is transposed.
#pragma once

#include "qk/codec/encode/blocks.hpp"
#include "qk/codec/encode/fast_blocks.hpp"
#include "qk/codec/layout/pieces.hpp"
#include "qk/isa.hpp"
#include "qk/kernels/drivers/block_columns.hpp"
#include "qk/memory/values.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// Writes the first n lanes as codes from number `first` on.
template <class Arch>
QK_INLINE void put_lanes(std::span<std::byte> plane, std::size_t first, std::size_t n, int width, kernels::vi<Arch> code) noexcept {
    constexpr std::size_t w = kernels::lanes<Arch>;
    if (width == 8 && n == w) return kernels::store_codes<Arch>(reinterpret_cast<std::uint8_t*>(plane.data()) + first, code);
    if (width == 1) {
        const std::uint32_t bits = kernels::bits_of<Arch>(code != kernels::vi<Arch>(0));
        if (w % 8 == 0 && n == w && first % 8 == 0) {  // put_bits would read what was just written, and wait for it
            std::memcpy(plane.data() + first / 8, &bits, w / 8);
            return;
        }
        return put_bits(plane, first, static_cast<int>(n), bits & low_bits(static_cast<int>(n)));
    }
    alignas(64) std::int32_t lane[w];
    kernels::store<Arch>(lane, code);
    put_codes<Arch>(plane, first, n, width, reinterpret_cast<const std::uint32_t*>(lane));
}

/// Stores the codes of columns (kernels/drivers/block_columns.hpp). The code of row j, column k is number element + j * stride + k of the
/// plane. `scale` and `shift` are the numbers of column 0's scale and first shift; its next shift is `stride` further.
template <class Arch, class Codes>
struct codes_of_columns {
    static constexpr bool looks_ahead = false, any_rounding = Codes::traits.any_rounding;
    const Codes& codes;
    typename Codes::elements_type elements;
    std::size_t element, scale, shift, stride;

    QK_INLINE std::size_t number(std::size_t j, std::size_t i) const noexcept { return element + j * stride + i; }
    QK_INLINE auto& rounds() noexcept { return elements.rounded.rounds; }
    template <class Form>
    QK_INLINE void scales(std::size_t i, std::size_t n, kernels::vi<Arch> amax, const Form& form) const noexcept {
        put_lanes<Arch>(codes.out.scales, scale + i, n, 8, codes.scales.code(amax, form));
    }
    QK_INLINE void shifts(std::size_t sub_block, std::size_t i, std::size_t n, kernels::vi<Arch> amax,
                          kernels::vi<Arch> own) const noexcept {
        put_lanes<Arch>(codes.out.shifts, shift + sub_block * stride + i, n, codes.shift_bits, codes.shift_code(amax, own));
    }
    template <std::size_t Width, bool Grid, bool, class Get, class Form>
    QK_INLINE void row(std::size_t j, std::size_t i, std::size_t n, const Get& get, const typename Form::shared_type* mine,
                       const Form& form) noexcept {
        constexpr std::size_t w = kernels::lanes<Arch>;
        const std::size_t at = number(j, i);
        const int width = codes.writer.width();
        kernels::vi<Arch> code[Width];
        kernels::unrolled<Width>([&](auto k) QK_INLINE_CALL { code[k] = elements.template code<Grid>(at + k * w, get(k), mine[k], form); });
        if (!kernels::is_baseline<Arch> && !codes.writer.waits()) {
            const std::size_t bit = at * static_cast<std::size_t>(width);
            const bool fits = bit % 8 == 0 && (Width != 1 || n == w);
            alignas(64) std::byte beside[2 * Width * w];  // buffer for codes that do not begin or end at a whole byte
            codes.writer.template put<Width>(fits ? codes.out.elements.data() + bit / 8 : beside, code);
            if (!fits) copy_bits<Arch>(codes.out.elements, bit, beside, 0, n * static_cast<std::size_t>(width));
            return;
        }
        alignas(64) std::int32_t row[Width * w];
        kernels::unrolled<Width>([&](auto k) QK_INLINE_CALL { kernels::store<Arch>(row + k * w, code[k]); });
        put_codes<Arch>(codes.out.elements, at, n, width, reinterpret_cast<const std::uint32_t*>(row));
    }
};

/// Encodes neighbouring columns: takes (values, numbers of the first element, scale and shift, call for columns that it cannot encode).
using panel_call = kernels::call_with<const kernels::column_panel&, std::size_t, std::size_t, std::size_t, const kernels::range_call&>;

/// Calls encode for panels of blocks of at most a tile along a strided axis; columns that it cannot encode go to general(o, l, rows, i,
/// n).
template <class Arch>
void each_panel(const packing& packed, values_in x, along_axis a, const columns_call& general, const panel_call& encode) noexcept {
    const auto block = static_cast<std::size_t>(packed.block_size);
    alignas(64) float staged[widened];  // values of 16-bit memory
    for (std::size_t o = 0; o < a.outer; ++o) {
        for (std::size_t l = 0; l < a.length; l += block) {
            const std::size_t rows = std::min(block, a.length - l), first = (o * a.length + l) * a.inner;
            const std::size_t panel = x.floats() != nullptr ? a.inner : std::min(a.inner, widened / rows);
            for (std::size_t i = 0; i < a.inner; i += panel) {
                const std::size_t columns = std::min(panel, a.inner - i);
                kernels::column_panel p{x.floats(), a.inner, rows, columns};
                if (x.floats() != nullptr) {
                    p.x += first + i;
                } else {
                    for (std::size_t r = 0; r < rows; ++r) x.template copy<Arch>(first + r * a.inner + i, columns, staged + r * columns);
                    p.x = staged;
                    p.stride = columns;
                }
                const auto decline = [&](std::size_t from, std::size_t n) { general(o, l, rows, i + from, n); };
                encode(p, first + i, scale_index(packed, a, o, l, i), shift_index(packed, a, o, l, i), kernels::range_call(decline));
            }
        }
    }
}

/// Encodes all blocks along a strided axis: `form` computes what they share, `codes` makes the codes, `general` does the other columns.
template <class Arch, compile_time_facts Known, kernels::element_step OfElement, class Form, class Codes>
void encode_columns(const packing& packed, const Form& form, const Codes& codes, values_in x, along_axis a,
                    const columns_call& general) noexcept {
    // Where the format is not known, blocks of one step go through the loop of those with sub-blocks.
    constexpr bool shared = Known.blocks.step == kernels::element_step::unknown && OfElement == kernels::element_step::block;
    constexpr kernels::element_step loop = shared ? kernels::element_step::pair : OfElement;
    const auto encode = [&](const kernels::column_panel& p, std::size_t element, std::size_t scale, std::size_t shift,
                            const kernels::range_call& declined) {
        const codes_of_columns<Arch, Codes> to{codes, codes.elements, element, scale, shift, a.inner};
        kernels::column_maxima<Arch, 4> surveyed;
        kernels::run_panel_of_blocks<Arch, loop>(p, form, to, declined, surveyed);
    };
    each_panel<Arch>(packed, x, a, general, panel_call(encode));
}

}  // namespace QK_ISA
}  // namespace qk::detail
