// SPDX-License-Identifier: Apache-2.0
// Requests, saved plans and searches take the names in the model's file even where folding has changed them, and every request without an
// effect is reported.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "graph/quantize/saved_names.hpp"
#include "qk/graph/base/format_text.hpp"
#include "qk/graph/evaluate/fold.hpp"
#include "qk/graph/quantize/encodings.hpp"
#include "qk/graph/quantize/plan_file.hpp"
#include "qk/graph/quantize/planner.hpp"
#include "qk/graph/search/search.hpp"
#include "small_graph.hpp"

using namespace qk::graph;

namespace {

using kind = plan_note::kind;

/// Builds Identity(w0) -> Conv -> BatchNormalization -> Relu -> Conv with bias -> BatchNormalization -> GlobalAveragePool; each
/// normalization has one negative factor.
small_graph normalized_graph() {
    small_graph g;
    g.input("x", {1, 4, 8, 8}).output("y", {1, 4, 1, 1});
    g.constant("w0", {4, 4, 3, 3}).constant("w2", {4, 4, 3, 3}, 0.5f).constant("b2", {4});
    for (const char* n : {"1", "2"}) {
        const std::string k = n;
        g.constant("scale" + k, {4}, 1, {2, -0.5f, 1, 0.25f})
            .constant("shift" + k, {4})
            .constant("mean" + k, {4}, 0.1f)
            .constant("var" + k, {4}, 1, {1, 4, 0.5f, 2});
    }
    g.node("Identity", "same", {"w0"}, "w1");
    g.node("Conv", "conv1", {"x", "w1"});
    g.node("BatchNormalization", "bn1", {"conv1_out", "scale1", "shift1", "mean1", "var1"});
    g.node("Relu", "relu", {"bn1_out"});
    g.node("Conv", "conv2", {"relu_out", "w2", "b2"});
    g.node("BatchNormalization", "bn2", {"conv2_out", "scale2", "shift2", "mean2", "var2"});
    g.node("GlobalAveragePool", "pool", {"bn2_out"}, "y");
    return g;
}
model folded() {
    model m = normalized_graph().build();
    fold_constants(m);
    fold_batch_normalization(m);
    return m;
}
calibration ranges() {
    calibration c;
    for (const char* t : {"x", "bn1_out", "relu_out", "bn2_out", "y"}) {
        tensor_statistics& s = c.tensors[t];
        s.shape = {1, 4, 8, 8}, s.range = {-1, 2}, s.count = 100;
    }
    c.samples = 1;
    return c;
}
std::string name_of_first(const std::vector<successor>& s) { return s.empty() ? "" : s.front().name; }
std::size_t count(const quantize_report& r, kind k) {
    return static_cast<std::size_t>(std::count_if(r.notes.begin(), r.notes.end(), [k](const plan_note& n) { return n.what == k; }));
}
std::string texts(const quantize_report& r, kind k) {
    std::string all;
    for (const plan_note& n : r.notes)
        if (n.what == k) all += n.subject + ": " + n.text + "\n";
    return all;
}
bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
precision_requests defaults() { return precision_requests().set_default("int8", "int8"); }

}  // namespace

TEST_CASE("a folded model knows what became of every name of its file") {
    const model m = folded();
    REQUIRE(m.graph().node_size() == 4);
    CHECK(name_of_first(successors_of_tensor(m, "w0")) == "conv1_folded_weight");  // renamed by two passes
    CHECK(name_of_first(successors_of_tensor(m, "w1")) == "conv1_folded_weight");
    CHECK(name_of_first(successors_of_tensor(m, "w2")) == "conv2_folded_weight");
    CHECK(name_of_first(successors_of_tensor(m, "b2")) == "conv2_folded_bias");
    CHECK(name_of_first(successors_of_tensor(m, "conv1_out")) == "bn1_out");
    CHECK(name_of_first(successors_of_tensor(m, "var1")) == "conv1_folded_weight");
    CHECK(successors_of_tensor(m, "var1").front().how == bond::part);
    CHECK(name_of_first(successors_of_tensor(m, "mean2")) == "conv2_folded_bias");
    CHECK(name_of_first(successors_of_node(m, "bn2")) == "conv2");
    CHECK(name_of_first(successors_of_node(m, "same")) == "conv1_folded_weight");
    CHECK(successors_of_tensor(m, "relu_out").empty());
    CHECK(successors_of_tensor(m, "nothing").empty());
    // A weight's successor holds the factor of each channel.
    REQUIRE(successors_of_tensor(m, "w2").front().factor.size() == 4);
    CHECK(successors_of_tensor(m, "w2").front().factor[1] == doctest::Approx(-0.25).epsilon(1e-4));
    const model copy = m;
    CHECK(name_of_first(successors_of_tensor(copy, "w1")) == "conv1_folded_weight");
}

