// SPDX-License-Identifier: Apache-2.0
// `qk convert` reproduces every golden file, the outputs of other systems, bit for bit.
#include <doctest/doctest.h>

#include "../core/compare_bits.hpp"
#include "../core/golden_case.hpp"
#include "../data_folders.hpp"
#include "qk/graph/files/npy.hpp"
#include "run_tool.hpp"

using qk_test::run_tool;

TEST_CASE("qk convert gives every golden file") {
    const qk_test::scratch place;
    std::size_t files = 0, outside = 0, wrong = 0;
    for (const std::filesystem::path& file : qk_test::golden_files()) {
        const std::string name = file.filename().string();
        const std::filesystem::path goldens = file.parent_path();
        const auto g = read_golden_name(name);
        REQUIRE_MESSAGE(g.has_value(), name);
        const std::string input = (goldens / ("input." + g->input + ".npy")).string(), output = place("y.npy");
        std::vector<std::string> command{"convert",
                                         input,
                                         output,
                                         "--format",
                                         std::string(qk::to_text(g->format).view()),
                                         "--semantics",
                                         g->system == "onnxruntime" ? "onnx" : g->system};
        const auto option = [&](const char* what, std::string value) { command.insert(command.end(), {what, std::move(value)}); };
        if (g->system == "quark" || g->system == "microxcaling") option("--rounding", std::string(qk::to_text(g->how.rounding)));
        if (g->system == "torchao") option("--scale-rule", g->mode);
        if (g->scale != 0) {
            char text[32];
            std::snprintf(text, sizeof text, "%.9g", static_cast<double>(g->scale));
            option("--scale", text);
        }
        if (g->zero_point != 0) option("--zero-point", std::to_string(g->zero_point));
        if (g->per_row) {
            option("--scales", (goldens / "scales.per_row.npy").string());
            option("--scale-axis", "0");
        }
        const auto done = run_tool(command);
        std::string line;
        for (const std::string& word : command) line += " " + word;
        REQUIRE_MESSAGE(done.status == 0, "qk", line, ": ", done.err);
        const qk::graph::tensor x = qk::graph::read_npy(input), expected = qk::graph::read_npy(file), actual = qk::graph::read_npy(output);
        REQUIRE(actual.shape() == expected.shape());
        REQUIRE(actual.type() == qk::graph::data_type::float32);
        const std::size_t mismatches =
            count_mismatches(x.as<float>(), expected.as<float>(), actual.as<float>(), name, g->outside_pass_mark ? 0 : 4);
        ++files;
        if (g->outside_pass_mark) {
            ++outside;
        } else {
            wrong += mismatches != 0;
            CHECK_MESSAGE(mismatches == 0, "qk", line);
        }
    }
    MESSAGE(files, " golden files; ", outside, " hold a defect of their system, outside the pass mark; of the others ", wrong, " differ");
    CHECK(files > 700);
}
