// SPDX-License-Identifier: Apache-2.0
// The evaluator against reference outputs of other software, and its promise that bits depend neither on threads nor on the batch.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <set>

#include "../data_folders.hpp"
#include "call_op.hpp"
#include "graph/evaluate/execute/quantize_value.hpp"
#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/files/npy.hpp"
#include "small_graph.hpp"

namespace fs = std::filesystem;
using namespace qk::graph;

namespace {

/// Reads the files "MODEL.KIND.NAME.npy" of the folder `reference` beside the models, and returns the tensors by NAME.
named_tensors reference(const fs::path& model_file, const std::string& kind) {
    named_tensors all;
    const std::string start = model_file.stem().string() + "." + kind + ".";
    for (const auto& f : fs::directory_iterator(model_file.parent_path().parent_path() / "reference")) {
        const std::string n = f.path().filename().string();
        if (n.starts_with(start)) all[n.substr(start.size(), n.size() - start.size() - 4)] = read_npy(f.path());
    }
    return all;
}

double relative_error(const tensor& got, const tensor& expected) {
    REQUIRE(got.shape() == expected.shape());
    double difference = 0, largest = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
        difference = std::max(difference, std::abs(double(got.as<float>()[i]) - double(expected.as<float>()[i])));
        largest = std::max(largest, std::abs(double(expected.as<float>()[i])));
    }
    return difference / largest;
}

bool same_bits(const tensor& a, const tensor& b) {
    return a.type() == b.type() && a.shape() == b.shape() && std::memcmp(a.bytes(), b.bytes(), a.size_bytes()) == 0;
}

tensor repeat_rows(const tensor& t, std::size_t n) {
    dims shape = t.shape();
    shape[0] *= static_cast<std::int64_t>(n);
    tensor all(t.type(), shape);
    for (std::size_t i = 0; i < n; ++i) std::memcpy(all.bytes() + i * t.size_bytes(), t.bytes(), t.size_bytes());
    return all;
}

/// Returns the networks that have reference outputs, the small ones of the tests first.
std::vector<fs::path> networks() {
    std::vector<fs::path> all;
    for (const fs::path& folder : qk_test::data_with("reference")) {
        const std::size_t before = all.size();
        for (const auto& f : fs::directory_iterator(folder / "models"))
            if (!reference(f.path(), "output").empty()) all.push_back(f.path());
        REQUIRE(all.size() >= before + 7);
    }
    return all;
}

}  // namespace

TEST_CASE("float outputs agree with the reference, with the same bits for 1 to 4 threads") {
    for (const fs::path& name : networks()) {
        CAPTURE(name.string());
        const model m = model::load(name);
        const named_tensors inputs = reference(name, "input"), expected = reference(name, "output");
        named_tensors first;
        for (const int threads : {1, 2, 3, 4}) {
            const evaluator e(m, {.threads = threads});
            const auto result = e.run(inputs);
            for (const auto& entry : expected) {
                const std::string& output = entry.first;  // clang 14 does not capture structured bindings
                const tensor& value = entry.second;
                CAPTURE(output);
                REQUIRE(result.outputs.contains(output));
                if (threads == 1) CHECK(relative_error(result.outputs.at(output), value) <= 1e-4);
                else CHECK(same_bits(result.outputs.at(output), first.at(output)));
            }
            if (threads == 1) first = result.outputs;
        }
    }
}

TEST_CASE("the path without oneDNN agrees with the one that has it") {
    for (const fs::path& name : networks()) {
        CAPTURE(name.string());
        const model m = model::load(name);
        const named_tensors inputs = reference(name, "input"), expected = reference(name, "output");
        const auto fast = evaluator(m, {.threads = 2}).run(inputs), plain = evaluator(m, {.threads = 2, .plain_kernels = true}).run(inputs);
        for (const auto& [output, value] : expected) {
            CHECK(relative_error(plain.outputs.at(output), value) <= 1e-4);
            CHECK(relative_error(fast.outputs.at(output), plain.outputs.at(output)) <= 1e-4);
        }
    }
}

