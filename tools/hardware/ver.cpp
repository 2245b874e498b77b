// SPDX-License-Identifier: Apache-2.0
// `qk ver`: checks the lines of `qk gen` to which a device appended its results.
#include <fmt/format.h>

#include <fstream>
#include <iostream>
#include <memory>

#include "hardware/streams.hpp"
#include "qk/graph/error.hpp"
#include "support/console.hpp"
#include "verbs.hpp"

namespace qk::tool {
namespace {

using graph::error;

struct ver_arguments {
    stream_options what;
    std::string file, results;
    bool json = false;
};

constexpr std::size_t shown_at_most = 20;

/// Checks cases as they come, and prints the first that differ.
class checker {
  public:
    checker(case_kind& kind, bool quiet) : kind_(kind), quiet_(quiet) {}

    void add(std::span<const std::uint64_t> operands, std::span<const std::uint64_t> results, std::size_t line) {
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
    void check() {
        if (lines_.empty()) return;
        kind_.before = cases;
        const hex_row right = kind_.expected(asked_);
        const std::vector<char> wrong = kind_.wrong(asked_, given_, right);
        const std::size_t operands = kind_.operands.size(), results = kind_.results.size();
        for (std::size_t n = 0; n < lines_.size(); ++n) {
            if (wrong[n] == 0 || ++differ > shown_at_most || quiet_) continue;
            print("line {}: {} expected {} device {}\n", lines_[n],
                  hex_words(std::span(asked_).subspan(n * operands, operands), kind_.operands),
                  hex_words(std::span(right).subspan(n * results, results), kind_.results),
                  hex_words(std::span(given_).subspan(n * results, results), kind_.results));
        }
        cases += lines_.size();
        asked_.clear(), given_.clear(), lines_.clear();
    }
    std::size_t cases = 0, differ = 0;

  private:
    case_kind& kind_;
    bool quiet_;
    hex_row asked_, given_;
    std::vector<std::size_t> lines_;
};

/// Calls take(words, line number) for each line that has words; errors name `name`.
template <class Take>
void for_each_line(std::istream& from, const std::string& name, Take take) {
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
std::ifstream opened(const std::string& file) {
    std::ifstream f(file);
    if (!f) throw error("cannot read " + file);
    return f;
}

/// Checks operands and results of two files, words one after the other, however they are cut into lines.
void check_memories(const ver_arguments& given, const case_kind& kind, checker& all) {
    std::ifstream operands = opened(given.file), results = opened(given.results);
    hex_row asked, answers;
    for_each_line(operands, given.file, [&](const hex_row& w, std::size_t) { asked.insert(asked.end(), w.begin(), w.end()); });
    for_each_line(results, given.results, [&](const hex_row& w, std::size_t) { answers.insert(answers.end(), w.begin(), w.end()); });
    const std::size_t n = kind.operands.size(), m = kind.results.size();
    if (asked.size() % n != 0 || answers.size() % m != 0 || asked.size() / n != answers.size() / m)
        throw error(fmt::format("{} has {} words and {} has {}; a case of {} has {} operands and {} results", given.file, asked.size(),
                                given.results, answers.size(), kind.name, n, m));
    for (std::size_t k = 0; k < asked.size() / n; ++k)
        all.add(std::span(asked).subspan(k * n, n), std::span(answers).subspan(k * m, m), k + 1);
}

void check_stream(std::istream& from, const std::string& name, const case_kind& kind, checker& all) {
    const std::size_t n = kind.operands.size(), m = kind.results.size();
    for_each_line(from, name, [&](const hex_row& w, std::size_t line) {
        if (w.size() != n + m)
            throw error(fmt::format("{}, line {} has {} words; a case of {} has {} operands and {} results", name, line, w.size(),
                                    kind.name, n, m));
        all.add(std::span(w).subspan(0, n), std::span(w).subspan(n), line);
    });
}

}  // namespace

void add_ver(command& app, verb_result& result) {
    auto given = std::make_shared<ver_arguments>();
    option_table& verb =
        app.add_subcommand("ver", "Check lines of `qk gen` with a device's results appended: the first twenty that differ, and how many");
    add_stream_options(verb, given->what);
    verb.add_option("--file", given->file, "the lines (default: standard input)").type_name("FILE").common().reads();
    verb.add_option("--results", given->results,
                    "--file has the operands alone, and this file the results: words as $writememh writes them")
        .type_name("FILE")
        .common()
        .reads();
    verb.add_flag("--json", given->json, "one JSON object on standard output").common();
    verb.footer(
        "Numbers are compared, so NaN is NaN whatever its code; zeros compare with their sign. Exit status 1 if a case "
        "differs.\n\nExamples:\n"
        "  qk gen fp8_e4m3fn --decode | sed 's/$/ 00000000/' | qk ver fp8_e4m3fn --decode\n"
        "  qk gen int8 --pairs int8 | awk '{print $1, $2, \"00000000\"}' | qk ver int8 --pairs int8 --json");
    verb.callback([given, &result] {
        const auto kind = case_kind_of(given->what);
        checker all(*kind, given->json);
        if (!given->results.empty()) {
            if (given->file.empty()) throw error("--results needs --file, which has the operands");
            check_memories(*given, *kind, all);
        } else if (!given->file.empty()) {
            std::ifstream from = opened(given->file);
            check_stream(from, given->file, *kind, all);
        } else {
            check_stream(std::cin, "standard input", *kind, all);
        }
        all.check();
        if (all.cases == 0) throw error("there are no cases: nothing was checked");
        if (given->json) print_json({{"cases", all.cases}, {"differ", all.differ}});
        else print("{} cases, {} differ\n", all.cases, all.differ);
        if (all.differ != 0) result.status = status::failed;
    });
}

}  // namespace qk::tool
