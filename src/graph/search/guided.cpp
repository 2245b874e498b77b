// SPDX-License-Identifier: Apache-2.0
#include "graph/search/guided.hpp"

#include <cmath>
#include <limits>
#include <memory>

#include "graph/evaluate/execute/quantize_value.hpp"
#include "graph/gradient/backward.hpp"
#include "graph/gradient/estimate.hpp"
#include "graph/gradient/traces.hpp"
#include "graph/search/estimated.hpp"
#include "graph/search/moves.hpp"
#include "graph/search/problem.hpp"

namespace qk::graph {
namespace {

/// Returns the number of random vectors per sample, about 100 over all samples. That is half as many as for a table of sensitivities: it
/// suffices for an order whose decisive part is measured.
int vectors_for(std::size_t samples) { return static_cast<int>((100 + samples - 1) / std::max<std::size_t>(samples, 1)); }

estimate_options estimation(const search_options& options, int passes) {
    return {
        .threads = options.scoring.session.threads, .output_index = options.scoring.output_index, .passes = passes, .seed = options.seed};
}

/// Returns about how long an estimate takes. The unit is a forward pass of all samples.
double passes_of_estimate(std::size_t formats, int vectors) { return 1.5 * (2 + 1.5 * static_cast<double>(formats) + 1.8 * vectors); }

/// Is true when estimating probably takes less time than measuring every move. The unit is a forward pass of all samples: a measured move
/// runs about half of the network; an estimate runs it with a tape, sends the errors of each format through it, and runs it backwards once
/// per vector. Of the estimated moves those near the target are measured, too, and with integers the evaluator can be faster than this.
bool is_cheaper(std::size_t moves, std::size_t formats, int vectors) {
    const double again = static_cast<double>(std::max<std::size_t>(2 * (moves / 10), 8)) / 2;
    return passes_of_estimate(formats, vectors) + again < static_cast<double>(moves) / 2;
}

constexpr double no_estimate = std::numeric_limits<double>::infinity();

/// How moves are estimated.
struct estimation_of_moves {
    score start;              ///< of the wide model
    bool may_measure = true;  ///< moves that have no estimate are measured; else they come last
};

std::vector<std::vector<search_run::estimated_move>> estimate(mix_problem& problem, const model& m, const named_tensors& inputs,
                                                              const search_options& options, const estimation_of_moves& how) {
    const search_space& space = problem.space();
    const assignment wide = space.all(0);
    const precision_plan base = problem.mix().plan(wide);
    std::vector<precision_plan> plans;
    for (std::size_t l = 0; l < space.size(); ++l)
        for (std::size_t o = 1; o < space.options.size(); ++o)
            if (space.offers(l, o)) plans.push_back(problem.mix().plan(wide, l, static_cast<std::uint8_t>(o), mixture::part::both));
    estimate_options with = estimation(options, vectors_for(problem.score().samples()));
    with.rounded = [&problem](const std::string& weight, const quantizer& q) { return problem.rounded().find(weight, q); };
    estimated_harms found = estimate_harms(problem.score().measure(), m, inputs, base,
                                           {plans.size(), [&](std::size_t p) { return plans[p]; }}, how.start, with);
    // Moves behind an operator without a gradient are measured.
    std::vector<precision_plan> behind;
    for (std::size_t p = 0; p < plans.size(); ++p)
        if (found.unknown[p] != 0 && how.may_measure) behind.push_back(plans[p]);
    const std::vector<score> measured = behind.empty() ? std::vector<score>{} : problem.score()(behind);
    for (std::size_t p = 0, next = 0; p < plans.size(); ++p) {
        if (found.unknown[p] == 0) continue;
        found.harm[p] = how.may_measure ? detail::harm_of(problem.score().measure(), how.start.metric, measured[next].metric) : no_estimate;
        found.added[p] = how.may_measure ? measured[next++].error - how.start.error : no_estimate;
    }
    std::vector<std::vector<search_run::estimated_move>> moves(space.size(), std::vector<search_run::estimated_move>(space.options.size()));
    std::size_t i = 0;
    for (std::size_t l = 0; l < moves.size(); ++l)
        for (std::size_t o = 1; o < moves[l].size(); ++o)
            if (space.offers(l, o)) moves[l][o] = {found.harm[i], found.added[i]}, ++i;
    return moves;
}

/// Returns the squared error that the formats of `choice` cause in each layer's weights.
std::vector<double> weight_errors(const mix_problem& problem, const model& m, const assignment& choice) {
    const search_space& space = problem.space();
    std::vector<double> errors(space.size(), 0.0);
    for (std::size_t l = 0; l < space.size(); ++l) {
        const onnx::NodeProto& node = m.graph().node(m.node_index(space.layers[l]));
        if (node.input_size() < 2 || !m.is_constant(node.input(1))) continue;
        const quantizer* q = problem.mix().uniform(choice[l]).find({node.input(1), node.name(), 1});
        const tensor w = m.constant(node.input(1));
        if (q == nullptr || !gradient::is_real(w.type())) continue;
        const tensor* rounded = problem.rounded().find(node.input(1), *q);
        const tensor a = gradient::as_real<double>(w),
                     b = gradient::as_real<double>(
                         execute::quantized(*q, rounded != nullptr ? *rounded : w, false, gradient::thread_allocator::get()));
        for (std::size_t i = 0; i < a.size(); ++i) errors[l] += std::pow(a.as<double>()[i] - b.as<double>()[i], 2);
    }
    return errors;
}

/// Returns the sum of squares of each layer's weights.
std::vector<double> weight_powers(const mix_problem& problem, const model& m) {
    std::vector<double> powers;
    for (const std::string& layer : problem.space().layers) {
        const onnx::NodeProto& node = m.graph().node(m.node_index(layer));
        double sum = 0;
        if (node.input_size() > 1 && m.is_constant(node.input(1)))
            if (const tensor w = m.constant(node.input(1)); gradient::is_real(w.type())) {
                const tensor values = gradient::as_real<double>(w);
                for (const double v : values.as<double>()) sum += v * v;
            }
        powers.push_back(sum);
    }
    return powers;
}

/// Ranks moves without gradients and without evaluations: by the squared error that the format causes in the layer's weights, as a share of
/// their square, and by the bits of what the layer reads. The numbers have no unit that could be compared with anything.
std::vector<std::vector<search_run::estimated_move>> rank_by_weights(const mix_problem& problem, const model& m) {
    const search_space& space = problem.space();
    std::vector<std::vector<search_run::estimated_move>> moves(space.size(), std::vector<search_run::estimated_move>(space.options.size()));
    const std::vector<double> power = weight_powers(problem, m);
    for (std::size_t o = 1; o < space.options.size(); ++o) {
        const std::vector<double> error = weight_errors(problem, m, space.all(static_cast<std::uint8_t>(o)));
        for (std::size_t l = 0; l < space.size(); ++l) {
            if (!space.offers(l, o)) continue;
            const onnx::NodeProto& node = m.graph().node(m.node_index(space.layers[l]));
            const quantizer* read = problem.mix().uniform(o).find({node.input(0), node.name(), 0});
            const double share = power[l] > 0 ? error[l] / power[l] : 0;
            const double harm = share + (read != nullptr ? std::exp2(-2 * bits_per_value(read->format)) : 0);
            moves[l][o] = {harm, harm};
        }
    }
    return moves;
}

/// Is true when a limit leaves too few trials to measure every move and then to search.
bool too_few_trials(const search_space& space, const search_options& options) {
    std::size_t moves = 0;
    for (std::size_t l = 0; l < space.size(); ++l)
        for (std::size_t o = 1; o < space.options.size(); ++o) moves += space.offers(l, o);
    return options.limits.trials > 0 && options.limits.trials < moves + space.size() + 12;
}

/// Orders moves for a search whose trials are limited. Estimates cost none of them, and only rank: what the search returns is measured. If
/// even they would take much longer than the trials, the weights' errors rank.
void order_for_few_trials(search_run& run, mix_problem& problem, const model& m, const named_tensors& inputs,
                          const search_options& options) {
    const double passes = passes_of_estimate(problem.space().options.size() - 1, vectors_for(problem.score().samples()));
    const bool by_gradients = why_not_estimated(inputs, options, true).empty() && passes < 3 * static_cast<double>(options.limits.trials);
    const auto kept = std::make_shared<std::vector<std::vector<search_run::estimated_move>>>();
    run.order_moves = [&run, &problem, &m, &inputs, &options, by_gradients, kept] {
        if (!kept->empty()) return *kept;
        try {
            if (by_gradients) *kept = estimate(problem, m, inputs, options, {run.evaluate(problem.space().all(0)), false});
        } catch (const error&) {
            kept->clear();  // an operator without a gradient
        }
        if (kept->empty()) *kept = rank_by_weights(problem, m);
        return *kept;
    };
}

}  // namespace

void guide_by_gradients(search_run& run, mix_problem& problem, const model& m, const named_tensors& inputs, const search_options& options) {
    if (options.ranking != "gradient" && options.ranking != "measured" && options.ranking != "auto")
        throw error("--ranking '" + options.ranking + "' is none of gradient, measured, auto");
    run.weigh_by_hessian = [&problem, &m, &inputs, &options](const assignment& narrow) {
        std::vector<double> weight = weight_errors(problem, m, narrow);
        const std::vector<double> traces = average_hessian_traces(m, inputs, problem.space().layers, estimation(options, 0));
        for (std::size_t l = 0; l < weight.size(); ++l) weight[l] *= traces[l];
        return weight;
    };
    if (options.ranking == "measured") return;
    if (options.ranking == "auto" && options.limits.trials > 0) order_for_few_trials(run, problem, m, inputs, options);
    if (options.ranking == "auto" && too_few_trials(problem.space(), options)) {
        run.estimate_moves = run.order_moves;
        run.estimates_only_rank = true;
        return;
    }
    if (const std::string obstacle = why_not_estimated(inputs, options); !obstacle.empty()) {
        if (options.ranking == "gradient") throw error(obstacle + ": leave --ranking out, or give --ranking measured");
        return;
    }
    const search_space& space = problem.space();
    const std::size_t formats = space.options.size() - 1, samples = problem.score().samples();
    // Several processes share the work of measuring, not that of estimating.
    const bool measures_sooner =
        !options.scoring.session.together.alone() || !is_cheaper(space.size() * formats, formats, vectors_for(samples));
    if (options.ranking == "auto" && measures_sooner) return;
    const std::string_view measure = problem.score().measure().name;
    run.estimates_only_rank = problem.score().measure().is_accuracy || measure == "cosine";
    run.estimate_moves = [&run, &problem, &m, &inputs, &options]() -> std::vector<std::vector<search_run::estimated_move>> {
        try {
            return estimate(problem, m, inputs, options, {run.evaluate(problem.space().all(0)), true});
        } catch (const error&) {
            if (options.ranking == "gradient") throw;
            return {};  // an operator without a gradient: moves are measured
        }
    };
}

}  // namespace qk::graph
