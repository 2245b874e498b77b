// SPDX-License-Identifier: Apache-2.0
// Runs models that need more than any machine has, or never end: each must stop early with a sentence that names the node.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "../graph/build_model.hpp"
#include "qk/graph/evaluate/evaluator.hpp"

using namespace qk::graph;
using qk_test::builder;

namespace {

constexpr std::int64_t huge = std::int64_t{1} << 36;

builder& integers(builder& b, const std::string& name, const std::vector<std::int64_t>& values, bool scalar = false) {
    to_proto(make_tensor<std::int64_t>(scalar ? dims{} : dims{static_cast<std::int64_t>(values.size())}, values), name,
             *b.g().add_initializer());
    return b;
}

/// Runs the model within 16 MB and 10000 steps of loop bodies. Returns the error's sentence, or "" if it ran.
std::string sentence(const builder& b) {
    try {
        const model m = b.model();
        named_tensors inputs;
        for (const value_info& v : m.inputs()) {
            dims shape;
            for (const dimension& d : v.shape) shape.push_back(d.value < 0 ? 2 : d.value);
            tensor t(v.type, shape);
            std::memset(t.bytes(), 0, t.size_bytes());
            inputs[v.name] = t;
        }
        static_cast<void>(evaluator(m, {.threads = 1, .limits = {.memory = std::size_t{1} << 24, .body_steps = 10000}}).run(inputs));
    } catch (const error& e) {
        return e.what();
    }
    return "";
}
bool names(const std::string& text, const std::string& node) { return text.find("node '" + node + "'") != std::string::npos; }

onnx::GraphProto& body_of(onnx::NodeProto& n, const std::string& attribute) {
    auto* a = n.add_attribute();
    a->set_name(attribute);
    a->set_type(onnx::AttributeProto::GRAPH);
    return *a->mutable_g();
}

/// Fills a loop's body: x' = x + x, while the incoming condition holds.
void endless_body(onnx::GraphProto& g) {
    builder::declare(*g.add_input(), "i", {}, 7), builder::declare(*g.add_input(), "going", {}, 9),
        builder::declare(*g.add_input(), "state", {2});
    builder::declare(*g.add_output(), "still", {}, 9), builder::declare(*g.add_output(), "next", {2});
    auto* same = g.add_node();
    same->set_op_type("Identity"), same->add_input("going"), same->add_output("still");
    auto* add = g.add_node();
    add->set_op_type("Add"), add->add_input("state"), add->add_input("state"), add->add_output("next");
}

}  // namespace

TEST_CASE("results that do not fit in memory") {
    struct absurd {
        const char* op;
        std::vector<std::int64_t> operand;
    };
    for (const absurd& a : {absurd{"Expand", {huge, 2}}, absurd{"Tile", {huge}}, absurd{"ConstantOfShape", {huge}},
                            absurd{"Expand", {1 << 20, 1 << 10, 2}}}) {
        builder b;
        integers(b, "n", a.operand).input("x", {2}).output("y", {});
        if (std::string(a.op) == "ConstantOfShape") b.node(a.op, {"n"}, {"y"}, "big");
        else b.node(a.op, {"x", "n"}, {"y"}, "big");
        CAPTURE(a.op);
        CHECK(names(sentence(b), "big"));
    }
    builder range;
    integers(range, "from", {0}, true), integers(range, "to", {huge}, true), integers(range, "by", {1}, true);
    range.output("y", {}, 7).node("Range", {"from", "to", "by"}, {"y"}, "big");
    CHECK(names(sentence(range), "big"));
    builder hot;
    integers(hot, "depth", {huge}, true), integers(hot, "values", {0, 1}), integers(hot, "at", {1, 2, 3});
    hot.output("y", {}, 7).node("OneHot", {"at", "depth", "values"}, {"y"}, "big");
    CHECK(names(sentence(hot), "big"));
    builder window;
    integers(window, "n", {huge}, true).output("y", {}).node("HannWindow", {"n"}, {"y"}, "big");
    CHECK(names(sentence(window), "big"));
    builder transform(20);
    integers(transform, "n", {huge + 1}, true).input("x", {1, 4, 1}).output("y", {}).node("DFT", {"x", "n"}, {"y"}, "big");
    CHECK(names(sentence(transform), "big"));
    builder resize(8);
    resize.constant("scales", {4}, {1, 1, 1e9f, 1})
        .input("x", {1, 1, 2, 2})
        .output("y", {})
        .node("Upsample", {"x", "scales"}, {"y"}, "big");
    resize.m.mutable_opset_import(0)->set_version(9);
    CHECK(names(sentence(resize), "big"));
}

