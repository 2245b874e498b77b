// SPDX-License-Identifier: Apache-2.0
// Asserts what a caller promises: debug builds stop with a sentence where a release build would read or write astray; with QK_CHECK release
// builds do, too (expect.hpp).
//
// Every public call of the core begins with one of these. With NDEBUG alone each is empty, so that a release build pays nothing; those of
// qk::dispatch are checked in every build, as far as that costs nothing. They are
// always inlined: a function of its own could be linked from a file that is compiled for another instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

#include "qk/expect.hpp"
#include "qk/formats/check.hpp"
#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/memory/planes.hpp"
#include "qk/parameters.hpp"
#include "qk/semantics.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// Is false for a null pointer unless the array is empty.
QK_INLINE bool is_there(const void* data, std::size_t size) { return data != nullptr || size == 0; }

/// Is true when two pieces of memory share no byte.
QK_INLINE bool are_apart(const void* a, std::size_t bytes_of_a, const void* b, std::size_t bytes_of_b) {
    const auto from = reinterpret_cast<std::uintptr_t>(a), to = reinterpret_cast<std::uintptr_t>(b);
    return bytes_of_a == 0 || bytes_of_b == 0 || from + bytes_of_a <= to || to + bytes_of_b <= from;
}

/// Checks the source and the destination of an elementwise call.
QK_INLINE void expect_arrays([[maybe_unused]] std::span<const float> x, [[maybe_unused]] std::span<float> y) {
    QK_EXPECT(y.size() == x.size(), "qk: y must have as many values as x");
    QK_EXPECT(is_there(x.data(), x.size()), "qk: x is a null pointer");
    QK_EXPECT(is_there(y.data(), y.size()), "qk: y is a null pointer");
    QK_EXPECT((x.data() == y.data() || are_apart(x.data(), x.size_bytes(), y.data(), y.size_bytes())),
              "qk: y must be x itself or not overlap it");
}

/// Checks that the caller's random words, if there are any, are one for each value.
QK_INLINE void expect_words([[maybe_unused]] const semantics& how, [[maybe_unused]] std::size_t n) {
    QK_EXPECT((how.random_words.empty() || !is_stochastic(how.rounding) || how.random_words.size() >= n),
              "qk: random_words must have a word for each value");
}

/// Checks an axis; `inner` == 0 stands for one row of everything.
QK_INLINE void expect_axis([[maybe_unused]] along_axis a, [[maybe_unused]] std::size_t n) {
    QK_EXPECT((a.inner == 0 || a.outer * a.length * a.inner == n), "qk: the axis must cover the array: outer * length * inner values");
}

/// Checks a format that numbers are rounded to.
QK_INLINE void expect_rounds([[maybe_unused]] const format& f) {
    QK_EXPECT(!is_read_only(f), "qk: ggml's blocks are only read, by decode and products; qk::systems::ggml makes them");
}
QK_INLINE void expect_format([[maybe_unused]] const format& f) {
    QK_EXPECT_EACH(check(f).empty(), "qk: this format cannot exist (a parse_format that failed gives such a one); qk::check says why");
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
    QK_EXPECT_EACH(((is_block_format(f) && !has_floating_scales(f)) || is_scale(f, a.scale)),
                   "qk: a scale must be finite and above 0 (NVFP4: 0 computes it)");
    QK_EXPECT_EACH(is_zero_point(f, a.zero_point), "qk: a zero point must be a code of the format");
}

/// Checks a scale, and a zero point if there are any, for each of `entries` channels or blocks.
QK_INLINE void expect_scales([[maybe_unused]] const format& f, [[maybe_unused]] const scales_in& scale,
                             [[maybe_unused]] const zero_points_in& zero, [[maybe_unused]] std::size_t entries) {
    QK_EXPECT(!is_block_format(f),
              "qk: scales by channel or block go with integer and floating formats; block formats take theirs from the data");
    QK_EXPECT(scale.size() == entries, "qk: there must be a scale for each channel or block along the axis");
    QK_EXPECT(zero.empty() || zero.is_shared() || zero.size() == entries,
              "qk: there must be a zero point for each scale, one for all, or none at all");
    QK_EXPECT(is_there(scale.memory(), scale.size()) && is_there(zero.memory(), zero.size()),
              "qk: scales or zero points are a null pointer");
#if QK_EXPECTS_EACH
    for (std::size_t i = 0; i < scale.size(); ++i) QK_EXPECT_EACH(is_scale(f, scale[i]), "qk: a scale must be finite and above 0");
    for (std::size_t i = 0; i < zero.size() + (zero.is_shared() ? 1 : 0); ++i)
        QK_EXPECT_EACH(is_zero_point(f, zero[i]), "qk: a zero point must be a code of the format");
#endif
}
/// Returns the number of scales of blocks of `rows` by `size` values; size 0: of channels.
QK_INLINE std::size_t entries_of(along_axis a, std::size_t size, std::size_t rows) {
    return size == 0 ? a.length : ((a.outer + rows - 1) / rows) * ((a.length + size - 1) / size) * a.inner;
}
QK_INLINE void expect_scales(const format& f, const per_channel& p, std::size_t n) {
    expect_axis(p.axis, n);
    expect_scales(f, p.scale, p.zero_point, resolved(p.axis, n).length);
}
QK_INLINE void expect_scales(const format& f, const per_block& p, std::size_t n) {
    QK_EXPECT(p.block_size != 0, "qk: per_block::block_size is 0; it must be 1 or more");
    QK_EXPECT(p.block_rows != 0, "qk: per_block::block_rows is 0; it must be 1 or more");
    expect_axis(p.axis, n);
    expect_scales(f, p.scale, p.zero_point, entries_of(resolved(p.axis, n), p.block_size, p.block_rows));
}

