// SPDX-License-Identifier: Apache-2.0
// The command as a whole: its verbs, and what was typed handed to one of them.
#pragma once

#include <string>
#include <vector>

#include "option_table.hpp"

namespace qk::tool {

class command {
  public:
    command(std::string name, std::string summary, std::string version)
        : name_(std::move(name)), summary_(std::move(summary)), version_(std::move(version)) {}

    option_table& add_subcommand(std::string name, std::string summary) { return verbs_.emplace_back(std::move(name), std::move(summary)); }
    void footer(std::string text) { footer_ = std::move(text); }

    const std::string& name() const { return name_; }
    const std::deque<option_table>& verbs() const { return verbs_; }

    /// Does what `words` (without the program's name) ask: --help, --version, or a verb's work. Throws qk::graph::error for words that mean
    /// nothing, with the nearest that do; what a verb throws passes.
    void run(std::vector<std::string> words) const;

  private:
    const option_table& find(const std::string& verb) const;
    std::string help() const;

    std::string name_, summary_, version_, footer_;
    std::deque<option_table> verbs_;  // additions must not move what callers hold
};

}  // namespace qk::tool
