// SPDX-License-Identifier: Apache-2.0
// What a search chooses beside formats: how choices are written, lists of them, and that each layer gets the one that is best for it.
#include "qk/graph/quantize/choices.hpp"

#include <doctest/doctest.h>

#include <random>

#include "build_model.hpp"
#include "graph/search/options.hpp"
#include "qk/graph/calibrate/calibrate.hpp"
#include "qk/graph/quantize/plan_file.hpp"
#include "qk/graph/search/rounded_weights.hpp"
#include "qk/graph/search/search.hpp"

using namespace qk::graph;

namespace {

using words = std::vector<std::string>;

tensor drawn(dims shape, unsigned seed, bool uniform, float scale = 1) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 1);
    std::uniform_real_distribution<float> flat(-1, 1);
    tensor t(data_type::float32, std::move(shape));
    for (float& v : t.as<float>()) v = scale * (uniform ? flat(random) : normal(random));
    return t;
}

/// A model of two products. The calibration data of the first product's input has outliers; the second product's fills its range evenly.
struct two_products {
    model network = made();
    named_tensors inputs;
    calibration seen;

    static model made() {
        qk_test::builder b;
        b.input("x", {-1, 32}).input("z", {-1, 32}).output("y", {-1, 16});
        for (const auto& [name, seed] : {std::pair{"w1", 1u}, std::pair{"w2", 2u}}) {
            const tensor w = drawn({32, 16}, seed, false, 0.2f);
            b.constant(name, {32, 16}, {w.as<float>().begin(), w.as<float>().end()});
        }
        b.node("MatMul", {"x", "w1"}, {"a"}, "tailed");
        b.node("MatMul", {"z", "w2"}, {"c"}, "even");
        b.node("Add", {"a", "c"}, {"y"}, "sum");
        return b.model();
    }
    two_products() {
        named_tensors calibrating{{"x", drawn({256, 32}, 3, false)}, {"z", drawn({256, 32}, 4, true)}};
        for (int i = 0; i < 3; ++i) calibrating["x"].as<float>()[static_cast<std::size_t>(1000 * i + 7)] = 300.0f;
        seen = calibrate(network, calibrating, {.threads = 1, .moving_average = true});
        inputs = {{"x", drawn({64, 32}, 5, false)}, {"z", drawn({64, 32}, 6, true)}};
    }
    search_options options() const {
        search_options o;
        o.wide = "fp32/fp32";
        o.scoring.metric = "mse";
        o.scoring.session.threads = 1;
        o.quantize.percentile = 90;
        return o;
    }
    std::map<std::string, std::string> chosen(const search_options& o) const {
        const search_result r = search(network, inputs, seen, o);
        std::map<std::string, std::string> all;
        for (std::size_t l = 0; l < r.space.size(); ++l) all[r.space.layers[l]] = r.space.options[r.choice[l]];
        return all;
    }
};

}  // namespace

TEST_CASE("words behind a format") {
    const side_choice a = parse_side_choice("uint8@entropy@sym", false),
                      w = parse_side_choice("int4@per_channel@asym@mse@compensated", true);
    CHECK(a.text == "uint8@entropy@sym");
    CHECK(a.what.method == range_method::entropy);
    CHECK(a.what.symmetric == true);
    CHECK(w.what.per_channel == true);
    CHECK(w.what.symmetric == false);
    CHECK(w.what.method == range_method::mse);
    CHECK(w.rounding == weight_rounding::compensated);
    CHECK(parse_side_choice("mxfp4@rceil", true).what.scale_rule == qk::scale_rule::rceil);
    CHECK(parse_side_choice("nvfp4@search", true).what.scale_rule == qk::scale_rule::search);
    CHECK(parse_side_choice("mxfp4@four_over_six", false).what.scale_rule == qk::scale_rule::four_over_six);
    CHECK(parse_side_choice("int8", false).what == precision{.format = qk::int8});
    for (const char* wrong : {"int8@per_tensor", "int8@compensated", "int8@", "int8@entropy@", "@entropy", "int8@@sym"})
        CHECK_THROWS_AS(parse_side_choice(wrong, false), error);
    for (const char* wrong : {"int8@entropy", "int8@moving_average"}) CHECK_THROWS_AS(parse_side_choice(wrong, true), error);
}

