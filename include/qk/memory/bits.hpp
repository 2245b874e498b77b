// SPDX-License-Identifier: Apache-2.0
// Reads and writes codes of 1 to 32 bits in a plane (planes.hpp). One rule covers every width; common widths have loops of their own.
#pragma once

#include "qk/inline.hpp"
#include "qk/isa.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace qk::detail {
inline namespace QK_ISA {

static_assert(std::endian::native == std::endian::little, "planes are little endian, and so are the machines qk is written for");

QK_INLINE constexpr std::uint32_t low_bits(int n) { return n >= 32 ? 0xffffffffu : (std::uint32_t{1} << n) - 1; }

/// Returns `count` bits (at most 32) of a plane, from bit number `bit` on.
QK_INLINE std::uint32_t get_bits(std::span<const std::byte> plane, std::size_t bit, int count) {
    const std::size_t byte = bit / 8;
    std::uint64_t window = 0;
    if (const std::size_t left = plane.size() - byte; left >= 8)  // constant size: one load
        std::memcpy(&window, plane.data() + byte, 8);
    else std::memcpy(&window, plane.data() + byte, left);
    return static_cast<std::uint32_t>(window >> (bit % 8)) & low_bits(count);
}

/// Returns code number i of a plane, for any width.
QK_INLINE std::uint32_t get_code(std::span<const std::byte> plane, std::size_t i, int width) {
    if (width == 8) return std::to_integer<std::uint32_t>(plane[i]);
    return get_bits(plane, i * static_cast<std::size_t>(width), width);
}

/// Writes up to 32 bits and leaves every other bit of the plane alone.
QK_INLINE void put_bits(std::span<std::byte> plane, std::size_t bit, int count, std::uint32_t bits) {
    const std::size_t byte = bit / 8, left = plane.size() - byte;
    const auto replace = [&](std::size_t n) {
        std::uint64_t window = 0;
        std::memcpy(&window, plane.data() + byte, n);
        window &= ~(std::uint64_t{low_bits(count)} << (bit % 8));
        window |= std::uint64_t{bits} << (bit % 8);
        std::memcpy(plane.data() + byte, &window, n);
    };
    left >= 8 ? replace(8) : replace(left);
}

/// Writes code number i of a plane.
QK_INLINE void put_code(std::span<std::byte> plane, std::size_t i, int width, std::uint32_t code) {
    if (width == 8) plane[i] = static_cast<std::byte>(code);
    else put_bits(plane, i * static_cast<std::size_t>(width), width, code);
}

/// Returns how many consecutive codes fill whole bytes together: 2 of 4 bits, 4 of 6 bits, never more than 8.
QK_INLINE constexpr std::size_t codes_per_group(int width) { return width % 8 == 0 ? 1 : width % 4 == 0 ? 2 : width % 2 == 0 ? 4 : 8; }

/// Reads codes [first, first + n) of a plane.
template <class Arch = void>
QK_APART void get_codes(std::span<const std::byte> plane, std::size_t first, std::size_t n, int width, std::uint32_t* out) {
    const std::size_t group = codes_per_group(width);
    std::size_t i = 0;
    for (; i < n && (first + i) % group != 0; ++i) out[i] = get_code(plane, first + i, width);
    const std::size_t whole = (n - i) / group;  // groups
    const auto* p = reinterpret_cast<const std::uint8_t*>(plane.data()) + (first + i) * static_cast<std::size_t>(width) / 8;
    std::uint32_t* o = out + i;
    switch (width) {
        case 32: std::memcpy(o, p, 4 * whole); break;
        case 16:
            for (std::size_t g = 0; g < whole; ++g) {
                std::uint16_t code;
                std::memcpy(&code, p + 2 * g, 2);
                o[g] = code;
            }
            break;
        case 8:
            for (std::size_t g = 0; g < whole; ++g) o[g] = p[g];
            break;
        case 4:
            for (std::size_t g = 0; g < whole; ++g) {
                o[2 * g] = p[g] & 15u;
                o[2 * g + 1] = p[g] >> 4;
            }
            break;
        case 6:
            for (std::size_t g = 0; g < whole; ++g) {
                const std::uint32_t w = p[3 * g] | std::uint32_t{p[3 * g + 1]} << 8 | std::uint32_t{p[3 * g + 2]} << 16;
                o[4 * g] = w & 63u;
                o[4 * g + 1] = w >> 6 & 63u;
                o[4 * g + 2] = w >> 12 & 63u;
                o[4 * g + 3] = w >> 18;
            }
            break;
        case 2:
            for (std::size_t g = 0; g < whole; ++g) {
                for (std::size_t k = 0; k < 4; ++k) o[4 * g + k] = std::uint32_t{p[g]} >> (2 * k) & 3u;
            }
            break;
        default:
            for (std::size_t k = 0; k < whole * group; ++k) o[k] = get_code(plane, first + i + k, width);
    }
    for (i += whole * group; i < n; ++i) out[i] = get_code(plane, first + i, width);
}

/// Writes codes [first, first + n) of a plane and changes no other bit.
template <class Arch = void>
QK_APART void put_codes(std::span<std::byte> plane, std::size_t first, std::size_t n, int width, const std::uint32_t* in) {
    const std::size_t group = codes_per_group(width);
    std::size_t i = 0;
    for (; i < n && (first + i) % group != 0; ++i) put_code(plane, first + i, width, in[i]);
    const std::size_t whole = (n - i) / group;
    auto* p = reinterpret_cast<std::uint8_t*>(plane.data()) + (first + i) * static_cast<std::size_t>(width) / 8;
    const std::uint32_t* c = in + i;
    switch (width) {
        case 32: std::memcpy(p, c, 4 * whole); break;
        case 24: {
            std::size_t g = 0;
            for (; g + 3 < whole; g += 2) {  // two codes in a store of 8 bytes; the next ones overwrite its last two bytes
                const std::uint64_t two = c[g] | std::uint64_t{c[g + 1]} << 24;
                std::memcpy(p + 3 * g, &two, 8);
            }
            for (; g < whole; ++g) std::memcpy(p + 3 * g, c + g, 3);
        } break;
        case 16:
            for (std::size_t g = 0; g < whole; ++g) {
                const auto code = static_cast<std::uint16_t>(c[g]);
                std::memcpy(p + 2 * g, &code, 2);
            }
            break;
        case 8:
            for (std::size_t g = 0; g < whole; ++g) p[g] = static_cast<std::uint8_t>(c[g]);
            break;
        case 4:
            for (std::size_t g = 0; g < whole; ++g) p[g] = static_cast<std::uint8_t>(c[2 * g] | c[2 * g + 1] << 4);
            break;
        case 6:
            for (std::size_t g = 0; g < whole; ++g) {
                const std::uint32_t w = c[4 * g] | c[4 * g + 1] << 6 | c[4 * g + 2] << 12 | c[4 * g + 3] << 18;
                p[3 * g] = static_cast<std::uint8_t>(w);
                p[3 * g + 1] = static_cast<std::uint8_t>(w >> 8);
                p[3 * g + 2] = static_cast<std::uint8_t>(w >> 16);
            }
            break;
        case 2:
            for (std::size_t g = 0; g < whole; ++g) {
                p[g] = static_cast<std::uint8_t>(c[4 * g] | c[4 * g + 1] << 2 | c[4 * g + 2] << 4 | c[4 * g + 3] << 6);
            }
            break;
        default:
            if (width < 8) {
                for (std::size_t g = 0; g < whole; ++g) {  // widths 1, 3, 5 and 7: eight codes
                    std::uint64_t bytes = 0;
                    for (std::size_t k = 0; k < group; ++k)
                        bytes |= std::uint64_t{c[group * g + k]} << (k * static_cast<std::size_t>(width));
                    for (std::size_t b = 0; b < group * static_cast<std::size_t>(width) / 8; ++b)
                        *p++ = static_cast<std::uint8_t>(bytes >> 8 * b);
                }
            } else {
                for (std::size_t k = 0; k < whole * group; ++k) put_code(plane, first + i + k, width, c[k]);
            }
    }
    for (i += whole * group; i < n; ++i) put_code(plane, first + i, width, in[i]);
}

/// Copies bits from one plane into another, whose other bits stay unchanged.
template <class Arch = void>
QK_APART void copy_bits(std::span<std::byte> to, std::size_t to_bit, std::span<const std::byte> from, std::size_t from_bit,
                        std::size_t count) {
    if (to_bit % 8 == 0 && from_bit % 8 == 0) {
        const std::size_t bytes = count / 8;
        if (bytes != 0) std::memcpy(to.data() + to_bit / 8, from.data() + from_bit / 8, bytes);
        to_bit += 8 * bytes;
        from_bit += 8 * bytes;
        count %= 8;
    }
    for (std::size_t n = 0; count != 0; count -= n, to_bit += n, from_bit += n) {
        n = std::min<std::size_t>(count, 32);
        put_bits(to, to_bit, static_cast<int>(n), get_bits(from, from_bit, static_cast<int>(n)));
    }
}

// ---- For architectures without narrow_codes: eight codes of fewer than 8 bits at a time, each in a byte of a 64-bit word

/// join_pairs moves neighbouring fields of `Bits` bits, each at the bottom of `Slot` bits, together; part_pairs moves them apart again.
template <int Bits, int Slot>
QK_INLINE std::uint64_t join_pairs(std::uint64_t v) {
    constexpr std::uint64_t field = (std::uint64_t{1} << Bits) - 1, first = Slot == 8    ? 0x0001000100010001u * field
                                                                            : Slot == 16 ? 0x0000000100000001u * field
                                                                                         : field;
    return (v & first) | (v >> (Slot - Bits) & first << Bits);
}
template <int Bits, int Slot>
QK_INLINE std::uint64_t part_pairs(std::uint64_t v) {
    constexpr std::uint64_t field = (std::uint64_t{1} << Bits) - 1, first = Slot == 8    ? 0x0001000100010001u * field
                                                                            : Slot == 16 ? 0x0000000100000001u * field
                                                                                         : field;
    return (v & first) | (v & first << Bits) << (Slot - Bits);
}

/// Returns the lowest `Width` bits of each byte without gaps, by joining neighbours three times.
template <int Width>
QK_INLINE std::uint64_t join_eight(std::uint64_t bytes) {
    return join_pairs<4 * Width, 32>(join_pairs<2 * Width, 16>(join_pairs<Width, 8>(bytes)));
}
/// Puts eight codes without gaps into a byte each: the inverse of join_eight. Bits from 8 * Width on are ignored.
template <int Width>
QK_INLINE std::uint64_t part_eight(std::uint64_t bits) {
    return part_pairs<Width, 8>(part_pairs<2 * Width, 16>(part_pairs<4 * Width, 32>(bits)));
}

/// Packs `n` codes (a multiple of 8), given a byte each, into the plane from byte `out` on. Writes exactly n * Width / 8 bytes.
template <int Width>
QK_INLINE void join_codes(const std::uint8_t* codes, std::size_t n, std::byte* out) {
    for (std::size_t i = 0; i < n; i += 8, out += Width) {
        std::uint64_t eight;
        std::memcpy(&eight, codes + i, 8);
        eight = join_eight<Width>(eight);
        std::memcpy(out, &eight, Width);
    }
}
/// Returns the eight codes at `in`, a byte each. Reads nothing from `end` on; only the last bytes are loaded as part of a word (slow).
template <int Width>
QK_INLINE std::uint64_t eight_codes(const std::byte* in, const std::byte* end) {
    std::uint64_t eight = 0;
    if (end - in >= 8) std::memcpy(&eight, in, 8);
    else std::memcpy(&eight, in, Width);
    return part_eight<Width>(eight);
}

/// Calls call(std::integral_constant<int, width>) for a width of 1 to 7 bits: `Known` if it is such a width, else the given one.
template <int Known, class Call>
QK_INLINE void with_width(int width, const Call& call) {
    if constexpr (Known >= 1 && Known <= 7) return call(std::integral_constant<int, Known>());
    switch (width) {
        case 1: return call(std::integral_constant<int, 1>());
        case 2: return call(std::integral_constant<int, 2>());
        case 3: return call(std::integral_constant<int, 3>());
        case 4: return call(std::integral_constant<int, 4>());
        case 5: return call(std::integral_constant<int, 5>());
        case 6: return call(std::integral_constant<int, 6>());
        default: return call(std::integral_constant<int, 7>());
    }
}

}  // namespace QK_ISA
}  // namespace qk::detail

namespace qk {

/// Codes of `width` bits (1 to 32) in a plane: read number i, write number i (no other bit changes), read numbers [first, first + n).
using detail::get_code, detail::put_code, detail::get_codes;
/// low_bits(n): the n lowest bits, which a code of n bits may have.
using detail::low_bits;

}  // namespace qk
