// SPDX-License-Identifier: Apache-2.0
// Searches on the shipped digits network: they keep their promises and are free of the peers' defects that concern search (by number).
#include "qk/graph/search/search.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "qk/graph/calibrate/calibrate.hpp"
#include "qk/graph/evaluate/fold.hpp"
#include "qk/graph/files/npy.hpp"
#include "qk/graph/search/choose_method.hpp"
#include "qk/graph/search/report.hpp"

using namespace qk::graph;

namespace {

struct digits {
    model network = model::load(QK_SOURCE_DIR "/examples/digits/digits.onnx");
    named_tensors inputs;
    std::vector<std::int64_t> labels;
    calibration seen;

    explicit digits(std::int64_t samples = 64) {
        fold_constants(network);
        fold_batch_normalization(network);
        const tensor images = read_npy(QK_SOURCE_DIR "/examples/digits/test_images.npy"),
                     classes = read_npy(QK_SOURCE_DIR "/examples/digits/test_labels.npy");
        dims shape = images.shape();
        shape[0] = samples;
        inputs[network.inputs()[0].name] = tensor(images.type(), shape, images.buffer());
        const auto all = classes.as<std::int64_t>();
        labels.assign(all.begin(), all.begin() + samples);
        seen = calibrate(network, inputs, {.threads = 2});
    }
    search_options options() const {
        search_options o;
        o.scoring.session.threads = 2;
        o.scoring.labels = labels;
        return o;
    }
    search_result search(const search_options& o) const { return qk::graph::search(network, inputs, seen, o); }
};

const digits& shared_digits() {
    static const digits d;
    return d;
}

/// Returns a target between the wide and the all-narrow model's metric, so that a search has to choose.
double midway(const digits& d, search_options o) {
    o.target = 1e30;
    const search_result narrow = d.search(o);
    return narrow.baseline_metric + 0.4 * (narrow.metric - narrow.baseline_metric);
}

}  // namespace

TEST_CASE("greedy meets a target midway, with fewer layers computed than evaluations would cost") {
    const digits& d = shared_digits();
    search_options o = d.options();
    o.wide = "int8/int8";
    o.narrow = {"int8/int4"};
    o.target = midway(d, o);
    const search_result r = d.search(o);
    CHECK(r.status == "target met");
    CHECK(r.metric <= *o.target);
    CHECK(r.cost < r.wide_cost);
    CHECK(r.cost_unit == "bytes");
    const auto narrow = std::count(r.choice.begin(), r.choice.end(), 1);
    CHECK(narrow > 0);
    CHECK(narrow < static_cast<std::ptrdiff_t>(r.choice.size()));
    CHECK(r.layer_evaluations < r.naive_layer_evaluations);
    CHECK(r.samples == 64);

    // The evaluator alone, run under the plan, measures the metric that the search reports.
    const evaluator runner(d.network, {.threads = 1});
    const std::string output = d.network.outputs()[0].name;
    const tensor y = runner.run(d.inputs, r.plan).outputs.at(output), reference = runner.run(d.inputs).outputs.at(output);
    double sum = 0;
    for (std::size_t s = 0; s < 64; ++s)
        sum += find_metric("l2").sample(y.as<float>().subspan(s * 10, 10), reference.as<float>().subspan(s * 10, 10), -1)[0];
    CHECK(sum / 64 == doctest::Approx(r.metric).epsilon(1e-6));
}

TEST_CASE("where everything may be narrow two evaluations are enough; where not, a peek at some samples changes nothing") {
    const digits d(256);
    search_options o = d.options();
    o.wide = "int8/int8";
    o.narrow = {"int8/int4"};
    o.ranking = "measured";
    o.target = 1e30;
    const search_result narrow = d.search(o);
    CHECK(narrow.evaluations == 2);
    CHECK(narrow.choice == narrow.space.all(1));
    o.target = midway(d, o);
    const search_result peeked = d.search(o);
    CHECK(peeked.status == "target met");
    CHECK(peeked.evaluations > 2);
    // A user's function is called for whole trials only, never for some samples.
    o.scoring.user = [](const tensor& y, const tensor& r, std::span<const std::int64_t>) {
        double sum = 0;
        for (std::size_t s = 0; s < 256; ++s)
            sum += find_metric("l2").sample(y.as<float>().subspan(s * 10, 10), r.as<float>().subspan(s * 10, 10), -1)[0];
        return sum / 256;
    };
    const search_result whole = d.search(o);
    CHECK(whole.choice == peeked.choice);
    CHECK(whole.evaluations == peeked.evaluations + 1);  // so everything narrow is measured, and not peeked at
    CHECK(whole.metric == doctest::Approx(peeked.metric).epsilon(1e-9));
}

