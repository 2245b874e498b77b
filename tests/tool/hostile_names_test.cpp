// SPDX-License-Identifier: Apache-2.0
// Every verb escapes names that would colour a terminal, set its title, break lines or are not UTF-8, in messages, logs, tables, pages and
// JSON.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "../graph/build_model.hpp"
#include "qk/graph/base/printable.hpp"
#include "qk/graph/files/npy.hpp"
#include "qk/graph/files/zip.hpp"
#include "run_tool.hpp"

namespace fs = std::filesystem;
using qk_test::content;
using qk_test::outcome;
using qk_test::run_tool;
using qk_test::scratch;
using words = std::vector<std::string>;

namespace {

const std::string red = "\x1b[31mred\x1b[0m", title = "t\x1b]0;owned\x07", lines = "two\nlines\tand\ra return", bytes = "w\xff\xfe",
                  c1 = "\xc2\x9b"
                       "31m",
                  turned =
                      "\xe2\x80\xae"
                      "desrever";

/// Is true for UTF-8 text without control characters other than line ends.
bool is_safe(const std::string& text) { return qk::graph::is_utf8(text) && qk::graph::printable(text, "\n") == text; }

/// Is true if a line of `text` begins with the text that a hostile name tries to inject.
bool has_injected_line(const std::string& text) { return ("\n" + text).find("\nlines") != std::string::npos; }

void check_text(const char* where, const std::string& text) {
    CAPTURE(where);
    CAPTURE(text);
    CHECK(is_safe(text));
    CHECK_FALSE(has_injected_line(text));
}

/// Checks a command's streams and text files. Models and arrays are binary and are not checked.
void check_said(const outcome& done, const scratch& place) {
    check_text("standard output", done.out);
    check_text("standard error", done.err);
    for (const auto& entry : fs::recursive_directory_iterator(place.folder())) {
        const std::string name = entry.path().filename().string();
        check_text("a file's name", name);
        const std::string kind = entry.path().extension().string();
        if (kind == ".html" || kind == ".json" || kind == ".txt" || kind == ".cache") check_text(name.c_str(), content(entry.path()));
        if (kind == ".json") CHECK_FALSE(nlohmann::json::parse(content(entry.path()), nullptr, false).is_discarded());
    }
}

/// Returns a convolutional network of two layers in which every name is hostile.
std::string hostile_model(bool unknown_operator = false) {
    qk_test::builder b;
    b.m.set_producer_name(red + lines);
    b.m.mutable_graph()->set_name(bytes);
    b.input("in" + red, {4, 1, 8, 8}).output("out" + lines, {4, 3}).output("second" + bytes, {4, 3});
    b.g().mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(0)->set_dim_param("N" + title);
    std::vector<float> kernel(2 * 9), matrix(2 * 36 * 3), bias{0.1f, -0.2f, 0.3f};
    for (std::size_t i = 0; i < kernel.size(); ++i) kernel[i] = static_cast<float>(static_cast<int>(i * 7 % 11) - 5) / 8;
    for (std::size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<float>(static_cast<int>(i * 5 % 13) - 6) / 16;
    b.constant(bytes, {2, 1, 3, 3}, kernel).constant("m" + turned, {72, 3}, matrix).constant("b" + c1, {3}, bias);
    b.node("Conv", {"in" + red, bytes}, {"c" + lines}, title);
    b.node("Relu", {"c" + lines}, {"r" + title}, "relu" + bytes);
    b.node("Flatten", {"r" + title}, {"f" + c1}, "flat" + turned);
    b.node("Gemm", {"f" + c1, "m" + turned, "b" + c1}, {"out" + lines}, lines);
    b.node(unknown_operator ? "Bogus" + red + lines : "Neg", {"out" + lines}, {"second" + bytes}, "neg" + red)
        .set_domain(unknown_operator ? "domain" + title : "");
    if (unknown_operator) {
        auto* import = b.m.add_opset_import();
        import->set_domain("domain" + title);
        import->set_version(1);
    }
    return b.bytes();
}

struct material {
    scratch place;
    std::string model = place("m.onnx"), odd = place("odd.onnx"), x = place("x.npy");
    material() {
        std::ofstream(model, std::ios::binary) << hostile_model();
        std::ofstream(odd, std::ios::binary) << hostile_model(true);
        std::vector<float> values(4 * 64);
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(static_cast<int>(i * 37 % 101) - 50) / 25;
        qk::graph::write_npy(x, qk::graph::make_tensor<float>({4, 1, 8, 8}, values));
    }
};

words joined(words command, const words& more) {
    command.insert(command.end(), more.begin(), more.end());
    return command;
}

}  // namespace

TEST_CASE("every verb on a model with hostile names, for people and for programs") {
    const material m;
    const words precision{"--activation", "int8", "--weight", "int8"};
    REQUIRE(run_tool(joined({"quantize", m.model, "-o", m.place("q.onnx"), "--calibration", m.x}, precision)).status == 0);
    const std::vector<std::pair<words, words>> verbs{
        // the command, its outputs
        {{"inspect", m.model}, {}},
        {{"inspect", m.place("q.onnx")}, {"--save-plan", "p.json", "--save-float", "f.onnx"}},
        {joined({"quantize", m.model, "--calibration", m.x}, precision),
         {"-o", "o.onnx", "--save-plan", "p.json", "--encodings", "e.json", "--log", "l.txt", "--report", "r.html"}},
        {joined({"quantize", m.model, "--calibration", m.x, "--calibration-method", "best", "--export", "qoperator", "--per-channel"},
                precision),
         {"-o", "o.onnx", "--log", "l.txt", "--report", "r.html"}},
        {joined({"quantize", m.model, "--calibration", m.x, "--weight-rounding", "compensated"}, precision),
         {"-o", "o.onnx", "--report", "r.html"}},
        {joined({"explain", m.model, "in" + red, "--calibration", m.x}, precision), {}},
        {joined({"explain", m.model, "c" + lines, "--calibration", m.x}, precision), {}},
        {joined({"explain", m.model, "w\\xff\\xfe", "--calibration", m.x}, precision), {}},
        {{"calibrate", m.model, "--inputs", m.x, "--method", "all"}, {"-o", "c.json", "--report", "r.html"}},
        {{"evaluate", m.model, "--inputs", m.x}, {"--output-dir", "out"}},
        {joined({"evaluate", m.model, "--inputs", m.x}, precision), {}},
        {{"sensitivity", m.model, "--inputs", m.x}, {"--report", "r.html"}},
        {{"search", m.model, "--inputs", m.x, "--target-l2", "9"},
         {"-o", "o.onnx", "--save-plan", "p.json", "--report", "r.html", "--cache", "k.cache"}},
    };
    for (const auto& [command, outputs] : verbs)
        for (const bool json : {false, true}) {
            const scratch place;
            words line = command;
            for (const std::string& o : outputs) line.push_back(o.starts_with("-") ? o : place(o));
            if (json) line.push_back("--json");
            const outcome done = run_tool(line);
            CAPTURE(command.front());
            CAPTURE(json);
            CAPTURE(done.err);
            CHECK(done.status == 0);
            check_said(done, place);
            if (json) CHECK(nlohmann::json::parse(done.out, nullptr, false).is_object());
        }
}

TEST_CASE("what was saved is read again: plans, statistics, encodings, the model itself") {
    const material m;
    const words precision{"--activation", "int8", "--weight", "int8", "--calibration", m.x};
    const std::string plan = m.place("p.json"), one = m.place("one.onnx"), two = m.place("two.onnx"), seen = m.place("c.json");
    REQUIRE(run_tool(joined({"quantize", m.model, "-o", one, "--save-plan", plan}, precision)).status == 0);
    const outcome again = run_tool({"quantize", m.model, "-o", two, "--plan", plan});
    CAPTURE(again.err);
    REQUIRE(again.status == 0);
    CHECK((content(one) == content(two)));
    REQUIRE(run_tool({"calibrate", m.model, "--inputs", m.x, "-o", seen}).status == 0);
    REQUIRE(run_tool({"quantize", m.model, "-o", two, "--activation", "int8", "--weight", "int8", "--calibration", seen}).status == 0);
    CHECK(run_tool({"evaluate", one, "--inputs", m.x, "--json"}).status == 0);
    CHECK(run_tool({"inspect", m.model}).err.find("not UTF-8") != std::string::npos);  // names of inputs and outputs may change
}

TEST_CASE("errors about hostile names, as a sentence and as an object") {
    const material m;
    const auto save = [&](const char* name, const std::string& text) {
        std::ofstream(m.place(name), std::ios::binary) << text;
        return m.place(name);
    };
    const std::string key = save("key.json", R"({"default": {"activation": "int8"}, "\u001b[31mkey\n": 1})");
    const std::string layer = save("layer.json", R"({"layers": {"\u001b]0;x\u0007\nlines": {"weight": "int8"}}})");
    const std::string twice = save("twice.json", "{\"a\\u001b\\n\": 1, \"a\\u001b\\n\": 2}");
    const std::string broken = save("broken.json", "{\"a\x1b\xff");
    const std::string torn = save("torn.onnx", "\x1b[31m\xff");
    qk_test::builder cycle;
    cycle.input("x", {1}).output("y" + lines, {1}).node("Relu", {"missing" + red}, {"y" + lines}, title);
    const std::string dangling = save("dangling.onnx", cycle.bytes());
    const std::string archive = save("a.npz", qk::graph::zip({{"in" + red + lines + ".npy", "not an array"}}, "a"));
    const words precision{"--activation", "int8", "--weight", "int8", "--calibration", m.x};
    const std::vector<words> commands{
        {"inspect", torn},
        {"inspect", dangling},
        {"inspect", m.place(red + lines + ".onnx")},
        {"quantize", m.model, "--plan", key, "-o", m.place("o.onnx")},
        {"quantize", m.model, "--plan", layer, "--strict", "-o", m.place("o.onnx")},
        {"quantize", m.model, "--plan", twice, "-o", m.place("o.onnx")},
        {"quantize", m.model, "--plan", broken, "-o", m.place("o.onnx")},
        joined({"quantize", m.model, "-o", m.place("nowhere" + title + "/o.onnx")}, precision),
        joined({"explain", m.model, "no" + red}, precision),
        {"calibrate", m.model, "--inputs", "wrong" + red + "=" + m.x},
        {"evaluate", m.odd, "--inputs", m.x},
        {"evaluate", m.model, "--inputs", archive},
        {"evaluate", m.model, "--inputs", m.x, "--compare", m.place("nowhere" + lines)},
        {"sensitivity", m.model, "--inputs", m.x, "--layers", red},
        {"search", m.model, "--inputs", m.x, "--target-l2", "1", "--layers", "no" + lines},
        {"convert", archive, m.place("y.npy"), "--format", "int8"},
        {"convert", m.x, m.place("y.npy"), "--format", red},
        {"compare", m.x, m.place(title), "--format", "int8"},
        {"vectors", "--format", lines, "--out", m.place("v")},
        {"formats", red},
        {"bench", red},
        {red},
        {"inspect", m.model, "--" + red},
    };
    for (const words& command : commands) {
        const outcome plain = run_tool(command);
        CAPTURE(command.front());
        CAPTURE(plain.err);
        CHECK(plain.status == 2);
        CHECK(plain.out.empty());
        CHECK(is_safe(plain.err));
        CHECK_FALSE(has_injected_line(plain.err));
        CHECK(plain.err.find("qk: ") != std::string::npos);
        const std::string sentence = plain.err.substr(plain.err.find("qk: ") + 4);
        CHECK(std::count(sentence.begin(), sentence.end(), '\n') == 1);

        const outcome object = run_tool(joined(command, {"--json"}));
        CAPTURE(object.out);
        CHECK(object.status == 2);
        CHECK(is_safe(object.out));
        const auto json = nlohmann::json::parse(object.out, nullptr, false);
        REQUIRE(json.is_object());
        CHECK(json.size() == 3);
        CHECK(json["status"] == "error");
        CHECK(json["exit"] == 2);
        CHECK(json["message"].get<std::string>() + "\n" == object.err.substr(object.err.find("qk: ") + 4));
    }
}
