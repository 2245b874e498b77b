// SPDX-License-Identifier: Apache-2.0
// The whole command: its verbs, and running the one that was typed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "option_table.hpp"
#include "qk/graph/error.hpp"

namespace qk::tool {

/// Something failed after the files that were asked for had been written.
class failed_after_writing : public graph::error {
  public:
    using graph::error::error;
};

class command {
  public:
    command(std::string name, std::string summary, std::string version)
        : name_(std::move(name)), summary_(std::move(summary)), version_(std::move(version)) {}

    option_table& add_subcommand(std::string name, std::string summary) { return verbs_.emplace_back(std::move(name), std::move(summary)); }
    void footer(std::string text) { footer_ = std::move(text); }
    /// Sets what must hold before a verb works; pages of help and the version do without it.
    void before_work(std::function<void()> check) { check_ = std::move(check); }

    const std::string& name() const { return name_; }
    const std::deque<option_table>& verbs() const { return verbs_; }

    /// Does what `words` (without the program's name) ask for: --help, --version, or a verb's work. Throws qk::graph::error, with the
    /// nearest words, for unknown ones; lets errors of a verb through. Returns whether the words name a file to be written.
    bool run(std::vector<std::string> words) const;

  private:
    const option_table& find(const std::string& verb) const;
    std::string help() const;

    std::string name_, summary_, version_, footer_;
    std::deque<option_table> verbs_;  // a deque: additions must not move verbs that callers refer to
    std::function<void()> check_;
};

}  // namespace qk::tool
