// SPDX-License-Identifier: Apache-2.0
// Products with codes of floats, decoded in registers 32 at a time, whatever family they are elements of. Of 6 and 8 bits and of float16
// they are half_values or byte_values; bfloat16 is shifted and float32 loaded.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "qk/codec/decode/fast_values.hpp"
#include "qk/formats/format.hpp"
#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/product/packed_piece.hpp"
#include "qk/product/sums.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// Adds the products of R rows from row `first` of a piece on. each(in, put) decodes the 32 codes at `in` and calls put(k, values) for each
/// vector. `Exact` values have no factor.
template <class Arch, std::size_t R, std::size_t M, bool Zeros, bool Exact, class Each>
QK_INLINE void add_decoded(const piece_of_rows& p, std::size_t first, const Each& each, std::size_t bytes) noexcept {
    constexpr std::size_t w = kernels::lanes<Arch>, V = vectors_of_sums<Arch>;
    kernels::vf<Arch> s[R][M][V];
    const std::byte* in[R];
    const float *factor[R], *zero[R];
    const auto each_sum = [&](const auto& call) QK_INLINE_CALL {
        kernels::unrolled<R * M * V>([&](auto i) QK_INLINE_CALL {
            constexpr std::size_t r = i / (M * V), m = i / V % M, v = i % V;
            call(s[r][m][v], p.sum + (first + r) * p.sum_stride + m * partial_sums + v * w);
        });
    };
    for (std::size_t r = 0; r < R; ++r)
        in[r] = p.piece[first + r].codes, factor[r] = p.piece[first + r].factor, zero[r] = p.piece[first + r].zero;
    each_sum([](kernels::vf<Arch>& sum, const float* at) QK_INLINE_CALL { sum = kernels::load<Arch>(at); });
    const float* x = p.x;
    const std::size_t next = p.next, step = p.step, second = p.factors - 1, x_stride = p.x_stride;
    const auto all = [&](auto with_zero) QK_INLINE_CALL {
        for (std::size_t g = 0, groups = p.groups; g < groups; ++g, x += 32) {
            kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
                const float *by = factor[r] + g * step, *less = zero[r] + (with_zero ? g * step : 0);
                const kernels::vf<Arch> factors[2] = {kernels::vf<Arch>(by[0]), kernels::vf<Arch>(by[second])};
                fetch(in[r] + next);
                if (bytes > 64) fetch(in[r] + next + 64);
                each(in[r], [&](std::size_t k, kernels::vf<Arch> value) QK_INLINE_CALL {
                    const std::size_t half = k < 16 ? 0 : 1;
                    if constexpr (with_zero) value = value - kernels::vf<Arch>(less[half * second]);
                    if constexpr (!Exact) value = value * factors[half];
                    const std::size_t v = k / w % V;
                    kernels::unrolled<M>([&](auto m) QK_INLINE_CALL {
                        s[r][m][v] = fused<Arch>(kernels::load<Arch>(x + m * x_stride + k), value, s[r][m][v]);
                    });
                });
                in[r] += bytes;
            });
        }
    };
    if (Zeros && p.zeros) all(std::bool_constant<Zeros>());
    else all(std::false_type());
    each_sum([](kernels::vf<Arch> sum, float* at) QK_INLINE_CALL { kernels::store<Arch>(at, sum); });
}
/// Adds all rows, some at a time. There is room behind the last one: what it gets is not used.
template <class Arch, bool Zeros, bool Exact, bool Several, class Each>
QK_INLINE void add_decoded(const piece_of_rows& all, const Each& each, std::size_t bytes) noexcept {
    with_vectors<Several>(all, [&](auto m, const piece_of_rows& p, std::size_t) QK_INLINE_CALL {
        constexpr std::size_t R = rows_for_vectors<Arch, m>;
        for (std::size_t r = 0; r < p.rows; r += R) add_decoded<Arch, R, m, Zeros, Exact>(p, r, each, bytes);
    });
}

/// Is true where the forms below know codes of a format. `alone`: they are no elements of blocks, so that float32 has no factor.
template <class Arch>
QK_APART bool takes_floats([[maybe_unused]] const floating& f, [[maybe_unused]] bool alone) noexcept {
    if constexpr (kernels::is_baseline<Arch>) {
        return false;
    } else {
        if (f == no_format) return false;
        const int width = bits(f);
        if (f == fp32) return alone;
        if (!decodes_fast<Arch>(width) || !floating_values<Arch>(f).usable) return false;
        if (width == 8 || width == 16) return true;
        return has_byte_values<Arch>() && width == 6 && in_bytes(f);
    }
}

/// The factors of a piece of rows, times a power of two.
struct factors_with_unit {
    static constexpr std::size_t most = 8192 / 32 * 2;  ///< of the longest piece of a row
    alignas(64) float made[rows_at_once][most];
    packed_piece piece[rows_at_once];

    /// Makes those of p, which is made to use them. Returns false, and leaves p as it is, where one is not finite.
    template <class Arch>
    QK_APART bool fill(piece_of_rows& p, float unit) noexcept {
        using V = kernels::vi<Arch>;
        constexpr std::size_t w = kernels::lanes<Arch>;
        const std::size_t entries = p.step == 0 ? 1 : p.groups * p.step;
        const kernels::vf<Arch> by(unit);
        V largest(0);
        for (std::size_t r = 0; r < rows_at_once; ++r) {
            piece[r] = r < p.rows ? p.piece[r] : piece[p.rows - 1];
            if (r >= p.rows) continue;
            piece[r].factor = made[r];
            const float* const from = p.piece[r].factor;
            for (std::size_t i = 0; i < entries; i += w) {
                const kernels::vf<Arch> v =
                    by * (i + w <= entries ? kernels::load<Arch>(from + i) : kernels::load_first<Arch>(from + i, entries - i));
                largest = max(largest, kernels::as_int<Arch>(v) & V(0x7fffffff));
                kernels::store<Arch>(made[r] + i, v);
            }
        }
        if (any(largest > V(0x7f7fffff))) return false;
        p.piece = piece;
        return true;
    }
};

