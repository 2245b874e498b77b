// SPDX-License-Identifier: Apache-2.0
// Recipes: which one is followed, what it adds, that options given by hand win, and what quantize says of the file.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "qk/graph/files/npy.hpp"
#include "run_tool.hpp"

namespace {

using words = std::vector<std::string>;
using nlohmann::json;

const std::string folder = std::string(QK_SOURCE_DIR) + "/examples/digits/";
const std::string model = folder + "digits.onnx", images = folder + "test_images.npy", labels = folder + "test_labels.npy";
const words sampled{"--inputs", images, "--samples", "64"};

qk_test::outcome quantize(const qk_test::scratch& place, const std::string& out, words more) {
    more.insert(more.begin(), {"quantize", model, "-o", place(out), "--overwrite", "--threads", "1"});
    return qk_test::run_tool(more);
}
words joined(words a, const words& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}
json said(const qk_test::scratch& place, const std::string& out, const words& more) {
    const auto done = quantize(place, out, joined(more, {"--json"}));
    INFO(done.err);
    REQUIRE(done.status == 0);
    return json::parse(done.out);
}
bool has_step(const json& summary, const std::string& text) {
    for (const json& step : summary["recipe"]["steps"])
        if (step.get<std::string>().find(text) != std::string::npos) return true;
    return false;
}
const words int8{"--activation", "int8", "--weight", "int8"}, int4{"--activation", "int8", "--weight", "int4"},
    mx{"--activation", "mxfp4", "--weight", "mxfp4"};

}  // namespace

TEST_CASE("the plain command is balanced where samples are given, fast where not, and says so") {
    const qk_test::scratch place;
    const auto with = quantize(place, "a.onnx", joined(int8, sampled));
    CHECK(with.status == 0);
    CHECK(with.out.find("recipe balanced (samples are given)") != std::string::npos);
    const auto without = quantize(place, "b.onnx", mx);
    CHECK(without.status == 0);
    CHECK(without.out.find("recipe fast (no samples are given") != std::string::npos);
    REQUIRE(qk_test::run_tool({"calibrate", model, "--inputs", images, "--samples", "16", "-o", place("ranges.json")}).status == 0);
    const auto statistics = quantize(place, "c.onnx", joined(int8, {"--calibration", place("ranges.json")}));
    CHECK(statistics.status == 0);
    CHECK(statistics.out.find("holds statistics, not samples") != std::string::npos);
}

TEST_CASE("the file of a recipe is its steps asked for by hand, byte for byte, and the fast one where no step is kept") {
    const qk_test::scratch place;
    for (const words& formats : {int8, int4, mx}) {
        const json made = said(place, "plain.onnx", joined(formats, sampled));
        words by_hand{"--recipe", "fast"};
        for (const json& step : made["recipe"]["steps"]) {
            const std::string text = step.get<std::string>();
            if (text.rfind("ranges by ", 0) == 0) by_hand = joined(by_hand, {"--calibration-method", text.substr(10)});
            if (text == "bias correction") by_hand.push_back("--bias-correction");
            if (text.find("compensation") != std::string::npos) by_hand = joined(by_hand, {"--weight-rounding", "compensated"});
        }
        const json same = said(place, "hand.onnx", joined(joined(formats, sampled), by_hand));
        CHECK(same["recipe"]["name"] == "fast");
        CHECK(qk_test::content(place("plain.onnx")) == qk_test::content(place("hand.onnx")));
    }
    CHECK(has_step(said(place, "plain.onnx", joined(int4, sampled)), "compensation"));
}

