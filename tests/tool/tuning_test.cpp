// SPDX-License-Identifier: Apache-2.0
// A search may choose more than formats: calibration method, scheme, granularity and rounding of weights, for all layers, by operator type
// or by layer.
#include <doctest/doctest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "run_tool.hpp"

namespace {

using words = std::vector<std::string>;
using nlohmann::json;

const std::string folder = std::string(QK_SOURCE_DIR) + "/examples/digits/";
const std::string model = folder + "digits.onnx", images = folder + "test_images.npy";

qk_test::outcome run(const std::string& verb, words more) {
    more.insert(more.begin(), {verb, model, "--inputs", images, "--samples", "60", "--threads", "1", "--json", "--wide", "bf16/bf16"});
    if (verb == "search") more.insert(more.end(), {"--recipe", "fast"});  // nothing but the choices
    return qk_test::run_tool(more);
}
json said(const std::string& verb, const words& more) {
    const auto done = run(verb, more);
    INFO(done.err);
    REQUIRE(done.status == 0);
    return json::parse(done.out);
}

/// Returns by layer the metric when that layer alone is narrowed to `option`.
std::map<std::string, double> measured(const json& result, const std::string& option) {
    std::map<std::string, double> all;
    for (const json& row : result["sensitivity"])
        if (row["option"] == option && row["part"] == "layer") all[row["layer"]] = row["metric"];
    return all;
}

/// Options of a search whose budget every narrow option meets and no wide one.
const words all_narrow{"--strategy", "budget", "--budget-ratio", "0.643", "--metric", "sqnr"};

}  // namespace

TEST_CASE("alternatives are choices, and each is what asking for it alone is") {
    const json all = said("sensitivity", {"--percentile", "95", "--narrow", "int8@min_max|percentile/int8@per_tensor|per_channel"});
    std::set<double> distinct;
    for (const std::string method : {"min_max", "percentile"})
        for (const std::string scale : {"per_tensor", "per_channel"}) {
            words alone{"--percentile", "95", "--narrow", "int8/int8", "--calibration-method", method};
            if (scale == "per_tensor") alone.push_back("--per-tensor");
            const auto one = measured(said("sensitivity", alone), "int8/int8"), here = measured(all, "int8@" + method + "/int8@" + scale);
            INFO(method, " ", scale);
            CHECK(one.size() > 2);
            CHECK(here == one);
            distinct.insert(here.begin()->second);
        }
    CHECK(distinct.size() == 4);
}

TEST_CASE("a model that a search wrote under a choice is the one that quantize writes when asked for it, byte for byte") {
    const qk_test::scratch place;
    std::ofstream(place("unsigned.json")) << R"({"name": "unsigned", "int8_weights": "unsigned"})";
    const auto same = [&](const std::string& choice, words search, words quantize) {
        INFO(choice);
        const std::string ratio = choice.find("int4") == std::string::npos ? "0.25" : "0.125";  // of 16 by 16 bits, all layers narrow
        search.insert(search.end(), {"--narrow", choice, "-o", place("found.onnx"), "--strategy", "budget", "--metric", "sqnr", "--cost",
                                     "bit_operations", "--budget-ratio", ratio});
        const json found = said("search", search);
        for (const auto& [layer, option] : found["layers"].items()) CHECK(option == choice);
        quantize.insert(quantize.begin(), {"quantize", model, "--recipe", "fast", "--inputs", images, "--samples", "60", "--dual", "-o",
                                           place("asked.onnx"), "--overwrite"});
        const auto asked = qk_test::run_tool(quantize);
        INFO(asked.err);
        REQUIRE(asked.status == 0);
        CHECK(qk_test::content(place("found.onnx")) == qk_test::content(place("asked.onnx")));
    };
    same("int8@entropy/int8@per_channel", {},
         {"--activation", "int8", "--weight", "int8", "--calibration-method", "entropy", "--per-channel"});
    same("int8@sym@mse/int8", {}, {"--activation", "int8", "--weight", "int8", "--calibration-method", "mse", "--symmetric"});
    same("int8/int8@asym", {}, {"--activation", "int8", "--weight", "int8", "--asymmetric-weights"});
    // int8 weights are pair-safe in both, in scales, codes and how they are stored; a target may want them rounded to nearest in both.
    same("int8/int8", {}, {"--activation", "int8", "--weight", "int8"});
    same("int8/int8@compensated", {}, {"--activation", "int8", "--weight", "int8", "--weight-rounding", "compensated"});
    same("int8/int8", {"--target", place("unsigned.json")},
         {"--activation", "int8", "--weight", "int8", "--target", place("unsigned.json")});
    same("int8/int4@compensated", {}, {"--activation", "int8", "--weight", "int4", "--weight-rounding", "compensated"});
    same("int8/int4@nearest", {}, {"--activation", "int8", "--weight", "int4"});
}

