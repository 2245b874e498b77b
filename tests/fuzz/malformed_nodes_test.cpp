// SPDX-License-Identifier: Apache-2.0
// Nodes that fuzzing broke, smallest form: each read or wrote out of bounds, ran for minutes, or was undefined; now a sentence or a result.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <numbers>
#include <string>

#include "../graph/call_op.hpp"

using namespace qk::graph;
using qk_test::attributes;
using qk_test::call_op;
using qk_test::scalar;
using qk_test::values;
using ints = std::vector<std::int64_t>;

namespace {

std::string sentence(const std::string& op, int version, const std::vector<tensor>& inputs, const attributes& given = {}, std::size_t outputs = 1) {
    try {
        static_cast<void>(call_op(op, version, inputs, given, outputs));
    } catch (const error& e) {
        return e.what();
    }
    return "";
}
bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos && text.find("node '") != std::string::npos; }

tensor floats(dims shape) {
    tensor t(data_type::float32, std::move(shape));
    for (std::size_t i = 0; i < t.size(); ++i) t.as<float>()[i] = static_cast<float>(i % 7) - 3;
    return t;
}

}  // namespace

TEST_CASE("Attention: more valid keys than there are") {
    const auto run = [](std::int64_t valid) {
        return sentence("Attention", 24, {floats({1, 2, 3, 4}), floats({1, 2, 5, 4}), floats({1, 2, 5, 4}), {}, {}, {}, values<std::int64_t>({1}, {valid})});
    };
    CHECK(run(5) == "");
    CHECK(says(run(6), "nonpad_kv_seqlen holds 6"));
    CHECK(says(run(-1), "nonpad_kv_seqlen holds -1"));
}

TEST_CASE("Split: parts beyond the axis, and a billion of them") {
    CHECK(says(sentence("Split", 13, {floats({6}), values<std::int64_t>({2}, {7, -1})}, {}, 2), "length 7"));
    CHECK(says(sentence("Split", 13, {floats({6}), values<std::int64_t>({2}, {INT64_MAX, INT64_MAX})}, {}, 2), "does not fit"));
    CHECK(says(sentence("Split", 18, {floats({6})}, {{"num_outputs", std::int64_t{1} << 40}}, 2), "number of parts"));
}

TEST_CASE("Einsum: a label of length 1 that the output lacks") {
    const auto y = call_op("Einsum", 12, {floats({1, 3}), floats({3})}, {{"equation", std::string("ij,j->j")}})[0];
    CHECK(y.shape() == dims{3});
    CHECK(y.as<float>()[0] == 9.0f);
    CHECK(says(sentence("Einsum", 12, {floats({2, 3}), floats({3})}, {{"equation", std::string("ij,j->k")}}), "label"));
    CHECK(says(sentence("Einsum", 12, {floats({2, 3})}, {{"equation", std::string("ii->i")}}), "two lengths"));
}

TEST_CASE("LinearAttention: decay of another rank") {
    CHECK(says(sentence("LinearAttention", 27, {floats({1, 2, 4}), floats({1, 2, 4}), floats({1, 2, 4}), {}, floats({2})},
                        {{"q_num_heads", std::int64_t{1}}, {"kv_num_heads", std::int64_t{1}}, {"update_rule", std::string("gated")}}),
               "decay has shape [2]"));
}

TEST_CASE("QuantizeLinear, DequantizeLinear: zero points that are fewer or more than the scales") {
    const tensor scales = values<float>({3}, {0.5f, 0.25f, 1}), zeros = values<std::int8_t>({2}, {1, 2});
    CHECK(says(sentence("QuantizeLinear", 13, {floats({2, 3}), scales, zeros}, {{"axis", std::int64_t{1}}}), "zero point has 2 elements"));
    CHECK(says(sentence("DequantizeLinear", 13, {values<std::int8_t>({2, 3}, {1, 2, 3, 4, 5, 6}), scales, zeros}, {{"axis", std::int64_t{1}}}), "zero point has 2 elements"));
}

TEST_CASE("ConvTranspose and pools: kernels of absurd length") {
    for (const char* op : {"AveragePool", "MaxPool"})
        CHECK(says(sentence(op, 11, {floats({1, 1, 4, 4})}, {{"kernel_shape", ints{std::int64_t{1} << 40, 2}}}), "a kernel of length"));
    CHECK(says(sentence("ConvTranspose", 11, {floats({1, 1, 4, 4}), floats({1, 1, 3, 3})}, {{"output_padding", ints{INT64_MAX, 0}}}), "out of range"));
    CHECK(says(sentence("ConvTranspose", 11, {floats({1, 1, 4, 4}), floats({1, 1, 3, 3})}, {{"output_shape", ints{std::int64_t{1} << 40, 4}}}), "out of range"));
}

TEST_CASE("TfIdfVectorizer: grams far longer than the row") {
    const attributes given{{"pool_int64s", ints{1, 2, 1, 2}}, {"ngram_counts", ints{0, 2}}, {"ngram_indexes", ints{0, 1, 2}}, {"mode", std::string("TF")},
                           {"min_gram_length", std::int64_t{1}}, {"max_gram_length", std::int64_t{1} << 40}, {"max_skip_count", INT64_MAX}};
    const auto y = call_op("TfIdfVectorizer", 9, {values<std::int64_t>({4}, {1, 2, 3, 1})}, given)[0];
    CHECK(y.shape() == dims{3});
    CHECK(y.as<float>()[0] == 2.0f);
}