TEST_CASE("requests by the names of the file are the requests by the names of the folded network, and say so") {
    const model m = folded();
    const calibration seen = ranges();
    const auto plan = [&](const std::string& tensor) {
        return quantize(m, defaults().set_tensor_precision(tensor, parse_precision("int16")), seen);
    };
    for (const auto& [old, now] : {std::pair{"w0", "conv1_folded_weight"}, std::pair{"w2", "conv2_folded_weight"},
                                   std::pair{"conv1_out", "bn1_out"}, std::pair{"var1", "conv1_folded_weight"}}) {
        INFO(old);
        const quantize_result by_old = plan(old), by_new = plan(now);
        if (std::string(old) != "conv1_out")
            CHECK(by_old.plan.find({now, std::string(now).substr(0, 5), 1})->format == qk::format(qk::int16));
        CHECK(by_old.plan == by_new.plan);
        CHECK(contains(texts(by_old.report, kind::renamed), "'" + std::string(old) + "'"));
        CHECK(contains(texts(by_old.report, kind::renamed), "'" + std::string(now) + "' now"));
        CHECK(count(by_new.report, kind::renamed) == 0);
    }
    // A pattern matches weights, but not the parameters of a normalization.
    const quantize_result pattern = plan("w?");
    CHECK(pattern.plan.find({"conv1_folded_weight", "conv1", 1})->format == qk::format(qk::int16));
    CHECK(pattern.plan.find({"conv2_folded_weight", "conv2", 1})->format == qk::format(qk::int16));
    CHECK(count(plan("var?").report, kind::unmatched) == 1);

    const quantize_result layer = quantize(m, defaults().set_precision("bn2", "int16", {{"weight", "int16"}}), seen);
    CHECK(layer.plan.find({"conv2_folded_weight", "conv2", 1})->format == qk::format(qk::int16));
    CHECK(contains(texts(layer.report, kind::renamed), "is part of 'conv2' now"));
    CHECK(quantize(m, defaults().exclude("bn2"), seen).plan == quantize(m, defaults().exclude("conv2"), seen).plan);
    precision_requests path = defaults();
    path.set_subgraph_precision("bn1", "bn2", role::weight, parse_precision("int4"));
    CHECK(quantize(m, path, seen).plan.find({"conv1_folded_weight", "conv1", 1})->format == qk::format(qk::int4));
    // Names that folding removed without a successor, and misspelled names.
    CHECK(contains(texts(quantize(m, defaults().set_precision("same", "int16"), seen).report, kind::unmatched), "ask for that tensor"));
    CHECK(
        contains(texts(quantize(m, defaults().set_type_precision("BatchNormalization", role::input, parse_precision("int16")), seen).report,
                       kind::unmatched),
                 "all 2 of that type were folded"));
    CHECK(contains(texts(plan("conv1_outt").report, kind::unmatched), "'conv1_out'"));
}

