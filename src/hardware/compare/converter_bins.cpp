// SPDX-License-Identifier: Apache-2.0
// Which bins the values of a converter and the codes of a decoder hit.
#include <algorithm>
#include <cmath>

#include "qk/compare/bins.hpp"
#include "qk/formats/codes/code.hpp"
#include "qk/storage.hpp"
#include "rounding_patterns.hpp"

namespace qk::compare {
namespace {

constexpr std::size_t values_at_once = 4096;

/// Returns the float's exponent, that of a subnormal one, too; x is finite and not 0.
int exponent_of(float x) {
    const significand s = significand_of(x);
    return std::bit_width(s.bits) - 1 + s.lsb;
}
bool is_power_of_two(float unit) { return unit > 0 && std::isfinite(unit) && std::has_single_bit(significand_of(unit).bits); }

}  // namespace

converter_bins::converter_bins(const conversion& c, floating input)
    : c_(c), input_(input), size_(std::max<std::size_t>(1, static_cast<std::size_t>(block_size(c.format)))) {
    if (is_stochastic(c_.how.rounding)) c_.how.rounding = rounding::half_even;  // which results come must not depend on random words
    c_.words = nullptr;
    if (const auto g = rounding_grid_of(c)) {
        has_grid_ = true, fixed_ = g->fixed, mantissa_ = g->mantissa, least_exponent_ = g->least_exponent;
        step_exponent_ = step_exponent(*g, -1000), largest_ = g->largest, lowest_ = g->lowest;
    }
    if (const table* t = std::get_if<table>(&c.format)) {
        for (const float v : std::span(t->values->number).first(static_cast<std::size_t>(t->size())))
            if (v == v) numbers_.push_back(v * c.one().scale);
        std::sort(numbers_.begin(), numbers_.end());
    }
    const floating* number = number_float(c.format);
    cut_ = 23 - (number != nullptr ? number->mantissa_bits : 7);
    corners_ = converter_corners(c);
    for (float& x : corners_) x = as_input(input, x);
    while (corners_.size() % size_ != 0) corners_.push_back(0.0f);
    if (has_floating_scales(c.format)) {
        conversion many = c_;
        many.blocks = {corners_.size() / size_, size_, 1};
        const std::vector<float> unit = units_of(many, corners_);
        for (std::size_t i = 0; i < unit.size(); i += size_)
            if (unit[i] == unit[i]) scales_.push_back(unit[i]);
        std::sort(scales_.begin(), scales_.end());
        scales_.erase(std::unique(scales_.begin(), scales_.end()), scales_.end());
    }
    add(corners_);
    table_.freeze();
}

void converter_bins::add(std::span<const float> x) {
    const std::size_t step = std::max<std::size_t>(1, values_at_once / size_) * size_;
    for (std::size_t at = 0; at < x.size(); at += step) add_some(x.subspan(at, std::min(step, x.size() - at)));
}

void converter_bins::add_some(std::span<const float> x) {
    conversion many = c_;
    many.blocks = {x.size() / size_, size_, 1};
    std::vector<float> y(x.size());
    fake_quantize(many, x, y);
    const std::vector<float> unit = units_of(many, x);
    for (std::size_t i = 0; i < x.size(); ++i) {
        if (i % size_ == 0) {
            table_.at_case(cases_++);
            if (is_block_format(c_.format)) add_block(x.subspan(i, size_), unit[i]);
        }
        add_value(x[i], y[i], unit[i]);
    }
}

void converter_bins::add_value(float x, float y, float unit) {
    const int sign = std::signbit(x) ? 1 : 0;
    const std::uint32_t payload = std::bit_cast<std::uint32_t>(x) & 0x7fffffu;
    if (x != x) {
        const std::uint32_t below = payload & ((1u << cut_) - 1), above = payload - below,
                            ones = 0x7fffffu >> (input_ == fp16   ? 13
                                                 : input_ == bf16 ? 16
                                                                  : 0)
                                                    << (input_ == fp16   ? 13
                                                        : input_ == bf16 ? 16
                                                                         : 0);
        table_.hit(bin_kind::nan_payload,
                   payload == ones             ? 2
                   : payload == (ones & -ones) ? 3
                   : payload == 0x400000u      ? 4
                   : below == 0                ? 0
                   : above == 0                ? 1
                                               : 5,
                   0, 0, sign);
    } else {
        table_.hit(bin_kind::input,
                   x == 0                                           ? 0
                   : std::isinf(x)                                  ? 4
                   : payload == 0x7fffffu && std::abs(x) > 0x1p127f ? 3
                   : std::abs(x) < 0x1p-126f                        ? 1
                                                                    : 2,
                   0, 0, sign);
    }
    const int result_sign = std::signbit(y) ? 1 : 0;
    if (y != y) return table_.hit(bin_kind::result, 5, 0, 0, 0);
    if (y == 0) table_.hit(bin_kind::result, x == 0 ? 0 : 1, 0, 0, result_sign);
    if (std::isinf(y)) table_.hit(bin_kind::result, 4, 0, 0, result_sign);
    if (std::isfinite(y) && y != 0 && unit > 0 && std::isfinite(unit)) {
        const float element = y / unit;
        if (element != 0 && std::isfinite(element)) table_.hit(bin_kind::binade, exponent_of(element), 0, 0, result_sign);
        if (has_grid_ && !fixed_ && std::abs(element) < std::ldexp(1.0f, least_exponent_))
            table_.hit(bin_kind::result, 2, 0, 0, result_sign);
        if (has_grid_ && static_cast<double>(std::abs(element)) >= (result_sign != 0 ? -lowest_ : largest_))
            table_.hit(bin_kind::result, 3, 0, 0, result_sign);
    }
    if (!numbers_.empty() && std::isfinite(x)) {
        const auto next = std::upper_bound(numbers_.begin(), numbers_.end(), x);
        if (next != numbers_.begin() && next != numbers_.end()) {
            const double middle = (static_cast<double>(next[-1]) + static_cast<double>(next[0])) / 2, v = static_cast<double>(x);
            if (v != static_cast<double>(next[-1]))
                table_.hit(bin_kind::between, static_cast<int>(next - numbers_.begin()) - 1, v < middle ? 0 : v == middle ? 1 : 2);
        }
    }
    if (has_grid_ && std::isfinite(x) && x != 0 && is_power_of_two(unit)) add_rounding(x, unit, sign != 0);
}

void converter_bins::add_rounding(float x, float unit, bool negative) {
    const significand s = significand_of(x);
    const int scale = exponent_of(unit), e = std::bit_width(s.bits) - 1 + s.lsb - scale;
    const int step = fixed_ ? step_exponent_ : std::max(e, least_exponent_) - mantissa_, shift = step + scale - s.lsb;
    if (shift < 1 || shift > largest_shift) return;
    const std::uint32_t kept = s.bits >> shift, rest = s.bits & ((1u << shift) - 1), half = 1u << (shift - 1), sticky = rest & (half - 1);
    const bool subnormal = !fixed_ && e < least_exponent_;
    const auto hit = [&](pattern p, int bit) {
        table_.hit(bin_kind::rounding, shift, 4 * static_cast<int>(p) + 2 * int{subnormal} + static_cast<int>(kept & 1), bit,
                   negative ? 1 : 0);
    };
    if (rest == half) hit(pattern::tie, 0);
    if ((rest & half) != 0 && std::has_single_bit(sticky)) hit(pattern::above_tie, std::countr_zero(sticky));
    if ((rest & half) == 0 && std::has_single_bit(half - sticky) && sticky != 0) hit(pattern::below_tie, std::countr_zero(half - sticky));
    if ((rest & half) == 0 && std::has_single_bit(sticky)) hit(pattern::inside, std::countr_zero(sticky));
    if (rest == 0) return;
    // Where the lowest bits that x has decide: at a tie, or the least there is beside it.
    const int beside = rest == half ? 1 : rest > half ? 2 : 0;
    const double up = static_cast<double>(kept + 1) * std::ldexp(1.0, step), end = negative ? -lowest_ : largest_;
    const auto carry = [&](int into) { table_.hit(bin_kind::carry, into, beside, 0, negative ? 1 : 0); };
    if (!fixed_ && !subnormal && std::has_single_bit(kept + 1)) carry(0);
    if (subnormal && kept + 1 == 1u << mantissa_) carry(1);
    if (up == end) carry(2);
    if (up > end && static_cast<double>(kept) * std::ldexp(1.0, step) == end) carry(3);
}

void converter_bins::add_block(std::span<const float> x, float unit) {
    float most = 0, second = 0;
    std::size_t at = 0;
    bool special = false;
    for (std::size_t k = 0; k < x.size(); ++k) {
        const float a = std::abs(x[k]);
        if (!(a < std::numeric_limits<float>::infinity())) {
            special = true;
            if (a == a) table_.hit(bin_kind::infinity_at, static_cast<int>(k), 0, 0, std::signbit(x[k]) ? 1 : 0);
            else table_.hit(bin_kind::nan_at, static_cast<int>(k));
        } else if (a > most) {
            second = most, most = a, at = k;
        } else if (a > second) {
            second = a;
        }
    }
    if (special) return;
    if (most == 0) table_.hit(bin_kind::zeros, 0);
    else if (second <= most / 2) table_.hit(bin_kind::largest_at, static_cast<int>(at), 0, 0, std::signbit(x[at]) ? 1 : 0);
    if (most == 0) return;
    if (!has_floating_scales(c_.format)) {
        if (unit > 0) table_.hit(bin_kind::scale, exponent_of(unit), scale_as_exponent);
        return;
    }
    const auto known = std::lower_bound(scales_.begin(), scales_.end(), unit);
    if (known != scales_.end() && *known == unit) table_.hit(bin_kind::scale, static_cast<int>(known - scales_.begin()));
}

std::vector<float> converter_bins::stimulus(std::size_t k) const {
    const auto first = corners_.begin() + static_cast<std::ptrdiff_t>(table_.stimulus(k) * size_);
    return {first, first + static_cast<std::ptrdiff_t>(size_)};
}

decoder_bins::decoder_bins(const conversion& c)
    : f_(c.format), size_(std::max<std::size_t>(1, static_cast<std::size_t>(block_size(c.format)))) {
    const packed_layout l = layout_of(c.format, along_axis{1, size_, 1});
    width_ = l.elements.bits, scales_ = l.scales.count, shifts_ = l.shifts.count;
    if (const floating* f = std::get_if<floating>(&c.format)) mantissa_ = f->mantissa_bits;
    if (const floating* element = element_float(c.format)) largest_ = static_cast<std::uint32_t>(largest_magnitude(*element));
    else largest_ = width_ <= 16 ? (1u << (width_ - 1)) - 1 : 0;
    corners_ = decoder_corners(c);
    add(corners_);
    table_.freeze();
}

void decoder_bins::add(const coded_values& codes) {
    for (std::size_t i = 0; i < codes.elements.size(); ++i) {
        if (i % size_ == 0) table_.at_case(cases_++);
        const std::uint32_t code = codes.elements[i];
        const auto lane = static_cast<int>(i % size_);
        if (width_ <= 16) {
            table_.hit(bin_kind::code, static_cast<int>(code));
        } else {
            const std::uint32_t ones = mantissa_ > 0 ? (1u << mantissa_) - 1 : 0, mantissa = code & ones;
            table_.hit(bin_kind::code, static_cast<int>(code >> mantissa_ & 0xffffu), mantissa == 0 ? 1 : mantissa == ones ? 2 : 0);
        }
        if (size_ > 1) table_.hit(bin_kind::code_at, lane, static_cast<int>(code));
        if (scales_ != 0) {
            const auto scale = static_cast<int>(codes.scales[i / size_]);
            const std::uint32_t magnitude = code & ((1u << (width_ - 1)) - 1);
            table_.hit(bin_kind::scale_code, scale, 0);
            if (magnitude == 0 || magnitude == largest_) table_.hit(bin_kind::scale_code, scale, magnitude == 0 ? 1 : 2);
        }
        if (lane == 0) {
            for (std::size_t k = 0; k < shifts_; ++k)
                table_.hit(bin_kind::shift_code, static_cast<int>(k), static_cast<int>(codes.shifts[i / size_ * shifts_ + k]));
        }
    }
}

coded_values decoder_bins::stimulus(std::size_t k) const {
    const std::size_t at = table_.stimulus(k);
    const auto part = [at](const std::vector<std::uint32_t>& v, std::size_t n) {
        const auto first = v.begin() + static_cast<std::ptrdiff_t>(at * n);
        return std::vector<std::uint32_t>(first, first + static_cast<std::ptrdiff_t>(n));
    };
    return {part(corners_.elements, size_), part(corners_.scales, scales_), part(corners_.shifts, shifts_)};
}

}  // namespace qk::compare