TEST_CASE("bits do not depend on how many samples stand beside one, nor on the batch") {
    for (const fs::path& name : networks()) {
        CAPTURE(name.string());
        const model m = model::load(name);
        const named_tensors inputs = reference(name, "input");
        named_tensors many;
        for (const auto& [n, t] : inputs) many[n] = repeat_rows(t, 3);
        const evaluator one(m, {.threads = 1}), four(m, {.threads = 4, .batch = 5});
        const auto a = one.run(inputs), b = four.run(many);
        CHECK(b.samples == 3 * a.samples);
        for (const auto& [output, value] : a.outputs) CHECK(same_bits(repeat_rows(value, 3), b.outputs.at(output)));
    }
}

TEST_CASE("Slice and Pad of what a convolution makes are the same as alone, whatever the order of its elements") {
    struct one {
        std::string op;
        std::vector<std::vector<std::int64_t>> integers;  // the node's inputs 1, 2, ...; an empty one is omitted
        std::string mode;
    };
    const std::vector<one> ones{{"Slice", {{1}, {4}, {1}}, ""},
                                {"Slice", {{-3}, {100}, {-1}}, ""},
                                {"Slice", {{0, 5, 1}, {100, -100, 6}, {2, 3, 1}, {2, -2, 3}}, ""},
                                {"Slice", {{0, 2}, {1, 5}}, ""},
                                {"Slice", {{0, 0, 1, 1}, {1, 8, 4, 4}}, ""},
                                {"Pad", {{0, 4, 0, 0, 0, 4, 0, 0}}, ""},
                                {"Pad", {{0, 0, 1, 2, 0, 0, 2, 1}}, "reflect"},
                                {"Pad", {{0, -2, 1, 0, 0, 3, 0, -1}}, "constant"},
                                {"Pad", {{1, 2, 0, 1}, {}, {-2, 1}}, "edge"}};
    for (const one& c : ones) {
        CAPTURE(c.op);
        CAPTURE(c.integers[0][0]);
        small_graph g(18);
        g.input("x", {1, 3, 6, 6}).constant("w", {8, 3, 3, 3}, 0.5f).output("conv_out", {1, 8, 6, 6}).output("y", {});
        small_graph::set(g.node("Conv", "conv", {"x", "w"}), "pads", {1, 1, 1, 1});
        auto& node = g.node(c.op, "op", {"conv_out"}, "y");
        qk_test::attributes given;
        std::vector<tensor> inputs(1);
        for (const auto& values : c.integers) {
            const std::string name = "i" + std::to_string(inputs.size());
            node.add_input(values.empty() ? "" : name);
            if (!values.empty()) g.integers(name, values);
            inputs.push_back(values.empty() ? tensor() : make_tensor<std::int64_t>({static_cast<std::int64_t>(values.size())}, values));
        }
        if (!c.mode.empty()) {
            auto* a = node.add_attribute();
            a->set_name("mode");
            a->set_type(onnx::AttributeProto::STRING);
            a->set_s(c.mode);
            given.emplace_back("mode", c.mode);
        }
        std::vector<float> x(108);
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
        const auto outputs = evaluator(g.build(), {.threads = 1}).run({{"x", make_tensor<float>({1, 3, 6, 6}, x)}}).outputs;
        inputs[0] = outputs.at("conv_out");
        const tensor want = qk_test::call_op(c.op, 18, inputs, given)[0];
        REQUIRE(outputs.at("y").shape() == want.shape());
        CHECK(same_bits(outputs.at("y"), want));
    }
}

