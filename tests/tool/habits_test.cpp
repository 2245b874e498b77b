// SPDX-License-Identifier: Apache-2.0
// Conventions of the command line: a typing mistake gets the nearest word, help is in groups, '-' is a stream, shells complete words, and
// images are data.
#include <doctest/doctest.h>

#include <algorithm>
#include <iostream>

#include "../graph/write_png.hpp"
#include "qk/graph/files/npy.hpp"
#include "run_tool.hpp"

namespace {

using words = std::vector<std::string>;
using qk_test::content;
using qk_test::run_tool;

const std::string folder = std::string(QK_SOURCE_DIR) + "/examples/digits/", model = folder + "digits.onnx";

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Runs a line in bash, for pipes; $QK is the program.
qk_test::outcome shell(const std::string& line) { return qk_test::background({"bash", "-c", "QK=" QK_TOOL "; " + line}).wait(); }

void refuse(const words& command, const words& says) {
    const auto done = run_tool(command);
    std::string line;
    for (const std::string& w : command) line += " " + w;
    INFO("qk", line, ": ", done.err);
    CHECK(done.status == 2);
    // With --json a failure is an object as well.
    const bool as_object = std::find(command.begin(), command.end(), "--json") != command.end();
    CHECK((as_object ? has(done.out, "\"status\": \"error\"") && has(done.out, "\"exit\": 2") : done.out.empty()));
    for (const std::string& s : says) CHECK(has(done.err, s));
    CHECK(done.err.starts_with("qk: "));
    CHECK(std::count(done.err.begin(), done.err.end(), '\n') == 1);
}

}  // namespace

TEST_CASE("a typing mistake gets the nearest word: options, verbs, formats, strategies, metrics, and every other choice") {
    refuse({"qantize", model}, {"no verb 'qantize'", "Did you mean 'quantize'?"});
    refuse({"quantize", model, "--activaton", "int8"}, {"--activaton", "Did you mean --activation"});
    refuse({"quantize", model, "-output", "x.onnx"}, {"-output", "Did you mean --output"});
    refuse({"formats", "mxpf4"}, {"mxpf4", "did you mean mxfp4?"});
    refuse({"quantize", model, "--activation", "mxpf4", "--weight", "mxfp4", "--json"}, {"mxpf4", "did you mean mxfp4?"});
    const auto search = [](const std::string& option, const std::string& value) {
        return words{"search", model, "--inputs", folder + "test_images.npy", "--samples", "4", option, value};
    };
    refuse(search("--strategy", "gredy"), {"gredy", "Did you mean 'greedy'"});
    refuse(search("--metric", "snqr"), {"snqr", "Did you mean 'sqnr'"});
    refuse(search("--narrow", "int8/itn4"), {"itn4", "did you mean int4?"});
    refuse(search("--cost", "sizes"), {"--cost 'sizes'", "Did you mean 'size'"});
    refuse(search("--direction", "widden"), {"Did you mean 'widen'"});
    const auto quantize = [](const std::string& option, const std::string& value) {
        return words{"quantize",  model, "--activation", "int8", "--weight", "int8", "--inputs", folder + "test_images.npy",
                     "--samples", "4",   "--json",       option, value};
    };
    refuse(quantize("--calibration-method", "entrpoy"), {"entrpoy", "Did you mean 'entropy'"});
    refuse(quantize("--semantics", "qaurk"), {"qaurk", "Did you mean quark?"});
    refuse(quantize("--export", "qdp"), {"qdp", "Did you mean 'qdq'"});
    refuse(quantize("--weights", "flaot"), {"flaot", "Did you mean 'float'"});
    refuse(quantize("--placement", "layer"), {"Did you mean 'layers'"});
    refuse(quantize("--approach", "dynamc"), {"Did you mean 'dynamic'"});
    refuse(quantize("--weight-rounding", "compensate"), {"Did you mean 'compensated'"});
    refuse(quantize("--pow2", "nearst"), {"Did you mean 'nearest'"});
    refuse({"calibrate", model, "--inputs", folder + "test_images.npy", "--method", "entropi"}, {"Did you mean 'entropy'"});
    refuse({"completion", "bsh"}, {"bsh", "Did you mean 'bash'"});
}

