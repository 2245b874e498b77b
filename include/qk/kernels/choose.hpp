// SPDX-License-Identifier: Apache-2.0
// Chooses the step and the driver for a format and its parameters, the same whether the format is known when compiling or when running. The
// rooms of the families have their steps; this file includes them all and names none.
#pragma once

#include <cstring>

#include "qk/formats/block_float/step.hpp"
#include "qk/formats/floating/fast.hpp"
#include "qk/formats/format.hpp"
#include "qk/formats/integer/fast.hpp"
#include "qk/formats/microexponent/step.hpp"
#include "qk/formats/microscaling/step.hpp"
#include "qk/formats/nvfloat/fast.hpp"
#include "qk/formats/table/fast.hpp"
#include "qk/isa.hpp"
#include "qk/kernels/drivers/block_columns.hpp"
#include "qk/kernels/drivers/columns.hpp"
#include "qk/kernels/drivers/searched_blocks.hpp"
#include "qk/parameters.hpp"

namespace qk::kernels {
inline namespace QK_ISA {

/// Returns the axis; `inner` == 0 stands for one row of everything and becomes that row.
constexpr along_axis resolve(along_axis a, std::size_t size) { return a.inner == 0 ? along_axis{1, size, 1} : a; }

// ---- elementwise formats: one scale for a row, or one for each element of it

/// Fewer elements than this are divided by their scale: the reciprocals would take longer.
inline constexpr std::size_t product_from = 512;
/// Rows under one scale that are shorter than this are run as columns.
inline constexpr std::size_t short_row = 32;

template <class Arch, floating_kind Known = floating_kind::any, class Format>
void run_uniform(const Format& f, const float* x, float* y, std::size_t n, std::size_t position, float scale, std::int64_t zero,
                 const semantics& how, bool one_scale) noexcept {
    if (is_identity(f, how)) {
        if (x != y && n != 0) std::memcpy(y, x, n * sizeof(float));
        return;
    }
    const auto rows = rows_of<Arch, Known>(f, how, one_scale, streams<Arch>(x, y, n));
    scale_table<Arch, lanes<Arch>> scales;
    rows.fill(scales, &scale, &zero, 1, n >= product_from && scale != 1.0f);
    run_rows<Arch>(rows, {x, y, n, 1, position}, scales, 0, &zero);
    if (rows.streaming) end_streaming<Arch>();
}

/// Rounds a short run without a scale, for encode. The baseline instruction sets have only the general form here.
template <class Arch, floating_kind Known = floating_kind::any>
void run_tile(floating f, const float* x, float* y, std::size_t n, const semantics& how) noexcept {
    if constexpr (is_baseline<Arch>) {
        if (!is_identity(f, how)) return run_row_general<Arch>(x, y, n, 0, floating_step<Arch>(rules_of(f, how), vf<Arch>(1.0f), false));
        if (x != y && n != 0) std::memcpy(y, x, n * sizeof(float));
    } else {
        run_uniform<Arch, Known>(f, x, y, n, 0, 1.0f, 0, how, true);
    }
}
template <class Arch>
void run_tile(integer f, const float* x, float* y, std::size_t n, const semantics& how) noexcept {
    if constexpr (is_baseline<Arch>) run_row_general<Arch>(x, y, n, 0, integer_step<Arch>(rules_of(f, how, true), 1.0f, 0));
    else run_uniform<Arch>(f, x, y, n, 0, 1.0f, 0, how, true);
}

/// Runs an elementwise format with a scale for each run of `block` elements along the axis (1: per channel). `per_outer`: each outer slice
/// has scales of its own, else all share them.
template <class Arch, floating_kind Known = floating_kind::any, class Format>
void run_scaled(const Format& f, const float* x, float* y, along_axis axis, std::size_t block, std::span<const float> scale,
                std::span<const std::int64_t> zero, bool per_outer, const semantics& how) noexcept {
    const std::size_t blocks = block == 0 ? 0 : (axis.length + block - 1) / block;
    const std::size_t n = axis.outer * axis.length * axis.inner;
    if (is_identity(f, how)) return run_uniform<Arch, Known>(f, x, y, n, 0, 1.0f, 0, how, false);
    const auto rows = rows_of<Arch, Known>(f, how, false, streams<Arch>(x, y, n));
    const std::int64_t* zeros = zero.empty() ? nullptr : zero.data();
    const auto zero_from = [&](std::size_t k) { return zeros == nullptr ? nullptr : zeros + k; };
    if (!per_outer && axis.inner * block < short_row) {
        if (n != 0) run_columns<Arch>(rows, {x, y, axis.length * axis.inner, axis.outer, 0}, axis.inner, scale.data(), zeros);
        return;
    }
    for (std::size_t o = 0; o < axis.outer; ++o) {
        if (per_outer && axis.inner > 1) {  // [outer][blocks][inner] scales
            for (std::size_t l = 0; l < axis.length; l += block) {
                const std::size_t at = (o * axis.length + l) * axis.inner, s = (o * blocks + l / block) * axis.inner;
                run_columns<Arch>(rows, {x + at, y + at, axis.inner, std::min(block, axis.length - l), at}, 1, scale.data() + s,
                                  zero_from(s));
            }
            continue;
        }
        const std::size_t first = per_outer ? o * blocks : 0;
        for (std::size_t group = 0; group < blocks; group += lanes<Arch>) {
            const std::size_t count = std::min(lanes<Arch>, blocks - group);
            scale_table<Arch, lanes<Arch>> scales;
            rows.fill(scales, scale.data() + first + group, zero_from(first + group), count, count * block * axis.inner >= product_from);
            // The last block may be shorter: a row by itself.
            const bool ragged = axis.length % block != 0 && group + count == blocks;
            const std::size_t whole = count - (ragged ? 1 : 0);
            const auto run = [&](std::size_t k, std::size_t number, std::size_t length) {
                const std::size_t at = (o * axis.length + (group + k) * block) * axis.inner;
                run_rows<Arch>(rows, {x + at, y + at, length * axis.inner, number, at}, scales, k, zero_from(first + group));
            };
            for (std::size_t k = 0; k < whole;) {
                const std::size_t number = scales.alike(k, whole);
                run(k, number, block);
                k += number;
            }
            if (ragged) run(whole, 1, axis.length % block);
        }
    }
    if (rows.streaming) end_streaming<Arch>();
}

template <class Arch, floating_kind Known = floating_kind::any, class Format>
void run_per_channel(const Format& f, const float* x, float* y, const per_channel& p, along_axis axis, const semantics& how) noexcept {
    run_scaled<Arch, Known>(f, x, y, axis, 1, p.scale.floats(), p.zero_point.words(), false, how);
}

// ---- block formats; Known is the shape of f, as far as it is known when compiling

/// Runs the blocks along `axis` of the whole array, by a fast form where one is usable.
template <class Arch, block_shape Known, class Step>
void run_blocks(const float* x, float* y, along_axis axis, const Step& step) noexcept {
    const auto size = static_cast<std::size_t>(step.block_size);
    const general_form<Arch> general(step);
    const auto run = [&](const auto& form, const auto& out) {
        if constexpr (!Known.one_row) {
            if (axis.inner != 1) return run_strided<Arch, Known>(x, y, axis, size, form, out, general);
        }
        if (!has_tiles<Arch>(size, form.sub_block_size)) return run_blocks_general<Arch>(x, y, axis, step);
        run_rows_of_blocks<Arch, Known>(x, y, axis, size, form, out, general);
    };
    if (default_environment<Arch>()) {
        if (const auto form = fast_of<Arch>(step); form.usable()) return run(form, values_of_blocks<Arch>{y});
        if constexpr (!is_baseline<Arch>) {
            const auto any = rounded_of<Arch>(step);
            constexpr bool one_step = Known.step == element_step::block;
            if (any.fast.usable())
                return run(any.fast, rounded_values_of_blocks<Arch, std::remove_const_t<decltype(any)>, one_step>{y, any});
        }
    }
    run_blocks_general<Arch>(x, y, axis, step);
}

/// Returns the largest finite magnitude of an array.
template <class Arch>
float largest_finite(const float* x, std::size_t n) noexcept {
    constexpr std::size_t w = lanes<Arch>;
    const auto magnitude = [&](std::size_t i) QK_INLINE_CALL { return as_int<Arch>(load<Arch>(x + i)) & vi<Arch>(magnitude_bits); };
    vi<Arch> most[4] = {vi<Arch>(0), vi<Arch>(0), vi<Arch>(0), vi<Arch>(0)};
    std::size_t i = 0;
    for (; i + 4 * w <= n; i += 4 * w) {
        for (std::size_t k = 0; k < 4; ++k) most[k] = max(most[k], magnitude(i + k * w));
    }
    const vi<Arch> all = max(max(most[0], most[1]), max(most[2], most[3]));
    seen<Arch> s;
    if (any(all >= vi<Arch>(infinity_bits))) i = 0;  // there are special values: again, without them
    else s.finite = all;
    for (; i < n; i += w) s.add(load_first<Arch>(x + i, std::min(w, n - i)));
    alignas(64) std::int32_t lane[w];
    store<Arch>(lane, s.finite);
    return std::bit_cast<float>(*std::max_element(lane, lane + w));
}

/// Returns the scale of a tensor with this largest finite magnitude; 1 for formats that have none.
QK_INLINE float tensor_scale_of(const format& f, float amax, const semantics& how) noexcept {
    return qk::detail::with_family(f, [&](const auto& g) {
        if constexpr (qk::detail::under_floating_scales<std::remove_cvref_t<decltype(g)>>) return tensor_scale_of(g, amax, how);
        else return 1.0f;
    });
}

/// Returns what is known of the shape of all formats of a family.
template <class Format>
constexpr block_shape shape_of_all() {
    return {0, qk::detail::under_floating_scales<Format> ? element_step::element : element_step::unknown};
}

/// Runs a block format. `t` is the scale of the tensor, where the format has one; 0 computes it.
template <class Arch, block_shape Known = block_shape{}, class Format>
void run_block_format(const Format& f, const float* x, float* y, along_axis axis, float t, const semantics& how) noexcept {
    constexpr block_shape known{Known.size, Known.step == element_step::unknown ? shape_of_all<Format>().step : Known.step, Known.one_row};
    if constexpr (qk::detail::under_floating_scales<Format>) {
        if (t == 0.0f) t = f.tensor_scale ? tensor_scale_of(f, largest_finite<Arch>(x, axis.outer * axis.length * axis.inner), how) : 1.0f;
    }
    if constexpr (qk::detail::has_elements<Format>) {
        if (is_searched(how.scale_rule)) return run_searched<Arch>(f, x, y, axis, t, how);
    }
    run_blocks<Arch, known>(x, y, axis, step_of<Arch>(f, how, t));
}

template <class Format>
inline constexpr bool is_block_family = requires(const Format& f) {
    f.block_size;
};

}  // namespace QK_ISA
}  // namespace qk::kernels
