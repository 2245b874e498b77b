// SPDX-License-Identifier: Apache-2.0
// `qk completion`: prints a script with which a shell completes verbs, options and their values.
#include <fmt/format.h>

#include <memory>

#include "options/completion.hpp"
#include "verbs.hpp"

namespace qk::tool {

void add_completion(command& app, verb_result&) {
    auto shell = std::make_shared<std::string>();
    option_table& verb = app.add_subcommand("completion", "Print a script by which a shell completes verbs, options and values");
    verb.add_option("SHELL", *shell, "the shell that will read it").required().one_of({"bash", "zsh", "fish"});
    verb.footer(
        "Examples:\n"
        "  qk completion bash > qk.bash\n"
        "  qk completion zsh > _qk\n"
        "  qk completion fish > qk.fish");
    verb.callback([shell, &app] {
        fmt::print("{}", *shell == "bash" ? bash_completion(app) : *shell == "zsh" ? zsh_completion(app) : fish_completion(app));
    });
}

}  // namespace qk::tool
