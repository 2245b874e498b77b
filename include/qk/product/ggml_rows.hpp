// SPDX-License-Identifier: Apache-2.0
// Rows of ggml's blocks as a product reads them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "qk/codec/decode/ggml_blocks.hpp"
#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/product/integers.hpp"
#include "qk/product/packed_piece.hpp"
#include "qk/product/rows.hpp"
#include "qk/product/sums.hpp"

namespace qk::detail {
inline namespace QK_ISA {

#if QK_HAS(BYTE_SHUFFLES) && QK_HAS(FUSED_SUMS) && QK_HAS(HALF_CONVERSIONS)

/// Adds the products of R rows of blocks from row `first` of a piece on with M vectors.
template <class Arch, ggml_type Type, std::size_t R, std::size_t M>
QK_INLINE void add_ggml_groups(const piece_of_rows& p, std::size_t first) noexcept {
    using how = ggml_groups<Type>;
    constexpr std::size_t w = kernels::lanes<Arch>, V = vectors_of_sums<Arch>;
    kernels::vf<Arch> s[R][M][V];
    const std::byte* in[R];
    typename how::scales scales[R];
    const auto each_sum = [&](const auto& call) QK_INLINE_CALL {
        kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
            kernels::unrolled<M>([&](auto m) QK_INLINE_CALL {
                kernels::unrolled<V>(
                    [&](auto v) QK_INLINE_CALL { call(p.sum + (first + r) * p.sum_stride + m * partial_sums + v * w, s[r][m][v]); });
            });
        });
    };
    each_sum([](const float* at, kernels::vf<Arch>& sum) QK_INLINE_CALL { sum = kernels::load<Arch>(at); });
    kernels::unrolled<R>([&](auto r) QK_INLINE_CALL { in[r] = p.piece[first + r].codes; });
    const float* x = p.x;
    for (std::size_t b = 0, blocks = p.groups / how::groups; b < blocks; ++b) {
        kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
            for (std::size_t i = 0; i < how::bytes; i += 64) fetch(in[r] + p.next + i);
            how::read(in[r], scales[r]);
        });
        for (std::size_t step = 0; step < how::groups / how::at_once; ++step) {
            kernels::unrolled<how::at_once>([&](auto i) QK_INLINE_CALL {
                kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
                    how::template weights<Arch, i>(in[r], step, scales[r], [&](std::size_t k, kernels::vf<Arch> value) QK_INLINE_CALL {
                        kernels::unrolled<M>([&](auto m) QK_INLINE_CALL {
                            kernels::vf<Arch>& sum = s[r][m][k / w % V];
                            sum = fused<Arch>(kernels::load<Arch>(x + m * p.x_stride + k), value, sum);
                        });
                    });
                });
                x += 32;
            });
        }
        kernels::unrolled<R>([&](auto r) QK_INLINE_CALL { in[r] += how::bytes; });
    }
    each_sum([](float* at, const kernels::vf<Arch>& sum) QK_INLINE_CALL { kernels::store<Arch>(at, sum); });
}
template <class Arch, ggml_type Type>
QK_APART void add_ggml_groups(const piece_of_rows& given) noexcept {
    with_vectors<true>(given, [&](auto m, const piece_of_rows& p, std::size_t) QK_INLINE_CALL {
        constexpr std::size_t R = m == 1 ? rows_in_registers<Arch> : 1;
        for (std::size_t r = 0; r < p.rows; r += R) add_ggml_groups<Arch, Type, R, m>(p, r);
    });
}

// Whole numbers: 64 weights at a time, whose eight sums are in the order of order_blocks.

/// How blocks that are read together become bytes: one block of 256 values, or two of 32.
template <ggml_type Type>
struct whole_blocks {
    using how = ggml_groups<Type>;
    using enum ggml_type;
    static constexpr std::size_t blocks = how::groups == 1 ? 2 : 1, bytes = blocks * how::bytes, pairs = blocks * how::groups / 2;
    static constexpr bool with_sign = Type == q8_0 || Type == iq4_nl || Type == iq4_xs;
    static constexpr int less = Type == q4_0 ? 8 : Type == q6_k ? 32 : 0;  ///< is subtracted from each code

