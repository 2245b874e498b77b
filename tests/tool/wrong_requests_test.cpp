// SPDX-License-Identifier: Apache-2.0
// Requests that cannot be met: exit status 2, one sentence that says what is wrong and what to do, and no file.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "qk/graph/quantize/plan_file.hpp"
#include "run_tool.hpp"

namespace {

using words = std::vector<std::string>;

const std::string folder = std::string(QK_SOURCE_DIR) + "/examples/digits/", model = folder + "digits.onnx";

void refuse(const qk_test::scratch& place, words options, const words& says) {
    options.insert(options.begin(), {"quantize", model, "-o", place("out.onnx"), "--save-plan", place("plan_out.json"), "--report",
                                     place("report.html"), "--samples", "8"});
    const std::size_t before = place.files();
    const auto done = qk_test::run_tool(options);
    std::string line;
    for (const std::string& w : options) line += " " + w;
    INFO("qk", line, ": ", done.err);
    CHECK(done.status == 2);
    CHECK(done.out.empty());
    for (const std::string& s : says) CHECK(done.err.find(s) != std::string::npos);
    CHECK(done.err.starts_with("qk: "));
    CHECK(std::count(done.err.begin(), done.err.end(), '\n') == 1);
    CHECK(place.files() == before);
}

}  // namespace

TEST_CASE("wrong requests: one clear message each, and nothing is written") {
    const qk_test::scratch place;
    const auto file = [&](const std::string& text) {
        std::ofstream(place("requests.json")) << text;
        return words{"--plan", place("requests.json"), "--calibration", folder + "train_images.npy"};
    };
    const auto strict = [&](const std::string& text) {
        words w = file(text);
        w.push_back("--strict");
        return w;
    };
    refuse(place, strict("{\"requests\": [\n {\"layer\": \"@typo@\", \"activation\": \"int8\"}]}"),
           {"@typo@", "requests.json:2", "(strict)"});
    refuse(place, file("{\"requests\": [\n {\"op_type\": \"Conv\", \"wieght\": \"int8\"}]}"), {"requests.json:2", "wieght", "weight"});
    refuse(place, file("{\"requests\": [{\"op_type\": \"Conv\", \"weight\": \"int9x\"}]}"), {"int9x"});
    refuse(place, strict("{\"model_inputs\": [\"int8\", \"int8\"]}"), {"model input 1"});
    refuse(place, strict("{\"requests\": [{\"model_output\": 7, \"format\": \"int8\"}]}"), {"model output 7"});
    refuse(place, {"--activation", "int8", "--weight", "int8", "--inputs", folder + "test_images.npy", "--export", "qdp"},
           {"qdp", "portable, qdq, qoperator, qinteger, amd, nbits"});
    refuse(place, {"--activation", "int8", "--weight", "int8"}, {"calibrat"});
}

TEST_CASE("AIMET's page under --strict: a request that a later one overrides is no error; it is one under --strict=all") {
    // A leaf, a group and a leaf in it, the same leaf twice, a type, the model's input and output; the latest request counts.
    const qk_test::scratch place;
    const auto file = [&](const std::string& more) {
        std::ofstream(place("requests.json")) << R"({"default": {"activation": "int8", "weight": "int8"}, "per_channel": true, )" << more <<
            R"("requests": [{"layer": "block1.pointwise", "activation": "int16", "weight": "int16"},
                {"group": "block2", "activation": "int16", "weight": "int16"},
                {"layer": "block2.pointwise", "activation": "int8", "weight": "int8"},
                {"layer": "block1.pointwise", "activation": "int8", "weight": "int8"},
                {"op_type": "GlobalAveragePool", "activation": "int16"},
                {"model_input": 0, "format": "int16"}, {"model_output": 0, "format": "int16"}]})";
        return words{"--plan", place("requests.json"), "--calibration", folder + "train_images.npy"};
    };
    const auto accepted = [&](const std::string& json, words more) {
        more.insert(more.begin(), {"quantize", model, "--samples", "8", "--save-plan", place("p.json"), "--overwrite"});
        const words asked = file(json);
        more.insert(more.end(), asked.begin(), asked.end());
        const auto done = qk_test::run_tool(more);
        INFO(done.err);
        CHECK(done.status == 0);
        CHECK(done.err.find("contradictory: ") != std::string::npos);  // it is said all the same
        CHECK(done.err.find("overridden: ") != std::string::npos);
        const auto plan = nlohmann::json::parse(qk_test::content(place("p.json")));
        std::filesystem::remove(place("p.json"));
        return plan;
    };
    const auto lenient = accepted("", {});
    CHECK(accepted("", {"--strict"}) == lenient);
    CHECK(accepted("\"strict\": true, ", {}) == lenient);
    CHECK(accepted("\"strict\": true, ", {"--dual"}) == accepted("", {"--dual"}));
    const auto refused = [&](const std::string& json, const words& more, const words& says) {
        words w = file(json);
        w.insert(w.end(), more.begin(), more.end());
        refuse(place, w, says);
    };
    refused("", {"--strict=all"}, {"block1.pointwise", "the later one counts", "(strict)"});
    refused("\"strict\": \"all\", ", {}, {"block1.pointwise", "the later one counts", "(strict)"});
    refused("\"strict\": true, ", {"--strict=all"}, {"(strict)"});
    refused("\"strict\": \"some\", ", {}, {"requests.json", "true, false or \"all\""});
    refused("", {"--strict=some"}, {"--strict 'some'", "requests, all"});
}

