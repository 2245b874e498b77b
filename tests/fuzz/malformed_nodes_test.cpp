// SPDX-License-Identifier: Apache-2.0
// Runs nodes that fuzzing or reading found broken, in their smallest form: each read or wrote out of bounds, ran for minutes, or was
// undefined. Now each gives a sentence or a result.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <numbers>
#include <numeric>
#include <string>

#include "../graph/call_op.hpp"

using namespace qk::graph;
using qk_test::attributes;
using qk_test::call_op;
using qk_test::scalar;
using qk_test::values;
using ints = std::vector<std::int64_t>;

namespace {

std::string sentence(const std::string& op, int version, const std::vector<tensor>& inputs, const attributes& given = {},
                     std::size_t outputs = 1) {
    try {
        static_cast<void>(call_op(op, version, inputs, given, outputs));
    } catch (const error& e) {
        return e.what();
    }
    return "";
}
bool says(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos && text.find("node '") != std::string::npos;
}

tensor floats(dims shape) {
    tensor t(data_type::float32, std::move(shape));
    for (std::size_t i = 0; i < t.size(); ++i) t.as<float>()[i] = static_cast<float>(i % 7) - 3;
    return t;
}

}  // namespace

TEST_CASE("Attention: more valid keys than there are") {
    const auto run = [](std::int64_t valid) {
        return sentence("Attention", 24,
                        {floats({1, 2, 3, 4}), floats({1, 2, 5, 4}), floats({1, 2, 5, 4}), {}, {}, {}, values<std::int64_t>({1}, {valid})});
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
    CHECK(says(
        sentence("DequantizeLinear", 13, {values<std::int8_t>({2, 3}, {1, 2, 3, 4, 5, 6}), scales, zeros}, {{"axis", std::int64_t{1}}}),
        "zero point has 2 elements"));
}

TEST_CASE("ConvTranspose and pools: kernels of absurd length") {
    for (const char* op : {"AveragePool", "MaxPool"})
        CHECK(says(sentence(op, 11, {floats({1, 1, 4, 4})}, {{"kernel_shape", ints{std::int64_t{1} << 40, 2}}}), "a kernel of length"));
    CHECK(says(sentence("ConvTranspose", 11, {floats({1, 1, 4, 4}), floats({1, 1, 3, 3})}, {{"output_padding", ints{INT64_MAX, 0}}}),
               "out of range"));
    CHECK(says(
        sentence("ConvTranspose", 11, {floats({1, 1, 4, 4}), floats({1, 1, 3, 3})}, {{"output_shape", ints{std::int64_t{1} << 40, 4}}}),
        "out of range"));
}

TEST_CASE("com.microsoft QLinearAveragePool: padding far beyond the input") {
    const tensor x = values<std::uint8_t>({1, 1, 2, 2}, {10, 20, 30, 40}), s = scalar(1.0f), z = scalar<std::uint8_t>(0);
    const auto y = call_op("com.microsoft:QLinearAveragePool", 1, {x, s, z, s, z},
                           {{"kernel_shape", ints{1 << 20, 1 << 20}},
                            {"pads", ints{1 << 20, 1 << 20, 1 << 20, 1 << 20}},
                            {"strides", ints{1 << 19, 1 << 19}}})[0];
    CHECK(y.shape() == dims{1, 1, 3, 3});
    CHECK(y.as<std::uint8_t>()[4] == 25);  // the window that holds all four
}

TEST_CASE("integer products: zero points of another type, codes that are none, products that float32 does not hold") {
    const tensor a = values<std::uint8_t>({1, 2}, {3, 3}), b = values<std::uint8_t>({2, 1}, {3, 3}), s = scalar(1.0f),
                 z = scalar<std::uint8_t>(3);
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
    const tensor a = values<std::uint8_t>({1, 2}, {3, 3}), b = values<std::uint8_t>({2, 1}, {3, 3}), s = scalar(1.0f),
                 z = scalar<std::uint8_t>(3);
    CHECK(call_op("QLinearMatMul", 10, {a, s, z, b, s, z, scalar(0.0f), z})[0].as<std::uint8_t>()[0] == 0);  // 0 * Inf
    CHECK(call_op("QLinearMatMul", 10, {a, scalar(nan), z, b, s, z, s, z})[0].as<std::uint8_t>()[0] == 0);
    const auto lowest = std::numeric_limits<std::int64_t>::min();
    CHECK(call_op("Pow", 15, {values<std::int64_t>({1}, {-2}), scalar(0.5f)})[0].as<std::int64_t>()[0] == lowest);
    CHECK(call_op("Pow", 15, {values<std::int64_t>({1}, {2}), scalar(infinity)})[0].as<std::int64_t>()[0] ==
          std::numeric_limits<std::int64_t>::max());
    const tensor bytes = values<std::int8_t>({2}, {-100, 100});
    CHECK(call_op("Clip", 6, {bytes})[0].as<std::int8_t>()[1] == 100);
    CHECK(call_op("Clip", 6, {bytes}, {{"min", -5.5f}, {"max", 1e30f}})[0].as<std::int8_t>()[0] == -5);
    CHECK(call_op("Clip", 6, {bytes}, {{"max", nan}})[0].as<std::int8_t>()[0] == -128);
    CHECK(call_op("ReduceLogSum", 18, {values<std::int64_t>({1}, {0})})[0].as<std::int64_t>()[0] == lowest);
    CHECK(call_op("ReduceL2", 18, {values<std::int64_t>({1}, {lowest})})[0].size() == 1);
    CHECK(says(sentence("MaxRoiPool", 1, {floats({1, 1, 4, 4}), values<float>({1, 5}, {1e30f, 0, 0, 1, 1})},
                        {{"pooled_shape", ints{1, 1}}, {"spatial_scale", 0.0f}}),
               "finite"));
    const tensor spectrum = call_op("DFT", 17, {values<std::uint32_t>({1, 2, 1}, {1, 4})}, {{"axis", std::int64_t{1}}})[0];
    CHECK(spectrum.as<std::uint32_t>()[2] == 0xfffffffdu);  // 1 - 4
    CHECK(call_op("Shrink", 9, {values<std::uint8_t>({1}, {200})}, {{"bias", 300.0f}, {"lambd", 0.5f}})[0].as<std::uint8_t>()[0] ==
          156);  // -100
    const tensor ones = floats({2, 2});
    CHECK(call_op("Trilu", 14, {ones, scalar(infinity)})[0].as<float>()[1] == 0.0f);
    CHECK(says(sentence("CumSum", 11, {ones, scalar(nan)}), "outside a rank"));
    const tensor hot = call_op("OneHot", 9, {values<float>({3}, {nan, 1e30f, 1}), scalar<std::int64_t>(2), values<float>({2}, {0, 7})})[0];
    CHECK(std::accumulate(hot.as<float>().begin(), hot.as<float>().end(), 0.0f) == 7.0f);
    const attributes wide{{"shape", ints{3}}, {"dtype", std::int64_t{3}}, {"low", -1e30f}, {"high", 1e30f}};
    CHECK(call_op("RandomUniform", 1, {}, wide)[0].size() == 3);
    CHECK(sentence("Resize", 18, {floats({1, 4}), {}, {}, values<std::int64_t>({2}, {INT64_MAX, 1})},
                   {{"keep_aspect_ratio_policy", std::string("not_smaller")}}) != "");
    CHECK(says(sentence("QLinearMatMul", 21, {a, s, z, b, s, z, s, scalar(nan)}), "not int8 or uint8"));
    const tensor sum = call_op("com.microsoft:QLinearAdd", 1, {a, s, z, a, s, z, scalar(0.0f), z})[0];  // 0 / 0
    CHECK(sum.as<std::uint8_t>()[0] == 0);
    const tensor big = values<std::int32_t>({1, 1}, {1 << 30}), one = values<std::int32_t>({1, 1}, {1});
    CHECK(call_op("Gemm", 13, {big, one}, {{"alpha", 1e30f}})[0].size() == 1);
}

TEST_CASE("integers that overflow wrap") {
    CHECK(call_op("PRelu", 16, {values<std::int32_t>({1}, {-3}), values<std::int32_t>({1}, {1 << 30})})[0].as<std::int32_t>()[0] ==
          1 << 30);
    const tensor longest = values<std::int64_t>({1}, {INT64_MIN});  // the lowest code of 64 bits
    CHECK(call_op("Resize", 18, {longest, {}, {}, values<std::int64_t>({1}, {2})})[0].as<std::int64_t>()[1] == INT64_MIN);
    const tensor big = values<std::int32_t>({1, 1}, {1 << 30}), one = values<std::int32_t>({1, 1}, {1});
    CHECK(call_op("Gemm", 13, {big, one}, {{"alpha", 3.0f}})[0].as<std::int32_t>()[0] == -(1 << 30));
    CHECK(call_op("Gemm", 13, {big, one, big})[0].as<std::int32_t>()[0] == std::numeric_limits<std::int32_t>::min());
    CHECK(says(sentence("DequantizeLinear", 10, {values<std::int64_t>({1}, {INT64_MIN}), scalar(1.0f), scalar<std::int64_t>(1)}),
               "cannot dequantize int64"));
    CHECK(says(sentence("com.amd.quark:ExtendedDequantizeLinear", 1, {values<std::int8_t>({1}, {1}), scalar(1.0f), scalar(INT32_MIN)}),
               "a zero point of type int32 does not fit codes of type int8"));
}

TEST_CASE("means of more integers than the type counts") {
    std::vector<std::int8_t> some(256, 0);
    some[0] = 100;
    const attributes all{{"keepdims", std::int64_t{0}}};
    CHECK(call_op("ReduceMean", 13, {values<std::int8_t>({256}, some)}, all)[0].as<std::int8_t>()[0] == 0);
    CHECK(call_op("ReduceMean", 13, {values<std::int8_t>({64}, {some.begin(), some.begin() + 64})}, all)[0].as<std::int8_t>()[0] == 1);
    CHECK(call_op("Mean", 13, std::vector<tensor>(256, values<std::uint8_t>({1}, {1})))[0].as<std::uint8_t>()[0] == 0);
}

TEST_CASE("axes, offsets and seeds at the ends of int64") {
    const tensor diagonal = call_op("EyeLike", 9, {floats({2, 2})}, {{"k", INT64_MAX}})[0];
    CHECK(std::accumulate(diagonal.as<float>().begin(), diagonal.as<float>().end(), 0.0f) == 0.0f);
    const auto two = [](std::int64_t u, std::int64_t v) { return values<std::int64_t>({2}, {u, v}); };
    CHECK(says(sentence("Slice", 13, {floats({100}), two(90, 90), two(95, 95), two(0, 0)}), "axis 0 twice"));
    CHECK(says(sentence("ReverseSequence", 10, {floats({2, 2}), two(1, 1)}, {{"time_axis", INT64_MAX}, {"batch_axis", INT64_MAX}}),
               "must be 0 and 1"));
    CHECK(says(sentence("SpaceToDepth", 13, {floats({1, 4, 0, 0})}, {{"blocksize", std::int64_t{1} << 40}}), "blocksize"));
    CHECK(call_op("Dropout", 13, {floats({4}), scalar(0.5f), scalar(true)}, {{"seed", INT64_MAX}})[0].size() == 4);
    CHECK(sentence("Multinomial", 7, {floats({1, 4})}, {{"sample_size", std::int64_t{1} << 41}}) != "");
    const tensor cache = floats({1, 1, 4, 1}), update = floats({1, 1, 2, 1}), last = values<std::int64_t>({1}, {INT64_MAX});
    CHECK(says(sentence("TensorScatter", 24, {cache, update, last}), "outside the cache"));
    CHECK(sentence("TensorScatter", 24, {cache, update, last}, {{"mode", std::string("circular")}}) == "");
    CHECK(says(sentence("LinearAttention", 27, {floats({1, 2, 0}), floats({1, 2, 0}), floats({1, 2, 4})},
                        {{"q_num_heads", INT64_MAX}, {"kv_num_heads", std::int64_t{1}}}),
               "q_num_heads"));
    CHECK(says(sentence("com.microsoft:MatMulNBits", 1, {floats({1, 4}), values<std::uint8_t>({1, 1, 2}, {0, 0}), scalar(1.0f)},
                        {{"K", std::int64_t{4}}, {"N", std::int64_t{1}}, {"block_size", INT64_MAX}}),
               "block_size"));
}

TEST_CASE("windows: sums and products of absurd pads, groups and kernels") {
    const tensor x = floats({1, 1, 4, 4}), w = floats({1, 1, 3, 3});
    const std::int64_t far = std::int64_t{1} << 31;
    CHECK(sentence("Conv", 11, {x, w}, {{"pads", ints{far, far, far, far}}}) != "");
    CHECK(says(sentence("Conv", 11, {x, floats({0, 3, 1, 1})}, {{"group", INT64_MAX}}), "does not fit weights"));
    CHECK(says(sentence("ConvInteger", 10, {values<std::uint8_t>({1, 1, 1}, {1}), qk_test::zero_of(data_type::uint8, {0, 3, 1})},
                        {{"group", INT64_MAX}}),
               "does not fit x"));
    CHECK(
        says(sentence("ConvTranspose", 11, {floats({1, 0, 2, 2}), floats({0, 3, 1, 1})}, {{"group", INT64_MAX}}), "does not fit weights"));
    CHECK(says(sentence("DeformConv", 19, {floats({1, 0, 2, 2}), floats({0, 3, 1, 1}), floats({1, 2, 2, 2})}, {{"group", INT64_MAX}}),
               "group"));
    CHECK(says(sentence("GroupNormalization", 21, {floats({2, 0, 3}), floats({0}), floats({0})}, {{"num_groups", INT64_MAX}}),
               "do not divide"));
    CHECK(says(sentence("Col2Im", 18, {floats({1, 1, 16}), values<std::int64_t>({2}, {4, 4}), values<std::int64_t>({2}, {1, 1})},
                        {{"pads", ints{INT64_MAX, 0, INT64_MAX, 0}}}),
               "pads"));
    CHECK(says(sentence("MaxUnpool", 11, {x, values<std::int64_t>({1, 1, 4, 4}, ints(16))}, {{"kernel_shape", ints{INT64_MAX, 1}}}),
               "a kernel of length"));
    const dims nine(11, 1);
    dims grid = nine;
    grid.back() = 9;
    CHECK(says(sentence("GridSample", 20, {floats(nine), floats(grid)}), "8 spatial axes"));
    const float nan = std::numeric_limits<float>::quiet_NaN();
    CHECK(
        call_op("DeformConv", 19, {floats({1, 1, 1, 1}), floats({1, 1, 1, 1}), values<float>({1, 2, 1, 1}, {nan, 0})})[0].as<float>()[0] ==
        0.0f);
}

TEST_CASE("images without pixels") {
    CHECK(says(sentence("RoiAlign", 16, {floats({1, 1, 0, 5}), values<float>({1, 4}, {0, 0, 1, 1}), values<std::int64_t>({1}, {0})}),
               "no pixels"));
    CHECK(says(sentence("GridSample", 20, {floats({1, 1, 0, 5}), floats({1, 2, 2, 2})}, {{"padding_mode", std::string("border")}}),
               "no pixels"));
    const auto pooled = call_op("MaxPool", 12, {floats({1, 1, 0, 1})},
                                {{"kernel_shape", ints{1, 1}}, {"pads", ints{1, 1, 1, 1}}, {"storage_order", std::int64_t{1}}}, 2);
    CHECK(pooled[0].as<float>()[0] == -std::numeric_limits<float>::infinity());
    CHECK(pooled[1].shape() == dims{1, 1, 2, 3});
}

TEST_CASE("many tuples and rows of nothing") {
    const std::int64_t many = 1 << 27;
    CHECK(call_op("GatherND", 13, {floats({0}), qk_test::zero_of(data_type::int64, {many, 0})})[0].shape() == dims{many, 0});
    CHECK(sentence("ScatterND", 18, {floats({0}), qk_test::zero_of(data_type::int64, {many, 0}), floats({many, 0})}) == "");
    CHECK(call_op("MatMul", 13, {floats({many, 0, 1}), floats({1, 1})})[0].shape() == dims{many, 0, 1});
    CHECK(call_op("TopK", 11, {floats({0, many}), values<std::int64_t>({1}, {1})}, {}, 2)[0].shape() == dims{0, 1});
    CHECK_THROWS_AS(floats({0, many, 4}), error);
    CHECK_THROWS_AS(floats({many, many, 0}), error);
}

TEST_CASE("BitCast to bool leaves 0 and 1") {
    const tensor y = call_op("BitCast", 26, {values<std::uint8_t>({3}, {0, 1, 200})}, {{"to", std::int64_t{9}}})[0];
    CHECK(y.as<std::uint8_t>()[2] == 1);
}
