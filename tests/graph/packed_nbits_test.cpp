// SPDX-License-Identifier: Apache-2.0
// MatMulNBits multiplies weights as they are packed, in the order of sums of qk/product.hpp, so that the bits are the same on every
// processor and for a row alone or among others; what does not stay packed is right within float32's rounding.
#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <cmath>
#include <random>

#include "call_op.hpp"

using namespace qk::graph;

namespace {

/// Weights of MatMulNBits, and what they are.
struct nbits_case {
    std::int64_t k, n, bits, block, blocks;
    tensor codes, scales, zero_codes;
    std::vector<float> weight;  ///< [n][k]

    nbits_case(std::int64_t columns, std::int64_t rows, std::int64_t width, std::int64_t size, bool zeros)
        : k(columns), n(rows), bits(width), block(size), blocks((k + size - 1) / size) {
        std::mt19937 random(static_cast<unsigned>(k * 31 + bits));
        const std::int64_t bytes = block * bits / 8, zero_bytes = (blocks * bits + 7) / 8;
        codes = tensor(data_type::uint8, {n, blocks, bytes});
        for (std::size_t i = 0; i < codes.size(); ++i) codes.bytes()[i] = static_cast<std::byte>(random());
        scales = tensor(data_type::float32, {n, blocks});
        for (float& s : scales.as<float>()) s = 0.01f + static_cast<float>(random() % 1000) / 1000;
        if (zeros) zero_codes = tensor(data_type::uint8, {n * zero_bytes});
        for (std::size_t i = 0; zeros && i < zero_codes.size(); ++i) zero_codes.bytes()[i] = static_cast<std::byte>(random());
        const auto code = [&](const tensor& t, std::int64_t from, std::int64_t i) {
            int v = 0;
            for (std::int64_t b = 0; b < bits; ++b) {
                const std::int64_t at = i * bits + b;
                v |= (std::to_integer<int>(t.bytes()[from + at / 8]) >> (at % 8) & 1) << b;
            }
            return v;
        };
        for (std::int64_t r = 0; r < n; ++r)
            for (std::int64_t c = 0; c < k; ++c) {
                const int zero = zeros ? code(zero_codes, r * zero_bytes, c / block) : 1 << (bits - 1);
                const float number = static_cast<float>(code(codes, r * blocks * bytes, c) - zero);
                weight.push_back(number * scales.as<float>()[static_cast<std::size_t>(r * blocks + c / block)]);
            }
    }
    tensor run(const tensor& a, const tensor& bias, const tensor& zeros, const tensor& groups = {}) const {
        return qk_test::call_op("com.microsoft:MatMulNBits", 1, {a, codes, scales, zeros, groups, bias},
                                {{"K", k}, {"N", n}, {"bits", bits}, {"block_size", block}})[0];
    }
    float sum(std::span<const float> a, std::int64_t row) const {
        std::array<float, 16> partial{};
        for (std::size_t c = 0; c < static_cast<std::size_t>(k); ++c)
            partial[c % 16] = std::fma(a[c], weight[static_cast<std::size_t>(row * k) + c], partial[c % 16]);
        for (std::size_t apart : {8u, 4u, 2u, 1u})
            for (std::size_t i = 0; i < apart; ++i) partial[i] += partial[i + apart];
        return partial[0];
    }
};

tensor normal_numbers(dims shape, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    tensor t(data_type::float32, std::move(shape));
    for (float& v : t.as<float>()) v = normal(random);
    return t;
}

}  // namespace

TEST_CASE("MatMulNBits has the bits of the order that is written down") {
    for (const std::int64_t bits : {2, 4, 8}) {
        for (const std::int64_t block : {16, 32, 128}) {
            for (const std::int64_t k : {64, 70, 515}) {
                for (const bool zeros : {false, true}) {
                    const nbits_case c(k, 19, bits, block, zeros);
                    const tensor a = normal_numbers({7, k}, 3), bias = normal_numbers({19}, 4);
                    for (const bool biased : {false, true}) {
                        const tensor y = c.run(a, biased ? bias : tensor(), c.zero_codes);
                        std::size_t wrong = 0;
                        for (std::size_t i = 0; i < y.size(); ++i) {
                            const auto row = a.as<float>().subspan(i / 19 * static_cast<std::size_t>(k), static_cast<std::size_t>(k));
                            float expected = c.sum(row, static_cast<std::int64_t>(i % 19));
                            if (biased) expected += bias.as<float>()[i % 19];
                            wrong += std::bit_cast<std::uint32_t>(expected) != std::bit_cast<std::uint32_t>(y.as<float>()[i]);
                        }
                        CHECK_MESSAGE(wrong == 0, "bits ", bits, ", block ", block, ", K ", k, ", zero points ", zeros);
                    }
                    tensor first(data_type::float32, {1, k});
                    std::copy_n(a.as<float>().begin(), k, first.as<float>().begin());
                    const tensor all = c.run(a, {}, c.zero_codes), alone = c.run(first, {}, c.zero_codes);
                    CHECK(std::equal(alone.as<float>().begin(), alone.as<float>().end(), all.as<float>().begin()));
                }
            }
        }
    }
}

TEST_CASE("MatMulNBits whose zero points are floats, or whose inputs name their block, is right, too") {
    const nbits_case c(64, 5, 4, 16, false);
    const tensor a = normal_numbers({2, 64}, 5);
    tensor eights(data_type::float32, {5, 4}), groups(data_type::int32, {64});
    for (float& v : eights.as<float>()) v = 8;
    for (std::size_t i = 0; i < 64; ++i) groups.as<std::int32_t>()[i] = static_cast<std::int32_t>(i / 16);
    const tensor packed = c.run(a, {}, {}), by_floats = c.run(a, {}, eights), by_groups = c.run(a, {}, {}, groups);
    for (std::size_t i = 0; i < packed.size(); ++i) {
        CHECK(by_floats.as<float>()[i] == doctest::Approx(packed.as<float>()[i]).epsilon(1e-4));
        CHECK(by_groups.as<float>()[i] == doctest::Approx(packed.as<float>()[i]).epsilon(1e-4));
    }
}

TEST_CASE("MatMulNBits takes scales that no quantizer has: below 0, 0, and NaN") {
    nbits_case c(64, 5, 4, 32, false);
    for (std::size_t i = 0; i < c.weight.size(); ++i)
        if (i < 32) c.weight[i] *= -2;
        else if (i < 64) c.weight[i] = 0;
    c.scales.as<float>()[0] *= -2, c.scales.as<float>()[1] = 0;
    const tensor a = normal_numbers({3, 64}, 3), y = c.run(a, {}, {});
    for (std::size_t r = 0; r < 3; ++r)
        for (std::int64_t n = 0; n < 5; ++n)
            CHECK(y.as<float>()[r * 5 + static_cast<std::size_t>(n)] ==
                  doctest::Approx(c.sum(a.as<float>().subspan(r * 64, 64), n)).epsilon(1e-5));
    c.scales.as<float>()[2] = std::nanf("");
    CHECK(std::isnan(c.run(a, {}, {}).as<float>()[1]));
    CHECK(c.run(a, {}, {}).as<float>()[0] == y.as<float>()[0]);
}
