// SPDX-License-Identifier: Apache-2.0
// `qk cover`: which bins of a format or a device lines of operands hit, and stimuli for the others.
#include <fmt/format.h>

#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "hardware/stream_checker.hpp"
#include "qk/graph/error.hpp"
#include "qk/graph/files.hpp"
#include "support/console.hpp"
#include "support/declared.hpp"
#include "verbs.hpp"

namespace qk::tool {
namespace {

using compare::bin;
using graph::error;

constexpr std::size_t shown_of_kind = 4;  ///< bins that are listed of each kind

struct cover_arguments {
    stream_options what;
    std::string file, missing;
    bool json = false, overwrite = false;
};

/// Counts the lines of a stream; returns how many there were.
std::size_t count_lines(std::istream& from, const std::string& name, const case_kind& kind, const covered_bins& bins) {
    const std::size_t n = kind.operands.size(), m = kind.results.size();
    std::size_t cases = 0;
    hex_row some;
    for_each_line(from, name, [&](const hex_row& w, std::size_t line) {
        if (w.size() != n && w.size() != n + m)
            throw error(fmt::format("{}, line {} has {} words; a case of {} has {} operands, and {} results may follow", name, line,
                                    w.size(), kind.name, n, m));
        for (std::size_t k = 0; k < n; ++k) {
            if (w[k] == no_number || (kind.operands[k] < 64 && w[k] >> kind.operands[k] != 0))
                throw error(fmt::format("{}, line {}: operand {} is no word of {} bits", name, line, k + 1, kind.operands[k]));
        }
        some.insert(some.end(), w.begin(), w.begin() + static_cast<std::ptrdiff_t>(n));
        if (++cases % cases_at_once == 0) bins.add(some), some.clear();
    });
    if (!some.empty()) bins.add(some);
    return cases;
}

struct kind_count {
    std::size_t bins = 0, hit = 0;
    std::vector<std::string> empty;
};

void write_missing(const cover_arguments& given, const case_kind& kind, const covered_bins& bins) {
    std::string lines;
    std::map<hex_row, bool> known;  // one case may hit several bins
    for (std::size_t k = 0; k < bins.all().size(); ++k) {
        if (bins.all()[k].hits != 0) continue;
        hex_row w = bins.stimulus(k);
        if (known.emplace(w, true).second) lines += hex_words(w, kind.operands) + "\n";
    }
    graph::output_set outputs(given.overwrite);
    outputs.output("--missing", given.missing);
    outputs.write(given.missing, lines);
    outputs.commit();
}

bool cover(const cover_arguments& given) {
    cover_arguments by = given;
    const bool sums = !by.what.device.empty() || !by.what.accumulator.empty();
    if (sums && by.file.empty()) std::swap(by.file, by.what.how.format);  // a device needs no FORMAT
    if (sums && !by.what.how.format.empty()) throw error("--device and --accumulator have formats of their own; leave out FORMAT");
    const auto kind = case_kind_of(by.what);
    const covered_bins bins = kind->bins();
    std::size_t cases = 0;
    if (by.file.empty() || by.file == "-") {
        cases = count_lines(std::cin, "standard input", *kind, bins);
    } else {
        graph::file_stream from(by.file);
        cases = count_lines(from, by.file, *kind, bins);
    }
    std::map<compare::bin_kind, kind_count> kinds;
    std::size_t hit = 0;
    for (const bin& b : bins.all()) {
        kind_count& k = kinds[b.kind];
        ++k.bins;
        hit += b.hits != 0;
        if (b.hits != 0) ++k.hit;
        else k.empty.push_back(name_of(b));
    }
    if (!by.missing.empty()) write_missing(by, *kind, bins);
    const std::size_t all = bins.all().size();
    if (by.json) {
        nlohmann::ordered_json by_kind = nlohmann::ordered_json::array();
        for (const auto& [k, c] : kinds)
            by_kind.push_back({{"about", compare::name_of(k)}, {"bins", c.bins}, {"hit", c.hit}, {"empty", c.empty}});
        print_json({{"cases", cases}, {"bins", all}, {"hit", hit}, {"kinds", by_kind}});
    } else {
        for (const auto& [k, c] : kinds) {
            print("{:<24} {:>6} of {}\n", std::string(compare::name_of(k)), c.hit, c.bins);
            for (std::size_t n = 0; n < std::min(shown_of_kind, c.empty.size()); ++n) print("  empty: {}\n", c.empty[n]);
            if (c.empty.size() > shown_of_kind) print("  and {} more\n", c.empty.size() - shown_of_kind);
        }
        print("{} cases hit {} of {} bins\n", cases, hit, all);
    }
    return hit == all;
}

}  // namespace

void add_cover(command& app, verb_result& result) {
    auto given = std::make_shared<cover_arguments>();
    option_table& verb = app.add_subcommand("cover", "Count which bins of a converter, a decoder or a device lines of operands hit");
    add_stream_options(verb, given->what).also_for(input_kind::device);
    verb.add_option("LINES", given->file,
                    "a file of lines as `qk gen` prints them, with results behind them or without (default, and -: standard input)")
        .type_name("FILE")
        .common()
        .reads();
    verb.add_option("--missing", given->missing, "write operands that hit each empty bin, a line each")
        .type_name("OUT.hex")
        .common()
        .writes();
    add_overwrite(verb, given->overwrite);
    verb.add_flag("--json", given->json, "one JSON object on standard output: every kind of bins, and the names of the empty ones")
        .common();
    verb.footer(
        "Bins of converters: classes of inputs and results, every binade, for each shift ties and each single sticky bit, carries, kinds "
        "of\n"
        "NaN, and of blocks what stands in which lane and each scale. Of devices: distances, cancellations, carries, ties, special "
        "values.\n"
        "Exit status 1 if a bin is empty. `qk gen` with the same words hits every one.\n\nExamples:\n"
        "  qk gen fp8_e5m2 | qk cover fp8_e5m2 -\n"
        "  qk gen mxfp4 --seed 3 | head -40 | qk cover mxfp4 - --missing more.hex || wc -l more.hex\n"
        "  qk gen --device nvidia.hopper.wgmma.f32.e4m3.e4m3 | qk cover --device nvidia.hopper.wgmma.f32.e4m3.e4m3 - --json");
    verb.callback([given, &result] {
        if (!cover(*given)) result.status = status::failed;
    });
}

}  // namespace qk::tool
