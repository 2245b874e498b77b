// SPDX-License-Identifier: Apache-2.0
// Gradients through the bodies of Loop, Scan and If, operators at which a gradient ends, and forward passes that are dropped to save memory
// and run again.
#include <doctest/doctest.h>
#include <onnx/onnx_pb.h>

#include <cmath>
#include <cstring>

#include "build_model.hpp"
#include "graph/base/process_memory.hpp"
#include "graph/gradient/estimate.hpp"
#include "graph/gradient/tape.hpp"
#include "qk/graph/gradient/gradient.hpp"

using namespace qk::graph;

namespace {

constexpr int real = 11, whole = 7, truth = 9;  // ONNX's element types double, int64, bool

tensor doubles(dims shape, double first) {
    tensor t(data_type::float64, std::move(shape));
    for (std::size_t i = 0; i < t.size(); ++i) t.as<double>()[i] = std::sin(first + 1.7 * static_cast<double>(i));
    return t;
}
tensor integers(dims shape, const std::vector<std::int64_t>& values) {
    return make_tensor<std::int64_t>(std::move(shape), std::span(values));
}
void own(qk_test::builder& b, const std::string& name, const tensor& t) { to_proto(t, name, *b.g().add_initializer()); }

void set_body(onnx::NodeProto& node, const std::string& name, const qk_test::builder& body) {
    auto* a = node.add_attribute();
    a->set_name(name);
    a->set_type(onnx::AttributeProto::GRAPH);
    *a->mutable_g() = body.m.graph();
    a->mutable_g()->set_name(name);
}

double weighted(const gradient_result& r, const tensor& v) {
    double sum = 0;
    for (std::size_t i = 0; i < v.size(); ++i) sum += r.output.as<double>()[i] * v.as<double>()[i];
    return sum;
}

/// Checks the gradient of every float64 input against central differences, for one output of the model.
void check(const model& m, const named_tensors& inputs, const tensor& v, int output = 0) {
    const gradient_result g = vector_gradient(m, inputs, v, {.threads = 1, .output_index = output});
    for (const auto& [name, x] : inputs) {
        if (x.type() != data_type::float64) continue;
        CAPTURE(name);
        REQUIRE(g.gradients.at(name).shape() == x.shape());
        for (std::size_t i = 0; i < x.size(); ++i) {
            const auto moved = [&](double by) {
                named_tensors other = inputs;
                tensor t(x.type(), x.shape());
                std::memcpy(t.bytes(), x.bytes(), x.size_bytes());
                t.as<double>()[i] += by;
                other[name] = t;
                return weighted(vector_gradient(m, other, v, {.threads = 1, .output_index = output}), v);
            };
            const double difference = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            CHECK(g.gradients.at(name).as<double>()[i] == doctest::Approx(difference).epsilon(1e-6));
        }
    }
}

/// Builds a Loop of state = tanh(state * w + x + c) with the scan output state * x. `w` is an input or an initializer of the outer graph,
/// `c` an input or an initializer of the body.
model loop_model(bool w_constant, bool c_constant, const tensor& w, const tensor& c) {
    qk_test::builder body;
    body.input("i", {}, whole).input("go", {}, truth).input("s", {2}, real).output("go_on", {}, truth).output("next", {2}, real);
    body.output("seen", {2}, real);
    if (c_constant) own(body, "c", c);
    body.node("Identity", {"go"}, {"go_on"});
    body.node("Mul", {"s", "w"}, {"a"});
    body.node("Add", {"a", "x"}, {"b"});
    body.node("Add", {"b", "c"}, {"d"});
    body.node("Tanh", {"d"}, {"next"});
    body.node("Mul", {"next", "x"}, {"seen"});
    qk_test::builder b;
    b.input("n", {}, whole).input("x", {2}, real).input("s0", {2}, real);
    if (w_constant) own(b, "w", w);
    else b.input("w", {2}, real);
    if (!c_constant) b.input("c", {2}, real);
    b.output("last", {2}, real).output("all", {-1, 2}, real);
    b.node("Add", {"s0", "x"}, {"first"});
    set_body(b.node("Loop", {"n", "", "first"}, {"last", "all"}), "body", body);
    return b.model();
}

}  // namespace