TEST_CASE("numbers out of range, missing values and words too many are said in words") {
    refuse({"evaluate", model, "--inputs", "x.npy", "--samples", "0"},
           {"--samples '0' is not a whole number of at least 1; leave --samples out"});
    refuse({"evaluate", model, "--inputs", "x.npy", "--samples", "-1"}, {"--samples '-1' is not a whole number of at least 1"});
    refuse({"evaluate", model, "--inputs", "x.npy", "--samples", "ten"}, {"'ten' is not a whole number"});
    refuse({"evaluate", model, "--inputs", "x.npy", "--tolerance", "-1"}, {"--tolerance '-1' is not a number of at least 0"});
    refuse({"quantize", model, "--percentile", "nan"}, {"--percentile 'nan' is not a number from 50 to 100"});
    refuse({"search", model, "--inputs", "x.npy", "--target-top1-drop", "2"}, {"--target-top1-drop '2' is not a number from 0 to 1"});
    refuse({"evaluate", model, "--inputs", "--json"}, {"--inputs needs a value"});
    refuse({"evaluate", model, "--inputs"}, {"--inputs needs a value"});
    refuse({"evaluate", model, "--inputs", "x.npy", "--labels", "a.npy", "--labels", "b.npy"}, {"--labels is given twice"});
    refuse({"evaluate", model, "other.onnx", "--inputs", "x.npy"}, {"'other.onnx' is one word too many"});
    refuse({"evaluate", "--inputs", "x.npy"}, {"MODEL is required"});
    refuse({"evaluate", model}, {"--inputs", "is required"});
    refuse({}, {"qk --help"});
    refuse({"--json"}, {"--json", "qk VERB --help"});
}

TEST_CASE("options and values stand as people type them") {
    const qk_test::scratch place;
    qk::graph::write_npy(place("x.npy"), qk::graph::make_tensor<float>({2, 2}, std::vector<float>{1, 2.2f, 3, 4}));
    REQUIRE(run_tool({"convert", place("x.npy"), place("a.npy"), "--format", "bf16"}).status == 0);
    for (const words& form : {words{"-f", "bf16"}, words{"-fbf16"}, words{"--format=bf16"}}) {
        words command{"convert", place("x.npy"), place("b.npy")};
        command.insert(command.begin() + 1, form.begin(), form.end());
        CHECK(run_tool(command).status == 0);
        CHECK(content(place("b.npy")) == content(place("a.npy")));
    }
    CHECK(run_tool({"convert", place("x.npy"), place("b.npy"), "--format", "mx6", "--axis", "-2"}).status == 0);  // no option
    const std::filesystem::path home = std::filesystem::current_path();
    std::filesystem::current_path(place.folder());
    std::filesystem::copy_file(place("x.npy"), place("-odd.npy"));
    CHECK(run_tool({"convert", "--format", "bf16", "--", "-odd.npy", "c.npy"}).status == 0);
    std::filesystem::current_path(home);
    CHECK(content(place("c.npy")) == content(place("a.npy")));
    // A list takes words up to the next option, or between commas, and leaves the words that positional arguments need.
    const auto narrow = [&](words more) {
        more.insert(more.begin(),
                    {"sensitivity", "--inputs", folder + "test_images.npy", "--samples", "2", "--json", "--wide", "int16/int16"});
        const auto done = run_tool(more);
        INFO(done.err);
        CHECK(done.status == 0);
        return has(done.out, "int8/int8") && has(done.out, "int4/int4");
    };
    CHECK(narrow({model, "--narrow", "int8/int8,int4/int4"}));
    CHECK(narrow({model, "--narrow", "int8/int8", "int4/int4"}));
    CHECK(narrow({"--narrow", "int8/int8", "int4/int4", model}));
}

