// SPDX-License-Identifier: Apache-2.0
// Times dot products under accumulators, beside a plain float loop. `bench/dot_python.py` times them in Python.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

#include "qk/dot.hpp"
#include "qk/dot/devices.hpp"

namespace {

/// Returns nanoseconds per call, the best of several runs.
template <class Call>
double nanoseconds(std::size_t calls, const Call& call) {
    double best = 1e30;
    for (int run = 0; run < 15; ++run) {
        const auto start = std::chrono::steady_clock::now();
        for (std::size_t i = 0; i < calls; ++i) call();
        best = std::min(
            best, std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() / static_cast<double>(calls));
    }
    return best;
}

template <class T>
void keep(const T& value) {
    asm volatile("" : : "g"(value) : "memory");
}

std::vector<std::byte> codes(std::size_t n, std::uint32_t seed) {
    std::vector<std::byte> bytes(n);
    for (std::byte& b : bytes) b = static_cast<std::byte>((seed = seed * 1664525u + 1013904223u) >> 24 & 0xbfu);
    return bytes;
}

}  // namespace

int main() {
    using namespace qk;
    constexpr std::size_t n = 1024;
    std::vector<float> x(n), y(n);
    for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(i % 37) - 18.3f, y[i] = 0.01f * static_cast<float>(i % 91) - 0.4f;
    std::vector<std::byte> a(4 * n), b(4 * n);
    std::memcpy(a.data(), x.data(), 4 * n);
    std::memcpy(b.data(), y.data(), 4 * n);
    const double loop = nanoseconds(400, [&] {
        float s = 0;
        for (std::size_t i = 0; i < n; ++i) s += x[i] * y[i];
        keep(s);
    });
    std::printf("%-52s %10.1f ns  %5.1f a term\n", "plain float loop, 1024 terms", loop, loop / n);
    const auto show = [&](const char* name, double t, std::size_t terms, bool relative) {
        std::printf("%-52s %10.1f ns  %5.1f a term", name, t, t / static_cast<double>(terms));
        relative ? std::printf("  %.1f plain loops\n", t / loop) : std::printf("\n");
    };
    show("exact, float32, 1024 terms", nanoseconds(100, [&] { keep(dot<fp32, fp32, accumulators::exact>({a, n}, {b, n})); }), n, true);
    const auto e = codes(n, 1), f = codes(n, 2);
    show("exact, fp8, 1024 terms",
         nanoseconds(100,
                     [&] {
                         keep(dot<fp8_e4m3fn, fp8_e4m3fn, accumulators::exact>({e, n}, {f, n}));
                     }),
         n, true);
    show("exact, bf16 of any exponent, 1024 terms",
         nanoseconds(100,
                     [&] {
                         keep(dot<bf16, bf16, accumulators::exact>({a, n}, {b, n}));
                     }),
         n, true);
    show("sequential float32, 1024 terms",
         nanoseconds(100,
                     [&] {
                         keep(dot<fp32, fp32, accumulators::loop_fp32>({a, n}, {b, n}));
                     }),
         n, true);
    constexpr accumulator hopper = devices::nvidia_hopper_mma_f32_f16_f16_f32.accumulator,
                          cdna = devices::amd_cdna3_mfma_f32_f16.accumulator;
    show("Hopper fp16, one dot product of 16", nanoseconds(5000, [&] { keep(dot<fp16, fp16, hopper>({e, 16}, {f, 16})); }), 16, false);
    show("CDNA3 fp16, one dot product of 16", nanoseconds(5000, [&] { keep(dot<fp16, fp16, cdna>({e, 16}, {f, 16})); }), 16, false);
    constexpr std::size_t m = 64, k = 128;
    std::vector<float> c(m * m), d(m * m);
    const auto p = codes(m * k, 3), q = codes(m * k, 4);
    const double product = nanoseconds(2, [&] {
        matrix_multiply_add<fp8_e4m3fn, fp8_e4m3fn, devices::nvidia_hopper_mma_f32_f16_f16_f32.accumulator>({m, m, k}, {{p, {}, {}, {}}},
                                                                                                            {{q, {}, {}, {}}}, c, d);
        keep(d[0]);
    });
    show("matrix product 64 x 64 x 128, groups of 16", product, m * m * k, false);
}
