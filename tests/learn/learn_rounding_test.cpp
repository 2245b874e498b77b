// SPDX-License-Identifier: Apache-2.0
// Learned rounding of weights: weights stay on the grid, the layer's output is better than with rounding to nearest, bits do not depend on
// the number of threads, and each layer gets the method that was requested for it. Biases absorb the remaining mean error.
#include <doctest/doctest.h>
#include <onnx/onnx_pb.h>

#include <cmath>

#include "graph/quantize/missing_biases.hpp"
#include "qk/graph/base/format_text.hpp"
#include "qk/graph/calibrate/calibrate.hpp"
#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/export/export.hpp"
#include "qk/graph/quantize/learning.hpp"
#include "qk/graph/quantize/plan_file.hpp"
#include "rounded_weights.hpp"
#include "small_graph.hpp"

using namespace qk::graph;

namespace {

/// Builds a Conv with a Relu, a grouped and strided Conv, a ConvTranspose, Gemm with and without transB, and a MatMul.
model every_layer() {
    small_graph g;
    g.input("x", {1, 6, 8, 8}).output("y", {1, 10});
    g.constant("w1", {8, 6, 3, 3}, 0.3f).constant("b1", {8}, 0.1f).constant("w2", {8, 4, 3, 3}, 0.3f).constant("b2", {8}, 0.1f);
    g.constant("w3", {8, 4, 2, 2}, 0.4f).constant("b3", {4}, 0.1f).constant("w4", {24, 256}, 0.2f).constant("b4", {24}, 0.1f);
    g.constant("w5", {24, 20}, 0.4f).constant("w6", {20, 10}, 0.5f);
    small_graph::set(g.node("Conv", "plain", {"x", "w1", "b1"}), "pads", {1, 1, 1, 1});
    g.node("Relu", "relu", {"plain_out"});
    auto& grouped = g.node("Conv", "grouped", {"relu_out", "w2", "b2"});
    small_graph::set(grouped, "pads", {1, 1, 1, 1});
    small_graph::set(grouped, "strides", {2, 2});
    small_graph::set(grouped, "group", 2);
    small_graph::set(g.node("ConvTranspose", "up", {"grouped_out", "w3", "b3"}), "strides", {2, 2});
    g.node("Flatten", "flat", {"up_out"});
    small_graph::set(g.node("Gemm", "turned", {"flat_out", "w4", "b4"}), "transB", std::int64_t{1});
    g.node("Gemm", "gemm", {"turned_out", "w5"});
    g.node("MatMul", "matmul", {"gemm_out", "w6"}, "y");
    return g.build();
}

double noise(const tensor& reference, const tensor& value) { return sqnr(reference.as<float>(), value.as<float>()); }

auto all(weight_rounding how) {
    return [how](const std::string&) { return how; };
}

}  // namespace

TEST_CASE(
    "AdaRound: each weight on the grid and next to where it was, each layer's output nearer than to nearest, for every kind of format") {
    const model m = every_layer();
    const named_tensors x{{"x", correlated({40, 6, 8, 8}, 1, 0.5f)}};
    const tensor whole = evaluator(m, {.threads = 2}).run(x).outputs.at("y");
    std::size_t better = 0, rows = 0;
    for (const char* text : {"int4", "uint4", "fp4_e2m1", "mxfp4", "mx4", "bfp:block=8,exponent=8,mantissa=3", "nvfp4", "mxint8"}) {
        INFO(text);
        precision what = parse_precision(text);
        if (std::string(text) == "uint4") what.symmetric = false;
        precision_plan plan = weights_only(m, what, true).plan;
        const precision_plan before = plan;
        model learned = m;
        const auto done =
            learn_rounding(learned, plan, x, all(weight_rounding::adaround), {.threads = 2, .iterations = 300, .places = 1024});
        CHECK(plan == before);
        CHECK(done.size() == 6);
        double gain = 0;
        for (const learned_weight& d : done) {
            INFO(d.layer, ": ", d.left);
            CHECK(d.left.empty());
            CHECK(d.learned >= d.nearest);
            gain += d.learned - d.nearest;
            const tensor w = m.constant(d.weight), now = learned.constant(d.weight);
            tensor again(now.type(), now.shape());
            const quantizer q = *plan.find({d.weight, d.layer, 1});
            apply(q, now, again.as<float>());
            if (d.learned == d.nearest) continue;
            CHECK(same(now, again));
            CHECK(d.weight_sqnr == doctest::Approx(noise(w, now)).epsilon(1e-9));
        }
        const bool narrow = qk::bits_per_value(what.format) < 6;
        CHECK(gain > (narrow ? 6 : 0.3));
        const tensor plain = evaluator(m).run(x, plan).outputs.at("y"), now = evaluator(learned).run(x, plan).outputs.at("y");
        better += noise(whole, now) > noise(whole, plain);
        ++rows;
    }
    CHECK(better == rows);
}