TEST_CASE("BatchNormalization of what a convolution makes is the same as alone, of several samples too") {
    small_graph g(15);
    g.input("x", {2, 3, 6, 6}).constant("w", {20, 3, 3, 3}, 0.5f).output("conv_out", {2, 20, 6, 6}).output("y", {2, 20, 6, 6});
    std::vector<tensor> inputs(1);
    for (const char* name : {"scale", "bias", "mean", "variance"}) {
        std::vector<float> values(20);
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.3f + 0.1f * static_cast<float>(i * inputs.size() % 7);
        g.constant(name, {20}, 1, values);
        inputs.push_back(make_tensor<float>({20}, values));
    }
    small_graph::set(g.node("Conv", "conv", {"x", "w"}), "pads", {1, 1, 1, 1});
    g.node("BatchNormalization", "bn", {"conv_out", "scale", "bias", "mean", "variance"}, "y");
    std::vector<float> x(216);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
    const auto outputs = evaluator(g.build(), {.threads = 1}).run({{"x", make_tensor<float>({2, 3, 6, 6}, x)}}).outputs;
    inputs[0] = outputs.at("conv_out");
    CHECK(same_bits(outputs.at("y"), qk_test::call_op("BatchNormalization", 15, inputs)[0]));
}

TEST_CASE("BatchNormalization that goes into a convolution gives what it gives alone, with a bias, a residual and a Relu around it") {
    for (const bool has_bias : {false, true}) {
        small_graph g(15);
        g.input("x", {1, 8, 20, 20}).input("r", {1, 20, 20, 20}).constant("w", {20, 8, 3, 3}, 0.2f).output("y", {1, 20, 20, 20});
        int k = 0;
        for (const char* name : {"b", "scale", "shift", "mean", "variance"}) {
            std::vector<float> values(20);
            for (std::size_t i = 0; i < values.size(); ++i)
                values[i] = 0.2f + 0.1f * static_cast<float>((3 * i + static_cast<std::size_t>(k)) % 11);
            g.constant(name, {20}, 1, values);
            ++k;
        }
        auto& conv = has_bias ? g.node("Conv", "conv", {"x", "w", "b"}, "c") : g.node("Conv", "conv", {"x", "w"}, "c");
        small_graph::set(conv, "pads", {1, 1, 1, 1});
        g.node("BatchNormalization", "bn", {"c", "scale", "shift", "mean", "variance"}, "n");
        g.node("Add", "add", {"n", "r"}, "s");
        g.node("Relu", "relu", {"s"}, "y");
        tensor x(data_type::float32, {1, 8, 20, 20}), r(data_type::float32, {1, 20, 20, 20});
        for (std::size_t i = 0; i < x.size(); ++i) x.as<float>()[i] = std::sin(static_cast<float>(i));
        for (std::size_t i = 0; i < r.size(); ++i) r.as<float>()[i] = std::cos(static_cast<float>(i));
        const model m = g.build();
        const tensor together = evaluator(m, {.threads = 1}).run({{"x", x}, {"r", r}}).outputs.at("y"),
                     alone = evaluator(m, {.threads = 1, .plain_kernels = true}).run({{"x", x}, {"r", r}}).outputs.at("y");
        CHECK(relative_error(together, alone) <= 1e-6);
    }
}

TEST_CASE("wrong data names the input, what is expected and what was given") {
    const evaluator e(model::load(qk_test::residual_network(qk_test::data_with("reference")[0])), {.threads = 1});
    const tensor good(data_type::float32, {2, 3, 32, 32}), small(data_type::float32, {2, 3, 28, 28}),
        bytes(data_type::uint8, {2, 3, 32, 32});
    CHECK_THROWS_WITH_AS(e.run({{"image", good}}), "'image' is not an input of the model; its inputs are 'input'", error);
    CHECK_THROWS_WITH_AS(e.run({}), "input 'input' [N,3,32,32] of the model is not given; its inputs are 'input'", error);
    CHECK_THROWS_WITH_AS(e.run({{"input", small}}),
                         "input 'input' has shape [N,3,32,32] in the model, and the data given has shape [2,3,28,28]", error);
    CHECK_THROWS_WITH_AS(e.run({{"input", bytes}}), "input 'input' is float32 in the model, and the data given is uint8", error);
}

