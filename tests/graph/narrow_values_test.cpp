// SPDX-License-Identifier: Apache-2.0
// Narrow forms (values stored as bytes, pairs of bytes or bfloat16) hold every value of their format, and convolutions and products of
// narrow operands give the results of floats.
#include <doctest/doctest.h>
#include <onnx/onnx_pb.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <random>
#include <utility>

#include "build_model.hpp"
#include "graph/evaluate/execute/arena.hpp"
#include "graph/evaluate/execute/prepared_convolution.hpp"
#include "graph/evaluate/execute/quantize_value.hpp"
#include "qk/fake_quantize.hpp"
#include "qk/formats/parse.hpp"
#include "qk/graph/evaluate/evaluator.hpp"

using namespace qk::graph;
using execute::narrow_form;
using qk_test::random_tensor;

namespace {

quantizer under(const char* format, float scale = 0, std::int64_t zero_point = 0) {
    quantizer q;
    const auto parsed = qk::parse_format(format);
    REQUIRE_MESSAGE(static_cast<bool>(parsed), format);
    q.format = *parsed;
    q.axis = 1;
    if (scale != 0) q.scale = {scale};
    if (zero_point != 0) q.zero_point = {zero_point};
    return q;
}

float value_of(const narrow_form& form, const tensor& planes, std::size_t i) {
    const std::size_t n = planes.size() / static_cast<std::size_t>(form.planes);
    if (!form.whole) return std::bit_cast<float>(std::uint32_t{planes.as<brain>()[i].bits} << 16);
    const int upper = form.is_signed ? planes.as<std::int8_t>()[i] : planes.as<std::uint8_t>()[i];
    return static_cast<float>(form.planes == 1 ? upper : upper * 256 + planes.as<std::uint8_t>()[n + i]) * form.scale;
}

}  // namespace

TEST_CASE("which formats have a narrow form") {
    const auto form = [](const quantizer& q) { return execute::narrow_form_of(q); };
    const auto whole = [](bool is_signed, int planes, float scale) { return narrow_form{true, is_signed, planes, scale}; };
    CHECK(form(under("int8", 0.1f)) == whole(true, 1, 0.1f));
    CHECK(form(under("uint8", 0.1f)) == whole(false, 1, 0.1f));
    CHECK(form(under("int8", 0.1f, -128)) == whole(false, 1, 0.1f));
    CHECK(form(under("uint8", 0.1f, 128)) == whole(true, 1, 0.1f));
    CHECK(form(under("int4", 0.1f, 3)) == whole(true, 1, 0.1f));
    CHECK(form(under("int8", 0.1f, -20)) == whole(true, 2, 0.1f));  // values -108 to 147
    CHECK(form(under("int16", 0.1f)) == whole(true, 2, 0.1f));
    CHECK(form(under("int16", 0.1f, -32768)) == whole(false, 2, 0.1f));
    CHECK(form(under("uint16", 0.1f)) == whole(false, 2, 0.1f));
    for (const char* format : {"bf16", "bfp16", "mx9", "mx6", "mx4", "mxint8", "mxfp8_e4m3", "mxfp4", "float:exponent=8,mantissa=7"})
        CHECK(form(under(format)) == narrow_form{});
    CHECK(form(under("fp8_e4m3fn", 0.25f)) == narrow_form{});
    // These fit neither bytes nor bfloat16.
    for (const quantizer& q : {under("int16", 0.1f, 5), under("int32", 0.1f), under("int8"), under("fp16"), under("fp8_e4m3fn", 0.3f),
                               under("nvfp4"), under("bfp:block=8,exponent=8,mantissa=9"), under("int8", 1e-42f), under("int8", 1e35f)})
        CHECK(!form(q));
    quantizer channels = under("int8", 0.1f), dynamic = under("int8", 0.1f);
    channels.scale.push_back(0.2f);
    dynamic.dynamic = true;
    CHECK(!form(channels));
    CHECK(!form(dynamic));
}