TEST_CASE("a format that an export style cannot hold names tensor, format and the way out") {
    const qk_test::scratch place;
    const auto ask = [&](const char* format, const char* style) {
        return words{"--activation", format, "--weight", format, "--calibration", folder + "train_images.npy", "--export", style};
    };
    refuse(place, ask("fp6_e3m2", "qdq"), {"tensor '", "fp6_e3m2", "--export portable"});
    refuse(place, ask("int32", "qdq"), {"tensor '", "int32", "--export portable"});
    refuse(place, ask("bfp16", "qoperator"), {"tensor '", "bfp16", "--export portable"});
    refuse(place, ask("mx6", "qinteger"), {"tensor '", "mx6", "--export portable"});
    refuse(place, ask("nvfp4", "amd"), {"tensor '", "nvfp4", "--export portable"});
    refuse(place, ask("fp6_e3m2", "amd"), {"tensor '", "fp6_e3m2", "--export portable"});
}

TEST_CASE("compensated rounding: what it cannot do is said before anything is written") {
    const qk_test::scratch place;
    const words rounding{"--weight", "int4", "--approach", "weight_only", "--weight-rounding"};
    const auto with = [&](words more) {
        words w = rounding;
        w.insert(w.end(), more.begin(), more.end());
        return w;
    };
    refuse(place, with({"best"}), {"best", "nearest, compensated"});
    refuse(place, with({"compensated"}), {"the samples themselves", "--calibration X.npy"});
    const qk_test::scratch other;
    CHECK(qk_test::run_tool({"calibrate", model, "--inputs", folder + "train_images.npy", "--samples", "8", "-o", other("seen.json")})
              .status == 0);
    refuse(place, with({"compensated", "--calibration", other("seen.json")}), {"the samples themselves", "--calibration X.npy"});
    std::ofstream(other("requests.json")) << "{\"weight_rounding\": \"compensated\"}";
    const auto search = qk_test::run_tool({"sensitivity", model, "--inputs", folder + "test_images.npy", "--samples", "8", "--wide",
                                           "int8/int8", "--narrow", "int4/int4", "--plan", other("requests.json")});
    CHECK(search.status == 2);
    CHECK(search.err.find("a search rounds weights to nearest") != std::string::npos);
}

