// SPDX-License-Identifier: Apache-2.0
// One C++ call does what a command does: the same settings give the same files, byte for byte, and the same numbers.
#include "qk/graph/pipeline.hpp"
#include "qk/graph/quantize/plan_file.hpp"
#include "qk/graph/search/report.hpp"

#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "run_tool.hpp"

namespace fs = std::filesystem;
namespace pipeline = qk::graph::pipeline;
using qk_test::content;
using qk_test::run_tool;
using qk_test::scratch;
using words = std::vector<std::string>;

namespace {

const std::string digits = std::string(QK_SOURCE_DIR) + "/examples/digits/";
const std::string model = digits + "digits.onnx", images = digits + "test_images.npy", labels = digits + "test_labels.npy";

/// Runs the command and demands that it succeeds.
nlohmann::json command(words arguments) {
    arguments.push_back("--json");
    const auto done = run_tool(arguments);
    INFO(done.err);
    REQUIRE(done.status == 0);
    return nlohmann::json::parse(done.out);
}

void same_file(const fs::path& a, const fs::path& b) {
    INFO(a.string() << " and " << b.string());
    REQUIRE(fs::exists(a));
    REQUIRE(fs::exists(b));
    CHECK(content(a) == content(b));
}

/// Removes times, memory and file names.
nlohmann::json timeless(nlohmann::json j) {
    for (const char* key : {"seconds", "items_per_second", "output", "peak_bytes"}) j.erase(key);
    return j;
}

}  // namespace

TEST_CASE("quantize: the same model, plan, encodings and log") {
    const scratch folder;
    const fs::path requests = folder("requests.json");
    std::ofstream(requests)
        << R"({"default": {"activation": "int8", "weight": "int8"}, "requests": [{"op_type": "Gemm", "weight": "int4"}]})";
    struct row {
        const char* name;
        words options;
        void (*set)(pipeline::quantize_settings&);
    };
    using settings = pipeline::quantize_settings;
    const words calibration{"--calibration", digits + "train_images.npy"};
    for (const row& r : {
             row{"int8",
                 {"--activation", "int8", "--weight", "int8", "--per-channel"},
                 [](settings& s) { s.precision.activation = s.precision.weight = "int8", s.precision.per_channel = true; }},
             row{"blocks",
                 {"--activation", "mxfp8_e4m3", "--weight", "mxfp4", "--export", "portable"},
                 [](settings& s) { s.precision.activation = "mxfp8_e4m3", s.precision.weight = "mxfp4"; }},
             row{"kept",
                 {"--activation", "int8", "--weight", "int8", "--keep-int8", "--export", "qdq"},
                 [](settings& s) { s.precision.activation = s.precision.weight = "int8", s.keep_int8 = true, s.style = "qdq"; }},
             row{"compensated",
                 {"--activation", "int8", "--weight", "int4", "--weight-rounding", "compensated", "--calibration-method", "best"},
                 [](settings& s) {
                     s.precision.activation = "int8", s.precision.weight = "int4";
                     s.precision.weight_rounding = "compensated", s.precision.method = "best";
                 }},
             row{"requests",
                 {"--plan", requests.string(), "--calibration-method", "entropy"},
                 [](settings& s) { s.precision.method = "entropy"; }},
         }) {
        INFO(r.name);
        const fs::path by_command = folder(std::string(r.name) + "_command"), by_call = folder(std::string(r.name) + "_call");
        fs::create_directory(by_command);
        fs::create_directory(by_call);
        words arguments{"quantize", model};
        arguments.insert(arguments.end(), r.options.begin(), r.options.end());
        arguments.insert(arguments.end(), calibration.begin(), calibration.end());
        for (const auto& [option, file] :
             {std::pair{"-o", "m.onnx"}, {"--save-plan", "p.json"}, {"--log", "l.txt"}, {"--report", "r.html"}})
            arguments.insert(arguments.end(), {option, (by_command / file).string()});
        const bool holds = std::string(r.name) != "blocks";  // AIMET's encodings hold integers
        if (holds) arguments.insert(arguments.end(), {"--encodings", (by_command / "e.json").string()});
        const nlohmann::json told = command(arguments);
        settings s;
        s.model = model;
        s.data.calibration = {digits + "train_images.npy"};
        if (std::string(r.name) == "requests") s.precision.plan = requests.string();
        r.set(s);
        s.output = (by_call / "m.onnx").string(), s.save_plan = (by_call / "p.json").string(),
        s.encodings = holds ? (by_call / "e.json").string() : "";
        s.log = (by_call / "l.txt").string(), s.report = (by_call / "r.html").string();
        std::size_t reports = 0;
        const pipeline::quantize_outcome done = pipeline::quantize(s, [&](std::string_view, std::size_t, std::size_t) { ++reports; });
        for (const char* file : {"m.onnx", "p.json", "l.txt"}) same_file(by_command / file, by_call / file);
        if (holds) same_file(by_command / "e.json", by_call / "e.json");
        CHECK(fs::exists(by_call / "r.html"));
        CHECK(fs::exists(by_call / "r.json"));
        CHECK(timeless(nlohmann::json(done.summary)) == timeless(told));
        CHECK(reports > 0);
    }
}