TEST_CASE("a narrow form holds every value") {
    execute::arena memory(std::make_shared<memory_budget>(std::size_t{1} << 30));
    for (const float scale : {0.1f, 3.7e-5f, 1.0f, 1.9e-30f, 7.7e20f})
        for (const quantizer& q :
             {under("int8", scale), under("uint8", scale, 128), under("int8", scale, -20), under("int4", scale), under("int16", scale),
              under("int16", scale, -32768), under("uint16", scale), under("bf16"), under("bfp16"), under("mx9"), under("mx4"),
              under("mxint8"), under("mxfp8_e5m2"), under("fp8_e4m3fn", 0.25f)}) {
            const auto form = execute::narrow_form_of(q);
            REQUIRE(form);
            // Inputs reach every 16-bit code and beyond both ends.
            tensor x(data_type::float32, {70000}), y(data_type::float32, {70000});
            for (std::size_t i = 0; i < x.size(); ++i)
                x.as<float>()[i] = (static_cast<float>(i) - 35000) * (q.scale.empty() ? scale / 64 : scale);
            execute::quantize_value(q, x.shape(), false, x.as<float>(), y.as<float>());
            const tensor planes = execute::narrowed(*form, y.as<float>(), memory);
            std::size_t different = 0;
            for (std::size_t i = 0; i < y.size(); ++i) different += value_of(*form, planes, i) != y.as<float>()[i];
            CHECK(different == 0);
        }
}

#ifdef QK_HAVE_ONEDNN

TEST_CASE("weights: bytes with a scale for each channel, or bfloat16; what does not fit stays as it is") {
    const tensor w = random_tensor({6, 4, 3, 3}, 1, 0.5f);
    const narrow_form bytes{true, true, 1, 0.5f};
    const auto rounded = [&](const quantizer& q) {
        tensor y(data_type::float32, w.shape());
        execute::quantize_value(q, w.shape(), false, w.as<float>(), y.as<float>());
        return y;
    };
    quantizer q = under("int8");
    q.axis = 0;
    q.scale = {0.01f, 0.02f, 0.013f, 0.1f, 0.007f, 0.03f};
    const auto made = execute::narrow_weights_of(bytes, rounded(q), &q, 0, 4);
    REQUIRE(made);
    const tensor y = rounded(q);
    for (std::size_t i = 0; i < y.size(); ++i) {
        CHECK(static_cast<float>(made->values.as<std::int8_t>()[i]) * q.scale[i / 36] == y.as<float>()[i]);
        CHECK(made->scale[i / 36] == q.scale[i / 36] * 0.5f);
    }
    CHECK(!execute::narrow_weights_of(bytes, y, &q, 1, 4));       // scales are along another axis than the channels
    CHECK(!execute::narrow_weights_of(bytes, w, nullptr, 0, 4));  // float weights
    CHECK(!execute::narrow_weights_of(narrow_form{}, w, nullptr, 0, 4));
    const quantizer wide = under("int16", 0.0001f), tiny = under("int8", 1e-38f), bfp = under("bfp16");
    CHECK(!execute::narrow_weights_of(bytes, rounded(wide), &wide, 0, 4));
    CHECK(!execute::narrow_weights_of(bytes, rounded(tiny), &tiny, 0, 4));  // the products' scale is too small
    CHECK(!execute::narrow_weights_of(bytes, rounded(bfp), &bfp, 0, 4));
    CHECK(execute::narrow_weights_of(narrow_form{}, rounded(bfp), &bfp, 0, 4));
}