    /// Returns group G, a byte for each weight: with a sign, or less than 64.
    template <std::size_t G>
    static QK_INLINE __m256i group(const std::byte* in) noexcept {
        __m256i codes;
        if constexpr (how::groups == 1) codes = how::template codes<0>(in + G * how::bytes, 0);
        else codes = how::template codes<G % how::at_once>(in, G / how::at_once);
        if constexpr (Type == iq4_nl || Type == iq4_xs)
            return _mm256_shuffle_epi8(
                _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(layout_parts::iq4_values))), codes);
        else return codes;
    }
    /// Returns the factors of a pair of groups, one for each of its sums.
    static QK_INLINE __m256 factors(const std::byte* in, const typename how::scales& s, std::size_t pair) noexcept {
        if constexpr (how::factors == 2) {
            return _mm256_permutevar_ps(_mm256_broadcast_ps(reinterpret_cast<const __m128*>(s.factor + 4 * pair)),
                                        _mm256_setr_epi32(0, 0, 2, 2, 1, 1, 3, 3));
        } else {
            __m256 two;
            if constexpr (how::groups == 1) {
                std::uint16_t half[2];
                std::memcpy(half, in, sizeof *half), std::memcpy(half + 1, in + how::bytes, sizeof *half);
                const __m128 both = _mm_cvtph_ps(_mm_cvtsi32_si128(static_cast<std::int32_t>(half[0] | std::uint32_t{half[1]} << 16)));
                two = _mm256_insertf128_ps(_mm256_castps128_ps256(both), both, 1);
            } else {
                two = _mm256_castpd_ps(_mm256_set1_pd(two_floats(s.factor + 2 * pair)));
            }
            return _mm256_unpacklo_ps(two, two);
        }
    }
    /// Returns the sums of eight products each.
    static QK_INLINE __m256i sums(__m256i a, __m256i b, __m256i q0, __m256i q1) noexcept {
        if constexpr (with_sign) {
            return sums_of_eight(sums_of_four(a, q0), sums_of_four(b, q1));
        } else {
#if QK_HAS(BYTE_PRODUCTS)
            const __m256i none = _mm256_setzero_si256();
            return sums_of_eight(_mm256_dpbusd_avx_epi32(none, a, q0), _mm256_dpbusd_avx_epi32(none, b, q1));
#else  // four products of a number below 64 fit 16 bits
            return _mm256_madd_epi16(_mm256_hadd_epi16(_mm256_maddubs_epi16(a, q0), _mm256_maddubs_epi16(b, q1)), _mm256_set1_epi16(1));
#endif
        }
    }
};

/// Adds the products of R rows of blocks from row `first` of a piece on with M vectors.
template <class Arch, ggml_type Type, std::size_t R, std::size_t M>
QK_INLINE void add_ggml_integers(const piece_of_rows& p, std::size_t first, const integer_input& x) noexcept {
    using how = ggml_groups<Type>;
    using whole = whole_blocks<Type>;
    __m256 s[R][M];
    const std::byte* in[R];
    typename how::scales scales[R];
    const auto turned = [](__m256 sum) QK_INLINE_CALL { return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(sum), 0xd8)); };
    const auto load = [](const auto* at) QK_INLINE_CALL { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)); };
    float* const sum = p.sum + first * p.sum_stride;
    kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
        in[r] = p.piece[first + r].codes;
        kernels::unrolled<M>([&](auto m) QK_INLINE_CALL { s[r][m] = turned(_mm256_loadu_ps(sum + r * p.sum_stride + m * partial_sums)); });
    });
    for (std::size_t u = 0, units = p.groups / (2 * whole::pairs); u < units; ++u) {
        kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
            for (std::size_t i = 0; i < whole::bytes; i += 64) fetch(in[r] + p.next + i);
            if constexpr (how::groups != 1) how::read(in[r], scales[r]);
            if constexpr (how::minima) {
                kernels::unrolled<M>([&](auto m) QK_INLINE_CALL {
                    float* const at = sum + r * p.sum_stride + m * partial_sums + 8;
                    const __m256 of_x = _mm256_loadu_ps(x.block_sum + m * p.x_stride / block_of_input + 8 * u);
                    _mm256_storeu_ps(at, _mm256_fmadd_ps(of_x, _mm256_load_ps(scales[r].less), _mm256_loadu_ps(at)));
                });
            }
        });
        kernels::unrolled<whole::pairs>([&](auto j) QK_INLINE_CALL {
            __m256i q0[M], q1[M], less[M];
            __m256 scale[M];
            kernels::unrolled<M>([&](auto m) QK_INLINE_CALL {
                const std::size_t k = m * p.x_stride + (u * whole::pairs + j) * 64;
                q0[m] = load(x.q + k), q1[m] = load(x.q + k + 32), scale[m] = _mm256_loadu_ps(x.lane_scale + k / 8);
                if constexpr (whole::less != 0)
                    less[m] = _mm256_slli_epi32(load(x.lane_eight + k / 8), std::countr_zero(static_cast<unsigned>(whole::less)));
            });
            kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
                const __m256i a = whole::template group<2 * j>(in[r]), b = whole::template group<2 * j + 1>(in[r]);
                const __m256 own = whole::factors(in[r], scales[r], j);
                kernels::unrolled<M>([&](auto m) QK_INLINE_CALL {
                    __m256i numbers = whole::sums(a, b, q0[m], q1[m]);
                    if constexpr (whole::less != 0) numbers = _mm256_sub_epi32(numbers, less[m]);
                    s[r][m] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(numbers), _mm256_mul_ps(scale[m], own), s[r][m]);
                });
            });
        });
        kernels::unrolled<R>([&](auto r) QK_INLINE_CALL { in[r] += whole::bytes; });
    }
    kernels::unrolled<R>([&](auto r) QK_INLINE_CALL {
        kernels::unrolled<M>([&](auto m) QK_INLINE_CALL { _mm256_storeu_ps(sum + r * p.sum_stride + m * partial_sums, turned(s[r][m])); });
    });
}
template <class Arch, ggml_type Type>
QK_APART void add_ggml_integers(const piece_of_rows& given, const integer_input& x) noexcept {
    with_vectors<true>(given, [&](auto m, const piece_of_rows& p, std::size_t first) QK_INLINE_CALL {
        constexpr std::size_t R = m == 1 ? 2 : 1;
        for (std::size_t r = 0; r < p.rows; r += R) add_ggml_integers<Arch, Type, R, m>(p, r, x.after(first * p.x_stride));
    });
}