TEST_CASE("bars stand between alternatives of the place that they stand in") {
    CHECK(each_choice("int8/int4") == words{"int8/int4"});
    CHECK(each_choice("int8@a|b/int4") == words{"int8@a/int4", "int8@b/int4"});
    CHECK(each_choice("int8|int16@a/int4@c|d") == words{"int8@a/int4@c", "int8@a/int4@d", "int16@a/int4@c", "int16@a/int4@d"});
    CHECK(each_choice("int8@sym@a|b/x|y|z").size() == 6);
    CHECK(each_choice("int8@sym@a|b/x|y|z").back() == "int8@sym@b/z");
}

TEST_CASE("each layer gets the method that does best for it, whatever the strategy") {
    const two_products d;
    for (const char* strategy : {"greedy", "pareto", "budget", "basic", "mse", "bayesian", "exhaustive"}) {
        INFO(strategy);
        search_options o = d.options();
        o.strategy = strategy;
        o.narrow = {"int8@min_max|percentile|entropy/int8"};
        // The target lies between the best and the second-best metric of the all-narrow mixes, so that only the best of these meets it.
        search_options measured = o;
        measured.strategy = "exhaustive";
        measured.target = 1e30;
        double best = 1e30, next = 1e30;
        for (const trial& t : search(d.network, d.inputs, d.seen, measured).history) {
            if (std::count(t.choice.begin(), t.choice.end(), 0) != 0) continue;
            next = std::min(next, std::max(best, t.result.metric));
            best = std::min(best, t.result.metric);
        }
        o.target = (best + next) / 2;
        const auto chosen = d.chosen(o);
        CHECK(chosen.at("tailed") != "fp32/fp32");
        CHECK(chosen.at("tailed") != "int8@min_max/int8");
        CHECK(chosen.at("even") != "int8@percentile/int8");
        CHECK(chosen.at("even") != "fp32/fp32");
    }
}

TEST_CASE("a choice is the plan that quantize makes of it, on every edge") {
    const two_products d;
    search_options o = d.options();
    o.narrow = {"int8@min_max|percentile|entropy|mse/int8@per_tensor|per_channel", "uint8@sym@entropy/int4@asym"};
    const mix_problem problem(d.network, d.inputs, d.seen, o);
    const option_list all = list_options(o);
    REQUIRE(all.texts.size() == 10);
    planner plans(d.network, &d.seen);
    for (std::size_t i = 1; i < all.texts.size(); ++i) {
        INFO(all.texts[i]);
        quantize_options how = o.quantize;
        how.dual = true;
        if (all.pairs[i].activation.method) how.method = *all.pairs[i].activation.method;
        how.per_channel = !all.texts[i].ends_with("per_tensor");
        precision activation = all.pairs[i].activation, weight = all.pairs[i].weight;
        activation.method.reset(), weight.per_channel.reset();
        precision_requests requests;
        requests.set_default(activation, weight);
        const precision_plan asked = plans.plan(requests.list(), how).plan,
                             mixed = problem.mix().plan(problem.space().all(static_cast<std::uint8_t>(i)));
        const auto edges = quantized_edges(asked, d.network);
        CHECK(edges == quantized_edges(mixed, d.network));
        CHECK(edges.size() >= 4);
        for (const edge& e : edges) CHECK(*asked.find(e) == *mixed.find(e));
    }
}

