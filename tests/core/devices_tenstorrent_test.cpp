// SPDX-License-Identifier: Apache-2.0
// Compares Tenstorrent's model of its fma with qk's device for it, kernel and oracle. tests/tenstorrent_fma.sh compiles and runs it.
#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <span>

#include "qk/dot.hpp"
#include "qk/dot/devices.hpp"
#include "qk/reference/dot.hpp"
#include "test_inputs.hpp"

extern "C" std::uint32_t fma_model_bh(std::uint32_t x, std::uint32_t y, std::uint32_t z);

using namespace qk;

namespace {

generator g{1};
/// Returns a float of this exponent field whose mantissa is any, short, or almost a power of two.
std::uint32_t any_float(std::uint32_t field) {
    const std::uint32_t w = g.word();
    std::uint32_t mantissa = w & 0x7fffff;
    if (w >> 29 == 1) mantissa &= 0xfffff << (g.word() % 24);
    if (w >> 29 == 2) mantissa = 1u << (g.word() % 23);
    if (w >> 29 == 3) mantissa = 0x7fffff ^ (1u << (g.word() % 23));
    if (w >> 29 == 4) mantissa = 0;
    return (g.word() & 0x80000000u) | (field & 255) << 23 | (mantissa & 0x7fffff);
}
struct question {
    std::uint32_t a, b, c;
};
/// Returns factors whose product is near C, far from it, at an end of the range, or anything.
question any_question(std::uint64_t t) {
    const std::uint32_t x = g.word() % 256;
    const auto near_sum = [&](int sum) { return static_cast<std::uint32_t>(std::clamp(sum - static_cast<int>(x), 0, 255)); };
    const int random = static_cast<int>(g.word() % 61) - 30;
    switch (t % 5) {
        case 0: return {g.word(), g.word(), g.word()};
        case 1: return {any_float(x), any_float(near_sum(127 + random / 4)), any_float(g.word() % 8)};
        case 2: return {any_float(x), any_float(near_sum(381 + random / 4)), any_float(255 - g.word() % 8)};
        default: {
            const std::uint32_t z = g.word() % 256;
            return {any_float(x), any_float(near_sum(127 + static_cast<int>(z) + random)), any_float(z)};
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    const std::uint64_t cases = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1000000;
    const device& d = devices::tenstorrent_blackhole_sfpmad;
    std::uint64_t wrong = 0;
    for (std::uint64_t t = 0; t < cases; ++t) {
        const auto [a, b, c] = any_question(t);
        const std::uint32_t model = fma_model_bh(a, b, c);
        const auto bytes = [](const std::uint32_t& v) { return std::span(reinterpret_cast<const std::byte*>(&v), 4); };
        const auto kernel = static_cast<std::uint32_t>(dot(d.a, d.b, d.accumulator, {bytes(a), 1}, {bytes(b), 1}, c));
        auto oracle = kernel;
        if (t % 16 == 0) {
            const double y = reference::dot(d.a, d.b, d.accumulator, {{a}, {}, {}}, {{b}, {}, {}}, double{std::bit_cast<float>(c)});
            oracle = y != y ? 0x7fc00000u : std::bit_cast<std::uint32_t>(static_cast<float>(y));
        }
        if (kernel == model && oracle == model) continue;
        if (++wrong <= 5)
            std::printf("%08x * %08x + %08x gives %08x; the kernel says %08x, the oracle %08x\n", a, b, c, model, kernel, oracle);
    }
    std::printf("%s: %llu cases, %llu differ\n", d.name.data(), static_cast<unsigned long long>(cases),
                static_cast<unsigned long long>(wrong));
    return wrong == 0 ? 0 : 1;
}
