// SPDX-License-Identifier: Apache-2.0
// Codes of floating formats from the fast forms, a vector at a time, and back.
//
// A sum's bits (steps/fast.hpp) are those of c * K plus the rounded element counted in steps of its binade. So the code of a
// float is that count, plus 2^m for each binade above the lowest; the mantissa carries into the exponent by itself.
#pragma once

#include "qk/formats/codes/byte_codes.hpp"
#include "qk/formats/codes/unpack.hpp"
#include "qk/formats/floating/fast.hpp"
#include "qk/isa.hpp"
#include "qk/lanes/code_lanes.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// Puts the signs of `bits` where the code has them: at bit width - 1.
template <class Arch>
QK_INLINE kernels::vi<Arch> with_sign(kernels::vi<Arch> code, kernels::vi<Arch> bits, int width) noexcept {
    using V = kernels::vi<Arch>;
    return code | (kernels::as_int<Arch>(kernels::as_unsigned<Arch>(bits) >> (32 - width)) & V(1 << (width - 1)));
}

/// Makes codes of small floats from the sum of magnitudes, t = |x| + c * K.
template <class Arch>
struct grid_codes {
    int shift, width;
    kernels::vi<Arch> offset, highest;
    bool lone_zero;  ///< the format has no -0

    explicit grid_codes(floating f) noexcept
        : shift(23 - f.mantissa_bits),
          width(bits(f)),
          offset(((23 - f.mantissa_bits) << 23) | kernels::half_bit),
          highest(static_cast<std::int32_t>(code_of(f, static_cast<float>(max_value(f))))),
          lone_zero(!has_negative_zero(f)) {}

    /// Returns the codes of x. `least` is the c of the lowest binade.
    QK_INLINE kernels::vi<Arch> operator()(kernels::vf<Arch> x, kernels::vi<Arch> least, kernels::vf<Arch> magic) const noexcept {
        using V = kernels::vi<Arch>;
        const V u = kernels::as_int<Arch>(x);
        const V code = of_magnitude(kernels::as_float<Arch>(u & V(kernels::magnitude_bits)), least, magic);
        if (lone_zero) return select(code > V(0), with_sign<Arch>(code, u, width), code);
        return with_sign<Arch>(code, u, width);
    }
    /// Returns the codes of a >= 0.
    QK_INLINE kernels::vi<Arch> of_magnitude(kernels::vf<Arch> a, kernels::vi<Arch> least, kernels::vf<Arch> magic) const noexcept {
        using V = kernels::vi<Arch>;
        const V c = max(kernels::as_int<Arch>(a) & V(kernels::exponent_mask), least);
        const V sum = kernels::as_int<Arch>(fma(kernels::as_float<Arch>(c), magic, a));
        return min((sum + ((c >> shift) - c)) - (offset + (least >> shift)), highest);
    }
};

/// Elementwise coders: prepare() divides four vectors by the scale; the tile test looks at these, and the result of code() is stored.
template <class Arch>
struct floating_coder {
    kernels::fast_floating<Arch> fast;
    grid_codes<Arch> grid;
    bytes_if_any<Arch, grid_bytes> packed;
    kernels::fast_divisor<Arch> over_scale;
    bool scaled;
    bool is_half;  ///< the processor's conversion to float16 (kernels::store_halves) gives the codes

    floating_coder(floating f, const semantics& how, const kernels::fast_floating<Arch>& q, float scale) noexcept
        : fast(q), grid(f), packed(f), over_scale(scale, fast.tie_bits), scaled(scale != 1.0f), is_half(f == fp16 && !q.saturates) {
        if (how.rounding != rounding::half_even) fast.limit = kernels::no_value;
    }
    bool usable() const noexcept { return fast.limit != kernels::no_value && grid.width <= 16; }
    std::int32_t limit() const noexcept { return fast.limit; }
    QK_INLINE void prepare(kernels::vf<Arch>* x) const noexcept {
        if (scaled) kernels::unrolled<4>([&](auto k) QK_INLINE_CALL { x[k] = over_scale(x[k]); });
    }
    QK_INLINE kernels::vi<Arch> code(kernels::vf<Arch> x) const noexcept { return grid(x, fast.least, fast.magic); }
    /// Returns the codes of four vectors, if the width is at most 8.
    QK_INLINE auto bytes(const kernels::vf<Arch>* x) const noexcept requires(has_byte_codes<Arch>()) {
        const kernels::vf<Arch> magic = packed.magic_of(fast.least);
        return packed(
            x, [&](int) QK_INLINE_CALL { return fast.least; }, [&](int) QK_INLINE_CALL { return magic; });
    }
    QK_INLINE bool serves_bytes() const noexcept requires(has_byte_codes<Arch>()) { return grid.width <= 8 && packed.serves(); }
};