TEST_CASE("a loop that does not end, and one inside another") {
    builder b;
    integers(b, "n", {std::numeric_limits<std::int64_t>::max()}, true).input("x", {2}).output("y", {2});
    to_proto(make_tensor<bool>({}, std::array{true}), "yes", *b.g().add_initializer());
    endless_body(body_of(b.node("Loop", {"n", "yes", "x"}, {"y"}, "loop"), "body"));
    CHECK(names(sentence(b), "loop"));
    CHECK(sentence(b).find("10000 steps") != std::string::npos);

    builder nested;  // 1000 times 1000: the steps of the inner loops add up
    integers(nested, "n", {1000}, true).input("x", {2}).output("y", {2});
    to_proto(make_tensor<bool>({}, std::array{true}), "yes", *nested.g().add_initializer());
    onnx::GraphProto& outer = body_of(nested.node("Loop", {"n", "yes", "x"}, {"y"}, "outer"), "body");
    endless_body(outer);
    auto* inner = outer.mutable_node(1);
    inner->Clear();
    inner->set_name("inner"), inner->set_op_type("Loop"), inner->add_output("next");
    for (const char* i : {"n", "yes", "state"}) inner->add_input(i);
    endless_body(body_of(*inner, "body"));
    CHECK(sentence(nested).find("10000 steps") != std::string::npos);
}

TEST_CASE("a loop over nothing") {
    builder b;
    integers(b, "n", {std::numeric_limits<std::int64_t>::max()}, true).input("x", {2}).output("y", {2});
    to_proto(make_tensor<bool>({}, std::array{true}), "yes", *b.g().add_initializer());
    onnx::GraphProto& body = body_of(b.node("Loop", {"n", "yes", "x"}, {"y"}, "loop"), "body");
    builder::declare(*body.add_input(), "i", {}, 7), builder::declare(*body.add_input(), "going", {}, 9),
        builder::declare(*body.add_input(), "state", {2});
    builder::declare(*body.add_output(), "going", {}, 9), builder::declare(*body.add_output(), "state", {2});
    CHECK(sentence(b).find("10000 steps") != std::string::npos);
}

TEST_CASE("one activation for a node that needs three") {
    builder b;
    b.input("x", {1, 1, 2}).constant("w", {1, 4, 2}, std::vector<float>(8)).constant("r", {1, 4, 1}, std::vector<float>(4)).output("y", {});
    auto* a = b.node("LSTM", {"x", "w", "r"}, {"y"}, "cell").add_attribute();
    a->set_name("activations"), a->set_type(onnx::AttributeProto::STRINGS), a->add_strings("Tanh");
    CHECK(names(sentence(b), "cell"));
}

TEST_CASE("functions of one name that call each other by overload end") {
    // f (overload "a") calls f (overload "b"), which is a Relu: both are found, and nothing recurses.
    builder b;
    b.input("x", {2}).output("y", {2}).m.add_opset_import()->set_domain("d");
    b.m.mutable_opset_import(1)->set_version(1);
    const auto overload = [](google::protobuf::Message& m, int field, const std::string& value) {
        m.GetReflection()->MutableUnknownFields(&m)->AddLengthDelimited(field, value);
    };
    for (const char* name : {"a", "b"}) {
        auto* f = b.m.add_functions();
        f->set_name("f"), f->set_domain("d"), f->add_input("x"), f->add_output("y");
        auto* import = f->add_opset_import();
        import->set_version(17);
        auto* n = f->add_node();
        n->add_input("x"), n->add_output("y"), n->set_name("inside");
        n->set_op_type(name[0] == 'a' ? "f" : "Relu");
        if (name[0] == 'a') n->set_domain("d"), overload(*n, 8, "b");
        overload(*f, 13, name);
    }
    auto& call = b.node("f", {"x"}, {"y"}, "call");
    call.set_domain("d"), overload(call, 8, "a");
    const model m = model::parse(b.bytes());
    const tensor x = make_tensor<float>({2}, std::vector<float>{-1, 2});
    const auto y = evaluator(m, {.threads = 1}).run({{"x", x}}).outputs.at("y");
    CHECK(y.as<float>()[0] == 0.0f);
    CHECK(y.as<float>()[1] == 2.0f);
}

TEST_CASE("sparse initializers take part, and do not grow without bound") {
    builder b;
    b.input("x", {2, 3}).output("y", {2, 3}).node("Add", {"x", "s"}, {"y"}, "add");
    auto* s = b.g().add_sparse_initializer();
    to_proto(make_tensor<float>({2}, std::vector<float>{5, 6}), "s", *s->mutable_values());
    to_proto(make_tensor<std::int64_t>({2}, std::vector<std::int64_t>{1, 5}), "", *s->mutable_indices());
    s->add_dims(2), s->add_dims(3);
    CHECK(sentence(b) == "");
    s->set_dims(0, huge);
    CHECK(sentence(b).find("sparse tensor 's'") != std::string::npos);
}

TEST_CASE("pools whose padding is absurd are quick") {
    for (const char* op : {"AveragePool", "MaxPool"}) {
        builder b;
        b.input("x", {1, 1, 4, 4}).output("y", {}, 1);
        auto& n = b.node(op, {"x"}, {"y"}, "pool");
        qk_test::set(n, "kernel_shape", {1 << 20, 1 << 20});
        qk_test::set(n, "pads", {1 << 20, 1 << 20, 1 << 20, 1 << 20});
        qk_test::set(n, "strides", {1 << 14, 1 << 14});
        CAPTURE(op);
        CHECK(sentence(b) == "");
    }
}
