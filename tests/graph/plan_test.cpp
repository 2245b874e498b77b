// SPDX-License-Identifier: Apache-2.0
// Requests become plans: which tensors are quantized by default, which request wins, what propagates, and what the report says.
#include <doctest/doctest.h>

#include "plan_cases.hpp"
#include "qk/graph/base/format_text.hpp"
#include "qk/graph/base/names.hpp"
#include "qk/graph/ops/known_values.hpp"
#include "qk/graph/quantize/planner.hpp"
#include "small_graph.hpp"

using namespace qk::graph;
using namespace qk_test;
using qk::int16;
using qk::int8;

TEST_CASE("glob and nearest names") {
    CHECK(glob_match("layer?.conv*", "layer1.conv2"));
    CHECK_FALSE(glob_match("layer?.conv", "layer12.conv"));
    CHECK(glob_match("[a-c]*", "beta"));
    CHECK_FALSE(glob_match("[!a-c]*", "beta"));
    CHECK(glob_match("*", ""));
    CHECK(nearest_names("conv11", {"relu", "conv1", "gemm"}) == std::vector<std::string>{"conv1"});
    CHECK(nearest_names("q_porj", {"conv1", "/model/layers.0/self_attn/q_proj/MatMul"}).size() == 1);
    CHECK(nearest_names("Q_proj", {"conv1", "/model/layers.0/self_attn/q_proj/MatMul"}).size() == 1);
    CHECK(nearest_names("q_porj", {"conv1", "/model/layers.0/self_attn/o_norm/Mul"}).empty());
    CHECK(did_you_mean("cnov1", {"conv1"}) == " Did you mean 'conv1'?");
    CHECK(did_you_mean("conv1", {"conv1", "conv2"}) == " Did you mean 'conv2'?");
    CHECK(did_you_mean("conv?", {"conv1", "cnv"}) == " Did you mean 'cnv'?");  // conv1 is what the pattern names
    CHECK(did_you_mean("flat[0]", {"flat[0]"}).empty());
}

TEST_CASE("a model is walked and read for planning once; what changes it is read anew") {
    const model m = residual_model();
    const std::size_t before = walks_made();
    const layer_view one(m), other(m);
    CHECK(known_values_of(m)->type("conv1_out") == data_type::float32);
    CHECK(walks_made() == before + 1);
    CHECK(&one.nodes() == &other.nodes());
    model changed = m;
    CHECK(&layer_view(changed).nodes() == &one.nodes());
    tensor weights = changed.constant("w1");
    std::ranges::fill(weights.as<float>(), 2.0f);
    for (auto& held : *changed.graph().mutable_initializer())
        if (held.name() == "w1") to_proto(weights, "w1", held);
    changed.reindex();
    CHECK(&layer_view(changed).nodes() == &one.nodes());  // what is known does not follow from values of weights
    changed.graph().mutable_node(0)->set_output(0, "other");
    changed.graph().add_output()->set_name("other");
    for (auto& n : *changed.graph().mutable_node())
        for (auto& i : *n.mutable_input())
            if (i == m.graph().node(0).output(0)) i = "other";
    changed.reindex();
    CHECK(&layer_view(changed).nodes() != &one.nodes());
    CHECK(walks_made() == before + 2);
}

TEST_CASE("integer default: layers, their neighbours, data movers; nothing between a node and its Relu; output in float") {
    const model m = residual_model();
    const calibration seen = residual_ranges();
    const quantize_result r = quantize(m, precision_requests().set_default("int8", "int8"), seen);
    CHECK(format_at(r.plan, "x", "conv1", 0) == "int8");
    CHECK(format_at(r.plan, "conv1_out", "relu1", 0) == "fp32");
    CHECK(format_at(r.plan, "relu1_out", "conv2", 0) == "int8");
    CHECK(format_at(r.plan, "relu1_out", "add", 1) == "int8");
    CHECK(format_at(r.plan, "conv2_out", "add", 0) == "int8");
    CHECK(format_at(r.plan, "add_out", "relu2", 0) == "fp32");
    CHECK(format_at(r.plan, "relu2_out", "pool", 0) == "int8");
    CHECK(format_at(r.plan, "pool_out", "conv3", 0) == "int8");
    CHECK(format_at(r.plan, "y", "", 0) == "fp32");
    CHECK(format_at(r.plan, "w1", "conv1", 1) == "int8");
    CHECK(format_at(r.plan, "b1", "conv1", 2) == "int32");
    // The output of a node that only moves data has its input's scale.
    CHECK(r.plan.find({"relu2_out", "pool", 0})->scale == r.plan.find({"pool_out", "conv3", 0})->scale);
    // A bias has the scale s_x * s_w.
    const float sx = r.plan.find({"x", "conv1", 0})->scale[0], sw = r.plan.find({"w1", "conv1", 1})->scale[0];
    CHECK(r.plan.find({"b1", "conv1", 2})->scale[0] == static_cast<float>(double(sx) * double(sw)));
    CHECK(r.report.notes.empty());
}