TEST_CASE("a sum of what lies under quantizers, with a Relu behind it or not, has the bits of one node after the other") {
    const auto under = [](qk::format f, std::vector<float> scale, std::int64_t zero, qk::rounding how = qk::rounding::half_even) {
        quantizer q;
        q.format = f, q.axis = 1, q.zero_point.assign(scale.size(), zero), q.scale = std::move(scale), q.semantics.rounding = how;
        return q;
    };
    const std::vector<float> by_channel{0.1f, 0.2f, 0.3f, 0.1f, 0.2f, 0.3f, 0.1f};
    const quantizer kinds[] = {under(qk::int16, {0.0003f}, 5), under(qk::int8, {0.03f}, -128),
                               under(qk::fp8_e4m3fn, {}, 0),   under(qk::int8, by_channel, 0),
                               under(qk::mxint8, {}, 0),       under(qk::int16, {0.01f}, 0, qk::rounding::stochastic)};
    tensor x(data_type::float32, {1, 7, 31, 33}), r(data_type::float32, {1, 7, 31, 33});  // several whole pieces of work and a part of one
    for (std::size_t i = 0; i < x.size(); ++i)
        x.as<float>()[i] = 5 * std::sin(static_cast<float>(i)), r.as<float>()[i] = 3 * std::cos(static_cast<float>(7 * i));
    x.as<float>()[2100] = std::numeric_limits<float>::quiet_NaN(), r.as<float>()[2101] = -std::numeric_limits<float>::infinity();
    x.as<float>()[5000] = r.as<float>()[5000] = -0.0f;
    // Four sums: one with several readers, one that only a Relu reads, one that broadcasts an operand, and one of a value with itself.
    small_graph g;
    g.input("x", {1, 7, 31, 33}).input("r", {1, 7, 31, 33}).constant("c", {7, 1, 1});
    for (const char* y : {"read_out", "y", "own_out", "twice_out"}) g.output(y, {1, 7, 31, 33});
    g.node("Add", "read", {"x", "r"});
    g.node("Relu", "relu", {"read_out"});
    g.node("Add", "sum", {"relu_out", "r"});
    g.node("Relu", "last", {"sum_out"}, "y");
    g.node("Abs", "abs", {"x"});
    g.node("Add", "other", {"abs_out", "c"});
    g.node("Relu", "own", {"other_out"});
    g.node("Add", "same", {"r", "r"});
    g.node("Relu", "twice", {"same_out"});
    const model m = g.build();
    for (const quantizer& a : kinds)
        for (const quantizer& b : kinds) {
            precision_plan plan;
            plan.edges[{"x", "read", 0}] = plan.edges[{"relu_out", "sum", 0}] = plan.edges[{"r", "same", 0}] = a;
            plan.edges[{"r", "read", 1}] = plan.edges[{"r", "sum", 1}] = plan.edges[{"abs_out", "other", 0}] = b;
            const auto together = evaluator(m, {.threads = 1}).run({{"x", x}, {"r", r}}, plan).outputs,
                       alone = evaluator(m, {.threads = 1, .plain_kernels = true}).run({{"x", x}, {"r", r}}, plan).outputs;
            for (const std::string y : {"read_out", "y", "own_out", "twice_out"}) {
                CAPTURE(y);
                CHECK(same_bits(together.at(y), alone.at(y)));
            }
        }
}

