// SPDX-License-Identifier: Apache-2.0
// Multiplies a row by many columns under an accumulator whose aligned groups are added to C afterwards (CDNA3), and under integer registers
// that saturate. Lanes run over columns, as in aligned_columns.hpp. Equations (D4) to (D6) and (D11) of docs/reference/numerics.md.
#pragma once

#include "qk/dot/aligned_columns.hpp"
#include "qk/isa.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// Is true when joined_columns computes these sums: groups are aligned by themselves, in one or two lanes, and then joined with the
/// register. C is zero at the start.
constexpr bool serves_joined_columns(const accumulator& a, const element_kind& x, const element_kind& y) {
    return is_ieee(a.result) && a.cut != rounding::to_odd && a.join_cut != rounding::to_odd && a.sum == summation::aligned &&
           a.place == place::after && a.join > 0 && a.join <= 40 && a.join_addend <= 40 && a.lanes <= 2 && a.bundle == 1 &&
           a.flush_inputs == input_flush::none && !flushes_results(a) && !a.product_range && a.round != rounding::down &&
           a.partial_round != rounding::down && a.zero != zero_rule::ieee && x.width <= 15 && y.width <= 15 &&
           a.align >= x.fraction + y.fraction && a.align <= 30 && aligned_bits(a, x, y) <= 30;
}

/// Returns v / 2^right, cut as `cut` says; shifts to the left where `right` is below 0.
QK_INLINE std::int64_t moved(std::int64_t v, int right, rounding cut) {
    if (right <= 0) return v * (std::int64_t{1} << -right);
    return cut == rounding::down ? cut_right<true>(v, std::min(right, 63)) : cut_right<false>(v, std::min(right, 63));
}

template <int Lanes, bool Down>
class joined_columns {
  public:
    /// `row` holds n * 2^(align - fraction) of A. The columns are neighbours; rows of B are `stride` elements apart.
    joined_columns(const accumulator& how, std::size_t k, const std::int32_t* row, const std::int32_t* row_exponent, apart b,
                   std::size_t stride, std::size_t chunk) noexcept
        : how_(how), k_(k), row_(row), row_exponent_(row_exponent), b_(b), stride_(stride), chunk_(chunk) {}

    /// Returns false if a register or a product overflowed; the general form must then compute the sums.
    bool sums(std::uint32_t* codes) noexcept {
        const std::size_t step = how_.groups == 0 ? std::max<std::size_t>(k_, 1) : static_cast<std::size_t>(how_.groups);
        std::fill_n(c_.significand, Lanes, 0);
        std::fill_n(c_.exponent, Lanes, -126);
        floating held = how_.addend;
        for (std::size_t first = 0; first < k_; first += step) {
            const std::size_t last = std::min(k_, first + step);
            lane_[1].exist = false;
            for (int l = 0; l < how_.lanes; ++l) lane(first + static_cast<std::size_t>(l), last, lane_[l]);
            const floating to = last == k_ ? how_.result : how_.partial;
            if (!join(held, to, last == k_ ? how_.round : how_.partial_round, codes)) return false;
            held = to;
        }
        return true;
    }

  private:
    struct aligned_lane {
        alignas(64) std::int32_t top[Lanes];
        alignas(64) std::int64_t sum[Lanes];
        bool exist = false;
    };

    /// Sums terms first, first + lanes, ... below last, in units of 2^(top - align).
    void lane(std::size_t first, std::size_t last, aligned_lane& l) noexcept {
        const auto step = static_cast<std::size_t>(how_.lanes);
        std::fill_n(l.top, Lanes, -(1 << 14));
        std::fill_n(l.sum, Lanes, 0);
        l.exist = first < last;
        for (std::size_t i = first; i < last; i += step) {
            const std::int16_t* e = b_.exponent + i * stride_;
            for (int j = 0; j < Lanes; ++j) l.top[j] = std::max(l.top[j], row_exponent_[i] + e[j]);
        }
        for (std::size_t from = first; from < last; from += chunk_ * step) {
            alignas(64) std::int32_t part[Lanes] = {0};
            for (std::size_t i = from; i < std::min(last, from + chunk_ * step); i += step) {
                const std::int16_t *n = b_.n + i * stride_, *e = b_.exponent + i * stride_;
                for (int j = 0; j < Lanes; ++j)
                    part[j] += cut_right<Down>(std::int32_t{row_[i] * n[j]}, std::min(31, l.top[j] - row_exponent_[i] - e[j]));
            }
            for (int j = 0; j < Lanes; ++j) l.sum[j] += part[j];
        }
    }

