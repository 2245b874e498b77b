// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4). Its constants are the fractions of roots of primes, computed here by whole numbers.
#include <array>
#include <bit>

#include "qk/emit/emit.hpp"
#include "qk/reference/real.hpp"

namespace qk::emit {
namespace {

using whole = reference::whole_128;

/// Returns the first 32 bits of the fraction of the square or cube root of p: the largest r with r^n <= p * 2^(32 n).
std::uint32_t root_fraction(std::uint32_t p, int n) {
    std::uint64_t r = 0;
    for (int bit = 36; bit >= 0; --bit) {
        const std::uint64_t more = r | std::uint64_t{1} << bit;
        const whole power = n == 2 ? whole{more} * more : whole{more} * more * more;  // below 2^111
        if (power <= whole{p} << (32 * n)) r = more;
    }
    return static_cast<std::uint32_t>(r);
}

struct constants {
    std::array<std::uint32_t, 64> round{};
    std::array<std::uint32_t, 8> start{};
    constants() {
        std::size_t found = 0;
        for (std::uint32_t p = 2; found < 64; ++p) {
            bool prime = true;
            for (std::uint32_t d = 2; d * d <= p; ++d) prime = prime && p % d != 0;
            if (!prime) continue;
            if (found < 8) start[found] = root_fraction(p, 2);
            round[found++] = root_fraction(p, 3);
        }
    }
};

}  // namespace

std::string sha_256(const std::string& bytes) {
    static const constants k;
    std::string padded = bytes + '\x80';
    padded.append((120 - padded.size() % 64) % 64, '\0');
    for (int shift = 56; shift >= 0; shift -= 8) padded += static_cast<char>(std::uint64_t{bytes.size()} * 8 >> shift & 255);
    std::array<std::uint32_t, 8> h = k.start;
    for (std::size_t at = 0; at < padded.size(); at += 64) {
        std::array<std::uint32_t, 64> w{};
        for (std::size_t i = 0; i < 64; ++i) w[i / 4] = w[i / 4] << 8 | static_cast<unsigned char>(padded[at + i]);
        for (std::size_t i = 16; i < 64; ++i) {
            const std::uint32_t a = w[i - 15], b = w[i - 2];
            w[i] = w[i - 16] + w[i - 7] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) + (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
        }
        std::array<std::uint32_t, 8> v = h;
        for (std::size_t i = 0; i < 64; ++i) {
            const std::uint32_t a = v[0], e = v[4];
            const std::uint32_t t =
                v[7] + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & v[5]) ^ (~e & v[6])) + k.round[i] + w[i];
            const std::uint32_t u = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
            v = {t + u, a, v[1], v[2], v[3] + t, e, v[5], v[6]};
        }
        for (std::size_t i = 0; i < 8; ++i) h[i] += v[i];
    }
    std::string s;
    for (const std::uint32_t x : h)
        for (int shift = 28; shift >= 0; shift -= 4) s += "0123456789abcdef"[x >> shift & 15];
    return s;
}

}  // namespace qk::emit