namespace {

/// A convolution and the nodes behind it.
struct kind {
    std::int64_t in, out, group, kernel, stride, dilation, pad, size;
    bool add, relu, bias;
};

/// Returns convolutions that once failed, and random ones.
std::vector<kind> kinds_of_convolutions() {
    std::vector<kind> kinds{{16, 16, 1, 3, 1, 1, 1, 20, true, true, true},
                            {16, 32, 1, 3, 2, 1, 1, 21, false, true, true},
                            {64, 64, 1, 3, 1, 1, 1, 8, true, false, true},
                            {3, 16, 1, 3, 1, 1, 1, 24, false, false, true},
                            {24, 40, 1, 1, 1, 1, 0, 13, true, true, false},
                            {32, 32, 32, 3, 1, 1, 1, 16, false, true, true},
                            {16, 24, 2, 3, 1, 2, 2, 17, true, true, true},
                            {7, 5, 1, 5, 1, 1, 2, 30, false, false, true},
                            {24, 40, 1, 1, 1, 1, 1, 13, false, true, true},
                            {48, 33, 1, 1, 1, 1, 2, 14, false, false, true},
                            {48, 33, 1, 1, 1, 1, 1, 14, true, true, false},
                            {66, 31, 1, 2, 3, 1, 0, 22, false, false, true},
                            {77, 32, 1, 2, 3, 1, 0, 23, true, true, true},  // these two failed with oneDNN 2.6 on AMX
                            // Tiles of 2 x 2 results that reach beyond the picture, output channels that fill no vector, other pads.
                            {16, 16, 1, 3, 1, 1, 1, 17, true, true, true},
                            {48, 33, 1, 3, 1, 1, 0, 12, false, true, true},
                            {32, 24, 1, 3, 1, 1, 2, 9, true, false, false},
                            {64, 40, 1, 3, 1, 1, 1, 7, false, false, true},
                            {16, 20, 1, 3, 1, 1, 1, 15, true, false, true}};
    // Random ones: QK_SHAPES of them (20 by default), drawn with the seed QK_SEED.
    const char* seed = std::getenv("QK_SEED");
    std::mt19937 random(seed != nullptr ? static_cast<unsigned>(std::atoi(seed)) : 7);
    const auto up_to = [&](std::int64_t n) { return 1 + static_cast<std::int64_t>(random()) % n; };
    const char* more = std::getenv("QK_SHAPES");
    for (int i = more != nullptr ? std::atoi(more) : 20; i > 0; --i) {
        kind k{up_to(80), up_to(80), 1, up_to(5), up_to(3), up_to(2), 0, 0, up_to(2) == 1, up_to(2) == 1, up_to(2) == 1};
        if (up_to(4) == 1) k.group = up_to(8), k.in *= k.group, k.out *= k.group;
        if (up_to(8) == 1) k.group = k.in = k.out = up_to(70);
        k.pad = up_to(k.kernel) - 1;
        k.size = k.dilation * (k.kernel - 1) + up_to(24);
        kinds.push_back(k);
    }
    return kinds;
}

}  // namespace

