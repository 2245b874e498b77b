// SPDX-License-Identifier: Apache-2.0
// QuantizeLinear and DequantizeLinear agree with qk's kernels and ONNX Runtime's goldens; integer products agree with plain integer sums.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <limits>
#include <random>

#include "../data_folders.hpp"
#include "call_op.hpp"
#include "graph/base/kernel_calls.hpp"
#include "graph/ops/elements.hpp"
#include "qk/graph/files/npy.hpp"

namespace fs = std::filesystem;
using namespace qk::graph;
using namespace qk_test;

namespace {

bool same(float a, float b) {
    return (std::isnan(a) && std::isnan(b)) || std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

/// Returns normally distributed values, multiples of 1/8 (exact ties), and zeros, Inf, NaN, very large and subnormal values.
std::vector<float> samples(std::size_t n, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 3);
    std::vector<float> v(n);
    for (std::size_t i = 0; i < n; ++i)
        v[i] = i % 3 == 0 ? 0.125f * static_cast<float>(static_cast<int>(random() % 129) - 64) : normal(random);
    const float special[] = {0.0f, -0.0f, INFINITY, -INFINITY, std::numeric_limits<float>::quiet_NaN(), 3e38f, -3e38f, 1e-40f};
    for (std::size_t i = 0; i < std::size(special) && i < n; ++i) v[(i * 13 + 5) % n] = special[i];
    return v;
}

std::size_t differences(std::span<const float> a, std::span<const float> b) {
    std::size_t n = 0;
    for (std::size_t i = 0; i < a.size(); ++i) n += !same(a[i], b[i]);
    return n;
}

tensor codes_of(data_type type, const std::vector<std::int64_t>& values_, dims shape) {
    tensor t(type, std::move(shape));
    ops::write_elements<std::int64_t>(std::span<const std::int64_t>(values_), type, t.bytes());
    return t;
}

qk::integer integer_of(data_type t) { return {.bits = ops::bits_of(t), .is_signed = ops::is_signed_integer(t)}; }

constexpr data_type integer_codes[] = {data_type::int2, data_type::uint2, data_type::int4,  data_type::uint4,
                                       data_type::int8, data_type::uint8, data_type::int16, data_type::uint16};

}  // namespace

TEST_CASE("a Q/DQ pair is fake_quantize under ONNX's semantics: per tensor, per axis, blocked") {
    const dims shape{3, 10, 7};
    const std::vector<float> x = samples(210, 1);
    for (const data_type type : integer_codes) {
        INFO(std::string(name_of(type)));
        const std::int64_t zero = ops::is_signed_integer(type) ? 1 : 2;
        {
            const tensor s = scalar(0.25f), z = codes_of(type, {zero}, {});
            const tensor q = call_op("QuantizeLinear", 25, {values(shape, x), s, z})[0];
            REQUIRE(q.type() == type);
            const tensor y = call_op("DequantizeLinear", 25, {q, s, z})[0];
            std::vector<float> expected(x.size());
            kernel_calls::fake_quantize(qk::format(integer_of(type)), x, expected, qk::affine{0.25f, zero}, qk::semantics::onnx);
            CHECK(differences(y.as<float>(), expected) == 0);
        }
        std::vector<float> scales(10);
        std::vector<std::int64_t> zeros(10);
        for (std::size_t i = 0; i < 10; ++i) scales[i] = 0.1f * static_cast<float>(i + 1), zeros[i] = static_cast<std::int64_t>(i % 2);
        {
            const tensor s = values<float>({10}, scales), z = codes_of(type, zeros, {10});
            const tensor q = call_op("QuantizeLinear", 25, {values(shape, x), s, z}, {{"axis", std::int64_t{-2}}})[0];
            const tensor y = call_op("DequantizeLinear", 25, {q, s, z}, {{"axis", std::int64_t{1}}})[0];
            std::vector<float> expected(x.size());
            kernel_calls::fake_quantize(qk::format(integer_of(type)), x, expected, qk::per_channel{scales, zeros, {3, 10, 7}},
                                        qk::semantics::onnx);
            CHECK(differences(y.as<float>(), expected) == 0);
        }
        {
            std::vector<float> grid(3 * 4 * 7);
            for (std::size_t i = 0; i < grid.size(); ++i) grid[i] = 0.05f * static_cast<float>(i % 11 + 1);
            const tensor s = values<float>({3, 4, 7}, grid);
            const attributes block{{"axis", std::int64_t{1}}, {"block_size", std::int64_t{3}}};
            attributes with_type = block;
            with_type.emplace_back("output_dtype", static_cast<std::int64_t>(type));
            const tensor q = call_op("QuantizeLinear", 25, {values(shape, x), s}, with_type)[0];
            const tensor y = call_op("DequantizeLinear", 25, {q, s}, block)[0];
            std::vector<float> expected(x.size());
            kernel_calls::fake_quantize(qk::format(integer_of(type)), x, expected, qk::per_block{grid, {}, {3, 10, 7}, 3},
                                        qk::semantics::onnx);
            CHECK(differences(y.as<float>(), expected) == 0);
        }
    }
}

