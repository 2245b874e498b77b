// SPDX-License-Identifier: Apache-2.0
// Masks of finite values, such as -1e4, stay as they are however they come to the scores; large values that are no mask do not.
#include <doctest/doctest.h>

#include <functional>

#include "build_model.hpp"
#include "graph/quantize/softmax_masks.hpp"
#include "plan_cases.hpp"
#include "qk/graph/calibrate/calibrate.hpp"

using namespace qk::graph;
using namespace qk_test;

namespace {

constexpr std::int64_t rows = 4;

/// A model whose scores "s" [4,4] become "a", which goes through a Softmax.
struct attention {
    builder b{17};
    attention() {
        b.input("x", {rows, 8}).output("y", {rows, 8});
        set(b.node("Transpose", {"x"}, {"xt"}, "turn"), "perm", std::vector<std::int64_t>{1, 0});
        b.node("MatMul", {"x", "xt"}, {"s"}, "scores");
    }
    attention& softmax() {
        set(b.node("Softmax", {"a"}, {"p"}, "softmax"), "axis", -1);
        b.node("MatMul", {"p", "x"}, {"y"}, "context");
        return *this;
    }
    attention& integers(const std::string& name, std::vector<std::int64_t> values) {
        to_proto(make_tensor<std::int64_t>({static_cast<std::int64_t>(values.size())}, values), name, *b.g().add_initializer());
        return *this;
    }
};

/// Returns the upper triangle of `value`, without the diagonal.
std::vector<float> triangle(float value) {
    std::vector<float> mask;
    for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < rows; ++j) mask.push_back(j > i ? value : 0.0f);
    return mask;
}
named_tensors inputs(bool with_mask = false) {
    named_tensors data{{"x", random_tensor({rows, 8}, 3, 1)}};
    if (with_mask) data["m"] = make_tensor<std::int64_t>({rows}, std::vector<std::int64_t>{1, 1, 1, 0});
    return data;
}
precision_requests all_of(const char* format) {
    precision_requests q;
    q.set_default(format, format);
    return q;
}

/// Checks that the mask is found and left alone, by the graph alone and with calibration.
void is_left(const model& m, const named_tensors& data, const std::string& what) {
    INFO(what);
    const layer_view layers(m);
    CHECK(masks_before_softmax(layers, nullptr).contains("a"));
    CHECK(!masks_before_softmax(layers, nullptr).contains("s"));
    const calibration seen = calibrate(m, data);
    const quantize_result whole = quantize(m, all_of("int8"), seen, {.where = placement::every});
    CHECK(format_at(whole.plan, "a", "softmax", 0) == "fp32");
    CHECK(says(whole.report, plan_note::kind::unrealised, "tensor 'a': holds a mask (values down to -"));
    const quantize_result blocks = planner(m).plan(all_of("bfp16").list(), {.where = placement::every});
    CHECK(format_at(blocks.plan, "a", "softmax", 0) == "fp32");
    CHECK(says(blocks.report, plan_note::kind::unrealised, "tensor 'a': holds a mask (values down to -"));
    CHECK(format_at(whole.plan, "p", "context", 0) == "int8");
    CHECK_THROWS_WITH_AS(quantize(m, all_of("int8"), seen, {.where = placement::every, .strict = true}), doctest::Contains("holds a mask"),
                         error);
    const evaluator run(m);
    const tensor wanted = run.run(data).outputs.at("y"), got = run.run(data, whole.plan).outputs.at("y"),
                 rough = run.run(data, blocks.plan).outputs.at("y");
    CHECK(sqnr(wanted.as<float>(), got.as<float>()) > 24);
    CHECK(sqnr(wanted.as<float>(), rough.as<float>()) > 18);
}

}  // namespace

TEST_CASE("a constant mask that is added stays as it is, whatever its value") {
    for (const float value : {-1e4f, -65504.0f, -7e4f, -1e9f, -3.4028235e38f})
        for (const bool first : {false, true}) {
            attention a;
            a.b.constant("mask", {rows, rows}, triangle(value));
            if (first) a.b.node("Add", {"mask", "s"}, {"a"}, "add");
            else a.b.node("Add", {"s", "mask"}, {"a"}, "add");
            const model m = a.softmax().b.model();
            is_left(m, inputs(), "a constant of " + std::to_string(value));
            const calibration seen = calibrate(m, inputs());
            const quantize_result r = quantize(m, all_of("int8"), seen, {.where = placement::all});
            CHECK(format_at(r.plan, "mask", "add", first ? 0 : 1) == "fp32");
        }
}

