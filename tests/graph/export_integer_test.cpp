// SPDX-License-Identifier: Apache-2.0
// Styles qoperator and qinteger: which operators a plan becomes, which layers stay Q/DQ pairs, and that the results are the plan's.
#include <doctest/doctest.h>
#include <onnx/onnx_pb.h>

#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "graph/export/codes.hpp"
#include "qk/graph/base/format_text.hpp"
#include "qk/graph/calibrate/calibrate.hpp"
#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/export/drop_activations.hpp"
#include "qk/graph/export/export.hpp"
#include "qk/graph/quantize/planner.hpp"
#include "small_graph.hpp"

using namespace qk::graph;

namespace {

/// Builds a network of convolutions and a Gemm with every kind of node that integer kernels can stay integer across.
model network() {
    small_graph g;
    g.input("x", {2, 3, 8, 8}).output("y", {2, 5});
    g.constant("w1", {6, 3, 3, 3}, 0.5f)
        .constant("b1", {6})
        .constant("w2", {6, 1, 3, 3})
        .constant("w3", {6, 6, 1, 1}, 0.3f)
        .constant("fc", {5, 12})
        .constant("fcb", {5});
    g.constant("zero", {}, 1, {0}).constant("six", {}, 1, {6});
    const auto padded = [](onnx::NodeProto& n) -> onnx::NodeProto& {
        small_graph::set(n, "pads", {1, 1, 1, 1});
        return n;
    };
    padded(g.node("Conv", "conv1", {"x", "w1", "b1"}, "c1"));
    g.node("Relu", "relu1", {"c1"}, "r1");
    small_graph::set(padded(g.node("Conv", "conv2", {"r1", "w2"}, "c2")), "group", 6);
    g.node("Clip", "relu6", {"c2", "zero", "six"}, "r2");
    g.node("Conv", "conv3", {"r2", "w3"}, "c3");
    g.node("Add", "add", {"c3", "r1"}, "a");
    small_graph::set(g.node("MaxPool", "pool", {"a"}, "p"), "kernel_shape", {2, 2});
    small_graph::set(g.node("MaxPool", "pool2", {"r1"}, "p2"), "kernel_shape", {2, 2});
    small_graph::set(g.node("Concat", "cat", {"p", "p2"}, "c"), "axis", 1);
    g.node("GlobalAveragePool", "gap", {"c"}, "g");
    g.node("Flatten", "flat", {"g"}, "f");
    small_graph::set(g.node("Gemm", "fc", {"f", "fc", "fcb"}, "y"), "transB", 1);
    return g.build();
}

tensor pictures() {
    std::vector<float> v(2 * 3 * 64);
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = std::sin(static_cast<float>(i) * 1.37f) * 2;
    return make_tensor<float>({2, 3, 8, 8}, v);
}

std::map<std::string, int> operators(const model& m) {
    std::map<std::string, int> all;
    for (const auto& n : m.graph().node()) ++all[n.domain().empty() ? n.op_type() : n.domain() + ":" + n.op_type()];
    return all;
}

float difference(const tensor& a, const tensor& b) {
    float worst = 0, largest = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
        worst = std::max(worst, std::fabs(a.as<float>()[i] - b.as<float>()[i])), largest = std::max(largest, std::fabs(a.as<float>()[i]));
    return worst / largest;
}

calibration seen(const model& m) { return calibrate(m, {{"x", pictures()}}, {.threads = 1}); }

}  // namespace