TEST_CASE("compensated weights: measured as the model with these weights computes, whatever else is in the mix") {
    const two_products d;
    search_options o = d.options();
    o.narrow = {"int8@entropy/int2@nearest|compensated"};
    o.strategy = "exhaustive";
    o.target = 1e30;
    search_result r = search(d.network, d.inputs, d.seen, o);
    std::size_t with_weights_of_both = 0;
    for (const trial& t : r.history) {
        mix_problem problem(d.network, d.inputs, d.seen, o);
        precision_plan plan = problem.mix().plan(t.choice);
        const auto weights = problem.rounded().take(plan);
        with_weights_of_both += weights.size() == 2;
        const named_tensors y = evaluator(with_weights(d.network, weights), {.threads = 1}).run(d.inputs, plan).outputs;
        const named_tensors reference = evaluator(d.network, {.threads = 1}).run(d.inputs).outputs;
        double sum = 0;
        const auto a = y.at("y").as<float>(), b = reference.at("y").as<float>();
        for (std::size_t i = 0; i < a.size(); ++i) sum += (double(a[i]) - double(b[i])) * (double(a[i]) - double(b[i]));
        CHECK(sum / double(a.size()) == doctest::Approx(t.result.metric).epsilon(1e-9));
    }
    CHECK(with_weights_of_both == 1);
    // Compensated weights pay off for correlated inputs. These inputs are not correlated, so only check that the metric changes.
    CHECK(std::any_of(r.history.begin(), r.history.end(), [&](const trial& t) { return t.result.metric != r.history[0].result.metric; }));
}

TEST_CASE("lists of a requests file are choices; entries without lists stay requests") {
    const plan_file f = parse_plan_file(R"({"requests": [
        {"op_type": "MatMul", "activation": {"format": "int8", "method": ["min_max", "entropy"], "percentile": 99},
         "weight": {"format": ["int8", "int4"], "granularity": "per_channel", "scheme": ["sym"], "weight_rounding": ["nearest", "compensated"]}},
        {"layer": "even", "activation": {"format": "int8", "scheme": "sym"}, "weight": {"format": "int8", "granularity": "per_channel"}}]})",
                                        "space.json");
    REQUIRE(f.choices.size() == 1);
    CHECK(f.requests.size() == 2);
    CHECK(f.requests[0].what.symmetric == true);
    CHECK(f.requests[1].what.per_channel == true);
    const choice_request& c = f.choices[0];
    CHECK(c.origin == "space.json:2");
    REQUIRE(c.activation.size() == 2);
    CHECK(c.activation[1].text == "int8@entropy");
    CHECK(c.activation[1].what.percentile == 99);
    REQUIRE(c.weight.size() == 4);
    CHECK(c.weight[3].text == "int4@sym@per_channel@compensated");
    CHECK(c.weight[3].rounding == weight_rounding::compensated);
    CHECK(c.weight[3].what.per_channel == true);

    const two_products d;
    search_options o = d.options();
    o.narrow = {"int16/int16"};
    o.choices = {parse_choice_request("even=int8@min_max|entropy/int8", "--narrow-for")};
    const mix_problem problem(d.network, d.inputs, d.seen, o);
    const search_space& space = problem.space();
    REQUIRE(space.options.size() == 4);
    for (std::size_t l = 0; l < space.size(); ++l) {
        const bool even = space.layers[l] == "even";
        CHECK(space.offers(l, 0));
        CHECK(space.offers(l, 1) != even);
        CHECK(space.offers(l, 2) == even);
        CHECK(space.offers(l, 3) == even);
        CHECK(space.all_narrow()[l] == (even ? 2 : 1));
        CHECK(space.all(1)[l] == (even ? 0 : 1));
    }
    o.choices[0].name = "evn";
    CHECK_THROWS_WITH_AS(mix_problem(d.network, d.inputs, d.seen, o), doctest::Contains("even"), error);
    o.choices = {};
    o.narrow = {"int8@min_max|moving_average|percentile|entropy|mse|layerwise_percentile@sym|asym/int8@per_tensor|per_channel@sym|asym"};
    CHECK_THROWS_WITH_AS(list_options(o), doctest::Contains("at most 35"), error);
}

TEST_CASE("scales and zero points alone are no reason to count bytes") {
    const two_products d;
    search_options o = d.options();
    o.wide = "int16/int8";
    o.narrow = {"int8/int8@per_tensor|per_channel"};
    CHECK(mix_problem(d.network, d.inputs, d.seen, o).cost_unit() == "bit operations");
    o.narrow = {"int8/int4"};
    CHECK(mix_problem(d.network, d.inputs, d.seen, o).cost_unit() == "bytes");
}
