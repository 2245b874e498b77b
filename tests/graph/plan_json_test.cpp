// SPDX-License-Identifier: Apache-2.0
// Requests files, saved plans, encodings and calibration files: their meaning, and the error sentences for what is wrong in them.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "build_model.hpp"
#include "qk/graph/base/format_text.hpp"
#include "qk/graph/calibrate/calibrate.hpp"
#include "qk/graph/export/drop_activations.hpp"
#include "qk/graph/quantize/encodings.hpp"
#include "qk/graph/quantize/plan_file.hpp"
#include "qk/graph/report/report.hpp"
#include "small_graph.hpp"

using namespace qk::graph;

namespace {
std::string error_of(const std::string& text) {
    try {
        parse_plan_file(text, "plan.json");
    } catch (const error& e) {
        return e.what();
    }
    return "no error";
}
bool contains(const std::string& text, const std::string& part) {
    CAPTURE(text);
    const bool found = text.find(part) != std::string::npos;
    CHECK(found);
    return found;
}
named_tensors image(std::int64_t samples) {
    tensor x(data_type::float32, {samples, 4, 8, 8});
    std::mt19937 random(7);
    for (float& v : x.as<float>()) v = static_cast<float>(random() % 2001) / 500.0f - 2.0f;
    return {{"x", x}};
}
struct temporary {
    std::filesystem::path path =
        std::filesystem::temp_directory_path() / ("qk_plan_test_" + std::to_string(std::random_device{}()) + ".json");
    ~temporary() { std::filesystem::remove(path); }
};
}  // namespace

TEST_CASE("a requests file says everything that calls say") {
    const plan_file f = parse_plan_file(R"({
      "default": {"activation": "int8", "weight": {"format": "int8", "per_channel": true}},
      "model_inputs": ["bf16"], "model_outputs": [null],
      "requests": [
        {"op_type": ["Conv", "Gemm"], "weight": "int4"},
        {"layer": "conv2", "activation": {"format": "int16", "symmetric": true, "pow2": "min_mse"}, "weight": "int16", "bias": "int32"},
        {"group": "layer1", "exclude": true},
        {"subgraph": ["a", "b"], "input": "bfp16"},
        {"tensor": "t", "format": {"format": "uint8", "range": [-1, 2], "method": "percentile", "percentile": 99.9}}
      ],
      "placement": "all", "boundary": "dual", "strict": true, "calibration": {"method": "mse"}, "target": "onnxruntime",
      "weight_rounding": "compensated"
    })",
                                        "plan.json");
    CHECK_FALSE(f.plan);
    CHECK(f.requests.size() == 11);
    CHECK(f.where == placement::all);
    CHECK(f.dual == true);
    CHECK(f.strict == true);
    CHECK(f.strict_all == false);
    CHECK(parse_plan_file("{\"strict\": \"all\"}", "x").strict_all == true);
    CHECK(parse_plan_file("{\"criterion\": {\"relative\": 0.01}}", "x").criterion->relative);
    CHECK(f.rounding == weight_rounding::compensated);
    CHECK(f.method == range_method::mse);
    CHECK_FALSE(f.best_method);
    CHECK(parse_plan_file("{\"calibration\": {\"method\": \"best\"}}", "x").best_method);
    CHECK(f.target->name == "onnxruntime");
    CHECK(f.requests[5].origin == "plan.json:6");
    CHECK(f.requests[5].what.pow2 == pow2_rule::min_mse);
    CHECK(std::get<qk::integer>(f.requests[5].what.format).pow2);
}