TEST_CASE("compensated rounding reaches the file, the evaluator and the page; a saved plan takes it too") {
    const qk_test::scratch place;
    const words asked{"--weight", "int4", "--per-channel", "--approach", "weight_only", "--calibration", folder + "train_images.npy"};
    const auto run = [&](words w, const words& more) {
        w.insert(w.end(), asked.begin(), asked.end());
        w.insert(w.end(), more.begin(), more.end());
        const auto done = qk_test::run_tool(w);
        INFO(done.err);
        CHECK(done.status == 0);
    };
    const words compensated{"--weight-rounding", "compensated"}, inputs{"--inputs", folder + "test_images.npy", "--samples", "50"};
    run({"quantize", model, "-o", place("c.onnx"), "--report", place("c.html"), "--save-plan", place("plan.json")}, compensated);
    run({"quantize", model, "--recipe", "fast", "-o", place("n.onnx")}, {});
    run({"evaluate", model, "--output-dir", place("under_plan"), inputs[0], inputs[1], inputs[2], inputs[3]}, compensated);
    const auto agrees = [&](const std::string& file) {
        return qk_test::run_tool({"evaluate", place(file), inputs[0], inputs[1], inputs[2], inputs[3], "--compare", place("under_plan"),
                                  "--tolerance", "1e-5"})
            .status;
    };
    CHECK(agrees("c.onnx") == 0);
    CHECK(agrees("n.onnx") == 1);  // rounding to nearest gives another model
    CHECK(qk_test::run_tool({"quantize", model, "-o", place("s.onnx"), "--plan", place("plan.json")}).status == 0);
    CHECK(agrees("s.onnx") == 0);  // the plan holds the weights
    const auto again = qk_test::run_tool({"quantize", model, "-o", place("s.onnx"), "--overwrite", "--plan", place("plan.json"),
                                          "--weight-rounding", "compensated", "--calibration", folder + "train_images.npy"});
    CHECK(again.status == 0);
    CHECK(again.err.find("option --weight-rounding: has no effect: the saved plan holds how its weights are rounded") != std::string::npos);
    CHECK(agrees("s.onnx") == 0);
    std::ifstream page(place("c.html"));
    const std::string text{std::istreambuf_iterator<char>(page), {}};
    CHECK(text.find("rounded with compensation") != std::string::npos);
}

TEST_CASE("learned rounding and corrected biases: by the command, by a requests file layer by layer; wrong combinations are said") {
    const qk_test::scratch place, other;
    const words weights{"--weight", "int4", "--per-channel", "--approach", "weight_only", "--weight-rounding"};
    const auto with = [&](words more) {
        words w = weights;
        w.insert(w.end(), more.begin(), more.end());
        return w;
    };
    refuse(place, with({"adaround"}), {"adaround", "the samples themselves", "--calibration X.npy"});
    refuse(place, with({"compensated", "--iterations", "5", "--calibration", folder + "train_images.npy"}),
           {"--iterations", "--weight-rounding adaround"});
    refuse(place, {"--weight", "int4", "--approach", "weight_only", "--bias-correction"}, {"correction of biases", "--calibration X.npy"});
    const auto search = qk_test::run_tool({"search", model, "--inputs", folder + "test_images.npy", "--samples", "8", "--narrow",
                                           "int8/int4@adaquant", "--save-plan", place("never.json")});
    CHECK(search.status == 2);
    CHECK(search.err.find("adaround") != std::string::npos);

    const words data{"--calibration", folder + "train_images.npy"}, inputs{"--inputs", folder + "test_images.npy", "--samples", "60"};
    const auto sqnr_of = [&](const words& more) {
        words w{"evaluate", model, "--metric", "sqnr", "--json"};
        for (const words* part : {&inputs, &data, &more}) w.insert(w.end(), part->begin(), part->end());
        const auto done = qk_test::run_tool(w);
        INFO(done.err);
        REQUIRE(done.status == 0);
        return nlohmann::json::parse(done.out)["sqnr"].get<double>();
    };
    const double nearest = sqnr_of(with({"nearest"})), learned = sqnr_of(with({"adaround", "--iterations", "300"}));
    CHECK(learned > nearest + 1);
    CHECK(sqnr_of(with({"adaquant", "--iterations", "300"})) > nearest + 1);
    CHECK(sqnr_of(with({"nearest", "--bias-correction"})) > nearest);

    // If only block2's layers learn their rounding, the result is neither that of all layers nor that of none.
    std::ofstream(other("requests.json")) << R"({"default": {"weight": "int4"}, "approach": "weight_only", "per_channel": true,
        "requests": [{"layer": "block2*", "weight": {"format": "int4", "weight_rounding": "adaround"}}]})";
    const double one = sqnr_of({"--plan", other("requests.json"), "--iterations", "300"});
    CHECK(one != learned);
    CHECK(one != nearest);
    const words asked{"quantize", model,   "--plan",       other("requests.json"), "--iterations",
                      "100",      "--log", place("l.txt"), "--calibration",        folder + "train_images.npy"};
    CHECK(qk_test::run_tool(asked).status == 0);
    std::ifstream log(place("l.txt"));
    const std::string text{std::istreambuf_iterator<char>(log), {}};
    CHECK(text.find("rounded by AdaRound: the layer's output at") != std::string::npos);
}