TEST_CASE("float8 pairs are fake_quantize with a scale") {
    const std::vector<float> x = samples(300, 2);
    for (const data_type type : {data_type::float8e4m3fn, data_type::float8e4m3fnuz, data_type::float8e5m2, data_type::float8e5m2fnuz}) {
        const tensor s = scalar(0.3f), z = zero_of(type);
        const tensor y = call_op("DequantizeLinear", 25, {call_op("QuantizeLinear", 25, {values<float>({300}, x), s, z})[0], s, z})[0];
        std::vector<float> expected(x.size());
        kernel_calls::fake_quantize(qk::format(ops::format_of(type)), x, expected, qk::affine{0.3f}, qk::semantics::onnx);
        CHECK(differences(y.as<float>(), expected) == 0);
    }
}

TEST_CASE("scales that do not fit name the node and the shapes") {
    const tensor x = zero_of(data_type::float32, {2, 3});
    CHECK_THROWS_WITH_AS(call_op("QuantizeLinear", 21, {x, values<float>({2}, {1, 1})}), doctest::Contains("does not fit axis 1 of [2,3]"),
                         error);
    CHECK_THROWS_WITH_AS(call_op("QuantizeLinear", 21, {x, values<float>({2, 2}, {1, 1, 1, 1})}, {{"block_size", std::int64_t{1}}}),
                         doctest::Contains("need a scale of shape [2,3]"), error);
    CHECK_THROWS_WITH_AS(call_op("QuantizeLinear", 21, {x, values<float>({3}, {1, 1, 1})}, {{"axis", std::int64_t{5}}}),
                         doctest::Contains("axis 5"), error);
}

TEST_CASE("ONNX Runtime's goldens") {
    struct golden {
        const char* name;
        data_type type;
        float scale;
        std::int64_t zero;
    };
    const golden all[] = {{"int4_s0.25_z0", data_type::int4, 0.25f, 0},
                          {"int16_s0.01_z0", data_type::int16, 0.01f, 0},
                          {"int8_s0.05_z3", data_type::int8, 0.05f, 3},
                          {"uint4_s0.3_z8", data_type::uint4, 0.3f, 8},
                          {"uint8_s0.123457_z128", data_type::uint8, 0.123457f, 128},
                          {"uint16_s0.01_z32768", data_type::uint16, 0.01f, 32768},
                          {"fp8_e4m3fn_s0.5", data_type::float8e4m3fn, 0.5f, 0},
                          {"fp8_e5m2_s2", data_type::float8e5m2, 2.0f, 0}};
    int files = 0;
    for (const fs::path& path : golden_files()) {
        const std::string file = path.filename().string();
        for (const golden& g : all) {
            const std::string start = std::string("onnxruntime.") + g.name + ".";
            if (!file.starts_with(start)) continue;
            const tensor x = read_npy(path.parent_path() / ("input." + file.substr(start.size()))), expected = read_npy(path);
            const tensor z = ops::is_integer_type(g.type) ? codes_of(g.type, {g.zero}, {}) : zero_of(g.type), s = scalar(g.scale);
            const tensor y = call_op("DequantizeLinear", 21, {call_op("QuantizeLinear", 21, {x, s, z})[0], s, z})[0];
            INFO(file);
            CHECK(differences(y.as<float>(), expected.as<float>()) == 0);
            ++files;
        }
    }
    CHECK(files > 0);
}

TEST_CASE("integer products are exact where float sums would round") {
    constexpr std::int64_t k = 3001;  // 3001 * 255 * 128 is far above 2^24
    std::mt19937 random(3);
    std::vector<std::uint8_t> a(2 * k);
    std::vector<std::int8_t> b(k * 3);
    for (auto& v : a) v = static_cast<std::uint8_t>(random() % 64 + 192);
    for (auto& v : b) v = static_cast<std::int8_t>(random() % 32 + 96);
    const tensor y = call_op("MatMulInteger", 10,
                             {values<std::uint8_t>({2, k}, a), values<std::int8_t>({k, 3}, b), scalar<std::uint8_t>(1),
                              values<std::int8_t>({3}, {0, -3, 5})})[0];
    const std::int64_t zero[] = {0, -3, 5};
    for (std::int64_t i = 0; i < 2; ++i)
        for (std::int64_t j = 0; j < 3; ++j) {
            std::int64_t sum = 0;
            for (std::int64_t p = 0; p < k; ++p)
                sum += (a[static_cast<std::size_t>(i * k + p)] - 1) * (b[static_cast<std::size_t>(p * 3 + j)] - zero[j]);
            CHECK(y.as<std::int32_t>()[static_cast<std::size_t>(i * 3 + j)] == static_cast<std::int32_t>(sum));
        }
}

TEST_CASE("DynamicQuantizeLinear of constants and of one sign") {
    const auto zeros = call_op("DynamicQuantizeLinear", 11, {values<float>({3}, {0, 0, 0})}, {}, 3);
    CHECK(zeros[1].as<float>()[0] == 1.0f);
    CHECK(zeros[2].as<std::uint8_t>()[0] == 0);
    const auto positive = call_op("DynamicQuantizeLinear", 11, {values<float>({2}, {2.55f, 1})}, {}, 3);
    CHECK(positive[2].as<std::uint8_t>()[0] == 0);
    CHECK(positive[0].as<std::uint8_t>()[0] == 255);
}
