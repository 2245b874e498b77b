// SPDX-License-Identifier: Apache-2.0
// Checks the vector-Jacobian product of every operator that has one against central differences, and gradients of small models.
#include <doctest/doctest.h>
#include <onnx/onnx_pb.h>

#include <cmath>
#include <random>
#include <set>

#include "build_model.hpp"
#include "gradient_attention_cases.hpp"
#include "gradient_cases.hpp"
#include "gradient_sequence_cases.hpp"
#include "graph/gradient/backward.hpp"
#include "graph/gradient/tape.hpp"
#include "graph/ops/all_ops.hpp"
#include "graph/ops/body.hpp"
#include "graph/ops/walk/walk.hpp"
#include "qk/graph/gradient/gradient.hpp"

using namespace qk::graph;
using qk_test::gradient_case;

namespace {

/// A single node with random inputs; run() calls its operator as the evaluator does.
struct one_node {
    onnx::NodeProto proto;
    std::vector<tensor> inputs;
    const gradient_case* what;

    explicit one_node(const gradient_case& c) : proto(qk_test::make_node(c.op, c.given)), what(&c) {
        std::mt19937 random(7);
        for (const auto& i : c.inputs) {
            proto.add_input(i.omitted ? "" : "x" + std::to_string(inputs.size()));
            if (i.omitted) {
                inputs.emplace_back();
            } else if (!i.whole.empty()) {
                tensor t(i.is_bool ? data_type::boolean : i.is_byte ? data_type::uint8 : data_type::int64, i.shape);
                for (std::size_t k = 0; k < t.size(); ++k) {
                    if (i.is_bool) t.as<bool>()[k] = i.whole[k] != 0;
                    else if (i.is_byte) t.as<std::uint8_t>()[k] = static_cast<std::uint8_t>(i.whole[k]);
                    else t.as<std::int64_t>()[k] = i.whole[k];
                }
                inputs.push_back(t);
            } else {
                tensor t(c.single ? data_type::float32 : data_type::float64, i.shape);
                std::uniform_real_distribution<double> values(i.low, i.high);
                for (std::size_t k = 0; k < t.size(); ++k) {
                    if (c.single) t.as<float>()[k] = static_cast<float>(values(random));
                    else t.as<double>()[k] = values(random);
                }
                inputs.push_back(t);
            }
        }
        for (std::size_t k = 0; k < c.outputs; ++k) proto.add_output("y" + std::to_string(k));
    }

    std::vector<tensor> run() const {
        const node_view view(proto, what->version);
        const op_entry* op = find_op(proto.domain(), proto.op_type(), what->version);
        REQUIRE_MESSAGE(op != nullptr, what->op);
        std::vector<tensor> out(what->outputs);
        op_context call(view, inputs, out, gradient::thread_allocator::get(), execute::detail::no_subgraphs());
        op->run(call);
        return out;
    }
};

double at(const tensor& t, std::size_t i) {
    return t.type() == data_type::float64 ? t.as<double>()[i] : static_cast<double>(t.as<float>()[i]);
}

/// Returns the sum of v * y over the real outputs.
double weighted(const std::vector<tensor>& y, const std::vector<tensor>& v) {
    double sum = 0;
    for (std::size_t k = 0; k < y.size(); ++k)
        for (std::size_t i = 0; !v[k].empty() && i < y[k].size(); ++i) sum += at(y[k], i) * at(v[k], i);
    return sum;
}

/// Runs the nodes of a composite's body; returns the outputs that it makes, others are empty.
std::vector<tensor> outputs_of_body(const one_node& node, const op_entry& row) {
    const node_view view(node.proto, node.what->version);
    const ops::op_body body(view, row);
    std::vector<tensor> values = node.inputs;
    values.resize(static_cast<std::size_t>(body.values()));
    const auto at = [&](int v) { return v < 0 ? tensor() : values[static_cast<std::size_t>(v)]; };
    for (const ops::op_body::node& n : body.nodes()) {
        std::vector<tensor> in, out(n.outputs.size());
        for (const int v : n.inputs) in.push_back(at(v));
        op_context call(n.view, in, out, gradient::thread_allocator::get(), execute::detail::no_subgraphs());
        n.op->run(call);
        for (std::size_t k = 0; k < out.size(); ++k) values[static_cast<std::size_t>(n.outputs[k])] = out[k];
    }
    std::vector<tensor> made;
    for (std::size_t k = 0; k < node.what->outputs; ++k) made.push_back(at(body.output(k)));
    return made;
}

/// A composite's kernel agrees with its body, and the walk knows its shape.
void check_body(const one_node& node, const op_entry& row, const std::vector<tensor>& y) {
    if (row.body == nullptr) return;
    const std::vector<tensor> of_body = outputs_of_body(node, row);
    REQUIRE(!of_body[0].empty());
    for (std::size_t k = 0; k < y.size(); ++k) {
        if (of_body[k].empty()) continue;
        REQUIRE(of_body[k].type() == y[k].type());
        REQUIRE(of_body[k].shape() == y[k].shape());
        for (std::size_t i = 0; i < y[k].size(); ++i)
            CHECK(at(of_body[k], i) == doctest::Approx(at(y[k], i)).epsilon(node.what->single ? 1e-5 : 1e-12));
    }
    const node_view view(node.proto, node.what->version);
    ops::walk_graph graph;
    ops::walk_graph::node& n = graph.nodes.emplace_back(ops::walk_graph::node{&view, &row, {}, {}});
    std::vector<ops::walked> inputs;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        n.inputs.push_back(node.inputs[i].empty() ? -1 : static_cast<int>(i));
        graph.inputs.push_back(static_cast<int>(i));
        inputs.push_back(ops::walked_constant(node.inputs[i].shape()));
    }
    n.outputs.push_back(static_cast<int>(node.inputs.size()));
    graph.values = node.inputs.size() + 1;
    const ops::walked known = ops::walk(graph, inputs, {1, 1, 1, 1}).back();
    CHECK(known.ranked);
    CHECK(known.shape == y[0].shape());
}

