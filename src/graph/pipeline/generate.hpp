// SPDX-License-Identifier: Apache-2.0
// Greedy generation by a decoder, with its cache if it has one, measured token by token: what a deployed language model does.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph::pipeline {

struct generate_settings {
    std::size_t steps = 0;
    std::string mask;  ///< input that is 0 where a prompt is padded; positions behind its last 1 are cut off
    int output_index = 0;
    std::vector<std::string> metrics{"perplexity", "agreement"};  ///< metrics of choices (metric::by_position)
};

struct generated {
    std::vector<std::vector<std::int64_t>> tokens;  ///< tokens of each sample, chosen by the float model
    std::map<std::string, double> metrics;          ///< over all steps of all samples; the labels are the float model's tokens
};

/// Continues every prompt with the float model's likeliest token, `steps` times; under the plan the model reads the same tokens, with a
/// cache of its own. Throws, naming the input, unless every input can be continued (ids, mask, positions, types, lengths, cache) or stays
/// as it is (its name has "encoder" in it). Caches are found by the graph, through quantizers too, else by their names.
generated generate(const evaluator& runs, const named_tensors& prompts, const precision_plan& plan, const generate_settings& settings);

}  // namespace qk::graph::pipeline