TEST_CASE("--version, --help in groups, the common options first") {
    for (const char* word : {"-V", "--version"}) CHECK(run_tool({word}).out.starts_with("qk "));
    const std::string verbs = run_tool({"--help"}).out;
    CHECK(verbs == run_tool({"-h"}).out);
    for (const char* verb : {"formats", "convert", "compare", "inspect", "vectors", "calibrate", "quantize", "explain", "evaluate",
                             "sensitivity", "search", "bench", "completion"}) {
        CHECK(has(verbs, "\n  " + std::string(verb) + " "));
        const auto page = run_tool({verb, "--help"});
        CHECK(page.status == 0);
        CHECK(has(page.out, "Usage: qk " + std::string(verb)));
        CHECK(has(page.out, "Example"));
        CHECK(page.out == run_tool({"help", verb}).out);
    }
    const std::string page = run_tool({"quantize", "--help"}).out;
    const std::size_t common = page.find("\nCommon options:\n"), data = page.find("\nData:\n"), precision = page.find("\nPrecision:\n"),
                      output = page.find("\nOutput:\n");
    REQUIRE(common != std::string::npos);
    for (const std::size_t heading : {data, precision, output}) REQUIRE(heading != std::string::npos);
    CHECK(common < std::min({data, precision, output}));
    const auto under = [&](const char* option, std::size_t heading) {
        const std::size_t at = page.find(option), end = page.find("\n\n", heading + 1);
        return at > heading && at < end;
    };
    for (const char* option : {"-o, --output", "--activation", "--weight", "--inputs"}) CHECK(under(option, common));
    CHECK(under("--samples", data));
    CHECK(under("--percentile", precision));
    CHECK(under("--keep-int8", output));
    std::size_t longest = 0;
    for (std::size_t at = 0; at < page.size();) {
        const std::size_t end = page.find('\n', at);
        longest = std::max(longest, end - at);
        at = end + 1;
    }
    CHECK(longest < 180);  // examples may be longer; texts are wrapped at 110
}

TEST_CASE("'-' is standard input or standard output") {
    const qk_test::scratch place;
    qk::graph::write_npy(place("x.npy"), qk::graph::make_tensor<float>({2, 16}, std::vector<float>(32, 1.7f)));
    REQUIRE(run_tool({"convert", place("x.npy"), place("y.npy"), "--format", "mxfp4"}).status == 0);
    const auto piped = shell("cat " + place("x.npy") + " | $QK convert - - --format mxfp4 | cat > " + place("z.npy"));
    CHECK(piped.err == "");
    CHECK(content(place("z.npy")) == content(place("y.npy")));
    shell("$QK convert - - --format mxfp4 < " + place("x.npy") + " > " + place("w.npy"));
    CHECK(content(place("w.npy")) == content(place("y.npy")));
    // Reads and writes a model by streams; text for people does not mix with it.
    const std::string how = " --recipe fast --activation int8 --weight int8 --inputs " + folder + "test_images.npy --samples 8 ";
    REQUIRE(shell("$QK quantize " + model + " -o " + place("q.onnx") + how).status == 0);
    const auto through = shell("$QK quantize - -o -" + how + "< " + model + " > " + place("p.onnx"));
    CHECK(through.status == 0);
    CHECK(has(through.err, "quantized edges"));
    CHECK(content(place("p.onnx")) == content(place("q.onnx")));
    CHECK(shell("cat " + folder + "test_images.npy | $QK evaluate " + model + " --inputs - --samples 4 --json").status == 0);
    const std::string input = "$(echo $($QK inspect " + model + " | grep '^input ') | cut -d' ' -f2)";
    CHECK(shell("cat " + folder + "test_images.npy | $QK evaluate " + model + " --inputs " + input + "=- --samples 4 --json").status == 0);
    const auto plan =
        shell("$QK quantize " + model + " --save-plan -" + how + "| $QK quantize " + model + " --plan - -o " + place("r.onnx") + " --json");
    CHECK(plan.status == 0);
    CHECK(content(place("r.onnx")) == content(place("q.onnx")));
    // Two outputs cannot share standard output, and a failure leaves no partial output.
    refuse({"convert", place("x.npy"), "-", "--packed", "-", "--format", "mxfp4"}, {"'-' is standard output for OUTPUT and for --packed"});
    refuse({"quantize", model, "-o", "-", "--json", "--activation", "bf16", "--weight", "bf16"}, {"--json", "standard output"});
    const auto bad = shell("echo nothing | $QK convert - - --format mxfp4 > " + place("none"));
    CHECK(bad.status == 2);
    CHECK(has(bad.err, "standard input"));
    CHECK(content(place("none")).empty());
    CHECK(shell("ls -d ${TMPDIR:-/tmp}/qk-stream-* 2>/dev/null").out.empty());
}

