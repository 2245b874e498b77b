// SPDX-License-Identifier: Apache-2.0
// Turns codes of 4 bits into values, 32 at a time, by the 16 float32 that they stand for: any format's. Where vectors have 16 lanes, one
// holds them; with 8 lanes there is a table of 16 bytes for each byte of a float, for shuffles of bytes.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "qk/codec/decode/half_values.hpp"
#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/lanes/code_lanes.hpp"
#include "qk/memory/narrow_codes.hpp"

namespace qk::detail {
inline namespace QK_ISA {

/// Is true when this architecture has sixteen_values: where it can shuffle codes.
template <class Arch>
constexpr bool has_sixteen_values() noexcept {
    return has_narrow_codes<Arch>();
}

/// The 16 numbers of codes of 4 bits.
template <class Arch>
struct sixteen_numbers {
    alignas(64) float number[16];

    /// `values(code)` returns the values of a vector of codes.
    template <class Values>
    explicit sixteen_numbers(const Values& values) noexcept {
        constexpr std::size_t w = kernels::lanes<Arch>;
        for (std::size_t k = 0; k < 16; k += w)
            kernels::store<Arch>(number + k, values(kernels::iota<Arch>() + kernels::vi<Arch>(static_cast<std::int32_t>(k))));
    }
};

/// Turns codes into them, 32 at a time.
template <class Arch>
class sixteen_values {
  public:
#if QK_HAS(BYTE_SHUFFLES)
    QK_INLINE explicit sixteen_values(const float* numbers) noexcept {
#if QK_HAS(SIXTEEN_LANES)
        if constexpr (kernels::lanes<Arch> == 16) {
            table = _mm512_loadu_ps(numbers);
            return;
        }
#endif
        alignas(16) std::uint8_t byte[16];
        kernels::unrolled<4>([&](auto k) QK_INLINE_CALL {
            for (std::size_t i = 0; i < 16; ++i) byte[i] = static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(numbers[i]) >> (8 * k));
            tables[k] = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(byte)));
        });
    }
    /// Calls put(k, values from number k on) for each vector of the 32 codes at `in`. Reads nothing behind the codes.
    template <class Put>
    QK_INLINE void each(const std::byte* in, const Put& put) const {
#if QK_HAS(SIXTEEN_LANES)
        if constexpr (kernels::lanes<Arch> == 16) return by_lanes(in, put);
#endif
        if constexpr (kernels::lanes<Arch> == 8) by_bytes(codes_of_four(in), put);
    }

  private:
#if QK_HAS(SIXTEEN_LANES)
    /// Eight lanes get four bytes of codes; each shifts its own down, and the table ignores those above.
    template <class Put>
    QK_INLINE void by_lanes(const std::byte* in, const Put& put) const {
        const __m512i plane = _mm512_castsi128_si512(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in)));
        const __m512i down = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
        kernels::unrolled<2>([&](auto k) QK_INLINE_CALL {
            constexpr int a = 2 * k, b = a + 1;
            const __m512i four = _mm512_permutexvar_epi32(_mm512_setr_epi32(a, a, a, a, a, a, a, a, b, b, b, b, b, b, b, b), plane);
            put(16 * k, kernels::vf<Arch>(_mm512_permutexvar_ps(_mm512_srlv_epi32(four, down), table)));
        });
    }
    __m512 table;
#endif
    template <class Put>
    QK_INLINE void by_bytes(__m256i codes, const Put& put) const {
        const auto byte = [&](std::size_t k) QK_INLINE_CALL { return _mm256_shuffle_epi8(tables[k], codes); };
        const __m256i b0 = byte(0), b1 = byte(1), b2 = byte(2), b3 = byte(3);
        const auto floats = [](__m256i v) QK_INLINE_CALL { return kernels::vf<Arch>(_mm256_castsi256_ps(v)); };
        const __m256i low = _mm256_unpacklo_epi8(b0, b1), upper = _mm256_unpacklo_epi8(b2, b3);
        put(0, floats(_mm256_unpacklo_epi16(low, upper)));
        put(8, floats(_mm256_unpackhi_epi16(low, upper)));
        const __m256i more_low = _mm256_unpackhi_epi8(b0, b1), more_upper = _mm256_unpackhi_epi8(b2, b3);
        put(16, floats(_mm256_unpacklo_epi16(more_low, more_upper)));
        put(24, floats(_mm256_unpackhi_epi16(more_low, more_upper)));
    }
    __m256i tables[4];
#endif
};

}  // namespace QK_ISA
}  // namespace qk::detail