TEST_CASE("com.microsoft QLinearAveragePool: padding far beyond the input") {
    const tensor x = values<std::uint8_t>({1, 1, 2, 2}, {10, 20, 30, 40}), s = scalar(1.0f), z = scalar<std::uint8_t>(0);
    const auto y = call_op("com.microsoft:QLinearAveragePool", 1, {x, s, z, s, z},
                           {{"kernel_shape", ints{1 << 20, 1 << 20}}, {"pads", ints{1 << 20, 1 << 20, 1 << 20, 1 << 20}}, {"strides", ints{1 << 19, 1 << 19}}})[0];
    CHECK(y.shape() == dims{1, 1, 3, 3});
    CHECK(y.as<std::uint8_t>()[4] == 25);  // the window that holds all four
}

TEST_CASE("integer products: zero points of another type, codes that are none, products that float32 does not hold") {
    const tensor a = values<std::uint8_t>({1, 2}, {3, 3}), b = values<std::uint8_t>({2, 1}, {3, 3}), s = scalar(1.0f), z = scalar<std::uint8_t>(3);
    CHECK(says(sentence("QLinearMatMul", 21, {a, s, scalar(1e6f), b, s, z, s, z}), "zero point of type float32"));
    CHECK(says(sentence("MatMulInteger", 10, {floats({1, 2}), b}), "no integer of 8 or 16 bits"));
    CHECK(says(sentence("ConvInteger", 10, {floats({1, 1, 2, 2}), values<std::uint8_t>({1, 1, 1, 1}, {1})}), "no integer of 8 or 16 bits"));
    const tensor wide = values<std::int16_t>({1, 2}, {32767, 32766}), column = values<std::int16_t>({2, 1}, {32767, 3});
    CHECK(call_op("MatMulInteger", 10, {wide, column})[0].as<std::int32_t>()[0] == 32767 * 32767 + 32766 * 3);
}

TEST_CASE("SkipLayerNormalization of a scalar") {
    CHECK(says(sentence("com.microsoft:SkipLayerNormalization", 1, {scalar(1.0f), scalar(1.0f), floats({4})}), "scalar"));
}

TEST_CASE("DFT of a long odd length is quick and right") {
    const std::size_t n = 1001;
    tensor x(data_type::float64, {1, static_cast<std::int64_t>(n), 2});
    for (std::size_t i = 0; i < x.size(); ++i) x.as<double>()[i] = std::sin(static_cast<double>(i * i % 97));
    for (const std::int64_t inverse : {0, 1}) {
        const auto y = call_op("DFT", 17, {x}, {{"axis", std::int64_t{1}}, {"inverse", inverse}})[0];
        for (const std::size_t k : {std::size_t{0}, std::size_t{1}, std::size_t{500}, n - 1}) {
            std::complex<double> sum = 0;
            for (std::size_t j = 0; j < n; ++j)
                sum += std::complex(x.as<double>()[2 * j], x.as<double>()[2 * j + 1]) *
                       std::polar(1.0, (inverse ? 2 : -2) * std::numbers::pi * static_cast<double>(j * k % n) / static_cast<double>(n));
            if (inverse) sum /= static_cast<double>(n);
            CHECK(std::abs(sum - std::complex(y.as<double>()[2 * k], y.as<double>()[2 * k + 1])) < 1e-11 * static_cast<double>(n));
        }
    }
    tensor longer(data_type::float64, {1, (1 << 17) + 29, 1});  // odd: a direct sum would take 2^34 sines
    std::fill(longer.as<double>().begin(), longer.as<double>().end(), 1.0);
    const auto y = call_op("DFT", 17, {longer}, {{"axis", std::int64_t{1}}})[0];
    CHECK(std::abs(y.as<double>()[0] - static_cast<double>(longer.size())) < 1e-5);
    CHECK(std::abs(y.as<double>()[2]) < 1e-5);
}

TEST_CASE("integers from floats that no integer holds") {
    const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
    const tensor a = values<std::uint8_t>({1, 2}, {3, 3}), b = values<std::uint8_t>({2, 1}, {3, 3}), s = scalar(1.0f), z = scalar<std::uint8_t>(3);
    CHECK(call_op("QLinearMatMul", 10, {a, s, z, b, s, z, scalar(0.0f), z})[0].as<std::uint8_t>()[0] == 0);  // 0 * Inf
    CHECK(call_op("QLinearMatMul", 10, {a, scalar(nan), z, b, s, z, s, z})[0].as<std::uint8_t>()[0] == 0);
    const auto lowest = std::numeric_limits<std::int64_t>::min();
    CHECK(call_op("Pow", 15, {values<std::int64_t>({1}, {-2}), scalar(0.5f)})[0].as<std::int64_t>()[0] == lowest);
    CHECK(call_op("Pow", 15, {values<std::int64_t>({1}, {2}), scalar(infinity)})[0].as<std::int64_t>()[0] == std::numeric_limits<std::int64_t>::max());
    const tensor bytes = values<std::int8_t>({2}, {-100, 100});
    CHECK(call_op("Clip", 6, {bytes})[0].as<std::int8_t>()[1] == 100);
    CHECK(call_op("Clip", 6, {bytes}, {{"min", -5.5f}, {"max", 1e30f}})[0].as<std::int8_t>()[0] == -5);
    CHECK(call_op("Clip", 6, {bytes}, {{"max", nan}})[0].as<std::int8_t>()[0] == -128);
    CHECK(call_op("ReduceLogSum", 18, {values<std::int64_t>({1}, {0})})[0].as<std::int64_t>()[0] == lowest);
    CHECK(call_op("ReduceL2", 18, {values<std::int64_t>({1}, {lowest})})[0].size() == 1);
    CHECK(says(sentence("MaxRoiPool", 1, {floats({1, 1, 4, 4}), values<float>({1, 5}, {1e30f, 0, 0, 1, 1})}, {{"pooled_shape", ints{1, 1}}, {"spatial_scale", 0.0f}}), "finite"));
}