TEST_CASE("qoperator: whole layers of 8-bit integers") {
    const model m = network();
    const calibration ranges = seen(m);
    for (const char* weight : {"int8", "uint8"})
        for (const bool per_channel : {false, true}) {
            INFO(weight << (per_channel ? " per channel" : ""));
            quantize_options options;
            options.per_channel = per_channel;
            precision w{.format = format_from(weight), .symmetric = true};
            precision_plan plan = quantize(m, precision_requests().set_default(precision{.format = qk::int8}, w), ranges, options).plan;
            model bare = m;
            drop_needless_activations(bare, plan);
            store_activations_unsigned(plan, m);
            const export_result r = export_model(bare, plan, {.style = export_style::qoperator});
            const auto ops = operators(r.exported);
            CHECK(ops.count("Conv") == 0);
            CHECK(ops.count("Relu") == 0);
            CHECK(ops.at("QLinearConv") == 3);
            CHECK(ops.at("com.microsoft:QLinearAdd") == 1);
            CHECK(ops.at("com.microsoft:QLinearConcat") == 1);
            CHECK(ops.at("com.microsoft:QLinearGlobalAveragePool") == 1);
            CHECK(ops.at("com.microsoft:QGemm") == 1);
            CHECK(ops.at("QuantizeLinear") == 1);  // the input's
            CHECK(ops.count("DequantizeLinear") == 0);
            CHECK(r.exported.opset("com.microsoft") == 1);
            const tensor planned = evaluator(m, {.threads = 1}).run({{"x", pictures()}}, plan).outputs.at("y");
            const tensor exported = evaluator(r.exported, {.threads = 1}).run({{"x", pictures()}}).outputs.at("y");
            CHECK(difference(planned, exported) < 0.02f);
        }
}

TEST_CASE("qoperator: a Relu that its quantizer does not replace becomes a Clip of codes") {
    const model m = network();
    precision_plan plan =
        quantize(m, precision_requests().set_default(precision{.format = qk::int8, .symmetric = true}, precision{.format = qk::int8}),
                 seen(m), {.per_channel = false})
            .plan;
    const export_result r = export_model(m, plan, {.style = export_style::qoperator});
    const auto ops = operators(r.exported);
    CHECK(ops.count("Relu") == 0);
    CHECK(ops.at("QLinearConv") == 3);
    CHECK(ops.at("Clip") == 2);
    const tensor planned = evaluator(m, {.threads = 1}).run({{"x", pictures()}}, plan).outputs.at("y");
    const tensor exported = evaluator(r.exported, {.threads = 1}).run({{"x", pictures()}}).outputs.at("y");
    CHECK(difference(planned, exported) < 0.02f);
}

TEST_CASE("qoperator: layers that are not whole stay pairs") {
    const model m = network();
    const calibration ranges = seen(m);
    // One layer has 16-bit weights, is excluded, or has a float bias.
    const auto ops_of = [&](const precision_requests& r) {
        return operators(export_model(m, quantize(m, r, ranges).plan, {.style = export_style::qoperator}).exported);
    };
    const auto wide = ops_of(precision_requests().set_default("uint8", "int8").set_precision("conv2", "uint8", {{"weight", "int16"}}));
    CHECK(wide.at("QLinearConv") == 2);
    CHECK(wide.at("Conv") == 1);
    const auto skipped = ops_of(precision_requests().set_default("uint8", "int8").exclude("conv3"));
    CHECK(skipped.at("Conv") == 2);  // conv3, and conv2, whose output conv3 reads in float32
    const auto unbiased =
        ops_of(precision_requests().set_default("uint8", "int8").set_precision("conv1", "uint8", {{"weight", "int8"}, {"bias", "fp32"}}));
    CHECK(unbiased.at("Conv") == 1);
    const auto sixteen = ops_of(precision_requests().set_default("int16", "int8"));
    CHECK(sixteen.count("QLinearConv") == 0);
}

TEST_CASE("qoperator and qinteger refuse what Q/DQ pairs cannot hold") {
    const model m = network();
    const calibration none;
    const precision_plan plan = quantize(m, precision_requests().set_default("mxfp4", "mxfp4"), none).plan;
    for (const export_style s : {export_style::qoperator, export_style::qinteger})
        CHECK_THROWS_WITH_AS(export_model(m, plan, {.style = s}),
                             doctest::Contains("mxfp4 has no standard operator; use --export portable"), error);
}

