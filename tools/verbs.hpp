// SPDX-License-Identifier: Apache-2.0
// The verbs of the command `qk`. To add a verb, write tools/verbs/NAME.cpp, which defines `add_NAME`, and add a line to tools/verbs.inc.
#pragma once

#include <string>
#include <string_view>

#include "options/command.hpp"

namespace qk::tool {

/// Exit status of the process. A verb that finds a disagreement or misses a target sets `failed` and has written its results. Wrong use and
/// bad input throw qk::graph::error, which main() turns into `bad_use`; nothing has been written then. `not_printed`: the files that were
/// asked for are written, and standard output did not take what was for it.
enum class status : int { done = 0, failed = 1, bad_use = 2, not_printed = 3 };

struct verb_result {
    tool::status status = tool::status::done;
};

/// Arguments of a verb: a pipeline's settings, and whether it prints JSON.
template <class Settings>
struct with_json : Settings {
    bool json = false;
};

/// Each add_NAME adds its subcommand: options, --help with examples (footer), and a callback that does the work.
#define QK_VERB(name) void add_##name(command& app, verb_result& result);
#define QK_HARDWARE_VERB(name) QK_VERB(name)
#define QK_LEARN_VERB(name) QK_VERB(name)
#include "verbs.inc"
#undef QK_VERB
#undef QK_HARDWARE_VERB
#undef QK_LEARN_VERB

/// Lets the graph module ask the components that this build has. A program or a module calls it before anything else.
void enter_components();

/// Adds every verb of verbs.inc to a command. Throws if `word`, which the user gave, is a verb of a component that this build leaves out.
void add_verbs(command& app, verb_result& result, std::string_view word);

/// Throws an error that says how to get it, if this build leaves out the component; `what` needs it.
void need_hardware(const std::string& what);
void need_learn(const std::string& what);

/// Runs the whole command for these words, and returns its exit status.
int run_program(int argc, char** argv);

}  // namespace qk::tool
