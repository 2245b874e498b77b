// SPDX-License-Identifier: Apache-2.0
// Compensated rounding of weights: weights stay on the grid, the layer's output gets better and comes near the optimum, and the bits do
// not depend on how the work is divided.
#include <doctest/doctest.h>
#include <onnx/onnx_pb.h>

#include <cmath>

#include "qk/graph/base/format_text.hpp"
#include "qk/graph/calibrate/calibrate.hpp"
#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/quantize/compensate.hpp"
#include "qk/graph/quantize/planner.hpp"
#include "rounded_weights.hpp"
#include "small_graph.hpp"

using namespace qk::graph;

namespace {

/// Builds a plain, a strided and dilated, and a grouped Conv, Gemm with and without transB, and a MatMul.
model every_layer() {
    small_graph g;
    g.input("x", {1, 6, 8, 8}).output("y", {1, 10});
    g.constant("w1", {8, 6, 3, 3}, 0.3f).constant("b1", {8}, 0.1f).constant("w2", {8, 4, 3, 3}, 0.3f).constant("w3", {8, 8, 3, 3}, 0.2f);
    g.constant("w4", {70, 72}, 0.2f).constant("w5", {70, 40}, 0.4f).constant("w6", {40, 10}, 0.5f);
    small_graph::set(g.node("Conv", "plain", {"x", "w1", "b1"}), "pads", {1, 1, 1, 1});
    g.node("Relu", "relu", {"plain_out"});
    auto& grouped = g.node("Conv", "grouped", {"relu_out", "w2"});
    small_graph::set(grouped, "pads", {1, 1, 1, 1});
    small_graph::set(grouped, "group", 2);
    auto& strided = g.node("Conv", "strided", {"grouped_out", "w3"});
    small_graph::set(strided, "dilations", {2, 2});
    small_graph::set(strided, "strides", {2, 2});
    small_graph::set(strided, "pads", {1, 1, 1, 1});
    g.node("Flatten", "flat", {"strided_out"});
    small_graph::set(g.node("Gemm", "turned", {"flat_out", "w4"}), "transB", std::int64_t{1});
    g.node("Gemm", "gemm", {"turned_out", "w5"});
    g.node("MatMul", "matmul", {"gemm_out", "w6"}, "y");
    return g.build();
}

}  // namespace

TEST_CASE(
    "compensated weights are values of the format, and the layer's output on the samples is nearer than with each rounded to nearest") {
    const model m = every_layer();
    const named_tensors x{{"x", correlated({40, 6, 8, 8})}};
    const tensor whole = evaluator(m, {.threads = 2}).run(x).outputs.at("y");
    struct row {
        precision weight;
        bool per_channel;
    };
    const std::vector<row> rows{{parse_precision("int4"), true},
                                {parse_precision("int4"), false},
                                {{.format = qk::uint4, .symmetric = false}, true},
                                {{.format = qk::int4, .block_size = 16}, false},
                                {parse_precision("fp4_e2m1"), true},
                                {parse_precision("fp8_e4m3fn"), false},
                                {parse_precision("bfp:block=8,exponent=8,mantissa=3"), false},
                                {parse_precision("mx4"), false},
                                {parse_precision("mxfp4"), false},
                                {parse_precision("mxint8"), false},
                                {parse_precision("nvfp4"), false}};
    std::size_t better_outputs = 0;
    for (const row& r : rows) {
        const std::string name = to_string(r.weight.format) + (r.per_channel ? ", per channel" : "");
        const bool narrow = qk::bits_per_value(r.weight.format) < 6;
        INFO(name);
        double gain = 0;
        quantize_result planned = weights_only(m, r.weight, r.per_channel);
        const precision_plan plan = planned.plan;
        model rounded = m;
        const auto done = compensate_rounding(rounded, plan, x);
        CHECK(planned.plan == plan);
        CHECK(done.size() == 6);
        for (const compensated_weight& d : done) {
            INFO(d.layer, ": ", d.left);
            CHECK(d.left.empty());
            CHECK(d.compensated >= d.nearest);
            gain += d.compensated - d.nearest;
            if (d.compensated == d.nearest) continue;  // its rounding was left as it is
            const tensor w = rounded.constant(d.weight);
            tensor again(w.type(), w.shape());
            apply(*plan.find({d.weight, d.layer, 1}), w, again.as<float>());
            CHECK(same(w, again));
            CHECK(d.weight_sqnr == doctest::Approx(sqnr(m.constant(d.weight).as<float>(), w.as<float>())).epsilon(1e-9));
        }
        CHECK(gain > (narrow ? 6 : 0.5));
        const tensor plain = evaluator(m).run(x, plan).outputs.at("y"), better = evaluator(rounded).run(x, plan).outputs.at("y");
        better_outputs += sqnr(whole.as<float>(), better.as<float>()) > sqnr(whole.as<float>(), plain.as<float>());
        add_to(planned.report, done);
        for (const edge_report& e : planned.report.edges)
            if (e.part == layer_view::part::weight)
                CHECK(e.why.find("rounded with compensation: the layer's output at ") != std::string::npos);
    }
    CHECK(better_outputs + 2 > rows.size());  // layers are compensated one by one, so the network's output gains mostly, not always
}