TEST_CASE("completion: scripts that the shells accept, from the same tables as the help") {
    const qk_test::scratch place;
    const std::string script = run_tool({"completion", "bash"}).out;
    qk_test::save(place("qk.bash"), script);
    CHECK(shell("bash -n " + place("qk.bash")).status == 0);
    const auto completed = [&](const std::string& typed) {
        return shell("source " + place("qk.bash") + "; COMP_WORDS=(" + typed +
                     "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _qk; echo \" ${COMPREPLY[*]} \"")
            .out;
    };
    CHECK(has(completed("qk qu"), " quantize "));
    CHECK(has(completed("qk quantize --calibration-m"), " --calibration-method "));
    CHECK(has(completed("qk quantize m.onnx --calibration-method ent"), " entropy "));
    CHECK(has(completed("qk quantize m.onnx --activation mxfp"), " mxfp4 "));
    CHECK(has(completed("qk search m.onnx --strategy gr"), " greedy "));
    CHECK(has(completed("qk search m.onnx --metric sq"), " sqnr "));
    CHECK(has(completed("qk formats mxf"), " mxfp4 "));
    CHECK(has(completed("qk evaluate " + place("qk.b")), " " + place("qk.bash") + " "));
    // Every option of a help page is in every completion script.
    const std::string zsh = run_tool({"completion", "zsh"}).out, fish = run_tool({"completion", "fish"}).out;
    CHECK(zsh.starts_with("#compdef qk"));
    for (const char* verb : {"convert", "quantize", "search", "vectors"}) {
        const std::string page = run_tool({verb, "--help"}).out;
        std::size_t options = 0;
        for (std::size_t at = page.find("\n  --"); at != std::string::npos; at = page.find("\n  --", at + 1)) {
            const std::string name = page.substr(at + 5, page.find_first_of(" \n", at + 5) - at - 5);
            INFO(verb, " --", name);
            CHECK(has(script, "--" + name));
            CHECK(has(zsh, "--" + name + "["));
            CHECK(has(fish, "__fish_seen_subcommand_from " + std::string(verb) + "' -l " + name + " "));
            ++options;
        }
        CHECK(options > 3);
    }
    for (const char* program : {"zsh", "fish"}) {
        const std::string file = place(program);
        qk_test::save(file, *program == 'z' ? zsh : fish);
        if (shell(std::string("command -v ") + program).status == 0) CHECK(shell(std::string(program) + " -n " + file).status == 0);
    }
}

