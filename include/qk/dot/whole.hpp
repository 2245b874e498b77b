// SPDX-License-Identifier: Apache-2.0
// Integer registers: sums of products in two's complement of any width, and how they become codes. Equations (D11) to (D14).
#pragma once

#include "qk/dot/elements.hpp"
#include "qk/isa.hpp"

namespace qk {

inline namespace QK_ISA {

/// Returns round(sum * factor) + zero point as a code of r.output: see requantization. Sets `saturated` if the limit was met.
constexpr std::int64_t requantize(std::int64_t sum, const requantization& r, bool* saturated = nullptr) noexcept;

}  // namespace QK_ISA

namespace detail {
inline namespace QK_ISA {

/// Returns v as a register of `width` bits keeps it: saturated or wrapped.
QK_INLINE constexpr std::int64_t keep(int128 v, int width, bool saturate, events& seen) {
    const int128 highest = (int128{1} << (width - 1)) - 1, lowest = -highest - 1;
    if (v >= lowest && v <= highest) return static_cast<std::int64_t>(v);
    seen.saturation = true;
    if (saturate) return static_cast<std::int64_t>(v < 0 ? lowest : highest);
    const int unused = 64 - width;
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(v) << unused) >> unused;
}

/// gemmlowp's SaturatingRoundingDoublingHighMul: a * b / 2^31, ties away from zero; the one overflow saturates.
constexpr std::int32_t doubling_high_multiply(std::int32_t a, std::int32_t b, bool& saturated) {
    if (a == b && a == std::numeric_limits<std::int32_t>::min()) {
        saturated = true;
        return std::numeric_limits<std::int32_t>::max();
    }
    const std::int64_t product = std::int64_t{a} * b;
    return static_cast<std::int32_t>((product + (product >= 0 ? std::int64_t{1} << 30 : 1 - (std::int64_t{1} << 30))) /
                                     (std::int64_t{1} << 31));
}
/// gemmlowp's RoundingDivideByPOT: v / 2^n, ties away from zero.
constexpr std::int32_t divide_by_power(std::int32_t v, int n) {
    const std::int64_t mask = (std::int64_t{1} << n) - 1, rest = v & mask, threshold = (mask >> 1) + (v < 0 ? 1 : 0);
    return (v >> n) + (rest > threshold ? 1 : 0);
}
constexpr std::int32_t clamp_to_32(std::int64_t v, bool& saturated) {
    const std::int64_t low = std::numeric_limits<std::int32_t>::min(), high = std::numeric_limits<std::int32_t>::max();
    saturated = saturated || v < low || v > high;
    return static_cast<std::int32_t>(std::clamp(v, low, high));
}
/// Returns v * 2^n, saturated; n is at most 30.
constexpr std::int32_t shift_left(std::int32_t v, int n, bool& saturated) {
    return clamp_to_32(static_cast<std::int64_t>(v) * (std::int64_t{1} << n), saturated);
}

/// Rounds a finite float, half to even unless `how` says otherwise; magnitudes above 2^62 become 2^62.
constexpr std::int64_t to_whole(float v, requantize_rounding how = requantize_rounding::usual) {
    if (!(v < 0x1p62f)) return std::int64_t{1} << 62;
    if (!(v > -0x1p62f)) return -(std::int64_t{1} << 62);
    const auto down = static_cast<std::int64_t>(v) - std::int64_t{v < static_cast<float>(static_cast<std::int64_t>(v))};  // floor
    const float rest = v - static_cast<float>(down);
    if (how == requantize_rounding::down) return down;
    if (how == requantize_rounding::toward_zero) return down + std::int64_t{down < 0 && rest > 0};
    return down + std::int64_t{rest > 0.5f || (rest == 0.5f && (down & 1) != 0)};
}

}  // namespace QK_ISA
}  // namespace detail

inline namespace QK_ISA {

constexpr std::int64_t requantize(std::int64_t sum, const requantization& r, bool* saturated) noexcept {
    bool limit = false;
    std::int64_t q = sum;
    switch (r.by) {
        case requantize_by::nothing: return sum;
        case requantize_by::scale: q = detail::to_whole(static_cast<float>(sum) * std::bit_cast<float>(r.scale_bits), r.round); break;
        case requantize_by::gemmlowp: {
            const std::int32_t raised = detail::shift_left(static_cast<std::int32_t>(sum), r.shift > 0 ? r.shift : 0, limit);
            q = detail::divide_by_power(detail::doubling_high_multiply(raised, r.multiplier, limit), r.shift > 0 ? 0 : -r.shift);
            break;
        }
        case requantize_by::multiplier: {
            const int shift = 31 - r.shift;
            const std::int64_t product = sum * r.multiplier;
            const std::int64_t more = r.round == requantize_rounding::usual  ? std::int64_t{1} << (shift - 1)
                                      : r.round == requantize_rounding::down ? 0
                                      : product < 0                          ? (std::int64_t{1} << shift) - 1
                                                                             : 0;
            q = (product + more) >> shift;
            break;
        }
    }
    q += r.zero_point;
    const std::int64_t lowest = r.relu ? r.zero_point : r.symmetric ? -qmax(r.output) : qmin(r.output);
    const std::int64_t code = std::clamp(q, lowest, qmax(r.output));
    if (saturated != nullptr) *saturated = *saturated || limit || code != q;
    return code;
}

}  // namespace QK_ISA

namespace detail {
inline namespace QK_ISA {

/// Loads whole numbers of one operand, less the zero point.
inline void load_whole(const packed_row<integer>& row, std::size_t first, std::size_t n, std::int64_t* out) noexcept {
    const std::size_t start = (row.outer * row.axis.length + first) * row.axis.inner + row.across;
    for (std::size_t i = 0; i < n; ++i)
        out[i] = value_of(row.format, get_code(row.packed.elements, start + i * row.axis.inner, row.format.bits)) - row.how.zero_point;
}

/// Returns the sum in the register, requantized if the accumulator says so.
inline std::int64_t whole_sum(const accumulator& a, const packed_row<integer>& x, const packed_row<integer>& y, std::size_t count,
                              std::int64_t c, events& seen) noexcept {
    const std::size_t step = a.groups == 0 ? (count == 0 ? 1 : count) : static_cast<std::size_t>(a.groups);
    std::int64_t p[dot_tile], q[dot_tile];
    std::int64_t sum = keep(c, a.width, a.saturate, seen);
    int128 group = 0;
    std::size_t left = step;
    for (std::size_t i = 0; i < count; i += dot_tile) {
        const std::size_t n = std::min(dot_tile, count - i);
        load_whole(x, i, n, p);
        load_whole(y, i, n, q);
        for (std::size_t j = 0; j < n; ++j) {
            group += int128{p[j]} * q[j];
            if (--left != 0 && i + j + 1 < count) continue;
            const int128 added = a.place == place::after ? int128{keep(group, a.width, a.saturate, seen)} : group;
            sum = keep(sum + added, a.width, a.saturate, seen);
            group = 0;
            left = step;
        }
    }
    bool limit = false;
    const std::int64_t result = requantize(sum, a.requantize, &limit);
    seen.saturation |= limit;
    return result;
}

}  // namespace QK_ISA
}  // namespace detail
}  // namespace qk
