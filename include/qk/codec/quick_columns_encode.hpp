// SPDX-License-Identifier: Apache-2.0
// The short form of `encode` for blocks along an axis that is not the last: vectors of neighbouring columns, each lane with a block of its own.
// Codes of a row lie side by side in the plane, as the values do, so nothing is transposed.
#pragma once

#include "qk/codec/parameters.hpp"
#include "qk/codec/quick_blocks_encode.hpp"
#include "qk/codec/walk.hpp"
#include "qk/kernels/quick_block_driver.hpp"

namespace qk::detail {

/// Neighbouring columns of a block each. Row j of column k is x[j * stride + k]; its code is number element + j * inner + k of the plane. The numbers
/// of the first scale and shift are for column 0, and those of its next shift `inner` further.
struct column_panel {
    const float* x;
    std::size_t stride, rows, columns;
    std::size_t element, scale, shift, inner;
};

/// The first n lanes, as codes from number `first` on.
template <class Arch>
QK_INLINE void put_lanes(std::span<std::byte> plane, std::size_t first, std::size_t n, int width, kernels::vi<Arch> code) noexcept {
    constexpr std::size_t w = kernels::lanes<Arch>;
    if (width == 8 && n == w) return kernels::store_codes<Arch>(reinterpret_cast<std::uint8_t*>(plane.data()) + first, code);
    if (width == 1) {
        const std::uint32_t bits = kernels::bits_of<Arch>(code != kernels::vi<Arch>(0));
        if (w % 8 == 0 && n == w && first % 8 == 0) {  // a read so soon behind a write that it overlaps would wait for it
            std::memcpy(plane.data() + first / 8, &bits, w / 8);
            return;
        }
        return put_bits(plane, first, static_cast<int>(n), bits & low_bits(static_cast<int>(n)));
    }
    alignas(64) std::int32_t lane[w];
    kernels::store<Arch>(lane, code);
    put_codes(plane, first, n, width, reinterpret_cast<const std::uint32_t*>(lane));
}

/// `Width` vectors of columns from column `from` on, and so on; returns where the last one ends: with one vector at the last column, with more before
/// those that do not fill them. `given` makes the codes; complete(first, n) does the columns that are declined.
template <class Arch, std::size_t Width, bool Grid, class Form, class Codes, class Complete>
std::size_t encode_columns(const column_panel& p, std::size_t from, const Form& form, const Codes& given, const Complete& complete) noexcept {
    constexpr std::size_t w = kernels::lanes<Arch>;
    using V = kernels::vi<Arch>;
    using kernels::unrolled;
    const Form q = form;
    const Codes codes = given;
    const int width = codes.writer.width();
    const std::size_t sub = q.sub_block_size > 0 ? static_cast<std::size_t>(q.sub_block_size) : p.rows;
    std::size_t i = from;
    for (std::size_t n = 0; Width == 1 ? i < p.columns : i + Width * w <= p.columns; i += n) {
        n = Width == 1 ? std::min(w, p.columns - i) : Width * w;
        const std::size_t count = Width == 1 ? n : w;  // lanes of a vector
        const auto get = [&](std::size_t row, std::size_t k) QK_INLINE_CALL {
            const float* x = p.x + row * p.stride + i + k * w;
            return kernels::rounded<Arch>(Width == 1 && n < w ? kernels::load_first<Arch>(x, n) : kernels::load<Arch>(x));
        };
        struct vectors {
            V of[Width];
        };
        const auto survey = [&](std::size_t begin, std::size_t end) QK_INLINE_CALL {
            vectors m;
            unrolled<Width>([&](auto k) QK_INLINE_CALL { m.of[k] = V(0); });
            for (std::size_t j = begin; j < end; ++j) {
                unrolled<Width>([&](auto k) QK_INLINE_CALL { m.of[k] = xsimd::max(m.of[k], kernels::as_int<Arch>(get(j, k)) & V(kernels::magnitude_bits)); });
            }
            return m;
        };
        const vectors amax = survey(0, p.rows);
        kernels::quick_shared<Arch> shared[Width], mine[Width];
        bool served = true;
        unrolled<Width>([&](auto k) QK_INLINE_CALL { served = kernels::share_in_lanes<Arch>(q, amax.of[k], shared[k]) && served; });
        if (__builtin_expect(!served || (Width == 1 && n < w && kernels::reads_words(codes)), 0)) {
            complete(i, n);
            continue;
        }
        unrolled<Width>([&](auto k) QK_INLINE_CALL { put_lanes<Arch>(codes.out.scales, p.scale + i + k * w, count, 8, codes.scale_code(amax.of[k], q)); });
        std::size_t number = p.shift + i;
        for (std::size_t begin = 0; begin < p.rows; begin += sub, number += p.inner) {
            const std::size_t end = std::min(begin + sub, p.rows);
            unrolled<Width>([&](auto k) QK_INLINE_CALL { mine[k] = shared[k]; });
            if constexpr (requires { q.held(mine[0], amax.of[0]); }) {
                if (q.sub_block_size > 0) {
                    const vectors part = survey(begin, end);
                    unrolled<Width>([&](auto k) QK_INLINE_CALL {
                        mine[k] = q.held(shared[k], part.of[k]);
                        put_lanes<Arch>(codes.out.shifts, number + k * w, count, codes.shift_width(), codes.shift_code(amax.of[k], part.of[k]));
                    });
                }
            }
            for (std::size_t j = begin; j < end; ++j) {
                const std::size_t at = p.element + j * p.inner + i;
                if (!codes.writer.waits() && at * static_cast<std::size_t>(width) % 8 == 0 && (Width != 1 || n == w)) {
                    std::byte* to = codes.out.elements.data() + codes.writer.bytes(at);
                    unrolled<Width>([&](auto k) QK_INLINE_CALL { codes.writer.put(to + codes.writer.bytes(k * w), codes.elements.template code<Grid>(at + k * w, get(j, k), mine[k], q)); });
                } else {
                    alignas(64) std::int32_t row[Width * w];
                    unrolled<Width>([&](auto k) QK_INLINE_CALL { kernels::store<Arch>(row + k * w, codes.elements.template code<Grid>(at + k * w, get(j, k), mine[k], q)); });
                    put_codes(codes.out.elements, at, n, width, reinterpret_cast<const std::uint32_t*>(row));
                }
            }
        }
    }
    return i;
}

/// Blocks of at most a tile along a strided axis, if the short form serves the format; complete(o, l, rows, i, n) does n columns that are declined.
template <class Arch, known_codes Known, class Format, class Step, class Complete>
bool encode_columns_quickly(const Format& f, const Step& step, values_in x, planes out, along_axis a, const Complete& complete) noexcept {
    const auto block = static_cast<std::size_t>(f.block_size);
    alignas(64) float staged[widened];  // of 16-bit memory
    const std::size_t done = with_block_codes<Arch, Known>(f, step, out, nullptr, [&]<kernels::element_step OfElement>(const auto& form, const auto& codes) {
        for (std::size_t o = 0; o < a.outer; ++o) {
            for (std::size_t l = 0; l < a.length; l += block) {
                const std::size_t rows = std::min(block, a.length - l), first = (o * a.length + l) * a.inner;
                const std::size_t panel = x.floats() != nullptr ? a.inner : std::min(a.inner, widened / rows);
                for (std::size_t i = 0; i < a.inner; i += panel) {
                    const std::size_t columns = std::min(panel, a.inner - i);
                    column_panel p{x.floats(), a.inner, rows, columns, first + i, scale_index(f, a, o, l, i), shift_index(f, a, o, l, i), a.inner};
                    if (x.floats() != nullptr) {
                        p.x += first + i;
                    } else {
                        for (std::size_t r = 0; r < rows; ++r) x.template copy<Arch>(first + r * a.inner + i, columns, staged + r * columns);
                        p.x = staged;
                        p.stride = columns;
                    }
                    const auto decline = [&](std::size_t from, std::size_t n) { complete(o, l, rows, i + from, n); };
                    constexpr bool grid = OfElement == kernels::element_step::element;
                    const std::size_t next = encode_columns<Arch, 4, grid>(p, 0, form, codes, decline);
                    encode_columns<Arch, 1, grid>(p, next, form, codes, decline);
                }
            }
        }
        return std::size_t{1};
    });
    return done != 0;
}

}  // namespace qk::detail
