// SPDX-License-Identifier: Apache-2.0
// Loading a model: order of nodes, names, checks, external data, every element type; a malformed model is an error with a clear sentence.
#include "qk/graph/model/model.hpp"

#include <doctest/doctest.h>

#include <fstream>
#include <random>

#include "../data_folders.hpp"
#include "build_model.hpp"
#include "graph/model/check.hpp"
#include "qk/graph/files/atomic_file.hpp"
#include "qk/graph/files/file.hpp"

using namespace qk::graph;
using qk_test::builder;
namespace fs = std::filesystem;

namespace {

template <class F>
std::string message(F f) {
    try {
        f();
    } catch (const error& e) {
        return e.what();
    }
    return "";
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

fs::path scratch() {
    const fs::path folder = fs::temp_directory_path() / "qk_model_test";
    fs::create_directories(folder);
    return folder;
}

builder chain() {
    builder b;
    b.input("x", {1, 2}).output("z", {1, 2});
    b.node("Relu", {"y"}, {"z"}, "last");
    b.node("Relu", {"x"}, {"y"}, "first");
    return b;
}

}  // namespace

TEST_CASE("nodes are sorted and named, and nothing else moves") {
    builder b = chain();
    b.node("Relu", {"x"}, {"a"});
    b.node("Relu", {"x"}, {"b"}, "first");
    b.node("Relu", {"x"}, {"c"}, "Relu_0");
    const model m = b.model();
    std::vector<std::string> names;
    for (const auto& n : m.graph().node()) names.push_back(n.name());
    CHECK(names == std::vector<std::string>{"first", "last", "Relu_1", "first_2", "Relu_0"});
    CHECK(m.node_index("last") == 1);
    CHECK(m.node_index("none") == -1);
    CHECK(m.producer("y") == 0);
    CHECK(m.producer("x") == -1);
    CHECK(m.uses("x").size() == 4);
    CHECK(m.uses("z").size() == 1);
    CHECK(m.uses("z")[0].node == -1);
    CHECK(m.opset("ai.onnx") == 17);
    CHECK(m.opset("com.microsoft") == 0);
}

TEST_CASE("initializers may be graph inputs; inputs() leaves them out") {
    builder b;
    b.input("x", {-1, 2}).input("w", {2}).output("y", {-1, 2}).constant("w", {2}, {1, 2});
    b.node("Add", {"x", "w"}, {"y"});
    const model m = b.model();
    REQUIRE(m.inputs().size() == 1);
    CHECK(m.inputs()[0].shape[0].symbol == "N");
    CHECK(m.inputs()[0].shape[1].value == 2);
    CHECK(m.is_constant("w"));
    CHECK(m.constant("w").as<float>()[1] == 2);
    CHECK(has(message([&] { m.constant("x"); }), "'x'"));
}

TEST_CASE("a dimension called \"?\" is one without a name: two of them may differ") {
    builder b;
    b.input("x", {-1, 3, -1}).output("y", {-1, 3, -1});
    for (auto& d : *b.g().mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim())
        if (d.has_dim_param()) d.set_dim_param("?");
    b.node("Relu", {"x"}, {"y"});
    CHECK(b.model().inputs()[0].shape[2].symbol.empty());
}

TEST_CASE("malformed graphs are errors that name the place") {
    const auto says = [](builder& b, const std::string& part) {
        const std::string text = message([&] { b.model(); });
        CAPTURE(text);
        CHECK(text.starts_with("model: "));
        CHECK(has(text, part));
    };
    builder b = chain();
    b.node("Relu", {"nothing"}, {"q"}, "odd");
    says(b, "node 'odd' (Relu): its input 'nothing'");
    b = chain();
    b.node("Relu", {"x"}, {"y"}, "twin");
    says(b, "output 'y' is made by another node");
    b = chain();
    b.node("Add", {"p", "x"}, {"q"}, "round"), b.node("Relu", {"q"}, {"p"}, "about"), b.node("Relu", {"p"}, {"after"}, "after");
    says(b, "cycle");
    b = chain();
    b.node("Relu", {"self"}, {"self"}, "self");
    says(b, "'self' (Relu) stands on a cycle");
    b = chain();
    b.node("Relu", {}, {"q"}, "idle");
    says(b, "node 'idle' (Relu) has 0 inputs where 1 are needed");
    b = chain();
    b.node("DequantizeLinear", {"x", "x"}, {}, "mute");
    says(b, "node 'mute' (DequantizeLinear) has 0 outputs where 1 are needed");
    b = chain();
    b.node("Gemm", {"x"}, {"q"}, "half");
    says(b, "node 'half' (Gemm) has 1 inputs where 2 are needed");
    b = chain();
    b.output("gone", {1});
    says(b, "graph output 'gone'");
    b = chain();
    b.constant("w", {2}, {1, 2}).g().mutable_initializer(0)->set_dims(0, 3);
    says(b, "tensor 'w': holds 8 bytes where its shape [3] of float32 needs 12");
    b.g().mutable_initializer(0)->set_dims(0, -3);
    says(b, "tensor 'w': negative dimension");
    b.g().mutable_initializer(0)->set_dims(0, std::int64_t{1} << 62);
    says(b, "2^40");
    b.g().mutable_initializer(0)->set_data_type(99);
    says(b, "number 99");
    b = chain();
    b.constant("w", {1}, {1}).constant("w", {1}, {1});
    says(b, "initializer 'w' is there twice");
    b = builder(29);
    says(b, "version 29");
    b = builder(0);
    says(b, "version 0");
    CHECK(has(message([] { model::parse(""); }), "no graph"));
    CHECK(has(message([] { model::load("no/such.onnx"); }), "no/such.onnx"));
}

TEST_CASE("subgraphs see outer names; what they read is a use of their node") {
    builder b;
    b.input("c", {}, 9).input("x", {1}).output("z", {1});
    auto& n = b.node("If", {"c"}, {"z"}, "if");
    for (const char* branch : {"then_branch", "else_branch"}) {
        auto* a = n.add_attribute();
        a->set_name(branch);
        a->set_type(onnx::AttributeProto::GRAPH);
        auto* inner = a->mutable_g()->add_node();
        inner->set_op_type("Relu");
        inner->add_input("y");
        inner->add_output("r");
        builder::declare(*a->mutable_g()->add_output(), "r", {1});
    }
    builder broken = b;
    CHECK(has(message([&] { broken.model(); }), "'y'"));
    b.node("Relu", {"x"}, {"y"}, "late");
    const model m = b.model();
    CHECK(m.graph().node(0).name() == "late");
    REQUIRE(m.uses("y").size() == 1);
    CHECK(m.uses("y")[0].input == -1);
    CHECK(m.graph().node(1).attribute(0).g().node(0).name() != m.graph().node(1).attribute(1).g().node(0).name());
}

TEST_CASE("nesting and functions have bounds") {
    builder b = chain();
    onnx::GraphProto deep;
    for (int i = 0; i < 60; ++i) {
        onnx::GraphProto outer;
        auto* n = outer.add_node();
        n->set_op_type("If");
        n->add_attribute()->mutable_g()->Swap(&deep);
        deep.Swap(&outer);
    }
    b.g().mutable_node(0)->add_attribute()->mutable_g()->Swap(&deep);
    CHECK(has(message([&] { b.model(); }), "nested too deeply"));

    const auto add_function = [](builder& to, const std::string& name, const std::string& calls, int times) {
        auto* f = to.m.add_functions();
        f->set_name(name);
        f->set_domain("d");
        f->add_input("x");
        f->add_output("y0");
        for (int i = 0; i < times; ++i) {
            auto* n = f->add_node();
            n->set_op_type(calls);
            n->set_domain(calls == "Relu" ? "" : "d");
            n->add_input("x");
            n->add_output("y" + std::to_string(i));
        }
    };
    builder loop = chain();
    add_function(loop, "f", "g", 1), add_function(loop, "g", "f", 1);
    CHECK(has(message([&] { loop.model(); }), "calls itself"));
    builder laughs = chain();
    for (int i = 0; i < 30; ++i) add_function(laughs, "f" + std::to_string(i), i ? "f" + std::to_string(i - 1) : "Relu", 10);
    CHECK(has(message([&] { laughs.model(); }), "grows beyond"));
    builder fan = chain();  // 10^5 nodes from 61 of the file
    for (int i = 0; i < 5; ++i) add_function(fan, "f" + std::to_string(i), i ? "f" + std::to_string(i - 1) : "Relu", 10);
    fan.node("f4", {"x"}, {"fan"}).set_domain("d");
    CHECK(has(message([&] { fan.model(); }), "grow beyond"));
    builder layers = chain();  // one function of 20 nodes, called for each of 200 layers
    add_function(layers, "layer", "Relu", 20);
    for (int i = 0; i < 200; ++i) layers.node("layer", {"x"}, {"l" + std::to_string(i)}).set_domain("d");
    CHECK(layers.model().graph().node_size() == 200 + chain().g().node_size());
    builder tower = chain();
    for (int i = 0; i < 100000; ++i) add_function(tower, "f" + std::to_string(i), "f" + std::to_string(i + 1), 1);
    CHECK(has(message([&] { tower.model(); }), "deep"));
    builder open = chain();
    add_function(open, "f", "Relu", 1);
    open.m.mutable_functions(0)->mutable_node(0)->set_input(0, "elsewhere");
    CHECK(has(message([&] { open.model(); }), "function 'f': node"));
    builder twice = chain();
    add_function(twice, "f", "Relu", 1), add_function(twice, "f", "Relu", 2);
    CHECK(has(message([&] { twice.model(); }), "function 'f' of the domain 'd' is there twice"));
    twice.m.mutable_functions()->RemoveLast();
    twice.m.mutable_functions(0)->add_input("x");
    CHECK(has(message([&] { twice.model(); }), "function 'f': its input 'x' is there twice"));
}

TEST_CASE("fields that the library does not know survive, and are read where qk needs them") {
    builder b = chain();
    auto* f = b.m.add_functions();
    f->set_name("f");
    const auto* r = f->GetReflection();
    r->MutableUnknownFields(f)->AddLengthDelimited(13, "second");
    onnx::AttributeProto a;
    a.set_name("alpha");
    a.set_f(0.5f);
    r->MutableUnknownFields(f)->AddLengthDelimited(11, a.SerializeAsString());
    b.m.GetReflection()->MutableUnknownFields(&b.m)->AddVarint(1000, 42);
    const model m = b.model();
    m.save(scratch() / "unknown.onnx");
    const model back = model::load(scratch() / "unknown.onnx");
    CHECK(back.proto().GetReflection()->GetUnknownFields(back.proto()).field(0).varint() == 42);
    CHECK(overload_of(back.proto().functions(0)) == "second");
    REQUIRE(default_attributes(back.proto().functions(0)).size() == 1);
    CHECK(default_attributes(back.proto().functions(0))[0].f() == 0.5f);
}

TEST_CASE("every element type, raw and typed, goes to a tensor and back") {
    for (int code = 1; code <= 26; ++code) {
        const auto type = static_cast<data_type>(code);
        if (type == data_type::string) continue;
        CAPTURE(name_of(type));
        tensor t(type, {3, 3});
        for (std::size_t i = 0; i < t.size_bytes(); ++i) t.bytes()[i] = std::byte(type == data_type::boolean ? i & 1 : i * 29 + 3);
        if (type == data_type::int4)
            for (std::size_t i = 0; i < 9; ++i) t.as<std::int8_t>()[i] = static_cast<std::int8_t>(int(i) % 8 * 2 - 8);
        if (type == data_type::uint4 || type == data_type::float4e2m1)
            for (std::size_t i = 0; i < 9; ++i) t.as<std::uint8_t>()[i] = std::uint8_t(15 - i);
        if (type == data_type::int2)
            for (std::size_t i = 0; i < 9; ++i) t.as<std::int8_t>()[i] = static_cast<std::int8_t>(int(i) % 4 - 2);
        if (type == data_type::uint2)
            for (std::size_t i = 0; i < 9; ++i) t.as<std::uint8_t>()[i] = i & 3;
        onnx::TensorProto p;
        to_proto(t, "t", p);
        tensor back = to_tensor(p);
        CHECK(back.shape() == t.shape());
        CHECK(std::memcmp(back.bytes(), t.bytes(), t.size_bytes()) == 0);

        onnx::TensorProto typed;
        typed.set_data_type(code);
        typed.add_dims(3), typed.add_dims(3);
        const std::string raw = p.raw_data();
        const auto as = [&]<class T>(T, auto add) {
            for (std::size_t i = 0; i < raw.size() / sizeof(T); ++i) {
                T v;
                std::memcpy(&v, raw.data() + i * sizeof(T), sizeof(T));
                add(v);
            }
        };
        switch (type) {
            case data_type::float32:
            case data_type::complex64: as(float{}, [&](float v) { typed.add_float_data(v); }); break;
            case data_type::float64:
            case data_type::complex128: as(double{}, [&](double v) { typed.add_double_data(v); }); break;
            case data_type::int64: as(std::int64_t{}, [&](std::int64_t v) { typed.add_int64_data(v); }); break;
            case data_type::uint64: as(std::uint64_t{}, [&](std::uint64_t v) { typed.add_uint64_data(v); }); break;
            case data_type::uint32: as(std::uint32_t{}, [&](std::uint32_t v) { typed.add_uint64_data(v); }); break;
            case data_type::int32: as(std::int32_t{}, [&](std::int32_t v) { typed.add_int32_data(v); }); break;
            case data_type::int16: as(std::int16_t{}, [&](std::int16_t v) { typed.add_int32_data(v); }); break;
            case data_type::uint16:
            case data_type::float16:
            case data_type::bfloat16: as(std::uint16_t{}, [&](std::uint16_t v) { typed.add_int32_data(v); }); break;
            case data_type::int8: as(std::int8_t{}, [&](std::int8_t v) { typed.add_int32_data(v); }); break;
            default: as(std::uint8_t{}, [&](std::uint8_t v) { typed.add_int32_data(v); });
        }
        back = to_tensor(typed);
        CHECK(std::memcmp(back.bytes(), t.bytes(), t.size_bytes()) == 0);
        typed.set_dims(0, 6);
        CHECK_THROWS_AS(to_tensor(typed), error);
    }
}

TEST_CASE("sparse tensors become dense") {
    onnx::SparseTensorProto s;
    to_proto(make_tensor<float>({2}, std::vector<float>{5, 6}), "s", *s.mutable_values());
    to_proto(make_tensor<std::int64_t>({2, 2}, std::vector<std::int64_t>{0, 1, 1, 2}), "", *s.mutable_indices());
    s.add_dims(2), s.add_dims(3);
    const tensor t = to_tensor(s);
    const float expected[] = {0, 5, 0, 0, 0, 6};
    CHECK(std::equal(expected, expected + 6, t.as<float>().begin()));
    s.set_dims(1, 2);
    CHECK(has(message([&] { to_tensor(s); }), "outside"));
    s.set_dims(0, std::int64_t{1} << 38);
    CHECK(has(message([&] { to_tensor(s); }), "bytes when dense"));
}

TEST_CASE("external data comes from the model's folder only") {
    const fs::path folder = scratch() / "external";
    fs::remove_all(folder);
    fs::create_directories(folder / "sub");
    write_file(folder / "sub/w.bin", std::string(4, 'x') + std::string("\0\0\x80\x3f\0\0\0\x40", 8));
    write_file(scratch() / "secret.bin", std::string(64, 's'));
    fs::create_symlink(scratch() / "secret.bin", folder / "link.bin");
    const auto with = [&](const std::string& location, const std::string& offset, const std::string& length) {
        builder b;
        b.output("w", {2});
        auto* t = b.g().add_initializer();
        t->set_name("w");
        t->set_data_type(1);
        t->add_dims(2);
        t->set_data_location(onnx::TensorProto::EXTERNAL);
        for (const auto& [k, v] : {std::pair{"location", location}, {"offset", offset}, {"length", length}})
            if (!v.empty()) {
                auto* e = t->add_external_data();
                e->set_key(k);
                e->set_value(v);
            }
        return b;
    };
    CHECK(with("sub/w.bin", "4", "8").model(folder).constant("w").as<float>()[1] == 2.0f);
    CHECK(with("sub/w.bin", "4", "").model(folder).constant("w").as<float>()[0] == 1.0f);
    const auto says = [&](const builder& b, const std::string& part) {
        const std::string text = message([&] { b.model(folder); });
        CAPTURE(text);
        CHECK(has(text, "tensor 'w': external data " + part));
    };
    says(with("../secret.bin", "", ""), "'../secret.bin' lies outside");
    says(with("sub/../../secret.bin", "", ""), "'sub/../../secret.bin' lies outside");
    says(with(fs::absolute(scratch() / "secret.bin").string(), "", ""), "'");
    says(with("link.bin", "", ""), "'link.bin' lies outside");
    says(with("none.bin", "", ""), "file '");
    says(with("sub", "", ""), "file '");
    says(with("", "", ""), "has no location");
    says(with("sub/w.bin", "8", ""), "reaches beyond");
    says(with("sub/w.bin", "18446744073709551615", "8"), "reaches beyond");
    says(with("sub/w.bin", "0", "4"), "is 4 bytes where the shape needs 8");
    says(with("sub/w.bin", "-1", ""), "has the offset '-1'");
    CHECK(has(message([&] { with("sub/w.bin", "4", "8").model(); }), "needs the model's folder"));
}

TEST_CASE("any bytes give a model or a sentence") {
    builder b = chain();
    b.constant("w", {4}, {1, 2, 3, 4});
    b.node("Add", {"x", "w"}, {"s"});
    const std::string bytes = b.bytes();
    std::mt19937 random(3);
    const auto attempt = [](const std::string& s) {
        const std::string text = message([&] { model::parse(s); });
        CHECK((text.empty() || text.starts_with("model: ")));
    };
    for (std::size_t n = 0; n < bytes.size(); ++n) attempt(bytes.substr(0, n));
    for (int i = 0; i < 20000; ++i) {
        std::string s = bytes;
        for (int k = 0; k < 3; ++k) s[random() % s.size()] = static_cast<char>(random());
        attempt(s);
    }
}

TEST_CASE("the networks of the tests load") {
    int loaded = 0;
    for (const char* sub : {"models", "quark_models"})
        for (const fs::path& folder : qk_test::data_with(sub))
            for (const auto& e : fs::directory_iterator(folder / sub)) {
                if (e.path().extension() != ".onnx") continue;
                CAPTURE(e.path().string());
                const model m = model::load(e.path());
                CHECK(m.inputs().size() == 1);
                CHECK(!m.outputs().empty());
                ++loaded;
            }
    CHECK(loaded >= 10);
}

TEST_CASE("the models of ONNX's node tests load") {
    std::string failed;
    for (const fs::path& folder : qk_test::node_test_folders())
        for (const auto& e : fs::directory_iterator(folder)) {
            if (!e.is_directory()) continue;
            const std::string text = message([&] { model::load(e.path() / "model.onnx"); });
            if (!text.empty()) failed += text + "\n";
        }
    CHECK(failed == "");
}