template <class Byte>
QK_INLINE void expect_packed([[maybe_unused]] const packed_layout& l, [[maybe_unused]] std::span<Byte> packed) {
    QK_EXPECT(packed.size() >= l.bytes(), "qk: the packed buffer is too short; packed_bytes(format, shape) says how long it must be");
    QK_EXPECT(is_there(packed.data(), packed.size()), "qk: the packed buffer is a null pointer");
}
template <class Planes>
QK_INLINE void expect_planes([[maybe_unused]] const packed_layout& l, [[maybe_unused]] const Planes& p) {
    QK_EXPECT(holds(p, l), "qk: a plane is too short; layout_of(format, shape) says how long each must be");
}

/// Checks that ggml's blocks fill the rows that they lie in.
QK_INLINE void expect_whole_blocks([[maybe_unused]] const format& f, [[maybe_unused]] along_axis a) {
    QK_EXPECT(!is_read_only(f) || (a.inner == 1 && a.length % static_cast<std::size_t>(block_size(f)) == 0),
              "qk: ggml's blocks lie in rows of whole blocks");
}

/// Checks the parameters of encode, decode or a product for n numbers.
template <class Parameters>
QK_INLINE void expect_parameters(const format& f, std::size_t n, const Parameters& p) {
    expect_axis(p.axis, n);
    [[maybe_unused]] const along_axis a = resolved(p.axis, n);
    expect_whole_blocks(f, a);
    if (p.one_scale()) expect_scale(f, p.one);
    else expect_scales(f, p.scale, p.zero_point, entries_of(a, p.group, p.block_rows));
}

/// Checks the source and the destination of an elementwise call over any memory, and its parameters.
template <class In, class Out, class Parameters>
QK_INLINE void expect_values(const format& f, [[maybe_unused]] const In& x, [[maybe_unused]] const Out& y, const Parameters& p) {
    expect_format(f);
    expect_rounds(f);
    QK_EXPECT(y.size() == x.size(), "qk: y must have as many values as x");
    QK_EXPECT(is_there(x.memory(), x.size()), "qk: x is a null pointer");
    QK_EXPECT(is_there(y.memory(), y.size()), "qk: y is a null pointer");
    QK_EXPECT(x.memory() == y.memory() || are_apart(x.memory(), x.bytes(), y.memory(), y.bytes()),
              "qk: y must be x itself or not overlap it");
    if (is_block_format(f)) {
        QK_EXPECT(p.scale.empty(),
                  "qk: scales by channel or block go with integer and floating formats; block formats take theirs from the data");
        QK_EXPECT(y.floats() != nullptr || block_size(f) <= 4096, "qk: blocks of more than 4096 values need a y of float without a pitch");
        QK_EXPECT(!p.has_one || !has_floating_scales(f) || is_scale(f, p.one.scale),
                  "qk: a scale must be finite and above 0 (NVFP4: 0 computes it)");
        expect_axis(p.axis, x.size());
    } else {
        expect_parameters(f, x.size(), p);
    }
}

/// Checks the numbers of encode or decode (values_in, values_out) and their parameters.
template <class Values, class Byte, class Parameters>
QK_INLINE void expect_numbers(const format& f, const Values& v, [[maybe_unused]] std::span<Byte> packed, const Parameters& p) {
    [[maybe_unused]] const std::size_t n = v.size();
    QK_EXPECT(is_there(v.memory(), n), "qk: the numbers are a null pointer");
    QK_EXPECT(are_apart(v.memory(), v.bytes(), packed.data(), packed.size()), "qk: the numbers must not overlap the packed buffer");
    expect_parameters(f, n, p);
}

}  // namespace QK_ISA
}  // namespace qk::detail
