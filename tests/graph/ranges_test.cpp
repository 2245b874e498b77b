// SPDX-License-Identifier: Apache-2.0
// Values that a format cannot hold are told: beyond its largest, NaN and Inf, only zeros, below any scale.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "build_model.hpp"
#include "graph/ops/run_node.hpp"
#include "plan_cases.hpp"
#include "qk/graph/calibrate/calibrate.hpp"

using namespace qk::graph;
using namespace qk_test;

namespace {

constexpr float no_number = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();

/// y = x * w + b, with x [n,2] and w [2,2].
model layer(const std::vector<float>& w, const std::vector<float>& b = {0, 0}) {
    builder g;
    g.input("x", {-1, 2}).output("y", {-1, 2}).constant("w", {2, 2}, w).constant("b", {2}, b);
    g.node("Gemm", {"x", "w", "b"}, {"y"}, "gemm");
    return g.model();
}
precision_requests both(const char* activation, const char* weight) {
    precision_requests q;
    q.set_default(activation, weight);
    return q;
}
/// Returns statistics of x = `values` [n,2].
calibration seen_of(const model& m, const std::vector<float>& values, bool histograms = true) {
    return calibrate(m, {{"x", make_tensor<float>({static_cast<std::int64_t>(values.size()) / 2, 2}, values)}}, {.histograms = histograms});
}
quantize_result plan_of(const model& m, const precision_requests& q, const calibration& seen, quantize_options options = {}) {
    return planner(m, &seen, &seen).plan(q.list(), options);
}

const std::vector<float> unit{1, 0, 0, 1};

}  // namespace

TEST_CASE("activations beyond the largest value of a format without scales are told, and an error if strict") {
    const model m = layer(unit);
    const calibration large = seen_of(m, {1e5f, 1, -1e5f, 2}, false), fits = seen_of(m, {65519, 1, -65504, 2}, false);
    const quantize_result r = plan_of(m, both("fp16", "fp16"), large);
    CHECK(says(r.report, plan_note::kind::unrealised,
               "tensor 'x': calibration saw values from -100000 to 100000, and fp16 ends at 65504: what lies beyond becomes Inf"));
    CHECK(format_at(r.plan, "x", "gemm", 0) == "fp16");
    CHECK_THROWS_WITH_AS(plan_of(m, both("fp16", "fp16"), large, {.strict = true}), doctest::Contains("ends at 65504"), error);
    CHECK(count(plan_of(m, both("fp16", "fp16"), fits).report, plan_note::kind::unrealised) == 0);
    for (const char* holds : {"bf16", "fp8_e4m3fn", "mxfp8_e4m3", "int8"}) {
        INFO(std::string(holds));
        CHECK(count(plan_of(m, both(holds, holds), large).report, plan_note::kind::unrealised) == 0);
    }
    // Statistics that serve a report alone are enough, and leave the plan as it is.
    planner told(m, nullptr, &large), untold(m);
    const quantize_result without = untold.plan(both("fp16", "fp16").list());
    CHECK(told.plan(both("fp16", "fp16").list()).plan == without.plan);
    CHECK(count(told.plan(both("fp16", "fp16").list()).report, plan_note::kind::unrealised) == 1);
    precision cut{.format = qk::fp16};
    cut.semantics = qk::semantics{.overflow = qk::overflow_rule::saturate};
    precision_requests q;
    q.set_default(cut, cut);
    CHECK(says(plan_of(m, q, large).report, plan_note::kind::unrealised, "what lies beyond becomes that"));
}

TEST_CASE("weights and biases beyond the largest value are told without data") {
    const model m = layer({1, 7e4f, 0, -1e5f}, {8e4f, 1});
    const quantize_result r = planner(m).plan(both("fp32", "fp16").list(), {.how = approach::weight_only});
    CHECK(says(r.report, plan_note::kind::unrealised, "weight 'w' of 'gemm': it has values from -100000 to 70000, and fp16 ends at 65504"));
    CHECK(says(r.report, plan_note::kind::unrealised, "bias 'b' of 'gemm': it has values from 1 to 80000"));
    CHECK(count(planner(m).plan(both("fp32", "bf16").list()).report, plan_note::kind::unrealised) == 0);
}

TEST_CASE("NaN and Inf in weights are counted, and an error if strict") {
    const model m = layer({no_number, 1, infinity, 2});
    for (const char* format : {"int8", "fp16", "mxfp4", "fp8_e4m3fn"}) {
        INFO(std::string(format));
        const quantize_options options{.how = approach::weight_only};
        const quantize_result r = planner(m).plan(both("fp32", format).list(), options);
        CHECK(says(r.report, plan_note::kind::unrealised, "weight 'w' of 'gemm': 2 of its 4 values are NaN or Inf"));
        CHECK_FALSE(says(r.report, plan_note::kind::unrealised, "holds a mask"));
        CHECK_THROWS_WITH_AS(planner(m).plan(both("fp32", format).list(), {.how = approach::weight_only, .strict = true}),
                             doctest::Contains("2 of its 4 values are NaN or Inf"), error);
    }
    const model biased = layer(unit, {no_number, 1});
    const quantize_result r = plan_of(biased, both("int8", "int8"), seen_of(layer(unit), {1, 2, 3, 4}));
    CHECK(says(r.report, plan_note::kind::unrealised, "bias 'b' of 'gemm': 1 of its 2 values are NaN or Inf: left in float32"));
    CHECK(format_at(r.plan, "b", "gemm", 2) == "fp32");
}

