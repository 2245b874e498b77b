// SPDX-License-Identifier: Apache-2.0
// Observers: what calibration needs to know of a tensor, in one streaming pass without allocation.
//
// Contract: NaN and Inf are counted and otherwise left out; observe() may be called on any number of pieces, and pieces observed apart may
// be merged: the result is the same for every way of cutting.
#pragma once

#include "qk/exact/begin.hpp"

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <type_traits>

#include "qk/expect.hpp"
#include "qk/formats/floating.hpp"
#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/memory/values.hpp"

namespace qk {

namespace detail {
inline namespace QK_ISA {
/// What can be read and is no plain array of float.
template <class R>
concept other_numbers = !span_of<R, const float> && (readable_numbers<R> || std::same_as<std::remove_cvref_t<R>, values_in>);

/// Calls call(floats) for pieces of the numbers.
template <class Call>
void in_floats(const values_in& x, const Call& call) noexcept {
    float piece[256];
    for (std::size_t first = 0; first < x.size(); first += std::size(piece)) {
        const std::size_t n = std::min(std::size(piece), x.size() - first);
        for (std::size_t i = 0; i < n; ++i) piece[i] = x[first + i];
        call(std::span<const float>(piece, n));
    }
}

/// Compares integers whose order is that of the floats, so that the loop vectorises and NaN has a place.
template <class Range>
Range range_of(std::span<const float> x) noexcept {
    std::int32_t low = INT32_MAX, high = INT32_MIN;
    std::size_t finite = 0;
    for (const float v : x) {
        const auto bits = std::bit_cast<std::int32_t>(v);
        const bool is_finite = detail::is_finite(v);
        const std::int32_t key = bits ^ ((bits >> 31) & 0x7fffffff);
        low = std::min(low, is_finite ? key : INT32_MAX);
        high = std::max(high, is_finite ? key : INT32_MIN);
        finite += is_finite;
    }
    const auto value = [](std::int32_t key) { return std::bit_cast<float>(key ^ ((key >> 31) & 0x7fffffff)); };
    Range range;
    range.special = x.size() - finite;
    range.count = finite;
    if (finite != 0) {
        range.min = value(low);
        range.max = value(high);
    }
    return range;
}
}  // namespace QK_ISA
}  // namespace detail

struct observed_range {
    float min = 0, max = 0;   ///< over the finite values; 0 before the first
    std::size_t count = 0;    ///< finite values
    std::size_t special = 0;  ///< Inf and NaN

    QK_INLINE float absmax() const noexcept { return std::max(0.0f, std::max(-min, max)); }

    QK_INLINE void observe(std::span<const float> x) noexcept {
        QK_EXPECT((x.data() != nullptr || x.empty()), "qk: x is a null pointer");
        merge(detail::range_of<observed_range>(x));
    }
    /// The same for float16, bfloat16 and rows with a pitch (values_in).
    template <class R>
    requires detail::other_numbers<R> QK_INLINE void observe(R&& x) noexcept {
        detail::in_floats(values_in(x), [&](std::span<const float> piece) { observe(piece); });
    }
    QK_INLINE void merge(const observed_range& other) noexcept {
        if (other.count != 0) {
            min = count == 0 ? other.min : std::min(min, other.min);
            max = count == 0 ? other.max : std::max(max, other.max);
        }
        count += other.count;
        special += other.special;
    }
};

inline namespace QK_ISA {

/// Adds the finite values of x to bins of equal width over [low, high]; values outside go into the end bins. high > low.
inline void observe_histogram(std::span<const float> x, float low, float high, std::span<std::uint64_t> bins) noexcept {
    QK_EXPECT((x.data() != nullptr || x.empty()), "qk: x is a null pointer");
    QK_EXPECT(bins.data() != nullptr && !bins.empty(), "qk: a histogram needs at least one bin");
    QK_EXPECT(high > low && detail::is_finite(low) && detail::is_finite(high), "qk: a histogram's range must be finite, high above low");
    const double per_width = static_cast<double>(bins.size()) / (static_cast<double>(high) - static_cast<double>(low));
    const auto last = static_cast<std::int64_t>(bins.size()) - 1;
    for (const float v : x) {
        if (!detail::is_finite(v)) continue;
        const double at = (static_cast<double>(v) - static_cast<double>(low)) * per_width;
        const std::int64_t bin = at < 0 ? 0 : at > static_cast<double>(last) ? last : static_cast<std::int64_t>(at);
        ++bins[static_cast<std::size_t>(bin)];
    }
}

template <class R>
requires detail::other_numbers<R>
void observe_histogram(R&& r, float low, float high, std::span<std::uint64_t> bins) noexcept {
    detail::in_floats(values_in(r), [&](std::span<const float> piece) { observe_histogram(piece, low, high, bins); });
}

}  // namespace QK_ISA

}  // namespace qk

#include "qk/exact/end.hpp"
