// SPDX-License-Identifier: Apache-2.0
// Every strategy on problems with a known answer, without a model: squared errors add up over layers.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "graph/search/pareto.hpp"
#include "qk/graph/search/trials.hpp"

using namespace qk::graph;

namespace {

struct problem {
    search_space space;
    std::vector<double> harm;  // the l2 error of narrowing each layer alone
    std::size_t evaluations = 0;
    std::set<assignment> seen;

    explicit problem(std::vector<double> harms, std::vector<double> savings = {}) : harm(std::move(harms)) {
        space.options = {"int16/int8", "int8/int8"};
        for (std::size_t l = 0; l < harm.size(); ++l) {
            space.layers.push_back("layer" + std::to_string(l));
            const double saving = savings.empty() ? 1.0 : savings[l];
            space.cost.push_back({2 * saving, saving});
        }
    }
    double l2(const assignment& a) const {
        double sum = 0;
        for (std::size_t l = 0; l < a.size(); ++l) sum += a[l] ? harm[l] * harm[l] : 0;
        return std::sqrt(sum);
    }
    search_run run(double target, search_limits limits = {}, std::uint64_t seed = 1) {
        search_run r(
            space, find_metric("l2"),
            [this](std::span<const assignment> candidates) {
                std::vector<score> scores;
                for (const assignment& a : candidates) {
                    CHECK_MESSAGE(seen.insert(a).second, "an assignment was measured twice");
                    ++evaluations;
                    scores.push_back({l2(a), l2(a) * l2(a)});
                }
                return scores;
            },
            limits, seed);
        r.target = target;
        r.weigh_by_hessian = [](const assignment& narrow) {  // weights that order the layers poorly
            std::vector<double> weight(narrow.size());
            for (std::size_t l = 0; l < narrow.size(); ++l) weight[l] = static_cast<double>(1 + l % 3);
            return weight;
        };
        return r;
    }
};

const std::vector<double> ten{0.3, 0.01, 0.02, 5.0, 0.04, 0.05, 0.9, 0.07, 0.08, 0.6};

/// Returns the least cost within the target, by trying all assignments.
double least_cost(const problem& p, double target) {
    double least = 1e300;
    for (unsigned bits = 0; bits < (1u << p.space.size()); ++bits) {
        assignment a(p.space.size());
        for (std::size_t l = 0; l < a.size(); ++l) a[l] = static_cast<std::uint8_t>(bits >> l & 1);
        if (p.l2(a) <= target) least = std::min(least, p.space.cost_of(a));
    }
    return least;
}

/// Returns the least cost within the target when all layers save the same: narrows the least harmful ones, as many as fit.
double least_cost_in_order(const problem& p, double target) {
    std::vector<double> squares;
    for (const double h : p.harm) squares.push_back(h * h);
    std::sort(squares.begin(), squares.end());
    std::size_t fit = 0;
    for (double sum = 0; fit < squares.size() && std::sqrt(sum += squares[fit]) <= target;) ++fit;
    return p.space.cost_of(p.space.all(0)) - double(fit);
}

}  // namespace

TEST_CASE("every strategy meets a target that can be met, and is never worse than the start") {
    for (const strategy& s : all_strategies()) {
        for (const double target : {0.0, 0.05, 0.5, 1.2, 100.0}) {
            CAPTURE(s.name);
            CAPTURE(target);
            problem p(ten);
            search_run run = p.run(target);
            const search_outcome outcome = run_strategy(s, run);
            CHECK(outcome.status == "target met");
            CHECK(outcome.target_met);
            CHECK(p.l2(outcome.best.choice) <= target);
            CHECK(outcome.best.cost <= p.space.cost_of(p.space.all(0)));
            CHECK(outcome.best.result.metric == p.l2(outcome.best.choice));
        }
    }
}