TEST_CASE("the error that is reported is the error of the layer's output") {
    small_graph g;
    g.input("x", {1, 6, 8, 8}).output("y", {1, 5, 6, 6}).constant("w", {5, 6, 3, 3});
    g.node("Conv", "conv", {"x", "w"}, "y");
    const model m = g.build();
    const named_tensors x{{"x", correlated({16, 6, 8, 8})}};
    const precision_plan plan = weights_only(m, parse_precision("int4"), true).plan;
    model rounded = m;
    const auto done = compensate_rounding(rounded, plan, x);
    const tensor whole = evaluator(m).run(x).outputs.at("y");
    CHECK(done.at(0).nearest ==
          doctest::Approx(sqnr(whole.as<float>(), evaluator(m).run(x, plan).outputs.at("y").as<float>())).epsilon(1e-4));
    CHECK(done.at(0).compensated ==
          doctest::Approx(sqnr(whole.as<float>(), evaluator(rounded).run(x, plan).outputs.at("y").as<float>())).epsilon(1e-4));
}

TEST_CASE("between rounding to nearest and the best of all roundings up and down") {
    constexpr std::size_t inputs = 12;
    small_graph g;
    g.input("x", {1, inputs}).output("y", {1, 20}).constant("w", {inputs, 20});
    g.node("MatMul", "matmul", {"x", "w"}, "y");
    const model m = g.build();
    const tensor x = correlated({64, inputs}, 3);
    const precision_plan plan = weights_only(m, {.format = qk::int4, .scale = {0.25f}}, false).plan;
    model rounded = m;
    compensate_rounding(rounded, plan, {{"x", x}});
    const tensor w = m.constant("w"), found = rounded.constant("w");
    double nearest = 0, compensated = 0, best = 0;
    for (std::size_t o = 0; o < 20; ++o) {
        const auto error = [&](const auto& value) {
            double all = 0;
            for (std::size_t s = 0; s < 64; ++s) {
                double e = 0;
                for (std::size_t k = 0; k < inputs; ++k)
                    e += static_cast<double>(x.as<float>()[s * inputs + k]) * (static_cast<double>(w.as<float>()[k * 20 + o]) - value(k));
                all += e * e;
            }
            return all;
        };
        const auto scaled = [&](std::size_t k) { return static_cast<double>(w.as<float>()[k * 20 + o]) / 0.25; };
        nearest += error([&](std::size_t k) { return std::nearbyint(scaled(k)) * 0.25; });
        compensated += error([&](std::size_t k) { return static_cast<double>(found.as<float>()[k * 20 + o]); });
        double least = 1e300;
        for (unsigned up = 0; up < 1u << inputs; ++up)
            least = std::min(least, error([&](std::size_t k) { return (std::floor(scaled(k)) + ((up >> k) & 1)) * 0.25; }));
        best += least;
    }
    CAPTURE(nearest);
    CAPTURE(best);
    CHECK(compensated >= best);
    CHECK(compensated < (nearest + best) / 2);
}

