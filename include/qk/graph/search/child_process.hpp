// SPDX-License-Identifier: Apache-2.0
// A program that runs beside qk and is spoken to in lines.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

namespace qk::graph {

/// Started through the shell, in a process group of its own: Ctrl-C ends qk's search, not the program that it still needs. What the program
/// says on standard error goes on to qk's own.
class child_process {
  public:
    explicit child_process(const std::string& command);
    /// Closes its standard input, which asks it to end, and waits two seconds; then it is killed, with all that it started.
    ~child_process();
    child_process(const child_process&) = delete;
    child_process& operator=(const child_process&) = delete;

    /// The line and a line end to its standard input. False if it does not read any more.
    bool send(std::string_view line);

    enum class outcome { line, ended, late };
    /// The next line of its standard output without its end; `seconds` 0: waits as long as it takes.
    outcome read_line(std::string& line, double seconds);
    /// What it has said on standard output that nobody has read yet, without waiting.
    std::string unread();

    /// "ended with status 3", "was killed by signal 9"; "" while it runs.
    std::string ending();
    /// The last line with anything in it that it said on standard error.
    std::string last_error() const;

  private:
    bool receive(int milliseconds);  ///< false once its standard output is closed
    void reap(bool wait);

    pid_t pid_ = -1;
    int to_ = -1, from_ = -1, errors_ = -1;
    std::string output_, error_tail_;
    std::optional<int> status_;
};

}  // namespace qk::graph