TEST_CASE("the same search for any number of threads") {
    const digits& d = shared_digits();
    search_options o = d.options();
    o.narrow = {"int8/int4"};
    o.target = midway(d, o);
    const search_result two = d.search(o);
    for (const int threads : {1, 3}) {
        o.scoring.session.threads = threads;
        const search_result other = d.search(o);
        CHECK(other.choice == two.choice);
        CHECK(other.metric == two.metric);
    }
}

TEST_CASE("float outputs that calibration gave are the evaluator's, and a search that has them is the same search") {
    const digits& d = shared_digits();
    named_tensors outputs;
    CHECK(calibrate(d.network, d.inputs, {.threads = 2}, {}, &outputs) == d.seen);
    const std::string output = d.network.outputs()[0].name;
    const tensor y = evaluator(d.network, {.threads = 1}).run(d.inputs).outputs.at(output);
    REQUIRE(outputs.at(output).shape() == y.shape());
    CHECK(std::memcmp(outputs.at(output).bytes(), y.bytes(), y.size_bytes()) == 0);
    search_options o = d.options();
    o.narrow = {"int8/int4"};
    o.target = midway(d, o);
    const search_result without = d.search(o);
    o.scoring.float_outputs = outputs;
    const search_result with = d.search(o);
    CHECK(with.choice == without.choice);
    CHECK(with.metric == without.metric);
    CHECK(with.layer_evaluations < without.layer_evaluations);                    // the float model is not run
    o.scoring.float_outputs.begin()->second = tensor(y.type(), {7}, y.buffer());  // not one row a sample, so these are not used
    CHECK(d.search(o).metric == without.metric);
}

TEST_CASE("whatever stops a search, the all-wide model is measured") {
    const digits& d = shared_digits();
    search_options o = d.options();
    o.narrow = {"int8/int4"};
    o.target = 1e30;
    o.scoring.session.stop = [] { return true; };
    const search_result r = d.search(o);
    CHECK(r.status == "interrupted");
    CHECK(r.choice == r.space.all(0));
    CHECK(r.metric > 0);
    CHECK(r.history.size() == 1);
}

TEST_CASE("the number of samples is what was given, and labels must be as many") {
    const digits& d = shared_digits();
    search_options o = d.options();
    o.scoring.labels.pop_back();
    o.target = 1;
    CHECK_THROWS_WITH_AS(d.search(o), doctest::Contains("63 labels for 64 samples"), error);
}

TEST_CASE("widening starts from the float weights") {
    const digits& d = shared_digits();
    search_options o = d.options();
    o.wide = "int16/int16";
    o.narrow = {"int8/int8"};
    o.direction = "widen";
    o.target = 0;
    const search_result r = d.search(o);  // the target is out of reach, so every layer is widened
    CHECK(r.choice == assignment(r.choice.size(), 0));
    CHECK(r.metric == r.baseline_metric);
    CHECK(r.plan == [&] {
        search_options w = o;
        w.direction = "narrow";
        return d.search(w).plan;
    }());
}

TEST_CASE("per-channel weights, biases and shared inputs are searched") {
    const digits& d = shared_digits();
    search_options o = d.options();
    o.per_channel = true;
    o.wide = "int16/int16";
    o.narrow = {"int8/int4"};
    o.target = midway(d, o);
    const search_result r = d.search(o);
    CHECK(r.target_met);
    bool channels = false;
    for (const auto& [where, q] : r.plan.edges) channels |= q.scale.size() > 1;
    CHECK(channels);
}

TEST_CASE("an unreachable target returns the best there is and says so") {
    const digits& d = shared_digits();
    search_options o = d.options();
    o.target = -1;
    for (const strategy& s : all_strategies()) {
        o.strategy = s.name;
        o.limits.trials = 60;
        const search_result r = d.search(o);
        CAPTURE(s.name);
        CHECK_FALSE(r.target_met);
        CHECK((r.status.starts_with("target out of reach: best is l2") || r.status == "trial limit"));
        CHECK(r.metric <= r.baseline_metric);
        CHECK_FALSE(r.plan.edges.empty());
    }
}