TEST_CASE("a step is kept where it gains more than chance may, on samples that nothing learned from") {
    const qk_test::scratch place;
    const json made = said(place, "a.onnx", joined(int4, sampled));
    const json& trials = made["recipe"]["trials"];
    REQUIRE(trials.size() > 2);
    CHECK(trials[0]["step"] == "as asked");
    std::size_t kept = 0;
    for (std::size_t i = 1; i + 1 < trials.size(); ++i) {
        INFO(trials[i].dump());
        CHECK(trials[i]["chance"].get<double>() >= 0);
        if (!trials[i]["kept"]) continue;
        CHECK(trials[i]["gain"].get<double>() > trials[i]["chance"].get<double>());
        ++kept;
    }
    CHECK(kept == made["recipe"]["steps"].size());
    CHECK(trials.back()["step"] == "all that is kept, learned from every sample");
    CHECK(trials.back()["gain"].get<double>() >= 0);
    const json& measured = made["measured"];
    CHECK(measured["of"] == "held-out");
    CHECK(measured["samples"] == 64);
    CHECK(measured["low"].get<double>() < measured["sqnr"].get<double>());
    CHECK(measured["high"].get<double>() > measured["sqnr"].get<double>());
    const json few = said(place, "b.onnx", joined(int4, {"--inputs", images, "--samples", "7"}));
    CHECK(few["recipe"]["name"] == "fast");
    CHECK(few["recipe"]["why"] == "fewer than 8 samples tell nothing from chance");
    CHECK(few["measured"]["of"] == "calibration samples");
    said(place, "c.onnx", joined(joined(int4, {"--inputs", images, "--samples", "7"}), {"--recipe", "fast"}));
    CHECK(qk_test::content(place("b.onnx")) == qk_test::content(place("c.onnx")));
}

TEST_CASE("an option or a key that is given wins over the recipe") {
    const qk_test::scratch place;
    const json flags =
        said(place, "a.onnx", joined(joined(int4, sampled), {"--weight-rounding", "nearest", "--calibration-method", "min_max"}));
    CHECK_FALSE(has_step(flags, "compensation"));
    CHECK_FALSE(has_step(flags, "ranges by"));
    std::ofstream(place("requests.json")) << R"({"default": {"activation": "int8@min_max", "weight": "int4@nearest"},
                                                 "bias_correction": false, "smooth_quant": false})";
    const json keys = said(place, "b.onnx", joined({"--plan", place("requests.json")}, sampled));
    CHECK(keys["recipe"]["name"] == "balanced");
    CHECK(keys["recipe"]["steps"].empty());
    said(place, "c.onnx", joined({"--recipe", "fast", "--activation", "int8@min_max", "--weight", "int4"}, sampled));
    CHECK(qk_test::content(place("b.onnx")) == qk_test::content(place("c.onnx")));
}

TEST_CASE("a plan that is saved and the float model are the file, whatever was done to weights and biases") {
    const qk_test::scratch place;
    const std::vector<words> ways{{},
                                  {"--recipe", "best", "--iterations", "20"},
                                  {"--bias-correction"},
                                  {"--weight-rounding", "compensated", "--bias-correction"},
                                  {"--weight-rounding", "adaround", "--iterations", "20"},
                                  {"--smooth-quant", "0.5"}};
    for (const words& formats : {int8, int4, mx})
        for (const words& way : ways) {
            const words asked = joined(joined(formats, sampled), way);
            said(place, "alone.onnx", asked);
            said(place, "a.onnx", joined(asked, {"--save-plan", place("plan.json")}));
            CHECK(qk_test::content(place("alone.onnx")) == qk_test::content(place("a.onnx")));
            const json again = said(place, "b.onnx", joined({"--plan", place("plan.json")}, sampled));
            CHECK(again["recipe"]["name"] == "fast");
            CHECK(qk_test::content(place("a.onnx")) == qk_test::content(place("b.onnx")));
        }
    const auto refused = quantize(place, "c.onnx", joined({"--plan", place("plan.json"), "--recipe", "balanced"}, sampled));
    CHECK(refused.status == 2);
    CHECK(refused.err.find("is a saved plan, to which a recipe adds nothing") != std::string::npos);
}

TEST_CASE("a report and a log do not change the model") {
    const qk_test::scratch place;
    const words asked = joined(int4, sampled);
    for (const words& formats : {asked, joined({"--target", "vitis_ai"}, sampled)}) {  // whose scales need histograms
        REQUIRE(quantize(place, "alone.onnx", formats).status == 0);
        REQUIRE(quantize(place, "beside.onnx", joined(formats, {"--report", place("r.html"), "--log", place("l.txt")})).status == 0);
        CHECK(qk_test::content(place("alone.onnx")) == qk_test::content(place("beside.onnx")));
    }
}

