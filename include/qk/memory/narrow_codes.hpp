// SPDX-License-Identifier: Apache-2.0
// Reads and writes vectors of codes. Those of 1 to 7 bits do not leave the vector registers on architectures that can shuffle bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/lanes/code_lanes.hpp"
#include "qk/memory/bits.hpp"

namespace qk::detail {
inline namespace QK_ISA {

inline constexpr int any_width = 0;  ///< known only at run time

/// Are true unless what is known rules out a code of this width, or a narrow code (at most 7 bits).
constexpr bool may_be_wide(int known, int width) { return known == any_width || known == width; }
constexpr bool may_be_narrow(int known) { return known == any_width || known < 8; }

/// Is true when this architecture has narrow_reader and narrow_writer. Others use join_codes and eight_codes of bits.hpp, on 64-bit words.
template <class Arch>
constexpr bool has_narrow_codes() noexcept {
    return (QK_HAS(MASKED_BYTES) && kernels::lanes<Arch> == 16) || (QK_HAS(BYTE_SHUFFLES) && kernels::lanes<Arch> == 8);
}

/// Is true when codes of at most 8 bits are made 32 at a time (byte_codes.hpp).
template <class Arch>
constexpr bool has_byte_codes() noexcept {
    return QK_HAS(BYTE_SHUFFLES) && kernels::lanes<Arch> == 8;
}

template <class Arch>
class narrow_reader;
template <class Arch>
class narrow_writer;
/// Replaces narrow_reader and narrow_writer where codes are not narrow or the architecture lacks them.
struct nothing {
    explicit constexpr nothing(int, int = 0) noexcept {}
};

#if QK_HAS(BYTE_SHUFFLES)

/// Reads codes of `width` bits, a vector of which fills whole bytes. The first code starts at bit `from` of its byte.
template <class Arch>
class narrow_reader {
  public:
    QK_INLINE explicit narrow_reader(int width, int from = 0) noexcept {
        using V = kernels::vi<Arch>;
        const V bit = kernels::iota<Arch>() * V(width) + V(from), byte = bit >> 3;
        window = byte | (byte + V(1)) << 8 | V(static_cast<std::int32_t>(0x80800000u));  // the two bytes that a code touches, and two zeros
        within = bit & V(7);
        low = V(static_cast<std::int32_t>(low_bits(width)));
    }

    /// Returns the codes at `in`, one in each lane. Reads nothing from `end` on.
    QK_INLINE kernels::vi<Arch> load(const std::byte* in, const std::byte* end) const noexcept {
        using V = kernels::vi<Arch>;
#if QK_HAS(MASKED_BYTES)
        if constexpr (kernels::lanes<Arch> == 16) {
            // Bytes behind the codes are loaded but not used. A masked load would be as correct, but memory is not prefetched for it.
            const __m128i plane = end - in >= 16 ? _mm_loadu_si128(reinterpret_cast<const __m128i*>(in))
                                                 : _mm_maskz_loadu_epi8(static_cast<__mmask16>(low_bits(static_cast<int>(end - in))), in);
            return V(_mm512_srlv_epi32(_mm512_shuffle_epi8(_mm512_broadcast_i32x4(plane), window.data), within.data)) & low;
        }
#endif
        if constexpr (kernels::lanes<Arch> == 8) {
            std::uint64_t eight = 0;
            if (end - in >= 8) std::memcpy(&eight, in, 8);
            else std::memcpy(&eight, in, static_cast<std::size_t>(end - in));
            const __m256i plane = _mm256_set1_epi64x(static_cast<long long>(eight));
            return V(_mm256_srlv_epi32(_mm256_shuffle_epi8(plane, window.data), within.data)) & low;
        }
        return low;
    }

  private:
    kernels::vi<Arch> window, within, low;
};

/// Writes codes of 1 to 7 bits from the lanes of vectors.
template <class Arch>
class narrow_writer {
  public:
    /// A width above 7 is accepted where the writer is not used.
    QK_INLINE explicit narrow_writer(int given) noexcept {
        const int width = std::min(given, 7);
        second = _mm_set1_epi16(static_cast<short>(1 << (width + 8) | 1));
        third = _mm_set1_epi32(1 << (2 * width + 16) | 1);
        down = _mm_cvtsi32_si128(32 - 4 * width);
        alignas(16) char from[16];
        const int each = width % 2 == 0 ? width / 2 : width;  // bytes of a lane of 32 or 64 bits that are kept
        for (int i = 0; i < 16; ++i) from[i] = static_cast<char>(i >= 2 * width ? -1 : i / each * (width % 2 == 0 ? 4 : 8) + i % each);
        kept = _mm_load_si128(reinterpret_cast<const __m128i*>(from));
    }

    /// Writes the codes of all lanes from `to` on; a lane has no bits above its code. `Known` is the width if known when compiling, else 0.
    template <int Known>
    QK_INLINE void store(std::byte* to, kernels::vi<Arch> code, int given) const noexcept {
        // Neighbours are joined up to three times: a multiplication moves one code of a pair above the other, and the sum joins them.
        __m128i joined = _mm_madd_epi16(_mm_maddubs_epi16(second, lowest_bytes(code)), third);
        if ((Known != 0 ? Known : given) % 2 != 0) {
            const __m128i upper = _mm_and_si128(joined, _mm_set1_epi64x(static_cast<long long>(0xffffffff00000000u)));
            joined = _mm_or_si128(_mm_xor_si128(joined, upper), _mm_srl_epi64(upper, down));
        }
        put<Known, kernels::lanes<Arch>>(to, _mm_shuffle_epi8(joined, kept), given);
    }

    /// Writes 32 codes, a byte each, in the order of kernels::packed_bytes.
    template <int Known>
    QK_INLINE void store_packed(std::byte* to, __m256i codes, int given) const noexcept {
        const auto halves = [](__m256i v, const auto& use)
                                QK_INLINE_CALL { use(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)); };
        if ((Known != 0 ? Known : given) == 4) {
            halves(_mm256_maddubs_epi16(codes, _mm256_set1_epi16(0x1001)), [&](__m128i low, __m128i high) QK_INLINE_CALL {
                const __m128i order = _mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15);
                _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_shuffle_epi8(_mm_packus_epi16(low, high), order));
            });
            return;
        }
        const auto twice = [](__m128i v) QK_INLINE_CALL { return _mm256_broadcastsi128_si256(v); };
        __m256i joined = _mm256_madd_epi16(_mm256_maddubs_epi16(twice(second), kernels::in_order(codes)), twice(third));
        if ((Known != 0 ? Known : given) % 2 != 0) {
            const __m256i upper = _mm256_and_si256(joined, _mm256_set1_epi64x(static_cast<long long>(0xffffffff00000000u)));
            joined = _mm256_or_si256(_mm256_xor_si256(joined, upper), _mm256_srl_epi64(upper, down));
        }
        halves(_mm256_shuffle_epi8(joined, twice(kept)), [&](__m128i low, __m128i high) QK_INLINE_CALL {
            put<Known, 16>(to, low, given);
            put<Known, 16>(to + 2 * (Known != 0 ? Known : given), high, given);
        });
    }

  private:
    /// Writes `Codes` joined codes.
    template <int Known, std::size_t Codes>
    static QK_INLINE void put(std::byte* to, __m128i joined, int given) noexcept {
        const auto first = static_cast<std::uint64_t>(_mm_cvtsi128_si64(joined)),
                   rest = static_cast<std::uint64_t>(_mm_extract_epi64(joined, 1));
        with_width<Known>(given, [&](auto width) QK_INLINE_CALL {
            constexpr std::size_t bytes = Codes * decltype(width)::value / 8;
            std::memcpy(to, &first, std::min<std::size_t>(bytes, 8));
            if constexpr (bytes > 8) std::memcpy(to + 8, &rest, bytes - 8);
        });
    }
    static QK_INLINE __m128i lowest_bytes(kernels::vi<Arch> code) noexcept {
#if QK_HAS(SIXTEEN_LANES)
        if constexpr (kernels::lanes<Arch> == 16) return _mm512_cvtepi32_epi8(code.data);
#endif
        if constexpr (kernels::lanes<Arch> == 8) return kernels::lowest_bytes(code.data);
        return _mm_setzero_si128();
    }

    __m128i second, third, down, kept;
};