TEST_CASE("a gradient flows through the runs of a Loop: carried, captured, scanned, the body's own initializers") {
    const tensor w = doubles({2}, 0.3), c = doubles({2}, 0.9);
    named_tensors inputs{{"n", integers({}, {4})}, {"x", doubles({2}, 0.1)}, {"s0", doubles({2}, 0.7)}, {"w", w}, {"c", c}};
    const model all = loop_model(false, false, w, c);
    check(all, inputs, doubles({2}, 2));
    check(all, inputs, doubles({4, 2}, 3), 1);
    const tensor v = doubles({2}, 2);
    const auto expected = vector_gradient(all, inputs, v).gradients;
    inputs.erase("w"), inputs.erase("c");
    const auto own_ones = vector_gradient(loop_model(true, true, w, c), inputs, v).gradients;
    for (const char* name : {"x", "s0", "w", "c"})
        for (std::size_t i = 0; i < 2; ++i)
            CHECK(own_ones.at(name).as<double>()[i] == doctest::Approx(expected.at(name).as<double>()[i]).epsilon(1e-12));

    inputs["n"] = integers({}, {0});
    const auto none = vector_gradient(loop_model(true, true, w, c), inputs, v).gradients;
    for (std::size_t i = 0; i < 2; ++i) {
        CHECK(none.at("s0").as<double>()[i] == v.as<double>()[i]);  // without an iteration the state passes through
        CHECK(none.at("c").as<double>()[i] == 0);
    }
}

TEST_CASE("a gradient flows through a Scan: states, sequences along any axis in either direction") {
    for (const std::int64_t reversed : {0, 1}) {
        qk_test::builder body;
        body.input("s", {2}, real).input("p", {2}, real).input("q", {2}, real);
        body.output("next", {2}, real).output("one", {2}, real).output("two", {2}, real);
        body.node("Mul", {"s", "p"}, {"a"});
        body.node("Add", {"a", "q"}, {"b"});
        body.node("Sin", {"b"}, {"next"});
        body.node("Mul", {"next", "q"}, {"one"});
        body.node("Add", {"p", "w"}, {"two"});
        qk_test::builder b;
        b.input("s0", {2}, real).input("xs", {3, 2}, real).input("ys", {2, 3}, real).input("w", {2}, real);
        b.output("last", {2}, real).output("ones", {2, 3}, real).output("twos", {3, 2}, real);
        auto& node = b.node("Scan", {"s0", "xs", "ys"}, {"last", "ones", "twos"});
        set_body(node, "body", body);
        qk_test::set(node, "num_scan_inputs", std::int64_t{2});
        qk_test::set(node, "scan_input_axes", std::vector<std::int64_t>{0, -1});
        qk_test::set(node, "scan_input_directions", std::vector<std::int64_t>{reversed, 1 - reversed});
        qk_test::set(node, "scan_output_axes", std::vector<std::int64_t>{1, 0});
        qk_test::set(node, "scan_output_directions", std::vector<std::int64_t>{1 - reversed, reversed});
        const named_tensors inputs{
            {"s0", doubles({2}, 0.2)}, {"xs", doubles({3, 2}, 0.4)}, {"ys", doubles({2, 3}, 0.8)}, {"w", doubles({2}, 1.5)}};
        check(b.model(), inputs, doubles({2}, 1), 0);
        check(b.model(), inputs, doubles({2, 3}, 2), 1);
        check(b.model(), inputs, doubles({3, 2}, 3), 2);
    }
}

