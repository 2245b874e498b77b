// SPDX-License-Identifier: Apache-2.0
// Definition of feed_hardware.hpp.
#include "feed_hardware.hpp"

#include <sstream>
#include <string>
#include <vector>

#include "hardware/dot_case.hpp"
#include "hardware/stream_checker.hpp"
#include "qk/compare/decoder.hpp"
#include "qk/graph/plan/accumulators.hpp"
#include "qk/graph/plan/plan.hpp"
#include "temporary.hpp"

namespace qk_fuzz {
namespace {

using namespace qk::tool;

/// What is asked, in words, and the file.
struct asked {
    std::vector<std::string> words;
    std::string file;

    explicit asked(std::string_view bytes) {
        const std::size_t end = bytes.find('\n');
        std::istringstream first{std::string(bytes.substr(0, end))};
        for (std::string w; first >> w;) words.push_back(w);
        words.resize(4);  // those that are missing are empty, as options are that nobody gave
        if (end != std::string_view::npos) file = bytes.substr(end + 1);
    }
};

}  // namespace

void read_hex(std::string_view bytes) {
    const asked what(bytes);
    quantize_options how;
    how.format = what.words[0];
    hex_row all;
    std::istringstream lines(what.file);
    for_each_line(lines, "x.hex", [&](const hex_row& w, std::size_t) { all.insert(all.end(), w.begin(), w.end()); });
    const auto [conversion, codes] = coded_values_of(how, all, "x.hex");
    static_cast<void>(qk::compare::decoded(conversion, codes));
}

void read_stream(std::string_view bytes) {
    const asked what(bytes);
    stream_options given;
    if (what.words[0] == "device") given.device = what.words[1];
    else given.how.format = what.words[0];
    given.decode = what.words[1] == "decode";
    if (what.words[1] == "pairs") given.pairs = what.words[2];
    const auto kind = case_kind_of(given);
    stream_checker all(*kind, [](const std::string&) {});
    std::istringstream lines(what.file);
    all.add_lines(lines, "the lines");
    all.check();
    if (all.differ > all.cases) __builtin_trap();
}

void read_dot_case(std::string_view bytes) {
    constexpr std::size_t most_products = 1 << 14;
    const asked what(bytes);
    const bool is_device = what.words[1].empty();
    const multiplier by = multiplier_of(is_device ? what.words[0] : "", is_device ? "" : what.words[0], what.words[1], what.words[2]);
    const dot_case problem = case_of(qk::graph::read_npz(temporary(what.file, "case.npz").path()), "case.npz", by);
    const qk::product_shape& s = problem.shape;
    if (s.m * s.n > most_products || s.k > most_products / (1 + s.m * s.n)) return;
    static_cast<void>(multiply(problem, by));
}

void read_accumulator(std::string_view bytes, const qk::graph::model& m, const qk::graph::named_tensors& data) {
    qk::graph::precision_plan plan;
    plan.accumulators = resolve_accumulators(m, {qk::graph::parse_accumulator_request(std::string(bytes), "--accumulator")});
    static_cast<void>(qk::graph::evaluator(m, {.threads = 1}).run(data, plan));
}

}  // namespace qk_fuzz