TEST_CASE("block formats: compute layers only, along the reduction axis, without calibration") {
    const model m = residual_model();
    planner p(m);
    precision_requests q;
    q.set_default("bfp16", "mxfp4");
    const quantize_result r = p.plan(q.list());
    CHECK(format_at(r.plan, "relu1_out", "conv2", 0) == "bfp16");
    CHECK(format_at(r.plan, "relu1_out", "add", 1) == "fp32");
    CHECK(format_at(r.plan, "relu2_out", "pool", 0) == "fp32");
    CHECK(format_at(r.plan, "pool_out", "conv3", 0) == "bfp16");
    CHECK(format_at(r.plan, "w2", "conv2", 1) == "mxfp4");
    CHECK(format_at(r.plan, "b2", "conv2", 2) == "fp32");
    CHECK(r.plan.find({"w2", "conv2", 1})->axis == 1);
    CHECK_THROWS_WITH_AS(p.plan(precision_requests().set_default("int8", "int8").list()), doctest::Contains("calibration"), error);
}

TEST_CASE("the latest request wins whatever its scope; the loser is reported") {
    const model m = residual_model();
    const calibration seen = residual_ranges();
    precision_requests q;
    q.set_default("int8", "int8");
    q.set_precision("conv2", "int16", {{"weight", "int16"}});
    q.set_type_precision("Conv", role::weight, parse_precision("int4"));
    const quantize_result r = quantize(m, q, seen);
    CHECK(format_at(r.plan, "w2", "conv2", 1) == "int4");
    CHECK(format_at(r.plan, "relu1_out", "conv2", 0) == "int16");
    CHECK(says(r.report, plan_note::kind::overridden, "conv2"));

    q.set_precision("conv2", role::weight, parse_precision("int8"));
    q.set_precision("conv2", role::weight, parse_precision("int2"));
    const quantize_result again = quantize(m, q, seen);
    CHECK(format_at(again.plan, "w2", "conv2", 1) == "int2");
    CHECK(says(again.report, plan_note::kind::contradictory, "int8"));
    CHECK(quantize(m, q, seen, {.strict = true}).plan == again.plan);  // that the later request counts is what was asked
    CHECK_THROWS_WITH_AS(quantize(m, q, seen, {.strict_all = true}), doctest::Contains("conv2"), error);
}

TEST_CASE("every request scope reaches its edges") {
    const model m = residual_model();
    const calibration seen = residual_ranges();
    precision_requests q;
    q.set_default("int8", "int8");
    q.set_model_input_precision({"bf16"});
    q.set_model_output_precision({"fp16"});
    q.set_subgraph_precision("conv2", "add", role::input, parse_precision("int16"));
    q.set_tensor_precision("relu2_out", parse_precision("uint8"));
    q.exclude("conv3");
    const quantize_result r = quantize(m, q, seen);
    CHECK(format_at(r.plan, "x", "conv1", 0) == "bf16");
    CHECK(format_at(r.plan, "y", "", 0) == "fp16");
    CHECK(format_at(r.plan, "relu1_out", "conv2", 0) == "int16");
    CHECK(format_at(r.plan, "conv2_out", "add", 0) == "int16");
    CHECK(format_at(r.plan, "relu2_out", "pool", 0) == "uint8");
    CHECK(format_at(r.plan, "w3", "conv3", 1) == "fp32");
    CHECK(format_at(r.plan, "pool_out", "conv3", 0) == "fp32");  // excluded after the tensor request
}

