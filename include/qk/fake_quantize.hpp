// SPDX-License-Identifier: Apache-2.0
// fake_quantize: what a tensor is after a trip through a format, as float32.
//
// Contract, for every overload:
//   - y.size() == x.size(); y may be x, but may not overlap it otherwise. Any length (0 too), any alignment.
//   - Nothing is allocated or thrown; one thread; re-entrant. Block formats treat a short last block as if padded with zeros.
//   - `semantics` defaults to OCP's. The same bits for every instruction set, and for the compile-time and the run-time form.
//   - Preconditions: scale is finite and above 0; zero_point is a code of the format; the format is valid (see `check` in
//     formats/check.hpp, which turns run-time values from outside into a sentence); sizes as parameters.hpp says. They are asserted where
//     NDEBUG is not defined (preconditions.hpp). One invalid format has an answer: no_format, of a failed parse, gives NaN everywhere.
#pragma once

#include "qk/exact/begin.hpp"

#include <algorithm>
#include <limits>
#include <span>

#include "qk/formats/check.hpp"
#include "qk/formats/format.hpp"
#include "qk/kernels/choose.hpp"
#include "qk/parameters.hpp"
#include "qk/preconditions.hpp"
#include "qk/semantics.hpp"
#include "qk/wrong_use.hpp"

