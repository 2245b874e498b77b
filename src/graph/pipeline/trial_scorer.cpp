// SPDX-License-Identifier: Apache-2.0
#include "graph/pipeline/trial_scorer.hpp"

#include "qk/graph/pipeline/expand.hpp"
#include "qk/graph/quantize/plan_file.hpp"

namespace qk::graph::pipeline {

void check_elsewhere(const mix_settings& settings, const mix_options& options) {
    const auto refuse = [](const std::string& what) {
        throw error(what + " and trials on other machines do not go together: a trial travels as its plan, which does not hold that");
    };
    if (settings.baseline == "wide") refuse("--baseline wide");
    if (options.quantize.transforms()) refuse("scaled or rotated channels");
    if (!settings.metric_server.empty() || settings.measure_model) refuse("a measure of the model's file");
}

struct trial_scorer::prepared {
    explicit prepared(const mix_settings& settings) : m(load_for_planning(settings.model)) {
        expand_for(m, settings.precision, true);
        const named_tensors inputs = settings.data.load_inputs(m);
        settings.fill(options, m, inputs, "l2");
        check_elsewhere(settings, options);
        options.scoring.elsewhere = {};
        scores.emplace(m, inputs, options.scoring);
    }
    model m;
    mix_options options;
    std::optional<scorer> scores;
    rounded_weights rounded;  ///< what plans move
};

trial_scorer::trial_scorer(const mix_settings& settings) : prepared_(std::make_unique<prepared>(settings)) {}
trial_scorer::~trial_scorer() = default;
trial_scorer::trial_scorer(trial_scorer&&) noexcept = default;

std::vector<score> trial_scorer::operator()(std::span<const std::string> plans) {
    std::vector<precision_plan> parsed;
    for (const std::string& text : plans) {
        plan_file file = parse_plan_file(text, "trial");
        if (!file.plan) throw error("a trial is a saved plan, and this text holds none");
        prepared_->rounded.hold_moved(prepared_->m, *file.plan, *prepared_->scores);
        parsed.push_back(std::move(*file.plan));
    }
    return (*prepared_->scores)(parsed);
}

}  // namespace qk::graph::pipeline