TEST_CASE("a search's int8 weights are pair-safe: its saved plan holds the values that were moved, and makes the same file") {
    const qk_test::scratch place;
    const json found = said("search", {"--narrow", "int8/int8", "--strategy", "budget", "--metric", "sqnr", "--cost", "bit_operations",
                                       "--budget-ratio", "0.5", "-o", place("found.onnx"), "--save-plan", place("plan.json")});
    CHECK(found["target_met"] == true);
    CHECK_FALSE(json::parse(qk_test::content(place("plan.json"))).value("moved", json::object()).empty());
    const auto again = qk_test::run_tool({"quantize", model, "--plan", place("plan.json"), "-o", place("again.onnx")});
    INFO(again.err);
    REQUIRE(again.status == 0);
    CHECK(qk_test::content(place("found.onnx")) == qk_test::content(place("again.onnx")));
    CHECK(again.err.find("int8 weights written as uint8") == std::string::npos);
}

TEST_CASE("a search takes from its choices what does best, and lists in a requests file are the same search") {
    // The 95th percentile clips the largest values, so min_max does better at the same cost.
    words flags{"--percentile", "95", "--narrow", "int8@percentile|min_max/int8"};
    flags.insert(flags.end(), all_narrow.begin(), all_narrow.end());
    json found = said("search", flags);
    std::map<std::string, int> chosen;
    for (const auto& [layer, option] : found["layers"].items()) ++chosen[option];
    INFO(found["layers"].dump());
    CHECK(chosen["int8@min_max/int8"] > chosen["int8@percentile/int8"]);

    const qk_test::scratch place;
    std::ofstream(place("space.json"))
        << R"({"default": {"activation": {"format": "int8", "method": ["percentile", "min_max"]}, "weight": "int8"}})";
    words file{"--percentile", "95", "--plan", place("space.json")};
    file.insert(file.end(), all_narrow.begin(), all_narrow.end());
    json again = said("search", file);
    for (const char* key : {"seconds", "peak_bytes"}) found.erase(key), again.erase(key);
    CHECK(found == again);
}

TEST_CASE("compensated rounding is chosen where it does better, and measured as it will be written") {
    const qk_test::scratch place;
    const json found = said("search", {"--labels", folder + "test_labels.npy", "--narrow", "int8/int4@nearest|compensated", "-o",
                                       place("mixed.onnx"), "--strategy", "budget", "--budget-ratio", "0.55", "--metric", "top1"});
    std::size_t compensated = 0;
    for (const auto& [layer, option] : found["layers"].items()) compensated += option == "int8/int4@compensated";
    CHECK(compensated > 0);
    CHECK(found["plan"]["moved"].size() >= compensated);
    const auto again = qk_test::run_tool(
        {"evaluate", place("mixed.onnx"), "--inputs", images, "--labels", folder + "test_labels.npy", "--samples", "60", "--json"});
    INFO(again.err);
    REQUIRE(again.status == 0);
    CHECK(json::parse(again.out)["top1"] == found["metric"]);
}

TEST_CASE("choices by type and by layer: nobody is offered another's, and the latest request decides") {
    const qk_test::scratch place;
    const json inspected = json::parse(qk_test::run_tool({"sensitivity", model, "--inputs", images, "--samples", "4", "--json"}).out);
    std::string a_conv;
    for (const json& row : inspected["sensitivity"])
        if (row["op_type"] == "Conv") a_conv = row["layer"];
    REQUIRE(!a_conv.empty());
    std::ofstream(place("space.json"))
        << R"({"requests": [{"op_type": ["Conv", "ConvTranspose"], "activation": {"format": "int8", "method": ["min_max", "entropy"]},
                             "weight": {"format": "int8", "granularity": ["per_tensor", "per_channel"]}},
                            {"layer": ")"
        << a_conv << R"(", "activation": {"format": "int8", "scheme": ["sym", "asym"]}}]})";
    const json all = said("sensitivity", {"--narrow", "int8/int4", "--plan", place("space.json")});
    std::map<std::string, std::set<std::string>> options;
    std::map<std::string, std::string> type;
    for (const json& row : all["sensitivity"]) options[row["layer"]].insert(row["option"]), type[row["layer"]] = row["op_type"];
    CHECK(options.size() > 2);
    for (const auto& [layer, own] : options) {
        INFO(layer);
        if (layer == a_conv) CHECK(own == std::set<std::string>{"int8@sym/int4", "int8@asym/int4"});
        else if (type[layer] == "Conv")
            CHECK(own == std::set<std::string>{"int8@min_max/int8@per_tensor", "int8@min_max/int8@per_channel",
                                               "int8@entropy/int8@per_tensor", "int8@entropy/int8@per_channel"});
        else CHECK(own == std::set<std::string>{"int8/int4"});
    }
    // Options on the command line give the same result, and every strategy chooses only among the offered options.
    const json flags =
        said("sensitivity", {"--narrow", "int8/int4", "--narrow-for", "Conv=int8@min_max|entropy/int8@per_tensor|per_channel",
                             "--narrow-for", a_conv + "=int8@sym|asym/int4"});
    CHECK(flags["sensitivity"] == all["sensitivity"]);
    for (const char* strategy : {"greedy", "pareto", "budget", "basic", "mse", "bayesian", "random"}) {
        INFO(strategy);
        const json found = said("search", {"--narrow", "int8/int4", "--plan", place("space.json"), "--strategy", strategy, "--target-sqnr",
                                           "5", "--max-trials", "80"});
        for (const auto& [layer, option] : found["layers"].items())
            CHECK((option == "bf16/bf16" || options[layer].contains(option.get<std::string>())));
    }
}

