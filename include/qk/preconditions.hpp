// SPDX-License-Identifier: Apache-2.0
// Asserts what a caller promises: debug builds stop with a sentence where a release build would read or write astray.
//
// Every public call of the core begins with one of these. With NDEBUG each is empty, so that a release build pays nothing. They are always
// inlined: a function of its own could be linked from a file that is compiled for another instruction set.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

#include "qk/codec/layout/layout.hpp"
#include "qk/formats/check.hpp"
#include "qk/inline.hpp"
#include "qk/parameters.hpp"

namespace qk::detail {

/// Is false for a null pointer unless the array is empty.
QK_INLINE bool is_there(const void* data, std::size_t size) { return data != nullptr || size == 0; }

/// Is true when two pieces of memory share no byte.
QK_INLINE bool are_apart(const void* a, std::size_t bytes_of_a, const void* b, std::size_t bytes_of_b) {
    const auto from = reinterpret_cast<std::uintptr_t>(a), to = reinterpret_cast<std::uintptr_t>(b);
    return bytes_of_a == 0 || bytes_of_b == 0 || from + bytes_of_a <= to || to + bytes_of_b <= from;
}

/// Checks the source and the destination of an elementwise call.
QK_INLINE void expect_arrays([[maybe_unused]] std::span<const float> x, [[maybe_unused]] std::span<float> y) {
    assert(y.size() == x.size() && "qk: y must have as many values as x");
    assert(is_there(x.data(), x.size()) && "qk: x is a null pointer");
    assert(is_there(y.data(), y.size()) && "qk: y is a null pointer");
    assert((x.data() == y.data() || are_apart(x.data(), x.size_bytes(), y.data(), y.size_bytes())) &&
           "qk: y must be x itself or not overlap it");
}

/// Checks an axis; `inner` == 0 stands for one row of everything.
QK_INLINE void expect_axis([[maybe_unused]] along_axis a, [[maybe_unused]] std::size_t n) {
    assert((a.inner == 0 || a.outer * a.length * a.inner == n) && "qk: the axis must cover the array: outer * length * inner values");
}

QK_INLINE void expect_format([[maybe_unused]] const format& f) {
    assert(check(f).empty() && "qk: this format cannot exist (a parse_format that failed gives such a one); qk::check says why");
}

QK_INLINE bool is_scale(const format& f, float scale) {
    return (scale > 0 && scale <= std::numeric_limits<float>::max()) || (scale == 0 && has_floating_scales(f));
}
QK_INLINE bool is_zero_point(const format& f, std::int64_t z) {
    const integer* of = std::get_if<integer>(&f);
    return of == nullptr || (z >= qmin(*of) && z <= qmax(*of));
}

/// Checks one scale for the tensor. Block formats other than NVFP4 do not look at it.
QK_INLINE void expect_scale([[maybe_unused]] const format& f, [[maybe_unused]] affine a) {
    assert(((is_block_format(f) && !has_floating_scales(f)) || is_scale(f, a.scale)) &&
           "qk: a scale must be finite and above 0 (NVFP4: 0 computes it)");
    assert(is_zero_point(f, a.zero_point) && "qk: a zero point must be a code of the format");
}

/// Checks a scale, and a zero point if there are any, for each of `entries` channels or blocks.
QK_INLINE void expect_scales([[maybe_unused]] const format& f, [[maybe_unused]] std::span<const float> scale,
                             [[maybe_unused]] std::span<const std::int64_t> zero, [[maybe_unused]] std::size_t entries) {
    assert(!is_block_format(f) &&
           "qk: scales by channel or block go with integer and floating formats; block formats take theirs from the data");
    assert(scale.size() == entries && "qk: there must be a scale for each channel or block along the axis");
    assert((zero.empty() || zero.size() == entries) && "qk: there must be a zero point for each scale, or none at all");
    assert(is_there(scale.data(), scale.size()) && is_there(zero.data(), zero.size()) && "qk: scales or zero points are a null pointer");
#if !defined(NDEBUG)
    for (const float s : scale) assert(is_scale(f, s) && "qk: a scale must be finite and above 0");
    for (const std::int64_t z : zero) assert(is_zero_point(f, z) && "qk: a zero point must be a code of the format");
#endif
}
QK_INLINE void expect_scales(const format& f, const per_channel& p, std::size_t n) {
    expect_axis(p.axis, n);
    expect_scales(f, p.scale, p.zero_point, resolved(p.axis, n).length);
}
QK_INLINE void expect_scales(const format& f, const per_block& p, std::size_t n) {
    assert(p.block_size != 0 && "qk: per_block::block_size is 0; it must be 1 or more");
    expect_axis(p.axis, n);
    const along_axis a = resolved(p.axis, n);
    expect_scales(f, p.scale, p.zero_point, a.outer * ((a.length + p.block_size - 1) / p.block_size) * a.inner);
}

template <class Byte>
QK_INLINE void expect_packed([[maybe_unused]] const packed_layout& l, [[maybe_unused]] std::span<Byte> packed) {
    assert(packed.size() >= l.bytes() && "qk: the packed buffer is too short; packed_bytes(format, shape) says how long it must be");
    assert(is_there(packed.data(), packed.size()) && "qk: the packed buffer is a null pointer");
}
template <class Planes>
QK_INLINE void expect_planes([[maybe_unused]] const packed_layout& l, [[maybe_unused]] const Planes& p) {
    assert(holds(p, l) && "qk: a plane is too short; layout_of(format, shape) says how long each must be");
}

/// Checks the parameters of encode, decode or a product for n numbers.
template <class Parameters>
QK_INLINE void expect_parameters(const format& f, std::size_t n, const Parameters& p) {
    expect_axis(p.axis, n);
    [[maybe_unused]] const along_axis a = resolved(p.axis, n);
    if (p.one_scale()) expect_scale(f, p.one);
    else expect_scales(f, p.scale, p.zero_point, p.group == 0 ? a.length : a.outer * ((a.length + p.group - 1) / p.group) * a.inner);
}

/// Checks the numbers of encode or decode (values_in, values_out) and their parameters.
template <class Values, class Byte, class Parameters>
QK_INLINE void expect_numbers(const format& f, const Values& v, [[maybe_unused]] std::span<Byte> packed, const Parameters& p) {
    [[maybe_unused]] const std::size_t n = v.size();
    assert(is_there(v.memory(), n) && "qk: the numbers are a null pointer");
    assert(are_apart(v.memory(), v.bytes(), packed.data(), packed.size()) && "qk: the numbers must not overlap the packed buffer");
    expect_parameters(f, n, p);
}

}  // namespace qk::detail
