// SPDX-License-Identifier: Apache-2.0
// The oracle: fake_quantize as docs/reference/numerics.md writes it, one element after the other, with integers and doubles. It is slow,
// and meant to be read. Kernels are tested against it and it is tested against outside evidence; neither includes the other.
//
// It has the contract of fake_quantize.hpp, in namespace qk::reference, with the format as a run-time value. A result that is NaN is a
// quiet NaN; its sign and payload mean nothing. The floating-point environment is the default one.
#pragma once

#include "qk/exact/begin.hpp"

#include <span>

#include "qk/isa.hpp"

#include "qk/formats/format.hpp"
#include "qk/parameters.hpp"
#include "qk/reference/block_float.hpp"
#include "qk/reference/floating.hpp"
#include "qk/reference/integer.hpp"
#include "qk/reference/microscaling.hpp"
#include "qk/reference/table.hpp"

namespace qk::reference {
inline namespace QK_ISA {

/// Returns the axis; `inner` == 0 stands for "the whole span is one row" and becomes that row.
inline along_axis resolve(along_axis axis, std::size_t size) { return axis.inner == 0 ? along_axis{1, size, 1} : axis; }

/// Calls visit(block, index of the block in an array [outer][ceil(length / block_size)][inner]) for every block.
template <class Visit>
void for_each_block(std::span<const float> x, std::span<float> y, along_axis axis, std::size_t block_size, const semantics& how,
                    Visit visit) {
    const std::size_t blocks = (axis.length + block_size - 1) / block_size;
    for (std::size_t o = 0; o < axis.outer; ++o) {
        for (std::size_t k = 0; k < blocks; ++k) {
            for (std::size_t i = 0; i < axis.inner; ++i) {
                const std::size_t first = (o * axis.length + k * block_size) * axis.inner + i;
                const std::size_t count = std::min(block_size, axis.length - k * block_size);
                visit(block{x.data(), y.data(), first, axis.inner, count, &how, k * block_size}, (o * blocks + k) * axis.inner + i);
            }
        }
    }
}

/// Rounds one value of an elementwise family under its own scale and zero point.
inline float quantize_one(const format& f, float x, float scale, std::int64_t zero_point, bool one_scale, const semantics& how,
                          std::uint32_t random) {
    if (const floating* g = std::get_if<floating>(&f)) return quantize(*g, x, scale, how, random);
    if (const table* g = std::get_if<table>(&f)) return quantize(*g, x, scale, how, random);
    return quantize(std::get<integer>(f), x, scale, zero_point, one_scale, how, random);
}

inline void fake_quantize(const format& f, std::span<const float> x, std::span<float> y, along_axis axis, affine scale,
                          const semantics& how = semantics::ocp) {
    if (x.empty()) return;
    if (is_read_only(f)) return std::fill(y.begin(), y.end(), std::numeric_limits<float>::quiet_NaN());
    if (!is_block_format(f)) {
        for (std::size_t i = 0; i < x.size(); ++i)
            y[i] = quantize_one(f, x[i], scale.scale, scale.zero_point, true, how, random_word(how, i));
        return;
    }
    axis = resolve(axis, x.size());
    const auto size = static_cast<std::size_t>(block_size(f));
    if (const nvfloat* g = std::get_if<nvfloat>(&f)) {
        const float tensor = scale.scale == 0 ? tensor_scale(*g, x, how) : scale.scale;
        for_each_block(x, y, axis, size, how, [&](const block& b, std::size_t) { quantize(*g, b, tensor); });
    } else if (const block_float* h = std::get_if<block_float>(&f)) {
        for_each_block(x, y, axis, size, how, [&](const block& b, std::size_t) { quantize(*h, b); });
    } else if (const microexponent* m = std::get_if<microexponent>(&f)) {
        for_each_block(x, y, axis, size, how, [&](const block& b, std::size_t) { quantize(*m, b); });
    } else {
        for_each_block(x, y, axis, size, how, [&](const block& b, std::size_t) { quantize(std::get<microscaling>(f), b); });
    }
}

/// Returns the scale of a call that gives none: 1, or for NVFP4 0, so that it is computed.
inline affine no_scale(const format& f) { return std::holds_alternative<nvfloat>(f) ? affine{.scale = 0} : affine{}; }

inline void fake_quantize(const format& f, std::span<const float> x, std::span<float> y, const semantics& how = semantics::ocp) {
    fake_quantize(f, x, y, along_axis{}, no_scale(f), how);
}
inline void fake_quantize(const format& f, std::span<const float> x, std::span<float> y, affine scale,
                          const semantics& how = semantics::ocp) {
    fake_quantize(f, x, y, along_axis{}, scale, how);
}
inline void fake_quantize(const format& f, std::span<const float> x, std::span<float> y, along_axis axis,
                          const semantics& how = semantics::ocp) {
    fake_quantize(f, x, y, axis, no_scale(f), how);
}

inline void fake_quantize(const format& f, std::span<const float> x, std::span<float> y, const per_block& scales,
                          const semantics& how = semantics::ocp) {
    const along_axis axis = resolve(scales.axis, x.size());
    const std::size_t of_a_row = (axis.length + scales.block_size - 1) / scales.block_size * axis.inner;
    for_each_block(x, y, axis, scales.block_size, how, [&](const block& b, std::size_t number) {
        const std::size_t k = number / of_a_row / scales.block_rows * of_a_row + number % of_a_row;
        const std::int64_t zero_point = scales.zero_point.empty() ? 0 : scales.zero_point[k];
        for (std::size_t i = 0; i < b.count; ++i) {
            const std::size_t at = b.position(i);
            y[at] = quantize_one(f, x[at], scales.scale[k], zero_point, false, how, b.random(i));
        }
    });
}
inline void fake_quantize(const format& f, std::span<const float> x, std::span<float> y, const per_channel& scales,
                          const semantics& how = semantics::ocp) {
    const along_axis axis = resolve(scales.axis, x.size());
    for (std::size_t at = 0; at < x.size(); ++at) {
        const std::size_t channel = at / axis.inner % axis.length;
        const std::int64_t zero_point = scales.zero_point.empty() ? 0 : scales.zero_point[channel];
        y[at] = quantize_one(f, x[at], scales.scale[channel], zero_point, false, how, random_word(how, at));
    }
}

}  // namespace QK_ISA
}  // namespace qk::reference

#include "qk/exact/end.hpp"
