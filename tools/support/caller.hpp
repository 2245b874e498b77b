// SPDX-License-Identifier: Apache-2.0
// A program that runs verbs inside its own process, as the Python module does: what it brings along and takes back. The command has none.
#pragma once

#include <atomic>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "qk/graph/pipeline.hpp"
#include "qk/graph/search.hpp"
#include "verbs.hpp"

namespace qk::tool {

struct caller {
    std::string command;                                         ///< what reports show as the command that made them
    std::function<void(std::FILE* to, std::string_view)> print;  ///< gets what the verb prints
    graph::pipeline::progress_function progress;                 ///< may throw to end the verb
    std::atomic<bool> interrupted = false;                       ///< set: a search ends with the best so far
    graph::outputs_metric measure_outputs;                       ///< a metric of search and sensitivity; at most one of the two is set
    graph::model_metric measure_model;
    std::function<void(const graph::pipeline::mix_settings&)> take_settings;  ///< gets what sensitivity would measure with, and throws
    graph::remote_scores elsewhere;                                           ///< measures the trials of search and sensitivity

    // What is in memory; words of the verb stand for it (MODEL, --inputs=INPUTS) and are not read. Empty: the words name files.
    graph::pipeline::model_source model;
    graph::pipeline::data_source inputs, calibration;
    graph::pipeline::array_source labels, vector;
};

/// Returns what runs verbs on this thread; null in the command.
caller* this_caller();

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
    if constexpr (requires { given.vector.name(""); })
        if (!by->vector.empty()) given.vector = by->vector;
    if constexpr (
        requires { given.cancel; } && !requires { given.interrupted; })
        given.cancel = [by] { return by->interrupted.load(); };
}

/// Runs a verb on this thread, for `by`. Errors come out as exceptions, as in command::run.
verb_result run_for(caller& by, std::vector<std::string> words);

}  // namespace qk::tool