TEST_CASE("data that preprocessing would make fit: the error shows it, and it fits") {
    const qk_test::scratch place;
    const auto save = [&](const char* name, std::vector<std::int64_t> shape) {
        std::size_t n = 1;
        for (const std::int64_t d : shape) n *= static_cast<std::size_t>(d);
        std::vector<std::uint8_t> values(n);
        for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<std::uint8_t>(i * 37);
        qk::graph::write_npy(place(name), qk::graph::make_tensor<std::uint8_t>(std::move(shape), values));
        return place(name);
    };
    const std::vector<std::pair<std::string, std::string>> cases{
        {save("nhwc.npy", {3, 8, 8, 1}), "--preprocess layout=nhwc,scale=0.003921569"},
        {save("nchw.npy", {3, 1, 8, 8}), "--preprocess scale=0.003921569"},
        {save("flat.npy", {3, 64}), "--preprocess scale=0.003921569"}};
    for (const auto& [file, hint] : cases) {
        refuse({"evaluate", model, "--inputs", file}, {"uint8", hint + " makes it fit"});
        CHECK(run_tool({"evaluate", model, "--inputs", file, "--preprocess", hint.substr(13)}).status == 0);
    }
    refuse({"evaluate", model, "--inputs", save("other.npy", {3, 9, 9, 1})}, {"uint8"});  // no hint helps
}

TEST_CASE("a folder of images is a data set, its sub-folders the classes") {
    const qk_test::scratch place;
    qk_test::save(place("probe.png"), qk_test::png(1, {"a"}, 0));
    if (has(run_tool({"evaluate", model, "--inputs", place("probe.png")}).err, "built without")) {
        std::cout << "skipped: qk was built without libpng\n";
        return;
    }
    std::vector<std::uint8_t> all;
    std::vector<std::int64_t> classes;
    for (int i = 0; i < 12; ++i) {  // digit i / 2 by name; "10" comes after "9"
        const std::string where = place("images/class" + std::to_string(8 + i / 4));
        std::filesystem::create_directories(where);
        std::vector<std::string> rows(8, std::string(8, ' '));
        for (int p = 0; p < 64; ++p) {
            rows[static_cast<std::size_t>(p / 8)][static_cast<std::size_t>(p % 8)] = static_cast<char>((i * 64 + p) * 7);
            all.push_back(static_cast<std::uint8_t>((i * 64 + p) * 7));
        }
        qk_test::save(where + "/i" + std::to_string(i) + ".png", qk_test::png(8, rows, 0));
        classes.push_back(i / 4);
    }
    qk::graph::write_npy(place("x.npy"), qk::graph::make_tensor<std::uint8_t>({12, 8, 8, 1}, all));
    qk::graph::write_npy(place("y.npy"), qk::graph::make_tensor<std::int64_t>({12}, classes));
    const auto evaluate = [&](const std::string& inputs, const std::string& labels, const std::string& out) {
        const auto done = run_tool({"evaluate", model, "--inputs", inputs, "--labels", labels, "--preprocess", "layout=nhwc,scale=0.0625",
                                    "--output-dir", place(out)});
        INFO(done.err);
        CHECK(done.status == 0);
        std::string outputs;
        for (const auto& file : std::filesystem::directory_iterator(place(out))) outputs += content(file.path());
        return outputs + done.out.substr(0, done.out.find("seconds"));
    };
    CHECK(evaluate(place("images"), place("images"), "a") == evaluate(place("x.npy"), place("y.npy"), "b"));
    refuse({"evaluate", model, "--inputs", place("images")}, {"--preprocess layout=nhwc,scale=0.003921569"});
    qk_test::save(place("images/class8/odd.png"), qk_test::png(4, words(4, "abcd"), 0));
    refuse({"evaluate", model, "--inputs", place("images"), "--preprocess", "layout=nhwc"}, {"odd.png' is 4 x 4", "resize=HxW"});
    CHECK(run_tool({"evaluate", model, "--inputs", place("images"), "--preprocess", "layout=nhwc,resize=8x8"}).status == 0);
    refuse({"evaluate", model, "--inputs", place("x.npy"), "--labels", place("images/class8"), "--preprocess", "layout=nhwc"},
           {"no sub-folders of images"});
}