TEST_CASE("a gradient flows through the batched Scan of opset 8, sequences of their own lengths") {
    qk_test::builder body(8);
    body.input("s", {2}, real).input("p", {2}, real).output("next", {2}, real).output("one", {2}, real);
    body.node("Mul", {"s", "p"}, {"a"});
    body.node("Add", {"a", "p"}, {"next"});
    body.node("Mul", {"next", "p"}, {"one"});
    qk_test::builder b(8);
    b.input("lengths", {2}, whole).input("s0", {2, 2}, real).input("xs", {2, 3, 2}, real);
    b.output("last", {2, 2}, real).output("ones", {2, 3, 2}, real);
    auto& node = b.node("Scan", {"lengths", "s0", "xs"}, {"last", "ones"});
    set_body(node, "body", body);
    qk_test::set(node, "num_scan_inputs", std::int64_t{1});
    qk_test::set(node, "directions", std::vector<std::int64_t>{1});
    const named_tensors inputs{{"lengths", integers({2}, {3, 2})}, {"s0", doubles({2, 2}, 0.2)}, {"xs", doubles({2, 3, 2}, 0.4)}};
    check(b.model(), inputs, doubles({2, 2}, 1), 0);
    check(b.model(), inputs, doubles({2, 3, 2}, 2), 1);
}

TEST_CASE("an If within a Loop, and the initializers of branches") {
    const auto branch = [](const char* op, const char* output, double first) {
        qk_test::builder g;
        g.output(output, {2}, real);
        own(g, std::string(output) + "_c", doubles({2}, first));
        g.node(op, {"s", std::string(output) + "_c"}, {output});
        return g;
    };
    qk_test::builder body;
    body.input("i", {}, whole).input("go", {}, truth).input("s", {2}, real).output("go_on", {}, truth).output("next", {2}, real);
    body.node("Identity", {"go"}, {"go_on"});
    body.node("Less", {"i", "two"}, {"early"});
    auto& choice = body.node("If", {"early"}, {"h"});
    set_body(choice, "then_branch", branch("Mul", "t", 0.5));
    set_body(choice, "else_branch", branch("Add", "e", 0.6));
    body.node("Sin", {"h"}, {"next"});
    qk_test::builder b;
    own(b, "two", integers({}, {2}));
    b.input("n", {}, whole).input("s0", {2}, real).output("last", {2}, real);
    set_body(b.node("Loop", {"n", "", "s0"}, {"last"}), "body", body);
    const named_tensors inputs{{"n", integers({}, {4})}, {"s0", doubles({2}, 0.2)}};
    check(b.model(), inputs, doubles({2}, 1));
    const auto g = vector_gradient(b.model(), inputs, doubles({2}, 1)).gradients;
    REQUIRE(g.contains("t_c"));
    CHECK(g.at("t_c").as<double>()[0] != 0);
    CHECK(g.at("e_c").as<double>()[0] != 0);
    const auto early = vector_gradient(b.model(), {{"n", integers({}, {2})}, {"s0", doubles({2}, 0.2)}}, doubles({2}, 1)).gradients;
    CHECK(early.at("t_c").as<double>()[0] != 0);
    CHECK(early.at("e_c").as<double>()[0] == 0);
}

TEST_CASE("what would not fit is forgotten and run again: the same bits, and a lower peak") {
    constexpr std::int64_t n = 1 << 18;  // each value has 1 MiB
    qk_test::builder b;
    b.input("x", {n}).output("y", {n}).constant("w", {1}, {0.9f});
    std::string at = "x";
    for (int k = 0; k < 100; ++k) {
        const std::string name = std::to_string(k);
        b.node("Mul", {at, "w"}, {"a" + name});
        b.node("Add", {"a" + name, k % 10 == 9 ? "a" + std::to_string(k - 5) : "x"}, {"b" + name});  // some values are read much later
        b.node("Sin", {"b" + name}, {"c" + name});
        at = "c" + name;
    }
    b.node("Identity", {at}, {"y"});
    tensor x(data_type::float32, {n}), v(data_type::float32, {n});
    for (std::size_t i = 0; i < x.size(); ++i) x.as<float>()[i] = v.as<float>()[i] = std::sin(static_cast<float>(i));
    const model m = b.model();
    constexpr std::size_t mib = std::size_t{1} << 20;
    const std::size_t before = peak_process_bytes();
    const auto small = vector_gradient(m, {{"x", x}}, v, {.threads = 1, .memory = 32 * mib});
    const std::size_t bounded = peak_process_bytes();
    const auto large = vector_gradient(m, {{"x", x}}, v, {.threads = 1, .memory = 4096 * mib});
    const std::size_t free = peak_process_bytes();
    for (const auto& [name, g] : large.gradients) {
        CAPTURE(name);
        CHECK(std::memcmp(g.bytes(), small.gradients.at(name).bytes(), g.size_bytes()) == 0);
    }
#ifdef __SANITIZE_THREAD__
    constexpr bool measured = false;  // ThreadSanitizer's own memory grows with what it watches
#else
    const bool measured = before != 0;  // some systems do not report peak memory
#endif
    if (!measured) return;
    CHECK(bounded < before + 200 * mib);
    CHECK(free > bounded + 120 * mib);
}