void check(const gradient_case& c) {
    CAPTURE(c.op);
    one_node node(c);
    const std::vector<tensor> y = node.run();
    check_body(node, *find_op(node.proto.domain(), node.proto.op_type(), c.version), y);
    std::mt19937 random(11);
    std::uniform_real_distribution<double> values(-1, 1);
    std::vector<tensor> v(y.size()), given(node.inputs.size());
    for (std::size_t k = 0; k < y.size(); ++k) {
        if (!gradient::is_real(y[k].type())) continue;
        v[k] = tensor(y[k].type(), y[k].shape());
        for (std::size_t i = 0; i < v[k].size(); ++i) {
            if (c.single) v[k].as<float>()[i] = static_cast<float>(values(random));
            else v[k].as<double>()[i] = values(random);
        }
    }
    std::vector<char> wanted;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        const bool size = (c.op == "Upsample" && i == 1) || (c.op == "CastLike" && i == 1);
        const bool region = (c.op == "RoiAlign" || c.op == "MaxRoiPool") && i == 1;  // regions are taken as constants
        wanted.push_back(gradient::is_real(node.inputs[i].type()) && !size && !region);
    }
    const node_view view(node.proto, c.version);
    const gradient::product_function product = gradient::find_backward(node.proto.domain(), node.proto.op_type(), c.version);
    REQUIRE((product != nullptr));
    const std::vector<tensor> seeds = v;  // a second reference to the gradients, since a product may overwrite those that it alone holds
    gradient::backward_call call(view, *find_op(node.proto.domain(), node.proto.op_type(), c.version), node.inputs, y, seeds, wanted,
                                 given);
    product(call);

    const double step = c.single ? 5e-3 : 1e-5, tolerance = c.single ? 1e-2 : 2e-6;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        if (wanted[i] == 0) continue;
        CAPTURE(i);
        REQUIRE(given[i].shape() == node.inputs[i].shape());
        for (std::size_t k = 0; k < node.inputs[i].size(); ++k) {
            CAPTURE(k);
            const tensor kept = node.inputs[i];
            const auto moved = [&](double by) {
                tensor t(kept.type(), kept.shape());
                std::memcpy(t.bytes(), kept.bytes(), kept.size_bytes());
                if (c.single) t.as<float>()[k] += static_cast<float>(by);
                else t.as<double>()[k] += by;
                node.inputs[i] = t;
                return weighted(node.run(), v);
            };
            const double difference = (moved(step) - moved(-step)) / (2 * step);
            node.inputs[i] = kept;
            CHECK(std::abs(at(given[i], k) - difference) <= tolerance * (1 + std::abs(difference)));
        }
    }
}