TEST_CASE("qinteger: dynamic activations times integer weights") {
    small_graph g;
    g.input("x", {1, 3, 6, 6})
        .output("y", {4, 7})
        .constant("w1", {4, 3, 3, 3})
        .constant("b1", {4})
        .constant("m", {16, 8})
        .constant("fc", {7, 8})
        .constant("fcb", {7});
    g.integers("shape", {4, 16});
    g.node("Conv", "conv", {"x", "w1", "b1"}, "c");
    g.node("Relu", "relu", {"c"}, "r");
    g.node("Reshape", "reshape", {"r", "shape"}, "s");
    g.node("MatMul", "matmul", {"s", "m"}, "mm");
    small_graph::set(g.node("Gemm", "gemm", {"mm", "fc", "fcb"}, "y"), "transB", 1);
    const model m = g.build();
    std::vector<float> v(108);
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = std::sin(static_cast<float>(i) * 1.37f) * 2;
    const tensor x = make_tensor<float>({1, 3, 6, 6}, v);
    const calibration none;
    for (const char* weight : {"int8", "uint8"})
        for (const bool per_channel : {false, true}) {
            INFO(weight << (per_channel ? " per channel" : ""));
            quantize_options options;
            options.how = approach::dynamic, options.per_channel = per_channel;
            const precision_plan plan = quantize(m, precision_requests().set_default("uint8", weight), none, options).plan;
            const export_result r = export_model(m, plan, {.style = export_style::qinteger});
            const auto ops = operators(r.exported);
            const bool held = !(per_channel && weight[0] == 'u');  // ConvInteger takes one zero point for all channels of its weights
            CHECK((ops.count("ConvInteger") == 1) == held);
            CHECK(ops.at("MatMulInteger") == 2);
            CHECK(ops.count("Gemm") == 0);
            const tensor planned = evaluator(m, {.threads = 1}).run({{"x", x}}, plan).outputs.at("y");
            const tensor exported = evaluator(r.exported, {.threads = 1}).run({{"x", x}}).outputs.at("y");
            CHECK(difference(planned, exported) < 1e-2f);
        }
    // Layers with static activations stay Q/DQ pairs.
    precision a{.format = qk::uint8};
    a.range = {-3.0f, 3.0f};
    const export_result fixed = export_model(m, quantize(m, precision_requests().set_default(a, precision{.format = qk::int8}), none).plan,
                                             {.style = export_style::qinteger});
    CHECK(operators(fixed.exported).count("MatMulInteger") == 0);
}

TEST_CASE("stored codes are the reference's, element by element: blocks and channels along any axis, ties, specials, other semantics") {
    std::mt19937 random(5);
    const auto with = [](int bits, bool is_signed, int axis, int block) {
        quantizer q;
        q.format = qk::integer{.bits = bits, .is_signed = is_signed};
        q.axis = axis, q.block_size = block;
        return q;
    };
    for (quantizer q : {with(8, true, 0, 0), with(8, false, 1, 0), with(4, true, 2, 0), with(4, true, 0, 3), with(2, false, 1, 4),
                        with(16, true, 2, 5), with(32, true, 1, 0), with(4, false, 2, 32)}) {
        const dims shape{5, 7, 11};
        tensor x(data_type::float32, shape);
        const auto length = static_cast<std::size_t>(shape[static_cast<std::size_t>(q.axis)]),
                   block = static_cast<std::size_t>(q.block_size);
        std::size_t scales = length;
        if (block != 0) scales = x.size() / length * ((length + block - 1) / block);
        for (std::size_t k = 0; k < scales; ++k) {
            q.scale.push_back(std::ldexp(1.0f + static_cast<float>(random() % 64) / 64, static_cast<int>(random() % 5) - 3));
            q.zero_point.push_back(static_cast<std::int64_t>(random() % 3));
        }
        for (std::size_t i = 0; i < x.size(); ++i)  // multiples of 1/8, with ties among them, and random bits
            x.as<float>()[i] =
                i % 4 != 0 ? (static_cast<float>(random() % 512) - 256) / 8 : std::bit_cast<float>(static_cast<std::uint32_t>(random()));
        x.as<float>()[1] = std::numeric_limits<float>::quiet_NaN(), x.as<float>()[2] = std::numeric_limits<float>::infinity();
        for (const qk::semantics& how : {qk::semantics::ocp, qk::semantics::torch, qk::semantics::quark,
                                         qk::semantics{.rounding = qk::rounding::half_away}, qk::semantics{.zero_point_before = true}}) {
            q.semantics = how;
            const detail::scale_places places(q, shape);
            const tensor codes = detail::integer_codes(q, x, data_type::int64);
            std::size_t different = 0;
            for (std::size_t i = 0; i < x.size(); ++i) {
                const detail::scale_place s = places.at(i);
                different += codes.as<std::int64_t>()[i] != qk::reference::code_of(std::get<qk::integer>(q.format), x.as<float>()[i],
                                                                                   s.scale, s.zero_point, false, how, 0);
            }
            CHECK(different == 0);
        }
    }
}
