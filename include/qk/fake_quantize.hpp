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
#include <concepts>
#include <limits>
#include <span>

#include "qk/formats/check.hpp"
#include "qk/formats/format.hpp"
#include "qk/isa.hpp"
#include "qk/kernels/choose.hpp"
#include "qk/kernels/scaled_pieces.hpp"
#include "qk/parameters.hpp"
#include "qk/preconditions.hpp"
#include "qk/semantics.hpp"
#include "qk/wrong_use.hpp"

namespace qk {

/// The instruction set of a call. The default is what the including file is compiled for, and part of each function's name, so that
/// files compiled for different ones may be linked together.
using kernels::native;

inline namespace QK_ISA {

/// Format known when compiling: `fake_quantize<qk::mxfp4>(x, y)`. Block formats run along the whole span.
template <auto Format, class Arch = native>
void fake_quantize(std::span<const float> x, std::span<float> y, const semantics& how = semantics::ocp) noexcept;

/// One scale for the tensor (integer, floating; NVFP4's tensor scale).
template <auto Format, class Arch = native>
void fake_quantize(std::span<const float> x, std::span<float> y, affine scale, const semantics& how = semantics::ocp) noexcept;

/// Blocks along any axis, without a transpose (block formats; an elementwise format ignores the axis).
template <auto Format, class Arch = native>
void fake_quantize(std::span<const float> x, std::span<float> y, along_axis axis, const semantics& how = semantics::ocp) noexcept;

/// NVFP4 along an axis with a calibrated tensor scale.
template <auto Format, class Arch = native>
void fake_quantize(std::span<const float> x, std::span<float> y, along_axis axis, affine scale,
                   const semantics& how = semantics::ocp) noexcept;

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

/// Other memory: x and y in float16 or bfloat16 (spans, vectors, arrays), or values_in and values_out, which may have a pitch. y gets the
/// nearest number of its type. The parameters are those of the calls above. Blocks end at 4096 values, unless y is float without a pitch.
template <auto Format, class Arch = native, class X, class Y>
requires detail::other_memory<X, Y>
void fake_quantize(X&& x, Y&& y, const codec_parameters& p = {}, const semantics& how = semantics::ocp) noexcept;
template <class Arch = native, class X, class Y>
requires detail::other_memory<X, Y>
void fake_quantize(const format& f, X&& x, Y&& y, const codec_parameters& p = {}, const semantics& how = semantics::ocp) noexcept;
template <auto Format, class Arch = native, class X, class Y>
requires detail::other_memory<X, Y>
void fake_quantize(X&& x, Y&& y, const semantics& how) noexcept {
    fake_quantize<Format, Arch>(values_in(x), values_out(y), codec_parameters{}, how);
}
template <class Arch = native, class X, class Y>
requires detail::other_memory<X, Y>
void fake_quantize(const format& f, X&& x, Y&& y, const semantics& how) noexcept {
    fake_quantize<Arch>(f, values_in(x), values_out(y), codec_parameters{}, how);
}
template <auto Format, class Arch = native, class X, class Y>
requires detail::other_memory<X, Y>
void fake_quantize(X&& x, Y&& y, along_axis axis, affine scale, const semantics& how = semantics::ocp) noexcept {
    fake_quantize<Format, Arch>(values_in(x), values_out(y), codec_parameters(axis, scale), how);
}
template <class Arch = native, class X, class Y>
requires detail::other_memory<X, Y>
void fake_quantize(const format& f, X&& x, Y&& y, along_axis axis, affine scale, const semantics& how = semantics::ocp) noexcept {
    fake_quantize<Arch>(f, values_in(x), values_out(y), codec_parameters(axis, scale), how);
}

/// Parameters that are known when running: what encode and decode take, too.
template <auto Format, class Arch = native, std::same_as<codec_parameters> P>
void fake_quantize(std::span<const float> x, std::span<float> y, const P& p, const semantics& how = semantics::ocp) noexcept {
    fake_quantize<Format, Arch>(values_in(x), values_out(y), p, how);
}
template <class Arch = native, std::same_as<codec_parameters> P>
void fake_quantize(const format& f, std::span<const float> x, std::span<float> y, const P& p,
                   const semantics& how = semantics::ocp) noexcept {
    fake_quantize<Arch>(f, values_in(x), values_out(y), p, how);
}

/// Every other call does not compile, and says why (wrong_use.hpp).
template <auto Format, class Arch = native, class X, class Y, class... P>
requires(!detail::is_call<X, Y, P...>) void fake_quantize(X&&, Y&&, P&&...) { wrong_use::of_call<X, Y, P...>(); }
template <class Family, class X, class Y, class... P>
requires std::is_constructible_v<format, Family>
void fake_quantize(X&&, Y&&, P&&...) { wrong_use::of_family<Family>(); }
template <class Arch = native, class F, class X, class Y, class... P>
requires(!detail::format_value<F> || !detail::is_call<X, Y, P...>) void fake_quantize(F&&, X&&, Y&&, P&&...) {
    if constexpr (!detail::format_value<F>) wrong_use::of_format<F>();
    else wrong_use::of_call<X, Y, P...>();
}

}  // namespace QK_ISA

// ---- implementation

namespace wrong_use {

/// Is true when the template argument is a format that can exist, and that numbers are rounded to unless it is `OnlyRead`. Else a
/// static_assert says so, and the caller leaves the rest of its body out.
template <auto Format, bool OnlyRead = false>
QK_INLINE constexpr bool is_no_fault_of() {
    constexpr bool is_format = std::is_constructible_v<format, decltype(Format)> && std::is_class_v<std::remove_const_t<decltype(Format)>>;
    static_assert(is_format, "the template argument is a format, for instance qk::mxfp4 or qk::block_float{.block_size = 16}");
    if constexpr (is_format) {
        constexpr bool can_exist = check(Format).empty();
        static_assert(can_exist, "this format cannot exist: std::puts(qk::check(format).c_str()) says why");
        constexpr bool can_be_made = OnlyRead || !detail::is_ggml_blocks<decltype(Format)>;
        static_assert(can_be_made, "ggml's blocks are only read, by decode and products; qk::systems::ggml makes them");
        return can_exist && can_be_made;
    }
    return false;
}

}  // namespace wrong_use

namespace detail {
inline namespace QK_ISA {

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

/// Returns the scale of a call that gives none: 1, or for NVFP4 0, which means "from the data".
constexpr affine no_scale(const format& f) { return {.scale = has_floating_scales(f) ? 0.0f : 1.0f}; }

/// Runs an elementwise format with one scale, or blocks along an axis under the scale of the tensor. `OneRow`: the axis is that of the
/// whole span.
template <auto Format, class Arch, bool OneRow>
void run(std::span<const float> x, std::span<float> y, along_axis axis, affine a, const semantics& how) noexcept {
    expect_arrays(x, y);
    expect_words(how, x.size());
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

/// Returns the kernel of an elementwise format for one scaled_piece.
template <class Arch, kernels::floating_kind Known = kernels::floating_kind::any, class Format>
auto elements_kernel(const Format& f, bool one_scale) {
    return [f, one_scale](const float* from, float* to, const scaled_piece& s, const semantics& own) {
        if (s.entries == 1) return kernels::run_uniform<Arch, Known>(f, from, to, s.n, 0, s.scale[0], s.zero[0], own, one_scale);
        kernels::run_scaled<Arch, Known>(f, from, to, along_axis{1, s.n, 1}, s.group, {s.scale, s.entries}, {s.zero, s.entries}, true, own);
    };
}

/// Runs a format over memory of any kind, in pieces where kernels do not read or write it themselves.
template <class Arch, kernels::floating_kind Known = kernels::floating_kind::any, kernels::block_shape Shape = kernels::block_shape{},
          class Format>
void run_pieces(const Format& f, const values_in& x, const values_out& y, const codec_parameters& p, const semantics& how) noexcept {
    if constexpr (is_float<Format>) {
        if (f == no_format) return fill_with_nan<Arch>(y);
    }
    if constexpr (kernels::is_block_family<Format>) {
        float t = p.has_one ? p.one.scale : no_scale(f).scale;
        if constexpr (under_floating_scales<Format>) {
            if (t == 0) t = f.tensor_scale ? kernels::tensor_scale_of(f, largest_finite<Arch>(x), how) : 1.0f;
        }
        pieces_of_blocks<Arch>(static_cast<std::size_t>(f.block_size), x, y, resolved(p.axis, x.size()), how,
                               [&](const float* from, float* to, along_axis axis, const semantics& own) {
                                   kernels::run_block_format<Arch, Shape>(f, from, to, axis, t, own);
                               });
    } else {
        pieces_of_elements<Arch>(x, y, p, how, elements_kernel<Arch, Known>(f, p.one_scale()));
    }
}

/// Are true where kernels read the scales as they are.
QK_INLINE bool are_plain(const scales_in& scale, const zero_points_in& zero) {
    return scale.data() != nullptr && (zero.empty() || zero.data() != nullptr);
}
template <class Arch, kernels::floating_kind Known = kernels::floating_kind::any, class Format>
void run(const Format& f, std::span<const float> x, std::span<float> y, const per_channel& p, const semantics& how) noexcept {
    if (is_answered_by_nan(f, y)) return;
    if (!are_plain(p.scale, p.zero_point)) return run_pieces<Arch, Known>(f, x, y, p, how);
    kernels::run_per_channel<Arch, Known>(f, x.data(), y.data(), p, kernels::resolve(p.axis, x.size()), how);
}
template <class Arch, kernels::floating_kind Known = kernels::floating_kind::any, class Format>
void run(const Format& f, std::span<const float> x, std::span<float> y, const per_block& p, const semantics& how) noexcept {
    if (is_answered_by_nan(f, y)) return;
    if (p.block_rows != 1 || !are_plain(p.scale, p.zero_point)) return run_pieces<Arch, Known>(f, x, y, p, how);
    kernels::run_scaled<Arch, Known>(f, x.data(), y.data(), kernels::resolve(p.axis, x.size()), p.block_size, p.scale.floats(),
                                     p.zero_point.words(), true, how);
}

/// Runs a format with scales by channel or block, which block formats do not take.
template <class Arch, auto Format, class Scales>
void run_scales(std::span<const float> x, std::span<float> y, const Scales& scales, const semantics& how) noexcept {
    constexpr bool in_blocks = kernels::is_block_family<std::remove_const_t<decltype(Format)>>;
    if constexpr (wrong_use::is_no_fault_of<Format>() && !in_blocks) {
        expect_arrays(x, y);
        expect_words(how, x.size());
        expect_scales(Format, scales, x.size());
        run<Arch, kernels::kind_of(Format)>(Format, x, y, scales, how);
    }
}
template <class Arch, class Scales>
void run_scales(const format& f, std::span<const float> x, std::span<float> y, const Scales& scales, const semantics& how) noexcept {
    expect_format(f);
    expect_rounds(f);
    expect_arrays(x, y);
    expect_words(how, x.size());
    expect_scales(f, scales, x.size());
    if (const floating* g = std::get_if<floating>(&f)) return run<Arch>(*g, x, y, scales, how);
    if (const integer* g = std::get_if<integer>(&f)) return run<Arch>(*g, x, y, scales, how);
    if (const table* g = std::get_if<table>(&f)) return run<Arch>(*g, x, y, scales, how);
    if (is_read_only(f)) return run<Arch>(no_format, x, y, scales, how);
}

}  // namespace QK_ISA
}  // namespace detail

inline namespace QK_ISA {

template <auto Format, class Arch>
void fake_quantize(std::span<const float> x, std::span<float> y, const semantics& how) noexcept {
    if constexpr (wrong_use::is_no_fault_of<Format>()) detail::run<Format, Arch, true>(x, y, along_axis{}, detail::no_scale(Format), how);
}
template <auto Format, class Arch>
void fake_quantize(std::span<const float> x, std::span<float> y, affine scale, const semantics& how) noexcept {
    using F = std::remove_const_t<decltype(Format)>;
    constexpr bool takes_a_scale = !kernels::is_block_family<F> || detail::under_floating_scales<F>;
    static_assert(takes_a_scale,
                  "a scale is given to integer and floating formats and to NVFP4; the other block formats take theirs from the data");
    if constexpr (wrong_use::is_no_fault_of<Format>()) detail::run<Format, Arch, true>(x, y, along_axis{}, scale, how);
}
template <auto Format, class Arch>
void fake_quantize(std::span<const float> x, std::span<float> y, along_axis axis, const semantics& how) noexcept {
    if constexpr (wrong_use::is_no_fault_of<Format>()) detail::run<Format, Arch, false>(x, y, axis, detail::no_scale(Format), how);
}
template <auto Format, class Arch>
void fake_quantize(std::span<const float> x, std::span<float> y, along_axis axis, affine scale, const semantics& how) noexcept {
    if constexpr (wrong_use::is_no_fault_of<Format>()) detail::run<Format, Arch, false>(x, y, axis, scale, how);
}
template <auto Format, class Arch>
void fake_quantize(std::span<const float> x, std::span<float> y, const per_channel& scales, const semantics& how) noexcept {
    constexpr bool in_blocks = kernels::is_block_family<std::remove_const_t<decltype(Format)>>;
    static_assert(!in_blocks,
                  "scales by channel or block are given to integer and floating formats; block formats take theirs from the data");
    detail::run_scales<Arch, Format>(x, y, scales, how);
}
template <auto Format, class Arch>
void fake_quantize(std::span<const float> x, std::span<float> y, const per_block& scales, const semantics& how) noexcept {
    constexpr bool in_blocks = kernels::is_block_family<std::remove_const_t<decltype(Format)>>;
    static_assert(!in_blocks,
                  "scales by channel or block are given to integer and floating formats; block formats take theirs from the data");
    detail::run_scales<Arch, Format>(x, y, scales, how);
}

template <class Arch>
void fake_quantize(const format& f, std::span<const float> x, std::span<float> y, along_axis axis, affine scale,
                   const semantics& how) noexcept {
    detail::expect_format(f);
    detail::expect_rounds(f);
    detail::expect_arrays(x, y);
    detail::expect_words(how, x.size());
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

template <auto Format, class Arch, class X, class Y>
requires detail::other_memory<X, Y>
void fake_quantize(X&& x, Y&& y, const codec_parameters& p, const semantics& how) noexcept {
    if constexpr (wrong_use::is_no_fault_of<Format>()) {
        const values_in from(x);
        const values_out to(y);
        detail::expect_values(Format, from, to, p);
        detail::expect_words(how, from.size());
        if constexpr (kernels::is_block_family<std::remove_const_t<decltype(Format)>>) {
            constexpr kernels::block_shape shape = kernels::shape_of(Format);
            detail::run_pieces<Arch, kernels::floating_kind::any, shape>(Format, from, to, p, how);
        } else {
            detail::run_pieces<Arch, kernels::kind_of(Format)>(Format, from, to, p, how);
        }
    }
}
template <class Arch, class X, class Y>
requires detail::other_memory<X, Y>
void fake_quantize(const format& f, X&& x, Y&& y, const codec_parameters& p, const semantics& how) noexcept {
    const values_in from(x);
    const values_out to(y);
    detail::expect_values(f, from, to, p);
    detail::expect_words(how, from.size());
    detail::with_family(f, [&](const auto& g) { detail::run_pieces<Arch>(g, from, to, p, how); });
}

}  // namespace QK_ISA

}  // namespace qk

#include "qk/exact/end.hpp"