namespace qk {

/// The instruction set of a call. The default is what the including file is compiled for, and part of each function's name, so that
/// files compiled for different ones may be linked together.
using kernels::native;

/// Format known when compiling: `fake_quantize<qk::mxfp4>(x, y)`. Block formats run along the whole span.
template <auto Format, class Arch = native>
void fake_quantize(std::span<const float> x, std::span<float> y, const semantics& how = semantics::ocp) noexcept;

/// One scale for the tensor (integer, floating; NVFP4's tensor scale).
template <auto Format, class Arch = native>
void fake_quantize(std::span<const float> x, std::span<float> y, affine scale, const semantics& how = semantics::ocp) noexcept;

/// Blocks along any axis, without a transpose (block formats; an elementwise format ignores the axis).
template <auto Format, class Arch = native>
void fake_quantize(std::span<const float> x, std::span<float> y, along_axis axis, const semantics& how = semantics::ocp) noexcept;

/// A scale per channel or per block (integer, floating).
template <auto Format, class Arch = native>
void fake_quantize(std::span<const float> x, std::span<float> y, const per_channel& scales, const semantics& how = semantics::ocp) noexcept;
template <auto Format, class Arch = native>
void fake_quantize(std::span<const float> x, std::span<float> y, const per_block& scales, const semantics& how = semantics::ocp) noexcept;

/// Format known when running: same overloads, same bits. `f` is any family's struct or qk::format.
template <class Arch = native>
void fake_quantize(const format& f, std::span<const float> x, std::span<float> y, const semantics& how = semantics::ocp) noexcept;
template <class Arch = native>
void fake_quantize(const format& f, std::span<const float> x, std::span<float> y, affine scale,
                   const semantics& how = semantics::ocp) noexcept;
template <class Arch = native>
void fake_quantize(const format& f, std::span<const float> x, std::span<float> y, along_axis axis,
                   const semantics& how = semantics::ocp) noexcept;
/// NVFP4 along an axis with a calibrated tensor scale.
template <class Arch = native>
void fake_quantize(const format& f, std::span<const float> x, std::span<float> y, along_axis axis, affine scale,
                   const semantics& how = semantics::ocp) noexcept;
template <class Arch = native>
void fake_quantize(const format& f, std::span<const float> x, std::span<float> y, const per_channel& scales,
                   const semantics& how = semantics::ocp) noexcept;
template <class Arch = native>
void fake_quantize(const format& f, std::span<const float> x, std::span<float> y, const per_block& scales,
                   const semantics& how = semantics::ocp) noexcept;

/// Every other call does not compile, and says why (wrong_use.hpp).
template <auto Format, class Arch = native, class X, class Y, class... P>
requires(!detail::readable_floats<X> || !detail::writable_floats<Y> || !(detail::kernel_parameter<P> && ...)) void fake_quantize(X&&, Y&&,
                                                                                                                                 P&&...) {
    detail::refuse_call<X, Y, P...>();
}
template <class Arch = native, class F, class X, class Y, class... P>
requires(!detail::format_value<F> || !detail::readable_floats<X> || !detail::writable_floats<Y> ||
         !(detail::kernel_parameter<P> && ...)) void fake_quantize(F&&, X&&, Y&&, P&&...) {
    if constexpr (!detail::format_value<F>) detail::refuse_format<F>();
    else detail::refuse_call<X, Y, P...>();
}

// ---- implementation

namespace detail {

/// Is true when the template argument is a format that can exist. Else a static_assert says so, and the caller leaves the rest of its body
/// out.
template <auto Format>
constexpr bool is_valid() {
    constexpr bool is_format = std::is_constructible_v<format, decltype(Format)> && std::is_class_v<std::remove_const_t<decltype(Format)>>;
    static_assert(is_format, "the template argument is a format, for instance qk::mxfp4 or qk::block_float{.block_size = 16}");
    if constexpr (is_format) {
        static_assert(check(Format).empty(), "this format cannot exist: qk::check in qk/formats/check.hpp says why");
        return check(Format).empty();
    }
    return false;
}

/// Returns whether f is no_format, which has no number; fills y with NaN if it is.
template <class Format>
QK_INLINE bool is_answered_by_nan(const Format& f, std::span<float> y) {
    if constexpr (is_float<Format>) {
        if (f == no_format) {
            std::fill(y.begin(), y.end(), std::numeric_limits<float>::quiet_NaN());
            return true;
        }
    }
    return false;
}

/// Runs an elementwise format with one scale, or blocks along an axis under the scale of the tensor. `OneRow`: the axis is that of the
/// whole span.
template <auto Format, class Arch, bool OneRow>
void run(std::span<const float> x, std::span<float> y, along_axis axis, affine a, const semantics& how) noexcept {
    expect_arrays(x, y);
    expect_axis(axis, x.size());
    expect_scale(Format, a);
    if constexpr (kernels::is_block_family<std::remove_const_t<decltype(Format)>>) {
        constexpr kernels::block_shape shape = kernels::shape_of(Format);
        kernels::run_block_format<Arch, kernels::block_shape{shape.size, shape.step, OneRow}>(
            Format, x.data(), y.data(), kernels::resolve(axis, x.size()), a.scale, how);
    } else {
        kernels::run_uniform<Arch, kernels::kind_of(Format)>(Format, x.data(), y.data(), x.size(), 0, a.scale, a.zero_point, how, true);
    }
}
template <class Arch, class Format>
void run(const Format& f, std::span<const float> x, std::span<float> y, along_axis axis, affine a, const semantics& how) noexcept {
    if (is_answered_by_nan(f, y)) return;
    if constexpr (kernels::is_block_family<Format>)
        kernels::run_block_format<Arch>(f, x.data(), y.data(), kernels::resolve(axis, x.size()), a.scale, how);
    else kernels::run_uniform<Arch>(f, x.data(), y.data(), x.size(), 0, a.scale, a.zero_point, how, true);
}

template <class Arch, kernels::floating_kind Known = kernels::floating_kind::any, class Format>
void run(const Format& f, std::span<const float> x, std::span<float> y, const per_channel& p, const semantics& how) noexcept {
    if (is_answered_by_nan(f, y)) return;
    kernels::run_per_channel<Arch, Known>(f, x.data(), y.data(), p, kernels::resolve(p.axis, x.size()), how);
}
template <class Arch, kernels::floating_kind Known = kernels::floating_kind::any, class Format>
void run(const Format& f, std::span<const float> x, std::span<float> y, const per_block& p, const semantics& how) noexcept {
    if (is_answered_by_nan(f, y)) return;
    kernels::run_scaled<Arch, Known>(f, x.data(), y.data(), kernels::resolve(p.axis, x.size()), p.block_size, p.scale, p.zero_point, true,
                                     how);
}

/// Returns the scale of a call that gives none: 1, or for NVFP4 0, which means "from the data".
constexpr affine no_scale(const format& f) { return {.scale = has_floating_scales(f) ? 0.0f : 1.0f}; }

/// Runs a format with scales by channel or block, which block formats do not take.
template <class Arch, auto Format, class Scales>
void run_scales(std::span<const float> x, std::span<float> y, const Scales& scales, const semantics& how) noexcept {
    constexpr bool in_blocks = kernels::is_block_family<std::remove_const_t<decltype(Format)>>;
    static_assert(!in_blocks,
                  "scales by channel or block are given to integer and floating formats; block formats take theirs from the data");
    if constexpr (is_valid<Format>() && !in_blocks) {
        expect_arrays(x, y);
        expect_scales(Format, scales, x.size());
        run<Arch, kernels::kind_of(Format)>(Format, x, y, scales, how);
    }
}
template <class Arch, class Scales>
void run_scales(const format& f, std::span<const float> x, std::span<float> y, const Scales& scales, const semantics& how) noexcept {
    expect_format(f);
    expect_arrays(x, y);
    expect_scales(f, scales, x.size());
    if (const floating* g = std::get_if<floating>(&f)) return run<Arch>(*g, x, y, scales, how);
    if (const integer* g = std::get_if<integer>(&f)) return run<Arch>(*g, x, y, scales, how);
    if (const table* g = std::get_if<table>(&f)) return run<Arch>(*g, x, y, scales, how);
}

}  // namespace detail

template <auto Format, class Arch>
void fake_quantize(std::span<const float> x, std::span<float> y, const semantics& how) noexcept {
    if constexpr (detail::is_valid<Format>()) detail::run<Format, Arch, true>(x, y, along_axis{}, detail::no_scale(Format), how);
}
template <auto Format, class Arch>
void fake_quantize(std::span<const float> x, std::span<float> y, affine scale, const semantics& how) noexcept {
    using F = std::remove_const_t<decltype(Format)>;
    static_assert(!kernels::is_block_family<F> || detail::under_floating_scales<F>,
                  "a scale is given to integer and floating formats and to NVFP4; the other block formats take theirs from the data");
    if constexpr (detail::is_valid<Format>()) detail::run<Format, Arch, true>(x, y, along_axis{}, scale, how);
}
template <auto Format, class Arch>
void fake_quantize(std::span<const float> x, std::span<float> y, along_axis axis, const semantics& how) noexcept {
    if constexpr (detail::is_valid<Format>()) detail::run<Format, Arch, false>(x, y, axis, detail::no_scale(Format), how);
}
template <auto Format, class Arch>
void fake_quantize(std::span<const float> x, std::span<float> y, const per_channel& scales, const semantics& how) noexcept {
    detail::run_scales<Arch, Format>(x, y, scales, how);
}
template <auto Format, class Arch>
void fake_quantize(std::span<const float> x, std::span<float> y, const per_block& scales, const semantics& how) noexcept {
    detail::run_scales<Arch, Format>(x, y, scales, how);
}

template <class Arch>
void fake_quantize(const format& f, std::span<const float> x, std::span<float> y, along_axis axis, affine scale,
                   const semantics& how) noexcept {
    detail::expect_format(f);
    detail::expect_arrays(x, y);
    detail::expect_axis(axis, x.size());
    detail::expect_scale(f, scale);
    detail::with_family(f, [&](const auto& g) { detail::run<Arch>(g, x, y, axis, scale, how); });
}
template <class Arch>
void fake_quantize(const format& f, std::span<const float> x, std::span<float> y, const semantics& how) noexcept {
    fake_quantize<Arch>(f, x, y, along_axis{}, detail::no_scale(f), how);
}
template <class Arch>
void fake_quantize(const format& f, std::span<const float> x, std::span<float> y, affine scale, const semantics& how) noexcept {
    fake_quantize<Arch>(f, x, y, along_axis{}, scale, how);
}
template <class Arch>
void fake_quantize(const format& f, std::span<const float> x, std::span<float> y, along_axis axis, const semantics& how) noexcept {
    fake_quantize<Arch>(f, x, y, axis, detail::no_scale(f), how);
}
template <class Arch>
void fake_quantize(const format& f, std::span<const float> x, std::span<float> y, const per_channel& scales,
                   const semantics& how) noexcept {
    detail::run_scales<Arch>(f, x, y, scales, how);
}
template <class Arch>
void fake_quantize(const format& f, std::span<const float> x, std::span<float> y, const per_block& scales, const semantics& how) noexcept {
    detail::run_scales<Arch>(f, x, y, scales, how);
}

}  // namespace qk

#include "qk/exact/end.hpp"