TEST_CASE("inputs that have nothing to do with each other: every weight goes to its nearest value") {
    small_graph g;
    g.input("x", {1, 16}).output("y", {1, 12}).constant("w", {16, 12});
    g.node("MatMul", "matmul", {"x", "w"}, "y");
    const model m = g.build();
    tensor x(data_type::float32, {16, 16});
    std::fill(x.as<float>().begin(), x.as<float>().end(), 0.0f);
    for (std::size_t i = 0; i < 16; ++i) x.as<float>()[i * 17] = 1.0f + static_cast<float>(i);
    const precision_plan plan = weights_only(m, parse_precision("int4"), true).plan;
    model rounded = m;
    const auto done = compensate_rounding(rounded, plan, {{"x", x}});
    CHECK(done.at(0).compensated == done.at(0).nearest);
    CHECK(same(rounded.constant("w"), m.constant("w")));
}

TEST_CASE("neither threads nor passes over the samples change a bit; short runs still gain") {
    const model m = every_layer();
    const named_tensors x{{"x", correlated({9, 6, 8, 8})}};
    for (const char* f : {"int4", "mx4"}) {
        const precision_plan plan = weights_only(m, parse_precision(f), true).plan;
        model one = m, four = m, narrow = m;
        compensate_rounding(one, plan, x, {.threads = 1});
        compensate_rounding(four, plan, x, {.threads = 4, .memory = 1});
        for (const char* w : {"w1", "w2", "w3", "w4", "w5", "w6"}) CHECK(same(one.constant(w), four.constant(w)));
        for (const compensated_weight& d : compensate_rounding(narrow, plan, x, {.columns = 8})) CHECK(d.compensated >= d.nearest);
    }
}

TEST_CASE("what is left to nearest is named; what is not narrowed is not touched") {
    small_graph g;
    g.input("x", {1, 4, 6, 6}).output("y", {1, 4, 6, 6});
    g.constant("shared", {4, 4, 1, 1}).constant("up", {4, 4, 1, 1}).constant("half", {4, 4, 1, 1}).constant("left", {6, 6});
    g.node("Conv", "a", {"x", "shared"});
    g.node("Conv", "b", {"a_out", "shared"});
    g.node("ConvTranspose", "c", {"b_out", "up"});
    g.node("Conv", "d", {"c_out", "half"});
    g.node("MatMul", "e", {"left", "d_out"}, "y");
    const model m = g.build();
    quantize_result planned = planner(m).plan({{.scope = scope::everything, .role = role::weight, .what = parse_precision("int4")},
                                               {.scope = scope::layer, .role = role::weight, .name = "d", .what = parse_precision("fp16")}},
                                              {.how = approach::weight_only});
    planned.plan.edges[{"left", "e", 0}] = {.format = qk::int4, .scale = {0.1f}, .zero_point = {}};
    model rounded = m;
    const auto done = compensate_rounding(rounded, planned.plan, {{"x", correlated({4, 4, 6, 6})}});
    std::map<std::string, std::string> left;
    for (const compensated_weight& d : done) left[d.layer] = d.left;
    CHECK(left == std::map<std::string, std::string>{{"a", "other nodes read the same weights"},
                                                     {"b", "other nodes read the same weights"},
                                                     {"c", "ConvTranspose with weights [4,4,1,1] is not one product of a matrix"},
                                                     {"e", "they are the first factor"}});
    for (const char* w : {"shared", "up", "half", "left"}) CHECK(same(rounded.constant(w), m.constant(w)));
    add_to(planned.report, done);
    CHECK(std::count_if(planned.report.notes.begin(), planned.report.notes.end(),
                        [](const plan_note& n) { return n.what == plan_note::kind::unrealised && is_violation(n); }) == 4);
}