TEST_CASE("tensor formats propagate through data movement, both ways, and say so") {
    const model m = residual_model();
    const calibration seen = residual_ranges();
    const quantize_result down =
        quantize(m, precision_requests().set_default("int8", "int8").set_tensor_precision("relu2_out", parse_precision("int16")), seen);
    CHECK(format_at(down.plan, "pool_out", "conv3", 0) == "int16");
    CHECK(says(down.report, plan_note::kind::propagated, "pool_out"));
    const quantize_result up =
        quantize(m, precision_requests().set_default("int8", "int8").set_precision("conv3", role::input, parse_precision("int16")), seen);
    CHECK(format_at(up.plan, "relu2_out", "pool", 0) == "int16");
    // What asks the same of both sides is met on both; what asks for another format on the far side gives way to a later request, and says
    // so.
    const auto both = [&](const char* behind) {
        precision_requests r;
        r.set_tensor_precision("pool_out", parse_precision(behind)).set_tensor_precision("relu2_out", parse_precision("int16"));
        return quantize(m, r, seen);
    };
    const quantize_result same = both("int16"), other = both("int8");
    CHECK(format_at(same.plan, "pool_out", "conv3", 0) == "int16");
    CHECK(format_at(other.plan, "pool_out", "conv3", 0) == "int16");
    CHECK(says(other.report, plan_note::kind::overridden, "pool_out"));
    for (const quantize_result* made : {&same, &other}) CHECK_FALSE(says(made->report, plan_note::kind::unrealised, "pool_out"));
}

TEST_CASE("a shared tensor takes the wider format, or both with dual") {
    const model m = residual_model();
    const calibration seen = residual_ranges();
    precision_requests q;
    q.set_default("int8", "int8").set_precision("conv2", role::input, parse_precision("int16"));
    const quantize_result one = quantize(m, q, seen);
    CHECK(format_at(one.plan, "relu1_out", "conv2", 0) == "int16");
    CHECK(format_at(one.plan, "relu1_out", "add", 1) == "int16");
    CHECK(says(one.report, plan_note::kind::boundary, "relu1_out"));
    const quantize_result both = quantize(m, q, seen, {.dual = true});
    CHECK(format_at(both.plan, "relu1_out", "conv2", 0) == "int16");
    CHECK(format_at(both.plan, "relu1_out", "add", 1) == "int8");
    CHECK(count(both.report, plan_note::kind::boundary) == 0);
}

TEST_CASE("names that match nothing are reported with the nearest names; strict makes them errors") {
    const model m = residual_model();
    const calibration seen = residual_ranges();
    precision_requests q;
    q.set_default("int8", "int8").set_precision("conv22", "int16").set_type_precision("Convv", role::weight, parse_precision("int4"));
    q.set_tensor_precision("relu1_uot", parse_precision("int16")).set_model_output_precision({std::nullopt, "int8"});
    const quantize_result r = quantize(m, q, seen);
    CHECK(count(r.report, plan_note::kind::unmatched) == 4);
    CHECK(says(r.report, plan_note::kind::unmatched, "'conv2'"));
    CHECK(says(r.report, plan_note::kind::unmatched, "'Conv'"));
    CHECK(says(r.report, plan_note::kind::unmatched, "'relu1_out'"));
    CHECK(says(r.report, plan_note::kind::unmatched, "the model has 1 outputs"));
    CHECK_THROWS_WITH_AS(quantize(m, q, seen, {.strict = true}), doctest::Contains("conv22"), error);
}

TEST_CASE("an output request stands behind the Relu; weights of a Relu cannot be") {
    const model m = residual_model();
    const calibration seen = residual_ranges();
    precision_requests q;
    q.set_precision("conv1", role::output, parse_precision("int8")).set_precision("relu1", role::weight, parse_precision("int8"));
    const quantize_result r = quantize(m, q, seen);
    CHECK(format_at(r.plan, "conv1_out", "relu1", 0) == "fp32");
    CHECK(format_at(r.plan, "relu1_out", "conv2", 0) == "int8");
    CHECK(format_at(r.plan, "relu1_out", "add", 1) == "int8");
    CHECK(says(r.report, plan_note::kind::moved, "relu1"));
    CHECK(says(r.report, plan_note::kind::unrealised, "relu1"));
}

