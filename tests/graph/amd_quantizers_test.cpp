// SPDX-License-Identifier: Apache-2.0
// AMD's quantizing operators: they reproduce Quark's goldens bit for bit; their attributes; and whole networks that Quark exported.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>

#include "../data_folders.hpp"
#include "call_op.hpp"
#include "output_errors.hpp"
#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/files/npy.hpp"

namespace fs = std::filesystem;
using namespace qk::graph;
using namespace qk_test;

namespace {

std::size_t differences(std::span<const float> a, std::span<const float> b) {
    std::size_t n = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        const bool same =
            (std::isnan(a[i]) && std::isnan(b[i])) || std::bit_cast<std::uint32_t>(a[i]) == std::bit_cast<std::uint32_t>(b[i]);
        n += !same;
    }
    return n;
}

std::int64_t rounding_mode(const std::string& name) { return name == "half_away" ? 0 : name == "half_up" ? 1 : 2; }

attributes bfp(const char* method, std::int64_t width, std::int64_t block, std::int64_t rounding) {
    return {{"bfp_method", std::string(method)},
            {"bit_width", width},
            {"block_size", block},
            {"axis", std::int64_t{1}},
            {"rounding_mode", rounding}};
}

}  // namespace

TEST_CASE("Quark's goldens through its operators") {
    int files = 0;
    for (const fs::path& path : golden_files()) {
        const std::string file = path.filename().string();  // quark.FORMAT.ROUNDING.CASE.npy
        if (!file.starts_with("quark.")) continue;
        const auto a = file.find('.') + 1, b = file.find('.', a) + 1, c = file.find('.', b) + 1;
        const std::string name = file.substr(a, b - a - 1), mode = file.substr(b, c - b - 1);
        const std::int64_t rounding = rounding_mode(mode);
        std::string op = "com.amd.quark:BFPQuantizeDequantize";
        attributes how;
        if (name == "bfp16") how = bfp("to_bfp", 16, 8, rounding);
        else if (name == "bfp_w13_b16") how = bfp("to_bfp", 13, 16, rounding);
        else if (name == "mx9") how = bfp("to_bfp_prime", 16, 16, rounding);
        else if (name == "mx6") how = bfp("to_bfp_prime", 13, 16, rounding);
        else if (name == "mx4") how = bfp("to_bfp_prime", 11, 16, rounding);
        else {
            op = "com.amd.quark:MXQuantizeDequantize";
            const std::string element = name == "mxint8" ? "int8" : name.substr(2);
            how = {{"element_dtype", element}, {"block_size", std::int64_t{32}}, {"axis", std::int64_t{1}}, {"rounding_mode", rounding}};
        }
        const tensor x = read_npy(path.parent_path() / ("input." + file.substr(c))), expected = read_npy(path);
        INFO(file);
        CHECK(differences(call_op(op, 1, {x}, how)[0].as<float>(), expected.as<float>()) == 0);
        ++files;
    }
    CHECK(files > 0);
}

TEST_CASE("axes, vectors, single elements, aliases") {
    std::vector<float> v(48);
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = std::sin(static_cast<float>(i) * 1.7f) * static_cast<float>(i);
    const attributes along0{{"bfp_method", std::string("to_bfp")},
                            {"bit_width", std::int64_t{16}},
                            {"block_size", std::int64_t{8}},
                            {"axis", std::int64_t{0}},
                            {"rounding_mode", std::int64_t{2}}};
    std::vector<float> transposed(48);
    for (std::size_t i = 0; i < 8; ++i)
        for (std::size_t j = 0; j < 6; ++j) transposed[j * 8 + i] = v[i * 6 + j];
    const tensor a = call_op("com.amd.quark:BFPQuantizeDequantize", 1, {values<float>({8, 6}, v)}, along0)[0];
    const tensor b = call_op("com.vai.quantize:BFPFixNeuron", 1, {values<float>({6, 8}, transposed)}, bfp("to_bfp", 16, 8, 2))[0];
    for (std::size_t i = 0; i < 8; ++i)
        for (std::size_t j = 0; j < 6; ++j) CHECK(a.as<float>()[i * 6 + j] == b.as<float>()[j * 8 + i]);
    // A vector has one axis, so the attribute is ignored; a tensor of one element passes through unchanged.
    CHECK_NOTHROW(call_op("com.vai.quantize:MXFixNeuron", 1, {values<float>({48}, v)},
                          {{"element_dtype", std::string("fp4_e2m1")}, {"axis", std::int64_t{3}}}));
    CHECK(call_op("com.amd.quark:MXQuantizeDequantize", 1, {values<float>({1, 1}, {1.2345f})},
                  {{"element_dtype", std::string("fp4_e2m1")}})[0]
              .as<float>()[0] == 1.2345f);
    CHECK_THROWS_WITH_AS(
        call_op("com.amd.quark:MXQuantizeDequantize", 1, {values<float>({48}, v)}, {{"element_dtype", std::string("fp5")}}),
        doctest::Contains("fp4_e2m1"), error);
}

TEST_CASE("ExtendedQuantizeLinear: the zero point's type is the format") {
    const tensor x = values<float>({5}, {1.0f, -70000.0f, 3.4e38f, INFINITY, std::numeric_limits<float>::quiet_NaN()});
    const auto trip = [&](const tensor& scale, const tensor& zero) {
        const tensor q = call_op("com.amd.quark:ExtendedQuantizeLinear", 1, {x, scale, zero})[0];
        const tensor y = call_op("com.vai.quantize:VitisDequantizeLinear", 1, {q, scale, zero})[0];
        return std::vector<float>(y.as<float>().begin(), y.as<float>().end());
    };
    const auto half_values = trip(scalar(4.0f), zero_of(data_type::float16));
    CHECK(half_values[0] == 1.0f);
    CHECK(half_values[1] == -65504.0f);
    CHECK(half_values[3] == 65504.0f);
    const auto brain_values = trip(scalar(1.0f), zero_of(data_type::bfloat16));
    CHECK(brain_values[0] == 1.0f);
    CHECK(std::isinf(brain_values[2]));
    const auto integer_values = trip(scalar(0.5f), scalar<std::int32_t>(0));
    CHECK(integer_values[1] == -70000.0f);
    CHECK(integer_values[3] == -1073741824.0f);  // Inf and NaN become the lowest code, times the scale
    CHECK(integer_values[4] == -1073741824.0f);
}

TEST_CASE("networks that Quark exported") {
    for (const fs::path& folder : data_with("quark_models")) {
        const fs::path original = residual_network(folder);
        const tensor input = read_npy(reference_of(original, "input.input")), plain = read_npy(reference_of(original, "output.logits"));
        for (const auto& entry : fs::directory_iterator(folder / "quark_models")) {
            if (entry.path().extension() != ".onnx") continue;
            INFO(entry.path().string());
            const model m = model::load(entry.path());
            const evaluator e(m, {.threads = 2});
            const tensor expected = read_npy(fs::path(entry.path()).replace_extension("").concat(".output.npy"));
            const tensor got = e.run({{m.inputs()[0].name, input}}).outputs.begin()->second;
            REQUIRE(got.shape() == expected.shape());
            const std::vector<float> errors = sorted_errors(got, expected);
            // BF16 models have bf16 outputs. Another instruction set sums in another order, which moves some by a step; the median by half
            // one.
            const bool brain = entry.path().stem().string().ends_with("BF16");
            CHECK(errors[errors.size() / 2] <= (brain ? 0x1p-9f : 1e-3f));
            CHECK(errors.back() <= std::max(5e-2f, sorted_errors(plain, expected).back()));
        }
    }
}
