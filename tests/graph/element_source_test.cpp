// SPDX-License-Identifier: Apache-2.0
// Large weights stay in their files: they are read when they are needed, shared while they are held, and computed again if folding made
// them; a model is saved with its elements inside the file or in a file beside it.
#include <doctest/doctest.h>

#include <cstring>
#include <fstream>

#include "build_model.hpp"
#include "graph/model/element_source.hpp"
#include "graph/model/message_outline.hpp"
#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/evaluate/fold.hpp"
#include "qk/graph/files/file.hpp"
#include "qk/graph/files/temporary_folder.hpp"
#include "qk/graph/model/model_files.hpp"

using namespace qk::graph;
namespace fs = std::filesystem;

namespace {

constexpr std::int64_t side = 300;  // 300 x 300 floats are more than smallest_outside

std::vector<float> numbers(float start) {
    std::vector<float> v(side * side);
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = start + 0.001f * static_cast<float>(i % 977);
    return v;
}

/// Builds y = x * transpose(w) + b, where w is large enough to stay in its file and b is small.
qk_test::builder network() {
    qk_test::builder b;
    b.input("x", {2, side}).output("y", {2, side});
    b.constant("w", {side, side}, numbers(-0.3f)).constant("b", {side}, std::vector<float>(side, 0.5f));
    auto& t = b.node("Transpose", {"w"}, {"wt"}, "turn");
    auto* perm = t.add_attribute();
    perm->set_name("perm"), perm->set_type(onnx::AttributeProto::INTS), perm->add_ints(1), perm->add_ints(0);
    b.node("MatMul", {"x", "wt"}, {"z"}, "product");
    b.node("Add", {"z", "b"}, {"y"}, "sum");
    return b;
}

void write(const fs::path& file, const std::string& bytes) {
    std::ofstream(file, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

/// Writes network() as external.onnx with the elements of w in w.bin, behind `offset` other bytes.
void write_external(const fs::path& folder, std::size_t offset) {
    qk_test::builder b = network();
    onnx::TensorProto& w = *b.g().mutable_initializer(0);
    write(folder / "w.bin", std::string(offset, 'x') + w.raw_data() + "tail");
    w.clear_raw_data();
    w.set_data_location(onnx::TensorProto::EXTERNAL);
    const auto add = [&](const char* key, const std::string& value) {
        auto* e = w.add_external_data();
        e->set_key(key), e->set_value(value);
    };
    add("location", "w.bin"), add("offset", std::to_string(offset)), add("length", std::to_string(side * side * 4));
    write(folder / "external.onnx", b.bytes());
}

tensor output_of(const model& m) {
    std::vector<float> x(2 * side);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = 0.01f * static_cast<float>(i % 31) - 0.1f;
    return evaluator(m, {.threads = 1}).run({{"x", make_tensor<float>({2, side}, x)}}).outputs.at("y");
}

bool same_bits(const tensor& a, const tensor& b) {
    return a.type() == b.type() && a.shape() == b.shape() && std::memcmp(a.bytes(), b.bytes(), a.size_bytes()) == 0;
}

}  // namespace

TEST_CASE("weights inside the file, outside it at any offset, and in memory are the same weights") {
    const temporary_folder folder("qk-elements", "a test");
    write(folder.path() / "inside.onnx", network().bytes());
    const model memory = network().model(), inside = model::load(folder.path() / "inside.onnx");
    const tensor expected = output_of(memory);
    CHECK(same_bits(output_of(inside), expected));
    CHECK(inside.graph().initializer(0).raw_data().empty());
    CHECK(inside.graph().initializer(1).raw_data().size() == side * 4);
    for (const std::size_t offset : {std::size_t{0}, std::size_t{3}, std::size_t{4096}}) {
        write_external(folder.path(), offset);
        const model outside = model::load(folder.path() / "external.onnx");
        CHECK(same_bits(outside.constant("w"), memory.constant("w")));
        CHECK(same_bits(output_of(outside), expected));
    }
}

TEST_CASE("an element source reads when asked, shares what is held, and lets go") {
    int made = 0;
    const element_source source(data_type::float32, {4}, [&] {
        ++made;
        return make_tensor<float>({4}, std::vector<float>{1, 2, 3, 4});
    });
    CHECK(made == 0);
    {
        const tensor a = source.read(), b = source.read();
        CHECK(a.buffer() == b.buffer());
        CHECK(made == 1);
    }
    CHECK(std::as_const(source).read().as<float>()[3] == 4);
    CHECK(made == 2);
}

TEST_CASE("a file that is replaced stays readable, one that is changed is an error that names it") {
    const temporary_folder folder("qk-elements", "a test");
    const fs::path file = folder.path() / "m.onnx";
    write(file, network().bytes());
    const model m = model::load(file);
    const tensor before = network().model().constant("w");
    fs::rename(file, folder.path() / "old.onnx");
    write(file, "something else");
    CHECK(same_bits(m.constant("w"), before));
    fs::resize_file(folder.path() / "old.onnx", 1000);
    std::string said;
    try {
        m.constant("w");
    } catch (const error& e) {
        said = e.what();
    }
    CHECK(said.find("m.onnx") != std::string::npos);
    CHECK(said.find("changed") != std::string::npos);
}

TEST_CASE("what folding makes of large weights is computed again when asked for, and saved") {
    const temporary_folder folder("qk-elements", "a test");
    write(folder.path() / "m.onnx", network().bytes());
    const tensor expected = output_of(model::load(folder.path() / "m.onnx"));
    model m = model::load(folder.path() / "m.onnx");
    fold_constants(m);
    REQUIRE(m.graph().node_size() == 2);
    const tensor w = network().model().constant("w"), turned = m.constant("wt");
    for (std::int64_t i = 0; i < side; i += 37)
        CHECK(turned.as<float>()[static_cast<std::size_t>(i * side + 1)] == w.as<float>()[static_cast<std::size_t>(side + i)]);
    CHECK(same_bits(output_of(m), expected));
    const model copy = m;
    for (const std::size_t largest : {largest_model_file, std::size_t{1000}}) {  // elements in the model's file; in a file beside it
        output_set out;
        qk::graph::save(copy, out, folder.path() / "saved.onnx", largest);
        out.commit();
        CHECK(fs::exists(folder.path() / "saved.onnx.data") == (largest == 1000));
        const model again = model::load(folder.path() / "saved.onnx");
        CHECK(same_bits(again.constant("wt"), turned));
        CHECK(same_bits(output_of(again), expected));
        onnx::ModelProto plain;  // the file as any other reader sees it
        REQUIRE(plain.ParseFromString(read_file(folder.path() / "saved.onnx")));
        CHECK(plain.graph().initializer_size() == 2);
        for (const auto& t : plain.graph().initializer()) CHECK((t.data_location() == onnx::TensorProto::EXTERNAL) == (largest == 1000));
        fs::remove(folder.path() / "saved.onnx.data");
    }
}

TEST_CASE("no file refers to elements of another model") {
    const model held = network().model();
    qk_test::builder b = network();
    *b.g().mutable_initializer(0) = held.graph().initializer(0);  // refers to this process's memory
    b.g().mutable_initializer(0)->mutable_external_data(0)->set_value("\x01qk 12 1");
    CHECK_THROWS_AS(b.model("/tmp"), error);
}

TEST_CASE("an outline says where elements lie, and nothing of what is no model") {
    const std::string bytes = network().bytes();
    const auto outline = detail::outline_of(bytes, smallest_outside);
    REQUIRE(outline);
    REQUIRE(outline->places.size() == 2);
    CHECK(outline->places[0].length == side * side * 4);
    CHECK(outline->places[1].length == 0);
    CHECK(outline->message.size() + outline->places[0].length <= bytes.size() + 16);
    const onnx::TensorProto w = network().m.graph().initializer(0);
    CHECK(bytes.substr(outline->places[0].offset, outline->places[0].length) == w.raw_data());
    for (std::size_t cut = 8; cut < 40; ++cut)  // cuts inside the graph; only the opset follows it
        CHECK_FALSE(detail::outline_of(std::string_view(bytes).substr(0, bytes.size() - cut), smallest_outside));
    CHECK_FALSE(detail::outline_of("\x3a\xff\xff\xff\xff\x0f", smallest_outside));
}