TEST_CASE("greedy narrows all that can be narrowed, past a layer in the middle that breaks the target") {
    problem p(ten);
    search_run run = p.run(1.2);
    const search_outcome outcome = run_strategy(find_strategy("greedy"), run);
    CHECK(outcome.best.choice[3] == 0);  // harm 5 never fits
    CHECK(outcome.best.cost == least_cost(p, 1.2));
    CHECK(p.evaluations < 2 * ten.size() + 6);
}

TEST_CASE("greedy goes on after a violating layer where the metric is not additive") {
    // Layer 0 looks harmless alone and ruins every mix; a search in ascending order of harm tries it first.
    problem p({0.001, 0.1, 0.1, 0.1});
    search_run run(p.space, find_metric("l2"), [&](std::span<const assignment> c) {
        std::vector<score> scores;
        for (const assignment& a : c) {
            const bool together = a[0] && (a[1] || a[2] || a[3]);
            const double v = together ? 50.0 : p.l2(a);
            scores.push_back({v, v * v});
        }
        return scores;
    });
    run.target = 0.5;
    const search_outcome outcome = run_strategy(find_strategy("greedy"), run);
    CHECK(outcome.target_met);
    CHECK(run.space().cost_of(outcome.best.choice) <= 7.0);
}

TEST_CASE("greedy goes to where the errors add up to the target, not by halves") {
    std::vector<double> harms;
    for (int l = 0; l < 100; ++l) harms.push_back(0.01 * (l + 1));
    for (const double target : {0.3, 1.0, 3.0}) {
        problem p(harms);
        search_run run = p.run(target);
        const search_outcome outcome = run_strategy(find_strategy("greedy"), run);
        CHECK(outcome.best.cost == least_cost_in_order(p, target));
        // Measures the wide model, each layer alone, two mixes around the target, and each layer that fits alone but not in the mix.
        std::size_t alone = 0;
        for (const double h : harms) alone += h <= target;
        const auto narrowed = static_cast<std::size_t>(std::count(outcome.best.choice.begin(), outcome.best.choice.end(), 1));
        CHECK(p.evaluations <= 1 + 100 + 2 + (alone - narrowed));
    }
}

TEST_CASE("greedy measures estimated moves near the target, and is as good with fewer evaluations") {
    std::vector<double> harms;
    for (std::size_t l = 0; l < 60; ++l) harms.push_back(0.05 + 0.01 * static_cast<double>((l * 37) % 60));
    problem by_measuring(harms), by_estimates(harms);
    search_run measured = by_measuring.run(1.0), guided = by_estimates.run(1.0);
    bool asked = false;
    guided.estimate_moves = [&] {  // estimates are up to a fifth too low or too high
        asked = true;
        std::vector<std::vector<search_run::estimated_move>> moves(harms.size(), std::vector<search_run::estimated_move>(2));
        for (std::size_t l = 0; l < harms.size(); ++l) {
            const double guess = harms[l] * (0.8 + 0.2 * static_cast<double>(l % 3));
            moves[l][1] = {guess, guess * guess};
        }
        return moves;
    };
    const search_outcome a = run_strategy(find_strategy("greedy"), measured), b = run_strategy(find_strategy("greedy"), guided);
    CHECK(asked);
    CHECK(a.target_met);
    CHECK(b.target_met);
    CHECK(by_estimates.l2(b.best.choice) <= 1.0);
    CHECK(b.best.cost <= 1.02 * a.best.cost);
    CHECK(3 * by_estimates.evaluations < 2 * by_measuring.evaluations);
}

