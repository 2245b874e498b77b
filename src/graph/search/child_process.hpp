// SPDX-License-Identifier: Apache-2.0
// A program that runs beside qk and exchanges lines of text with it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

namespace qk::graph {

namespace detail {
/// Returns "ended with status N" or "was killed by signal N" for what waitpid() or pclose() gave.
std::string ending_of(int wait_status);
}  // namespace detail

/// Runs the command through the shell, in a process group of its own, so that Ctrl-C ends qk's search and not the program that the search
/// still needs. What the program writes to standard error is passed on to qk's own.
class child_process {
  public:
    explicit child_process(const std::string& command);
    /// Closes the program's standard input, which asks it to end, waits up to two seconds, and kills what is left of its process group.
    ~child_process();
    child_process(const child_process&) = delete;
    child_process& operator=(const child_process&) = delete;

    /// Writes the line and a line end to its standard input. Returns false if the program no longer reads.
    bool send(std::string_view line);

    enum class outcome { line, ended, late };
    /// Reads the next line of its standard output, without the line end. `seconds` 0 waits without limit.
    outcome read_line(std::string& line, double seconds);
    /// Returns, without waiting and without consuming it, what it has written to standard output behind the last line read.
    std::string unread();

    /// Returns "ended with status 3" or "was killed by signal 9"; "" while the program runs.
    std::string ending();
    /// Returns the last line that is not blank of its standard error.
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