TEST_CASE("a search writes the same model beside a plan, a report and a cache; plan and float model are the file") {
    const qk_test::scratch place;
    for (const std::string recipe : {"balanced", "best"}) {
        INFO(recipe);
        const auto search = [&](const std::string& out, const words& more) {
            const auto done =
                qk_test::run_tool(joined({"search",     model,      "--inputs",       images,     "--samples", "24",       "--threads",
                                          "1",          "--recipe", recipe,           "--narrow", "int8/int4", "--metric", "sqnr",
                                          "--strategy", "budget",   "--budget-ratio", "0.7",      "--json",    "-o",       place(out)},
                                         more));
            INFO(done.err);
            REQUIRE(done.status == 0);
            return json::parse(done.out);
        };
        const json alone = search(recipe + "_alone.onnx", {}),
                   beside = search(recipe + "_beside.onnx", {"--save-plan", place(recipe + "_plan.json"), "--report",
                                                             place(recipe + ".html"), "--cache", place(recipe + ".cache")});
        CHECK(qk_test::content(place(recipe + "_alone.onnx")) == qk_test::content(place(recipe + "_beside.onnx")));
        for (const char* key : {"layers", "metric", "cost"}) CHECK(alone[key] == beside[key]);
        const auto again = qk_test::run_tool({"quantize", model, "--plan", place(recipe + "_plan.json"), "--inputs", images, "--samples",
                                              "24", "-o", place("again.onnx"), "--json", "--overwrite"});
        INFO(again.err);
        REQUIRE(again.status == 0);
        CHECK(qk_test::content(place("again.onnx")) == qk_test::content(place(recipe + "_alone.onnx")));
    }
}

TEST_CASE("best tries steps on samples that nothing learned from, and keeps what measures best") {
    const qk_test::scratch place;
    const json made =
        said(place, "a.onnx", joined(int4, {"--recipe", "best", "--inputs", images, "--samples", "24", "--iterations", "20"}));
    const json& trials = made["recipe"]["trials"];
    REQUIRE(trials.size() > 4);
    CHECK(trials[0]["step"] == "as asked");
    CHECK(made["recipe"]["samples"] == 6);
    CHECK(made["measured"]["of"] == "held-out");
    double best = trials[0]["sqnr"];
    for (std::size_t i = 0; i + 1 < trials.size(); ++i)  // the last is what was learned from every sample
        if (trials[i]["kept"]) best = std::max(best, trials[i]["sqnr"].get<double>());
    CHECK(made["measured"]["sqnr"] == best);
    CHECK(best > trials[0]["sqnr"].get<double>());
    const auto refused = quantize(place, "b.onnx", joined(mx, {"--recipe", "best"}));
    CHECK(refused.status == 2);
    CHECK(refused.err.find("--recipe best learns from samples, and no samples are given") != std::string::npos);
    CHECK(quantize(place, "b.onnx", joined(mx, {"--recipe", "bets"})).err.find("Did you mean 'best'?") != std::string::npos);
}

TEST_CASE("quantize says decibels, and top-1 of float model and file, as evaluate measures them") {
    const qk_test::scratch place;
    const words all{"--inputs", images, "--labels", labels, "--samples", "100"};
    const words apart{"--calibration", images};  // what they are measured on is apart from what they learn from
    const json made = said(place, "a.onnx", joined(joined(joined(int4, all), apart), {"--recipe", "fast", "--report", place("r.html")}));
    const auto measured = [&](const words& more) {
        const auto done = qk_test::run_tool(joined(joined({"evaluate"}, more), joined(all, {"--json"})));
        INFO(done.err);
        REQUIRE(done.status == 0);
        return json::parse(done.out);
    };
    CHECK(made["measured"]["samples"] == 100);
    CHECK(made["measured"]["float_top1"] == measured({model})["top1"]);
    const json planned = measured({model, "--calibration", images, "--activation", "int8", "--weight", "int4", "--metric", "sqnr,top1"});
    CHECK(made["measured"]["top1"] == planned["top1"]);
    CHECK(made["measured"]["sqnr"] == planned["sqnr"]);
    const std::string page = qk_test::content(place("r.html"));
    CHECK(page.find("top-1 of the float model") != std::string::npos);
    CHECK(page.find("recipe fast") != std::string::npos);
    CHECK(quantize(place, "b.onnx", joined(mx, {"--labels", labels})).err.find("unused: option --labels") != std::string::npos);
}

