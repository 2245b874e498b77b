// SPDX-License-Identifier: Apache-2.0
// What values get where a request leaves it open: the rule for MX scales, granularity and scales of integer weights.
#include <doctest/doctest.h>

#include <cmath>

#include "plan_cases.hpp"
#include "qk/graph/calibrate/scales.hpp"
#include "qk/graph/quantize/choices.hpp"
#include "qk/graph/quantize/plan_file.hpp"
#include "small_graph.hpp"

using namespace qk::graph;
using namespace qk_test;
using qk::scale_rule;

namespace {

scale_rule rule_at(const model& m, const precision& what, const quantize_options& options = {}) {
    planner p(m);
    const quantize_result made = p.plan(precision_requests().set_default(what, what).list(), options);
    const scale_rule of_weight = made.plan.find({"w2", "conv2", 1})->semantics.scale_rule;
    CHECK(made.plan.find({"relu1_out", "conv2", 0})->semantics.scale_rule == of_weight);
    return of_weight;
}
precision read(const std::string& text, bool weight = true) { return read_precision(json_cursor::parse(text, "test"), weight); }

quantizer int4_of(std::vector<float> values, precision what = {.format = qk::int4}) {
    const auto n = static_cast<std::int64_t>(values.size());
    return weight_quantizer(make_tensor<float>({n, 1}, values), what, {.block = 0, .channel = 1});
}
std::vector<float> rounded(const quantizer& q, std::vector<float> values) {
    const auto n = static_cast<std::int64_t>(values.size());
    const tensor y = applied(q, make_tensor<float>({n, 1}, values));
    return {y.as<float>().begin(), y.as<float>().end()};
}

}  // namespace

TEST_CASE("MX blocks in a model choose scales by the rule that measures best, unless a rule or semantics are named") {
    const model m = residual_model();
    for (const char* format : {"mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4"})
        CHECK(rule_at(m, {.format = format_from(format)}) == default_scale_rule(format_from(format)));
    // docs/results/scale_rules.md: the highest mean.
    for (const char* format : {"mxfp4", "mxfp6_e2m3", "mx:element=fp4_e2m1,block=16"})
        CHECK(default_scale_rule(format_from(format)) == scale_rule::even);
    for (const char* format : {"mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2"})
        CHECK(default_scale_rule(format_from(format)) == scale_rule::rceil);
    CHECK(default_scale_rule(qk::mxint8) == scale_rule::floor);
    CHECK(default_scale_rule(qk::bfp16) == scale_rule::floor);
    const precision open{.format = qk::mxfp4};
    CHECK(rule_at(m, {.format = qk::mxfp4, .semantics = qk::semantics::ocp}) == scale_rule::floor);
    CHECK(rule_at(m, {.format = qk::mxfp4, .semantics = qk::semantics::nvidia}) == scale_rule::rceil);
    CHECK(rule_at(m, {.format = qk::mxfp4, .scale_rule = scale_rule::ceil}) == scale_rule::ceil);
    CHECK(rule_at(m, open, {.semantics = qk::semantics::ocp}) == scale_rule::floor);
    CHECK(rule_at(m, open, {.scale_rule = scale_rule::rceil}) == scale_rule::rceil);
    CHECK(rule_at(m, {.format = qk::mxfp4, .scale_rule = scale_rule::ceil}, {.scale_rule = scale_rule::rceil}) == scale_rule::ceil);
    CHECK(rule_at(m, {.format = qk::mxfp4, .semantics = qk::semantics::ocp}, {.scale_rule = scale_rule::rceil}) == scale_rule::floor);
}