TEST_CASE("every ordered pair of formats as activation and weight, and as neighbours") {
    const model m = residual_model();
    const calibration seen = residual_ranges();
    planner p(m, &seen);
    const char* names[] = {
        "fp32", "int4", "uint8", "int16", "bf16", "fp8_e4m3fn", "bfp16", "mx6", "mxfp4", "nvfp4", "float:exponent=3,mantissa=2"};
    for (const char* a : names)
        for (const char* b : names) {
            precision_requests q;
            q.set_default(a, b)
                .set_precision("conv3", role::input, parse_precision(b))
                .set_precision("conv3", role::weight, parse_precision(a));
            const precision_plan plan = p.plan(q.list()).plan;
            CAPTURE(a);
            CAPTURE(b);
            CHECK(format_at(plan, "relu1_out", "conv2", 0) == a);
            CHECK(format_at(plan, "w2", "conv2", 1) == b);
            CHECK(format_at(plan, "pool_out", "conv3", 0) == b);
            CHECK(format_at(plan, "w3", "conv3", 1) == a);
        }
}

TEST_CASE("scales from ranges are those of docs/reference/numerics.md") {
    CHECK(scale_of(int8, {-1, 3}, false) == scale_pair{static_cast<float>(4.0 / 255), -64});  // -128 + 63.75, rounded
    CHECK(scale_of(int8, {2, 3}, false) == scale_pair{static_cast<float>(3.0 / 255), -128});
    CHECK(scale_of(int8, {-1, 3}, true) == scale_pair{static_cast<float>(3.0 / 127), 0});
    CHECK(scale_of(qk::uint8, {-1, 3}, true) == scale_pair{static_cast<float>(6.0 / 255), 128});
    CHECK(scale_of(int8, {0, 0}, false) == scale_pair{1, 0});
    CHECK(scale_of(int8, {-1e-40f, 0}, true) == scale_pair{1, 0});
    const qk::integer pow2{.bits = 8, .pow2 = true};
    CHECK(scale_of(pow2, {-1, 1}, true).scale == 1.0f / 64);  // does not overflow
    CHECK(scale_of(pow2, {-127.0f / 64, 1}, true).scale == 1.0f / 64);
    CHECK(scale_of(pow2, {-1, 1}, true, pow2_rule::nearest).scale == 1.0f / 128);  // Quark's rule, which clips
    const qk::integer reduced{.bits = 8, .reduce_range = true};
    CHECK(scale_of(reduced, {-1, 1}, true).scale == static_cast<float>(1.0 / 63));
}

TEST_CASE("weights are quantized from their float values however often plans are made") {
    const model m = residual_model();
    const calibration seen = residual_ranges();
    planner p(m, &seen);
    precision_requests narrow, wide;
    narrow.set_default("int8", "int4");
    wide.set_default("int8", "int16");
    const precision_plan fresh = planner(m, &seen).plan(wide.list()).plan;
    p.plan(narrow.list());
    CHECK(p.plan(wide.list()).plan == fresh);
}

TEST_CASE("a bias that would overflow int32 enlarges the weight's scale and is reported") {
    small_graph g;
    g.input("x", {1, 2, 4, 4})
        .output("y", {1, 2, 4, 4})
        .constant("w", {2, 2, 1, 1}, 1, {1e-6f, 1e-6f, 1, 1})
        .constant("b", {2}, 1, {1000, 1});
    g.node("Conv", "conv", {"x", "w", "b"}, "y");
    const model m = g.build();
    const calibration seen = made_up_ranges({"x"}, {1, 2, 4, 4});
    const quantize_result r = quantize(m, precision_requests().set_default("int8", "int8"), seen, {.per_channel = true});
    const quantizer *w = r.plan.find({"w", "conv", 1}), *b = r.plan.find({"b", "conv", 2});
    CHECK(w->scale[0] > static_cast<float>(1e-6 / 127));
    CHECK(w->scale[1] == static_cast<float>(1.0 / 127));
    CHECK(1000.0 / double(b->scale[0]) <= 2147483520.0);
    CHECK(says(r.report, plan_note::kind::adjusted, "conv"));
}