TEST_CASE("exhaustive, budget and pareto find the cheapest mix of layers that save differently") {
    const std::vector<double> savings{5, 1, 1, 9, 1, 2, 3, 1, 1, 8};
    for (const char* name : {"exhaustive", "budget"}) {
        for (const double target : {0.1, 0.65, 1.0}) {
            CAPTURE(name);
            CAPTURE(target);
            problem p(ten, savings);
            search_run run = p.run(target);
            CHECK(run_strategy(find_strategy(name), run).best.cost == doctest::Approx(least_cost(p, target)));
        }
    }
    problem p(ten, savings);
    search_run run = p.run(0.65);
    run.target.reset();
    const search_outcome outcome = run_strategy(find_strategy("pareto"), run);
    const auto front = run.front();
    REQUIRE(front.size() >= 5);
    for (std::size_t i = 1; i < front.size(); ++i) {
        CHECK(front[i].cost > front[i - 1].cost);
        CHECK(front[i].result.metric < front[i - 1].result.metric);
    }
    CHECK(outcome.best.choice != p.space.all(0));
    CHECK(outcome.best.choice != p.space.all(1));
}

TEST_CASE("a budget is kept, and the best mix within it found") {
    problem p(ten, {5, 1, 1, 9, 1, 2, 3, 1, 1, 8});
    search_run run = p.run(0);
    run.target.reset();
    run.budget = 50;
    const search_outcome outcome = run_strategy(find_strategy("budget"), run);
    CHECK(outcome.best.cost <= 50);
    double least = 1e300;
    for (unsigned bits = 0; bits < 1024; ++bits) {
        assignment a(10);
        for (std::size_t l = 0; l < 10; ++l) a[l] = static_cast<std::uint8_t>(bits >> l & 1);
        if (p.space.cost_of(a) <= 50) least = std::min(least, p.l2(a));
    }
    CHECK(outcome.best.result.metric == doctest::Approx(least));
}

TEST_CASE("an unreachable target ends with the best there is, and says so") {
    for (const strategy& s : all_strategies()) {
        CAPTURE(s.name);
        problem p(ten);
        search_run run = p.run(-1.0);
        const search_outcome outcome = run_strategy(s, run);
        CHECK_FALSE(outcome.target_met);
        CHECK(outcome.status.starts_with("target out of reach: best is l2 0"));
        CHECK(outcome.best.choice == p.space.all(0));
    }
}

TEST_CASE("without a target or budget the status says what was settled on") {
    problem p(ten);
    search_run run = p.run(0.5);
    run.target.reset();
    const search_outcome outcome = run_strategy(find_strategy("pareto"), run);
    CHECK(outcome.status.starts_with("no target: the knee of the front is l2 "));
    CHECK(outcome.target_met);  // without a target none is missed
    run.budget = 1e30;
    CHECK(run_strategy(find_strategy("budget"), run).status == "target met");
}

TEST_CASE("a time box stops a search with the best so far") {
    for (const strategy& s : all_strategies()) {
        CAPTURE(s.name);
        problem p(ten);
        search_run run = p.run(0.5, {.trials = 5});
        const search_outcome outcome = run_strategy(s, run);
        CHECK(p.evaluations <= 5);
        CHECK(outcome.status == "trial limit");
        CHECK(p.l2(outcome.best.choice) <= 0.5);
    }
    problem p(ten);
    const std::atomic<bool> interrupted{true};
    search_run run = p.run(0.5, {.interrupted = &interrupted});
    const search_outcome outcome = run_strategy(find_strategy("greedy"), run);
    CHECK(outcome.status == "interrupted");
    CHECK(outcome.best.choice == p.space.all(0));
}

namespace {

/// A tuning space as Intel Neural Compressor's: lists of methods and schemes that cost the same, and of granularities that cost nearly the
/// same. The errors of layers add up, in each option by a factor of its own.
struct tuning_problem {
    search_space space;
    std::vector<std::vector<double>> error;  // squared, by layer and option
    std::size_t evaluations = 0;