TEST_CASE("AdaQuant: scales and biases learn too; int32 biases follow the scales, and every style of export takes what comes out") {
    const model m = every_layer();
    const named_tensors x{{"x", correlated({40, 6, 8, 8}, 1, 0.5f)}};
    const calibration seen = calibrate(m, x);
    precision_requests requests;
    requests.set_default("int8", "int4");
    quantize_result planned = planner(m, &seen).plan(requests.list(), {.per_channel = true});
    const tensor whole = evaluator(m).run(x).outputs.at("y");
    for (const weight_rounding how : {weight_rounding::adaround, weight_rounding::adaquant}) {
        precision_plan plan = planned.plan;
        model learned = m;
        const auto done = learn_rounding(learned, plan, x, all(how), {.threads = 2, .iterations = 300, .places = 1024});
        CHECK((plan == planned.plan) == (how == weight_rounding::adaround));
        const tensor before = evaluator(m).run(x, planned.plan).outputs.at("y"), after = evaluator(learned).run(x, plan).outputs.at("y");
        CHECK(noise(whole, after) > noise(whole, before) + 1);
        for (const learned_weight& d : done) CHECK(d.learned >= d.nearest);
        const quantizer *in = plan.find({"x", "plain", 0}), *w = plan.find({"w1", "plain", 1}), *b = plan.find({"b1", "plain", 2});
        REQUIRE(b != nullptr);
        for (std::size_t c = 0; c < 8; ++c) CHECK(b->scale[c] == doctest::Approx(in->scale[0] * w->scale[c]).epsilon(1e-5));
        for (const export_style style : {export_style::portable, export_style::qdq, export_style::qoperator, export_style::amd}) {
            const model written = export_model(learned, plan, {.style = style}).exported;
            CHECK(noise(after, evaluator(written).run(x).outputs.at("y")) > 60);
        }
        quantize_report report = planned.report;
        add_to(report, done);
        CHECK(report.text().find(how == weight_rounding::adaround ? "rounded by AdaRound: the layer's output at "
                                                                  : "rounded by AdaQuant: ") != std::string::npos);
    }
}

