// SPDX-License-Identifier: Apache-2.0
// What `qk ver` does with lines of hexadecimal words: operands and a device's results become cases, and cases that differ are counted.
#pragma once

#include <cstddef>
#include <functional>
#include <istream>
#include <span>
#include <string>
#include <vector>

#include "hardware/streams.hpp"

namespace qk::tool {

/// Checks cases as they come.
class stream_checker {
  public:
    /// `show` gets a line about each of the first twenty cases that differ; it may be empty.
    stream_checker(case_kind& kind, std::function<void(const std::string&)> show) : kind_(kind), show_(std::move(show)) {}

    /// Takes a case. Throws error where an operand is no word of its width.
    void add(std::span<const std::uint64_t> operands, std::span<const std::uint64_t> results, std::size_t line);
    /// Takes each line as a case, operands and results; errors name `name` and the line.
    void add_lines(std::istream& from, const std::string& name);
    /// Checks what was taken and not yet checked.
    void check();
    std::size_t cases = 0, differ = 0;

  private:
    case_kind& kind_;
    std::function<void(const std::string&)> show_;
    hex_row asked_, given_;
    std::vector<std::size_t> lines_;
};

/// Calls take(words, line number) for each line that has words; errors name `name` and the line.
void for_each_line(std::istream& from, const std::string& name, const std::function<void(const hex_row&, std::size_t)>& take);

}  // namespace qk::tool
