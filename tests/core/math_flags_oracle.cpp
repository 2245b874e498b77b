// SPDX-License-Identifier: Apache-2.0
// Compares what math_flags_kernels.cpp computes under compiler flags with the oracle compiled without them. Prints each format that
// differs, and whether the flags still hold for the consumer's own code behind the headers.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>

#include <qk/qk.hpp>
#include <qk/reference.hpp>

#include "math_flags.hpp"

namespace {

/// Ordinary values, with zeros of both signs, negative values that round to zero, subnormals, Inf and NaN among them.
std::vector<float> inputs() {
    std::mt19937 generator(1);
    std::normal_distribution<float> normal;
    std::vector<float> x(1 << 16);
    for (float& v : x) v = normal(generator);
    const float others[] = {0.0f, -0.0f, -1e-6f, 1e-40f, -1e-40f, 3e38f, -3e38f, 0.025f, 0.075f, -0.025f};
    for (std::size_t i = 0; i < x.size(); i += 13) x[i] = others[i / 13 % std::size(others)];
    for (std::size_t i = 512; i < x.size(); i += 4096) x[i] = INFINITY, x[i + 100] = NAN;
    return x;
}

std::size_t differences(std::span<const float> a, std::span<const float> b) {
    std::size_t n = 0;
    for (std::size_t i = 0; i < a.size(); ++i) n += std::memcmp(&a[i], &b[i], sizeof(float)) != 0 && !(a[i] != a[i] && b[i] != b[i]);
    return n;
}

}  // namespace

int main() {
    const std::vector<float> x = inputs();
    const qk::format formats[format_count] = {qk::int8, qk::bf16, qk::bfp16, qk::mx9, qk::nvfp4};
    const std::vector<results> all = run_kernels(x);
    std::size_t broken = 0;
    for (std::size_t i = 0; i < format_count; ++i) {
        std::vector<float> expected(x.size());
        qk::reference::fake_quantize(formats[i], x, expected, i == 0 ? qk::affine{.scale = integer_scale} : qk::affine{}, qk::semantics{});
        const std::size_t n = differences(expected, all[i].fake_quantized), decoded = differences(expected, all[i].decoded),
                          oracle = differences(expected, all[i].oracle);
        if (n + decoded + oracle > 0)
            std::printf("format %zu: %zu values of fake_quantize, %zu of encode and decode, %zu of the oracle differ\n", i, n, decoded,
                        oracle);
        broken += n + decoded + oracle;
    }
    // 2^12, then 4,095 times 2^-13: added in turn each is lost; added up first, in any tree, they count.
    std::vector<float> a(4096, 0x1p-13f), b(4096, 1.0f);
    a[0] = 4096.0f;
    std::vector<std::byte> packed_a(qk::packed_bytes<qk::fp16>(a.size())), packed_b(packed_a.size());
    qk::encode<qk::fp16>(a, packed_a);
    qk::encode<qk::fp16>(b, packed_b);
    if (sum_of_products(packed_a, packed_b, a.size()) != 4096.0f) std::printf("dot: the order of its sums changed\n"), ++broken;
    std::printf("%s\n", users_own(0x1p30f, 1.0f) == 1.0f ? "the consumer's own code has the flags" : "the consumer's own code is plain");
    return broken == 0 ? 0 : 1;
}
