// SPDX-License-Identifier: Apache-2.0
// Multiplies the elements of two operands, a window of them at a time: the exact terms of a dot product.
#pragma once

#include "qk/dot/elements.hpp"
#include "qk/isa.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// Terms [first, first + count): term i is n[i] * 2^lsb[i], and exponent[i] is its exponent, that of its leading bit before anything is
/// normalized. Whole is int64 for products, int128 for bundles of them.
template <class Whole>
struct term_tile {
    Whole n[dot_tile];
    std::int32_t lsb[dot_tile];
    std::int32_t exponent[dot_tile];
    std::uint8_t negative[dot_tile];  ///< sign of the product; matters for zeros
};

/// What a device has to know about terms before it adds them.
struct term_survey {
    int exponent = -(1 << 14);  ///< largest; first_special or more: a special value is among them
    int low = 1 << 14;          ///< smallest lsb of a term other than 0
    int high = -(1 << 14);      ///< largest one
};

template <class Whole>
class term_window {
  public:
    using whole = Whole;
    term_window(const row_source& a, const row_source& b, std::size_t count, int bundle) noexcept
        : a_(a),
          b_(b),
          elements_(count),
          bundle_(static_cast<std::size_t>(bundle)),
          fraction_(a.kind.fraction + b.kind.fraction),
          lowest_(a.kind.lowest + b.kind.lowest),
          based_(a.scaled || b.scaled || (a.kind.whole && b.kind.whole)) {}

    std::size_t terms() const noexcept { return (elements_ + bundle_ - 1) / bundle_; }

    /// Loads term `first` and those after it into the window. Returns how many of them are there, at most `wanted`; they start at offset().
    std::size_t reach(std::size_t first, std::size_t wanted) noexcept {
        if (first < first_ || first + wanted > first_ + count_) {
            if (first < first_ || first >= first_ + count_ || wanted <= dot_tile / bundle_) fill(first);
        }
        offset_ = first - first_;
        return std::min(wanted, count_ - offset_);
    }
    std::size_t offset() const noexcept { return offset_; }
    const term_tile<Whole>& tile() const noexcept { return terms_; }
    /// Returns how many bits the magnitude of a product may have.
    int product_bits() const noexcept { return a_.kind.width + b_.kind.width; }

  private:
    void fill(std::size_t first) noexcept {
        first_ = first;
        const std::size_t from = first * bundle_, n = std::min(dot_tile / bundle_ * bundle_, elements_ - from);
        count_ = (n + bundle_ - 1) / bundle_;
        const element_tile& x = a_.load(from, n, x_);
        const element_tile& y = b_.load(from, n, y_);
        if (bundle_ == 1) {
            for (std::size_t i = 0; i < n; ++i) {
                terms_.n[i] = std::int64_t{x.n[i]} * y.n[i];
                terms_.exponent[i] = x.exponent[i] + y.exponent[i];
                terms_.lsb[i] = terms_.exponent[i] - fraction_;
                terms_.negative[i] = x.negative[i] ^ y.negative[i];
            }
        } else {
            for (std::size_t t = 0; t < count_; ++t) bundle(x, y, t, std::min((t + 1) * bundle_, n));
        }
    }
    /// The exponent of a bundle is that of its blocks' scales, or, where there are none, of its largest product.
    void bundle(const element_tile& x, const element_tile& y, std::size_t t, std::size_t end) noexcept {
        int largest = -(1 << 14), special = 0;
        Whole sum = 0;
        bool negative = true, up = false, down = false;
        const std::size_t start = t * bundle_;
        const int base = x.base[start] + y.base[start];
        for (std::size_t i = start; i < end; ++i) {
            const std::int64_t n = std::int64_t{x.n[i]} * y.n[i];
            const int e = x.exponent[i] + y.exponent[i];
            negative = negative && n == 0 && (x.negative[i] ^ y.negative[i]) != 0;
            largest = std::max(largest, e);
            if (e >= first_special) {
                special = std::max(special, n == 0 ? nan_exponent : e);
                up = up || n > 0;
                down = down || n < 0;
            } else if (n != 0) {
                sum += Whole{n} << (e - base - lowest_);
            }
        }
        terms_.n[t] = special != 0 ? Whole{up ? 1 : -1} : sum;
        terms_.exponent[t] = special != 0 ? (up && down ? nan_exponent : special) : based_ ? base : largest;
        terms_.lsb[t] = base + lowest_ - fraction_;
        terms_.negative[t] = negative;
    }

    const row_source& a_;
    const row_source& b_;
    std::size_t elements_, bundle_, first_ = 0, count_ = 0, offset_ = 0;
    int fraction_, lowest_;
    bool based_;  ///< bundles have the exponent of their scales
    term_tile<Whole> terms_;
    element_tile x_, y_;
};

/// Surveys terms lane, lane + lanes, ... of [first, last).
template <class Window>
term_survey survey_terms(Window& w, std::size_t first, std::size_t last, std::size_t lane, std::size_t lanes) noexcept {
    term_survey s;
    for (std::size_t i = first, n = 0; i < last; i += n) {
        n = w.reach(i, last - i);
        const auto& t = w.tile();
        const std::size_t o = w.offset();
        const auto look = [&](std::size_t j) {
            const bool zero = t.n[o + j] == 0;
            s.exponent = std::max<int>(s.exponent, t.exponent[o + j]);
            s.low = std::min<int>(s.low, zero ? s.low : t.lsb[o + j]);
            s.high = std::max<int>(s.high, zero ? s.high : t.lsb[o + j]);
        };
        if (lanes == 1) {
            for (std::size_t j = 0; j < n; ++j) look(j);
        } else {
            for (std::size_t j = (lane + lanes - (i - first) % lanes) % lanes; j < n; j += lanes) look(j);
        }
    }
    return s;
}

}  // namespace QK_ISA
}  // namespace qk::detail