#endif

/// Packs `n` codes (a multiple of 8) of any width below 8, given a byte each, from a whole byte of a plane on.
template <class Arch>
QK_APART void join_any(int width, const std::uint8_t* codes, std::size_t n, std::byte* to) noexcept {
    with_width<any_width>(width, [&](auto each) { join_codes<decltype(each)::value>(codes, n, to); });
}

/// Writes vectors of codes. `Known` is their width, or any_width.
template <class Arch, int Known>
struct code_writer {
    static constexpr bool in_registers = has_narrow_codes<Arch>() && may_be_narrow(Known);
    /// Narrow codes wait until more of them are packed together, where a vector of them need not end at a whole byte.
    static constexpr bool may_wait = may_be_narrow(Known) && !has_narrow_codes<Arch>();

    int given;
    std::conditional_t<in_registers, narrow_writer<Arch>, nothing> narrow{given};

    QK_INLINE int width() const noexcept { return Known > 0 ? Known : given; }
    QK_INLINE bool waits() const noexcept { return may_wait && width() < 8; }
    QK_INLINE std::size_t bytes(std::size_t codes) const noexcept {
        if constexpr (Known > 0 && Known % 8 == 0) return codes * (Known / 8);
        return codes * static_cast<std::size_t>(width()) / 8;
    }

#if QK_HAS(BYTE_SHUFFLES)
    /// Writes four vectors of codes of at most 8 bits, in the order of kernels::packed_bytes.
    QK_INLINE void put_packed(std::byte* to, __m256i codes) const noexcept {
        if constexpr (may_be_wide(Known, 8)) {
            if (width() == 8) return _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), kernels::in_order(codes));
        }
        if constexpr (in_registers) narrow.template store_packed<Known>(to, codes, given);
    }
    /// put_apart stores such codes a byte each; put_joined packs n of those (a multiple of 32) into the plane.
    QK_INLINE void put_apart(std::uint8_t* apart, __m256i codes) const noexcept {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(apart), codes);
    }
    QK_INLINE void put_joined(std::byte* to, const std::uint8_t* apart, std::size_t n) const noexcept {
#pragma GCC unroll 1
        for (std::size_t k = 0; k < n; k += 32) put_packed(to + bytes(k), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(apart + k)));
    }