TEST_CASE("a mask is found on every way to the scores") {
    using build = std::function<void(attention&)>;
    const std::pair<const char*, build> ways[] = {
        {"Where with a constant",
         [](attention& a) {
             a.b.input("m", {rows}, 7).constant("never", {}, {-1e4f});
             a.integers("zero", {0}).b.node("Equal", {"m", "zero"}, {"hidden"});
             a.b.node("Where", {"hidden", "never", "s"}, {"a"});
         }},
        {"(1 - m) * -10000 of whole numbers",
         [](attention& a) {
             a.b.input("m", {rows}, 7).constant("one", {}, {1}).constant("low", {}, {-10000});
             set(a.b.node("Cast", {"m"}, {"f"}), "to", 1);
             a.integers("axes", {0}).b.node("Unsqueeze", {"f", "axes"}, {"u"});
             a.b.node("Sub", {"one", "u"}, {"hidden"});
             a.b.node("Mul", {"hidden", "low"}, {"mask"});
             a.b.node("Add", {"s", "mask"}, {"a"});
         }},
        {"s - (1 - m) * 10000, and Expand",
         [](attention& a) {
             a.b.input("m", {rows}, 7).constant("one", {}, {1}).constant("high", {}, {10000});
             set(a.b.node("Cast", {"m"}, {"f"}), "to", 1);
             a.b.node("Sub", {"one", "f"}, {"hidden"});
             a.b.node("Mul", {"hidden", "high"}, {"line"});
             a.integers("shape", {rows, rows}).b.node("Expand", {"line", "shape"}, {"mask"});
             a.b.node("Sub", {"s", "mask"}, {"a"});
         }},
        {"a filled and cut triangle, through Concat and Slice",
         [](attention& a) {
             a.b.input("m", {rows}, 7).constant("none", {rows, 1}, {0, 0, 0, 0});
             a.b.node("Shape", {"s"}, {"shape"});
             auto& filled = a.b.node("ConstantOfShape", {"shape"}, {"full"});
             auto* value = filled.add_attribute();
             value->set_name("value"), value->set_type(onnx::AttributeProto::TENSOR);
             to_proto(make_tensor<float>({1}, std::vector<float>{-1e9f}), "", *value->mutable_t());
             a.integers("one", {1}).b.node("Trilu", {"full", "one"}, {"upper"});
             set(a.b.node("Concat", {"upper", "none"}, {"long"}), "axis", 1);
             a.integers("from", {0}).integers("to", {rows}).b.node("Slice", {"long", "from", "to", "one"}, {"mask"});
             a.b.node("Add", {"s", "mask"}, {"a"});
         }},
        {"scattered into the scores",
         [](attention& a) {
             a.b.input("m", {rows}, 7).constant("never", {2}, {-1e4f, -1e4f});
             to_proto(make_tensor<std::int64_t>({2, 2}, std::vector<std::int64_t>{0, 1, 1, 3}), "places", *a.b.g().add_initializer());
             a.b.node("ScatterND", {"s", "places", "never"}, {"a"});
         }},
        {"two masks, one after the other",
         [](attention& a) {
             a.b.input("m", {rows}, 7).constant("first", {rows, rows}, triangle(-1e4f)).constant("second", {rows}, {0, 0, 0, -1e4f});
             a.b.node("Add", {"s", "first"}, {"once"});
             a.b.node("Add", {"once", "second"}, {"a"});
         }},
    };
    for (const auto& [what, build_mask] : ways) {
        attention a;
        build_mask(a);
        is_left(a.softmax().b.model(), inputs(true), what);
    }
}

