// SPDX-License-Identifier: Apache-2.0
// The codes of one operand of a product: how powers of two, special values and the ends of the range are written, and what a code is worth.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>

#include "qk/codec/layout/layout.hpp"
#include "qk/dot/accumulator.hpp"
#include "qk/formats/codes/code.hpp"
#include "qk/formats/format.hpp"

namespace qk::compare {

/// A number as significand * 2^exponent.
struct term {
    std::int64_t significand = 0;
    int exponent = 0;
    bool nan = false, infinite = false, subnormal = false;
    bool zero() const { return significand == 0 && !nan && !infinite; }
    bool negative() const { return significand < 0; }
};

class operand_codes {
  public:
    explicit operand_codes(const qk::format& f) : f_(f), width_(element_width(f)) {
        if (const floating* g = number_float(f)) {
            number_ = *g;
            least = std::max(min_exponent(*g) - g->mantissa_bits, -1100), normal = min_exponent(*g), most = max_exponent(*g);
            mantissa = g->mantissa_bits;
        } else if (const auto* b = std::get_if<block_float>(&f)) {
            least = normal = 0, most = b->mantissa_bits - 1;
            twos_complement_ = b->bump;
        } else {
            const integer& i = std::get<integer>(f);
            least = normal = 0, most = i.bits - 1 - int{i.is_signed};
            is_signed_ = i.is_signed, twos_complement_ = true;
        }
        block = static_cast<std::size_t>(block_size(f));
    }
    int least = 0, normal = 0, most = 0, mantissa = 0;  ///< exponents of the least number, the least normal one and the largest one
    std::size_t block = 0;

    bool has_sign() const { return number_ ? number_->is_signed : is_signed_; }
    /// Returns the code of 2^e, e from least to most; `odd`: with the last mantissa bit set, where it is normal.
    std::uint64_t power(int e, bool negative = false, bool odd = false) const {
        if (!number_) return whole(std::int64_t{1} << e, negative);
        const std::uint64_t magnitude = e < normal
                                            ? std::uint64_t{1} << (e - normal + mantissa)
                                            : static_cast<std::uint64_t>(e - normal + 1) << mantissa | std::uint64_t{odd && mantissa > 0};
        return magnitude | (negative ? sign() : 0);
    }
    std::uint64_t zero(bool negative = false) const { return negative && number_ && has_negative_zero(*number_) ? sign() : 0; }
    std::optional<std::uint64_t> nan() const {
        if (!number_ || !has_nan(*number_)) return std::nullopt;
        return *number_ == fp64 ? std::uint64_t{0x7ff8} << 48 : std::uint64_t{nan_code(*number_)};
    }
    std::optional<std::uint64_t> infinity(bool negative) const {
        if (!number_ || !has_infinity(*number_)) return std::nullopt;
        return infinity_magnitude(*number_) | (negative ? sign() : 0);
    }
    std::uint64_t highest(int less = 0) const {
        const auto n = static_cast<std::uint64_t>(less);
        if (number_) return largest_magnitude(*number_) - n;
        return (is_signed_ ? sign() : sign() << 1) - 1 - n;
    }
    std::uint64_t lowest(int less = 0) const {
        const auto n = static_cast<std::uint64_t>(less);
        if (!has_sign()) return n;
        return twos_complement_ ? sign() + n : highest(less) | sign();
    }

    term decoded(std::uint64_t code) const {
        if (!number_) return {value_of_whole(code), 0};
        const floating f = *number_;
        const bool negative = f.is_signed && (code & sign()) != 0;
        const std::uint64_t magnitude = f.is_signed ? code & (sign() - 1) : code,
                            fraction = magnitude & ((std::uint64_t{1} << mantissa) - 1);
        const int field = static_cast<int>(magnitude >> mantissa);
        if (f == fp64 ? field == 0x7ff && fraction != 0 : std::isnan(value_of(f, static_cast<std::uint32_t>(code)))) return {.nan = true};
        if (has_infinity(f) && magnitude == infinity_magnitude(f)) return {.significand = negative ? -1 : 1, .infinite = true};
        const bool small = field == 0;
        const auto s = static_cast<std::int64_t>(fraction | (small ? 0 : std::uint64_t{1} << mantissa));
        return {negative ? -s : s, (small ? 1 : field) - 1 + normal - mantissa, false, false, small && s != 0};
    }
    /// Returns the code of the scale 2^e where there is one; decoded_scale() is what a scale's code is worth, times the unit of an element.
    std::optional<std::uint64_t> scale_power(int e) const {
        if (const floating* s = scale_float(f_)) {
            if (e < min_exponent(*s) || e > max_exponent(*s)) return std::nullopt;
            return static_cast<std::uint64_t>(e - min_exponent(*s) + 1) << s->mantissa_bits;
        }
        const int code = e + bias();
        if (code < 0 || code >> scale_width(f_) != 0) return std::nullopt;
        return static_cast<std::uint64_t>(code);
    }
    term decoded_scale(std::uint64_t code) const {
        if (const floating* s = scale_float(f_)) {
            const float v = value_of(*s, static_cast<std::uint32_t>(code));
            if (std::isnan(v)) return {.nan = true};
            return {static_cast<std::int64_t>(std::ldexp(v, s->mantissa_bits - min_exponent(*s))), min_exponent(*s) - s->mantissa_bits};
        }
        const bool special = std::holds_alternative<microscaling>(f_) ? code == 255 : code >> scale_width(f_) != 0;
        return {1, static_cast<int>(code) - bias() + unit_exponent(), special};
    }

    /// The exponent of what an element 1 is worth under the scale 1.
    int unit_exponent() const {
        const auto* b = std::get_if<block_float>(&f_);
        return b != nullptr ? 1 - b->mantissa_bits : 0;
    }

  private:
    int bias() const {
        if (const auto* b = std::get_if<block_float>(&f_)) return (1 << (b->exponent_bits - 1)) - 1;
        return 127;
    }
    std::uint64_t sign() const { return std::uint64_t{1} << (width_ - 1); }
    std::uint64_t whole(std::int64_t v, bool negative) const {
        if (!negative) return static_cast<std::uint64_t>(v);
        return twos_complement_ ? static_cast<std::uint64_t>(-v) & (2 * sign() - 1) : static_cast<std::uint64_t>(v) | sign();
    }
    std::int64_t value_of_whole(std::uint64_t code) const {
        if (!is_signed_ || (code & sign()) == 0) return static_cast<std::int64_t>(code);
        return twos_complement_ ? static_cast<std::int64_t>(code) - static_cast<std::int64_t>(2 * sign())
                                : -static_cast<std::int64_t>(code & (sign() - 1));
    }
    qk::format f_;
    int width_;
    std::optional<floating> number_;
    bool is_signed_ = true, twos_complement_ = false;
};

}  // namespace qk::compare