TEST_CASE("evaluate: the same outputs and the same accuracy") {
    const scratch folder;
    const nlohmann::json told = command({"evaluate", model, "--inputs", images, "--labels", labels, "--activation", "int8", "--weight",
                                         "int4", "--samples", "100", "--output-dir", folder("command")});
    pipeline::evaluate_settings s;
    s.model = model, s.data.inputs = {images}, s.data.labels = labels, s.data.samples = 100;
    s.precision.activation = "int8", s.precision.weight = "int4";
    s.output_dir = folder("call");
    const pipeline::evaluate_outcome done = pipeline::evaluate(s);
    CHECK(timeless(nlohmann::json(done.summary)) == timeless(told));
    for (const auto& entry : fs::directory_iterator(folder("command")))
        same_file(entry.path(), fs::path(folder("call")) / entry.path().filename());
    s.compare = s.output_dir, s.output_dir = "", s.precision.weight = "int2";
    CHECK(!pipeline::evaluate(s).agree);
}

TEST_CASE("sensitivity: the same rows") {
    const nlohmann::json told = command({"sensitivity", model, "--inputs", images, "--samples", "50", "--narrow", "int8/int4,mxfp4/mxfp4"});
    pipeline::sensitivity_settings s;
    s.model = model, s.data.inputs = {images}, s.data.samples = 50, s.narrow = {"int8/int4", "mxfp4/mxfp4"};
    const nlohmann::json own = qk::graph::to_json(pipeline::sensitivity(s));
    CHECK(timeless(own) == timeless(told));
    CHECK(own.size() > 3);
}

TEST_CASE("search: the same mix, plan and model") {
    const scratch folder;
    const std::string by_command = folder("command.onnx"), by_call = folder("call.onnx");
    const std::string plan_by_command = folder("command.json"), plan_by_call = folder("call.json");
    const nlohmann::json told =
        command({"search", model, "--inputs", images, "--labels", labels, "--samples", "200", "--wide", "int8/int8", "--narrow",
                 "int8/int4,mxfp4/mxfp4", "--target-sqnr", "22", "-o", by_command, "--save-plan", plan_by_command});
    pipeline::search_settings s;
    s.model = model, s.data.inputs = {images}, s.data.labels = labels, s.data.samples = 200;
    s.wide = "int8/int8", s.narrow = {"int8/int4", "mxfp4/mxfp4"}, s.targets = {{"sqnr", 22}};
    s.output = by_call, s.save_plan = plan_by_call;
    const pipeline::search_outcome done = pipeline::search(s);
    const nlohmann::json own = qk::graph::to_json(done.result);
    CHECK(own["layers"] == told["layers"]);
    CHECK(own["metric"] == told["metric"]);
    same_file(by_command, by_call);
    CHECK(*qk::graph::load_plan_file(plan_by_command).plan ==
          *qk::graph::load_plan_file(plan_by_call).plan);  // names of lists beside differ
    s.output = model;
    CHECK_THROWS_WITH_AS(pipeline::search(s), doctest::Contains("--overwrite"), qk::graph::error);
}
