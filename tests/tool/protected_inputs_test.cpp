// SPDX-License-Identifier: Apache-2.0
// No output replaces an input or another output: runs each verb with each of its outputs named as each of its inputs, by its own name,
// through a folder, a symbolic link and a hard link.
#include <doctest/doctest.h>

#include <cctype>
#include <map>
#include <nlohmann/json.hpp>

#include "../graph/build_model.hpp"
#include "qk/graph/files/npy.hpp"
#include "run_tool.hpp"

namespace fs = std::filesystem;
using qk_test::content;
using qk_test::run_tool;
using qk_test::scratch;
using words = std::vector<std::string>;

namespace {

const std::string digits = std::string(QK_SOURCE_DIR) + "/examples/digits/";

/// An output option, and how its argument is made so that the file it writes is `file`.
struct output {
    std::string option;  ///< "": a positional argument, after the others
    enum class kind { itself, json_beside, in_folder } how = kind::itself;
    std::string name_in_folder{};
};

/// Returns all paths below a folder, with the content of files.
std::map<std::string, std::string> everything(const fs::path& folder) {
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::recursive_directory_iterator(folder))
        all[entry.path().string()] = entry.is_regular_file() ? content(entry.path()) : "";
    return all;
}

/// Returns all spellings of the file `original` that the output option can write to.
std::vector<std::string> spellings(const scratch& place, const std::string& original, const output& o) {
    const std::string name = fs::path(original).filename().string(), folder = fs::path(original).parent_path().string();
    std::vector<std::string> all;
    const std::string wanted = o.how == output::kind::in_folder     ? o.name_in_folder
                               : o.how == output::kind::json_beside ? "alias.json"
                                                                    : "alias";
    if (o.how == output::kind::itself)
        all = {original, folder + "/./" + name, place("links/../" + fs::relative(original, place.folder()).string())};
    if (o.how == output::kind::json_beside && fs::path(original).extension() == ".json") all = {original};
    fs::create_directories(place("links"));
    fs::create_directories(place("hard"));
    for (const char* way : {"links/", "hard/"}) {
        const std::string alias = place(way + wanted);
        fs::remove(alias);
        if (way[0] == 'l') fs::create_symlink(original, alias);
        else fs::create_hard_link(original, alias);
        all.push_back(alias);
    }
    return all;
}

words with(words command, const output& o, const std::string& file) {
    std::string value = file;
    if (o.how == output::kind::json_beside) value = fs::path(file).replace_extension(".html").string();
    if (o.how == output::kind::in_folder) value = fs::path(file).parent_path().string();
    if (!o.option.empty()) command.push_back(o.option);
    command.push_back(value);
    return command;
}

/// Checks that no output can replace an input. `command` reads each of `inputs` and has no outputs yet.
void protects(const scratch& place, const words& command, const words& inputs, const std::vector<output>& outputs) {
    for (const output& o : outputs)
        for (const std::string& input : inputs)
            for (const std::string& file : spellings(place, input, o)) {
                const auto before = everything(place.folder());
                const words line = with(command, o, file);
                const auto done = run_tool(line);
                CAPTURE(command.front());
                CAPTURE(o.option);
                CAPTURE(input);
                CAPTURE(file);
                CAPTURE(done.err);
                CHECK(done.status == 2);
                CHECK(done.err.find("would replace") != std::string::npos);
                CHECK((everything(place.folder()) == before));
            }
}

/// The files that verbs read, in a temporary folder.
struct material {
    scratch place;
    std::string model = place("model.onnx"), x = place("x.npy"), c = place("c.npy"), y = place("y.npy"), requests = place("requests.json"),
                target = place("target.json");
    material() {
        fs::copy_file(digits + "digits.onnx", model);
        qk_test::builder none;
        const auto images = qk::graph::read_npy(digits + "test_images.npy");
        const auto labels = qk::graph::read_npy(digits + "test_labels.npy");
        const auto first = [](const qk::graph::tensor& t, std::int64_t n) {
            qk::graph::dims shape = t.shape();
            shape[0] = n;
            return qk::graph::tensor(t.type(), shape, t.buffer());
        };
        qk::graph::write_npy(x, first(images, 8));
        qk::graph::write_npy(c, first(images, 4));
        qk::graph::write_npy(y, first(labels, 8));
        std::ofstream(requests) << R"({"default": {"activation": "int8", "weight": "int8"}})";
        std::ofstream(target) << R"({"name": "t", "formats": ["int8"]})";
    }
};