std::vector<gradient_case> all_cases() {
    std::vector<gradient_case> all;
    for (const auto& list :
         {qk_test::elementwise_cases(), qk_test::heavy_cases(), qk_test::normalizing_cases(), qk_test::movement_cases(),
          qk_test::recurrent_cases(), qk_test::grid_cases(), qk_test::other_cases(), qk_test::attention_cases(), qk_test::decoder_cases()})
        all.insert(all.end(), list.begin(), list.end());
    return all;
}

/// Is true for quantizers: their straight-through gradients do not agree with differences and have a test of their own below.
bool is_quantizer(std::string_view op) {
    return op.find("Quantize") != std::string_view::npos || op.find("quantize") != std::string_view::npos ||
           op.find("FixNeuron") != std::string_view::npos;
}

tensor floats(dims shape, const std::vector<float>& values) { return make_tensor<float>(std::move(shape), std::span(values)); }

}  // namespace

TEST_CASE("every product agrees with central differences") {
    for (const gradient_case& c : all_cases()) check(c);
}

TEST_CASE("every product and every body has a case above") {
    std::set<std::string> tested;
    for (const gradient_case& c : all_cases()) tested.insert(c.op);
    for (const auto& [name, rows] : ops::table())
        for (const op_entry& row : rows)
            if (row.body != nullptr) CHECK_MESSAGE(tested.contains(row.domain.empty() ? std::string(row.name) : name), name);
    for (const gradient::backward_entry& p : gradient::all_backward()) {
        if (is_quantizer(p.name)) continue;
        CHECK_MESSAGE(tested.contains((p.domain.empty() ? "" : std::string(p.domain) + ":") + std::string(p.name)), std::string(p.name));
    }
}

TEST_CASE("every operator has a product, or no derivative to have one of, or stands on the list of what is missing") {
    // Operators of integers, booleans, shapes and indices, and those that have no real input.
    const std::set<std::string> no_derivative{
        ":And", ":ArgMax", ":ArgMin", ":Bernoulli", ":BitCast", ":BitShift", ":BitwiseAnd", ":BitwiseNot", ":BitwiseOr", ":BitwiseXor",
        ":BlackmanWindow", ":Constant", ":ConstantOfShape", ":Equal", ":EyeLike", ":Greater", ":GreaterOrEqual", ":HammingWindow",
        ":HannWindow", ":IsInf", ":IsNaN", ":Less", ":LessOrEqual", ":MelWeightMatrix", ":Multinomial", ":NonMaxSuppression", ":NonZero",
        ":Not", ":OptionalHasElement", ":Or", ":RandomNormal", ":RandomNormalLike", ":RandomUniform", ":RandomUniformLike", ":Range",
        ":Shape", ":Size", ":Unique", ":Xor",
        // The tape goes through the bodies of these.
        ":If", ":Loop", ":Scan"};
    // Operators that compute with codes: the sensitivity of layers behind them is measured, not estimated from gradients.
    const std::set<std::string> codes{":ConvInteger",
                                      ":DynamicQuantizeLinear",
                                      ":MatMulInteger",
                                      ":QLinearConv",
                                      ":QLinearMatMul",
                                      "com.microsoft:DynamicQuantizeLSTM",
                                      "com.microsoft:DynamicQuantizeMatMul",
                                      "com.microsoft:MatMulIntegerToFloat",
                                      "com.microsoft:QGemm",
                                      "qk:decode",
                                      "qk:product",
                                      "qk:quantize",
                                      "qk:rows",
                                      "trt:DequantizeLinear",
                                      "trt:TRT_FP4DynamicQuantize",
                                      "trt:TRT_MXFP8DequantizeLinear",
                                      "trt:TRT_MXFP8DynamicQuantize"};
    const std::set<std::string> missing{"ai.onnx.preview:FlexAttention", "com.microsoft:DecoderMaskedMultiHeadAttention",
                                        "com.microsoft:MoE", "com.microsoft:QMoE"};
    for (const auto& [name, entries] : ops::table()) {
        const bool product = gradient::find_backward(entries[0].domain, entries[0].name, 1000) != nullptr;
        const bool integers = codes.contains(name) || name.starts_with("com.microsoft:QLinear");
        CHECK_MESSAGE(int{product} + int{no_derivative.contains(name)} + int{integers} + int{missing.contains(name)} == 1, name);
    }
}

