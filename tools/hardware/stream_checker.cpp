// SPDX-License-Identifier: Apache-2.0
#include "hardware/stream_checker.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

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

namespace {

/// Reads lines by large pieces. One without an end (/dev/zero has none) is an error, not all of memory.
class line_reader {
  public:
    line_reader(std::istream& from, const std::string& name) : from_(from), name_(name) {}
    /// Reads the next line, which stays until the one behind it is read; false at the end.
    bool next(std::string_view& line) {
        constexpr std::size_t longest = std::size_t{1} << 26, piece = std::size_t{1} << 16;
        ++number;
        for (std::size_t looked = at_;;) {
            const std::size_t end = held_.find('\n', looked);
            if (end != std::string::npos) return take(line, end, end + 1);
            if (held_.size() - at_ > longest) throw error(fmt::format("{}, line {}: it has more than 64 MB", name_, number));
            if (ended_) return at_ < held_.size() && take(line, held_.size(), held_.size());
            held_.erase(0, at_);
            at_ = 0, looked = held_.size();
            held_.resize(looked + piece);
            const auto got = static_cast<std::size_t>(std::max<std::streamsize>(0, from_.rdbuf()->sgetn(held_.data() + looked, piece)));
            held_.resize(looked + got);
            ended_ = got < piece;
        }
    }
    std::size_t number = 0;

  private:
    bool take(std::string_view& line, std::size_t end, std::size_t next) {
        line = std::string_view(held_).substr(at_, end - at_);
        at_ = next;
        return true;
    }
    std::istream& from_;
    const std::string& name_;
    std::string held_;
    std::size_t at_ = 0;
    bool ended_ = false;
};

/// Reads a line of plain words, as `qk gen` prints it; false where it has anything else.
bool plain_words(std::string_view line, hex_row& w) {
    constexpr auto digits = [] {
        std::array<std::uint8_t, 256> d{};
        d.fill(255);
        for (int k = 0; k < 10; ++k) d[static_cast<std::size_t>('0' + k)] = static_cast<std::uint8_t>(k);
        for (int k = 0; k < 6; ++k)
            d[static_cast<std::size_t>('a' + k)] = d[static_cast<std::size_t>('A' + k)] = static_cast<std::uint8_t>(10 + k);
        return d;
    }();
    for (std::size_t at = 0; at < line.size();) {
        if (line[at] == ' ') {
            ++at;
            continue;
        }
        std::uint64_t v = 0;
        const std::size_t first = at;
        for (; at < line.size() && line[at] != ' '; ++at) {
            const std::uint8_t digit = digits[static_cast<std::uint8_t>(line[at])];
            if (digit > 15 || at - first == 16) return false;
            v = v << 4 | digit;
        }
        w.push_back(v);
    }
    return true;
}

}  // namespace

void for_each_line(std::istream& from, const std::string& name, const std::function<void(const hex_row&, std::size_t)>& take) {
    line_reader lines(from, name);
    std::string_view line;
    hex_row w;
    while (lines.next(line)) {
        w.clear();
        if (!plain_words(line, w)) {
            try {
                w = words_of_line(std::string(line));
            } catch (const error& e) {
                throw error(fmt::format("{}, line {}: {}", name, lines.number, e.what()));
            }
        }
        if (!w.empty()) take(w, lines.number);
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