TEST_CASE("names that match nothing and outputs out of range are errors") {
    const digits& d = shared_digits();
    search_options o = d.options();
    o.target = 1;
    o.layers = {"block1.depthwize"};
    CHECK_THROWS_WITH_AS(d.search(o), doctest::Contains("block1.depthwise"), error);
    o.layers.clear();
    o.exclude = {"nothing*"};
    CHECK_THROWS_WITH_AS(d.search(o), doctest::Contains("--exclude 'nothing*'"), error);
    o.exclude.clear();
    o.op_types = {"Convolution"};
    CHECK_THROWS_WITH_AS(d.search(o), doctest::Contains("--op-types 'Convolution'"), error);
    o.op_types.clear();
    o.scoring.output_index = 1;
    CHECK_THROWS_WITH_AS(d.search(o), doctest::Contains("--output-index 1 is out of range: the model has 1 outputs"), error);
    o.scoring.output_index = 0;
    o.narrow = {"int8"};
    CHECK_THROWS_WITH_AS(d.search(o), doctest::Contains("ACTIVATION/WEIGHT"), error);
    o.narrow = {"int8/mxfp4@up"};
    CHECK_THROWS_WITH_AS(d.search(o), doctest::Contains("scale rule"), error);
    o.narrow = {"int8/int8"};
    o.target.reset();
    CHECK_THROWS_WITH_AS(d.search(o), doctest::Contains("needs a target"), error);
}

TEST_CASE("a budget and a share of wide layers are kept") {
    const digits& d = shared_digits();
    search_options o = d.options();
    o.wide = "int8/int8";
    o.narrow = {"int8/int4", "mxfp4/mxfp4@rceil"};
    o.strategy = "budget";
    o.budget_ratio = 0.7;
    const search_result r = d.search(o);
    CHECK(r.cost <= 0.7 * r.wide_cost);
    CHECK(r.target_met);
    o.budget_ratio.reset();
    o.wide_share = 0.25;
    const search_result s = d.search(o);
    const auto wide = std::count(s.choice.begin(), s.choice.end(), 0);
    CHECK(wide <= static_cast<std::ptrdiff_t>(std::lround(0.25 * static_cast<double>(s.choice.size()))));
}

TEST_CASE("a stopped search goes on from its cache") {
    const digits& d = shared_digits();
    const auto file = std::filesystem::temp_directory_path() / "qk_search_test.cache";
    std::filesystem::remove(file);
    search_options o = d.options();
    o.narrow = {"int8/int4"};
    o.target = midway(d, o);
    o.cache = file;
    o.limits.trials = 7;
    const search_result stopped = d.search(o);
    CHECK(stopped.status == "trial limit");
    o.limits.trials = 0;
    const search_result resumed = d.search(o);
    CHECK(resumed.cached == 7);
    const search_result again = d.search(o);
    CHECK(again.cached >= resumed.evaluations);  // and what the limit had the first search try
    CHECK(again.cached < resumed.evaluations + 7);
    CHECK(again.choice == resumed.choice);
    CHECK(again.layer_evaluations < resumed.layer_evaluations);

    // Cached trials are not used under another reference or other semantics, which change the numbers.
    o.baseline_wide = true;
    CHECK(d.search(o).cached == 0);
    o.baseline_wide = false;
    quantizer& fixed = o.fixed_plan.tensors[d.network.inputs()[0].name] = {.format = qk::bfp16, .axis = 1, .scale = {}, .zero_point = {}};
    CHECK(d.search(o).cached == 0);
    CHECK(d.search(o).cached > 0);
    fixed.semantics.bfp_zero = qk::zero_sign::positive;
    CHECK(d.search(o).cached == 0);
    std::filesystem::remove(file);
}