    tuning_problem() {
        space.options = {"fp32/fp32"};
        for (const char* method : {"min_max@sym", "min_max@asym", "entropy@sym", "entropy@asym"})
            for (const char* scales : {"per_tensor", "per_channel"})
                space.options.push_back("uint8@" + std::string(method) + "/int8@" + scales);
        for (std::size_t l = 0; l < 20; ++l) {
            const double size = 1 + static_cast<double>((l * 7) % 20), harm = 0.01 * static_cast<double>(1 + (l * 11) % 17);
            space.layers.push_back("layer" + std::to_string(l));
            std::vector<double> cost{4 * size}, of_layer{0};
            for (std::size_t o = 1; o < space.options.size(); ++o) {
                const bool per_channel = o % 2 == 0;
                cost.push_back(size + (per_channel ? 0.01 : 0));
                of_layer.push_back((l == 5 ? 9.0 : harm) * (per_channel ? 0.7 : 1.0) * (1 + 0.1 * static_cast<double>((o + l) % 4)));
            }
            space.cost.push_back(cost);
            error.push_back(of_layer);
        }
    }
    double of(const assignment& a) const {
        double sum = 0;
        for (std::size_t l = 0; l < a.size(); ++l) sum += error[l][a[l]];
        return sum;
    }
    search_run run(double target, std::size_t trials, bool ordered) {
        search_run r(
            space, find_metric("mse"),
            [this](std::span<const assignment> candidates) {
                std::vector<score> scores;
                for (const assignment& a : candidates) ++evaluations, scores.push_back({of(a), of(a)});
                return scores;
            },
            {.trials = trials}, 1);
        r.target = target;
        r.weigh_by_hessian = [](const assignment& narrow) { return std::vector<double>(narrow.size(), 1.0); };
        if (ordered)
            r.order_moves = [this] {
                std::vector<std::vector<search_run::estimated_move>> moves;
                for (const auto& of_layer : error) {
                    moves.emplace_back();
                    for (const double e : of_layer) moves.back().push_back({e, e});
                }
                return moves;
            };
        return r;
    }
};

}  // namespace

TEST_CASE("with a trial limit a search begins with everything narrow: where that will do, every strategy needs two trials") {
    for (const strategy& s : all_strategies()) {
        if (s.check == all_strategies().back().check) continue;  // exhaustive takes no space of this size
        CAPTURE(s.name);
        tuning_problem p;
        search_run run = p.run(100, 40, false);
        const search_outcome outcome = run_strategy(s, run);
        CHECK(outcome.status == "target met");
        CHECK(p.evaluations == 2);
        CHECK(outcome.best.choice == p.space.all(1));  // the first of every list
    }
}

TEST_CASE("with the same trial limit no strategy returns a mix that saves less than greedy's, nor fewer trials one that saves more") {
    for (const bool ordered : {false, true})
        for (const double target : {0.2, 0.8, 1.5, 9.5}) {
            double before = 1e300;
            for (const std::size_t trials : {10, 30, 100}) {
                CAPTURE(ordered);
                CAPTURE(target);
                CAPTURE(trials);
                tuning_problem p;
                search_run greedy = p.run(target, trials, ordered);
                const search_outcome best = run_strategy(find_strategy("greedy"), greedy);
                const double wide = p.space.cost_of(p.space.all(0));
                CHECK(best.target_met);
                CHECK(best.best.cost < wide);
                CHECK(best.best.cost <= before);
                before = best.best.cost;
                for (const strategy& s : all_strategies()) {
                    if (s.check == all_strategies().back().check) continue;
                    CAPTURE(s.name);
                    tuning_problem q;
                    search_run run = q.run(target, trials, ordered);
                    const search_outcome outcome = run_strategy(s, run);
                    CHECK(q.evaluations <= trials);
                    CHECK(outcome.target_met);
                    CHECK(q.of(outcome.best.choice) <= target);
                    CHECK(outcome.best.cost <= best.best.cost);
                }
            }
        }
    for (const strategy& s : all_strategies())  // one option for each layer
        for (const double target : {0.05, 0.5, 1.2})
            for (const std::size_t trials : {10, 30, 100}) {
                CAPTURE(s.name);
                CAPTURE(target);
                CAPTURE(trials);
                problem p(ten), q(ten);
                search_run greedy = p.run(target, {.trials = trials}), run = q.run(target, {.trials = trials});
                const search_outcome best = run_strategy(find_strategy("greedy"), greedy), outcome = run_strategy(s, run);
                CHECK(outcome.target_met);
                CHECK(outcome.best.cost <= best.best.cost);
            }
}