namespace {

bool same_bits(const tensor& a, const tensor& b) {
    return a.shape() == b.shape() && std::memcmp(a.bytes(), b.bytes(), a.size_bytes()) == 0;
}

/// Returns what every processor must compute: the integer sum, plus the bias divided by the products' scale, times that scale; then the
/// addend and Relu, if any.
tensor sums_of_integers(const kind& k, const named_tensors& inputs, const dims& w_shape, const tensor& weights, const quantizer& x_format,
                        const quantizer& w_format, const tensor& bias) {
    const tensor& x = inputs.at("x");
    tensor values(data_type::float32, x.shape());
    execute::quantize_value(x_format, x.shape(), false, x.as<float>(), values.as<float>());
    const float x_scale = x_format.scale[0], w_scale = w_format.scale[0], scale = w_scale * x_scale;
    const std::int64_t side = (k.size + 2 * k.pad - k.dilation * (k.kernel - 1) - 1) / k.stride + 1, per_group = w_shape[1];
    tensor y(data_type::float32, {1, k.out, side, side});
    float* to = y.as<float>().data();
    for (std::int64_t o = 0; o < k.out; ++o)
        for (std::int64_t i = 0; i < side; ++i)
            for (std::int64_t j = 0; j < side; ++j, ++to) {
                std::int64_t sum = 0;
                for (std::int64_t c = 0; c < per_group; ++c)
                    for (std::int64_t r = 0; r < k.kernel; ++r)
                        for (std::int64_t s = 0; s < k.kernel; ++s) {
                            const std::int64_t row = i * k.stride - k.pad + r * k.dilation, column = j * k.stride - k.pad + s * k.dilation;
                            if (row < 0 || row >= k.size || column < 0 || column >= k.size) continue;
                            const std::int64_t channel = o / (k.out / k.group) * per_group + c;
                            const float a = values.as<float>()[static_cast<std::size_t>((channel * k.size + row) * k.size + column)];
                            const float b =
                                weights.as<float>()[static_cast<std::size_t>(((o * per_group + c) * k.kernel + r) * k.kernel + s)];
                            sum += std::lround(a / x_scale) * std::lround(b / w_scale);
                        }
                float v = static_cast<float>(sum);
                if (!bias.empty()) v += bias.as<float>()[static_cast<std::size_t>(o)] / scale;
                v *= scale;
                if (k.add) v += inputs.at("r").as<float>()[static_cast<std::size_t>(to - y.as<float>().data())];
                *to = k.relu ? std::max(v, 0.0f) : v;
            }
    return y;
}

/// Returns pairs of quantizers for a convolution's input and weights.
std::vector<std::pair<quantizer, quantizer>> operand_formats() {
    return {{under("int8", 0.03f), under("int8", 0.01f)},
            {under("int8", 0.03f, -20), under("int8", 0.01f)},
            {under("uint8", 0.02f, 100), under("int8", 0.01f)},
            {under("uint8", 0.03f, 128), under("int4", 0.1f)},
            {under("int16", 0.0003f), under("int8", 0.01f)},
            {under("uint16", 0.0003f), under("int4", 0.1f)},
            {under("int16", 0.00007f, -32768), under("int8", 0.01f)},
            // Sums of four 16-bit words: in the first two rows a few overflow a word, in the next two many do.
            {under("int16", 0.0002f), under("int8", 0.02f)},
            {under("uint16", 0.0001f), under("int8", 0.02f)},
            {under("int16", 0.00005f), under("int8", 0.02f)},
            {under("uint16", 0.00002f), under("int8", 0.02f)},
            {under("bf16"), under("bfp16")},
            {under("mxfp8_e4m3"), under("mxfp4")}};
}

}  // namespace