TEST_CASE("NaN in activations is called NaN, with the first sample that shows it; Inf is a mask") {
    builder g;
    g.input("x", {-1, 2}).output("y", {-1, 2}).constant("w", {2, 2}, unit);
    g.node("Log", {"x"}, {"h"}, "log");
    g.node("MatMul", {"h", "w"}, {"y"}, "product");
    const model m = g.model();
    const calibration seen = seen_of(m, {1, 2, 3, 4, 5, -6, 7, -8});
    CHECK(seen.tensors.at("h").nan == 2);
    CHECK(seen.tensors.at("h").nan_sample == 2);
    const quantize_result r = plan_of(m, both("int8", "int8"), seen);
    CHECK(says(r.report, plan_note::kind::unrealised, "tensor 'h': calibration saw NaN in 2 of its 8 values, first in sample 2 (from 0)"));
    CHECK_FALSE(says(r.report, plan_note::kind::unrealised, "holds a mask"));
    const quantize_result mask = plan_of(m, both("int8", "int8"), seen_of(m, {1, 2, 0, 4}));
    CHECK(says(mask.report, plan_note::kind::unrealised, "tensor 'h': holds a mask (Inf beside values"));
}

TEST_CASE("a tensor of which calibration saw only zeros is told") {
    const model m = layer(unit);
    for (const char* format : {"int8", "uint8", "fp8_e4m3fn"}) {
        const quantize_result r = plan_of(m, both(format, "int8"), seen_of(m, {0, 0, 0, 0}));
        CHECK(says(r.report, plan_note::kind::unrealised, "tensor 'x': calibration saw only zeros of it: it has scale 1"));
        CHECK(r.plan.find({"x", "gemm", 0})->scale == std::vector<float>{1});
    }
    CHECK_THROWS_WITH_AS(plan_of(m, both("int8", "int8"), seen_of(m, {0, 0}), {.strict = true}), doctest::Contains("only zeros"), error);
    CHECK(count(plan_of(m, both("int8", "int8"), seen_of(m, {0, 0, 0, 3})).report, plan_note::kind::unrealised) == 0);
    // Weights of zeros are exact at any scale.
    CHECK(count(plan_of(layer({0, 0, 0, 0}), both("int8", "int8"), seen_of(m, {1, 2})).report, plan_note::kind::unrealised) == 0);
}

TEST_CASE("values below any scale are told, as activations and as weights") {
    const model m = layer(unit), small = layer({1e-40f, 2e-40f, 0, -1e-41f});
    for (const char* format : {"int8", "fp8_e4m3fn"}) {
        const quantize_result r = plan_of(m, both(format, "int8"), seen_of(m, {1e-39f, 2e-40f, 0, -1e-41f}));
        CHECK(says(r.report, plan_note::kind::unrealised, "tensor 'x': its values lie between -1e-41 and 1e-39, which no scale"));
        const quantize_result w = plan_of(small, both("int8", format), seen_of(m, {1, 2}));
        CHECK(says(w.report, plan_note::kind::unrealised, "weight 'w' of 'gemm': its values lie between -1e-41 and 2e-40, which no scale"));
    }
    for (const char* format : {"fp16", "mxfp4"}) {
        INFO(std::string(format));
        CHECK(says(plan_of(small, both("fp32", format), {}).report, plan_note::kind::destroyed, format));
    }
}

TEST_CASE("dynamic uint8 of values below any scale is what DynamicQuantizeLinear makes of them") {
    const model m = layer(unit);
    for (const float size : {1e-36f, 1e-38f, 1e-40f, 1e-42f, 1e-43f, 1e-44f}) {
        std::vector<float> x{-1, -0.5f, 0, 0.3f, 0.7f, 2, 2.5f, 1};
        for (float& v : x) v *= size;
        builder g;
        g.input("x", {-1, 2}).output("y", {-1, 2});
        g.node("DynamicQuantizeLinear", {"x"}, {"q", "s", "z"});
        g.node("DequantizeLinear", {"q", "s", "z"}, {"y"});
        const named_tensors data{{"x", make_tensor<float>({4, 2}, x)}};
        // One sample of all rows, as a plan with dynamic scales takes them from each sample.
        const tensor wanted = evaluator(g.model()).run(data).outputs.at("y");
        tensor got(data_type::float32, {4, 2});
        apply(activation_quantizer({.format = qk::uint8, .dynamic = true}, {}, {}), data.at("x"), got.as<float>());
        INFO(size);
        for (std::size_t i = 0; i < x.size(); ++i) CHECK(got.as<float>()[i] == wanted.as<float>()[i]);
        if (size > 1e-41f) CHECK(std::fabs(got.as<float>()[5] / x[5] - 1) < 0.01f);
    }
    // The same in a run of a plan.
    precision_requests q = both("uint8", "int8");
    const precision_plan plan = planner(m).plan(q.list(), {.how = approach::dynamic}).plan;
    const named_tensors one{{"x", make_tensor<float>({1, 2}, std::vector<float>{1e-39f, -2e-39f})}};
    const tensor y = evaluator(m).run(one, plan).outputs.at("y");
    CHECK(std::fabs(y.as<float>()[0] / 1e-39f - 1) < 0.02f);
}