TEST_CASE("AdaQuant chooses the scale of what a layer alone reads by what the layer makes of it") {
    for (const bool shared : {false, true}) {
        small_graph g;
        g.input("x", {1, 3, 6, 6}).output("y", {1, 5, 6, 6}).constant("w", {5, 3, 1, 1}, 0.4f).constant("v", {5, 3, 1, 1}, 0.4f);
        g.node("Conv", "conv", {"x", "w"}, shared ? "a" : "y");
        if (shared) g.node("Conv", "other", {"x", "v"}, "b");
        if (shared) g.node("Add", "sum", {"a", "b"}, "y");
        const model m = g.build();
        tensor values = correlated({20, 3, 6, 6}, 1, 0.5f);
        for (std::size_t i = 0; i < values.size(); i += 97) values.as<float>()[i] *= 12;  // a few outliers, which determine the range
        const named_tensors x{{"x", values}};
        const calibration seen = calibrate(m, x);
        precision_requests requests;
        requests.set_default("int4", "int8");
        quantize_result planned = planner(m, &seen).plan(requests.list(), {});
        const float before = planned.plan.find({"x", "conv", 0})->scale[0];
        const tensor whole = evaluator(m).run(x).outputs.at("y"), nearest = evaluator(m).run(x, planned.plan).outputs.at("y");
        model learned = m;
        learn_rounding(learned, planned.plan, x, all(weight_rounding::adaquant), {.iterations = 50});
        const float after = planned.plan.find({"x", "conv", 0})->scale[0];
        CHECK((after == before) == shared);
        if (shared) continue;
        CHECK(after < before);
        CHECK(noise(whole, evaluator(learned).run(x, planned.plan).outputs.at("y")) > noise(whole, nearest) + 1);
    }
}

TEST_CASE("the same bits for any number of threads; another seed, other places") {
    const model m = every_layer();
    const named_tensors x{{"x", correlated({12, 6, 8, 8}, 1, 0.5f)}};
    const precision_plan plan = weights_only(m, parse_precision("mxfp4"), false).plan;
    for (const weight_rounding how : {weight_rounding::adaround, weight_rounding::adaquant}) {
        const auto learn = [&](int threads, std::uint64_t seed) {
            model learned = m;
            precision_plan own = plan;
            learn_rounding(learned, own, x, all(how),
                           {.threads = threads, .iterations = 60, .seed = seed, .places = 300, .correct_bias = true});
            return learned.proto().SerializeAsString();
        };
        const std::string one = learn(1, 0);
        CHECK(one == learn(2, 0));
        CHECK(one != learn(2, 1));
    }
}

TEST_CASE("bias correction: the mean error of every channel goes into the bias") {
    small_graph g;
    g.input("x", {1, 3, 6, 6}).output("y", {1, 5, 6, 6}).constant("w", {5, 3, 3, 3}, 0.4f);
    small_graph::set(g.node("Conv", "conv", {"x", "w"}, "y"), "pads", {1, 1, 1, 1});
    model m = g.build();
    add_missing_biases(m);
    REQUIRE(m.graph().node(0).input_size() == 3);
    const named_tensors x{{"x", correlated({20, 3, 6, 6}, 1, 0.5f)}};
    precision_plan plan = weights_only(m, parse_precision("fp4_e2m1"), false).plan;
    model corrected = m;
    const auto done = learn_rounding(corrected, plan, x, all(weight_rounding::nearest), {.correct_bias = true});
    REQUIRE(done.size() == 1);
    CHECK(done[0].bias_left.empty());
    CHECK(done[0].bias_moved > 0);
    const tensor whole = evaluator(m).run(x).outputs.at("y"), plain = evaluator(m).run(x, plan).outputs.at("y"),
                 now = evaluator(corrected).run(x, plan).outputs.at("y");
    const auto mean_error = [&](const tensor& y, std::size_t channel) {
        double sum = 0;
        for (std::size_t i = 0; i < y.size(); ++i)
            if (i / 36 % 5 == channel) sum += static_cast<double>(y.as<float>()[i]) - static_cast<double>(whole.as<float>()[i]);
        return std::fabs(sum) / (36 * 20);
    };
    for (std::size_t c = 0; c < 5; ++c) CHECK(mean_error(now, c) < 1e-3 * (mean_error(plain, c) + 1e-2));
    CHECK(noise(whole, now) > noise(whole, plain));
}

