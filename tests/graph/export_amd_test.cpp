// SPDX-License-Identifier: Apache-2.0
// Style amd: writes operator by operator what AMD Quark exported, and refuses clearly what AMD's operators cannot express.
#include <doctest/doctest.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "../data_folders.hpp"
#include "build_model.hpp"
#include "output_errors.hpp"
#include "qk/graph/base/format_text.hpp"
#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/export/export.hpp"
#include "qk/graph/files/npy.hpp"
#include "qk/graph/quantize/planner.hpp"
#include "small_graph.hpp"

namespace fs = std::filesystem;
using namespace qk::graph;

namespace {

std::string attribute_text(const onnx::NodeProto& n) {
    std::map<std::string, std::string> all;
    for (const auto& a : n.attribute()) all[a.name()] = a.type() == onnx::AttributeProto::STRING ? a.s() : std::to_string(a.i());
    std::string text;
    for (const auto& [name, value] : all) text += " " + name + "=" + value;
    return text;
}

/// Returns how often each quantizer stands in a model. A quantizer's text is its operator, attributes, scale, and the name that the tensor
/// has in the float model.
std::map<std::string, int> quantizers(const model& m, const std::string& output) {
    std::map<std::string, int> all;
    for (const onnx::NodeProto& n : m.graph().node()) {
        if (n.op_type().find("uantize") == std::string::npos) continue;
        std::string source = n.input(0);
        for (int p = m.producer(source); p >= 0 && m.graph().node(p).op_type().find("uantize") != std::string::npos; p = m.producer(source))
            source = m.graph().node(p).input(0);
        // The last quantizer takes over the name of the model's output; the exporter renames the float tensor before it.
        if (source.starts_with(output + "_")) source = output;
        std::string line = n.domain() + ":" + n.op_type() + attribute_text(n) + " of " + source;
        if (n.input_size() > 2)
            line += " scale " + std::to_string(m.constant(n.input(1)).as<float>()[0]) + " " + name_of(m.constant(n.input(2)).type());
        ++all[line];
    }
    return all;
}

precision with(const char* format, qk::rounding r) {
    precision p{.format = format_from(format), .semantics = qk::semantics::quark};
    p.semantics->rounding = r;
    return p;
}

/// Compares the exports of a network with those that AMD Quark made of it.
void compare_with_quark(const fs::path& network, const fs::path& quark_models) {
    INFO(network.string());
    const model m = model::load(network);
    const tensor input = read_npy(qk_test::reference_of(network, "input.input"));
    // Outputs are bf16. Another instruction set sums in another order, which moves some of them by one step.
    constexpr float half_a_step_of_bf16 = 0x1p-9f;
    struct row {
        const char *file, *format;
        qk::rounding rounding;
        placement where;
        float median;
    };
    for (const row& r : {row{"BFP16", "bfp16", qk::rounding::half_away, placement::every, 1e-3f},
                         row{"MX6", "mx6", qk::rounding::half_even, placement::every, 1e-3f},
                         row{"MXFP8E4M3", "mxfp8_e4m3", qk::rounding::half_even, placement::every, 1e-3f},
                         row{"BF16", "bf16", qk::rounding::half_even, placement::all, half_a_step_of_bf16}}) {
        INFO(std::string(r.file));
        const model theirs = model::load(quark_models / (std::string("resnet20_") + r.file + ".onnx"));
        const precision p = with(r.format, r.rounding);
        const calibration none;
        const quantize_result planned = quantize(m, precision_requests().set_default(p, p), none, {.where = r.where});
        const export_result ours = export_model(m, planned.plan, {.style = export_style::amd});
        CHECK(ours.opset_after == ours.opset_before);
        CHECK(ours.exported.opset("com.amd.quark") == theirs.opset("com.amd.quark"));
        CHECK(quantizers(ours.exported, "logits") == quantizers(theirs, "logits"));
        // Float constants keep their names.
        for (const auto& i : m.graph().initializer())
            if (i.data_type() == onnx::TensorProto::FLOAT && !i.name().ends_with("_scale")) CHECK(ours.exported.is_constant(i.name()));

        const tensor expected = read_npy(quark_models / (std::string("resnet20_") + r.file + ".output.npy"));
        const tensor got = evaluator(ours.exported, {.threads = 2}).run({{"input", input}}).outputs.begin()->second;
        REQUIRE(got.shape() == expected.shape());
        const std::vector<float> errors = sorted_errors(got, expected);
        CHECK(errors[errors.size() / 2] <= r.median);
        CHECK(errors.back() <= 5e-2f);
    }
}

}  // namespace

TEST_CASE("BFP16, MX6, MXFP8 and BF16 as AMD Quark exports them") {
    for (const fs::path& folder : qk_test::data_with("quark_models"))
        compare_with_quark(qk_test::residual_network(folder), folder / "quark_models");
}