TEST_CASE("a request without an effect is a remark with the nearest names, and an error under strict") {
    const model m = folded();
    const calibration seen = ranges();
    const auto without_effect = [&](const precision_requests& r, const std::string& part) {
        const quantize_result result = quantize(m, r, seen);
        INFO(texts(result.report, kind::unrealised));
        CHECK(contains(texts(result.report, kind::unrealised), "has no effect"));
        CHECK(contains(texts(result.report, kind::unrealised), part));
        CHECK_THROWS_WITH_AS(quantize(m, r, seen, {.strict = true}), doctest::Contains("has no effect"), error);
    };
    const auto fine = [&](const precision_requests& r) {
        const quantize_result result = quantize(m, r, seen);
        INFO(texts(result.report, kind::unrealised));
        CHECK_FALSE(contains(texts(result.report, kind::unrealised), "has no effect"));
    };
    without_effect(defaults().set_precision("*relu*", "int16"),
                   "The nearest layers that can be: 'conv1'");  // matches only nodes that are not quantized on their own
    without_effect(defaults().set_precision("po*", "int16", {{"weight", "int16"}}).exclude("re*"), "'relu'");
    without_effect(defaults().exclude("relu"), "without it");
    // A tensor that was named rightly is not suggested in its own place.
    precision_requests stays;
    stays.set_tensor_precision("relu_out", parse_precision("fp32"));
    const std::string remark = texts(quantize(m, stays, seen).report, kind::unrealised);
    CHECK(contains(remark, "has no effect"));
    CHECK_FALSE(contains(remark, "'relu_out'?"));
    without_effect(defaults().set_type_precision("Relu", role::weight, parse_precision("int4")), "Relu: 'relu'");
    fine(defaults().set_precision("conv1", "int8", {{"weight", "int8"}}));             // repeats the default
    fine(defaults().set_precision("conv1", "int16").set_precision("conv*", "int16"));  // a later request repeats it
    fine(defaults().exclude("conv1"));
    fine(defaults().set_tensor_precision("*_out", parse_precision("int16")));  // some matches have an effect
    // Overridden requests have a remark of their own.
    const quantize_result later = quantize(m,
                                           defaults()
                                               .set_precision("conv1", role::weight, parse_precision("int4"))
                                               .set_type_precision("Conv", role::weight, parse_precision("int16")),
                                           seen);
    CHECK(count(later.report, kind::overridden) == 1);
    CHECK(count(later.report, kind::unrealised) == 0);
}

TEST_CASE("a list of operator types need not be there as a whole") {
    const model m = folded();
    const calibration seen = ranges();
    const auto asked = [&](const std::string& types, bool strict) {
        const plan_file f = parse_plan_file(
            R"({"default": {"activation": "int8", "weight": "int8"}, "requests": [{"op_type": )" + types + R"(, "weight": "int4"}]})",
            "plan.json");
        return planner(m, &seen).plan(f.requests, {.strict = strict});
    };
    const quantize_result r = asked(R"(["Conv", "ConvTranspose", "Gemm", "MatMul"])", true);
    CHECK(count(r.report, kind::absent) == 3);
    CHECK(r.plan.find({"conv2_folded_weight", "conv2", 1})->format == qk::format(qk::int4));
    CHECK_THROWS_WITH_AS(asked(R"(["ConvTranspose", "Gemm"])", true), doctest::Contains("no operator of that type"), error);
    CHECK_THROWS_WITH_AS(asked(R"(["Conv", "Cnov"])", true), doctest::Contains("Did you mean 'Conv'"), error);
}

TEST_CASE("a tensor that only a Relu reads is quantized behind it, and where quantizers stand everywhere before it") {
    const model m = folded();
    planner p(m);
    const auto bf16 = [&](placement where) {
        precision_requests r =
            precision_requests().set_default("bfp16", "bfp16").set_tensor_precision("conv1_out", parse_precision("bf16"));
        return p.plan(r.list(), {.where = where, .strict = true});
    };
    const quantize_result behind = bf16(placement::layers);
    CHECK(behind.plan.find({"relu_out", "conv2", 0})->format == qk::format(qk::bf16));
    CHECK(contains(texts(behind.report, kind::moved), "'relu_out'"));
    const quantize_result before = bf16(placement::every);
    CHECK(before.plan.find({"bn1_out", "relu", 0})->format == qk::format(qk::bf16));
    CHECK(before.plan.find({"relu_out", "conv2", 0})->format == qk::format(qk::bfp16));
}