TEST_CASE("a mask before a Softmax in single operators, and one that is a model input") {
    attention a;
    a.b.constant("mask", {rows, rows}, triangle(-1e4f));
    a.b.node("Add", {"s", "mask"}, {"a"}, "add");
    set(a.b.node("ReduceMax", {"a"}, {"top"}, "top"), "axes", std::vector<std::int64_t>{1});
    a.b.node("Sub", {"a", "top"}, {"low"}, "low");
    a.b.node("Exp", {"low"}, {"e"}, "exp");
    a.integers("axis", {1}).b.node("ReduceSum", {"e", "axis"}, {"sum"}, "sum");
    a.b.node("Div", {"e", "sum"}, {"p"}, "div");
    a.b.node("MatMul", {"p", "x"}, {"y"}, "context");
    const model steps = a.b.model();
    const quantize_result r = quantize(steps, all_of("int8"), calibrate(steps, inputs()), {.where = placement::every});
    CHECK(format_at(r.plan, "a", "low", 0) == "fp32");
    CHECK(format_at(r.plan, "low", "exp", 0) == "fp32");
    CHECK(format_at(r.plan, "e", "div", 0) == "int8");

    attention given;
    given.b.input("mask", {rows, rows});
    given.b.node("Add", {"s", "mask"}, {"a"}, "add");
    const model m = given.softmax().b.model();
    named_tensors data = inputs();
    data["mask"] = make_tensor<float>({rows, rows}, triangle(-1e4f));
    const quantize_result taken = quantize(m, all_of("int8"), calibrate(m, data), {.where = placement::every});
    CHECK(format_at(taken.plan, "mask", "add", 1) == "fp32");
    CHECK(format_at(taken.plan, "a", "softmax", 0) == "fp32");
    data["mask"] = make_tensor<float>({rows, rows}, triangle(-3));  // a bias of positions
    const quantize_result bias = quantize(m, all_of("int8"), calibrate(m, data), {.where = placement::every});
    CHECK(format_at(bias.plan, "a", "softmax", 0) == "int8");
}

TEST_CASE("large values that are no mask are quantized") {
    using build = std::function<void(attention&)>;
    const std::pair<const char*, build> models[] = {
        {"scores that a layer computed",
         [](attention& a) {
             a.b.constant("sharp", {}, {-1e4f});
             a.b.node("Mul", {"s", "sharp"}, {"a"});
             a.softmax();
         }},
        {"a bias that exp does not make 0",
         [](attention& a) {
             a.b.constant("bias", {rows, rows}, triangle(-60));
             a.b.node("Add", {"s", "bias"}, {"a"});
             a.softmax();
         }},
        {"a sum that is an output, too",
         [](attention& a) {
             a.b.output("a", {rows, rows}).constant("mask", {rows, rows}, triangle(-1e4f));
             a.b.node("Add", {"s", "mask"}, {"a"});
             a.softmax();
         }},
        {"a sum that no Softmax reads",
         [](attention& a) {
             a.b.constant("offset", {rows, rows}, triangle(-1e4f));
             a.b.node("Add", {"s", "offset"}, {"a"});
             a.b.node("Tanh", {"a"}, {"p"}, "softmax");
             a.b.node("MatMul", {"p", "x"}, {"y"});
         }},
        {"scores as far apart as the mask",
         [](attention& a) {
             a.b.constant("mask", {rows, rows}, triangle(-1e4f)).constant("large", {}, {4000});
             a.b.node("Mul", {"s", "large"}, {"wide"});
             a.b.node("Add", {"wide", "mask"}, {"a"});
             a.softmax();
         }},
    };
    for (const auto& [what, build_model] : models) {
        INFO(what);
        attention a;
        build_model(a);
        const model m = a.b.model();
        const calibration seen = calibrate(m, inputs());
        CHECK(masks_before_softmax(layer_view(m), &seen).empty());
        const quantize_result r = quantize(m, all_of("int8"), seen, {.where = placement::every});
        CHECK(format_at(r.plan, "a", "softmax", 0) == "int8");
        CHECK(count(r.report, plan_note::kind::unrealised) == 0);
    }
}

TEST_CASE("a mask below float16's lowest value stays as it is in float16, a higher one is quantized") {
    for (const float value : {-1e4f, -1e9f}) {
        attention a;
        a.b.constant("mask", {rows, rows}, triangle(value));
        a.b.node("Add", {"s", "mask"}, {"a"}, "add");
        const model m = a.softmax().b.model();
        const quantize_result r = planner(m).plan(all_of("fp16").list(), {.where = placement::every});
        CHECK(format_at(r.plan, "a", "softmax", 0) == (value < -65504 ? "fp32" : "fp16"));
        CHECK(says(r.report, plan_note::kind::unrealised, "holds a mask") == (value < -65504));
    }
}
