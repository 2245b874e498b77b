// SPDX-License-Identifier: Apache-2.0
// Multiplies a row by many columns under an accumulator that rounds every sum to float32: the loops of rounded.hpp, with lanes over
// columns. Elements are float32 themselves, so float32's own product, sum and fma round as the accumulator does; equations (D8) to (D10).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "qk/dot/elements.hpp"
#include "qk/isa.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// Is true when every value of the format is a float32.
constexpr bool holds_float32s(const format& f) {
    if (const auto* g = std::get_if<floating>(&f)) return g->exponent_bits <= 8 && g->mantissa_bits <= 23;
    const auto* g = std::get_if<integer>(&f);
    return g != nullptr && g->bits <= 23;  // 24 with a zero point
}
/// Is true when rounded_columns computes these sums: every step is float32, half to even, with IEEE 754's results. C is zero at the start.
constexpr bool serves_rounded_columns(const accumulator& a, const format& x, const format& y) {
    return (a.sum == summation::sequential || a.sum == summation::pairwise) && a.bundle == 1 && !a.chunked && a.partial == fp32 &&
           a.partial_round == rounding::half_even && a.overflow == too_large::ieee &&
           (a.zero == zero_rule::ieee || a.zero == zero_rule::positive_products) && holds_float32s(x) && holds_float32s(y);
}

/// Which results become zero: none, those that are subnormal, or those that are tiny.
enum class small_results : std::uint8_t { stay, subnormal, tiny };

/// Does the steps of a device in each lane.
template <int Lanes, small_results Flush, bool Positive>
struct float_lanes {
    alignas(64) float v[Lanes];

    static QK_INLINE float kept(float x) { return Flush != small_results::stay && std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }
    /// Sets v to x b[j], rounded; by fma, since a compiler may contract a product and a sum to one. `Positive`: a product that is zero is
    /// +0, one that underflows keeps its sign.
    QK_INLINE void multiply(float x, const float* b) {
        for (int j = 0; j < Lanes; ++j) v[j] = Positive ? 0.0f : -0.0f;
        fuse(x, b);
    }
    /// A sum of float32 that is below the smallest normal number is exact: no rounding hides that it is tiny.
    QK_INLINE void add(const float_lanes& other) {
        for (int j = 0; j < Lanes; ++j) v[j] = kept(v[j] + other.v[j]);
    }
    /// Adds x b[j] to v, rounded once.
    QK_INLINE void add_product(float x, const float* b) {
        for (int j = 0; j < Lanes && Positive; ++j) v[j] += 0.0f;  // no -0 beside a product of +0
        fuse(x, b);
    }

  private:
    QK_INLINE void fuse(float x, const float* b) {
        if constexpr (Flush != small_results::tiny) {
            for (int j = 0; j < Lanes; ++j) v[j] = kept(std::fma(x, b[j], v[j]));
        } else {
            float_lanes sum;
            bool least = false;
            for (int j = 0; j < Lanes; ++j) sum.v[j] = kept(std::fma(x, b[j], v[j])), least |= std::fabs(sum.v[j]) == 0x1p-126f;
            if (least) look_again(x, b, sum);
            *this = sum;
        }
    }
    /// The smallest normal number is zero instead where the same sum of 2^24 times as much is below 2^24 times that number.
    void look_again(float x, const float* b, float_lanes& sum) const {
        for (int j = 0; j < Lanes; ++j) {
            if (std::fabs(sum.v[j]) == 0x1p-126f && std::fabs(std::fma(x * 0x1p24f, b[j], v[j] * 0x1p24f)) < 0x1p-102f)
                sum.v[j] = std::copysign(0.0f, sum.v[j]);
        }
    }
};

template <int Lanes, small_results Flush, bool Positive>
class rounded_columns {
  public:
    using lanes = float_lanes<Lanes, Flush, Positive>;
    /// The columns are neighbours; rows of B are `stride` elements apart.
    rounded_columns(const accumulator& a, const float* row, const float* b, std::size_t stride) noexcept
        : a_(a), row_(row), b_(b), stride_(stride) {}

    /// Computes the sums of k terms.
    void sums(std::size_t k, float* to) noexcept {
        lanes c{};
        const std::size_t step = a_.groups == 0 ? std::max<std::size_t>(k, 1) : static_cast<std::size_t>(a_.groups);
        for (std::size_t i = 0; i < k; i += step) group(i, std::min(k, i + step), c);
        std::copy_n(c.v, Lanes, to);
    }

