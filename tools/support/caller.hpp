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
};

/// Returns what runs verbs on this thread; null in the command.
caller* this_caller();

/// Runs a verb on this thread, for `by`. Errors come out as exceptions, as in command::run.
verb_result run_for(caller& by, std::vector<std::string> words);

}  // namespace qk::tool
