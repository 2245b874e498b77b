// SPDX-License-Identifier: Apache-2.0
// The verbs of the command `qk`. A new verb is tools/verbs/NAME.cpp, which defines `add_NAME`, and one line in tools/verbs.inc.
#pragma once

#include "options/command.hpp"

namespace qk::tool {

/// What the process exits with. A verb that finds a disagreement or misses a target sets `failed` and has written its results;
/// wrong use and bad input are qk::graph::error, which main() turns into `bad_use`; then nothing has been written.
enum class status : int { done = 0, failed = 1, bad_use = 2 };

struct verb_result {
    tool::status status = tool::status::done;
};

/// What a verb is given: a pipeline's settings, and whether it prints JSON.
template <class Settings>
struct with_json : Settings {
    bool json = false;
};

/// Each adds its subcommand: options, --help with examples (footer), and a callback that does the work.
#define QK_VERB(name) void add_##name(command& app, verb_result& result);
#include "verbs.inc"
#undef QK_VERB

}  // namespace qk::tool
