// SPDX-License-Identifier: Apache-2.0
// `qk gen`: cases for a device as lines of hexadecimal operands.
#include <memory>

#include "hardware/streams.hpp"
#include "qk/graph/error.hpp"
#include "support/console.hpp"
#include "verbs.hpp"

namespace qk::tool {
void add_gen(command& app, verb_result&) {
    auto given = std::make_shared<stream_options>();
    option_table& verb =
        app.add_subcommand("gen", "Print cases for a device, a line each: operands in hexadecimal, to which it appends its results");
    add_stream_options(verb, *given);
    verb.footer(
        "A block stands on one line. A device copies the line and appends its codes (elements, then the scale, then the shifts),\n"
        "or its values with --decode; `qk ver` with the same words checks them. $readmemh reads the lines, too.\n\nExamples:\n"
        "  qk gen fp8_e4m3fn | head -3\n"
        "  qk gen mxfp4 --decode --level 1 | tail -1\n"
        "  qk gen fp8_e4m3fn --pairs fp8_e5m2 | wc -l\n"
        "  qk gen --device nvidia.hopper.wgmma.f32.e4m3.e4m3 --seed 7 | head -1\n"
        "  qk gen --accumulator sum=sequential --a-format fp16 --b-format fp16 --k 1 | head -2");
    verb.callback([given] {
        const auto kind = case_kind_of(*given);
        kind->generate(given->level, given->how.seed.value_or(0), [&](const hex_row& cases) {
            std::string text;
            const std::size_t n = kind->operands.size();
            for (std::size_t at = 0; at < cases.size(); at += n) text += hex_words(std::span(cases).subspan(at, n), kind->operands) + "\n";
            detail::put(stdout, text);
        });
    });
}

}  // namespace qk::tool