/// The coder of a fast form that gives codes itself.
template <class Arch, class Form>
struct form_coder {
    Form fast;
    kernels::vf<Arch> scale;
    bool scaled;

    form_coder(const Form& form, float s) noexcept : fast(form), scale(s), scaled(s != 1.0f) {}
    bool usable() const noexcept { return fast.limit != kernels::no_value; }
    std::int32_t limit() const noexcept { return fast.limit; }
    QK_INLINE kernels::vi<Arch> tested(kernels::vf<Arch> x) const noexcept { return kernels::tested<Arch>(fast, x); }
    QK_INLINE void prepare(kernels::vf<Arch>* x) const noexcept {
        if (scaled) kernels::unrolled<4>([&](auto k) QK_INLINE_CALL { x[k] = kernels::quotient<Arch>(x[k], scale); });
    }
    QK_INLINE kernels::vi<Arch> code(kernels::vf<Arch> x) const noexcept { return fast.code(x); }
};

// ---- back

/// Is true for the special values of IEEE P3109's extended formats: an Inf (of either sign) and one code that is NaN.
QK_INLINE constexpr bool is_extended(floating f) { return f.specials == (is_signed(f) ? specials::extended : specials::unsigned_extended); }

/// Turns codes of floating formats into values, as to_floats does.
template <class Arch>
struct floating_values {
    floating format;
    bool usable, power_of_two, plain_shift, small, has_sign, has_special, lone_infinity, lone_nan;  ///< lone: of one magnitude or code
    int shift, up;
    kernels::vi<Arch> magnitude, first_normal, rebias, special, special_bits, nan_code;
    /// Kept in registers: compilers would make them anew for each vector. `sign` is 0 for formats without one.
    kernels::vi<Arch> sign = kernels::opaque<Arch>(kernels::vi<Arch>(has_sign ? kernels::sign_bit : 0)),
                      nan = kernels::opaque<Arch>(kernels::vi<Arch>(kernels::nan_bits));
    kernels::vf<Arch> step;
    kernels::lookup_table<Arch> table;  ///< value of each magnitude, if small

    QK_INLINE explicit floating_values(floating f) noexcept
        : format(f),
          usable(bits(f) <= 16 && (has_values_by_shift(f) || f == bf16 || f == e8m0) && (!has_lone_infinity(f) || is_extended(f))),
          power_of_two(f == e8m0),
          plain_shift(f == bf16),
          small(!has_nan(f) && !has_infinity(f) && f.exponent_bits + f.mantissa_bits <= kernels::lookup_bits<Arch>()),
          has_sign(is_signed(f)),
          has_special(f.specials.high_nans != high_nans::none && !has_lone_infinity(f)),
          lone_infinity(has_lone_infinity(f)),
          lone_nan(is_signed(f) ? !has_negative_zero(f) : is_extended(f)),
          shift(23 - f.mantissa_bits),
          up(32 - bits(f)) {
        const int m = f.mantissa_bits, magnitude_width = f.exponent_bits + m;
        magnitude = kernels::vi<Arch>(static_cast<std::int32_t>(low_bits(magnitude_width)));
        first_normal = kernels::vi<Arch>(1 << m);
        rebias = kernels::vi<Arch>((127 - f.bias) * (1 << 23));
        // The least magnitude that is Inf or NaN.
        special = kernels::vi<Arch>(static_cast<std::int32_t>(largest_magnitude(f) + 1));
        special_bits = kernels::vi<Arch>(has_infinity(f) ? kernels::infinity_bits : kernels::nan_bits);
        nan_code = kernels::vi<Arch>(is_signed(f) ? 1 << magnitude_width : static_cast<std::int32_t>(top_magnitude(f)));
        step = kernels::vf<Arch>(usable && !plain_shift && !power_of_two ? exact_power(min_exponent(f) - m) : 1.0f);
        if (small) {
            // An entry does not depend on the bits above the magnitude, so codes with a sign can be the index.
            const kernels::vi<Arch> index = kernels::iota<Arch>(),
                                    next = index + kernels::vi<Arch>(static_cast<std::int32_t>(kernels::lanes<Arch>));
            table = {kernels::as_float<Arch>(of_magnitude(index & magnitude)), kernels::as_float<Arch>(of_magnitude(next & magnitude))};
        }
    }