#endif

/// A block counts as one run, whose factors lie in it. There are no codes of a width of their own.
template <class Arch, compile_time_facts Known>
class rows_of<Arch, Known, ggml_blocks> final : public weight_rows<Arch> {
    using base = weight_rows<Arch>;

  public:
    rows_of(const ggml_blocks& f, const packed_weights& m) noexcept
        : base(m, 0, static_cast<std::size_t>(block_size(f)), bytes_of_block(f)), type_(f.type) {}

    void decode(std::size_t row, std::size_t k, std::size_t n, float* to) const noexcept override {
        decode_ggml_row<Arch>(type_, this->codes(row, 0), k, n, to);
    }
    void elements(const std::uint32_t*, float* to, std::size_t n) const noexcept override {
        std::fill(to, to + n, std::numeric_limits<float>::quiet_NaN());
    }
    const float* factors(std::size_t, std::size_t, std::size_t n, float* own, float*, const float*& zero) const noexcept override {
        zero = nullptr;
        std::fill(own, own + n, 1.0f);
        return own;
    }
    bool factors_of_bytes(float*) const noexcept override { return false; }
    const std::byte* scale_bytes(std::size_t, std::size_t, std::size_t) const noexcept override { return nullptr; }
    typename base::integer_bytes bytes() const noexcept override { return base::integer_bytes::none; }

    bool in_registers() const noexcept override {
#if QK_HAS(BYTE_SHUFFLES) && QK_HAS(FUSED_SUMS) && QK_HAS(HALF_CONVERSIONS)
        if constexpr (kernels::lanes<Arch> >= 8) return with_ggml_groups(type_, []<ggml_type>() {});
#endif
        return false;
    }
    void add_codes([[maybe_unused]] const piece_of_rows& p) const noexcept override {
#if QK_HAS(BYTE_SHUFFLES) && QK_HAS(FUSED_SUMS) && QK_HAS(HALF_CONVERSIONS)
        if constexpr (kernels::lanes<Arch> >= 8) with_ggml_groups(type_, [&]<ggml_type Type>() { add_ggml_groups<Arch, Type>(p); });
#endif
    }

    bool decodes_codes() const noexcept override { return false; }  // decode() takes whole blocks
    void decode_codes(const piece_of_rows&, float*, std::size_t) const noexcept override {}

    std::size_t whole_numbers(std::size_t row, std::size_t k, std::size_t n, std::int32_t* number, float* factor,
                              float* added) const noexcept override {
        std::size_t constants = 0;
        with_ggml_type(type_, [&]<ggml_type Type>() {
            using parts = layout_parts::block_parts<Type>;
            float factors[parts::runs], behind[parts::runs];
            const auto* const block = reinterpret_cast<const std::uint8_t*>(this->codes(row, k));
            const auto at = static_cast<unsigned>(k % parts::values), first = at / parts::run, second = (at + 16) / parts::run;
            parts::read(block, factors, behind);
            factor[0] = factors[first], factor[1] = factors[second];
            if constexpr (parts::adds) added[0] = behind[first], added[1] = behind[second], constants = parts::run == 16 ? 2 : 1;
            for (unsigned i = 0; i < n; ++i) number[i] = parts::number(ggml_code(Type, block, at + i));
        });
        return constants;
    }
    bool integers_in_registers() const noexcept override { return in_registers(); }
    void add_integers([[maybe_unused]] const piece_of_rows& p, [[maybe_unused]] const integer_input& x) const noexcept override {
#if QK_HAS(BYTE_SHUFFLES) && QK_HAS(FUSED_SUMS) && QK_HAS(HALF_CONVERSIONS)
        if constexpr (kernels::lanes<Arch> >= 8) with_ggml_groups(type_, [&]<ggml_type Type>() { add_ggml_integers<Arch, Type>(p, x); });
#endif
    }

  private:
    const ggml_type type_;
};

}  // namespace QK_ISA
}  // namespace qk::detail