TEST_CASE("unknown keys and wrong values are errors with line, path and the nearest names") {
    contains(error_of("{\n \"defalt\": {}\n}"), "plan.json:2: /defalt: unknown key 'defalt'. Did you mean 'default'?");
    contains(error_of("{\n \"requests\": [\n  {\"layer\": \"a\",\n   \"wieght\": \"int8\"}]}"), "plan.json:4: /requests/0/wieght");
    contains(error_of("{\"default\": {\"activation\": \"imt8\"}}"), "did you mean int8?");
    contains(error_of("{\"default\": {\"activation\": 8}}"), "an object is expected");
    contains(error_of("{\"requests\": [{\"layer\": \"a\", \"op_type\": \"Conv\"}]}"), "exactly one of");
    contains(error_of("{\"requests\": [{\"layer\": \"a\"}]}"), "nothing is asked");
    contains(error_of("{\"requests\": [{\"layer\": \"a\", \"exclude\": true, \"weight\": \"int8\"}]}"), "goes alone");
    contains(error_of("{\"requests\": [{\"tensor\": \"a\", \"weight\": \"int8\"}]}"), "say \"format\"");
    contains(error_of("{\"requests\": [{\"layer\": \"a\", \"weight\": {\"format\": \"mxfp4\", \"block_size\": 8}}]}"),
             "part of the format");
    contains(error_of("{\n\"a\": 1,\n\"a\": 2}"), "plan.json:3: the key 'a' stands twice");
    contains(error_of("{\n\n \"default\": }"), "plan.json:3: not JSON");
    contains(error_of("[1]"), "one JSON object");
    contains(error_of("{\"a\":\n" + std::string(20000, '[')), "plan.json:2: it is nested more than 100 deep");
    CHECK(error_of(std::string(100, '[') + std::string(100, ']')).find("deep") == std::string::npos);
    const std::string beyond = error_of("{\"requests\": [{\"tensor\": \"x\", \"range\": [-1e999, 1e999]}]}");
    contains(beyond, "plan.json:1: not JSON: the number -1e999 is beyond what a 64-bit float holds");
    CHECK(error_of("{\"" + std::string(1000000, 'k') + "\": {\"a\": [1, \"b\"]}}").size() < 1100000);
    contains(error_of("{\"placement\": \"some\"}"), "layers, all, every");
    contains(error_of("{\"weight_rounding\": \"best\"}"), "nearest, compensated");
    contains(error_of("{\"calibration\": {\"method\": \"bset\"}}"), "percentile");
}

TEST_CASE("saved plans come back equal; plans that do not fit the model are refused") {
    const model m = residual_model();
    calibration seen = calibrate(m, image(4));
    precision_requests q;
    q.set_default("int8", "int8").set_precision("conv2", role::input, parse_precision("mx6")).set_model_output_precision({"fp16"});
    q.set_precision("conv3", role::weight, {.format = qk::mxfp4, .semantics = qk::semantics::quark});
    const precision_plan plan = quantize(m, q, seen, {.dual = true, .per_channel = true}).plan;
    CHECK_FALSE(plan.edges.empty());
    const plan_file back = parse_plan_file(to_json(plan).dump(), "saved");
    CHECK(back.plan == plan);
    CHECK_NOTHROW(check_plan(plan, m, "saved"));
    precision_plan wrong = plan;
    wrong.tensors["relu1_oot"] = {.format = qk::bfp16, .scale = {}, .zero_point = {}};
    CHECK_THROWS_WITH_AS(check_plan(wrong, m, "saved"), doctest::Contains("'relu1_out'"), error);

    precision_plan runs;  // w1 has shape [4,4,1,1]: two runs of two along axis 1 for each row
    quantizer& w1 = runs.tensors["w1"] = {.format = qk::int8, .axis = 1, .scale = std::vector<float>(8, 0.1f), .zero_point = {}};
    w1.block_size = 2;
    CHECK_NOTHROW(check_plan(runs, m, "saved"));
    w1.scale.pop_back();
    CHECK_THROWS_WITH_AS(check_plan(runs, m, "saved"),
                         doctest::Contains("'w1' has shape [4,4,1,1], whose blocks of 2 need 8 scales, not 7"), error);
    precision_plan output;
    output.edges[{"w1", "", 0}] = {.format = qk::bfp16, .scale = {}, .zero_point = {}};
    CHECK_THROWS_WITH_AS(check_plan(output, m, "saved"), doctest::Contains("not tensor 'w1'"), error);
}

