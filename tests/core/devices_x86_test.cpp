// SPDX-License-Identifier: Apache-2.0
// Compares x86's own dot product instructions with qk's devices for them, where the processor has them.
#include <doctest/doctest.h>

#include <cstdio>
#include <cstring>
#include <vector>

#include "qk/dot.hpp"
#include "qk/dot/devices.hpp"
#include "test_inputs.hpp"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define QK_TEST_X86 1
#endif

using namespace qk;

#ifdef QK_TEST_X86
namespace {

bool skipped(bool there, const char* what) {
    if (!there) std::printf("skipped: this processor has no %s\n", what);
    return !there;
}

/// Returns the device's result for one lane of 32 bits: a and b point to four bytes of codes, c is the accumulator's code.
std::uint32_t by_device(const device& d, const void* a, const void* b, std::uint32_t c) {
    const auto k = static_cast<std::size_t>(d.k);
    const std::span<const std::byte> x(static_cast<const std::byte*>(a), 4), y(static_cast<const std::byte*>(b), 4);
    const auto start =
        d.accumulator.sum == summation::integer ? static_cast<std::uint64_t>(std::int64_t{static_cast<std::int32_t>(c)}) : std::uint64_t{c};
    return static_cast<std::uint32_t>(dot(d.a, d.b, d.accumulator, {x, k}, {y, k}, start));
}

__attribute__((target("avx512f,avx512bf16"))) void vdpbf16ps(const std::uint32_t* a, const std::uint32_t* b, std::uint32_t* c) {
    const __m512 sum = _mm512_castsi512_ps(_mm512_loadu_si512(c));
    const __m512i x = _mm512_loadu_si512(a), y = _mm512_loadu_si512(b);
    __m512bh p, q;
    std::memcpy(&p, &x, sizeof p);
    std::memcpy(&q, &y, sizeof q);
    _mm512_storeu_si512(c, _mm512_castps_si512(_mm512_dpbf16_ps(sum, p, q)));
}
#define QK_VNNI(name)                                                                                                              \
    __attribute__((target("avx512f,avx512vnni"))) void v##name(const std::uint32_t* a, const std::uint32_t* b, std::uint32_t* c) { \
        _mm512_storeu_si512(c, _mm512_##name##_epi32(_mm512_loadu_si512(c), _mm512_loadu_si512(a), _mm512_loadu_si512(b)));        \
    }
QK_VNNI(dpbusd)
QK_VNNI(dpbusds)
QK_VNNI(dpwssd)
QK_VNNI(dpwssds)
#undef QK_VNNI

bool is_nan(std::uint32_t v) { return (v & 0x7fffffffu) > 0x7f800000u; }

template <class Words>
void compare(const device& d, void (*instruction)(const std::uint32_t*, const std::uint32_t*, std::uint32_t*), const Words& words,
             bool floats) {
    generator g{static_cast<std::uint64_t>(d.name.size()) * 7919};
    std::size_t mismatches = 0, compared = 0;
    for (int n = 0; n < 4000; ++n) {
        std::uint32_t a[16], b[16], c[16], out[16];
        words(g, n, a, b, c);
        std::memcpy(out, c, sizeof out);
        instruction(a, b, out);
        for (std::size_t i = 0; i < 16; ++i, ++compared) {
            const std::uint32_t expected = by_device(d, &a[i], &b[i], c[i]);
            if (expected == out[i] || (floats && is_nan(expected) && is_nan(out[i]))) continue;
            if (mismatches++ < 4)
                std::fprintf(stderr, "%s: a %08x b %08x c %08x: the processor gives %08x, the device %08x\n", d.name.data(), a[i], b[i],
                             c[i], out[i], expected);
        }
    }
    CHECK_MESSAGE(mismatches == 0, d.name);
    CHECK(compared == 64000);
}

void any_words(generator& g, int n, std::uint32_t* a, std::uint32_t* b, std::uint32_t* c) {
    for (std::size_t i = 0; i < 16; ++i) {
        a[i] = g.word() | (n % 5 == 0 ? 0x7f7f7f7fu : 0);
        b[i] = n % 7 == 0 ? 0x80808080u : g.word();
        c[i] = n % 3 == 0 ? 0x7fffff00u + g.below(256) : n % 3 == 1 ? 0x80000000u + g.below(65536) : g.word();
    }
}
std::uint32_t bf16_code(generator& g, int n) {
    const std::uint32_t sign = g.below(2) << 15, mantissa = g.below(128);
    switch (n % 6) {
        case 0: return g.word() & 0xffffu;                          // any bits
        case 1: return sign | (120 + g.below(12)) << 7 | mantissa;  // ordinary
        case 2: return sign | (60 + g.below(8)) << 7 | mantissa;    // products near the smallest normal number
        case 3: return sign | (g.below(4)) << 7 | mantissa;         // subnormal
        case 4: return sign | (188 + g.below(6)) << 7 | mantissa;   // products near the largest
        default: return g.below(3) == 0 ? sign : sign | 127u << 7 | g.below(2) << 6;
    }
}
/// A product near 2^-150 and a C near the smallest normal number, which it may round. Seen on a Zen 4; of other makers none was at hand.
void tiny_words(generator& g, std::uint32_t& a, std::uint32_t& b, std::uint32_t& c) {
    const std::uint32_t e = 30 + g.below(45), kind = g.below(4);
    const auto code = [&](std::uint32_t field) {
        return g.below(2) << 15 | field << 7 | (kind == 0 ? 0 : kind == 1 ? g.below(128) : kind == 2 ? 1u << g.below(7) : 127u);
    };
    const std::uint32_t at = 16 * g.below(2);
    a = code(e) << at, b = code(104 - e + g.below(8) - 4) << at;
    c = g.below(2) << 31 | (0x00800000u + g.below(3));
}
void bf16_words(generator& g, int n, std::uint32_t* a, std::uint32_t* b, std::uint32_t* c) {
    for (std::size_t i = 0; i < 16; ++i) {
        a[i] = bf16_code(g, n) | bf16_code(g, n) << 16;
        b[i] = bf16_code(g, n) | bf16_code(g, n) << 16;
        c[i] = n % 6 == 0 ? g.word() : bf16_code(g, n + static_cast<int>(g.below(2)) * 3) << 16 | (g.word() & 0xffffu);
        if (n % 5 == 0 && __builtin_cpu_is("amd")) {
            tiny_words(g, a[i], b[i], c[i]);
        } else if (g.below(4) == 0) {  // C cancels the sum
            const auto v = [](std::uint32_t code) { return std::bit_cast<float>(code << 16); };
            c[i] = std::bit_cast<std::uint32_t>(-(v(a[i] & 0xffffu) * v(b[i] & 0xffffu) + v(a[i] >> 16) * v(b[i] >> 16)));
        }
    }
}

}  // namespace

TEST_CASE("VNNI") {
    if (skipped(__builtin_cpu_supports("avx512vnni"), "avx512vnni")) return;
    compare(devices::x86_avx512_vnni_vpdpbusd, vdpbusd, any_words, false);
    compare(devices::x86_avx512_vnni_vpdpbusds, vdpbusds, any_words, false);
    compare(devices::x86_avx512_vnni_vpdpwssd, vdpwssd, any_words, false);
    compare(devices::x86_avx512_vnni_vpdpwssds, vdpwssds, any_words, false);
}

TEST_CASE("AVX512_BF16") {
    if (skipped(__builtin_cpu_supports("avx512bf16"), "avx512bf16")) return;
    compare(devices::x86_avx512_bf16_vdpbf16ps, vdpbf16ps, bf16_words, true);
}
#else
TEST_CASE("x86's instructions") { std::puts("skipped: this is no x86-64"); }
#endif