    bool join(floating held, floating to, rounding r, std::uint32_t* codes) noexcept {
        bool holds = true;
        for (int j = 0; j < Lanes; ++j) {
            const int largest = std::max(lane_[0].top[j], lane_[1].exist ? lane_[1].top[j] : lane_[0].top[j]);
            holds = holds && !(how_.product_overflow && largest >= 126);
            std::int64_t sum = moved(lane_[0].sum[j], largest - lane_[0].top[j], how_.join_cut);
            if (lane_[1].exist) sum += moved(lane_[1].sum[j], largest - lane_[1].top[j], how_.join_cut);
            const int top = std::max(largest, c_.exponent[j]), unit = top - std::max(how_.join, how_.join_addend);
            std::int64_t total = moved(sum, top - how_.join - (largest - how_.align), how_.join_cut) << (top - how_.join - unit);
            if (how_.join_drop == 0 || c_.exponent[j] >= top - how_.join_drop)
                total += moved(c_.significand[j], top - how_.join_addend - (c_.exponent[j] - held.mantissa_bits), how_.join_cut)
                         << (top - how_.join_addend - unit);
            holds = round_whole(to, r, total, unit, codes[j]) && holds;
            if (codes[j] == sign_of(to) && how_.zero == zero_rule::positive) codes[j] = 0;
            const unpacked u = unpack(to, codes[j]);
            c_.significand[j] = static_cast<std::int32_t>(u.significand);
            c_.exponent[j] = u.exponent;
        }
        return holds;
    }

    const accumulator& how_;
    std::size_t k_;
    const std::int32_t *row_, *row_exponent_;
    apart b_;
    std::size_t stride_, chunk_;
    held_registers<Lanes> c_;
    aligned_lane lane_[2];
};

/// Is true when stopping_columns computes these sums: products of whole numbers below 2^16, in a register that saturates after every group.
/// C is zero at the start.
constexpr bool serves_stopping_columns(const accumulator& a, const element_kind& x, const element_kind& y) {
    return a.sum == summation::integer && a.saturate && a.width <= 48 && x.whole && y.whole && x.width <= 16 && y.width <= 16;
}
template <int Lanes>
void stopping_columns(const accumulator& how, std::size_t k, const std::int32_t* row, const std::int16_t* b, std::size_t stride,
                      std::int64_t* sums) noexcept {
    const std::size_t step = how.groups == 0 ? std::max<std::size_t>(k, 1) : static_cast<std::size_t>(how.groups);
    const std::int64_t highest = (std::int64_t{1} << (how.width - 1)) - 1, lowest = -highest - 1;
    alignas(64) std::int64_t sum[Lanes] = {0};
    for (std::size_t first = 0; first < k; first += step) {
        alignas(64) std::int64_t part[Lanes] = {0};
        for (std::size_t i = first; i < std::min(k, first + step); ++i) {
            const std::int16_t* n = b + i * stride;
            for (int j = 0; j < Lanes; ++j) part[j] += std::int32_t{row[i] * n[j]};
        }
        for (int j = 0; j < Lanes; ++j) {
            const std::int64_t group = how.place == place::after ? std::clamp(part[j], lowest, highest) : part[j];
            sum[j] = std::clamp(sum[j] + group, lowest, highest);
        }
    }
    std::copy_n(sum, Lanes, sums);
}

}  // namespace QK_ISA
}  // namespace qk::detail

namespace qk::device_sums {
inline namespace QK_ISA {

/// The same for groups that are joined with the register, and for registers that saturate after every group.
using detail::joined_columns, detail::serves_joined_columns, detail::serves_stopping_columns, detail::stopping_columns;

}  // namespace QK_ISA
}  // namespace qk::device_sums