  private:
    /// Sums of 2^level neighbouring terms, each waiting for the neighbouring sum of its level.
    struct pairs {
        lanes sum[40];
        int level[40];
        int size = 0;
        QK_INLINE lanes& next() { return sum[size]; }
        QK_INLINE void push() {
            level[size++] = 0;
            while (size > 1 && level[size - 1] == level[size - 2]) {
                sum[size - 2].add(sum[size - 1]);
                ++level[size - 2];
                --size;
            }
        }
        QK_INLINE lanes& finish() {
            for (; size > 1; --size) sum[size - 2].add(sum[size - 1]);
            return sum[0];
        }
    };

    void group(std::size_t first, std::size_t last, lanes& c) noexcept {
        if (a_.place == place::inside) return lane(first, last, 1, &c, c);
        const std::size_t count = std::min(static_cast<std::size_t>(a_.lanes), last - first);
        lanes part;
        if (count == 1) {
            lane(first, last, 1, nullptr, part);
            return c.add(part);
        }
        if (a_.sum == summation::pairwise) {
            pairs p;
            for (std::size_t l = 0; l < count; ++l) lane(first + l, last, count, nullptr, p.next()), p.push();
            return c.add(p.finish());
        }
        lanes sum;
        lane(first, last, count, nullptr, sum);
        for (std::size_t l = 1; l < count; ++l) {
            lane(first + l, last, count, nullptr, part);
            sum.add(part);
        }
        c.add(sum);
    }

    /// Sums terms first, first + step, ... below last, after `c` unless that is null.
    void lane(std::size_t first, std::size_t last, std::size_t step, const lanes* c, lanes& to) noexcept {
        if (a_.sum == summation::pairwise) {
            pairs p;
            if (c != nullptr) p.next() = *c, p.push();
            for (std::size_t i = first; i < last; i += step) p.next().multiply(row_[i], b_ + i * stride_), p.push();
            to = p.finish();
            return;
        }
        lanes sum;
        std::size_t i = a_.reverse ? last : first;
        const auto next = [&] { return a_.reverse ? --i : (i += step) - step; };
        const auto left = [&] { return a_.reverse ? i > first : i < last; };
        if (c != nullptr) {
            sum = *c;
        } else {
            const std::size_t at = next();
            sum.multiply(row_[at], b_ + at * stride_);
        }
        lanes product;
        while (left()) {
            const std::size_t at = next();
            if (a_.fused) {
                sum.add_product(row_[at], b_ + at * stride_);
            } else {
                product.multiply(row_[at], b_ + at * stride_);
                sum.add(product);
            }
        }
        to = sum;
    }

    const accumulator& a_;
    const float *row_, *b_;
    std::size_t stride_;
};

/// Computes the sums of a row times `Lanes` columns, as codes of the result.
template <int Lanes>
void rounded_row(const accumulator& how, std::size_t k, const float* row, const float* b, std::size_t stride,
                 std::uint64_t* codes) noexcept {
    alignas(64) float sum[Lanes];
    const auto add = [&]<small_results Flush>() {
        if (how.zero == zero_rule::positive_products) rounded_columns<Lanes, Flush, true>(how, row, b, stride).sums(k, sum);
        else rounded_columns<Lanes, Flush, false>(how, row, b, stride).sums(k, sum);
    };
    if (how.flush_tiny) add.template operator()<small_results::tiny>();
    else if (how.flush_partials) add.template operator()<small_results::subnormal>();
    else add.template operator()<small_results::stay>();
    for (int j = 0; j < Lanes; ++j) {
        events ignored;
        const auto bits = std::bit_cast<std::uint32_t>(sum[j]);
        if (how.result == fp32 && how.round == rounding::half_even)
            codes[j] = (bits & 0x7fffffffu) > 0x7f800000u ? nan_of(fp32, how.nan) : bits;
        else codes[j] = round_to(how.result, how.round, how, static_cast<double>(sum[j]), ignored);
    }
}

}  // namespace QK_ISA
}  // namespace qk::detail

namespace qk::device_sums {
inline namespace QK_ISA {

/// The same for devices whose every step is float32.
using detail::rounded_row, detail::serves_rounded_columns;

}  // namespace QK_ISA
}  // namespace qk::device_sums