TEST_CASE("an int32 bias has the scale of its layer's products, whatever rule chose scales, and is not clipped") {
    small_graph g;
    g.input("x", {1, 4}).output("y", {1, 2}).constant("w", {4, 2}, 0.7f).constant("b", {2}, 1, {1.4f, -1.3f});
    auto* alpha = g.node("Gemm", "gemm", {"x", "w", "b"}, "y").add_attribute();
    alpha->set_name("alpha"), alpha->set_type(onnx::AttributeProto::FLOAT), alpha->set_f(0.3f);
    const model m = g.build();
    const calibration seen = made_up_ranges({"x"}, {1, 4});
    for (const std::optional<pow2_rule> rule : {std::optional<pow2_rule>(), std::optional(pow2_rule::non_overflow),
                                                std::optional(pow2_rule::nearest), std::optional(pow2_rule::min_mse)}) {
        const auto precision_of = [&](int bits) {
            return precision{.format = qk::integer{.bits = bits, .pow2 = rule.has_value()}, .pow2 = rule};
        };
        precision_requests asked;
        asked.set_default(precision_of(8), precision_of(8)).set_precision("gemm", role::bias, precision_of(32));
        const precision_plan p = quantize(m, asked, seen, {.per_channel = false}).plan;
        const quantizer *x = p.find({"x", "gemm", 0}), *w = p.find({"w", "gemm", 1}), *b = p.find({"b", "gemm", 2});
        CHECK(b->format == qk::format(qk::int32));
        CHECK(b->scale == std::vector<float>{static_cast<float>(0.3f * double(x->scale[0]) * double(w->scale[0]))});
        CHECK(applied(*b, m.constant("b")).as<float>()[0] == doctest::Approx(1.4f).epsilon(1e-3));
    }
    // Beside activations in float it has a scale of its own, which does not clip either.
    precision_requests alone;
    alone.set_default("fp32", "int8")
        .set_precision("gemm", role::bias, {.format = qk::integer{.bits = 32, .pow2 = true}, .pow2 = pow2_rule::nearest});
    const precision_plan p = quantize(m, alone, seen).plan;
    CHECK(applied(*p.find({"b", "gemm", 2}), m.constant("b")).as<float>()[0] == doctest::Approx(1.4f).epsilon(1e-6));
}

TEST_CASE("per channel, per block and grouped weights: axes") {
    small_graph g;
    g.input("x", {1, 8, 4, 4})
        .output("y", {1, 3})
        .constant("dw", {8, 1, 3, 3})
        .constant("t", {8, 4, 2, 2})
        .constant("m", {256, 16})
        .constant("g", {3, 16});
    auto& depthwise = g.node("Conv", "depthwise", {"x", "dw"});
    small_graph::set(depthwise, "group", 8);
    auto& up = g.node("ConvTranspose", "up", {"depthwise_out", "t"});
    small_graph::set(up, "strides", {2, 2});
    g.node("Flatten", "flat", {"up_out"});
    g.node("MatMul", "mat", {"flat_out", "m"});
    auto& gemm = g.node("Gemm", "gemm", {"mat_out", "g"}, "y");
    small_graph::set(gemm, "transB", 1);
    const model m = g.build();
    calibration seen = made_up_ranges({"x", "depthwise_out", "up_out", "flat_out", "mat_out"});
    planner p(m, &seen);
    const auto plan_of = [&](const char* weight, const quantize_options& o, std::optional<int> block = {}) {
        precision w = parse_precision(weight);
        w.block_size = block;
        return p.plan(precision_requests().set_default(parse_precision("int8"), w).list(), o).plan;
    };
    const precision_plan channel = plan_of("int8", {.per_channel = true});
    CHECK(channel.find({"dw", "depthwise", 1})->scale.size() == 8);
    CHECK(channel.find({"dw", "depthwise", 1})->axis == 0);
    CHECK(channel.find({"t", "up", 1})->axis == 1);
    CHECK(channel.find({"t", "up", 1})->scale.size() == 4);
    CHECK(channel.find({"m", "mat", 1})->axis == 1);
    CHECK(channel.find({"g", "gemm", 1})->axis == 0);
    CHECK(channel.find({"g", "gemm", 1})->scale.size() == 3);
    const precision_plan block = plan_of("mxfp4", {});
    CHECK(block.find({"dw", "depthwise", 1})->flatten);
    CHECK(block.find({"t", "up", 1})->axis == 0);
    CHECK(block.find({"m", "mat", 1})->axis == 0);
    CHECK(block.find({"g", "gemm", 1})->axis == 1);
    const precision_plan runs = plan_of("int4", {}, 32);
    CHECK(runs.find({"m", "mat", 1})->scale.size() == 256 / 32 * 16);
    CHECK(runs.find({"m", "mat", 1})->block_size == 32);
    // A bit is worth about 6 dB; the report measures the weights' SQNR, it does not estimate it.
    const quantize_result r = p.plan(precision_requests().set_default("int8", "int8").list());
    for (const edge_report& e : r.report.edges)
        if (e.part == layer_view::part::weight) CHECK(e.sqnr > 35);
}