TEST_CASE("a user's own function and accuracy targets") {
    const digits& d = shared_digits();
    search_options o = d.options();
    o.narrow = {"int8/int4", "int4/int4"};
    o.scoring.metric = "top1";
    o.target_drop = 0.05;
    const search_result top1 = d.search(o);
    CHECK(top1.target_met);
    CHECK(top1.metric >= top1.float_metric - 0.05 - 1e-9);
    CHECK(top1.sampling_error > 0);
    REQUIRE(top1.over_wide);
    CHECK(top1.over_wide->value == doctest::Approx(top1.metric - top1.baseline_metric));
    CHECK(top1.over_wide->is_noise());  // 64 images cannot tell a percentage point
    CHECK(top1.over_wide->metric.low <= top1.metric);
    CHECK(top1.over_wide->metric.high >= top1.metric);
    CHECK(chance_text(top1).find(top1.over_wide->value == 0 ? "measure the same" : "it is noise") != std::string::npos);

    o.target_drop.reset();
    o.scoring.user = [](const tensor& y, const tensor& reference, std::span<const std::int64_t> labels) {
        CHECK(labels.size() == 64);
        double worst = 0;
        for (std::size_t i = 0; i < y.size(); ++i)
            worst = std::max(worst, std::abs(double(y.as<float>()[i]) - double(reference.as<float>()[i])));
        return worst;
    };
    o.strategy = "basic";
    o.target = 1e9;
    CHECK(d.search(o).metric > 0);
    o.scoring.user = metric_from_command("echo 3.25 #");
    o.target = 4;
    CHECK(d.search(o).metric == 3.25);
    o.scoring.user = metric_from_command("false");
    CHECK_THROWS_WITH_AS(d.search(o), doctest::Contains("ended with status 1"), error);
}

TEST_CASE("sensitivities: weights alone and activations alone, least harm first, and a page") {
    const digits& d = shared_digits();
    search_options o = d.options();
    o.wide = "int16/int16";
    o.narrow = {"int8/int4"};
    const sensitivity_result r = measure_sensitivity(d.network, d.inputs, d.seen, o);
    REQUIRE(r.rows.size() >= 30);
    for (std::size_t i = 1; i < r.rows.size(); ++i) CHECK(r.rows[i].harm >= r.rows[i - 1].harm);
    const auto find = [&](const std::string& layer, mixture::part part) {
        return std::find_if(r.rows.begin(), r.rows.end(),
                            [&](const sensitivity_row& row) { return row.layer == layer && row.part == part; });
    };
    CHECK(find("stem", mixture::part::both) != r.rows.end());
    CHECK(find("stem", mixture::part::weights)->error > find("stem", mixture::part::activations)->error);
    const std::string page = sensitivity_html({"digits.onnx", "qk sensitivity", &d.seen}, r);
    CHECK(page.find("block1.depthwise") != std::string::npos);
    CHECK(page.find("http://") == page.find("http://www.w3.org"));
    CHECK(measure_sensitivity(d.network, d.inputs, d.seen, o, true).widened);
}

TEST_CASE("choosing a calibration method: each is measured under its own plan, and one is kept that does better by more than chance") {
    const digits& d = shared_digits();
    const calibration seen = calibrate(d.network, d.inputs, {.threads = 2, .moving_average = true});
    precision_requests asked;
    asked.set_default("int8", "int4");
    const auto by = [&](const char* metric) {
        score_options o = d.options().scoring;
        o.metric = metric;
        return o;
    };
    const auto choose = [&](const calibration& statistics, const char* metric) {
        return choose_method(d.network, asked.list(), {}, statistics, d.inputs, by(metric));
    };
    for (const char* name : {"top1", "sqnr", "l2"}) {
        const method_choice c = choose(seen, name);
        CHECK(c.metric == name);
        CHECK(c.samples == 64);
        REQUIRE(c.tried.size() == all_range_methods().size());
        const metric& m = find_metric(name);
        const auto plan_by = [&](range_method method) { return planner(d.network, &seen).plan(asked.list(), {.method = method}).plan; };
        const method_choice::trial& best = c.tried[c.best];
        for (const method_choice::trial& t : c.tried) {
            const precision_plan plan = plan_by(t.method);
            scorer measured(d.network, d.inputs, by(name));
            const score alone = measured(std::span(&plan, 1)).front();
            CHECK(t.metric == alone.metric);
            CHECK(t.error == alone.error);
            const bool is_noise = measured.compare(plan_by(c.tried[0].method), plan)->is_noise();
            if (better(m, t.metric, best.metric)) CHECK(is_noise);
            if (&t == &best && c.best > 0) CHECK_FALSE(is_noise);
        }
    }
    // With fewer statistics fewer methods are tried. For a format without ranges all methods give the same plan.
    CHECK(choose(calibrate(d.network, d.inputs, {.histograms = false}), "sqnr").tried.size() == 1);
    CHECK(choose(d.seen, "sqnr").tried.size() == 5);  // the statistics have no moving average
    asked.set_default("bfp16", "bfp16");
    const method_choice same = choose(seen, "sqnr");
    CHECK(same.method() == range_method::min_max);
    for (const method_choice::trial& t : same.tried) CHECK(t.error == same.tried[0].error);
}