TEST_CASE("one count of quantized edges, in network order, remarks likewise") {
    const model m = folded();
    const calibration seen = ranges();
    const quantize_result r = quantize(
        m, defaults().set_tensor_precision("w2", parse_precision("int16")).set_tensor_precision("w0", parse_precision("int16")), seen);
    const std::vector<edge> edges = quantized_edges(r.plan, m);
    REQUIRE(edges.size() == r.report.edges.size());
    int last = -1;
    for (std::size_t i = 0; i < edges.size(); ++i) {
        CHECK(edges[i] == r.report.edges[i].edge);
        const int n = edges[i].consumer.empty() ? m.graph().node_size() : m.node_index(edges[i].consumer);
        CHECK(n >= last);
        last = n;
    }
    REQUIRE(count(r.report, kind::renamed) == 2);
    CHECK(contains(r.report.notes[0].subject, "w0"));  // requested second, but first in the network
    const quantize_report again = describe_plan(layer_view(m), r.plan, &seen, "saved");
    REQUIRE(again.edges.size() == edges.size());
    for (std::size_t i = 0; i < edges.size(); ++i) CHECK(again.edges[i].part == r.report.edges[i].part);
    CHECK(again.quantized_bits == r.report.quantized_bits);
}

TEST_CASE("a plan that changes nothing says so") {
    const model m = folded();
    const calibration seen = ranges();
    for (const precision_requests& r : {precision_requests(), precision_requests().set_default("fp32", "fp32")}) {
        const quantize_result result = quantize(m, r, seen);
        CHECK(result.plan == precision_plan{});
        CHECK(contains(texts(result.report, kind::unchanged), "changes nothing"));
    }
    CHECK(count(quantize(m, defaults(), seen).report, kind::unchanged) == 0);
}

TEST_CASE("tensors between two formats are one sentence that names the option") {
    const model m = folded();
    planner p(m);
    precision_requests r =
        precision_requests().set_default("bf16", "bf16").set_type_precision("Conv", role::input, parse_precision("bfp16"));
    const quantize_result wider = p.plan(r.list(), {.where = placement::all});
    const std::string line = boundary_line(wider.report.widened);
    CHECK(wider.report.widened.size() == (count(wider.report, kind::boundary) > 0 ? 1 : 0));
    if (!line.empty()) CHECK(contains(line, "--dual"));
    CHECK(boundary_line({{{"bf16", "bfp16"}, {"a", "b"}}})
              .starts_with("2 tensors between layers that ask differently took the wider format (bf16 instead of bfp16): --dual"));
    CHECK(boundary_line({}).empty());
}