TEST_CASE("a use of a value adds up, a value without a path gets zeros, integers have no key") {
    qk_test::builder b;
    b.input("x", {2}).input("i", {1}, 7).output("y", {2}).constant("w", {2}, {3, 5}).constant("alone", {3}, {1, 2, 3});
    b.node("Mul", {"x", "w"}, {"a"});
    b.node("Mul", {"a", "w"}, {"p"});
    b.node("Add", {"p", "x"}, {"y"});
    b.node("Neg", {"alone"}, {"unused"});
    const auto g =
        vector_gradient(b.model(), {{"x", floats({2}, {2, 4})}, {"i", make_tensor<std::int64_t>({1}, std::array<std::int64_t, 1>{7})}},
                        floats({2}, {1, 10}));
    REQUIRE(g.gradients.size() == 3);
    CHECK(g.gradients.at("x").as<float>()[0] == 10);   // w^2 + 1
    CHECK(g.gradients.at("x").as<float>()[1] == 260);  // 10 * 26
    CHECK(g.gradients.at("w").as<float>()[0] == 12);   // 2 x w
    CHECK(g.gradients.at("w").as<float>()[1] == 400);
    CHECK(g.gradients.at("alone").shape() == dims{3});
    for (const float v : g.gradients.at("alone").as<float>()) CHECK(v == 0);
}

TEST_CASE("Relu at 0, and equal values under MaxPool") {
    qk_test::builder b;
    b.input("x", {1, 1, 2, 2}).output("y", {1, 1, 1, 1});
    b.node("Relu", {"x"}, {"r"});
    qk_test::set(b.node("MaxPool", {"r"}, {"y"}), "kernel_shape", std::vector<std::int64_t>{2, 2});
    const auto gradient_at = [&](const std::vector<float>& x) {
        const auto g = vector_gradient(b.model(), {{"x", floats({1, 1, 2, 2}, x)}}, floats({1, 1, 1, 1}, {1})).gradients.at("x");
        return std::vector<float>(g.as<float>().begin(), g.as<float>().end());
    };
    CHECK(gradient_at({1, 3, 3, 2}) == std::vector<float>{0, 1, 0, 0});
    CHECK(gradient_at({0, -1, 0, -2}) == std::vector<float>{0, 0, 0, 0});
}

TEST_CASE("a quantizer passes the gradient straight through, clips it, and its scale learns") {
    qk_test::builder b;
    b.input("x", {3}).output("y", {3}).constant("s", {}, {0.5f});
    qk::graph::to_proto(make_tensor<std::int8_t>({}, std::array<std::int8_t, 1>{0}), "z", *b.g().add_initializer());
    b.node("QuantizeLinear", {"x", "s", "z"}, {"q"});
    b.node("DequantizeLinear", {"q", "s", "z"}, {"y"});
    const auto g = vector_gradient(b.model(), {{"x", floats({3}, {1.2f, -0.3f, 100})}}, floats({3}, {2, 3, 5})).gradients;
    CHECK(g.at("x").as<float>()[0] == 2);
    CHECK(g.at("x").as<float>()[1] == 3);
    CHECK(g.at("x").as<float>()[2] == 0);
    // (2 - 2.4) * 2 + (-1 + 0.6) * 3 + 127 * 5
    CHECK(g.at("s").as<float>()[0] == doctest::Approx(-0.8 - 1.2 + 635).epsilon(1e-5));
    CHECK_FALSE(g.contains("z"));
}

TEST_CASE("an operator without a product is an error only where a gradient has to flow") {
    qk_test::builder b;
    b.input("x", {4, 2}).output("y", {2, 4});
    b.node("NonZero", {"x"}, {"positions"});
    b.node("Transpose", {"x"}, {"y"});
    CHECK_NOTHROW(vector_gradient(b.model(), {{"x", floats({4, 2}, std::vector<float>(8, 1))}}, floats({2, 4}, std::vector<float>(8, 1))));
    qk_test::builder c;
    c.input("x", {4}).output("y", {-1});
    c.node("Unique", {"x"}, {"y"}, "here");
    try {
        vector_gradient(c.model(), {{"x", floats({4}, {1, 2, 3, 5})}}, floats({4}, {1, 1, 1, 1}));
        FAIL("no error");
    } catch (const error& e) {
        CHECK(std::string(e.what()).find("node 'here' (Unique): no vector-Jacobian product for operator Unique") != std::string::npos);
    }
}

