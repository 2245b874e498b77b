// SPDX-License-Identifier: Apache-2.0
// Values of a table's codes, and codes of values by the fast form. (By the general form: table_rules::codes_of.)
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "qk/formats/table/fast.hpp"
#include "qk/lanes/code_lanes.hpp"

namespace qk::detail {

template <class Arch>
void elements_of(const table& f, const std::uint32_t* code, float* out, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) out[i] = value_of(f, code[i]);
}

/// The elementwise coder of the fast form.
template <class Arch, int Levels>
struct table_coder {
    kernels::fast_table<Arch, Levels> fast;
    kernels::vf<Arch> scale;
    bool scaled;

    table_coder(const kernels::table_rules<Arch>& rules, float s) noexcept : fast{&rules}, scale(s), scaled(s != 1.0f) {}
    bool usable() const noexcept { return true; }
    std::int32_t limit() const noexcept { return fast.limit; }
    QK_INLINE void prepare(kernels::vf<Arch>* x) const noexcept {
        if (scaled) kernels::unrolled<4>([&](auto k) QK_INLINE_CALL { x[k] = kernels::quotient<Arch>(x[k], scale); });
    }
    QK_INLINE kernels::vi<Arch> code(kernels::vf<Arch> x) const noexcept { return fast.code(x); }
};

/// Turns codes of tables into values: of at most 32 numbers in registers, else lane by lane.
template <class Arch>
struct listed_values {
    const float* numbers;
    int size;

    explicit listed_values(const table& f) noexcept : numbers(f.values->number.data()), size(f.size()) {}
    QK_INLINE kernels::vf<Arch> operator()(kernels::vi<Arch> code) const noexcept {
        if constexpr (kernels::most_looked_up<Arch>() >= 32) {
            const auto* p = reinterpret_cast<const std::int32_t*>(numbers);
            if (size <= 8) return kernels::as_float<Arch>(kernels::looked_up<8, Arch>(p, code));
            if (size <= 16) return kernels::as_float<Arch>(kernels::looked_up<16, Arch>(p, code));
            if (size <= 32) return kernels::as_float<Arch>(kernels::looked_up<32, Arch>(p, code));
        }
        alignas(64) std::int32_t at[kernels::lanes<Arch>];
        alignas(64) float lane[kernels::lanes<Arch>];
        kernels::store<Arch>(at, code);
        for (std::size_t k = 0; k < kernels::lanes<Arch>; ++k) lane[k] = numbers[at[k] & 255];
        return kernels::load<Arch>(lane);
    }
};

#if defined(__AVX2__)

/// Turns codes of 4 bits into float32 by shuffles of bytes, 32 at a time: a table of 16 bytes for each byte of a float.
template <class Arch>
class four_byte_values {
  public:
    QK_INLINE explicit four_byte_values(const float* numbers) noexcept {
        alignas(16) std::uint8_t byte[16];
        kernels::unrolled<4>([&](auto k) QK_INLINE_CALL {
            for (std::size_t i = 0; i < 16; ++i) byte[i] = static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(numbers[i]) >> (8 * k));
            tables[k] = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(byte)));
        });
    }
    /// Calls put(k, eight values) for k = 0, 8, 16, 24 and the 32 codes, a byte each, which must stand in the order of kernels::in_eights.
    template <class Put>
    QK_INLINE void each(__m256i codes, const Put& put) const {
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

  private:
    __m256i tables[4];
};

#endif

}  // namespace qk::detail
