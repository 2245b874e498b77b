// SPDX-License-Identifier: Apache-2.0
// Refuses calls that cannot be meant with one sentence of the compiler: an overload takes what no other overload takes, and fails a
// static_assert. tests/core/must_not_compile holds each sentence.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

#include "qk/formats/format.hpp"
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
/// Is true for what may follow the arrays in a call.
template <class P>
inline constexpr bool kernel_parameter =
    std::is_convertible_v<P, const semantics&> || std::is_convertible_v<P, affine> || std::is_convertible_v<P, along_axis> ||
    std::is_convertible_v<P, const per_channel&> || std::is_convertible_v<P, const per_block&>;

template <class F>
constexpr bool refuse_format() {
    static_assert(
        format_value<F>,
        "the first argument is a format: qk::mxfp4, a struct such as qk::block_float{.block_size = 16}, or what qk::parse_format(text) "
        "holds");
    return false;
}
template <class X>
constexpr bool refuse_input() {
    static_assert(readable_floats<X>,
                  "numbers to read are a span, vector or array of float: convert other types (double, int) to float first");
    return false;
}
template <class Y>
constexpr bool refuse_output() {
    static_assert(writable_floats<Y>, "numbers to write are a span, vector or array of float, neither const nor temporary");
    return false;
}
template <class... P>
constexpr bool refuse_parameters() {
    static_assert((kernel_parameter<P> && ...),
                  "after the arrays come qk::affine{.scale = s}, qk::along_axis, qk::per_channel or qk::per_block, and qk::semantics");
    return false;
}
template <class B>
constexpr bool refuse_packed() {
    static_assert(
        readable_bytes<B>,
        "packed codes are planes, or a span, vector or array of std::byte: write std::as_writable_bytes(std::span(v)) for other bytes, "
        "std::as_bytes(std::span(v)) where they are only read");
    static_assert(!readable_bytes<B> || writable_bytes<B>, "packed codes are written: neither const nor temporary");
    return false;
}

/// Names the first of the arguments that is wrong, and only that.
template <class X, class Y, class... P>
constexpr void refuse_call() {
    if constexpr (!readable_floats<X>) refuse_input<X>();
    else if constexpr (!writable_floats<Y>) refuse_output<Y>();
    else refuse_parameters<P...>();
}

}  // namespace qk::detail
