// SPDX-License-Identifier: Apache-2.0
// Compares errors that are estimated from gradients with errors that the evaluator measures.
#include <doctest/doctest.h>

#include <cmath>
#include <map>

#include "build_model.hpp"
#include "graph/base/process_memory.hpp"
#include "graph/gradient/estimate.hpp"
#include "graph/search/estimated.hpp"
#include "qk/graph/calibrate/calibrate.hpp"
#include "qk/graph/evaluate/fold.hpp"
#include "qk/graph/evaluate/inputs.hpp"

using namespace qk::graph;

namespace {

tensor floats(dims shape, std::size_t seed) {
    tensor t(data_type::float32, std::move(shape));
    for (std::size_t i = 0; i < t.size(); ++i) t.as<float>()[i] = std::sin(static_cast<float>(37 * i + seed));
    return t;
}

quantizer integer_quantizer(int bits, float scale) {
    quantizer q;
    q.format = qk::integer{.bits = bits, .is_signed = true};
    q.scale = {scale};
    q.zero_point = {0};
    return q;
}

/// Builds two matrix products, y = (x w) u, which are linear in each operand.
qk_test::builder two_products() {
    qk_test::builder b;
    b.input("x", {-1, 6}).output("y", {-1, 4});
    const tensor w = floats({6, 5}, 1), u = floats({5, 4}, 2);
    b.constant("w", {6, 5}, {w.as<float>().begin(), w.as<float>().end()});
    b.constant("u", {5, 4}, {u.as<float>().begin(), u.as<float>().end()});
    b.node("MatMul", {"x", "w"}, {"h"}, "first");
    b.node("MatMul", {"h", "u"}, {"y"}, "second");
    return b;
}

double measured_error(const model& m, const named_tensors& x, const precision_plan& base, const precision_plan& changed) {
    const evaluator run(m);
    const tensor a = run.run(x, base).outputs.at("y"), b = run.run(x, changed).outputs.at("y");
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += std::pow(static_cast<double>(a.as<float>()[i] - b.as<float>()[i]), 2);
    return sum / static_cast<double>(a.size());
}

/// Spearman's rank correlation; ties share their mean rank.
double rank_correlation(const std::vector<double>& a, const std::vector<double>& b) {
    const auto ranks = [](const std::vector<double>& v) {
        std::vector<double> r(v.size());
        for (std::size_t i = 0; i < v.size(); ++i)
            for (const double w : v) r[i] += (w < v[i]) + 0.5 * (w == v[i]);
        return r;
    };
    const auto x = ranks(a), y = ranks(b);
    double sx = 0, sy = 0, xy = 0, xx = 0, yy = 0;
    const double n = static_cast<double>(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) sx += x[i], sy += y[i];
    for (std::size_t i = 0; i < x.size(); ++i) {
        xy += (x[i] - sx / n) * (y[i] - sy / n);
        xx += (x[i] - sx / n) * (x[i] - sx / n);
        yy += (y[i] - sy / n) * (y[i] - sy / n);
    }
    return xy / std::sqrt(xx * yy);
}

struct digits {
    model m = model::load(std::string(QK_SOURCE_DIR) + "/examples/digits/digits.onnx");
    named_tensors inputs;
    calibration seen;
    mix_options options;
    explicit digits(std::int64_t samples) {
        fold_constants(m);
        fold_batch_normalization(m);
        tensor x = read_npy(std::string(QK_SOURCE_DIR) + "/examples/digits/test_images.npy");
        dims shape = x.shape();
        shape[0] = samples;
        inputs[m.inputs()[0].name] = tensor(x.type(), shape, x.buffer());
        seen = calibrate(m, inputs);
        options.wide = "int16/int16";
        options.narrow = {"int8/int8", "mx9/mx9"};
        options.scoring.metric = "mse";
    }
};

}  // namespace