TEST_CASE("a plan that names added biases brings them to the model that it was made for") {
    small_graph g;
    g.input("x", {1, 3, 6, 6}).output("y", {1, 3, 6, 6}).constant("w", {3, 3, 1, 1}).constant("w_bias", {3}).constant("v", {3, 3, 1, 1});
    g.node("Conv", "one", {"x", "w"}, "a");
    g.node("Conv", "two", {"a", "w"}, "b");  // shares the weights of the first, and must not share its bias's name
    g.node("Conv", "three", {"b", "v", "w_bias"}, "y");
    const model before = g.build();
    model all_of_them = before, one_of_them = before, none = before;
    add_missing_biases(all_of_them);
    const std::string first = all_of_them.graph().node(0).input(2), second = all_of_them.graph().node(1).input(2);
    CHECK(first != second);
    precision_plan plan;
    plan.tensors[second].format = qk::int32;
    add_missing_biases(one_of_them, &plan);
    CHECK(one_of_them.graph().node(0).input_size() == 2);
    REQUIRE(one_of_them.graph().node(1).input_size() == 3);
    CHECK(one_of_them.graph().node(1).input(2) == second);
    plan.tensors.clear();
    add_missing_biases(none, &plan);
    CHECK(none.proto().SerializeAsString() == before.proto().SerializeAsString());
}

TEST_CASE("what cannot learn is said; what is not asked is left alone") {
    small_graph g;
    g.input("x", {1, 8})
        .output("y", {1, 8})
        .constant("shared", {8, 8})
        .constant("w", {8, 8})
        .constant("first", {8, 8})
        .constant("own", {8, 8});
    g.node("MatMul", "a", {"x", "shared"});
    g.node("MatMul", "b", {"a_out", "shared"});
    small_graph::set(g.node("Gemm", "c", {"b_out", "w"}), "transB", std::int64_t{1});
    g.node("MatMul", "d", {"c_out", "own"}, "y");
    const model m = g.build();
    precision_plan plan = weights_only(m, parse_precision("int4"), false).plan;
    const named_tensors x{{"x", correlated({30, 8}, 1, 0.5f)}};
    model learned = m;
    const auto done = learn_rounding(
        learned, plan, x, [](const std::string& layer) { return layer == "d" ? weight_rounding::nearest : weight_rounding::adaround; },
        {.iterations = 100});
    REQUIRE(done.size() == 3);
    CHECK(done[0].left == "other nodes read the same weights");
    CHECK(done[2].left.empty());
    CHECK(same(learned.constant("own"), m.constant("own")));
    CHECK(same(learned.constant("shared"), m.constant("shared")));
    quantize_report report;
    add_to(report, done);
    REQUIRE(report.notes.size() == 2);
    CHECK(report.notes[0].text == "its weights are rounded to nearest: other nodes read the same weights");
}

TEST_CASE("requests say how single layers round: in files, and in calls") {
    const model m = every_layer();
    const plan_file file = parse_plan_file(
        R"({"default": {"weight": "int4"}, "approach": "weight_only", "weight_rounding": "adaquant", "bias_correction": true,
            "requests": [{"layer": "plain", "weight": {"format": "mxfp4", "weight_rounding": "adaround"}},
                         {"op_type": "Gemm", "weight": {"format": "int4", "weight_rounding": "compensated"}}]})",
        "p.json");
    quantize_options options;
    file.fill(options);
    CHECK(options.rounding == weight_rounding::adaquant);
    CHECK(options.correct_bias);
    const quantize_result made = planner(m).plan(file.requests, options);
    CHECK(made.rounding == std::map<std::string, weight_rounding>{{"plain", weight_rounding::adaround},
                                                                  {"gemm", weight_rounding::compensated},
                                                                  {"turned", weight_rounding::compensated}});
    CHECK(to_string(made.plan.find({"w1", "plain", 1})->format) == "mxfp4");

    precision_requests calls;
    calls.set_default("fp32", "int4");
    calls.set_precision("plain", role::weight, {.format = qk::int4, .rounding = weight_rounding::adaround});
    CHECK(planner(m).plan(calls.list(), {.how = approach::weight_only}).rounding.at("plain") == weight_rounding::adaround);
}