constexpr auto beside = output::kind::json_beside;
constexpr auto inside = output::kind::in_folder;

}  // namespace

TEST_CASE("quantize") {
    const material m;
    protects(m.place,
             {"quantize", m.model, "--plan", m.requests, "--inputs", m.x, "--calibration", m.c, "--labels", m.y, "--target", m.target},
             {m.model, m.requests, m.x, m.c, m.y, m.target},
             {{"-o"}, {"--save-plan"}, {"--encodings"}, {"--log"}, {"--report"}, {"--report", beside}});
}

TEST_CASE("search and sensitivity") {
    const material m;
    const std::string table = m.place("latency.json");
    std::ofstream(table) << "{}";
    const words reads{m.model, m.requests, m.x, m.c, m.y, m.target, table};
    const auto command = [&](const char* verb) {
        return words{verb,       m.model, "--plan",   m.requests, "--inputs",        m.x,  "--calibration", m.c,
                     "--labels", m.y,     "--target", m.target,   "--latency-table", table};
    };
    protects(m.place, command("search"), reads, {{"-o"}, {"--save-plan"}, {"--report"}, {"--report", beside}, {"--cache"}});
    protects(m.place, command("sensitivity"), reads, {{"--report"}, {"--report", beside}});
}

TEST_CASE("calibrate and evaluate") {
    const material m;
    protects(m.place, {"calibrate", m.model, "--inputs", m.x, "--calibration", m.c, "--labels", m.y}, {m.model, m.x, m.c, m.y},
             {{"-o"}, {"--report"}});
    fs::create_directory(m.place("expected"));
    const std::string expected = m.place("expected/logits.npy");
    REQUIRE(run_tool({"evaluate", m.model, "--inputs", m.x, "--output-dir", m.place("expected")}).status == 0);
    protects(m.place,
             {"evaluate", m.model, "--inputs", m.x, "--labels", m.y, "--compare", m.place("expected"), "--plan", m.requests,
              "--calibration", m.c, "--target", m.target},
             {m.model, m.x, m.c, m.y, m.requests, m.target, expected}, {{"--output-dir", inside, "logits.npy"}});
}

TEST_CASE("convert") {
    const material m;
    const std::string s = m.place("s.npy"), z = m.place("z.npy"), packed = m.place("p.npz");
    qk::graph::write_npy(s, qk::graph::make_tensor<float>({8}, std::vector<float>(8, 0.1f)));
    qk::graph::write_npy(z, qk::graph::make_tensor<std::int64_t>({8}, std::vector<std::int64_t>(8, 1)));
    const words command{"convert", m.x, "--format", "int8", "--scales", s, "--zero-points", z, "--scale-axis", "0"};
    protects(m.place, command, {m.x, s, z}, {{""}});
    words first = command;
    first.insert(first.begin() + 2, m.place("out.npy"));
    protects(m.place, first, {m.x, s, z}, {{"--packed"}});
    REQUIRE(run_tool({"convert", m.x, m.place("out.npy"), "--format", "mxfp4", "--packed", packed}).status == 0);
    protects(m.place, {"convert", packed}, {packed}, {{""}});
}

TEST_CASE("dot") {
    const material m;
    const std::string a = m.place("a.npy"), b = m.place("b.npy");
    for (const std::string& file : {a, b})
        qk::graph::write_npy(file, qk::graph::make_tensor<float>({16, 16}, std::vector<float>(256, 0.5f)));
    const words command{"dot", a, b, "--device", "nvidia.hopper.wgmma.f32.e4m3.e4m3"};
    protects(m.place, command, {a, b}, {{""}});
    words over = command;
    over.insert(over.begin() + 3, a);
    over.push_back("--overwrite");
    const auto done = run_tool(over);
    CAPTURE(done.err);
    CHECK(done.status == 0);
    const qk::graph::tensor product = qk::graph::read_npy(a);
    CHECK(product.as<float>()[0] == 4.0f);  // 16 products of 0.25
}

