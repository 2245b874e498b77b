// SPDX-License-Identifier: Apache-2.0
// Codes of block float: sign and magnitude, or two's complement, under a shared exponent.
#pragma once

#include "qk/formats/block_float/step.hpp"
#include "qk/formats/codes/shared_code.hpp"
#include "qk/formats/codes/unpack.hpp"
#include "qk/isa.hpp"

namespace qk::detail {
inline namespace QK_ISA {

// ---- to codes

QK_INLINE constexpr shared_code exponent_code(const block_float& f, std::uint32_t amax) {
    const int bias = (1 << (f.exponent_bits - 1)) - 1, top = (1 << f.exponent_bits) - 2;
    const int code = std::clamp(static_cast<int>(amax >> 23) - 127 + bias, 0, top);
    return {static_cast<std::uint32_t>(code), code - bias - (f.mantissa_bits - 1)};
}

/// Returns the shared code of a block and the exponent of its step, after rounding: y is known.
QK_INLINE shared_code share(const block_float& f, survey s, const float* y, std::size_t n, std::size_t stride, const semantics& how) {
    if (is_nan_block(s, how.bfp_specials)) return {low_bits(f.exponent_bits), 0};
    shared_code c = exponent_code(f, s.finite);
    if (f.bump) {  // the exponent was raised if an element rounded to 2^m steps or more, or below -2^m
        const double beyond = power_of_two(c.exponent + f.mantissa_bits);
        bool raised = false;
        for (std::size_t k = 0; k < n; ++k)
            raised |= static_cast<double>(y[k * stride]) >= beyond || static_cast<double>(y[k * stride]) < -beyond;
        if (raised) c = {c.code + 1, c.exponent + 1};
    }
    return c;
}

/// Computes element codes of a block format from y and, for each value, first * second: the inverse of its step (MX: of its scale).
template <class Arch>
void codes_of(const block_float& f, const float* y, const float* first, const float* second, std::uint32_t* code, std::size_t n) {
    if (f.bump) return to_twos_complement_codes<Arch>(1 + f.mantissa_bits, y, first, second, code, n);
    to_sign_magnitude_codes<Arch>(f.mantissa_bits, y, first, second, code, n);
}

template <class Arch>
exponent_codes<Arch> scale_codes_of(const block_float& f, const kernels::fast_block<Arch>&) noexcept {
    return {kernels::vi<Arch>(0), kernels::vi<Arch>((1 << (f.exponent_bits - 1)) - 128), kernels::vi<Arch>((1 << f.exponent_bits) - 2)};
}

// ---- to values

/// Returns the factor of a block's elements: a power of two, which is exact, or NaN for the code of a NaN block.
QK_INLINE constexpr float scale_of(const block_float& f, std::uint32_t code) {
    const int bias = (1 << (f.exponent_bits - 1)) - 1;
    if (code == low_bits(f.exponent_bits)) return std::numeric_limits<float>::quiet_NaN();
    return exact_power(static_cast<int>(code) - bias - (f.mantissa_bits - 1));
}

template <class Arch>
void elements_of(const block_float& f, const std::uint32_t* code, float* out, std::size_t n) {
    if (f.bump) return to_twos_complement<Arch>(1 + f.mantissa_bits, 1.0f, code, out, n);
    to_sign_magnitude<Arch>(f.mantissa_bits, code, out, n);
}

/// Turns elements of block float and microexponents (sign and magnitude) into values.
template <class Arch>
struct sign_magnitude_values {
    kernels::vi<Arch> magnitude;
    int up;

    explicit sign_magnitude_values(int mantissa_bits) noexcept
        : magnitude(static_cast<std::int32_t>(low_bits(mantissa_bits))), up(31 - mantissa_bits) {}
    QK_INLINE kernels::vf<Arch> operator()(kernels::vi<Arch> code) const noexcept {
        using V = kernels::vi<Arch>;
        return kernels::as_float<Arch>(kernels::as_int<Arch>(to_float(code & magnitude)) | ((code << up) & V(kernels::sign_bit)));
    }
};

/// Turns two's complement into values times a unit: MXINT8 and similar formats.
template <class Arch>
struct twos_complement_values {
    int up;
    kernels::vf<Arch> unit;

    twos_complement_values(int width, float u) noexcept : up(32 - width), unit(u) {}
    QK_INLINE kernels::vf<Arch> number(kernels::vi<Arch> code) const noexcept { return to_float((code << up) >> up); }
    QK_INLINE kernels::vf<Arch> operator()(kernels::vi<Arch> code) const noexcept { return number(code) * unit; }
};

template <class Arch>
sign_magnitude_values<Arch> element_values(const block_float& f) noexcept {
    return sign_magnitude_values<Arch>(f.mantissa_bits);
}

template <class Arch>
struct block_factors<Arch, block_float> {
    kernels::vi<Arch> rebias;

    block_factors(const block_float& f, float) noexcept : rebias(127 - ((1 << (f.exponent_bits - 1)) - 1) - (f.mantissa_bits - 1)) {}
    void make(kernels::vi<Arch> code, kernels::vf<Arch>* factor) const noexcept {
        factor[0] = or_nan<Arch>(power_of_field<Arch>(code + rebias), code);
    }
};

}  // namespace QK_ISA
}  // namespace qk::detail