TEST_CASE("a convolution of narrow operands is that of floats, and of bytes exactly that of integers") {
    int narrow = 0, all = 0, quick_ones = 0, exact = 0;
    for (const kind& k : kinds_of_convolutions())
        for (const auto& [x_format, w_format] : operand_formats()) {
            qk_test::builder b;
            const dims w_shape{k.out, k.in / k.group, k.kernel, k.kernel};
            const tensor w = random_tensor(w_shape, 3, 0.3f), bias = random_tensor({k.out}, 4, 1);
            const std::int64_t side = (k.size + 2 * k.pad - k.dilation * (k.kernel - 1) - 1) / k.stride + 1;
            b.input("x", {1, k.in, k.size, k.size}).output("y", {1, k.out, side, side});
            if (k.add) b.input("r", {1, k.out, side, side});
            b.constant("w", w_shape, {w.as<float>().begin(), w.as<float>().end()})
                .constant("b", {k.out}, {bias.as<float>().begin(), bias.as<float>().end()});
            auto& conv = b.node("Conv", k.bias ? std::vector<std::string>{"x", "w", "b"} : std::vector<std::string>{"x", "w"},
                                {k.add || k.relu ? "c" : "y"}, "conv");
            qk_test::set(conv, "pads", std::vector<std::int64_t>(4, k.pad));
            qk_test::set(conv, "strides", std::vector<std::int64_t>(2, k.stride));
            qk_test::set(conv, "dilations", std::vector<std::int64_t>(2, k.dilation));
            qk_test::set(conv, "group", k.group);
            if (k.add) b.node("Add", {"c", "r"}, {k.relu ? "a" : "y"}, "add");
            if (k.relu) b.node("Relu", {k.add ? "a" : "c"}, {"y"}, "relu");
            precision_plan plan;
            plan.edges[{"x", "conv", 0}] = x_format;
            plan.edges[{"w", "conv", 1}] = w_format;
            named_tensors inputs{{"x", random_tensor({1, k.in, k.size, k.size}, 5, 1)}};
            if (k.add) inputs["r"] = random_tensor({1, k.out, side, side}, 6, 1);
            const model m = b.model();
            const tensor quick = evaluator(m, {.threads = 1}).run(inputs, plan).outputs.at("y");
            const tensor plain = evaluator(m, {.threads = 1, .plain_kernels = true}).run(inputs, plan).outputs.at("y");
            REQUIRE(quick.shape() == plain.shape());
            float largest = 0;
            for (const float v : plain.as<float>()) largest = std::max(largest, std::abs(v));
            std::size_t different = 0;  // counts NaN as well
            for (std::size_t i = 0; i < quick.size(); ++i)
                different += !(std::abs(plain.as<float>()[i] - quick.as<float>()[i]) <= 1e-5f * largest);
            CAPTURE(k.in);
            CAPTURE(k.out);
            CAPTURE(k.group);
            CAPTURE(k.kernel);
            CAPTURE(k.size);
            CAPTURE(k.stride);
            CAPTURE(k.dilation);
            CAPTURE(k.pad);
            CHECK(different == 0);

            // Counts narrow forms only to print them: a processor without instructions for bytes uses floats.
            ++all;
            tensor rounded(data_type::float32, w_shape);
            execute::quantize_value(w_format, w_shape, false, w.as<float>(), rounded.as<float>());
            execute::prepared_convolution used({w_shape, [&] { return rounded; }}, false, bias, &x_format, &w_format, 0, 4);
            const auto& at = used.at({1}, [&] {
                execute::prepared_convolution::request r;
                r.shape.x = {1, k.in, k.size, k.size}, r.shape.weights = w_shape, r.shape.y = {1, k.out, side, side}, r.shape.bias = k.bias,
                r.shape.grouped = k.group > 1, r.shape.add = k.add, r.shape.relu = k.relu;
                if (r.shape.grouped) r.shape.weights[0] /= k.group, r.shape.weights.insert(r.shape.weights.begin(), k.group);
                r.shape.stride = {k.stride, k.stride}, r.shape.dilation = {k.dilation - 1, k.dilation - 1},
                r.shape.pad_begin = r.shape.pad_end = {k.pad, k.pad};
                return r;
            });
            quick_ones += at.possible();
            narrow += at.form.has_value() && !at.form->floats;
            if (at.form && at.form->whole && (at.form->planes == 1 || at.words)) {
                ++exact;
                CHECK(same_bits(quick, sums_of_integers(k, inputs, w_shape, rounded, x_format, w_format, k.bias ? bias : tensor())));
            }
        }
    std::cout << narrow << " of " << all << " convolutions were of bytes or bfloat16 on this processor\n";
    // From AVX2 on, sums are exact in bytes, in words, or in integers held by floats.
    const auto has = static_cast<unsigned>(dnnl::get_effective_cpu_isa()), avx2 = static_cast<unsigned>(dnnl::cpu_isa::avx2);
    if ((has & avx2) == avx2) CHECK(exact > quick_ones / 8);
}

