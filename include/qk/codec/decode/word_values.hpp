// SPDX-License-Identifier: Apache-2.0
// Turns codes of 8 bits into values, 32 at a time, by a table of 256 words in registers (AVX-512 BW): the upper halves of the float32 that
// the codes stand for. It serves every format whose values need no lower half: nearly all floats of 8 bits, posits, and other tables.
#pragma once

#include <cstddef>
#include <cstdint>

#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/lanes/simd.hpp"
#include "qk/memory/narrow_codes.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// Is true when this architecture has word_values: where it can shuffle codes in vectors of 16 lanes.
template <class Arch>
constexpr bool has_word_values() noexcept {
    return has_narrow_codes<Arch>() && kernels::lanes<Arch> == 16;
}

/// From so many codes on the table is worth its filling.
inline constexpr std::size_t least_for_words = 1024;

#if QK_HAS(MASKED_BYTES)

template <class Arch>
class word_values {
  public:
    /// Fills the table, unless a value needs its lower half: usable() says so. `values(code)` returns the values of a vector of codes.
    template <class Values>
    explicit word_values(const Values& values) noexcept {
        alignas(64) std::uint16_t upper[256];
        __m512i lower_bits = _mm512_setzero_si512();
        for (int first = 0; first < 256; first += 16) {
            const __m512i v = kernels::as_int<Arch>(values(kernels::iota<Arch>() + kernels::vi<Arch>(first))).data;
            lower_bits = _mm512_or_si512(lower_bits, v);
            _mm256_store_si256(reinterpret_cast<__m256i*>(upper + first), _mm512_cvtepi32_epi16(_mm512_srli_epi32(v, 16)));
        }
        usable_ = _mm512_test_epi32_mask(lower_bits, _mm512_set1_epi32(0xffff)) == 0;
        kernels::unrolled<8>([&](auto k) QK_INLINE_CALL { table_[k] = _mm512_load_si512(upper + 32 * k); });
    }
    [[nodiscard]] bool usable() const noexcept { return usable_; }

    /// Decodes the 32 codes at `in` and calls put(k, sixteen values) for k = 0 and 16. Reads nothing behind the codes.
    template <class Put>
    QK_INLINE void each(const std::byte* in, const Put& put) const {
        const auto sixteen = [&](std::size_t k)
                                 QK_INLINE_CALL { return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + k))); };
        // Code n is the lower word of a lane, code n + 16 the upper one: a shift and a mask make floats of the words looked up.
        const __m512i code = _mm512_or_si512(sixteen(0), _mm512_slli_epi32(sixteen(16), 16));
        const auto of_64 = [&](std::size_t k) QK_INLINE_CALL { return _mm512_permutex2var_epi16(table_[2 * k], code, table_[2 * k + 1]); };
        const __mmask32 second = _mm512_test_epi16_mask(code, _mm512_set1_epi16(64)),
                        upper = _mm512_test_epi16_mask(code, _mm512_set1_epi16(128));
        const __m512i word = _mm512_mask_blend_epi16(upper, _mm512_mask_blend_epi16(second, of_64(0), of_64(1)),
                                                     _mm512_mask_blend_epi16(second, of_64(2), of_64(3)));
        put(0, kernels::vf<Arch>(_mm512_castsi512_ps(_mm512_slli_epi32(word, 16))));
        put(16, kernels::vf<Arch>(_mm512_castsi512_ps(_mm512_and_si512(word, _mm512_set1_epi32(static_cast<int>(0xffff0000u))))));
    }

  private:
    __m512i table_[8];
    bool usable_;
};

#else

template <class Arch>
class word_values {};

#endif

}  // namespace QK_ISA
}  // namespace qk::detail