TEST_CASE("weights that stay packed give the plan's values in the order of sums of MatMulNBits") {
    constexpr std::size_t rows = 3, k = 100, n = 37;
    const auto under = [](qk::format f, int axis, std::vector<float> scale = {}, int block = 0, std::vector<std::int64_t> zero = {}) {
        quantizer q;
        q.format = f, q.axis = axis, q.scale = std::move(scale), q.block_size = block, q.zero_point = std::move(zero);
        return q;
    };
    const auto some = [](std::size_t count) {
        std::vector<float> scale(count);
        for (std::size_t i = 0; i < count; ++i) scale[i] = 0.01f + 0.001f * static_cast<float>(i % 7);
        return scale;
    };
    std::vector<std::int64_t> zeros(4 * n);
    for (std::size_t i = 0; i < zeros.size(); ++i) zeros[i] = static_cast<std::int64_t>(i % 16);
    // Quantizers of W [k,n]. Of its transpose the axis is the other one and grids of scales are transposed.
    const quantizer packs[] = {under(qk::int8, 1, {0.02f}, 0, {3}),
                               under(qk::int8, 1, some(n)),
                               under(qk::int4, 0, some(4 * n), 32),
                               under(qk::uint4, 0, some(4 * n), 32, zeros),
                               under(qk::mxfp4, 0),
                               under(qk::nvfp4, 0, {0.002f}),
                               under(qk::mx9, 0),
                               under(qk::bfp16, 0),
                               under(qk::fp8_e4m3fn, -1),
                               under(qk::nf4, -1, {1.0f}),
                               under(qk::int16, 1, {0.0002f}),
                               under(qk::fp16, -1)};
    quantizer dynamic = under(qk::int8, 1);
    dynamic.dynamic = true;
    const quantizer stays[] = {dynamic, under(qk::int8, 0, some(k)), under(qk::mxfp4, 1), under(qk::int4, 1, some(2 * k), 32)};
    const auto data = [](dims shape, float step) {
        tensor t(data_type::float32, std::move(shape));
        for (std::size_t i = 0; i < t.size(); ++i) t.as<float>()[i] = std::sin(step * static_cast<float>(i));
        return t;
    };
    const tensor x = data({rows, k}, 0.7f), w = data({k, n}, 0.3f), b = data({n}, 1.1f);
    const std::vector<float> values(w.as<float>().begin(), w.as<float>().end()), bias(b.as<float>().begin(), b.as<float>().end());
    small_graph g;
    g.input("x", {rows, k}).constant("W", {k, n}, 1, values).constant("b", {n}, 1, bias).output("y", {rows, n});
    g.node("MatMul", "multiply", {"x", "W"});
    g.node("Add", "add", {"multiply_out", "b"}, "y");
    const model m = g.build();
    const auto run = [&](const quantizer& q, bool packed) {
        precision_plan plan;
        plan.edges[{"W", "multiply", 1}] = q;
        return evaluator(m, {.threads = 1, .packed_weights = packed}).run({{"x", x}}, plan);
    };
    for (const quantizer& q : packs) {
        CAPTURE(std::string(qk::to_text(q.format).view()));
        tensor rounded(data_type::float32, w.shape()), wanted(data_type::float32, {rows, n});
        execute::quantize_value(q, w.shape(), false, w.as<float>(), rounded.as<float>());
        for (std::size_t r = 0; r < rows; ++r)
            for (std::size_t c = 0; c < n; ++c) {
                float sum[16] = {};
                for (std::size_t i = 0; i < k; ++i)
                    sum[i % 16] = std::fma(x.as<float>()[r * k + i], rounded.as<float>()[i * n + c], sum[i % 16]);
                for (std::size_t half = 8; half > 0; half /= 2)
                    for (std::size_t i = 0; i < half; ++i) sum[i] += sum[i + half];
                wanted.as<float>()[r * n + c] = sum[0] + b.as<float>()[c];
            }
        const evaluate_result got = run(q, true);
#ifdef QK_HAVE_ONEDNN
        CHECK(got.packed_layers == 1);
        CHECK(same_bits(got.outputs.at("y"), wanted));
#endif
        CHECK(run(q, false).packed_layers == 0);
    }
    for (const quantizer& q : stays) {
        const evaluate_result got = run(q, true);
        CHECK(got.packed_layers == 0);
        CHECK(same_bits(got.outputs.at("y"), run(q, false).outputs.at("y")));
    }
}

