// SPDX-License-Identifier: Apache-2.0
// `qk evaluate`: what it prints and writes, and the three exit statuses.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "../data_folders.hpp"
#include "../graph/build_model.hpp"
#include "qk/graph/files/npy.hpp"
#include "run_tool.hpp"

namespace fs = std::filesystem;
using qk_test::run_tool;

TEST_CASE("evaluate: outputs, comparison, errors") {
    const fs::path network = qk_test::residual_network(qk_test::data_with("reference")[0]);
    const std::string model = network.string(), input = qk_test::reference_of(network, "input.input").string();
    const qk_test::scratch place;
    fs::create_directory(place("expected"));
    fs::copy_file(qk_test::reference_of(network, "output.logits"), place("expected/logits.npy"));

    const auto good = run_tool({"evaluate", model, "--inputs", "input=" + input, "--compare", place("expected"), "--output-dir",
                                place("out"), "--json", "--threads", "2"});
    CHECK(good.status == 0);
    const auto json = nlohmann::json::parse(good.out);
    CHECK(json["samples"] == 16);
    CHECK(json["compare"]["logits"]["max_rel"] <= 1e-4);
    CHECK(json["peak_bytes"] > 0);
    CHECK_FALSE(json.contains("top1"));
    CHECK(fs::exists(place("out/logits.npy")));

    const auto narrow = run_tool({"evaluate", model, "--inputs", input, "--activation", "mxfp4", "--weight", "mxfp4", "--compare",
                                  place("expected"), "--json", "--samples", "16"});
    CHECK(narrow.status == 1);  // outputs differ from the expected ones; results are printed all the same
    CHECK(nlohmann::json::parse(narrow.out)["compare"]["logits"]["max_rel"] > 1e-4);

    const auto typo = run_tool({"evaluate", model, "--inputs", "image=" + input, "--output-dir", place("none")});
    CHECK(typo.status == 2);
    CHECK(typo.err.find("image") != std::string::npos);
    CHECK_FALSE(fs::exists(place("none")));
    CHECK(run_tool({"evaluate", model, "--inputs", input, "--activation", "int9x", "--weight", "int8"}).status == 2);
    CHECK(run_tool({"evaluate", place("missing.onnx"), "--inputs", input}).status == 2);
}

TEST_CASE("evaluate: --compare takes another model, which runs on the same inputs") {
    const fs::path network = qk_test::residual_network(qk_test::data_with("reference")[0]);
    const std::string model = network.string(), input = qk_test::reference_of(network, "input.input").string();
    const qk_test::scratch place;
    const std::string narrow = place("narrow.onnx");
    REQUIRE(run_tool({"quantize", model, "--weight", "int8", "--approach", "weight_only", "-o", narrow}).status == 0);
    const auto done = run_tool({"evaluate", narrow, "--inputs", input, "--compare", model, "--metric", "sqnr", "--json"});
    CHECK(done.status == 1);  // beyond the tolerance, which is for equal models
    const auto json = nlohmann::json::parse(done.out);
    const double share = json["compare"]["logits"]["max_rel"], sqnr = json["sqnr"];
    CHECK(share > 1e-4);
    CHECK(share < 0.1);
    CHECK(sqnr > 25);
    CHECK(sqnr < 60);
    CHECK(run_tool({"evaluate", model, "--inputs", input, "--compare", model}).status == 0);
    const auto other =
        run_tool({"evaluate", model, "--inputs", input, "--compare", std::string(QK_SOURCE_DIR) + "/examples/digits/digits.onnx"});
    CHECK(other.status == 2);
    CHECK(other.err.find("image") != std::string::npos);
}

TEST_CASE("evaluate: weights whose scales are weighted by what layers read are compared with the float model's") {
    const fs::path network = qk_test::residual_network(qk_test::data_with("reference")[0]);
    const std::string model = network.string(), input = qk_test::reference_of(network, "input.input").string();
    for (const char* format : {"nvfp4", "int4"}) {
        const auto done = run_tool({"evaluate", model, "--inputs", input, "--approach", "weight_only", "--weight", format, "--scale-rule",
                                    "search", "--scale-objective", "weighted", "--metric", "sqnr", "--json"});
        REQUIRE_MESSAGE(done.status == 0, done.err);
        const auto sqnr = nlohmann::json::parse(done.out)["sqnr"];  // null, for no noise at all, where it was compared with itself
        REQUIRE_MESSAGE(sqnr.is_number(), format);
        CHECK(sqnr < 60);
    }
}

TEST_CASE("outputs whose names become one file name, or too long a one, have files of their own, which --compare finds") {
    const qk_test::scratch place;
    const std::string lengthy = std::string(299, 'n') + "\xc3\xa4";
    qk_test::builder b;
    b.input("x", {1, 2}).output("a/b", {1, 2}).output("a_b", {1, 2}).output("a:b", {1, 2}).output(lengthy, {1, 2});
    b.node("Relu", {"x"}, {"a/b"}, "p"), b.node("Neg", {"x"}, {"a_b"}, "q"), b.node("Abs", {"x"}, {"a:b"}, "r"),
        b.node("Sign", {"x"}, {lengthy}, "s");
    std::ofstream(place("m.onnx"), std::ios::binary) << b.bytes();
    qk::graph::write_npy(place("x.npy"), qk::graph::make_tensor<float>({1, 2}, std::vector<float>{3, -2}));
    const auto done = run_tool({"evaluate", place("m.onnx"), "--inputs", place("x.npy"), "--output-dir", place("out"), "--json"});
    CAPTURE(done.err);
    REQUIRE(done.status == 0);
    const auto second = [&](const std::string& file) { return qk::graph::read_npy(place("out/" + file)).as<float>()[1]; };
    CHECK(second("a_b.npy") == 0);
    CHECK(second("a_b-2.npy") == 2);
    CHECK(second("a_b-3.npy") == 2);
    CHECK(second(std::string(200, 'n') + "~.npy") == -1);
    CHECK(nlohmann::json::parse(done.out)["files"]["a_b"] == "a_b-2.npy");
    CHECK(run_tool({"evaluate", place("m.onnx"), "--inputs", place("x.npy"), "--compare", place("out")}).status == 0);
}
