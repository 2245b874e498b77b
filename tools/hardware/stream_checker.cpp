// SPDX-License-Identifier: Apache-2.0
#include "hardware/stream_checker.hpp"

#include <fmt/format.h>

#include "qk/graph/error.hpp"

namespace qk::tool {

using graph::error;

void stream_checker::add(std::span<const std::uint64_t> operands, std::span<const std::uint64_t> results, std::size_t line) {
    for (std::size_t k = 0; k < operands.size(); ++k) {
        const int width = kind_.operands[k];
        if (operands[k] == no_number || (width < 64 && operands[k] >> width != 0))
            throw error(fmt::format("line {}: operand {} is no word of {} bits", line, k + 1, width));
    }
    asked_.insert(asked_.end(), operands.begin(), operands.end());
    given_.insert(given_.end(), results.begin(), results.end());
    lines_.push_back(line);
    if (lines_.size() == cases_at_once) check();
}

void stream_checker::check() {
    constexpr std::size_t shown_at_most = 20;
    if (lines_.empty()) return;
    kind_.before = cases;
    const hex_row right = kind_.expected(asked_);
    const std::vector<char> wrong = kind_.wrong(asked_, given_, right);
    const std::size_t operands = kind_.operands.size(), results = kind_.results.size();
    for (std::size_t n = 0; n < lines_.size(); ++n) {
        if (wrong[n] == 0 || ++differ > shown_at_most || !show_) continue;
        show_(fmt::format("line {}: {} expected {} device {}", lines_[n],
                          hex_words(std::span(asked_).subspan(n * operands, operands), kind_.operands),
                          hex_words(std::span(right).subspan(n * results, results), kind_.results),
                          hex_words(std::span(given_).subspan(n * results, results), kind_.results)));
    }
    cases += lines_.size();
    asked_.clear(), given_.clear(), lines_.clear();
}

void for_each_line(std::istream& from, const std::string& name, const std::function<void(const hex_row&, std::size_t)>& take) {
    std::string line;
    for (std::size_t number = 1; std::getline(from, line); ++number) {
        hex_row w;
        try {
            w = words_of_line(line);
        } catch (const error& e) {
            throw error(fmt::format("{}, line {}: {}", name, number, e.what()));
        }
        if (!w.empty()) take(w, number);
    }
}

void stream_checker::add_lines(std::istream& from, const std::string& name) {
    const std::size_t n = kind_.operands.size(), m = kind_.results.size();
    for_each_line(from, name, [&](const hex_row& w, std::size_t line) {
        if (w.size() != n + m)
            throw error(fmt::format("{}, line {} has {} words; a case of {} has {} operands and {} results", name, line, w.size(),
                                    kind_.name, n, m));
        add(std::span(w).subspan(0, n), std::span(w).subspan(n), line);
    });
}

}  // namespace qk::tool