TEST_CASE("the best calibration method inside a search: said, and the same search as under its name") {
    for (const std::string verb : {"search", "sensitivity"}) {
        const auto with = [&](const std::string& method) {
            words w{"--narrow", "int8/int4", "--metric", "sqnr", "--calibration-method", method};
            if (verb == "search") w.insert(w.end(), {"--strategy", "budget", "--budget-ratio", "0.45"});
            return said(verb, w);
        };
        json best = with("best");
        std::string remark;
        for (const json& r : best["remarks"])
            if (r.get<std::string>().starts_with("calibration method ")) remark = r;
        REQUIRE(!remark.empty());
        CHECK(remark.find(", by sqnr with int8/int4 everywhere: min_max ") != std::string::npos);
        json named = with(remark.substr(19, remark.find(',') - 19));
        for (const char* key : {"seconds", "peak_bytes", "remarks", "evaluations", "layer_evaluations", "naive_layer_evaluations"})
            best.erase(key), named.erase(key);
        CHECK(best == named);
    }
}

TEST_CASE("what says nothing about a format, a layer or a side is an error with the nearest name") {
    const qk_test::scratch place;
    const auto refuse = [&](const words& more, const words& says) {
        const auto done = run("sensitivity", more);
        CHECK(done.status == 2);
        for (const std::string& s : says) {
            INFO(done.out, done.err, " lacks ", s);
            CHECK((done.out + done.err).find(s) != std::string::npos);
        }
    };
    refuse({"--narrow", "int8@entrpy/int8"}, {"'entrpy'", "Did you mean 'entropy'"});
    refuse({"--narrow", "int8/int8@per_chanel"}, {"Did you mean 'per_channel'"});
    refuse({"--narrow", "int8/int8@entropy"}, {"no word for weights"});
    refuse({"--narrow", "int8@per_channel/int8"}, {"no word for activations"});
    refuse({"--narrow", "int8@min_max|mxe/int8"}, {"'mxe'"});
    refuse({"--narrow-for", "Conv"}, {"--narrow-for", "LAYERS=ACTIVATION/WEIGHT"});
    refuse({"--narrow-for", "Conv=int8@entrpy/int8"}, {"--narrow-for Conv", "Did you mean 'entropy'"});
    refuse({"--narrow-for", "nowhere=int8/int8"}, {"--narrow-for nowhere", "nowhere"});
    const auto file = [&](const std::string& entry) {
        std::ofstream(place("space.json")) << "{\"requests\": [\n" << entry << "]}";
        return words{"--plan", place("space.json")};
    };
    refuse(file(R"({"op_type": "Conv", "activation": {"format": "int8", "method": ["min_max", "entrpy"]}})"), {"space.json:2", "entropy"});
    refuse(file(R"({"op_type": "Conv", "weight": {"format": "int8", "granularity": ["per_chanel"]}})"), {"space.json:2", "per_channel"});
    refuse(file(R"({"op_type": "Conv", "weight": {"format": "int8", "scheme": ["sim"]}})"), {"space.json:2", "sym"});
    refuse(file(R"({"op_type": "Conv", "weight": {"format": "int4", "weight_rounding": ["compensate"]}})"), {"compensated"});
    refuse(file(R"({"op_type": "Conv", "activation": {"format": "int8", "method": []}})"), {"an empty list"});
    refuse(file(R"({"tensor": "x", "activation": {"format": "int8", "method": ["mse"]}})"), {"unknown key 'tensor'"});
    const auto quantize =
        qk_test::run_tool({"quantize", model, "--calibration", images, "--samples", "8", "-o", place("q.onnx"), "--plan",
                           file(R"({"op_type": "Conv", "activation": {"format": "int8", "method": ["min_max", "mse"]}})").back()});
    CHECK(quantize.status == 2);
    CHECK(quantize.err.find("a list is what `qk search` and `qk sensitivity` choose from") != std::string::npos);
}