TEST_CASE("calibration: ranges are those of the finite values, whatever stands among them") {
    const model m = residual_model();
    const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN(),
                most = std::numeric_limits<float>::max();
    for (const std::vector<float>& few : std::vector<std::vector<float>>{{-1, 2, 0.5f},
                                                                         {nan, -inf, inf, -nan},
                                                                         {3, inf, 5, nan, -inf},
                                                                         {-5, -3, -nan},
                                                                         {most, -most},
                                                                         {1e-45f, -1e-45f},
                                                                         {-0.0f},
                                                                         {-0.0f, -2, nan}}) {
        named_tensors x = image(300);
        const auto values = x.at("x").as<float>();
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = i % 41 == 7 ? few[i % few.size()] : few[0];
        value_range range;
        std::uint64_t not_finite = 0;
        bool first = true;
        for (const float v : values) {
            if (!std::isfinite(v)) ++not_finite;
            else range = first ? value_range{v, v} : value_range{std::min(range.lo, v), std::max(range.hi, v)}, first = false;
        }
        const tensor_statistics s = calibrate(m, x, {.threads = 2, .histograms = false}).tensors.at("x");
        CHECK(s.range == range);
        if (range.hi == 0) CHECK_FALSE(std::signbit(s.range.hi));
        CHECK(s.count == values.size());
        CHECK(s.not_finite == not_finite);
    }
}

TEST_CASE("calibration: the same for any number of threads; files come back equal; methods are ordered as they should be") {
    const model m = residual_model();
    const calibrate_options options{.threads = 1, .histograms = true, .moving_average = true};
    calibrate_options many = options;
    many.threads = 3;
    const calibration one = calibrate(m, image(9), options), three = calibrate(m, image(9), many);
    CHECK(one == three);
    CHECK(one.samples == 9);
    temporary file;
    save_calibration(one, file.path);
    CHECK(is_calibration_file(file.path));
    CHECK(load_calibration(file.path) == one);
    const auto all = compare_methods(one,
                                     {range_method::min_max, range_method::percentile, range_method::layerwise_percentile,
                                      range_method::entropy, range_method::mse, range_method::moving_average},
                                     parse_precision("int4"));
    for (const method_comparison& c : all) {
        const tensor_statistics& s = one.tensors.at(c.tensor);
        CHECK(c.methods.size() == 6);
        for (const method_range& r : c.methods) {
            CHECK(r.range.lo >= s.range.lo);
            CHECK(r.range.hi <= s.range.hi);
            CHECK(c.methods[4].error <= r.error * 1.0001);  // method 4, mse, has the least error
        }
    }
    CHECK_THROWS_WITH_AS(choose_range(calibrate(m, image(1), {.histograms = false}).tensors.at("x"), {.method = range_method::mse}, "x"),
                         doctest::Contains("calibrate again"), error);
    const std::string page = calibration_html("small", "", one, parse_precision("int8"), all);
    CHECK(page.find("relu1_out") != std::string::npos);
}