TEST_CASE("saved plans and encodings of the unfolded file: the same codes, with scales that went the way of the weights") {
    const model m = folded(), file = normalized_graph().build();
    const tensor w = file.constant("w2"), f = m.constant("conv2_folded_weight");
    const std::vector<double> factor = successors_of_tensor(m, "w2").front().factor;
    for (const std::vector<float>& scale : {std::vector<float>{0.004f}, std::vector<float>{0.004f, 0.005f, 0.003f, 0.006f}}) {
        precision_plan plan;
        const quantizer own{.format = qk::int8, .axis = 0, .scale = scale, .zero_point = {}};
        plan.tensors["w2"] = own;
        const auto notes = follow_names(plan, m, "p.json");
        REQUIRE(plan.tensors.contains("conv2_folded_weight"));
        CHECK_FALSE(plan.tensors.contains("w2"));
        REQUIRE(notes.size() == 1);
        CHECK(notes[0].what == kind::renamed);
        check_plan(plan, m, "p.json");
        std::vector<float> before(w.size()), after(f.size());
        apply(own, w, before);
        apply(plan.tensors.at("conv2_folded_weight"), f, after);
        const std::size_t inner = w.size() / 4;
        // Codes are the same, except that a weight whose product with the factor rounds across a tie gets the neighbouring code.
        std::size_t equal = 0;
        for (std::size_t i = 0; i < w.size(); ++i) {
            const double wanted = static_cast<double>(before[i]) * factor[i / inner],
                         step = std::fabs(static_cast<double>(scale[scale.size() == 1 ? 0 : i / inner]) * factor[i / inner]);
            CHECK(std::fabs(static_cast<double>(after[i]) - wanted) < 1.001 * step);
            equal += std::fabs(static_cast<double>(after[i]) - wanted) < 1e-5;
        }
        CHECK(equal > w.size() * 9 / 10);
    }
    // The tensor between layer and normalization is gone: its scale fits no other tensor, but a format without a scale moves.
    precision_plan between;
    between.tensors["conv1_out"] = {.format = qk::int8, .axis = 0, .scale = {0.1f}, .zero_point = {}};
    auto notes = follow_names(between, m, "p.json");
    CHECK(between.tensors.empty());
    REQUIRE(notes.size() == 1);
    CHECK(is_violation(notes[0]));
    between.tensors["conv1_out"] = {.format = qk::fp16, .scale = {}, .zero_point = {}};
    notes = follow_names(between, m, "p.json");
    CHECK(between.tensors.at("bn1_out").format == qk::format(qk::fp16));
    // Entries for single edges follow as well.
    precision_plan edges;
    edges.edges[{"w2", "conv2", 1}] = {.format = qk::int8, .axis = 0, .scale = {0.004f}, .zero_point = {}};
    edges.edges[{"conv2_out", "bn2", 0}] = {.format = qk::bf16, .scale = {}, .zero_point = {}};
    notes = follow_names(edges, m, "p.json");
    REQUIRE(edges.edges.size() == 1);
    CHECK(edges.edges.begin()->first == edge{"conv2_folded_weight", "conv2", 1});
    CHECK(notes.size() == 2);
    // Names that the folded network still has stay.
    precision_plan plain;
    plain.tensors["relu_out"] = {.format = qk::bf16, .scale = {}, .zero_point = {}};
    const precision_plan same = plain;
    CHECK(follow_names(plain, m, "p.json").empty());
    CHECK(plain == same);
}

TEST_CASE("a search takes the documents' operator types and the names of the file") {
    const model m = folded();
    const calibration seen = ranges();
    tensor x(data_type::float32, {1, 4, 8, 8});
    for (std::size_t i = 0; i < x.size(); ++i) x.as<float>()[i] = std::sin(static_cast<float>(i));
    const named_tensors inputs{{"x", x}};
    mix_options o;
    o.wide = "int16/int16", o.narrow = {"int8/int4"};
    o.op_types = {"Conv", "ConvTranspose", "Gemm", "MatMul"};
    const sensitivity_result r = measure_sensitivity(m, inputs, seen, o);
    REQUIRE(r.remarks.size() == 3);
    CHECK(r.remarks[0] == "--op-types ConvTranspose: the model has no such layer");
    for (const sensitivity_row& row : r.rows) CHECK(row.added == row.error - r.base_error);
    o.op_types = {"ConvTranspose", "Gemm"};
    CHECK_THROWS_WITH_AS(measure_sensitivity(m, inputs, seen, o), doctest::Contains("no layer is left to search"), error);
    o.op_types = {"Conv", "Cnov"};
    CHECK_THROWS_WITH_AS(measure_sensitivity(m, inputs, seen, o), doctest::Contains("Did you mean 'Conv'"), error);
    o.op_types.clear();
    o.layers = {"bn2"};
    const sensitivity_result one = measure_sensitivity(m, inputs, seen, o);
    for (const sensitivity_row& row : one.rows) CHECK(row.layer == "conv2");
    CHECK(contains(one.remarks.at(0), "'bn2' is part of 'conv2' now"));
    o.layers = {"rel*"};
    CHECK_THROWS_WITH_AS(measure_sensitivity(m, inputs, seen, o), doctest::Contains("has no formats to search ('relu')"), error);
}

TEST_CASE("a name that nobody types has no nearest one, and costs no time") {
    const std::string longest(1000000, 'a');
    CHECK(nearest_names(longest, {std::string(999999, 'a'), "a"}).empty());
    CHECK(nearest_names("relu", {longest, "relu1"}) == std::vector<std::string>{"relu1"});
}