TEST_CASE("what AMD's operators compute is what the evaluator computes under the plan") {
    small_graph g;
    g.input("x", {2, 6, 5, 5}).output("y", {2, 8, 5, 5}).constant("w", {8, 6, 1, 1}).constant("b", {8});
    g.node("Conv", "conv", {"x", "w", "b"}, "y");
    const model conv = g.build();
    std::vector<float> values(2 * 6 * 25);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i) * 1.3f) * 3;
    const tensor x = make_tensor<float>({2, 6, 5, 5}, values);
    for (const char* format : {"bfp16", "bfp:block=16,exponent=8,mantissa=4", "mx9", "mx6", "mx4", "mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2",
                               "mxfp6_e2m3", "mxfp4", "mxint8", "bf16", "fp16", "int16", "uint16", "int32", "int8", "uint8"}) {
        INFO(format);
        precision p{.format = format_from(format), .semantics = qk::semantics::quark};
        precision a = p;
        if (is_integer_format(p.format)) a.range = {-3.0f, 3.0f};
        const calibration none;
        const precision_plan plan = quantize(conv, precision_requests().set_default(a, p), none, {.where = placement::all}).plan;
        const export_result r = export_model(conv, plan, {.style = export_style::amd});
        const tensor planned = evaluator(conv, {.threads = 1}).run({{"x", x}}, plan).outputs.at("y");
        const tensor exported = evaluator(r.exported, {.threads = 1}).run({{"x", x}}).outputs.at("y");
        float worst = 0;
        for (std::size_t i = 0; i < planned.size(); ++i)
            worst = std::max(worst, std::fabs(planned.as<float>()[i] - exported.as<float>()[i]));
        CHECK(worst <= 1e-5f);
    }
}

TEST_CASE(
    "a grouped convolution's blocks run along axis 1; a depthwise filter is stored as the plan rounds it, of others the export says so") {
    for (const bool depthwise : {true, false}) {
        std::vector<float> weights(
            depthwise ? 4 * 9 : 4 * 2 * 9);  // one channel of two is small: it shares blocks with the other there, and none here
        for (std::size_t i = 0; i < weights.size(); ++i)
            weights[i] = static_cast<float>(static_cast<int>(i * 37 % 101) - 50) * (depthwise || i / 9 % 2 == 0 ? 0.02f : 2e-4f);
        small_graph g;
        g.input("x", {1, 4, 5, 5}).output("y", {1, 4, 3, 3}).constant("w", {4, depthwise ? 1 : 2, 3, 3}, 1, weights);
        small_graph::set(g.node("Conv", "conv", {"x", "w"}, "y"), "group", depthwise ? 4 : 2);
        const calibration none;
        for (const char* format : {"bfp16", "mx9", "mxint8", "mxfp4"}) {
            CAPTURE(format);
            const model m = g.build();
            // AMD's operators have one rule for scales.
            const quantize_options options{.scale_rule = qk::scale_rule::floor};
            const precision_plan plan = quantize(m, precision_requests().set_default(format, format), none, options).plan;
            const export_result r = export_model(m, plan, {.style = export_style::amd});
            int rounded = 0, plain = 0;
            for (const auto& n : r.exported.graph().node())
                if (n.domain() == "com.amd.quark" && n.input(0).starts_with("w"))
                    ++(n.input(0) == "w" ? plain : rounded), CHECK(attribute_text(n).find("axis=1 ") != std::string::npos);
            CHECK(rounded + plain == 1);
            if (depthwise || std::string_view(format) == "bfp16") CHECK(rounded == depthwise);
            const auto says = [](const std::string& note) { return note.find("axis 1") != std::string::npos; };
            CHECK(std::any_of(r.notes.begin(), r.notes.end(), says) == (plain == 1));
            if (!depthwise) continue;
            const auto input = named_tensors{{"x", qk_test::random_tensor({1, 4, 5, 5}, 3, 1.0f)}};
            const tensor file = evaluator(r.exported, {.threads = 1}).run(input).outputs.at("y");
            const tensor planned = evaluator(m, {.threads = 1}).run(input, plan).outputs.at("y");
            CHECK(std::ranges::equal(file.as<float>(), planned.as<float>()));
        }
    }
}

TEST_CASE("formats that AMD's operators lack are refused in a sentence that names tensor, format and the way out") {
    small_graph g;
    g.input("x", {1, 4, 5, 5}).output("y", {1, 4, 5, 5}).constant("w", {4, 4, 1, 1});
    g.node("Conv", "conv", {"x", "w"}, "y");
    const model m = g.build();
    const calibration none;
    for (const char* format : {"nvfp4", "fp6_e3m2", "fp4_e2m1", "bfp:block=8,exponent=5,mantissa=7", "mx:element=fp8_e3m4,block=32"}) {
        INFO(format);
        precision p{.format = format_from(format)};
        p.range = {-1.0f, 1.0f};
        precision w{.format = format_from(format)};
        const precision_plan plan = quantize(m, precision_requests().set_default(p, w), none).plan;
        std::string text;
        try {
            export_model(m, plan, {.style = export_style::amd});
        } catch (const error& e) {
            text = e.what();
        }
        CHECK(text.find("tensor 'x'") != std::string::npos);
        CHECK(text.find(format) != std::string::npos);
        CHECK(text.find("--export portable") != std::string::npos);
    }
    const precision truncated{.format = qk::bfp16, .semantics = qk::semantics{.rounding = qk::rounding::toward_zero}};
    const precision_plan plan = quantize(m, precision_requests().set_default(truncated, truncated), none).plan;
    CHECK_THROWS_WITH_AS(export_model(m, plan, {.style = export_style::amd}), doctest::Contains("half-even, half-away or half-up"), error);
}