TEST_CASE("histograms do not depend on the order of what they saw") {
    const std::vector<float> small{0.001f, -0.002f, 0.0f}, large{100.0f, -3.0f, 1e-30f};
    magnitude_histogram a, b, c;
    a.add(small);
    a.add(large);
    b.add(large);
    b.add(small);
    magnitude_histogram part;
    part.add(small);
    c.add(large);
    c.add(part);
    CHECK(a == b);
    CHECK(a == c);
    CHECK(a.count() == 6);
    CHECK(a.bytes() < 200);
    magnitude_histogram listed, counted;  // the same values, one by one and at once: as a list and as counters of two widths
    std::vector<float> many(70000);
    for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<float>(i % 300) - 20.0f;
    for (std::size_t i = 0; i < 300; ++i) listed.add(std::span(many).subspan(i, 1));
    counted.add(std::span(many).first(300));
    CHECK(listed == counted);
    CHECK(listed.bytes() < 16384);
    for (int i = 0; i < 2; ++i) counted.add(many);
    CHECK(counted.bytes() == 32768);
    CHECK(counted.count() == 140300);
    listed.add(many), listed.add(many);
    CHECK(listed == counted);
    CHECK(listed.positive()[0] == counted.positive()[0]);
    magnitude_histogram joined = listed;
    joined.add(std::vector<float>{1e6f});  // wider bins, in counters
    CHECK(joined.count() == 140301);
    CHECK(magnitude_histogram::restore(joined.exponent(), joined.positive(), joined.negative()) == joined);
    magnitude_histogram uniform;
    std::vector<float> ramp(10000);
    for (std::size_t i = 0; i < ramp.size(); ++i) ramp[i] = static_cast<float>(i) / 10000;
    uniform.add(ramp);
    tensor_statistics s;
    s.range = {0, ramp.back()};
    s.count = 10000;
    s.histogram = uniform;
    const value_range r = choose_range(s, {.method = range_method::percentile, .percentile = 90, .symmetric = true}, "ramp");
    CHECK(r.hi == doctest::Approx(0.9).epsilon(0.001));
}

TEST_CASE("AIMET encodings 1.0.0, there and back: the same values") {
    const model m = residual_model();
    const calibration seen = calibrate(m, image(2));
    const precision_plan plan = quantize(m, precision_requests().set_default("uint8", "int8"), seen, {.per_channel = true}).plan;
    const nlohmann::ordered_json file = write_encodings(plan, m);
    CHECK(file["version"] == "1.0.0");
    precision_plan back = *parse_plan_file(file.dump(), "m.encodings").plan;
    place_encodings(back, m);
    CHECK_NOTHROW(check_plan(back, m, "m.encodings"));
    for (const auto& [name, q] : plan.tensors) {
        CAPTURE(name);
        const quantizer& r = back.tensors.at(name);
        CHECK(r.scale == q.scale);
        CHECK(r.zero_point == q.zero_point);
        if (q.scale.size() > 1) CHECK(r.axis == q.axis);
        CHECK(std::get<qk::integer>(r.format).bits == std::get<qk::integer>(q.format).bits);
    }
    CHECK_THROWS_WITH_AS(
        write_encodings({.tensors = {{"x", {.format = qk::mxfp4, .scale = {}, .zero_point = {}}}}, .edges = {}, .accumulators = {}}, m),
        doctest::Contains("mxfp4"), error);
    const auto floating = [](const qk::format& f) { return quantizer{.format = f, .axis = 0, .scale = {}, .zero_point = {}}; };
    const precision_plan floats{.tensors = {{"x", floating(qk::fp16)}, {"y", floating(qk::fp32)}}, .edges = {}, .accumulators = {}};
    CHECK(parse_plan_file(write_encodings(floats, m).dump(), "m.encodings").plan->tensors == floats.tensors);
    contains(error_of(R"({"version": "0.6.1", "activation_encodings": []})"), "export them as version 1.0.0");
    contains(error_of(R"({"version": "3.0.0", "encodings": [{"name": "x", "output_dtype": "int8", "y_scale": 0.1}]})"),
             "AIMET encodings of version 3.0.0 are not read; export them as version 1.0.0 or 2.0.0");
    contains(
        error_of(R"({"version": "1.0.0", "param_encodings": [{"name": "w", "enc_type": "LPBQ", "dtype": "INT", "bw": 8, "compressed_bw": 4,
                       "is_sym": true, "block_size": 64, "scale": [0.1], "offset": [-128], "per_block_int_scale": [17]}]})"),
        "integer 17 is outside of 1 to 16");
}