/// Values have no factor; the form is a usual one, worth code of its own for several vectors.
template <bool Exact, bool Several>
struct float_form {
    static constexpr bool exact = Exact, several = Several;
};

/// Calls call(p, each, how) for a format that takes_floats knows: each(in, put) decodes the 32 codes at `in` and calls put(k, values from
/// number k on) for each vector. They are to be multiplied by the factors of p, which may have others than `given`. `how` is a float_form.
template <class Arch, int Known, class Call>
QK_INLINE void with_floats(const floating& f, const piece_of_rows& given, const Call& call) noexcept {
    using V = kernels::vf<Arch>;
    constexpr std::size_t w = kernels::lanes<Arch>;
    [[maybe_unused]] const auto by_vectors = [](const auto& value) QK_INLINE_CALL {
        return [value](const std::byte* in, const auto& put)
                   QK_INLINE_CALL { kernels::unrolled<32 / w>([&](auto v) QK_INLINE_CALL { put(v * w, value(in, v * w)); }); };
    };
    if constexpr (Known == any_width || Known == 32) {
        if (f == fp32)
            return call(given, by_vectors([](const std::byte* in, std::size_t k) QK_INLINE_CALL {
                            return kernels::load<Arch>(reinterpret_cast<const float*>(in) + k);
                        }),
                        float_form<true, true>());
    }
    if constexpr (Known == any_width || Known == 16) {
        if (f == bf16)
            return call(
                given, by_vectors([](const std::byte* in, std::size_t k) QK_INLINE_CALL {
                    return V(kernels::as_float<Arch>(kernels::load_codes<Arch>(reinterpret_cast<const std::uint16_t*>(in) + k) << 16));
                }),
                float_form<false, true>());
    }
    if constexpr (has_half_values<Arch>()) {
        // The missing power of two goes into the factors, exactly where they stay finite.
        factors_with_unit own;
        piece_of_rows p = given;
        if (half_form_of(f) != half_form::none && (half_unit(f) == 1 || own.template fill<Arch>(p, half_unit(f))))
            return half_values<Arch>(f).template with_form<Known>([&](const auto& each)
                                                                      QK_INLINE_CALL { call(p, each, float_form<false, true>()); });
    }
    const floating_values<Arch> values(f);
    if constexpr (has_byte_values<Arch>() && Known <= 8) {
        if (in_bytes(f)) {
            byte_values<Arch> bytes;
            bytes.fill(f, values);
            return bytes.template with_kind<Known>(bits(f),
                                                   [&](const auto& each) QK_INLINE_CALL { call(given, each, float_form<false, false>()); });
        }
    }
    const auto codes_of = [&]<class Code>(const Code*) QK_INLINE_CALL {
        call(given, by_vectors([&](const std::byte* in, std::size_t k) QK_INLINE_CALL {
                 return values(kernels::load_codes<Arch>(reinterpret_cast<const Code*>(in) + k));
             }),
             float_form<false, !has_half_values<Arch>()>());
    };
    if constexpr (Known == any_width || Known == 8) {
        if (bits(f) == 8) return codes_of(static_cast<const std::uint8_t*>(nullptr));
    }
    if constexpr (Known == any_width || Known == 16) {
        if (bits(f) == 16) return codes_of(static_cast<const std::uint16_t*>(nullptr));
    }
}

/// Adds the products of a piece of rows.
template <class Arch, int Known>
QK_APART void add_floats(const floating& f, const piece_of_rows& given) noexcept {
    const auto bytes = static_cast<std::size_t>(bits(f)) * 4;
    with_floats<Arch, Known>(f, given, [&](const piece_of_rows& p, const auto& each, auto how) QK_INLINE_CALL {
        add_decoded<Arch, false, decltype(how)::exact, decltype(how)::several>(p, each, bytes);
    });
}

/// Writes the weights of a piece of rows, those of row r from to + r * stride on.
template <class Arch, int Known>
QK_APART void decode_floats(const floating& f, const piece_of_rows& given, float* to, std::size_t stride) noexcept {
    using V = kernels::vf<Arch>;
    const auto bytes = static_cast<std::size_t>(bits(f)) * 4;
    with_floats<Arch, Known>(f, given, [&](const piece_of_rows& p, const auto& each, auto how) QK_INLINE_CALL {
        const std::size_t second = p.factors - 1, step = p.step, next = p.next;
        for (std::size_t r = 0; r < p.rows; ++r) {
            const std::byte* in = p.piece[r].codes;
            const float* by = p.piece[r].factor;
            float* out = to + r * stride;
            for (std::size_t g = 0, groups = p.groups; g < groups; ++g, in += bytes, by += step, out += 32) {
                fetch(in + next);
                if (bytes > 64) fetch(in + next + 64);
                const V factor[2] = {V(by[0]), V(by[second])};
                each(in, [&](std::size_t k, V value) QK_INLINE_CALL {
                    if constexpr (!decltype(how)::exact) value = value * factor[k < 16 ? 0 : 1];
                    kernels::store<Arch>(out + k, value);
                });
            }
        }
    });
}

}  // namespace QK_ISA
}  // namespace qk::detail