TEST_CASE("inspect, and a model's external data") {
    const material m;
    REQUIRE(run_tool({"quantize", m.model, "-o", m.place("q.onnx"), "--plan", m.requests, "--calibration", m.c}).status == 0);
    protects(m.place, {"inspect", m.place("q.onnx")}, {m.place("q.onnx")}, {{"--save-plan"}, {"--save-float"}});

    fs::create_directory(m.place("big"));
    const std::string data = m.place("big/w.bin"), model = m.place("big/m.onnx");
    std::ofstream(data, std::ios::binary) << std::string(16, '\0');
    qk_test::builder b;
    b.input("x", {2, 2}).output("y", {2, 2}).node("MatMul", {"x", "w"}, {"y"}, "n");
    auto& w = *b.g().add_initializer();
    w.set_name("w");
    w.set_data_type(1);
    w.add_dims(2), w.add_dims(2);
    w.set_data_location(onnx::TensorProto::EXTERNAL);
    auto* where = w.add_external_data();
    where->set_key("location");
    where->set_value("w.bin");
    std::ofstream(model, std::ios::binary) << b.bytes();
    const std::string x = m.place("big.npy");
    qk::graph::write_npy(x, qk::graph::make_tensor<float>({2, 2}, std::vector<float>{1, 2, 3, 4}));
    protects(m.place, {"inspect", model}, {model, data}, {{"--save-plan"}, {"--save-float"}});
    protects(m.place, {"quantize", model, "--activation", "int8", "--weight", "int8", "--calibration", x}, {data},
             {{"-o"}, {"--save-plan"}, {"--encodings"}, {"--log"}, {"--report"}, {"--report", beside}});
    protects(m.place, {"calibrate", model, "--inputs", x}, {data}, {{"-o"}, {"--report"}});
    protects(m.place, {"evaluate", model, "--inputs", x}, {data}, {{"--output-dir", inside, "y.npy"}});
    protects(m.place, {"search", model, "--inputs", x, "--target-l2", "1"}, {data},
             {{"-o"}, {"--save-plan"}, {"--report"}, {"--report", beside}, {"--cache"}});
    protects(m.place, {"sensitivity", model, "--inputs", x}, {data}, {{"--report"}, {"--report", beside}});
}

TEST_CASE("folders of data, and data of tensors in files of their own") {
    const material m;
    fs::create_directory(m.place("data"));
    fs::copy_file(m.x, m.place("data/a.npy"));
    protects(m.place, {"quantize", m.model, "--plan", m.requests, "--calibration", m.place("data")}, {m.place("data/a.npy")},
             {{"-o"}, {"--log"}});
    protects(m.place, {"quantize", m.model, "--plan", m.requests, "--calibration", "image=" + m.x}, {m.x}, {{"-o"}, {"--log"}});

    onnx::TensorProto p;
    p.set_name("image");
    p.set_data_type(1);
    const qk::graph::dims shape = qk::graph::read_npy(m.x).shape();
    for (const std::int64_t d : shape) p.add_dims(d);
    p.set_data_location(onnx::TensorProto::EXTERNAL);
    auto* where = p.add_external_data();
    where->set_key("location");
    where->set_value("image.bin");
    const auto x = qk::graph::read_npy(m.x);
    std::ofstream(m.place("image.bin"), std::ios::binary)
        .write(reinterpret_cast<const char*>(x.bytes()), static_cast<std::streamsize>(x.size_bytes()));
    std::ofstream(m.place("input_0.pb"), std::ios::binary) << p.SerializeAsString();
    protects(m.place, {"quantize", m.model, "--plan", m.requests, "--calibration", m.place("input_0.pb")},
             {m.place("input_0.pb"), m.place("image.bin")}, {{"-o"}, {"--log"}});
}