TEST_CASE("AIMET encodings 2.0.0, there and back: the same values") {
    const model m = residual_model();
    const calibration seen = calibrate(m, image(2));
    const precision_plan plan = quantize(m, precision_requests().set_default("uint8", "int8"), seen, {.per_channel = true}).plan;
    const nlohmann::ordered_json file = write_encodings(plan, m, "2.0.0");
    precision_plan back = *parse_plan_file(file.dump(), "m.encodings").plan;
    place_encodings(back, m);
    CHECK_NOTHROW(check_plan(back, m, "m.encodings"));
    for (const auto& [name, q] : plan.tensors) {
        CAPTURE(name);
        const quantizer& r = back.tensors.at(name);
        CHECK(r.scale == q.scale);
        CHECK(r.zero_point == q.zero_point);
        if (q.scale.size() > 1) CHECK(r.axis == q.axis);
    }
    CHECK_THROWS_WITH_AS(write_encodings(plan, m, "0.6.1"), doctest::Contains("1.0.0 or 2.0.0"), error);
}

TEST_CASE("dropping a needless Relu and storing int8 as uint8 change no value") {
    model m = residual_model();
    const named_tensors x = image(3);
    const calibration seen = calibrate(m, x);
    precision_plan plan = quantize(m, precision_requests().set_default("int8", "int8"), seen).plan;
    const named_tensors before = evaluator(m).run(x, plan).outputs;
    CHECK(drop_needless_activations(m, plan) == std::vector<std::string>{"relu1", "relu2"});
    CHECK(store_activations_unsigned(plan, m) > 0);
    const named_tensors after = evaluator(m).run(x, plan).outputs;
    const auto a = before.at("y").as<float>(), b = after.at("y").as<float>();
    CHECK(std::equal(a.begin(), a.end(), b.begin(), b.end()));
    // A symmetric quantizer has negative codes, so the Relu stays.
    model n = residual_model();
    precision symmetric = parse_precision("int8");
    symmetric.symmetric = true;
    const precision_plan kept = quantize(n, precision_requests().set_default(symmetric, parse_precision("int8")), seen).plan;
    CHECK(drop_needless_activations(n, kept).empty());
}

TEST_CASE("the report's text, JSON and page name every edge") {
    const model m = residual_model();
    const calibration seen = calibrate(m, image(2));
    precision_requests q;
    q.set_default("int8", "int4").set_precision("nothing", "int8");
    const quantize_result r = quantize(m, q, seen);
    const layer_view layers(m);
    const plan_cost cost = cost_of(layers, r.plan, &seen);
    CHECK(cost.float_bit_operations == (4 * 4 * 64 * 2 + 4 * 4 * 16) * 32.0 * 32.0);
    CHECK(cost.bit_operations == (4 * 4 * 64 * 2 + 4 * 4 * 16) * 8.0 * 4.0);
    CHECK(cost.weight_bits < cost.float_weight_bits);
    for (const std::string& text : {r.report.text(), to_json(r.report).dump(),
                                    quantize_html({.model = "m", .command = "", .requests = q.list(), .export_notes = {}}, r, cost, &seen)})
        for (const char* word : {"relu1_out", "w3", "int4", "unmatched", "nothing"}) contains(text, word);
}

TEST_CASE("a plan's weight bits count each constant once, of every layer that reads one") {
    qk_test::builder b;
    b.input("x", {-1, 4}).output("y", {-1, 4}).constant("w", {4, 4}, std::vector<float>(16, 0.5f)).constant("slope", {4}, {1, 2, 3, 4});
    b.node("MatMul", {"x", "w"}, {"h"}, "first");
    b.node("MatMul", {"h", "w"}, {"z"}, "second");
    b.node("PRelu", {"z", "slope"}, {"y"}, "third");
    const model m = b.model();
    const calibration seen = calibrate(m, {{"x", make_tensor<float>({1, 4}, std::vector<float>{1, 2, 3, 4})}});
    precision_requests q;
    q.set_default("int8", "int8");
    const quantize_result r = quantize(m, q, seen, {.per_channel = false});
    const plan_cost cost = cost_of(layer_view(m), r.plan, &seen);
    CHECK(cost.float_weight_bits == (16 + 4) * 32);
    CHECK(cost.weight_bits == 16 * 8 + 32 + 4 * 32);  // codes, one scale, and the slope in float32
}
