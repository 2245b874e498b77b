// SPDX-License-Identifier: Apache-2.0
// One draw of the comparison of mixes: compares the mix that search finds for a top-1 drop with uniform formats, with narrowing in
// ascending order of output error (AMD Quark's way), and in a random order. bench/mixes.py makes the draws and the tables.
//   build/release/bench/mixes MODEL X.npy LABELS.npy HELD_X.npy HELD_LABELS.npy WIDE NARROW[,NARROW...] DROP SEED
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "graph/search/moves.hpp"
#include "qk/graph/calibrate.hpp"
#include "qk/graph/files.hpp"
#include "qk/graph/model.hpp"
#include "qk/graph/search.hpp"

namespace {

using namespace qk::graph;
using nlohmann::json;

struct dataset {
    named_tensors inputs;
    std::vector<std::int64_t> labels;
};

dataset load(const model& m, const char* inputs, const char* labels) {
    const tensor y = read_npy(labels);
    return {{{m.inputs().at(0).name, read_npy(inputs)}}, {y.as<std::int64_t>().begin(), y.as<std::int64_t>().end()}};
}

/// Returns the trials after 0, 1, ... moves.
std::vector<trial> path(mix_problem& problem, const std::vector<qk::graph::detail::move>& moves) {
    const search_space& space = problem.space();
    std::vector<assignment> all{space.all(0)};
    for (std::size_t k = 1; k <= moves.size(); ++k) all.push_back(qk::graph::detail::with_moves(space, space.all(0), moves, k));
    const std::vector<score> scores = problem.evaluate(all);
    std::vector<trial> result;
    for (std::size_t i = 0; i < all.size(); ++i) result.push_back({all[i], scores[i], space.cost_of(all[i])});
    return result;
}

/// Counts the points to which no point of the front is equal or better in both cost and metric.
std::size_t beyond(const std::vector<trial>& points, const std::vector<trial>& front) {
    return static_cast<std::size_t>(std::count_if(points.begin(), points.end(), [&](const trial& p) {
        return std::none_of(front.begin(), front.end(),
                            [&](const trial& f) { return f.cost <= p.cost && f.result.metric >= p.result.metric; });
    }));
}

/// Returns the cost of the last point before the first one that breaks the target.
double until_broken(const std::vector<trial>& points, double target) {
    double cost = points.front().cost;
    for (const trial& t : points) {
        if (t.result.metric < target) break;
        cost = t.cost;
    }
    return cost;
}

json run(char** a) {
    model m = model::load(a[0]);
    fold_constants(m);
    fold_batch_normalization(m);
    const dataset drawn = load(m, a[1], a[2]), held = load(m, a[3], a[4]);
    const calibration seen = calibrate(m, drawn.inputs, {.histograms = false});

    search_options o;
    o.wide = a[5];
    o.narrow.clear();
    std::istringstream list(a[6]);
    for (std::string one; std::getline(list, one, ',');) o.narrow.push_back(one);
    o.per_channel = true;
    o.scoring.metric = "top1";
    o.scoring.labels = drawn.labels;
    const std::filesystem::path cache = std::string(a[1]) + ".cache";  // strategies share their trials
    std::filesystem::remove(cache);
    o.cache = cache;

    const search_result front = [&] {
        search_options p = o;
        p.strategy = "pareto";
        return search(m, drawn.inputs, seen, p);
    }();
    o.target_drop = std::stod(a[7]);
    json strategies;
    std::optional<search_result> best;
    for (const char* strategy : {"greedy", "budget", "pareto"}) {
        o.strategy = strategy;
        const search_result r = search(m, drawn.inputs, seen, o);
        strategies[strategy] = {{"cost", r.cost}, {"metric", r.metric}, {"evaluations", r.evaluations}, {"status", r.status}};
        if (!best || (r.target_met && r.cost < best->cost)) best = r;
    }

    mix_problem problem(m, drawn.inputs, seen, o);
    const search_space& space = problem.space();
    json uniform;
    for (std::size_t u = 0; u < space.options.size(); ++u) {
        const assignment all = space.all(static_cast<std::uint8_t>(u));
        uniform[space.options[u]] = {{"cost", space.cost_of(all)}, {"metric", problem.evaluate(std::span(&all, 1))[0].metric}};
    }
    std::vector<assignment> singles{space.all(0)};
    std::vector<qk::graph::detail::move> moves;
    for (std::size_t l = 0; l < space.size(); ++l)
        for (std::size_t u = 1; u < space.options.size(); ++u) {
            assignment one = space.all(0);
            one[l] = static_cast<std::uint8_t>(u);
            singles.push_back(one);
            moves.push_back({l, one[l], 0, 0, space.cost[l][0] - space.cost[l][u]});
        }
    const std::vector<score> scores = problem.evaluate(singles);
    for (std::size_t i = 0; i < moves.size(); ++i) moves[i].error = scores[i + 1].error;
    qk::graph::detail::order_by_error(moves);
    const std::vector<trial> ascending = path(problem, moves);
    std::shuffle(moves.begin(), moves.end(), std::mt19937_64(std::stoull(a[8])));
    const std::vector<trial> random = path(problem, moves);

    score_options scoring;
    scoring.metric = "top1";
    scoring.labels = held.labels;
    scorer held_out(m, held.inputs, scoring);
    const std::vector<precision_plan> plans{precision_plan{}, best->plan};
    const std::vector<score> held_scores = held_out(plans);
    std::filesystem::remove(cache);
    return {
        {"float", best->float_metric},
        {"target", *best->target},
        {"uniform", uniform},
        {"strategies", strategies},
        {"mix", {{"cost", best->cost}, {"metric", best->metric}, {"strategy", best->strategy}, {"sampling_error", best->sampling_error}}},
        {"held_out", {{"float", held_scores[0].metric}, {"mix", held_scores[1].metric}, {"samples", held.labels.size()}}},
        {"ascending",
         {{"cost", until_broken(ascending, *best->target)},
          {"points", ascending.size()},
          {"beyond_front", beyond(ascending, front.front)}}},
        {"random",
         {{"cost", until_broken(random, *best->target)}, {"points", random.size()}, {"beyond_front", beyond(random, front.front)}}}};
}

}  // namespace

int main(int count, char** arguments) {
    if (count != 10) {
        std::fprintf(stderr, "usage: mixes MODEL X.npy LABELS.npy HELD_X.npy HELD_LABELS.npy WIDE NARROW[,NARROW...] DROP SEED\n");
        return 2;
    }
    try {
        std::printf("%s\n", run(arguments + 1).dump().c_str());
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 2;
    }
}
