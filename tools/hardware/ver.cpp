// SPDX-License-Identifier: Apache-2.0
// `qk ver`: checks the lines of `qk gen` to which a device appended its results.
#include <fmt/format.h>

#include <fstream>
#include <functional>
#include <iostream>
#include <memory>

#include "hardware/stream_checker.hpp"
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

std::ifstream opened(const std::string& file) {
    std::ifstream f(file);
    if (!f) throw error("cannot read " + file);
    return f;
}

/// Checks operands and results of two files, words one after the other, however they are cut into lines.
void check_memories(const ver_arguments& given, const case_kind& kind, stream_checker& all) {
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
        std::function<void(const std::string&)> show;
        if (!given->json) show = [](const std::string& line) { print("{}\n", line); };
        stream_checker all(*kind, show);
        if (!given->results.empty()) {
            if (given->file.empty()) throw error("--results needs --file, which has the operands");
            check_memories(*given, *kind, all);
        } else if (!given->file.empty()) {
            std::ifstream from = opened(given->file);
            all.add_lines(from, given->file);
        } else {
            all.add_lines(std::cin, "standard input");
        }
        all.check();
        if (all.cases == 0) throw error("there are no cases: nothing was checked");
        if (given->json) print_json({{"cases", all.cases}, {"differ", all.differ}});
        else print("{} cases, {} differ\n", all.cases, all.differ);
        if (all.differ != 0) result.status = status::failed;
    });
}

}  // namespace qk::tool
