// SPDX-License-Identifier: Apache-2.0
// A program that runs verbs inside its own process, as the Python module does: what it brings along and takes back. The command has none.
#pragma once

#include <atomic>
#include <cstdio>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "qk/graph/files/npy.hpp"
#include "qk/graph/pipeline.hpp"
#include "qk/graph/search.hpp"
#include "verbs.hpp"

namespace qk::tool {

/// What verbs make, in memory. Empty: the verb makes no such thing, or an option names a file for it.
struct kept_results {
    std::string model;                       ///< bytes of the model that was quantized or learned
    std::optional<graph::model> underneath;  ///< the float model under a quantized one
    std::string plan, statistics;            ///< JSON, as files hold it
    std::vector<graph::named_tensor> lists;  ///< what the plan's JSON refers to (quantize/plan_arrays.hpp)
    graph::named_tensors arrays;             ///< outputs or gradients
    std::string text;                        ///< what a comparison says to people
};

struct caller {
    std::string command;                                         ///< what reports show as the command that made them
    std::function<void(std::FILE* to, std::string_view)> print;  ///< gets what the verb prints
    graph::pipeline::progress_function progress;                 ///< may throw to end the verb
    std::atomic<bool> interrupted = false;                       ///< set: a search ends with the best so far
    graph::outputs_metric measure_outputs;                       ///< a metric of search and sensitivity; at most one of the two is set
    bool measures_any_samples = false;                           ///< pipeline::mix_settings
    graph::model_metric measure_model;
    std::string measure_name;                                                 ///< that function's name
    std::function<void(const graph::pipeline::mix_settings&)> take_settings;  ///< gets what sensitivity would measure with, and throws
    graph::remote_scores elsewhere;                                           ///< measures the trials of search and sensitivity
    std::function<graph::tensor(const std::vector<graph::named_tensor>& operands)> multiply;  ///< the device of compare --dot; returns d

    // What is in memory; words of the verb stand for it (MODEL, --inputs=INPUTS) and are not read. Empty: the words name files.
    graph::pipeline::model_source model;
    graph::pipeline::data_source inputs, calibration;
    graph::pipeline::array_source labels, vector;
    graph::named_tensors expected;  ///< takes the place of --compare

    bool keeps_results = false;  ///< what a verb makes comes back in `results` where no option names a file
    kept_results results;

    void keep(const graph::precision_plan& plan);
};

/// Returns what runs verbs on this thread; null in the command.
caller* this_caller();
/// Returns this thread's caller if results go back to it; else null.
caller* keeper_of_results();

/// Prints the text, or with --json the object; a caller that keeps results gets the text in either case.
void tell(bool json, const nlohmann::ordered_json& object, const std::string& text);

/// Puts what this thread's caller has in memory in the place of words, and lets the caller end the verb; a search ends with its best so
/// far.
template <class Settings>
void take_from_caller(Settings& given) {
    caller* by = this_caller();
    if (by == nullptr) return;
    if (by->model.in_memory()) given.model = by->model;
    if constexpr (requires { given.data; }) {
        if (!by->inputs.empty()) given.data.inputs = by->inputs;
        if (!by->calibration.empty()) given.data.calibration = by->calibration;
        if (!by->labels.empty()) given.data.labels = by->labels;
    }
    if constexpr (requires { given.expected; })
        if (!by->expected.empty()) given.expected = by->expected;
    if constexpr (requires { given.vector.name(""); })
        if (!by->vector.empty()) given.vector = by->vector;
    if constexpr (
        requires { given.cancel; } && !requires { given.interrupted; })
        given.cancel = [by] { return by->interrupted.load(); };
}

/// Runs a verb on this thread, for `by`. Errors come out as exceptions, as in command::run.
verb_result run_for(caller& by, std::vector<std::string> words);

}  // namespace qk::tool