TEST_CASE("requests files name rules; saved plans without one mean floor, as they always did") {
    CHECK(semantics_of(read("\"mxfp4@ceil\"")).scale_rule == scale_rule::ceil);
    CHECK(semantics_of(read("\"mxfp4\"")).scale_rule == scale_rule::even);
    CHECK(semantics_of(read(R"({"format": "mxfp4", "scale_rule": "rceil"})")).scale_rule == scale_rule::rceil);
    const qk::semantics searched = semantics_of(read(R"({"format": "nvfp4", "scale_rule": "search", "scale_objective": "weighted"})"));
    CHECK(searched.scale_rule == scale_rule::search);
    CHECK(searched.scale_objective == qk::scale_objective::weighted);
    CHECK(semantics_of(read(R"({"format": "nvfp4", "semantics": {"scale_objective": "mae"}})")).scale_objective ==
          qk::scale_objective::mae);
    CHECK(semantics_of(read(R"({"format": "mxfp4", "semantics": "ocp"})")).scale_rule == scale_rule::floor);
    const qk::semantics away = semantics_of(read(R"({"format": "mxfp4", "semantics": {"rounding": "half-away"}})"));
    CHECK(away.scale_rule == scale_rule::even);
    CHECK(away.rounding == qk::rounding::half_away);
    CHECK(read("\"int4@compensated@mse\"").rounding == weight_rounding::compensated);
    CHECK(read("\"int4@compensated@mse\"").method == range_method::mse);
    CHECK_THROWS_WITH_AS(read("\"mxfp4@flor\""), doctest::Contains("Did you mean 'floor'?"), error);
    const plan_file file = parse_plan_file(
        R"({"default": {"weight": "int4"}, "weight_method": "mse", "scale_rule": "ceil", "scale_objective": "mae"})", "test");
    quantize_options options;
    file.fill(options);
    CHECK(options.weight_method == range_method::mse);
    CHECK(options.scale_rule == scale_rule::ceil);
    CHECK(options.scale_objective == qk::scale_objective::mae);
    const auto saved = parse_plan_file(R"({"qk": "plan", "version": 1, "tensors": {"w": {"format": "mxfp4", "axis": 1}}})", "test");
    CHECK(saved.plan->tensors.at("w").semantics == qk::semantics::ocp);
}

TEST_CASE("integer weights have a scale for each output channel unless one for the tensor is asked for") {
    const model m = residual_model();
    const calibration seen = residual_ranges();
    const auto scales = [&](const precision& weight, const quantize_options& options) {
        return quantize(m, precision_requests().set_default({.format = qk::int8}, weight), seen, options)
            .plan.find({"w2", "conv2", 1})
            ->scale.size();
    };
    const auto channels = static_cast<std::size_t>(m.constant_shape("w2")[0]);
    REQUIRE(channels > 1);
    CHECK(scales({.format = qk::int8}, {}) == channels);
    CHECK(scales({.format = qk::int8}, {.per_channel = false}) == 1);
    CHECK(scales({.format = qk::int8, .per_channel = false}, {}) == 1);
    CHECK(scales({.format = qk::int4, .block_size = 2}, {}) > channels);
}

TEST_CASE("int4 weights use all sixteen codes: the largest weight takes the code -8, whatever its sign") {
    const std::vector<float> negative{-8, 7, 3, 1, -5, 6, 2, -1}, positive{8, -7, -3, -1, 5, -6, -2, 1};
    const quantizer down = int4_of(negative), up = int4_of(positive);
    CHECK(down.scale == std::vector<float>{1});
    CHECK(down.zero_point.empty());
    CHECK(rounded(down, negative) == negative);
    CHECK(up.scale == std::vector<float>{1});
    CHECK(up.zero_point == std::vector<std::int64_t>{-1});  // codes -7 to 8 are -8 to 7 with their signs turned
    CHECK(rounded(up, positive) == positive);
    // Symmetric by request, or for accumulators: the zero point stays 0. A method by name is what it always was.
    CHECK(int4_of(positive, {.format = qk::int4, .symmetric = true}).zero_point.empty());
    CHECK(completed({.format = qk::int4}, {.unshifted = true}, true).symmetric == true);
    const quantizer named = int4_of(positive, {.format = qk::int4, .method = range_method::min_max});
    CHECK(named.scale == std::vector<float>{8.0f / 7});
    CHECK(named.zero_point.empty());
    CHECK(int4_of(positive, {.format = qk::int8}).scale == std::vector<float>{8.0f / 127});
}

TEST_CASE("scales of few bits never have a larger squared error than absmax over the largest code") {
    std::uint32_t state = 7;
    const auto next = [&] { return static_cast<float>((state = state * 1664525u + 1013904223u) >> 8) / 8388608.0f - 1.0f; };
    for (const char* format : {"int2", "int4", "int:bits=3", "int:bits=6"})
        for (int round = 0; round < 50; ++round) {
            std::vector<float> w(32);
            for (float& v : w) v = next() * next() * next();
            const auto error_of = [&](precision what) {
                what.format = format_from(format);
                const quantizer q = int4_of(w, what);
                const std::vector<float> y = rounded(q, w);
                double sum = 0;
                for (std::size_t i = 0; i < w.size(); ++i) sum += std::pow(double(w[i]) - double(y[i]), 2);
                return sum;
            };
            const double whole = error_of({.method = range_method::min_max});
            CHECK(error_of({}) <= whole * (1 + 1e-6));
            CHECK(error_of({.symmetric = true}) <= whole * (1 + 1e-6));
        }
}
