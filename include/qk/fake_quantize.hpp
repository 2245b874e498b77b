// SPDX-License-Identifier: Apache-2.0
// fake_quantize: what a tensor is after a trip through a format, as float32.
//
// Contract, for every overload:
//   - y.size() == x.size(); y may be x, but may not overlap it otherwise. Any length (0 too), any alignment.
//   - Nothing is allocated or thrown; one thread; re-entrant. Block formats treat a short last block as if padded with zeros.
//   - `semantics` defaults to OCP's. The same bits for every instruction set, and for the compile-time and the run-time form.
//   - Preconditions: scale is finite and above 0; zero_point is a code of the format; the format is valid (see `check` in
//     formats/parse.hpp, which turns run-time values from outside into a sentence).
#pragma once

#include <span>

#include "qk/formats/format.hpp"
#include "qk/parameters.hpp"
#include "qk/semantics.hpp"

namespace qk {

/// Format known when compiling: `fake_quantize<qk::mxfp4>(x, y)`. Block formats run along the whole span.
template <auto Format>
void fake_quantize(std::span<const float> x, std::span<float> y, const semantics& how = semantics::ocp) noexcept;

/// One scale for the tensor (integer, floating; NVFP4's tensor scale).
template <auto Format>
void fake_quantize(std::span<const float> x, std::span<float> y, affine scale, const semantics& how = semantics::ocp) noexcept;

/// Blocks along any axis, without a transpose (block formats).
template <auto Format>
void fake_quantize(std::span<const float> x, std::span<float> y, along_axis axis, const semantics& how = semantics::ocp) noexcept;

/// A scale per channel or per block (integer, floating).
template <auto Format>
void fake_quantize(std::span<const float> x, std::span<float> y, const per_channel& scales, const semantics& how = semantics::ocp) noexcept;
template <auto Format>
void fake_quantize(std::span<const float> x, std::span<float> y, const per_block& scales, const semantics& how = semantics::ocp) noexcept;

/// Format known when running: same overloads, same bits. `Format` is any family's struct or qk::format.
void fake_quantize(const format& f, std::span<const float> x, std::span<float> y, const semantics& how = semantics::ocp) noexcept;
void fake_quantize(const format& f, std::span<const float> x, std::span<float> y, affine scale, const semantics& how = semantics::ocp) noexcept;
void fake_quantize(const format& f, std::span<const float> x, std::span<float> y, along_axis axis,
                   const semantics& how = semantics::ocp) noexcept;
/// NVFP4 along an axis with a calibrated tensor scale.
void fake_quantize(const format& f, std::span<const float> x, std::span<float> y, along_axis axis, affine scale,
                   const semantics& how = semantics::ocp) noexcept;
void fake_quantize(const format& f, std::span<const float> x, std::span<float> y, const per_channel& scales,
                   const semantics& how = semantics::ocp) noexcept;
void fake_quantize(const format& f, std::span<const float> x, std::span<float> y, const per_block& scales,
                   const semantics& how = semantics::ocp) noexcept;

}  // namespace qk
