// SPDX-License-Identifier: Apache-2.0
// The options that sensitivity and search share: formats to choose from, layers, metric, data.
#pragma once

#include <atomic>
#include <string>

#include "options/data_options.hpp"
#include "options/option_table.hpp"
#include "options/precision_options.hpp"
#include "qk/graph/pipeline.hpp"

namespace qk::tool {

/// Adds the options to a verb.
void add_mix(option_table& verb, graph::pipeline::mix_settings& mix, bool& json);
/// Sets what only this process knows: the command as typed, and the processes that run with it.
void place(graph::pipeline::mix_settings& mix);

/// Returns "Metrics" and the definition of each, for the end of --help.
std::string metric_definitions();

/// Returns the flag that the first Ctrl-C after watch_interrupts() sets; a second Ctrl-C ends the process as usual.
std::atomic<bool>& interrupted();
void watch_interrupts();

}  // namespace qk::tool