TEST_CASE("a product of whole numbers in parts has the bits of the whole: one sample on several threads") {
    const std::pair<quantizer, quantizer> formats[] = {
        {under("int8", 0.03f), under("int8", 0.01f)},       {under("uint8", 0.03f, 128), under("int4", 0.1f)},
        {under("int8", 0.03f, -128), under("int8", 0.01f)}, {under("int8", 0.03f, -20), under("int8", 0.01f)},
        {under("uint8", 0.02f, 100), under("int8", 0.01f)}, {under("int16", 0.0003f), under("int8", 0.01f)},
        {under("uint16", 0.0003f), under("int8", 0.01f)},   {under("int16", 0.0003f, -20), under("int4", 0.1f)}};
    for (const auto& [x_format, w_format] : formats)
        for (const std::int64_t rows : {64, 101, 259}) {
            CAPTURE(rows);
            qk_test::builder b;
            const tensor w = random_tensor({270, 301}, 3, 0.3f), bias = random_tensor({301}, 4, 1);
            b.input("x", {1, rows, 270}).output("y", {1, rows, 301});
            b.constant("w", {270, 301}, {w.as<float>().begin(), w.as<float>().end()});
            b.constant("b", {301}, {bias.as<float>().begin(), bias.as<float>().end()});
            b.node("MatMul", {"x", "w"}, {"p"}, "product");
            b.node("Add", {"p", "b"}, {"y"}, "add");
            precision_plan plan;
            plan.edges[{"x", "product", 0}] = x_format;
            plan.edges[{"w", "product", 1}] = w_format;
            const named_tensors inputs{{"x", random_tensor({1, rows, 270}, 5, 1)}};
            const model m = b.model();
            const tensor alone = evaluator(m, {.threads = 1}).run(inputs, plan).outputs.at("y");
            CHECK(same_bits(alone, evaluator(m, {.threads = 3}).run(inputs, plan).outputs.at("y")));
        }
}

TEST_CASE("what a convolution reads as whole numbers is the same floats to a sum") {
    for (const quantizer& q : {under("int16", 0.0003f), under("int16", 0.00007f, -32768), under("uint16", 0.0001f), under("int8", 0.03f),
                               under("int8", 0.02f, -128), under("int8", 0.03f, -20)}) {
        std::vector<tensor> sums;
        for (const bool read_before : {false, true}) {  // if an Abs reads x first, its floats exist before the sum reads them
            qk_test::builder b;
            const tensor w = random_tensor({16, 16, 3, 3}, 3, 0.1f), first = random_tensor({16, 4, 1, 1}, 4, 0.5f);
            b.input("in", {1, 4, 20, 20}).output("y", {1, 16, 20, 20});
            b.constant("w", w.shape(), {w.as<float>().begin(), w.as<float>().end()});
            b.constant("v", first.shape(), {first.as<float>().begin(), first.as<float>().end()});
            b.node("Conv", {"in", "v"}, {"x"}, "first");
            qk_test::set(b.node("Conv", {"x", "w"}, {"c"}, "conv"), "pads", std::vector<std::int64_t>(4, 1));
            if (read_before) b.output("a", {1, 16, 20, 20}).node("Abs", {"x"}, {"a"}, "abs");
            b.node("Add", {"c", "x"}, {"s"}, "add");
            b.node("Relu", {"s"}, {"y"}, "relu");
            quantizer weights = under("int8", 0.003f), between = under("int16", 0.0005f, 5);
            precision_plan plan;
            plan.edges[{"w", "conv", 1}] = weights, plan.edges[{"c", "add", 0}] = between;
            plan.edges[{"x", "conv", 0}] = plan.edges[{"x", "add", 1}] = plan.edges[{"x", "abs", 0}] = q;
            const named_tensors inputs{{"in", random_tensor({1, 4, 20, 20}, 5, 1)}};
            sums.push_back(evaluator(b.model(), {.threads = 1}).run(inputs, plan).outputs.at("y"));
        }
        CHECK(same_bits(sums[0], sums[1]));
    }
}

#endif
