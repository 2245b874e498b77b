// SPDX-License-Identifier: Apache-2.0
// What verbs print: one JSON object on standard output, a progress bar on a terminal. Text for people is fmt::print.
#pragma once

#include <chrono>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

namespace qk::tool {

/// One object, one line end, on standard output. NaN and Inf, which JSON lacks, become null. Nothing else of a --json run may go there.
void print_json(const nlohmann::ordered_json& object);

/// "[######......] 12/40 calibrating  3.1 s" on standard error when that is a terminal; otherwise nothing at all.
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