TEST_CASE("two outputs with one name") {
    const material m;
    const auto refused = [&](words command, const words& outputs) {
        command.insert(command.end(), outputs.begin(), outputs.end());
        const auto before = everything(m.place.folder());
        const auto done = run_tool(command);
        CAPTURE(done.err);
        CHECK(done.status == 2);
        CHECK(done.err.find("two outputs") != std::string::npos);
        CHECK((everything(m.place.folder()) == before));
    };
    fs::create_directory(m.place("d"));
    const std::string a = m.place("a.json"), b = m.place("d/../a.json"), page = m.place("a.html");
    const words quantize{"quantize", m.model, "--plan", m.requests, "--calibration", m.c};
    const words outputs{"-o", "--save-plan", "--encodings", "--log", "--report"};
    for (std::size_t i = 0; i < outputs.size(); ++i)
        for (std::size_t j = i + 1; j < outputs.size(); ++j) refused(quantize, {outputs[i], a, outputs[j], b});
    for (std::size_t i = 0; i + 1 < outputs.size(); ++i) refused(quantize, {outputs[i], a, "--report", page});
    const words search{"search", m.model, "--inputs", m.x, "--target-l2", "1"};
    for (const char* option : {"-o", "--save-plan", "--cache"}) refused(search, {option, a, "--report", page});
    refused(search, {"-o", a, "--save-plan", b});
    refused(search, {"-o", a, "--cache", b});
    refused({"calibrate", m.model, "--inputs", m.x}, {"-o", a, "--report", b});
    refused({"inspect", m.model}, {"--save-plan", a, "--save-float", b});
    refused({"convert", m.x, a, "--format", "mxfp4"}, {"--packed", b});
    refused({"sensitivity", m.model, "--inputs", m.x}, {"--report", a});  // the JSON is written beside the page
}

TEST_CASE("--overwrite says so, and sizes before are those before") {
    const material m;
    const auto size = fs::file_size(m.model);
    const auto done = run_tool({"quantize", m.model, "--plan", m.requests, "--calibration", m.c, "-o", m.model, "--overwrite", "--json"});
    CAPTURE(done.err);
    REQUIRE(done.status == 0);
    CHECK(fs::file_size(m.model) != size);
    CHECK(nlohmann::json::parse(done.out)["original_file_bytes"] == size);
    CHECK(nlohmann::json::parse(done.out)["file_bytes"] == fs::file_size(m.model));
    CHECK(run_tool({"convert", m.x, m.x, "--format", "int8", "--overwrite"}).status == 0);
    CHECK(run_tool({"convert", m.x, m.place("links.npy"), "--format", "int8"}).status == 0);
    CHECK(run_tool({"convert", m.x, m.place("links.npy"), "--format", "int8"}).status == 0);  // a file that is not an input is replaced
    const material again;
    const std::string quantized = again.place("q.onnx");
    REQUIRE(run_tool({"quantize", again.model, "-o", quantized, "--plan", again.requests, "--calibration", again.c}).status == 0);
    std::ofstream(again.requests) << R"({"name": "t", "operators": {}})";  // from here on a target that allows everything
    for (const words& command :
         {words{"calibrate", again.model, "--inputs", again.x, "-o", again.c, "--calibration", again.c},
          words{"evaluate", again.model, "--inputs", again.x, "--weight", "int8", "--approach", "weight_only", "--target", again.requests},
          words{"sensitivity", again.model, "--inputs", again.x, "--target", again.requests, "--report", again.place("requests.html")},
          words{"search", again.model, "--inputs", again.x, "--target-l2", "9", "--save-plan", again.x},
          words{"inspect", quantized, "--save-plan", quantized}, words{"vectors", "--format", "fp4_e2m1", "--out", again.place("v")}}) {
        words line = command;
        line.push_back("--overwrite");
        const auto replaced = run_tool(line);
        CAPTURE(command.front());
        CAPTURE(replaced.err);
        CHECK(replaced.status == 0);
    }
}