TEST_CASE("a search that a limit stops before anything that saves is found has not met its target") {
    for (const strategy& s : all_strategies()) {
        CAPTURE(s.name);
        problem p(ten);
        search_run run = p.run(0.0, {.trials = 5});
        const search_outcome outcome = run_strategy(s, run);
        CHECK(outcome.status == "trial limit");
        CHECK(outcome.best.choice == p.space.all(0));
        CHECK(outcome.nothing_saved);
        CHECK_FALSE(outcome.target_met);
    }
    problem p(ten);
    search_run run = p.run(0.0);
    CHECK_FALSE(run_strategy(find_strategy("greedy"), run).nothing_saved);  // it looked everywhere: nothing narrow meets the target
}

TEST_CASE("bayesian and random make as many trials as a limit above 100 allows") {
    for (const char* name : {"bayesian", "random"}) {
        CAPTURE(name);
        std::vector<double> harms;
        for (std::size_t l = 0; l < 30; ++l) harms.push_back(0.1 + 0.01 * static_cast<double>(l));
        problem p(harms);
        search_run run = p.run(0.7, {.trials = 150});
        CHECK(run_strategy(find_strategy(name), run).target_met);
        CHECK(p.evaluations == 150);
    }
}

TEST_CASE("the same seed gives the same search") {
    for (const char* name : {"random", "bayesian"}) {
        std::vector<trial> first;
        for (int repeat = 0; repeat < 2; ++repeat) {
            problem p(ten);
            search_run run = p.run(0.5, {.trials = 30}, 42);
            run_strategy(find_strategy(name), run);
            if (repeat == 0) {
                first = run.history();
            } else {
                REQUIRE(run.history().size() == first.size());
                for (std::size_t i = 0; i < first.size(); ++i) CHECK(run.history()[i].choice == first[i].choice);
            }
        }
    }
}

TEST_CASE("bayesian finds a cheaper mix than as many random trials") {
    problem a(ten), b(ten);
    search_run bayesian = a.run(0.5, {.trials = 40}, 3), random = b.run(0.5, {.trials = 40}, 3);
    CHECK(run_strategy(find_strategy("bayesian"), bayesian).best.cost <= run_strategy(find_strategy("random"), random).best.cost);
}

TEST_CASE("the knapsack is exact up to its rounding of costs") {
    problem p(ten, {5, 1, 1, 9, 1, 2, 3, 1, 1, 8});
    std::vector<std::vector<double>> error;
    for (const double h : ten) error.push_back({0, h * h});
    for (double budget = 32; budget <= 64; budget += 1) {
        const auto found = qk::graph::detail::knapsack(p.space, error, budget);
        double least = 1e300;
        for (unsigned bits = 0; bits < 1024; ++bits) {
            assignment a(10);
            for (std::size_t l = 0; l < 10; ++l) a[l] = static_cast<std::uint8_t>(bits >> l & 1);
            if (p.space.cost_of(a) <= budget) least = std::min(least, p.l2(a));
        }
        REQUIRE(found);
        CHECK(p.space.cost_of(*found) <= budget);
        CHECK(p.l2(*found) == doctest::Approx(least));
    }
    CHECK_FALSE(qk::graph::detail::knapsack(p.space, error, 31.9));
}

TEST_CASE("an unknown strategy or metric is an error that names the known ones") {
    CHECK(find_strategy("hawq_v2").name == "hawq_v2");
    CHECK_THROWS_WITH_AS(find_strategy("gredy"), doctest::Contains("greedy, pareto, budget"), error);
    CHECK_THROWS_WITH_AS(find_metric("l3"), doctest::Contains("l2, mse, sqnr"), error);
}
