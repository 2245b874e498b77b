// SPDX-License-Identifier: Apache-2.0
// Runs block formats by their short form: tiles of a row, or vectors across a strided axis. What the short form declines, odd
// block sizes and ragged ends go to the complete form.
#pragma once

#include "qk/kernels/block_tiles.hpp"
#include "qk/kernels/quick_roundings.hpp"

namespace qk::kernels {

/// `Width` vectors of neighbouring columns, each lane with a block of its own down the axis; returns where the last one ends. The
/// maxima of the next columns are taken while these are rounded, as in run_block_tiles.
template <class Arch, std::size_t Width, bool Grid, bool Streaming, class Form>
std::size_t run_columns(const block_group& all, std::size_t from, const Form& form, const complete_form<Arch>& complete) noexcept {
    constexpr std::size_t w = lanes<Arch>;
    using V = vi<Arch>;
    const Form q = form;
    const std::size_t sub = q.sub_block_size > 0 ? static_cast<std::size_t>(q.sub_block_size) : all.length;
    V most[Width];
    const auto survey = [&](std::size_t i, std::size_t begin, std::size_t end, V* m) __attribute__((always_inline)) {
        const float* x = all.x + i + begin * all.element_stride;
        for (std::size_t j = begin; j < end; ++j, x += all.element_stride) {
#pragma GCC unroll 4
            for (std::size_t k = 0; k < Width; ++k) m[k] = xsimd::max(m[k], as_int<Arch>(load<Arch>(x + k * w)) & V(magnitude_bits));
        }
    };
    const auto share = [&](std::size_t k, quick_shared<Arch>& b) __attribute__((noinline)) {  // rare here: registers are for the elements
        if constexpr (requires { q.held(b, most[k]); }) {
            if (q.sub_block_size > 0) return q.template share<1>(most[k], b);
        }
        return q.template share<0>(most[k], b);
    };
    std::size_t i = from;
    if (i + Width * w > all.blocks) return i;
    for (V& m : most) m = V(0);
    survey(i, 0, all.length, most);
    for (; i + Width * w <= all.blocks; i += Width * w) {
        quick_shared<Arch> shared[Width];
        bool served = true;
        for (std::size_t k = 0; k < Width; ++k) served = share(k, shared[k]) && served;
        const std::size_t next = i + Width * w;
        const bool more = next + Width * w <= all.blocks;
        for (V& m : most) m = V(0);
        if (__builtin_expect(!served, 0)) {
            complete.groups(complete.step, {all.x + i, all.y + i, 1, all.element_stride, Width * w, all.length, all.position + i});
            if (more) survey(next, 0, all.length, most);
            continue;
        }
        for (std::size_t begin = 0; begin < all.length; begin += sub) {
            const std::size_t end = std::min(begin + sub, all.length);
            quick_shared<Arch> mine[Width];
            for (std::size_t k = 0; k < Width; ++k) mine[k] = shared[k];
            if constexpr (requires { q.held(mine[0], most[0]); }) {
                if (q.sub_block_size > 0) {
                    V part[Width];
                    for (V& m : part) m = V(0);
                    survey(i, begin, end, part);
                    for (std::size_t k = 0; k < Width; ++k) mine[k] = q.held(shared[k], part[k]);
                }
            }
            const float* x = all.x + i + begin * all.element_stride;
            float* y = all.y + i + begin * all.element_stride;
            for (std::size_t j = begin; j < end; ++j, x += all.element_stride, y += all.element_stride) {
#pragma GCC unroll 4
                for (std::size_t k = 0; k < Width; ++k) {
                    const vf<Arch> r = q.template apply<Grid>(rounded<Arch>(load<Arch>(x + k * w)), mine[k]);
                    Streaming ? stream<Arch>(y + k * w, r) : store<Arch>(y + k * w, r);
                }
                if (more) survey(next, j, j + 1, most);
            }
        }
    }
    return i;
}

/// Blocks along a strided axis.
template <class Arch, bool Grid, class Form>
void run_strided(const float* x, float* y, along_axis axis, std::size_t size, const Form& form, const complete_form<Arch>& complete) noexcept {
    const bool whole_lines = reinterpret_cast<std::uintptr_t>(y) % sizeof(vf<Arch>) == 0 && axis.inner % lanes<Arch> == 0;
    const bool streaming = whole_lines && streams<Arch>(x, y, axis.outer * axis.length * axis.inner);
    for (std::size_t o = 0; o < axis.outer; ++o) {
        for (std::size_t begin = 0; begin < axis.length; begin += size) {
            const std::size_t at = (o * axis.length + begin) * axis.inner;
            const block_group all{x + at, y + at, 1, axis.inner, axis.inner, std::min(size, axis.length - begin), at};
            std::size_t i = streaming ? run_columns<Arch, 4, Grid, true>(all, 0, form, complete) : run_columns<Arch, 4, Grid, false>(all, 0, form, complete);
            i = run_columns<Arch, 1, Grid, false>(all, i, form, complete);
            if (i < all.blocks) complete.groups(complete.step, {all.x + i, all.y + i, 1, axis.inner, all.blocks - i, all.length, at + i});
        }
    }
    if (streaming) end_streaming<Arch>();
}

/// Whole blocks in a row, in the roundings and with the signs of quick_roundings.hpp: `form` shares, `out` rounds.
template <class Arch, block_shape Known, class Step, class Form, class Out>
void run_row_of_rounded(const float* x, float* y, std::size_t blocks, std::size_t size, const Step& step, const Form& form, const Out& out) noexcept {
    const auto decline = [&](std::size_t first, std::size_t count) {
        const std::size_t at = first * size;
        run_groups<Arch>({x + at, y + at, size, 1, count, size, at}, step);
    };
    const std::size_t done = run_row_of_blocks<Arch, Known>(x, blocks, size, form, out, decline);
    if (done < blocks) decline(done, blocks - done);
}

/// Blocks along `axis` of the whole array.
template <class Arch, block_shape Known, class Step>
void run_blocks(const float* x, float* y, along_axis axis, const Step& step) noexcept {
    const auto form = quick_of<Arch>(step);
    const auto size = static_cast<std::size_t>(step.block_size);
    if (!default_environment<Arch>()) return run_blocks_completely<Arch>(x, y, axis, step);
    if (!form.usable() && axis.inner == 1 && axis.length % size == 0) {
        const std::size_t blocks = axis.outer * axis.length / size;
        if constexpr (std::same_as<Step, nvfloat_step<Arch>>) {
            const quick_nvfloat<Arch> any(step, true);
            const rounded_values_of_nvfloat<Arch> out{y, step.element.mantissa_bits, {step.rules.how, step.rules.random}};
            if (any.usable()) return run_row_of_rounded<Arch, Known>(x, y, blocks, size, step, any, out);
        } else {
            const rounded_values_of_blocks<Arch, Step> out(y, step);
            if (out.quick.usable()) return run_row_of_rounded<Arch, Known>(x, y, blocks, size, step, out.quick, out);
        }
    }
    if (!form.usable()) return run_blocks_completely<Arch>(x, y, axis, step);
    const complete_form<Arch> complete(step);
    if (axis.inner != 1) {
        if constexpr (Known.step != element_step::unknown) return run_strided<Arch, Known.step == element_step::element>(x, y, axis, size, form, complete);
        else return form.grid ? run_strided<Arch, true>(x, y, axis, size, form, complete) : run_strided<Arch, false>(x, y, axis, size, form, complete);
    }
    const std::size_t whole = axis.length / size, rest = axis.length % size;
    // Without a ragged last block the rows are one.
    const std::size_t rows = rest == 0 ? 1 : axis.outer, blocks = rest == 0 ? axis.outer * whole : whole;
    const bool aligned = reinterpret_cast<std::uintptr_t>(y) % sizeof(vf<Arch>) == 0 && (rows == 1 || axis.length % lanes<Arch> == 0);
    const bool streaming = aligned && streams<Arch>(x, y, axis.outer * axis.length);
    for (std::size_t o = 0; o < rows; ++o) {
        const std::size_t at = o * axis.length;
        const auto decline = [&](std::size_t first, std::size_t count) {
            complete.row(x + at + first * size, y + at + first * size, size, count, at + first * size);
        };
        const std::size_t done = streaming ? run_row_of_blocks<Arch, Known>(x + at, blocks, size, form, values_of_blocks<Arch, true>{y + at}, decline)
                                           : run_row_of_blocks<Arch, Known>(x + at, blocks, size, form, values_of_blocks<Arch, false>{y + at}, decline);
        if (done < blocks) decline(done, blocks - done);
        const std::size_t end = at + blocks * size;
        if (rest != 0) complete.row(x + end, y + end, rest, 1, end);
    }
    if (streaming) end_streaming<Arch>();
}

}  // namespace qk::kernels
