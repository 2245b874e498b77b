// SPDX-License-Identifier: Apache-2.0
// From a format and its parameters to a step and a driver: one function a family, the same for formats known early or late.
#pragma once

#include <cstring>

#include "qk/formats/format.hpp"
#include "qk/kernels/quick_block_driver.hpp"
#include "qk/kernels/elementwise_driver.hpp"
#include "qk/kernels/integer_step.hpp"
#include "qk/parameters.hpp"

namespace qk::kernels {

/// `inner` == 0 stands for one row of everything.
constexpr along_axis resolve(along_axis a, std::size_t size) { return a.inner == 0 ? along_axis{1, size, 1} : a; }

// ---- elementwise formats: one scale for a row, or one for each element of it

/// Rows of one array; `stream_rows`: their results go past the caches.
template <class Arch>
floating_rows<Arch> rows_of(floating f, const semantics& how, bool one_scale, bool stream_rows) noexcept {
    return {f, how, one_scale, stream_rows};
}
template <class Arch>
integer_rows<Arch> rows_of(integer f, const semantics& how, bool one_scale, bool stream_rows) noexcept {
    return {f, how, one_scale, stream_rows};
}

/// fp32 without a flush.
constexpr bool is_identity(floating f, const semantics& how) { return f == fp32 && !how.flush_inputs && !how.flush_outputs; }
constexpr bool is_identity(integer, const semantics&) { return false; }

template <class Arch, class Format>
void run_uniform(Format f, const float* x, float* y, std::size_t n, std::size_t position, float scale, std::int64_t zero, const semantics& how,
                 bool one_scale) noexcept {
    if (is_identity(f, how)) {
        if (x != y && n != 0) std::memcpy(y, x, n * sizeof(float));
        return;
    }
    const auto row = rows_of<Arch>(f, how, one_scale, streams<Arch>(x, y, n));
    row.run(x, y, n, 1, position, scales_of_rows<Arch>(&scale, 1, n, scale == 1.0f ? 0 : row.tie_bits), 0, &zero);
    if (row.streaming) end_streaming<Arch>();
}

template <class Arch>
void run_parallel(floating f, const float* x, float* y, std::size_t n, std::size_t position, const float* scale, const std::int64_t*,
                  const semantics& how) noexcept {
    const floating_rules rules = rules_of(f, how);
    for (std::size_t i = 0; i < n; i += lanes<Arch>) {
        const std::size_t count = std::min(lanes<Arch>, n - i);
        run_row_completely<Arch>(x + i, y + i, count, position + i, floating_step<Arch>(rules, load_some<Arch>(scale + i, 1, count), f != fp32));
    }
}

template <class Arch>
void run_parallel(integer f, const float* x, float* y, std::size_t n, std::size_t position, const float* scale, const std::int64_t* zero,
                  const semantics& how) noexcept {
    const integer_rules rules = rules_of(f, how, false);
    for (std::size_t i = 0; i < n; i += lanes<Arch>) {
        const std::size_t count = std::min(lanes<Arch>, n - i);
        const std::int64_t* z = zero == nullptr ? nullptr : zero + i;
        run_row_completely<Arch>(x + i, y + i, count, position + i, integer_step<Arch>(rules, load_some<Arch>(scale + i, 1, count), z, count));
    }
}

/// A scale for each run of `block` elements along the axis (1: per channel).
template <class Arch, class Format>
void run_scaled(const Format& f, const float* x, float* y, along_axis axis, std::size_t block, std::span<const float> scale,
                std::span<const std::int64_t> zero, bool per_outer, const semantics& how) noexcept {
    const std::size_t blocks = block == 0 ? 0 : (axis.length + block - 1) / block;
    const std::size_t n = axis.outer * axis.length * axis.inner;
    if (is_identity(f, how)) return run_uniform<Arch>(f, x, y, n, 0, 1.0f, 0, how, false);
    const auto all_rows = rows_of<Arch>(f, how, false, streams<Arch>(x, y, n));
    for (std::size_t o = 0; o < axis.outer; ++o) {
        if (per_outer && axis.inner > 1) {  // [outer][blocks][inner] scales
            for (std::size_t l = 0; l < axis.length; ++l) {
                const std::size_t row = (o * axis.length + l) * axis.inner, s = (o * blocks + l / block) * axis.inner;
                run_parallel<Arch>(f, x + row, y + row, axis.inner, row, scale.data() + s, zero.empty() ? nullptr : zero.data() + s, how);
            }
            continue;
        }
        const std::size_t first = per_outer ? o * blocks : 0;
        for (std::size_t group = 0; group < blocks; group += lanes<Arch>) {
            const std::size_t count = std::min(lanes<Arch>, blocks - group);
            const scales_of_rows<Arch> scales(scale.data() + first + group, count, count * block * axis.inner, all_rows.tie_bits);
            // The last block may be shorter: a row by itself.
            const bool ragged = axis.length % block != 0 && group + count == blocks;
            const std::size_t whole = count - (ragged ? 1 : 0);
            const auto run = [&](std::size_t k, std::size_t rows, std::size_t length) {
                const std::size_t at = (o * axis.length + (group + k) * block) * axis.inner;
                all_rows.run(x + at, y + at, length * axis.inner, rows, at, scales, k, zero.empty() ? nullptr : zero.data() + first + group + k);
            };
            for (std::size_t k = 0; k < whole;) {
                const std::size_t rows = scales.alike(k, whole);
                run(k, rows, block);
                k += rows;
            }
            if (ragged) run(whole, 1, axis.length % block);
        }
    }
    if (all_rows.streaming) end_streaming<Arch>();
}

template <class Arch, class Format>
void run_per_channel(const Format& f, const float* x, float* y, const per_channel& p, along_axis axis, const semantics& how) noexcept {
    if (axis.inner == 1) {  // a channel for each element of a row
        for (std::size_t o = 0; o < axis.outer; ++o) {
            const std::size_t at = o * axis.length;
            run_parallel<Arch>(f, x + at, y + at, axis.length, at, p.scale.data(), p.zero_point.empty() ? nullptr : p.zero_point.data(), how);
        }
        return;
    }
    run_scaled<Arch>(f, x, y, axis, 1, p.scale, p.zero_point, false, how);
}

// ---- block formats; Known is the shape of f, as far as it is known when compiling

template <class Arch>
block_float_step<Arch> step_of(const block_float& f, const semantics& how, float) noexcept {
    return {f, how};
}
template <class Arch>
block_float_step<Arch> step_of(const microexponent& f, const semantics& how, float) noexcept {
    return {f, how};
}
template <class Arch>
microscaling_step<Arch> step_of(const microscaling& f, const semantics& how, float) noexcept {
    return {f, how};
}
template <class Arch>
nvfloat_step<Arch> step_of(const nvfloat& f, const semantics& how, float tensor_scale) noexcept {
    return {f, how, tensor_scale};
}

template <class Arch, block_shape Known = block_shape{0, element_step::block}>
void run_block_format(const block_float& f, const float* x, float* y, along_axis axis, float, const semantics& how) noexcept {
    run_blocks<Arch, Known>(x, y, axis, step_of<Arch>(f, how, 0));
}
template <class Arch, block_shape Known = block_shape{0, element_step::pair}>
void run_block_format(const microexponent& f, const float* x, float* y, along_axis axis, float, const semantics& how) noexcept {
    run_blocks<Arch, Known>(x, y, axis, step_of<Arch>(f, how, 0));
}
template <class Arch, block_shape Known = block_shape{}>
void run_block_format(const microscaling& f, const float* x, float* y, along_axis axis, float, const semantics& how) noexcept {
    run_blocks<Arch, Known>(x, y, axis, step_of<Arch>(f, how, 0));
}

/// The largest finite magnitude of an array.
template <class Arch>
float largest_finite(const float* x, std::size_t n) noexcept {
    seen<Arch> s;
    std::size_t i = 0;
    for (; i + lanes<Arch> <= n; i += lanes<Arch>) s.add(load<Arch>(x + i));
    if (i < n) s.add(load_some<Arch>(x + i, 1, n - i));
    alignas(64) std::int32_t lane[lanes<Arch>];
    store<Arch>(lane, s.finite);
    return std::bit_cast<float>(*std::max_element(lane, lane + lanes<Arch>));
}

template <class Arch, block_shape Known = block_shape{0, element_step::element}>
void run_block_format(const nvfloat& f, const float* x, float* y, along_axis axis, float t, const semantics& how) noexcept {
    if (t == 0.0f) {
        const float limit = static_cast<float>(max_value(f.scale) * max_value(f.element));
        const float amax = largest_finite<Arch>(x, axis.outer * axis.length * axis.inner);
        t = how.flush_inputs && amax < 0x1p-126f ? 0.0f : amax / limit;
    }
    run_blocks<Arch, Known>(x, y, axis, step_of<Arch>(f, how, t));
}

template <class Format>
inline constexpr bool is_block_family = requires(const Format& f) { f.block_size; };

}  // namespace qk::kernels