TEST_CASE("whoever observes sees what each node of a body makes, not what the next one makes of it") {
    small_graph g;
    g.input("x", {1, 2, 4, 4}).input("yes", {}, 9).constant("w", {2, 2, 1, 1}).output("y", {1, 2, 4, 4});
    auto& choice = g.node("If", "choice", {"yes"}, "y");
    for (const char* name : {"then_branch", "else_branch"}) {
        auto* a = choice.add_attribute();
        a->set_name(name);
        a->set_type(onnx::AttributeProto::GRAPH);
        const std::string made = std::string(name) + "_c", last = std::string(name) + "_y";
        const auto add = [&](const char* op, const std::vector<std::string>& in, const std::string& out) {
            auto* n = a->mutable_g()->add_node();
            n->set_op_type(op);
            for (const std::string& i : in) n->add_input(i);
            n->add_output(out);
        };
        add("Conv", {"x", "w"}, made);
        add("Relu", {made}, last);
        a->mutable_g()->add_output()->set_name(last);
        a->mutable_g()->mutable_output(0)->mutable_type()->mutable_tensor_type()->set_elem_type(1);
    }
    tensor x(data_type::float32, {1, 2, 4, 4}), yes(data_type::boolean, {});
    for (std::size_t i = 0; i < x.size(); ++i) x.as<float>()[i] = std::sin(static_cast<float>(i));
    yes.bytes()[0] = std::byte{1};
    std::map<std::string, float> least;
    const auto observe = [&](const std::string& name, const tensor& value, std::size_t) {
        if (value.type() != data_type::float32) return;
        const auto all = value.as<float>();
        least[name] = *std::min_element(all.begin(), all.end());
    };
    evaluator(g.build(), {.threads = 1}).run({{"x", x}, {"yes", yes}}, {}, observe);
    CHECK(least.at("then_branch_c") < 0);
    CHECK(least.at("y") == 0);
}

TEST_CASE("what a function calls is named by the way of its calls, each once") {
    small_graph g;
    g.input("x", {1, 4}).output("y", {1, 4});
    g.node("outer", "call", {"x"}, "y").set_domain("d");
    onnx::ModelProto m = g.build().proto();
    const auto add = [&](const char* name, const std::vector<std::pair<const char*, const char*>>& nodes) {
        auto* f = m.add_functions();
        f->set_name(name), f->set_domain("d"), f->add_input("X"), f->add_output("Y");
        f->add_opset_import()->set_version(17);
        for (std::size_t i = 0; i < nodes.size(); ++i) {
            auto* n = f->add_node();
            n->set_op_type(nodes[i].first), n->set_name(nodes[i].second);
            n->set_domain(std::string(nodes[i].first) == "Relu" ? "" : "d");
            n->add_input(i == 0 ? "X" : "t"), n->add_output(i + 1 == nodes.size() ? "Y" : "t");
        }
    };
    add("outer", {{"inner", "first"}, {"inner", "second"}});
    add("inner", {{"innermost", "one"}, {"Relu", "two"}});
    add("innermost", {{"Relu", "a"}, {"Relu", "b"}});
    std::set<std::string> seen;
    tensor x(data_type::float32, {1, 4});
    for (float& v : x.as<float>()) v = 1;
    const auto observe = [&](const std::string& name, const tensor&, std::size_t) { seen.insert(name); };
    evaluator(model::parse(m.SerializeAsString()), {.threads = 1}).run({{"x", x}}, {}, observe);
    CHECK(seen == std::set<std::string>{"x", "y", "call/t", "call/first/t", "call/second/t", "call/first/one/t", "call/second/one/t"});
}
