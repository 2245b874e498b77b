// SPDX-License-Identifier: Apache-2.0
// Quantizes a block to block float (BFP) and to shared microexponents (MX9/6/4). docs/reference/numerics.md, equations (7) to (12).
#pragma once

#include <cmath>

#include "qk/formats/block_float.hpp"
#include "qk/formats/microexponent.hpp"
#include "qk/isa.hpp"
#include "qk/reference/block.hpp"

namespace qk::reference {
inline namespace QK_ISA {

constexpr int exponent_bias(const block_float& f) { return (1 << (f.exponent_bits - 1)) - 1; }
constexpr int largest_exponent_code(const block_float& f) { return (1 << f.exponent_bits) - 2; }

/// Returns the exponent of the step of a block whose exponent code is `code`.
constexpr int step_exponent(const block_float& f, int code) { return code - exponent_bias(f) - (f.mantissa_bits - 1); }

/// Return the lowest and highest element, in steps; two's complement where the format may bump.
constexpr double lowest_element(const block_float& f, int code) {
    const double magnitudes = power_of_two(f.mantissa_bits);
    const bool representable = code - exponent_bias(f) + 1 <= 127;  // -2^128 is not a float32
    return f.bump && representable ? -magnitudes : -(magnitudes - 1);
}
constexpr double highest_element(const block_float& f) { return power_of_two(f.mantissa_bits) - 1; }

/// Returns the block's exponent code: the largest exponent, clamped to the codes there are, and raised by one where the format bumps and an
/// element rounds past the range.
inline int exponent_code(const block_float& f, const block& b) {
    int field = 0;
    for (std::size_t i = 0; i < b.count; ++i) {
        if (std::isfinite(b.in(i))) field = std::max(field, exponent_field(b.in(i)));
    }
    const int code = std::clamp(field - 127 + exponent_bias(f), 0, largest_exponent_code(f));
    if (f.bump && code < largest_exponent_code(f)) {
        const double step = power_of_two(step_exponent(f, code));
        for (std::size_t i = 0; i < b.count; ++i) {
            if (!std::isfinite(b.in(i))) continue;
            const double element = round_whole(static_cast<double>(b.in(i)) / step, *b.how, b.random(i));
            if (element > highest_element(f) || element < lowest_element(f, code)) return code + 1;
        }
    }
    return code;
}

/// Returns the element (in steps) of a finite x.
inline double element_of(const block_float& f, int code, float x, rounding_rule how, std::uint32_t random) {
    const double element = round_whole(static_cast<double>(x) / power_of_two(step_exponent(f, code)), how, random);
    return std::clamp(element, lowest_element(f, code), highest_element(f));
}

inline void quantize(const block_float& f, const block& b) {
    const block_facts facts = survey(b);
    if (block_is_nan(facts, b.how->bfp_specials)) return fill_nan(b);
    const int code = exponent_code(f, b);
    const double step = power_of_two(step_exponent(f, code));
    for (std::size_t i = 0; i < b.count; ++i) {
        const float x = b.in(i);
        if (!std::isfinite(x)) {
            b.out(i, x);
            continue;
        }
        if (facts.has_infinity && b.how->bfp_specials == block_specials::nan_only) {
            b.out(i, std::copysign(0.0f, x));
            continue;
        }
        const double element = element_of(f, code, x, *b.how, b.random(i));
        const zero_sign rule = has_negative_zero(f) ? b.how->bfp_zero : zero_sign::positive;
        b.out(i, element == 0 ? zero_of(x, static_cast<double>(x) / step, rule, b.how->rounding) : static_cast<float>(element * step));
    }
}

/// Returns the shift of a sub-block: how far its largest exponent field lies below the block's, as far as the bits go.
inline int shift_of(const microexponent& f, const block& pair, int block_field) {
    int field = 0;
    for (std::size_t i = 0; i < pair.count; ++i) field = std::max(field, exponent_field(pair.in(i)));
    return std::min(block_field - field, (1 << f.shift_bits) - 1);
}

constexpr int step_exponent(const microexponent& f, int block_field, int shift) { return block_field - 127 - shift + 1 - f.mantissa_bits; }

/// Returns the element of x in steps, with sign. Subnormals are zero, and what rounds to 2^m stays at 2^m - 1.
inline double element_of(const microexponent& f, int block_field, int shift, float x, rounding_rule how, std::uint32_t random) {
    if (exponent_field(x) == 0) return 0;
    const double largest = power_of_two(f.mantissa_bits) - 1;
    return std::clamp(round_whole(static_cast<double>(x) / power_of_two(step_exponent(f, block_field, shift)), how, random), -largest,
                      largest);
}

inline void quantize(const microexponent& f, const block& b) {
    const block_facts facts = survey(b);
    if (facts.has_nan || facts.has_infinity) return fill_nan(b);
    int field = 0;
    for (std::size_t i = 0; i < b.count; ++i) field = std::max(field, exponent_field(b.in(i)));
    for (std::size_t start = 0; start < b.count; start += static_cast<std::size_t>(f.sub_block_size)) {
        const block pair = b.part(start, static_cast<std::size_t>(f.sub_block_size));
        const int shift = shift_of(f, pair, field);
        for (std::size_t i = 0; i < pair.count; ++i) {
            const float x = pair.in(i);
            const double element = element_of(f, field, shift, x, *b.how, pair.random(i));
            pair.out(i, element == 0 ? std::copysign(0.0f, x) : static_cast<float>(element * power_of_two(step_exponent(f, field, shift))));
        }
    }
}

}  // namespace QK_ISA
}  // namespace qk::reference
