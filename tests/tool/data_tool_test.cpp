// SPDX-License-Identifier: Apache-2.0
// What the command says of data and options that would otherwise pass in silence.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "graph/build_model.hpp"
#include "qk/graph/files/npy.hpp"
#include "run_tool.hpp"

using namespace qk::graph;
using nlohmann::json;

namespace {

using words = std::vector<std::string>;

const std::string folder = std::string(QK_SOURCE_DIR) + "/examples/digits/", model_file = folder + "digits.onnx";

words operator+(words a, const words& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Writes images of the digits, without and with a NaN in the samples `bad`, and their labels.
std::string images(const qk_test::scratch& place, std::int64_t samples, const std::vector<std::int64_t>& bad, const std::string& name) {
    const tensor all = read_npy(folder + "test_images.npy");
    dims shape = all.shape();
    shape[0] = samples;
    tensor some(all.type(), shape);
    std::copy_n(all.as<float>().begin(), some.size(), some.as<float>().begin());
    const std::size_t each = some.size() / static_cast<std::size_t>(samples);
    for (const std::int64_t s : bad) some.as<float>()[static_cast<std::size_t>(s) * each + 5] = std::numeric_limits<float>::quiet_NaN();
    write_npy(place(name), some);
    return place(name);
}
std::string labels(const qk_test::scratch& place, std::int64_t samples) {
    tensor all = read_npy(folder + "test_labels.npy");
    write_npy(place("labels.npy"), tensor(all.type(), {samples}, all.buffer()));
    return place("labels.npy");
}
words quantize(const std::string& output, const words& more) { return words{"quantize", model_file, "-o", output, "--overwrite"} + more; }
const words whole{"--activation", "int8", "--weight", "int8"};

void refuse(const words& command, const std::string& says) {
    const auto done = qk_test::run_tool(command);
    INFO(done.err);
    CHECK(done.status == 2);
    CHECK(has(done.err, says));
}

}  // namespace

TEST_CASE("a NaN in calibration stops with sample and tensor, unless bad samples are skipped") {
    const qk_test::scratch place;
    const std::string bad = images(place, 8, {3, 6}, "bad.npy"), good = images(place, 8, {}, "good.npy");
    const std::string says = "sample 3 (from 0) of input '";
    const std::string out = place("q.onnx");
    refuse(quantize(out, whole + words{"--calibration", bad}), says);
    refuse({"calibrate", model_file, "--inputs", bad}, "(2 of 8 samples do)");
    refuse({"sensitivity", model_file, "--inputs", bad, "--wide", "fp32/fp32", "--narrow", "int8/int8"}, says);
    const auto plain = qk_test::run_tool(quantize(out, whole + words{"--calibration", bad, "--skip-bad-samples", "--json"}));
    REQUIRE(plain.status == 0);
    const json summary = json::parse(plain.out);
    CHECK(summary["quantized_edges"] ==
          json::parse(qk_test::run_tool(quantize(out, whole + words{"--calibration", good, "--json"})).out)["quantized_edges"]);
    CHECK_FALSE(has(plain.err, "holds a mask"));
    refuse({"calibrate", model_file, "--inputs", images(place, 2, {0, 1}, "all.npy"), "--skip-bad-samples"}, "no sample is left");

    // The statistics are those of the other samples.
    const tensor given = read_npy(good);
    const std::size_t each = given.size() / 8;
    tensor left(given.type(), {6, given.dim(1), given.dim(2), given.dim(3)});
    std::size_t to = 0;
    for (std::size_t s = 0; s < 8; ++s)
        if (s != 3 && s != 6)
            std::copy_n(given.as<float>().begin() + static_cast<std::ptrdiff_t>(s * each), each,
                        left.as<float>().begin() + static_cast<std::ptrdiff_t>(each * to++));
    write_npy(place("left.npy"), left);
    CHECK(qk_test::run_tool({"calibrate", model_file, "--inputs", bad, "--skip-bad-samples", "-o", place("a.json")}).status == 0);
    CHECK(qk_test::run_tool({"calibrate", model_file, "--inputs", place("left.npy"), "-o", place("b.json")}).status == 0);
    CHECK(qk_test::content(place("a.json")) == qk_test::content(place("b.json")));
}

TEST_CASE("evaluate stops at NaN where it measures, leaves out labels with samples, and says NaN where it only runs") {
    const qk_test::scratch place;
    const std::string bad = images(place, 8, {3}, "bad.npy"), y = labels(place, 8);
    refuse({"evaluate", model_file, "--inputs", bad, "--labels", y}, "sample 3 (from 0) of input '");
    refuse(words{"evaluate", model_file, "--inputs", bad, "--metric", "sqnr"} + whole, "sample 3 (from 0) of input '");
    const auto measured = qk_test::run_tool({"evaluate", model_file, "--inputs", bad, "--labels", y, "--skip-bad-samples", "--json"});
    REQUIRE(measured.status == 0);
    CHECK(json::parse(measured.out)["samples"] == 7);
    const auto ran = qk_test::run_tool({"evaluate", model_file, "--inputs", bad, "--json"});
    CHECK(ran.status == 0);
    CHECK(has(ran.err, "sample 3 (from 0) of input '"));
    const auto planned = qk_test::run_tool({"evaluate", model_file, "--inputs", bad, "--activation", "mxfp8_e4m3", "--weight", "mxfp4"});
    CHECK(planned.status == 0);
    CHECK(has(planned.err, "sample 3 (from 0) of input '"));
    refuse(words{"evaluate", model_file, "--inputs", bad} + whole, "sample 3 (from 0) of input '");  // its ranges come from them
}

TEST_CASE("no samples are none") {
    const qk_test::scratch place;
    const tensor all = read_npy(folder + "test_images.npy");
    write_npy(place("empty.npy"), tensor(all.type(), {0, all.dim(1), all.dim(2), all.dim(3)}));
    refuse({"evaluate", model_file, "--inputs", place("empty.npy")}, "has no samples");
    refuse({"evaluate", model_file, "--inputs", place("empty.npy"), "--labels", labels(place, 8)}, "has no samples");
    refuse(quantize(place("q.onnx"), whole + words{"--calibration", place("empty.npy")}), "--calibration: the data of input '");
}

TEST_CASE("a folder names what it passes over, and refuses images that are not read") {
    const qk_test::scratch place;
    const auto in = [&](const std::string& name) { return place("d/" + name); };
    std::filesystem::create_directories(in("sub"));
    std::filesystem::copy_file(images(place, 2, {}, "x.npy"), in("a.npy"));
    std::ofstream(in("notes.txt")) << "text";
    std::ofstream(in("photo.bmp")) << "BM";
    const auto done = qk_test::run_tool({"evaluate", model_file, "--inputs", place("d"), "--json"});
    CHECK(done.status == 0);
    CHECK(json::parse(done.out)["samples"] == 2);
    CHECK(has(done.err, "passes over what is no data there: 'notes.txt', 'photo.bmp' and 'sub'"));
    const auto calibrated = qk_test::run_tool({"calibrate", model_file, "--inputs", place("d"), "-o", place("c.json")});
    CHECK(has(calibrated.err, "'notes.txt'"));
    refuse({"evaluate", model_file, "--inputs", in("photo.bmp")}, "an image that qk does not read (.bmp): convert it to .png or .jpg");
    std::filesystem::remove(in("a.npy"));
    std::filesystem::copy_file(in("photo.bmp"), in("b.png"));  // it would be read first
    refuse({"evaluate", model_file, "--inputs", place("d")}, "photo.bmp' is an image that qk does not read");
    std::filesystem::rename(in("photo.bmp"), in("sub/c.webp"));
    std::filesystem::remove(in("b.png"));
    refuse({"evaluate", model_file, "--inputs", place("d")}, "c.webp' is an image that qk does not read");
}

TEST_CASE("options without effect are said") {
    const qk_test::scratch place;
    const std::string out = place("q.onnx"), x = images(place, 8, {}, "x.npy");
    const auto unused = [&](const words& options) {
        const auto done = qk_test::run_tool(quantize(out, options));
        INFO(done.err);
        CHECK(done.status == 0);
        std::vector<std::string> said;
        const std::string start = "unused: option ";
        for (std::size_t i = done.err.find(start); i != std::string::npos; i = done.err.find(start, i + 1)) {
            const std::size_t from = i + start.size();
            said.push_back(done.err.substr(from, done.err.find(':', from) - from));
        }
        return said;
    };
    const words mx{"--activation", "mxfp8_e4m3", "--weight", "mxfp4"}, data{"--calibration", x};
    CHECK(unused({"--approach", "weight_only", "--activation", "int8", "--weight", "int8"}) == words{"--activation"});
    CHECK(unused(mx + words{"--per-channel"}) == words{"--per-channel"});
    CHECK(unused(mx + words{"--symmetric"}) == words{"--symmetric"});
    CHECK(unused(mx + words{"--asymmetric-weights"}) == words{"--asymmetric-weights"});
    CHECK(unused(mx + words{"--reduce-range"}) == words{"--reduce-range"});
    CHECK(unused(mx + words{"--pow2", "nearest"}) == words{"--pow2"});
    CHECK(unused(mx + words{"--weight-block", "16"}) == words{"--weight-block"});
    CHECK(unused(mx + words{"--calibration-method", "entropy"}) == words{"--calibration-method"});
    CHECK(unused(mx) == words{});
    CHECK(unused(whole + data + words{"--per-channel", "--weight-block", "16"}) == words{"--per-channel"});
    CHECK(unused(whole + data + words{"--per-channel", "--symmetric", "--reduce-range"}) == words{});
    CHECK(unused(words{"--activation", "fp32", "--weight", "fp16", "--weight-rounding", "adaround", "--iterations", "5"} + data) ==
          words{"--weight-rounding"});
    CHECK(unused(words{"--approach", "dynamic", "--activation", "uint8", "--weight", "int8", "--calibration-method", "entropy"} + data) ==
          words{"--calibration-method"});
    CHECK(unused(whole + data + words{"--percentile", "99"}) == words{"--percentile"});
    CHECK(unused(whole + data + words{"--percentile", "99", "--calibration-method", "percentile"}) == words{});
    CHECK(unused(whole + data + words{"--labels", labels(place, 8)}) == words{});  // top-1 of float model and file
    CHECK(unused(mx + words{"--labels", labels(place, 8)}) == words{"--labels"});
    CHECK(unused(whole + data + words{"--scale-rule", "even"}) == words{"--scale-rule"});
    CHECK(unused(mx + words{"--scale-rule", "even"}) == words{});
    CHECK(unused(whole + data + words{"--samples", "4"}) == words{"--samples"});
    refuse(quantize(out, whole + data + words{"--labels", place("nothere.npy")}), "nothere.npy");

    // Beside a saved plan most are without effect; with --strict they are no error.
    REQUIRE(qk_test::run_tool(quantize(out, whole + data + words{"--save-plan", place("p.json")})).status == 0);
    CHECK(unused({"--plan", place("p.json"), "--per-channel", "--placement", "all", "--strict"}) == words{"--per-channel", "--placement"});
    std::ofstream(place("r.json")) << R"({"requests": [{"op_type": "Conv", "activation": "int8", "weight": "int8"}]})";
    CHECK(unused(words{"--plan", place("r.json"), "--symmetric", "--per-channel"} + data) == words{"--symmetric"});

    const auto evaluated = qk_test::run_tool(words{"evaluate", model_file, "--inputs", x, "--reduce-range"} + mx);
    CHECK(has(evaluated.err, "unused: option --reduce-range: has no effect"));
    const auto searched = qk_test::run_tool(
        {"sensitivity", model_file, "--inputs", x, "--wide", "fp32/fp32", "--narrow", "int8/int8", "--pow2", "nearest", "--json"});
    CHECK(has(searched.out, "warning: unused: option --pow2: has no effect"));
}

TEST_CASE("quantizing a quantized model is a remark, and inspect shows its formats") {
    const qk_test::scratch place;
    const std::string x = images(place, 8, {}, "x.npy"), again = place("again.onnx");
    const words data{"--calibration", x};
    const std::pair<words, std::pair<std::string, std::string>> styles[] = {
        {{"--export", "qdq", "--activation", "uint8", "--weight", "int8"}, {"uint8", "int8"}},
        {{"--approach", "weight_only", "--weight", "int4", "--weight-block", "32"}, {"fp32", "int4"}},
        {{"--activation", "mxfp8_e4m3", "--weight", "mxfp4"}, {"mxfp8_e4m3", "mxfp4"}},
        {{"--export", "qoperator", "--activation", "uint8", "--weight", "uint8"}, {"uint8", "uint8"}},
    };
    for (const auto& [options, formats] : styles) {
        const std::string file = place("q.onnx");
        REQUIRE(qk_test::run_tool(quantize(file, options + data)).status == 0);
        const auto done =
            qk_test::run_tool(words{"quantize", file, "-o", again, "--overwrite", "--approach", "weight_only", "--weight", "int8"});
        INFO(done.err);
        CHECK(has(done.err, "requantized: "));
        CHECK(has(done.err, "it is quantized already ("));
        const json told = json::parse(qk_test::run_tool({"inspect", file, "--json"}).out);
        REQUIRE(!told["layers"].empty());
        std::size_t known = 0;
        for (const auto& l : told["layers"])
            known += l.value("activation_format", "") == formats.first && l.value("weight_format", "") == formats.second;
        CHECK(known > 0);
        const std::string text = qk_test::run_tool({"inspect", file}).out;
        CHECK(has(text, "activation   weight"));
        CHECK_FALSE(has(text, "(not constant)"));
    }
    CHECK_FALSE(has(qk_test::run_tool(quantize(again, whole + data)).err, "requantized"));
    CHECK_FALSE(json::parse(qk_test::run_tool({"inspect", model_file, "--json"}).out)["layers"][0].contains("weight_format"));
}

TEST_CASE("the bytes of a model count its external data") {
    const qk_test::scratch place;
    qk_test::builder b;
    b.input("x", {-1, 64}).output("y", {-1, 64});
    b.node("MatMul", {"x", "w"}, {"y"}, "product");
    auto& w = *b.g().add_initializer();
    w.set_name("w"), w.set_data_type(1), w.add_dims(64), w.add_dims(64);
    w.set_data_location(onnx::TensorProto::EXTERNAL);
    const auto add = [&](const char* key, const char* value) {
        auto* e = w.add_external_data();
        e->set_key(key), e->set_value(value);
    };
    add("location", "weights.bin"), add("offset", "0"), add("length", "16384");
    std::ofstream(place("weights.bin"), std::ios::binary) << std::string(16384, '\1');
    std::ofstream(place("m.onnx"), std::ios::binary) << b.bytes();
    const auto done =
        qk_test::run_tool({"quantize", place("m.onnx"), "-o", place("q.onnx"), "--approach", "weight_only", "--weight", "int8", "--json"});
    REQUIRE(done.status == 0);
    CHECK(json::parse(done.out)["original_file_bytes"] == 16384 + std::filesystem::file_size(place("m.onnx")));
}
