// SPDX-License-Identifier: Apache-2.0
// Refuses calls that cannot be meant with one sentence of the compiler: an overload takes what no other overload takes, and fails a
// static_assert. tests/core/must_not_compile holds each sentence.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

#include "qk/formats/format.hpp"
#include "qk/memory/planes.hpp"
#include "qk/memory/values.hpp"
#include "qk/parameters.hpp"
#include "qk/semantics.hpp"

namespace qk::detail {

// Values rather than concepts: when a concept fails the compiler lists each of its parts.
template <class X>
inline constexpr bool readable_floats = std::is_convertible_v<X, std::span<const float>>;
template <class Y>
inline constexpr bool writable_floats = std::is_convertible_v<Y, std::span<float>>;
template <class B>
inline constexpr bool readable_bytes = std::is_convertible_v<B, std::span<const std::byte>>;
template <class B>
inline constexpr bool writable_bytes = std::is_convertible_v<B, std::span<std::byte>>;
template <class F>
inline constexpr bool format_value = std::is_convertible_v<F, const format&>;
/// Are true for what may follow the arrays in a call.
template <class P>
inline constexpr bool is_semantics = std::is_convertible_v<P, const semantics&>;
template <class P>
inline constexpr bool is_scale_or_axis =
    std::is_convertible_v<P, affine> || std::is_convertible_v<P, along_axis> || std::is_convertible_v<P, const per_channel&> ||
    std::is_convertible_v<P, const per_block&> || std::is_convertible_v<P, const codec_parameters&>;
template <class P>
inline constexpr bool kernel_parameter = is_semantics<P> || is_scale_or_axis<P>;

/// Is true for parameters in their order: scales or an axis, or an axis and a scale; then semantics.
template <class... P>
inline constexpr bool in_order = sizeof...(P) == 0;
template <class A>
inline constexpr bool in_order<A> = kernel_parameter<A>;
template <class A, class B>
inline constexpr bool in_order<A, B> = (is_scale_or_axis<A> && is_semantics<B>) ||
                                       (std::is_convertible_v<A, along_axis> && std::is_convertible_v<B, affine>);
template <class A, class B, class C>
inline constexpr bool in_order<A, B, C> = std::is_convertible_v<A, along_axis>&& std::is_convertible_v<B, affine>&& is_semantics<C>;

/// Is true for x and y of which one is no plain array of float, but both can be read and written.
template <class X>
inline constexpr bool is_input = readable_numbers<X> || std::is_same_v<std::remove_cvref_t<X>, values_in>;
template <class Y>
inline constexpr bool is_output = writable_numbers<Y> || std::is_same_v<std::remove_cvref_t<Y>, values_out>;
template <class X, class Y>
concept other_memory = is_input<X> && is_output<Y> && !(readable_floats<X> && writable_floats<Y>);

template <class X, class Y, class... P>
inline constexpr bool is_call = is_input<X>&& is_output<Y>&& in_order<P...>;
/// The same for encode and decode: only the parameters.
template <class B>
inline constexpr bool is_plane_to_read = readable_bytes<B> || std::is_convertible_v<B, const_planes>;
template <class B>
inline constexpr bool is_plane_to_write = writable_bytes<B> || std::is_convertible_v<B, planes>;

}  // namespace qk::detail

// The sentences. What the compiler prints around them is the call and a name of this namespace.
namespace qk::wrong_use {

/// Is true for the first argument of a call that is no format.
template <class F>
inline constexpr bool is_no_format = !detail::format_value<F>;

template <class F>
QK_INLINE constexpr bool of_format() {
    constexpr bool is_a_format = detail::format_value<F>;
    static_assert(
        is_a_format,
        "the first argument is a format: qk::mxfp4, a struct such as qk::block_float{.block_size = 16}, or what qk::parse_format(text) "
        "holds");
    return is_a_format;
}
template <class X>
QK_INLINE constexpr bool of_input() {
    constexpr bool can_be_read = detail::is_input<X>;
    static_assert(
        can_be_read,
        "numbers to read are a span, vector or array of float, qk::float16 or qk::bfloat16: convert double or int to float first");
    return can_be_read;
}
template <class Y>
QK_INLINE constexpr bool of_output() {
    constexpr bool can_be_written = detail::is_output<Y>;
    static_assert(can_be_written,
                  "numbers to write are a span, vector or array of float, qk::float16 or qk::bfloat16, neither const nor temporary");
    return can_be_written;
}
template <class... P>
QK_INLINE constexpr void of_parameters() {
    constexpr bool are_parameters = (detail::kernel_parameter<P> && ...);
    static_assert(are_parameters,
                  "after the arrays come qk::affine{.scale = s}, qk::along_axis, qk::per_channel or qk::per_block, and qk::semantics");
    constexpr bool are_in_order = !are_parameters || detail::in_order<P...>;
    static_assert(are_in_order,
                  "parameters come in this order: the scale, the axis, or the axis and the scale of the tensor; then qk::semantics");
}
template <class B>
QK_INLINE constexpr void of_packed() {
    constexpr bool are_bytes = detail::readable_bytes<B>;
    static_assert(
        are_bytes,
        "packed codes are planes, or a span, vector or array of std::byte: write std::as_writable_bytes(std::span(v)) for other bytes, "
        "std::as_bytes(std::span(v)) where they are only read");
    constexpr bool can_be_written = !are_bytes || detail::writable_bytes<B>;
    static_assert(can_be_written, "packed codes are written: neither const nor temporary");
}

/// Name the first of the arguments that is wrong, and only that.
template <class X, class Y>
QK_INLINE constexpr void of_arrays() {
    if constexpr (!detail::is_input<X>) of_input<X>();
    else of_output<Y>();
}
template <class X, class Y, class... P>
QK_INLINE constexpr void of_call() {
    if constexpr (!detail::is_input<X> || !detail::is_output<Y>) of_arrays<X, Y>();
    else of_parameters<P...>();
}

/// A type where a value is wanted: fake_quantize<qk::microscaling>(x, y).
template <class Family>
QK_INLINE constexpr void of_family() {
    constexpr bool is_no_family = !std::is_constructible_v<format, Family>;
    static_assert(is_no_family, "the template argument is a value, for instance qk::mxfp4 or qk::microscaling{}, not a type");
}

}  // namespace qk::wrong_use