TEST_CASE("a target profile keeps layers inside a runtime and says what it left out") {
    const model m = residual_model();
    const calibration seen = residual_ranges();
    target_profile t{.name = "toy", .operators = {{"Conv", {{int8}, {int8}}}, {"Add", {{int8}, {}}}}};
    precision_requests q;
    q.set_default("int8", "int8").set_precision("conv3", "int16", {{"weight", "int8"}});
    const quantize_result r = quantize(m, q, seen, {.target = t});
    CHECK(format_at(r.plan, "x", "conv1", 0) == "int8");
    CHECK(format_at(r.plan, "w3", "conv3", 1) == "fp32");
    CHECK(says(r.report, plan_note::kind::left_out, "conv3"));
}

TEST_CASE("dynamic and weight-only") {
    const model m = residual_model();
    planner p(m);
    precision_requests q;
    q.set_default("int8", "int8");
    const precision_plan dynamic = p.plan(q.list(), {.how = approach::dynamic}).plan;
    CHECK(dynamic.find({"x", "conv1", 0})->dynamic);
    CHECK(format_at(dynamic, "relu1_out", "add", 1) == "fp32");
    CHECK(format_at(dynamic, "b1", "conv1", 2) == "fp32");
    const precision_plan weights = p.plan(q.list(), {.how = approach::weight_only}).plan;
    CHECK(format_at(weights, "x", "conv1", 0) == "fp32");
    CHECK(format_at(weights, "w1", "conv1", 1) == "int8");
}

TEST_CASE("what a Concat joins takes the scale of the result, where nobody else reads it") {
    const auto build = [](bool shared) {
        small_graph g;
        g.input("x", {1, 4, 8, 8})
            .output("y", {1, 4, 8, 8})
            .constant("a", {4, 4, 1, 1})
            .constant("b", {4, 4, 1, 1})
            .constant("c", {4, 8, 1, 1});
        g.node("Conv", "one", {"x", "a"});
        g.node("Conv", "two", {"x", "b"});
        small_graph::set(g.node("Concat", "cat", {"one_out", shared ? "x" : "two_out"}), "axis", 1);
        g.node("Conv", "three", {"cat_out", "c"}, "y");
        return g.build();
    };
    const calibration seen = made_up_ranges({"x", "one_out", "two_out", "cat_out", "y"});
    const model m = build(false), n = build(true);
    const precision_plan p = quantize(m, precision_requests().set_default("int8", "int8"), seen).plan;
    CHECK(p.tensors.at("one_out").scale == p.tensors.at("cat_out").scale);
    CHECK(p.tensors.at("two_out") == p.tensors.at("one_out"));
    CHECK(p.tensors.at("x").scale != p.tensors.at("cat_out").scale);

    // A tensor with other readers, another format, or a range of its own keeps its scale.
    const precision_plan q = quantize(n, precision_requests().set_default("int8", "int8"), seen).plan;
    CHECK(q.find({"one_out", "cat", 0})->scale == q.tensors.at("cat_out").scale);
    CHECK(q.find({"x", "cat", 1})->scale != q.tensors.at("cat_out").scale);
    precision own{.format = int8};
    own.range = {-1.0f, 1.0f};
    const precision_plan r = quantize(m, precision_requests().set_default("int8", "int8").set_tensor_precision("one_out", own), seen).plan;
    CHECK(r.tensors.at("one_out").scale[0] == 2.0f / 255);
}

TEST_CASE("one scale has no axis: a weight that two layers read is one tensor, and so is a product with itself") {
    small_graph g;
    g.input("x", {4, 8}).output("y", {4, 4}).constant("w", {8, 8});
    g.node("MatMul", "one", {"x", "w"});
    small_graph::set(g.node("Gemm", "two", {"one_out", "w"}), "transB", 1);
    g.node("Transpose", "turn", {"two_out"});
    g.node("MatMul", "three", {"two_out", "turn_out"}, "y");
    const precision_plan p = quantize(g.build(), precision_requests().set_default("int8", "int8"),
                                      made_up_ranges({"x", "one_out", "two_out", "turn_out", "y"}), {.per_channel = false})
                                 .plan;
    CHECK(p.edges.empty());
    CHECK(p.tensors.contains("w"));
    CHECK(p.tensors.contains("two_out"));
}
