// SPDX-License-Identifier: Apache-2.0
// What verbs print: one JSON object on standard output, a progress bar on a terminal; and what was typed. Text for people is fmt::print.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace qk::tool {

/// One object, one line end, on standard output. NaN and Inf, which JSON lacks, become null. Nothing else of a --json run may go there.
void print_json(const nlohmann::ordered_json& object);

/// The command as it was typed, for reports.
std::string command_line();
void remember_command_line(int argc, char** argv);

/// Error unless each of the files can be written and no two are the same: before the work, so that none is written if one cannot be. Empty names are no files.
void check_outputs(const std::vector<std::filesystem::path>& files);
/// The JSON beside an HTML report; empty without one.
std::filesystem::path beside_report(const std::string& report);

/// What is left when `done` of `total` took `seconds`, as "2 min left"; empty while that says nothing yet (under a second, nothing done, no total).
std::string time_left(std::size_t done, std::size_t total, double seconds);

/// "[######......] 12/40 calibrating  3.1 s, 7 s left" on standard error when that is a terminal; otherwise nothing at all.
class progress {
  public:
    progress(std::string label, std::size_t total);
    ~progress();  ///< clears the line
    progress(const progress&) = delete;
    progress& operator=(const progress&) = delete;
    void show(std::size_t done);                     ///< at most ten redraws a second
    void show(std::size_t done, std::size_t total);  ///< when the total changes on the way
    void label(std::string text) { label_ = std::move(text); }

  private:
    std::string label_;
    std::size_t total_;
    bool on_;
    bool drawn_ = false;
    std::chrono::steady_clock::time_point start_, last_;
};

}  // namespace qk::tool
