// SPDX-License-Identifier: Apache-2.0
// The command line takes the names in the model's file, and counts, orders and words things consistently.
#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>

#include "run_tool.hpp"

namespace {

using words = std::vector<std::string>;
using json = nlohmann::ordered_json;

const std::string folder = std::string(QK_SOURCE_DIR) + "/examples/digits/", model = folder + "digits.onnx";
const words data{"--calibration", folder + "test_images.npy"}, inputs{"--inputs", folder + "test_images.npy", "--samples", "20"};

words operator+(words a, const words& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}
bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
std::size_t lines_with(const std::string& text, const std::string& start) {
    std::size_t n = 0;
    for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) == std::string::npos ? text.size() : text.find('\n', at) + 1)
        n += text.compare(at, start.size(), start) == 0;
    return n;
}
qk_test::outcome done(const words& w) {
    const auto r = qk_test::run_tool(w);
    INFO(r.err);
    CHECK(r.status == 0);
    return r;
}
std::string write(const qk_test::scratch& place, const std::string& text, const std::string& name = "requests.json") {
    std::ofstream(place(name)) << text;
    return place(name);
}

}  // namespace

TEST_CASE("inspect --tensors: every name, in network order, and what it became") {
    const json all = json::parse(done({"inspect", model, "--tensors", "--json"}).out);
    const auto& tensors = all.at("tensors");
    const auto place = [&](const std::string& name) {
        const auto i = std::find_if(tensors.begin(), tensors.end(), [&](const json& t) { return t["name"] == name; });
        REQUIRE(i != tensors.end());
        return std::distance(tensors.begin(), i);
    };
    const auto row = [&](const std::string& name) { return tensors[static_cast<std::size_t>(place(name))]; };
    CHECK(tensors[0]["name"] == "image");
    CHECK(tensors[0]["kind"] == "model input");
    CHECK(row("stem.weight")["became"] == json::array({"stem_folded_weight"}));
    CHECK(row("stem.weight")["kind"] == "weight");
    CHECK(row("stem.weight")["shape"] == json::array({24, 1, 3, 3}));
    CHECK(row("stem.out")["became"] == json::array({"norm.out"}));
    CHECK(row("stem.out")["shape"].size() == 4);
    CHECK(row("norm.mean")["became"] == json::array({"stem_folded_bias"}));
    CHECK(row("relu.out")["became"].empty());
    CHECK(row("logits")["kind"] == "model output");
    CHECK(row("stem_folded_weight")["kind"] == "weight, made by folding");
    CHECK(place("stem.weight") < place("stem.out"));
    CHECK(place("stem.out") < place("relu.out"));
    CHECK(place("block2.relu1.out") < place("block5.relu2.out"));
    CHECK(place("relu.out") < place("head.weight"));
    const auto& layers = all.at("layer_names");
    const auto norm = std::find_if(layers.begin(), layers.end(), [](const json& l) { return l["name"] == "norm"; });
    REQUIRE(norm != layers.end());
    CHECK((*norm)["became"] == json::array({"stem"}));
    // `inspect --tensors` says what became of a folded node.
    const std::string text = done({"inspect", model, "--tensors"}).out;
    CHECK(contains(text, "BatchNormalization 'norm' was folded into Conv 'stem'"));
}