TEST_CASE("samples are summed, alone or in a batch, with the same bits for any number of threads") {
    qk_test::builder b;
    b.input("x", {-1, 3}).output("y", {-1, 2});
    b.constant("w", {3, 2}, {1, -2, 3, 0.5f, -1, 2}).constant("c", {2}, {0.1f, 0.2f});
    b.node("Gemm", {"x", "w", "c"}, {"h"});
    b.node("Tanh", {"h"}, {"y"});
    std::vector<float> x(15), v(10);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = std::cos(static_cast<float>(i));
    const auto one = vector_gradient(b.model(), {{"x", floats({5, 3}, x)}}, floats({5, 2}, v), {.threads = 1});
    const auto four = vector_gradient(b.model(), {{"x", floats({5, 3}, x)}}, floats({5, 2}, v), {.threads = 4});
    CHECK(one.samples == 5);
    CHECK(one.output.shape() == dims{5, 2});
    for (const auto& [name, g] : one.gradients) CHECK(std::memcmp(g.bytes(), four.gradients.at(name).bytes(), g.size_bytes()) == 0);
    double sum = 0;  // the gradient by c is the sum of v * (1 - y^2)
    for (std::size_t i = 0; i < 5; ++i) {
        const double y = static_cast<double>(one.output.as<float>()[2 * i]);
        sum += static_cast<double>(v[2 * i]) * (1 - y * y);
    }
    CHECK(one.gradients.at("c").as<float>()[0] == doctest::Approx(sum).epsilon(1e-5));
    CHECK_THROWS_WITH_AS(vector_gradient(b.model(), {{"x", floats({5, 3}, x)}}, floats({2, 5}, v)), doctest::Contains("[5,2]"), error);
}

TEST_CASE("the mean cross-entropy") {
    qk_test::builder b;
    b.input("x", {-1, 3}).output("y", {-1, 3}).constant("c", {3}, {0, 0, 0});
    b.node("Add", {"x", "c"}, {"y"});
    const std::vector<std::int64_t> labels{2, 0};
    const auto g = loss_gradient(b.model(), {{"x", floats({2, 3}, {1, 2, 4, -1, 0, 1})}}, labels);
    const double a = std::exp(1 - 4.0), c = std::exp(2 - 4.0), n = 1 + a + c;
    CHECK(g.gradients.at("x").as<float>()[0] == doctest::Approx(a / n / 2).epsilon(1e-5));
    CHECK(g.gradients.at("x").as<float>()[2] == doctest::Approx((1 / n - 1) / 2).epsilon(1e-5));
    const double m = 1 + std::exp(1.0) + std::exp(2.0);
    CHECK(g.loss == doctest::Approx((std::log(n) + std::log(m)) / 2).epsilon(1e-6));
    CHECK_THROWS_WITH_AS(loss_gradient(b.model(), {{"x", floats({2, 3}, {1, 2, 4, -1, 0, 1})}}, std::vector<std::int64_t>{1}),
                         doctest::Contains("1 labels for 2 samples"), error);
}

TEST_CASE("a gradient flows through the branch that an If takes, to what it captured") {
    qk_test::builder b;
    b.input("x", {2}).input("yes", {}, 9).output("y", {2}).constant("w", {2}, {3, 5});
    auto& node = b.node("If", {"yes"}, {"y"});
    for (const char* name : {"then_branch", "else_branch"}) {
        auto* a = node.add_attribute();
        a->set_name(name);
        a->set_type(onnx::AttributeProto::GRAPH);
        auto* g = a->mutable_g();
        g->set_name(name);
        qk_test::builder::declare(*g->add_output(), std::string(name) + "_y", {2});
        auto* n = g->add_node();
        n->set_op_type(std::string(name) == "then_branch" ? "Mul" : "Add");
        n->add_input("x");
        n->add_input("w");
        n->add_output(std::string(name) + "_y");
    }
    const auto with = [&](bool yes) {
        return vector_gradient(b.model(), {{"x", floats({2}, {2, 4})}, {"yes", make_tensor<bool>({}, std::array{yes})}},
                               floats({2}, {1, 1}))
            .gradients;
    };
    CHECK(with(true).at("x").as<float>()[1] == 5);
    CHECK(with(true).at("w").as<float>()[1] == 4);
    CHECK(with(false).at("w").as<float>()[1] == 1);
}