TEST_CASE("the best calibration method: chosen on the inputs, said, and the same as when asked for by name") {
    const qk_test::scratch place;
    const words asked{"quantize",      model,
                      "--activation",  "int8",
                      "--weight",      "int4",
                      "--calibration", folder + "train_images.npy",
                      "--inputs",      folder + "test_images.npy",
                      "--samples",     "100"};
    const auto run = [&](words more) {
        more.insert(more.begin(), asked.begin(), asked.end());
        const auto done = qk_test::run_tool(more);
        INFO(done.err);
        CHECK(done.status == 0);
        return done.out;
    };
    const auto plan_of = [&](const char* name) { return *qk::graph::load_plan_file(place(name)).plan; };
    const auto text_of = [&](const char* name) {
        std::ifstream in(place(name));
        return std::string{std::istreambuf_iterator<char>(in), {}};
    };
    const std::string said = run({"--save-plan", place("best.json"), "--calibration-method", "best", "--labels", folder + "test_labels.npy",
                                  "--report", place("page.html")});
    REQUIRE(said.starts_with("calibration method "));
    const std::string chosen = said.substr(19, said.find(',') - 19);
    CHECK(said.find(", by top1 of 100 samples: min_max ") != std::string::npos);
    CHECK(text_of("page.html").find(chosen + " does best by top1 of 100 samples") != std::string::npos);
    run({"--save-plan", place("named.json"), "--calibration-method", chosen});
    CHECK(plan_of("best.json") == plan_of("named.json"));
    std::ofstream(place("requests.json")) << "{\"calibration\": {\"method\": \"best\"}}";
    run({"--save-plan", place("file.json"), "--plan", place("requests.json"), "--labels", folder + "test_labels.npy"});
    CHECK(plan_of("best.json") == plan_of("file.json"));
}

TEST_CASE("the best calibration method needs samples, labels for each, and something to choose") {
    const qk_test::scratch place, other;
    const words integers{"--activation", "int8", "--weight", "int8", "--calibration-method", "best"};
    const auto with = [&](words more) {
        more.insert(more.end(), integers.begin(), integers.end());
        return more;
    };
    REQUIRE(qk_test::run_tool({"calibrate", model, "--inputs", folder + "train_images.npy", "-o", other("seen.json")}).status == 0);
    refuse(place, with({"--calibration", other("seen.json")}), {"holds statistics", "--inputs X.npy"});
    refuse(place, with({"--calibration", folder + "train_images.npy", "--labels", folder + "test_labels.npy"}),
           {"600 labels for 1197 samples"});
    REQUIRE(qk_test::run_tool({"quantize", model, "--activation", "int8", "--weight", "int8", "--save-plan", other("plan.json"),
                               "--calibration", folder + "train_images.npy"})
                .status == 0);
    refuse(place, {"--plan", other("plan.json"), "--calibration-method", "best", "--inputs", folder + "test_images.npy"},
           {"saved plan", "drop --calibration-method best"});
    const auto search = qk_test::run_tool({"search", model, "--inputs", folder + "test_images.npy", "--samples", "8", "--wide", "int8/int8",
                                           "--narrow", "int4/int4", "--calibration-method", "best"});
    CHECK(search.status == 2);  // fails because there is no target, not because of the method
    CHECK(search.err.find("needs a target") != std::string::npos);
}

TEST_CASE("an output that cannot be written, or two of one name: nothing is written, and nothing computed first") {
    const qk_test::scratch place;
    const auto outputs = [&](words w) {
        w.insert(w.begin(), {"quantize", model, "--activation", "mx6", "--weight", "mx6"});
        const auto done = qk_test::run_tool(w);
        CHECK(done.status == 2);
        CHECK(place.files() == 0);
        return done.err;
    };
    CHECK(outputs({"-o", place("q.onnx"), "--save-plan", place("none/p.json")}).find("there is no folder") != std::string::npos);
    CHECK(outputs({"-o", place("q.onnx"), "--report", place("none/r.html")}).find("there is no folder") != std::string::npos);
    CHECK(outputs({"-o", place("q.onnx"), "--save-plan", place("q.onnx")}).find("two outputs") != std::string::npos);
    CHECK(outputs({"-o", place("q.onnx"), "--save-plan", place("r.json"), "--report", place("r.html")}).find("two outputs") !=
          std::string::npos);
}

TEST_CASE("a float model has no plan to recover") {
    const qk_test::scratch place;
    const auto done = qk_test::run_tool({"inspect", model, "--save-plan", place("p.json"), "--save-float", place("f.onnx")});
    CHECK(done.status == 2);
    CHECK(done.err.find("no quantizers to recover a plan from") != std::string::npos);
    CHECK(place.files() == 0);
}