TEST_CASE("verbs for arrays take a scale rule behind the format, too, and keep the standard's where none is named") {
    const qk_test::scratch place;
    const auto converted = [&](const words& how) {
        const auto done = qk_test::run_tool(joined({"convert", images, place("y.npy"), "--overwrite"}, how));
        INFO(done.err);
        CHECK(done.status == 0);
        return qk_test::content(place("y.npy"));
    };
    const std::string even = converted({"--format", "mxfp4@even"}), floor = converted({"--format", "mxfp4"});
    CHECK(even == converted({"--format", "mxfp4", "--scale-rule", "even"}));
    CHECK(floor == converted({"--format", "mxfp4@floor"}));
    CHECK(even != floor);
    const auto refused = [&](const words& how) {
        return qk_test::run_tool(joined({"convert", images, place("y.npy"), "--overwrite"}, how)).err;
    };
    CHECK(refused({"--format", "int8@even"}).find("only MX formats have a scale rule") != std::string::npos);
    CHECK(refused({"--format", "nvfp4@even"}).find("search and four_over_six") != std::string::npos);
    const std::string searched = converted({"--format", "nvfp4@search"});
    CHECK(searched == converted({"--format", "nvfp4", "--scale-rule", "search"}));
    CHECK(searched != converted({"--format", "nvfp4@four_over_six"}));
    CHECK(searched != converted({"--format", "nvfp4"}));
    CHECK(refused({"--format", "mxfp4@even", "--scale-rule", "ceil"}).find("leave --scale-rule out") != std::string::npos);
    CHECK(refused({"--format", "mxfp4@evn"}).find("even") != std::string::npos);
    CHECK(searched != converted({"--format", "nvfp4@search", "--scale-objective", "mae"}));
    CHECK(refused({"--format", "nvfp4", "--scale-objective", "mae"}).find("say --scale-rule search") != std::string::npos);
    CHECK(refused({"--format", "nvfp4@search", "--scale-objective", "weighted"}).find("--importance") != std::string::npos);
}

TEST_CASE("convert searches the scales of formats without blocks of their own, and weighs columns") {
    const qk_test::scratch place;
    std::vector<float> x;
    for (int i = 0; i < 640; ++i) x.push_back(std::sin(static_cast<float>(i)) * std::exp(static_cast<float>(i % 7) / 3));
    qk::graph::write_npy(place("x.npy"), qk::graph::make_tensor<float>({10, 64}, x));
    const auto error = [&](const words& how, std::size_t first = 0, std::size_t step = 1) {
        const auto done = qk_test::run_tool(joined({"convert", place("x.npy"), place("y.npy"), "--overwrite"}, how));
        INFO(done.err);
        REQUIRE(done.status == 0);
        const qk::graph::tensor y = qk::graph::read_npy(place("y.npy"));
        double sum = 0;
        for (std::size_t i = first; i < x.size(); i += step) sum += std::pow(static_cast<double>(x[i] - y.as<float>()[i]), 2);
        return sum;
    };
    const double tensor = error({"--format", "int4@search"}), rows = error({"--format", "int4@search", "--scale-axis", "0"}),
                 blocks = error({"--format", "int4@search", "--scale-block", "16"});
    CHECK(tensor < error({"--format", "int4", "--scale", "0.95"}));
    CHECK(blocks < tensor);
    CHECK(rows <= tensor * 1.0001);
    CHECK(error({"--format", "uint4@search", "--scale-block", "16", "--packed", place("p.npz")}) < tensor);
    CHECK(error({"--format", "fp8_e4m3fn", "--scale-rule", "search", "--scale-block", "16"}) < blocks / 4);
    // A column with all the weight comes out better.
    std::vector<float> w(64, 0.0f);
    w[3] = w[19] = w[35] = w[51] = 1;
    qk::graph::write_npy(place("w.npy"), qk::graph::make_tensor<float>({64}, w));
    const double plain = error({"--format", "nvfp4@search"}, 3, 16);
    CHECK(error({"--format", "nvfp4@search", "--scale-objective", "weighted", "--importance", place("w.npy")}, 3, 16) < plain);
    const auto refused = [&](const words& how) { return qk_test::run_tool(joined({"convert", place("x.npy"), place("z.npy")}, how)).err; };
    CHECK(refused({"--format", "int4", "--scale-block", "16"}).find("or --scale-rule search") != std::string::npos);
    w.resize(7);
    qk::graph::write_npy(place("v.npy"), qk::graph::make_tensor<float>({7}, w));
    CHECK(refused({"--format", "nvfp4@search", "--scale-objective", "weighted", "--importance", place("v.npy")}).find("holds 7 weights") !=
          std::string::npos);
    CHECK(qk_test::run_tool({"compare", place("x.npy"), place("y.npy"), "--format", "int4@search"}).err.find("only `qk convert`") !=
          std::string::npos);
}