TEST_CASE("of a linear model the estimate with all vectors is the measured error") {
    const model m = two_products().model();
    const named_tensors x{{"x", floats({7, 6}, 5)}};
    precision_plan base, weights, activations, output;
    base.edges[{"x", "first", 0}] = integer_quantizer(16, 1e-4f);
    weights = activations = output = base;
    weights.edges[{"w", "first", 1}] = integer_quantizer(4, 0.2f);
    activations.edges[{"h", "second", 0}] = integer_quantizer(4, 0.4f);
    output.edges[{"y", "", 0}] = integer_quantizer(4, 0.5f);
    const std::vector<precision_plan> plans{weights, activations, output};
    const change_estimates e = estimate_changes(m, x, base, plans, {.passes = 4});
    REQUIRE(e.added.size() == 3);
    CHECK(e.values == 4);
    CHECK(e.passes == 4);
    for (std::size_t i = 0; i < plans.size(); ++i) {
        CAPTURE(i);
        const double measured = measured_error(m, x, {}, [&] {  // estimates assume the float model's values
            precision_plan p = plans[i];
            p.edges.erase({"x", "first", 0});
            return p;
        }());
        CHECK(e.added[i] > 0);
        CHECK(e.added[i] == doctest::Approx(measured).epsilon(1e-3));
        CHECK(e.standard_error[i] == 0);
    }
}

TEST_CASE("fewer vectors give an estimate with a standard error, and the same bits for any number of threads") {
    const model m = two_products().model();
    const named_tensors x{{"x", floats({200, 6}, 5)}};
    precision_plan changed;
    changed.edges[{"w", "first", 1}] = integer_quantizer(4, 0.2f);
    const double exact = estimate_changes(m, x, {}, std::span(&changed, 1), {.passes = 4}).added[0];
    int covered = 0;
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        const change_estimates e = estimate_changes(m, x, {}, std::span(&changed, 1), {.threads = 1, .passes = 1, .seed = seed});
        const change_estimates again = estimate_changes(m, x, {}, std::span(&changed, 1), {.threads = 3, .passes = 1, .seed = seed});
        CHECK(e.added[0] == again.added[0]);
        CHECK(e.standard_error[0] == again.standard_error[0]);
        CHECK(e.standard_error[0] > 0.02 * exact);
        CHECK(e.standard_error[0] < 0.3 * exact);
        covered += std::abs(e.added[0] - exact) < 2 * e.standard_error[0];
    }
    CHECK(covered >= 16);
}

TEST_CASE("many values and many vectors: estimates that fit their standard errors, in little more memory than the vectors take as floats") {
    constexpr std::int64_t n = 1 << 19;
    constexpr int passes = 100;
    qk_test::builder b;
    b.input("x", {-1, 8}).output("y", {-1, n});
    const tensor w = floats({8, 16}, 1), u = floats({16, n}, 2);
    b.constant("w", {8, 16}, {w.as<float>().begin(), w.as<float>().end()});
    b.constant("u", {16, n}, {u.as<float>().begin(), u.as<float>().end()});
    b.node("MatMul", {"x", "w"}, {"h"}, "first");
    b.node("MatMul", {"h", "u"}, {"y"}, "second");
    const model m = b.model();
    const named_tensors x{{"x", floats({1, 8}, 5)}};
    precision_plan weights, activations;
    weights.edges[{"w", "first", 1}] = integer_quantizer(4, 0.2f);
    activations.edges[{"h", "second", 0}] = integer_quantizer(4, 0.4f);
    const std::vector<precision_plan> plans{weights, activations};
    std::vector<double> measured;
    for (const precision_plan& p : plans) measured.push_back(measured_error(m, x, {}, p));
    const std::size_t before = peak_process_bytes();
    const change_estimates e = estimate_changes(m, x, {}, plans, {.threads = 1, .passes = passes});
    const std::size_t after = peak_process_bytes();
    for (std::size_t i = 0; i < plans.size(); ++i) {
        CAPTURE(i);
        CHECK(measured[i] > 0);
        CHECK(std::abs(e.added[i] - measured[i]) < 4 * e.standard_error[i]);
        CHECK(e.standard_error[i] < 0.4 * measured[i]);
    }
    if (before != 0) CHECK(after < before + 2 * passes * n * sizeof(float));
}