TEST_CASE("requests, explain, --layers, plans and encodings take the names of the file") {
    const qk_test::scratch place;
    const std::string asked = write(
        place,
        R"({"default": {"activation": "int8", "weight": "int8"}, "requests": [{"tensor": ["stem.weight", "stem.out"], "format": "int16"}]})");
    const auto r =
        done(words{"quantize", model, "--plan", asked, "--strict", "--save-plan", place("p.json"), "--log", place("l.txt")} + data);
    CHECK(contains(r.err, "tensor 'stem.weight': is 'stem_folded_weight' now"));
    CHECK(contains(qk_test::content(place("l.txt")), "tensor 'stem.out': is 'norm.out' now"));
    CHECK(json::parse(qk_test::content(place("p.json")))["tensors"]["stem_folded_weight"]["format"] == "int16");

    const auto why = done(words{"explain", model, "stem.weight", "--activation", "int8", "--weight", "int8"} + data);
    CHECK(contains(why.out, "'stem.weight' is 'stem_folded_weight' now: BatchNormalization 'norm' was folded into Conv 'stem'"));
    CHECK(contains(why.out, "'stem' (Conv) weight: int8"));
    const json j =
        json::parse(done(words{"explain", model, "stem.weight", "--activation", "int8", "--weight", "int8", "--json"} + data).out);
    CHECK(j["became"][0]["tensor"] == "stem_folded_weight");
    CHECK(j["edges"].size() == 1);
    // Explains a saved plan as well.
    const auto saved = done({"explain", model, "relu.out", "--plan", place("p.json")});
    CHECK(contains(saved.out, "int16"));
    CHECK(contains(saved.out, "saved plan"));

    const auto layer =
        done(words{"sensitivity", model, "--layers", "norm", "--wide", "int16/int8", "--narrow", "int8/int4", "--json"} + inputs);
    CHECK(contains(layer.err, "'norm' is part of 'stem' now"));
    for (const json& row : json::parse(layer.out)["sensitivity"]) CHECK(row["layer"] == "stem");

    const std::string encodings = write(place, R"({"version": "1.0.0", "activation_encodings": [], "param_encodings": [
        {"name": "stem.weight", "enc_type": "PER_TENSOR", "dtype": "INT", "bw": 8, "is_sym": true, "scale": [0.01], "offset": [-128]}]})",
                                        "e.json");
    const auto from = done({"quantize", model, "--plan", encodings, "--save-plan", place("q.json")});
    CHECK(contains(from.err, "its scales were multiplied likewise"));
    CHECK(json::parse(qk_test::content(place("q.json")))["tensors"]["stem_folded_weight"]["scale"].size() == 24);
}

TEST_CASE("one run has one count of quantized edges and one of remarks") {
    const qk_test::scratch place;
    const auto r = done(words{"quantize", model, "--activation", "int8", "--weight", "int8", "-o", place("q.onnx"), "--save-plan",
                              place("p.json"), "--report", place("r.html"), "--log", place("l.txt")} +
                        data);
    std::smatch said;
    REQUIRE(std::regex_search(r.out, said, std::regex("([0-9]+) quantized edges, ([0-9]+) remarks")));
    const std::string edges = said[1], remarks = said[2], page = qk_test::content(place("r.html")), log = qk_test::content(place("l.txt"));
    CHECK(contains(page, "<b>" + edges + "</b><span>quantized edges"));
    CHECK(contains(page, "<b>" + remarks + "</b><span>remarks"));
    const json summary = json::parse(qk_test::content(place("r.json")));
    CHECK(summary["quantized_edges"] == std::stoi(edges));
    CHECK(summary["edges"].size() == std::stoul(edges));
    CHECK(lines_with(log, "tensor '") == std::stoul(edges));
    // A run with the saved plan reports as many edges.
    const auto again = done({"quantize", model, "--plan", place("p.json"), "--log", place("l2.txt"), "--save-plan", place("p2.json")});
    CHECK(contains(again.out, edges + " quantized edges"));
    CHECK(lines_with(qk_test::content(place("l2.txt")), "tensor '") == std::stoul(edges));
    // The log is in network order, not alphabetical.
    CHECK(log.find("tensor 'image'") < log.find("tensor 'relu.out'"));
    CHECK(log.find("tensor 'relu.out'") < log.find("tensor 'block1."));
    CHECK(log.find("tensor 'block5.") < log.find("tensor 'head.weight'"));
    const std::string ranges = done(words{"calibrate", model} + inputs).out;
    CHECK(ranges.find("\nimage") < ranges.find("\nnorm.out"));
    CHECK(ranges.find("\nnorm.out") < ranges.find("\nblock1.norm1.out"));
}

TEST_CASE("BF16 with BFP16 by layer: one line on the console, with the option that gives each layer its own") {
    const qk_test::scratch place;
    const std::string asked = write(place, R"({"default": {"activation": "bf16", "weight": "bf16"}, "placement": "all",
        "requests": [{"op_type": ["Conv", "ConvTranspose", "Gemm", "MatMul"], "input": "bfp16", "weight": "bfp16"}]})");
    const auto wider = done({"quantize", model, "--plan", asked, "--save-plan", place("p.json"), "--log", place("l.txt")});
    CHECK(lines_with(wider.err, "boundary:") == 1);
    CHECK(contains(wider.err, "(bf16 instead of bfp16): --dual"));
    CHECK(lines_with(qk_test::content(place("l.txt")), "boundary:") > 1);
    CHECK(contains(wider.err, "absent: "));
    CHECK_FALSE(contains(wider.err, "unmatched"));
    CHECK(lines_with(done({"quantize", model, "--plan", asked, "--dual", "--save-plan", place("d.json")}).err, "boundary:") == 0);
}