    QK_INLINE kernels::vf<Arch> operator()(kernels::vi<Arch> code) const noexcept {
        using V = kernels::vi<Arch>;
        if (plain_shift) return kernels::as_float<Arch>(code << 16);
        if (power_of_two) return kernels::as_float<Arch>(power(code));
        if (small) return kernels::as_float<Arch>(looked_up(code));
        V y = of_magnitude(code & magnitude);
        if (has_sign) y = y | ((code << up) & sign);
        if (lone_nan) y = select(code == nan_code, nan, lone_infinity ? with_infinity(code, y) : y);
        return kernels::as_float<Arch>(y);
    }
    /// Computes the values of `N` vectors and branches on the format only once for all of them.
    template <std::size_t N>
    QK_INLINE void each(const kernels::vi<Arch>* code, kernels::vf<Arch>* to) const noexcept {
        using V = kernels::vi<Arch>;
        const auto put = [&](const auto& make) QK_INLINE_CALL {
            kernels::unrolled<N>([&](auto k) QK_INLINE_CALL { to[k] = kernels::as_float<Arch>(make(code[k])); });
        };
        if (plain_shift) return put([](V c) QK_INLINE_CALL { return c << 16; });
        if (power_of_two) return put([&](V c) QK_INLINE_CALL { return power(c); });
        if (small) return put([&](V c) QK_INLINE_CALL { return looked_up(c); });
        V y[N], normal[N];
        kernels::unrolled<N>([&](auto k) QK_INLINE_CALL {
            const V a = code[k] & magnitude;
            normal[k] = (a << shift) + rebias;
            y[k] = select(a < first_normal, kernels::as_int<Arch>(to_float(a) * step), normal[k]);
        });
        const auto change = [&](const auto& make)
                                QK_INLINE_CALL { kernels::unrolled<N>([&](auto k) QK_INLINE_CALL { y[k] = make(k, code[k]); }); };
        if (has_special)
            change([&](auto k, V c) QK_INLINE_CALL { return select((c & magnitude) < special, y[k], normal[k] | special_bits); });
        if (has_sign) change([&](auto k, V c) QK_INLINE_CALL { return y[k] | ((c << up) & sign); });
        if (lone_nan) {
            if (lone_infinity) change([&](auto k, V c) QK_INLINE_CALL { return with_infinity(c, y[k]); });
            change([&](auto k, V c) QK_INLINE_CALL { return select(c == nan_code, nan, y[k]); });
        }
        kernels::unrolled<N>([&](auto k) QK_INLINE_CALL { to[k] = kernels::as_float<Arch>(y[k]); });
    }

  private:
    /// Of formats that are used, those with a lone Inf have a lone NaN, too.
    QK_INLINE kernels::vi<Arch> with_infinity(kernels::vi<Arch> code, kernels::vi<Arch> y) const noexcept {
        using V = kernels::vi<Arch>;
        return select((code & magnitude) == special, V(kernels::infinity_bits) | ((code << up) & sign), y);
    }
    QK_INLINE kernels::vi<Arch> power(kernels::vi<Arch> code) const noexcept {
        using V = kernels::vi<Arch>;
        return select(code == V(0), V(0x400000), select(code == V(255), nan, code << 23));
    }
    QK_INLINE kernels::vi<Arch> looked_up(kernels::vi<Arch> code) const noexcept {
        return kernels::as_int<Arch>(table.at(code)) | ((code << up) & sign);
    }
    QK_INLINE kernels::vi<Arch> of_magnitude(kernels::vi<Arch> a) const noexcept {
        using V = kernels::vi<Arch>;
        const V normal = (a << shift) + rebias, y = select(a < first_normal, kernels::as_int<Arch>(to_float(a) * step), normal);
        return has_special ? select(a < special, y, normal | special_bits) : y;
    }
};

template <class Arch>
void elements_of(floating f, const std::uint32_t* code, float* out, std::size_t n) {
    to_floats<Arch>(f, code, out, n);
}

/// Rounds in place: half-even, saturating. `y` has room for whole vectors.
template <class Arch>
QK_APART void round_float(floating f, float* y, std::size_t n) noexcept {
    const kernels::floating_rules rules = kernels::rules_apart<Arch>(f, semantics{.overflow = overflow_rule::saturate});
    for (std::size_t k = 0; k < n; k += kernels::lanes<Arch>)
        kernels::store<Arch>(y + k, kernels::cast_general<Arch>(kernels::load<Arch>(y + k), rules, kernels::vi<Arch>(0)));
}

}  // namespace QK_ISA
}  // namespace qk::detail
