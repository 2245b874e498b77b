// SPDX-License-Identifier: Apache-2.0
// Every style of the table: its name and its line in the command's help, what it writes of the digits network, and that this is read back.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "graph/export/style.hpp"
#include "qk/graph/base/format_text.hpp"
#include "qk/graph/calibrate/calibrate.hpp"
#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/evaluate/fold.hpp"
#include "qk/graph/export/export.hpp"
#include "qk/graph/files/npy.hpp"
#include "qk/graph/quantize/planner.hpp"
#include "qk/graph/recover/recover.hpp"
#include "run_tool.hpp"

using namespace qk::graph;

namespace {

const std::string digits = std::string(QK_SOURCE_DIR) + "/examples/digits/";

/// Returns the help of a verb in one line.
std::string help_of(const char* verb) {
    std::string line;
    for (const char c : qk_test::run_tool({verb, "--help"}).out)
        if (!std::isspace(static_cast<unsigned char>(c))) line += c;
        else if (!line.ends_with(' ')) line += ' ';
    return line;
}

/// What is asked of each style: it may refuse some of these, but not all.
struct asked {
    const char *activation, *weight;
    approach how = approach::static_ranges;
    std::optional<int> block{};
};
constexpr asked requests[] = {{"int8", "int8"},
                              {"uint8", "int8", approach::dynamic},
                              {"fp32", "int4", approach::weight_only, 32},
                              {"mxfp8_e4m3", "mxfp4"},
                              {"bfp16", "bfp16"},
                              {"int16", "bf16"}};

/// Returns the largest difference of two sets of outputs, in parts of the largest value.
float difference(const named_tensors& a, const named_tensors& b) {
    float worst = 0, largest = 0;
    for (const auto& [name, y] : a)
        for (std::size_t i = 0; i < y.size(); ++i) {
            worst = std::max(worst, std::fabs(y.as<float>()[i] - b.at(name).as<float>()[i]));
            largest = std::max(largest, std::fabs(y.as<float>()[i]));
        }
    return worst / largest;
}

}  // namespace

TEST_CASE("each style of the table has a name of its own, which parses, and a line in the help of quantize and search") {
    const std::string pages[] = {help_of("quantize"), help_of("search")};
    std::set<std::string> names;
    for (const export_style style : export_styles()) {
        const std::string name = style.name(), help = style.help();
        CAPTURE(name);
        CHECK(names.insert(name).second);
        CHECK(export_style_from(name) == style);
        CHECK(!help.empty());
        const std::string line = name + (style == export_styles().front() ? " (default): " : ": ") + help + ";";
        for (const std::string& page : pages) CHECK(page.find(line) != std::string::npos);
        CHECK_THROWS_WITH_AS(export_style_from(name + "?"), doctest::Contains(("Did you mean '" + name + "'?").c_str()), error);
    }
}

TEST_CASE("what each style writes of the digits network is read back, or its row says why it is not") {
    model m = model::load(digits + "digits.onnx");
    fold_constants(m);
    fold_batch_normalization(m);
    const tensor images = read_npy(digits + "test_images.npy");
    dims shape = images.shape();
    shape[0] = 4;
    const named_tensors x{{m.inputs()[0].name, tensor(images.type(), shape, images.buffer())}};
    const calibration seen = calibrate(m, x);
    for (const export_style style : export_styles()) {
        const detail::style_row& row = style.row();
        std::size_t written = 0, own = 0, unread = 0;
        for (const asked& a : requests) {
            INFO(std::string(style.name()) << ": " << std::string(a.activation) << "/" << std::string(a.weight));
            quantize_options options;
            options.how = a.how;
            precision weight{.format = format_from(a.weight)};
            weight.block_size = a.block;
            const precision_plan plan =
                quantize(m, precision_requests().set_default(precision{.format = format_from(a.activation)}, weight), seen, options).plan;
            std::optional<model> file;
            try {
                file = export_model(m, plan, {.style = style}).exported;
            } catch (const error&) {
                continue;
            }
            ++written;
            for (int i = 0; row.read != nullptr && i < file->graph().node_size(); ++i) own += row.read(*file, i).index() != 0;
            try {
                const recovered_plan found = recover_plan(*file);
                if (quantized_edges(found.plan, found.plain).size() != quantized_edges(plan, m).size()) {
                    CHECK(row.unread != nullptr);
                    ++unread;
                    continue;
                }
                CHECK(difference(evaluator(*file).run(x).outputs, evaluator(found.plain).run(x, found.plan).outputs) < 1e-5f);
            } catch (const error& e) {
                INFO(std::string(e.what()));
                CHECK(row.unread != nullptr);
                ++unread;
            }
        }
        INFO(std::string(style.name()));
        CHECK(written > 0);
        CHECK((own > 0) == (row.read != nullptr));
        CHECK((unread > 0) == (row.unread != nullptr));
    }
}
