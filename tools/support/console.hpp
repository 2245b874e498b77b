// SPDX-License-Identifier: Apache-2.0
// What verbs print: text for people, one JSON object on standard output, a progress bar on a terminal. Also keeps the command line.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <type_traits>

#include "qk/graph/files.hpp"

namespace qk::tool {

/// The type that print() formats for an argument: a std::string, made printable, for text; the argument's own type for everything else.
template <class T>
using shown = std::conditional_t<std::is_convertible_v<const T&, std::string_view>, std::string, T>;

namespace detail {
template <class T>
shown<T> safe(const T& value) {
    if constexpr (std::is_convertible_v<const T&, std::string_view>) return graph::printable(value);
    else return value;
}
/// Never throws: finish_output() finds at the end whether standard output failed.
void put(std::FILE* to, std::string_view text);
template <class... S>
void print_shown(std::FILE* to, fmt::string_view format, const S&... values) {
    put(to, fmt::vformat(format, fmt::make_format_args(values...)));
}
}  // namespace detail

/// fmt::print for everything that verbs print: text arguments may come from a file, so they go through graph::printable().
template <class... T>
void print(fmt::format_string<const shown<T>&...> format, const T&... values) {
    detail::print_shown(stdout, format, detail::safe(values)...);
}
template <class... T>
void print(std::FILE* to, fmt::format_string<const shown<T>&...> format, const T&... values) {
    detail::print_shown(to, format, detail::safe(values)...);
}
/// Prints text of several lines; keeps its line ends and escapes what else is not printable.
void print_lines(std::string_view text);

/// Prints one object and a line end to standard output. NaN and Inf, which JSON lacks, become null. A run with --json may print nothing
/// else there.
void print_json(const nlohmann::ordered_json& object);

/// Returns the command as it was typed, for reports.
std::string command_line();
void remember_command_line(int argc, char** argv);

/// Prints the sentence to standard error, and with --json {"status": "error", "message", "exit"} to standard output.
void report_failure(std::string_view sentence, int exit_status);
/// Returns 0, or the errno of standard output when it did not take everything: ENOSPC for a full disk, EPIPE for a reader that is gone.
int finish_output();

/// Returns the time left when `done` of `total` took `seconds`, as "2 min left"; empty where there is no estimate (under a second, nothing
/// done, no total, or all done).
std::string time_left(std::size_t done, std::size_t total, double seconds);

/// Draws "[######......] 12/40 calibrating  3.1 s, 7 s left" on standard error if that is a terminal; otherwise nothing.
class progress {
  public:
    explicit progress(std::string label);
    ~progress();  ///< clears the line
    progress(const progress&) = delete;
    progress& operator=(const progress&) = delete;
    void show(std::size_t done, std::size_t total);  ///< at most ten redraws a second
    void label(std::string text) { label_ = std::move(text); }

  private:
    std::string label_;
    bool on_;
    bool drawn_ = false;
    std::chrono::steady_clock::time_point start_, last_;
};

/// Draws a progress bar for each kind of work that a run reports; the destructor clears the line.
class progress_lines {
  public:
    std::function<void(std::string_view, std::size_t, std::size_t)> report();

  private:
    std::string work_;
    std::unique_ptr<progress> bar_;
};

/// Calls `work` with a function that draws its progress, and returns its result. The line is cleared before this returns.
template <class Work>
auto with_progress(Work work) {
    progress_lines lines;
    return work(lines.report());
}

}  // namespace qk::tool