TEST_CASE("bodies and random values are run again with the same bits, or kept") {
    const tensor w = doubles({2}, 0.3), c = doubles({2}, 0.9);
    const named_tensors inputs{{"n", integers({}, {4})}, {"x", doubles({2}, 0.1)}, {"s0", doubles({2}, 0.7)}};
    const model m = loop_model(true, true, w, c);
    const auto large = vector_gradient(m, inputs, doubles({2}, 2)), small = vector_gradient(m, inputs, doubles({2}, 2), {.memory = 1});
    REQUIRE(small.gradients.size() == large.gradients.size());
    for (const auto& [name, g] : large.gradients) CHECK(std::memcmp(g.bytes(), small.gradients.at(name).bytes(), g.size_bytes()) == 0);

    qk_test::builder b;
    b.input("x", {8}).output("y", {8});
    qk_test::set(b.node("RandomNormal", {}, {"r"}), "shape", std::vector<std::int64_t>{8});
    b.node("Mul", {"x", "r"}, {"h"});
    b.node("Mul", {"h", "r"}, {"y"});  // y = x r^2
    const std::vector<float> ones(8, 1);
    const auto g = vector_gradient(b.model(), {{"x", make_tensor<float>({8}, ones)}}, make_tensor<float>({8}, ones), {.memory = 1});
    for (std::size_t i = 0; i < 8; ++i) CHECK(g.gradients.at("x").as<float>()[i] == doctest::Approx(g.output.as<float>()[i]));
}

TEST_CASE("estimates say which plans lie behind an operator that no gradient flows through") {
    qk_test::builder b;
    b.input("x", {-1, 4}).output("y", {-1, 4});
    const std::vector<float> w{1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7};
    b.constant("w1", {4, 4}, w).constant("w2", {4, 4}, w);
    b.node("MatMul", {"x", "w1"}, {"h"}, "first");
    b.node("DynamicQuantizeLinear", {"h"}, {"q", "s", "z"});
    b.node("DequantizeLinear", {"q", "s", "z"}, {"d"});
    b.node("MatMul", {"d", "w2"}, {"y"}, "second");
    quantizer q;
    q.format = qk::integer{.bits = 4, .is_signed = true};
    q.scale = {1.5f};
    q.zero_point = {0};
    precision_plan first, second;
    first.edges[{"w1", "first", 1}] = q;
    second.edges[{"w2", "second", 1}] = q;
    const std::vector<precision_plan> plans{first, second};
    tensor x(data_type::float32, {6, 4});
    for (std::size_t i = 0; i < x.size(); ++i) x.as<float>()[i] = std::sin(static_cast<float>(i));
    const change_estimates found = estimate_changes(b.model(), {{"x", x}}, {}, plans);
    CHECK(found.unknown == std::vector<char>{1, 0});
    CHECK(found.added[1] > 0);
    CHECK_THROWS_WITH_AS(vector_gradient(b.model(), {{"x", x}}, x), doctest::Contains("DynamicQuantizeLinear"), error);
}