#endif
    /// Writes vectors of codes from a whole byte on. Not called where codes wait (waits()).
    template <std::size_t Vectors>
    QK_INLINE void put(std::byte* to, const kernels::vi<Arch>* code) const noexcept {
        constexpr std::size_t w = kernels::lanes<Arch>;
#if QK_HAS(BYTE_SHUFFLES)
        if constexpr (has_byte_codes<Arch>() && Vectors == 4 && Known <= 8) {
            if (width() <= 8) return put_packed(to, kernels::packed_codes<Arch>(code));
        }
        if constexpr (has_byte_codes<Arch>() && Vectors == 4 && may_be_wide(Known, 16)) {
            if (width() == 16) {
                kernels::store_two<Arch>(reinterpret_cast<std::uint16_t*>(to), code);
                kernels::store_two<Arch>(reinterpret_cast<std::uint16_t*>(to) + 2 * w, code + 2);
                return;
            }
        }
#endif
        if constexpr (may_be_wide(Known, 8)) {
            if (width() == 8)
                return kernels::unrolled<Vectors>(
                    [&](auto k) QK_INLINE_CALL { kernels::store_codes<Arch>(reinterpret_cast<std::uint8_t*>(to) + k * w, code[k]); });
        }
        if constexpr (may_be_wide(Known, 16)) {
            if (width() == 16)
                return kernels::unrolled<Vectors>(
                    [&](auto k) QK_INLINE_CALL { kernels::store_codes<Arch>(reinterpret_cast<std::uint16_t*>(to) + k * w, code[k]); });
        }
        if constexpr (in_registers)
            kernels::unrolled<Vectors>([&](auto k) QK_INLINE_CALL { narrow.template store<Known>(to + bytes(k * w), code[k], given); });
    }
    /// Packs `n` codes that waited, a byte each.
    QK_INLINE void put_waiting(std::byte* to, const std::uint8_t* codes, std::size_t n) const noexcept {
        if constexpr (may_wait && Known != any_width) join_codes<Known>(codes, n, to);
        else if constexpr (may_wait) join_any<Arch>(given, codes, n, to);
    }
};

}  // namespace QK_ISA
}  // namespace qk::detail