TEST_CASE("a trained network: rows are those of measured, ranks agree, auto measures the largest") {
    digits d(48);
    const sensitivity_result measured = measure_sensitivity(d.m, d.inputs, d.seen, d.options);
    const sensitivity_result estimated =
        estimate_sensitivity(d.m, d.inputs, d.seen, d.options, false, {.method = sensitivity_method::gradient});
    REQUIRE(estimated.rows.size() == measured.rows.size());
    std::map<std::tuple<std::string, std::string, mixture::part>, double> by_row;
    for (const sensitivity_row& r : measured.rows) by_row[{r.layer, r.option, r.part}] = r.error;
    std::vector<double> a, b;
    for (const sensitivity_row& r : estimated.rows) {
        CHECK_FALSE(r.measured);
        a.push_back(r.error);
        b.push_back(by_row.at({r.layer, r.option, r.part}));
    }
    CHECK(rank_correlation(a, b) > 0.9);

    d.options.narrow = {"int4/int2"};  // so coarse that the error is not linear, and some rows have to be measured
    const sensitivity_result both = estimate_sensitivity(d.m, d.inputs, d.seen, d.options);
    CHECK(std::any_of(both.rows.begin(), both.rows.end(), [](const sensitivity_row& r) { return r.measured; }));

    d.options.scoring.user = [](const tensor&, const tensor&, std::span<const std::int64_t>) { return 1.0; };
    CHECK_THROWS_WITH_AS(estimate_sensitivity(d.m, d.inputs, d.seen, d.options, false, {.method = sensitivity_method::gradient}),
                         doctest::Contains("--method measured"), error);
}

TEST_CASE("errors of weights that a node makes of constants are seen, with inputs that have a gradient and with token numbers") {
    for (const bool tokens : {false, true}) {
        CAPTURE(tokens);
        qk_test::builder b;
        const tensor table = floats({7, 6}, 1), w = floats({5, 6}, 2);
        b.constant("table", {7, 6}, {table.as<float>().begin(), table.as<float>().end()});
        b.constant("w", {5, 6}, {w.as<float>().begin(), w.as<float>().end()});
        if (tokens) b.input("ids", {-1}, 7).node("Gather", {"table", "ids"}, {"x"}, "rows");
        else b.input("x", {-1, 6});
        b.output("y", {-1, 5});
        qk_test::set(b.node("Transpose", {"w"}, {"t"}, "turn"), "perm", std::vector<std::int64_t>{1, 0});
        b.node("MatMul", {"x", "t"}, {"y"}, "product");
        named_tensors inputs{{"x", floats({3, 6}, 4)}};
        if (tokens) inputs = {{"ids", make_tensor<std::int64_t>({3}, std::vector<std::int64_t>{6, 0, 3})}};
        precision_plan weights, activations;
        weights.edges[{"t", "product", 1}] = integer_quantizer(3, 0.3f);
        activations.edges[{"x", "product", 0}] = integer_quantizer(3, 0.3f);
        const model m = b.model();
        const std::vector<precision_plan> plans{weights, activations};
        const change_estimates found = estimate_changes(m, inputs, {}, plans, {.threads = 1});
        for (std::size_t p = 0; p < plans.size(); ++p)
            CHECK(found.added[p] == doctest::Approx(measured_error(m, inputs, {}, plans[p])).epsilon(1e-4));
    }
}

TEST_CASE("errors behind numbers without a gradient are seen: a product of what a Cast makes of token numbers") {
    qk_test::builder b;
    const tensor w = floats({4, 5}, 2);
    b.input("ids", {-1, 4}, 7).output("y", {-1, 5});
    b.constant("w", {4, 5}, {w.as<float>().begin(), w.as<float>().end()});
    qk_test::set(b.node("Cast", {"ids"}, {"x"}, "cast"), "to", std::int64_t{1});
    b.node("MatMul", {"x", "w"}, {"y"}, "product");
    const named_tensors inputs{{"ids", make_tensor<std::int64_t>({2, 4}, std::vector<std::int64_t>{6, 0, 3, 1, 2, 5, 7, 4})}};
    precision_plan weights, activations;
    weights.edges[{"w", "product", 1}] = integer_quantizer(3, 0.3f);
    activations.edges[{"x", "product", 0}] = integer_quantizer(3, 1.5f);
    const model m = b.model();
    const std::vector<precision_plan> plans{weights, activations};
    for (const int passes : {0, 1, 5}) {  // the output has 5 values, so 5 passes are exact
        CAPTURE(passes);
        const change_estimates found = estimate_changes(m, inputs, {}, plans, {.threads = 1, .passes = passes});
        for (std::size_t p = 0; p < plans.size(); ++p) {
            CHECK(found.added[p] > 0);
            if (passes == 5) CHECK(found.added[p] == doctest::Approx(measured_error(m, inputs, {}, plans[p])).epsilon(1e-4));
        }
    }
}