TEST_CASE("requests without an effect, operator types that are not there, plans that change nothing") {
    const qk_test::scratch place;
    const std::string asked =
        write(place, R"({"default": {"activation": "int8", "weight": "int8"}, "requests": [{"layer": "*relu*", "activation": "int16"}]})");
    const auto r = done(words{"quantize", model, "--plan", asked, "--save-plan", place("p.json")} + data);
    CHECK(contains(r.err, "has no effect"));
    CHECK(contains(r.err, "'stem'"));
    const auto strict = qk_test::run_tool(words{"quantize", model, "--plan", asked, "--strict", "--save-plan", place("never.json")} + data);
    CHECK(strict.status == 2);
    CHECK(contains(strict.err, "has no effect"));
    CHECK_FALSE(std::filesystem::exists(place("never.json")));

    const words search = words{"sensitivity", model, "--wide", "int16/int8", "--narrow", "int8/int8"} + inputs + words{"--op-types"};
    CHECK(contains(done(search + words{"Conv,ConvTranspose,Gemm,MatMul"}).err, "--op-types ConvTranspose: the model has no such layer"));
    const auto none = qk_test::run_tool(search + words{"ConvTranspose,MatMul"});
    CHECK(none.status == 2);
    CHECK(contains(none.err, "no layer is left to search"));

    for (const words& w : {words{"--plan", write(place, "{}", "empty.json")}, words{"--activation", "fp32", "--weight", "fp32"},
                           words{"--plan", write(place, R"({"qk": "plan", "version": 1})", "saved.json")}}) {
        const auto nothing = done(words{"quantize", model, "-o", place("same.onnx")} + w);
        CHECK(contains(nothing.err, "the plan changes nothing"));
    }
}

TEST_CASE("numbers out of range are refused in words") {
    const words quantize = words{"quantize", model, "--activation", "int8", "--weight", "int8", "--save-plan", "/dev/null"} +
                           words{"--inputs", folder + "test_images.npy"};
    const words search = words{"search", model, "--wide", "int8/int8", "--narrow", "int8/int4", "--inputs", folder + "test_images.npy"};
    const auto refuse = [](const words& w, const std::string& part) {
        const auto r = qk_test::run_tool(w);
        INFO(r.err);
        CHECK(r.status == 2);
        CHECK(contains(r.err, part));
        CHECK(r.err.size() < 300);
        CHECK_FALSE(contains(r.err, "not in range"));
    };
    refuse(quantize + words{"--samples", "0"}, "'0' is not a whole number of at least 1; leave --samples out to use all of them");
    refuse(quantize + words{"--samples", "many"}, "'many' is not a whole number");
    refuse(quantize + words{"--threads", "0"}, "from 1 to 1024");
    refuse(quantize + words{"--weight-block", "0"}, "how many weights share a scale");
    refuse(quantize + words{"--percentile", "20"}, "from 50 to 100");
    refuse(words{"evaluate", model, "--inputs", folder + "test_images.npy", "--batch", "0"}, "leave --batch out");
    refuse(search + words{"--target-top1-drop", "2"}, "0.01 is one percentage point");
    refuse(search + words{"--budget-ratio", "-1"}, "0.5 is half");
    refuse(search + words{"--wide-share", "nan"}, "from 0 to 1");
    refuse(search + words{"--budget", "-3"}, "of at least 0");
}

TEST_CASE("charts show what each layer adds, and metrics are defined where they are read") {
    const qk_test::scratch place;
    const words mix{"--wide", "int16/int8", "--narrow", "int8/int8", "--report"};
    done(words{"sensitivity", model} + inputs + mix + words{place("s.html")});
    const json s = json::parse(qk_test::content(place("s.json")));
    for (const json& row : s["sensitivity"])
        CHECK(row["added"].get<double>() == doctest::Approx(row["error"].get<double>() - s["base_error"].get<double>()));
    CHECK(contains(s["metric_definition"].get<std::string>(), "2-norm"));
    CHECK(contains(qk_test::content(place("s.html")), "What narrowing each layer alone adds to the output&#39;s mean squared error"));
    CHECK(contains(qk_test::content(place("s.html")), "sqrt(sum of (y - r)^2)"));
    done(words{"search", model} + inputs + mix + words{place("m.html"), "--target-l2", "5"});
    CHECK(contains(qk_test::content(place("m.html")), "What narrowing each layer alone adds"));
    for (const char* verb : {"sensitivity", "search"}) {
        const std::string help = done({verb, "--help"}).out;
        for (const char* definition : {"sqrt(sum of (y - r)^2)", "10 log10(sum of r^2", "-ln p(y)[label]", "of an output [N,S,C]"})
            CHECK(contains(help, definition));
    }
}