TEST_CASE("--scale-objective reaches the plan, and without a search it is unused") {
    const qk_test::scratch place;
    const auto planned = [&](const words& how) {
        const auto done = quantize(place, "a.onnx", joined(joined(how, sampled), {"--recipe", "fast", "--save-plan", place("p.json")}));
        INFO(done.err);
        REQUIRE(done.status == 0);
        return qk_test::content(place("p.json"));
    };
    const words blocked{"--approach", "weight_only", "--weight", "int4", "--weight-block", "32"};
    const std::string rule = planned(blocked), mse = planned(joined(blocked, {"--scale-rule", "search"})),
                      mae = planned(joined(blocked, {"--scale-rule", "search", "--scale-objective", "mae"})),
                      weighted = planned(joined(blocked, {"--scale-rule", "search", "--scale-objective", "weighted"}));
    CHECK(rule != mse);
    CHECK(mse != mae);
    CHECK(mse != weighted);
    CHECK(mae.find("\"mae\"") != std::string::npos);
    CHECK(weighted.find("\"weighted\"") != std::string::npos);
    CHECK(quantize(place, "b.onnx", joined(blocked, {"--recipe", "fast", "--scale-objective", "mae"}))
              .err.find("unused: option --scale-objective") != std::string::npos);
}

TEST_CASE("--time asks a python that has onnxruntime, and says where there is none") {
    const qk_test::scratch place;
    std::ofstream(place("python")) << "#!/bin/sh\nif [ \"$1\" = -c ]; then echo yes; else echo onnxruntime 9.9 2.5 1.25 0.5; fi\n";
    std::filesystem::permissions(place("python"), std::filesystem::perms::owner_all);
    ::setenv("QK_PYTHON", place("python").c_str(), 1);
    const json timed = said(place, "a.onnx", joined(mx, {"--time"}));
    CHECK(timed["float_milliseconds"] == 2.5);
    CHECK(timed["milliseconds"] == 1.25);
    CHECK(timed["operators_milliseconds"] == 0.5);
    ::setenv("QK_PYTHON", place("nothing").c_str(), 1);
    const auto without = quantize(place, "b.onnx", joined(mx, {"--time"}));
    ::unsetenv("QK_PYTHON");
    CHECK(without.status == 0);
    CHECK(without.err.find("not timed: no python with onnxruntime and numpy was found") != std::string::npos);
    CHECK(std::filesystem::exists(place("b.onnx")));
}

TEST_CASE("a search follows recipes, too") {
    const qk_test::scratch place;
    const auto search = [&](const std::string& narrow, const words& more) {
        return qk_test::run_tool(joined({"search",   model,       "--inputs",    images, "--samples",    "24",     "--threads",      "1",
                                         "--wide",   "int8/int8", "--narrow",    narrow, "--strategy",   "budget", "--budget-ratio", "0.6",
                                         "--metric", "sqnr",      "--overwrite", "-o",   place("m.onnx")},
                                        more));
    };
    const auto plain = search("int8/int4", {});
    CHECK(plain.err.find("recipe balanced (samples are given): calibration method by measurement; weights below 8 bits rounded with "
                         "compensation") != std::string::npos);
    const std::string found = qk_test::content(place("m.onnx"));
    CHECK(search("int8/int4@compensated", {"--recipe", "fast", "--calibration-method", "best"}).status == plain.status);
    CHECK(qk_test::content(place("m.onnx")) == found);
    CHECK(search("int8/int4", {"--recipe", "fast"}).err.find("recipe") == std::string::npos);
}