namespace {

/// Builds a small densenet with random weights: every layer reads a Concat of all before it, through a Relu, a Conv of 1 x 1, a Relu and a
/// Conv of 3 x 3. Biases keep what a Conv of 3 x 3 reads far from 0 on average, as BatchNormalization does.
model small_densenet() {
    qk_test::builder b;
    b.input("x", {-1, 3, 12, 12}).output("y", {-1, 10});
    unsigned seed = 1;
    const auto conv = [&](const std::string& name, const std::string& from, std::int64_t in, std::int64_t out, std::int64_t kernel) {
        const tensor w =
            qk_test::random_tensor({out, in, kernel, kernel}, seed++, std::sqrt(1.5f / static_cast<float>(in * kernel * kernel)));
        const tensor bias = qk_test::random_tensor({out}, seed++, 0.5f);
        b.constant(name + "_w", w.shape(), {w.as<float>().begin(), w.as<float>().end()});
        b.constant(name + "_b", bias.shape(), {bias.as<float>().begin(), bias.as<float>().end()});
        auto& node = b.node("Conv", {from, name + "_w", name + "_b"}, {name + "_out"}, name);
        if (kernel > 1) qk_test::set(node, "pads", std::vector<std::int64_t>(4, 1));
        return name + "_out";
    };
    const auto relu = [&](const std::string& from) {
        b.node("Relu", {from}, {from + "_r"}, from + "_relu");
        return from + "_r";
    };
    std::string features = relu(conv("stem", "x", 3, 16, 3));
    std::int64_t channels = 16;
    for (int layer = 0; layer < 8; ++layer) {
        const std::string n = std::to_string(layer);
        const std::string narrow = relu(conv("narrow" + n, relu(features), channels, 24, 1));
        const std::string wide = conv("wide" + n, narrow, 24, 8, 3);
        qk_test::set(b.node("Concat", {features, wide}, {"joined" + n}, "join" + n), "axis", std::int64_t{1});
        features = "joined" + n, channels += 8;
        if (layer != 3) continue;
        const std::string halved = conv("transition", relu(features), channels, channels / 2, 1);
        auto& pool = b.node("AveragePool", {halved}, {"pooled"}, "pool");
        qk_test::set(pool, "kernel_shape", std::vector<std::int64_t>{2, 2});
        qk_test::set(pool, "strides", std::vector<std::int64_t>{2, 2});
        features = "pooled", channels /= 2;
    }
    b.node("GlobalAveragePool", {relu(features)}, {"mean"}, "average");
    b.node("Flatten", {"mean"}, {"flat"}, "flatten");
    const tensor w = qk_test::random_tensor({channels, 10}, seed++, 0.3f);
    b.constant("last_w", w.shape(), {w.as<float>().begin(), w.as<float>().end()});
    b.node("Gemm", {"flat", "last_w"}, {"y"}, "last");
    return b.model();
}

}  // namespace

TEST_CASE("a densenet: estimates have the size of what is measured, for weights at their nearest codes, made pair-safe and compensated") {
    const model m = small_densenet();
    const named_tensors x{{"x", qk_test::random_tensor({12, 3, 12, 12}, 99, 1.0f)}};
    const calibration seen = calibrate(m, x);
    struct judged {
        const char* narrow;
        bool pair_safe;
    };
    for (const auto& [narrow, pair_safe] :
         {judged{"int8/int8", false}, {"int8/int8", true}, {"mx9/mx9", true}, {"int8/int:bits=6@compensated", true}}) {
        CAPTURE(narrow);
        CAPTURE(pair_safe);
        mix_options options;
        options.wide = "fp32/fp32";
        options.narrow = {narrow};
        options.scoring.metric = "mse";
        options.pair_safe = pair_safe;
        const sensitivity_result measured = measure_sensitivity(m, x, seen, options);
        const sensitivity_result estimated = estimate_sensitivity(
            m, x, seen, options, false, {.method = sensitivity_method::gradient, .passes = 10});  // exact but for linearity
        std::map<std::pair<std::string, mixture::part>, double> by_row;
        for (const sensitivity_row& r : measured.rows) by_row[{r.layer, r.part}] = r.error;
        std::vector<double> a, b;
        for (const sensitivity_row& r : estimated.rows) {
            CAPTURE(r.layer);
            CAPTURE(name_of(r.part));
            a.push_back(r.error), b.push_back(by_row.at({r.layer, r.part}));
            CHECK(a.back() > 0.6 * b.back());
            CHECK(a.back() < 1.7 * b.back());
        }
        CHECK(a.size() == 3 * 19);
        CHECK(rank_correlation(a, b) > 0.95);
    }
}
