// SPDX-License-Identifier: Apache-2.0
// Whether rows of the data are samples, and that every "rows" is true: each sample alone gives what it gives among others; long because
// every operator has its own cases.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <iostream>
#include <map>
#include <set>

#include "../data_folders.hpp"
#include "build_model.hpp"
#include "graph/evaluate/execute/runner.hpp"
#include "qk/graph/calibrate/calibrate.hpp"
#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/evaluate/inputs.hpp"
#include "qk/graph/evaluate/session.hpp"
#include "qk/graph/files/npy.hpp"
#include "qk/graph/files/temporary_folder.hpp"
#include "samples_apart.hpp"

using namespace qk::graph;
using namespace qk::graph::execute;
using qk_test::builder;
using qk_test::close;
using qk_test::random_tensor;

namespace {

using verdict = batch_verdict::kind;
constexpr std::int64_t N = -1;  // an open first dimension

/// One node and constants before it, its first inputs open along axis 0 or another.
struct one_node {
    builder b;
    onnx::NodeProto* node = nullptr;
    std::vector<batch_input> inputs;

    explicit one_node(int opset = 17) : b(opset) {
        auto* more = b.m.add_opset_import();
        more->set_domain("com.microsoft"), more->set_version(1);
    }
    /// Adds an input of the graph; N stands for the axis of the samples.
    one_node& in(const std::string& name, dims shape, int type = 1) {
        b.input(name, shape, type);
        batch_input i{-1, shape};
        for (std::size_t k = 0; k < shape.size(); ++k)
            if (shape[k] == N) i.axis = static_cast<int>(k), i.shape[k] = 1;
        inputs.push_back(i);
        return *this;
    }
    one_node& floats(const std::string& name, const dims& shape) {
        to_proto(random_tensor(shape, 7, 1.0f), name, *b.g().add_initializer());
        return *this;
    }
    one_node& integers(const std::string& name, const std::vector<std::int64_t>& values, bool scalar = false) {
        to_proto(make_tensor<std::int64_t>(scalar ? dims{} : dims{static_cast<std::int64_t>(values.size())}, values), name,
                 *b.g().add_initializer());
        return *this;
    }
    onnx::NodeProto& op(const std::string& type, const std::vector<std::string>& from, const std::vector<std::string>& to = {"y"}) {
        node = &b.node(type, from, to, type + "_" + to[0]);
        return *node;
    }
    batch_verdict follow(const std::vector<std::string>& outputs = {"y"}) {
        for (const std::string& o : outputs) b.g().add_output()->set_name(o);
        const model m = b.model();
        return follow_batch_axis(*make_network(m), inputs, 4);
    }
    verdict is(const std::vector<std::string>& outputs = {"y"}) { return follow(outputs).is; }
};

void set(onnx::NodeProto& n, const std::string& name, const std::string& v) {
    auto* a = n.add_attribute();
    a->set_name(name), a->set_type(onnx::AttributeProto::STRING), a->set_s(v);
}
using qk_test::set;

/// Returns what an operator with one input of this shape does, with an `axis` or without.
verdict of_axis(const std::string& op, dims shape, std::int64_t axis, int opset = 17) {
    one_node g(opset);
    g.in("x", std::move(shape));
    set(g.op(op, {"x"}), "axis", axis);
    return g.is();
}

}  // namespace

TEST_CASE("elements are broadcast along the samples only if they have one row there") {
    const auto add = [](dims constant) {
        one_node g;
        g.in("x", {N, 3, 5}).floats("c", constant).op("Add", {"x", "c"});
        return g.is();
    };
    CHECK(add({}) == verdict::rows);
    CHECK(add({5}) == verdict::rows);
    CHECK(add({3, 1}) == verdict::rows);
    CHECK(add({1, 3, 5}) == verdict::rows);
    CHECK(add({4, 3, 5}) == verdict::mixed);
    CHECK(add({2, 1, 3, 5}) == verdict::rows);  // the samples are then along axis 1
    const auto both = [](dims a, dims b) {
        one_node g;
        g.in("a", std::move(a)).in("b", std::move(b)).op("Mul", {"a", "b"});
        return g.is();
    };
    CHECK(both({N, 3}, {N, 3}) == verdict::rows);
    CHECK(both({N, 1}, {1, N}) == verdict::mixed);
    CHECK(both({N}, {3, N}) == verdict::rows);
    CHECK(both({N, 3}, {2, N, 3}) == verdict::rows);
}

TEST_CASE("reductions, sorts and sums mix the samples if they go along their axis") {
    for (const char* op : {"Softmax", "LogSoftmax", "Hardmax", "LpNormalization", "ArgMax"}) {
        CAPTURE(op);
        CHECK(of_axis(op, {N, 3}, 1) == verdict::rows);
        CHECK(of_axis(op, {N, 3}, 0) == verdict::mixed);
        CHECK(of_axis(op, {N}, -1) == verdict::mixed);
    }
    CHECK(of_axis("Softmax", {3, N}, 0, 17) == verdict::rows);
    CHECK(of_axis("Softmax", {3, N}, 0, 11) == verdict::mixed);  // everything behind the axis, before opset 13
    for (const char* op : {"ReduceMean", "ReduceMax", "ReduceL2", "ReduceLogSumExp"}) {
        CAPTURE(op);
        one_node all, last, first;
        all.in("x", {N, 3}).op(op, {"x"});
        CHECK(all.is() == verdict::mixed);
        set(last.in("x", {N, 3}).op(op, {"x"}), "axes", std::vector<std::int64_t>{-1});
        CHECK(last.is() == verdict::rows);
        set(first.in("x", {N, 3}).op(op, {"x"}), "axes", std::vector<std::int64_t>{0});
        CHECK(first.follow().why.find(op) != std::string::npos);
    }
    const auto summed = [](std::int64_t axis) {
        one_node g;
        g.in("x", {N, 3}).integers("a", {axis}, true).op("CumSum", {"x", "a"});
        return g.is();
    };
    CHECK(summed(0) == verdict::mixed);
    CHECK(summed(1) == verdict::rows);
    const auto sum = [](std::vector<std::int64_t> axes) {
        one_node g;
        g.in("x", {N, 3, 2}).integers("a", axes).op("ReduceSum", {"x", "a"});
        return g.follow();
    };
    CHECK(sum({1, 2}).rows());
    CHECK(sum({}).is == verdict::mixed);
    const auto top = [](std::int64_t axis) {
        one_node g;
        set(g.in("x", {N, 3}).integers("k", {2}).op("TopK", {"x", "k"}, {"y", "i"}), "axis", axis);
        return g.is({"y", "i"});
    };
    CHECK(top(1) == verdict::rows);
    CHECK(top(0) == verdict::mixed);
    one_node flat;
    flat.in("x", {N, 3}).op("NonZero", {"x"});
    CHECK(flat.is() == verdict::mixed);
    one_node dynamic;
    dynamic.in("x", {N, 3}).op("DynamicQuantizeLinear", {"x"}, {"y", "s", "z"});
    CHECK(dynamic.is() == verdict::mixed);
}

TEST_CASE("normalizations") {
    const auto of = [](const std::string& op, dims shape, std::vector<dims> parameters,
                       const std::function<void(onnx::NodeProto&)>& more = {}) {
        one_node g(21);
        g.in("x", std::move(shape));
        std::vector<std::string> from{"x"};
        for (std::size_t i = 0; i < parameters.size(); ++i) from.push_back("p" + std::to_string(i)), g.floats(from.back(), parameters[i]);
        onnx::NodeProto& n = g.op(op, from);
        if (more) more(n);
        return g.is();
    };
    CHECK(of("LayerNormalization", {N, 3, 4}, {{4}, {4}}) == verdict::rows);
    CHECK(of("LayerNormalization", {N}, {{4}, {4}}) == verdict::mixed);
    CHECK(of("InstanceNormalization", {N, 3, 4}, {{3}, {3}}) == verdict::rows);
    CHECK(of("InstanceNormalization", {2, 3, N}, {{3}, {3}}) == verdict::mixed);
    CHECK(of("BatchNormalization", {N, 3, 4}, {{3}, {3}, {3}, {3}}) == verdict::rows);
    CHECK(of("BatchNormalization", {2, 3, N}, {{3}, {3}, {3}, {3}}) == verdict::rows);
    CHECK(of("BatchNormalization", {2, N, 4}, {{3}, {3}, {3}, {3}}) == verdict::mixed);
    CHECK(of("BatchNormalization", {N, 3, 4}, {{3}, {3}, {3}, {3}}, [](auto& n) { set(n, "training_mode", 1); }) == verdict::mixed);
    CHECK(of("GroupNormalization", {N, 4, 4}, {{4}, {4}}, [](auto& n) { set(n, "num_groups", 2); }) == verdict::rows);
    CHECK(of("LRN", {N, 4, 4, 4}, {}, [](auto& n) { set(n, "size", 3); }) == verdict::rows);
    CHECK(of("MeanVarianceNormalization", {N, 4, 4, 4}, {}) == verdict::mixed);  // over axes 0, 2, 3 by default
}

TEST_CASE("products") {
    const auto times = [](dims a, dims b, bool variable = false) {
        one_node g;
        g.in("a", std::move(a));
        if (variable) g.in("b", std::move(b));
        else g.floats("b", b);
        g.op("MatMul", {"a", "b"});
        return g.is();
    };
    CHECK(times({N, 4}, {4, 2}) == verdict::rows);
    CHECK(times({N, 3, 4}, {4, 2}) == verdict::rows);
    CHECK(times({N, 3, 4}, {1, 4, 2}) == verdict::rows);
    CHECK(times({N, 3, 4}, {5, 4, 2}) == verdict::mixed);
    CHECK(times({N}, {4, 2}) == verdict::mixed);
    CHECK(times({3, N}, {4, 2}) == verdict::mixed);
    CHECK(times({N, 3, 4}, {N, 4, 2}, true) == verdict::rows);
    CHECK(times({N, 4}, {4, N}, true) == verdict::mixed);
    CHECK(times({2, 3, 4}, {N, 1, 4, 2}, true) == verdict::rows);
    const auto gemm = [](bool a, dims c) {
        one_node g;
        onnx::NodeProto& n = g.in("x", a ? dims{4, N} : dims{N, 4}).floats("w", {4, 2}).floats("c", c).op("Gemm", {"x", "w", "c"});
        set(n, "transA", a ? 1 : 0);
        return g.is();
    };
    CHECK(gemm(false, {2}) == verdict::rows);
    CHECK(gemm(true, {1, 2}) == verdict::rows);
    CHECK(gemm(false, {4, 1}) == verdict::mixed);
    const auto einsum = [](const std::string& equation, std::vector<dims> shapes) {
        one_node g;
        std::vector<std::string> from;
        for (std::size_t i = 0; i < shapes.size(); ++i) from.push_back("x" + std::to_string(i)), g.in(from.back(), shapes[i]);
        set(g.op("Einsum", from), "equation", equation);
        return g.is();
    };
    CHECK(einsum("bij,bjk->bik", {{N, 3, 4}, {N, 4, 2}}) == verdict::rows);
    CHECK(einsum("bhqd,bhkd->bhqk", {{N, 3, 4, 2}, {N, 3, 5, 2}}) == verdict::rows);
    CHECK(einsum("id,jd->ij", {{N, 4}, {N, 4}}) == verdict::mixed);
    CHECK(einsum("bi->i", {{N, 4}}) == verdict::mixed);
    CHECK(einsum("...i,ij->...j", {{N, 3, 4}, {4, 2}}) == verdict::rows);
}

TEST_CASE("windows and recurrent layers") {
    const auto conv = [](dims x, dims w) {
        one_node g;
        g.in("x", std::move(x)).floats("w", w).op("Conv", {"x", "w"});
        return g.is();
    };
    CHECK(conv({N, 3, 8, 8}, {2, 3, 3, 3}) == verdict::rows);
    CHECK(conv({1, 3, N, 8}, {2, 3, 1, 3}) == verdict::mixed);  // rows of an image
    CHECK(conv({1, N, 8}, {2, 3, 3}) == verdict::mixed);
    one_node pool;
    set(pool.in("x", {N, 3, 8, 8}).op("MaxPool", {"x"}), "kernel_shape", std::vector<std::int64_t>{2, 2});
    CHECK(pool.is() == verdict::rows);
    one_node places;  // the places count through all samples
    set(places.in("x", {N, 3, 8, 8}).op("MaxPool", {"x"}, {"y", "i"}), "kernel_shape", std::vector<std::int64_t>{2, 2});
    CHECK(places.is({"y", "i"}) == verdict::mixed);
    const auto lstm = [](dims x, std::int64_t layout, const std::vector<std::string>& outputs) {
        one_node g;
        onnx::NodeProto& n =
            g.in("x", std::move(x)).floats("w", {1, 8, 3}).floats("r", {1, 8, 2}).op("LSTM", {"x", "w", "r"}, {"y", "h", "c"});
        set(n, "hidden_size", 2), set(n, "layout", layout);
        return g.follow(outputs);
    };
    CHECK(lstm({N, 1, 3}, 0, {"y"}).is == verdict::mixed);  // time first
    CHECK(lstm({N, 5, 3}, 1, {"y", "h", "c"}).output_axes == std::vector{0, 0, 0});
    CHECK(lstm({5, N, 3}, 0, {"y", "h", "c"}).output_axes == std::vector{2, 1, 1});
    CHECK(lstm({5, N, 3}, 0, {"y", "h"}).rows());
}

TEST_CASE("moved elements") {
    const auto reshape = [](dims x, const std::vector<std::int64_t>& to) {
        one_node g;
        g.in("x", std::move(x)).integers("s", to).op("Reshape", {"x", "s"});
        return g.follow();
    };
    CHECK(reshape({N, 3, 4}, {0, 12}).rows());
    CHECK(reshape({N, 3, 4}, {-1, 12}).rows());
    CHECK(reshape({N, 3, 4}, {-1, 4}).rows());  // three rows for each sample
    CHECK(reshape({N, 3, 4}, {0, -1, 2}).rows());
    CHECK(reshape({N, 3, 4}, {-1, 24}).is != verdict::rows);
    CHECK(reshape({N, 3, 4}, {3, -1, 4}).is == verdict::mixed);
    CHECK(reshape({N, 3, 4}, {4, 12}).is != verdict::rows);  // a fixed batch
    CHECK(reshape({3, N, 4}, {3, -1, 2, 2}).output_axes == std::vector{1});
    CHECK(reshape({3, N, 4}, {-1, 4}).is == verdict::mixed);  // the samples three times along axis 0
    CHECK(reshape({N}, {1, 1, -1}).output_axes == std::vector{2});
    const auto gather = [](dims data, dims at, std::int64_t axis, int type = 7) {
        one_node g;
        set(g.in("x", std::move(data)).in("i", std::move(at), type).op("Gather", {"x", "i"}), "axis", axis);
        return g.is();
    };
    CHECK(gather({N, 3}, {2}, 1) == verdict::rows);
    CHECK(gather({N, 3}, {2}, 0) == verdict::mixed);  // nodes of a graph by their number
    CHECK(gather({10, 3}, {N, 5}, 0) == verdict::rows);
    CHECK(gather({N, 3}, {N}, 0) == verdict::mixed);
    const auto slice = [](std::int64_t from, std::int64_t to, std::int64_t axis) {
        one_node g;
        g.in("x", {N, 3}).integers("b", {from}).integers("e", {to}).integers("a", {axis}).op("Slice", {"x", "b", "e", "a"});
        return g.is();
    };
    CHECK(slice(0, 2, 1) == verdict::rows);
    CHECK(slice(0, 2, 0) == verdict::mixed);
    CHECK(slice(1, 1 << 20, 0) == verdict::mixed);
    CHECK(slice(0, std::int64_t{1} << 40, 0) == verdict::rows);
    const auto concat = [](dims a, dims b, std::int64_t axis, bool constant) {
        one_node g;
        g.in("a", std::move(a));
        if (constant) g.floats("b", b);
        else g.in("b", std::move(b));
        set(g.op("Concat", {"a", "b"}), "axis", axis);
        return g.is();
    };
    CHECK(concat({N, 3}, {N, 2}, 1, false) == verdict::rows);
    CHECK(concat({N, 3}, {N, 3}, 0, false) == verdict::mixed);
    CHECK(concat({N, 3}, {4, 2}, 1, true) == verdict::mixed);
    CHECK(of_axis("Flatten", {N, 3, 4}, 1) == verdict::rows);
    one_node flat;  // [1, 12 N]
    set(flat.in("x", {N, 3, 4}).op("Flatten", {"x"}), "axis", 0);
    CHECK(flat.follow().output_axes == std::vector{1});
    CHECK(of_axis("Flatten", {3, N, 4}, 2) == verdict::mixed);
    const auto pad = [](std::vector<std::int64_t> pads) {
        one_node g;
        g.in("x", {N, 3}).integers("p", pads).op("Pad", {"x", "p"});
        return g.is();
    };
    CHECK(pad({0, 1, 0, 2}) == verdict::rows);
    CHECK(pad({1, 0, 0, 0}) == verdict::mixed);
    one_node squeezed;
    squeezed.in("x", {N, 3}).integers("a", {0}).op("Squeeze", {"x", "a"});
    CHECK(squeezed.is() != verdict::rows);
    one_node scattered;
    scattered.in("x", {N, 3}).integers("i", {1}).in("u", {N, 3}).op("ScatterND", {"x", "i", "u"});
    CHECK(scattered.is() != verdict::rows);
}

TEST_CASE("shapes that are computed from the number of samples keep them apart") {
    one_node g;  // torch's x.view(x.size(0), -1, 2).permute(0, 2, 1).reshape(x.size(0), 6)
    g.in("x", {N, 3, 2}).integers("zero", {0}, true).integers("axis", {0}).integers("rest", {-1, 2}).integers("six", {6});
    g.op("Shape", {"x"}, {"shape"});
    g.op("Gather", {"shape", "zero"}, {"n"});
    g.op("Unsqueeze", {"n", "axis"}, {"n1"});
    set(g.op("Concat", {"n1", "rest"}, {"to"}), "axis", 0);
    g.op("Reshape", {"x", "to"}, {"v"});
    set(g.op("Transpose", {"v"}, {"t"}), "perm", std::vector<std::int64_t>{0, 2, 1});
    set(g.op("Concat", {"n1", "six"}, {"back"}), "axis", 0);
    g.op("Reshape", {"t", "back"}, {"y"});
    CHECK(g.is() == verdict::rows);

    one_node heads;  // torch's attention: time first, heads beside the samples
    heads.in("x", {5, N, 8})
        .integers("one", {1}, true)
        .integers("axis", {0})
        .integers("two", {2}, true)
        .integers("five", {5})
        .integers("four", {4});
    heads.op("Shape", {"x"}, {"shape"});
    heads.op("Gather", {"shape", "one"}, {"n"});
    heads.op("Mul", {"n", "two"}, {"n2"});
    heads.op("Unsqueeze", {"n2", "axis"}, {"n3"});
    set(heads.op("Concat", {"five", "n3", "four"}, {"to"}), "axis", 0);
    heads.op("Reshape", {"x", "to"}, {"v"});
    set(heads.op("Transpose", {"v"}, {"y"}), "perm", std::vector<std::int64_t>{1, 0, 2});
    CHECK(heads.follow().output_axes == std::vector{0});

    one_node numbered;  // h[arange(n), last]
    numbered.in("h", {N, 5, 3}).in("last", {N, 1}, 7).integers("zero", {0}, true).integers("one", {1}, true).integers("column", {-1, 1});
    numbered.op("Shape", {"h"}, {"shape"});
    numbered.op("Gather", {"shape", "zero"}, {"n"});
    numbered.op("Range", {"zero", "n", "one"}, {"r"});
    numbered.op("Reshape", {"r", "column"}, {"r1"});
    set(numbered.op("Concat", {"r1", "last"}, {"at"}), "axis", -1);
    numbered.op("GatherND", {"h", "at"}, {"y"});
    CHECK(numbered.is() == verdict::rows);

    one_node added;  // the number of each sample is not its own business otherwise
    added.in("x", {N, 3}, 7).integers("zero", {0}, true).integers("one", {1}, true).integers("column", {-1, 1});
    added.op("Shape", {"x"}, {"shape"});
    added.op("Gather", {"shape", "zero"}, {"n"});
    added.op("Range", {"zero", "n", "one"}, {"r"});
    added.op("Reshape", {"r", "column"}, {"r1"});
    added.op("Add", {"x", "r1"}, {"y"});
    CHECK(added.is() == verdict::mixed);

    one_node mean;  // divides by the number of samples
    mean.in("x", {N, 3}, 7).integers("zero", {0}, true);
    mean.op("Shape", {"x"}, {"shape"});
    mean.op("Gather", {"shape", "zero"}, {"n"});
    mean.op("Div", {"x", "n"}, {"y"});
    CHECK(mean.is() == verdict::mixed);

    one_node token;  // a class token for each sample
    token.in("x", {N, 3, 2}).floats("t", {1, 1, 2}).integers("zero", {0}, true).integers("axis", {0}).integers("rest", {1, 2});
    token.op("Shape", {"x"}, {"shape"});
    token.op("Gather", {"shape", "zero"}, {"n"});
    token.op("Unsqueeze", {"n", "axis"}, {"n1"});
    set(token.op("Concat", {"n1", "rest"}, {"to"}), "axis", 0);
    token.op("Expand", {"t", "to"}, {"e"});
    set(token.op("Concat", {"e", "x"}, {"y"}), "axis", 1);
    CHECK(token.is() == verdict::rows);
}

TEST_CASE("what is not known is undecided, and says which node it was") {
    one_node shape;
    shape.in("x", {N, 3}).in("s", {2}, 7).op("Reshape", {"x", "s"});
    const batch_verdict v = shape.follow();
    CHECK(v.is == verdict::undecided);
    CHECK(v.why.find("node 'Reshape_y' (Reshape)") == 0);
}

TEST_CASE("quantizers") {
    const auto quantize = [](dims scale, std::int64_t axis) {
        one_node g(21);
        set(g.in("x", {N, 3}).floats("s", scale).op("QuantizeLinear", {"x", "s"}), "axis", axis);
        return g.is();
    };
    CHECK(quantize({}, 1) == verdict::rows);
    CHECK(quantize({3}, 1) == verdict::rows);
    CHECK(quantize({4}, 0) == verdict::mixed);
    CHECK(quantize({4, 1}, 1) != verdict::rows);
    CHECK(quantize({1, 1}, 1) == verdict::rows);
}

TEST_CASE("loops, branches and scans") {
    const auto loop = [](bool mixes) {
        builder body(17);
        body.input("i", {}, 7).input("c", {}, 9).input("s", {}).output("c_out", {}, 9).output("s_out", {}).output("each", {});
        body.node("Identity", {"c"}, {"c_out"});
        body.node("Mul", {"s", "w"}, {"m"});
        if (mixes) set(body.node("Softmax", {"m"}, {"s_out"}), "axis", 0);
        else body.node("Relu", {"m"}, {"s_out"});
        body.node("Identity", {"s_out"}, {"each"});
        one_node g;
        g.in("x", {N, 3}).floats("w", {3}).integers("m", {4}, true);
        auto* a = g.op("Loop", {"m", "", "x"}, {"y", "all"}).add_attribute();
        a->set_name("body"), a->set_type(onnx::AttributeProto::GRAPH);
        *a->mutable_g() = body.g();
        return g.follow({"y", "all"});
    };
    CHECK(loop(true).is == verdict::mixed);
    CHECK(loop(false).output_axes == std::vector{0, 1});
    const auto scan = [](dims x, std::int64_t axis) {
        builder body(17);
        body.input("s", {}).input("e", {}).output("s_out", {}).output("e_out", {});
        body.node("Add", {"s", "e"}, {"s_out"});
        body.node("Identity", {"s_out"}, {"e_out"});
        one_node g;
        const bool time_first = x[0] != N;
        g.in("x", std::move(x)).in("s", time_first || axis == 1 ? dims{N, 3} : dims{5, 3});
        onnx::NodeProto& n = g.op("Scan", {"s", "x"}, {"last", "y"});
        set(n, "num_scan_inputs", 1), set(n, "scan_input_axes", std::vector<std::int64_t>{axis});
        set(n, "scan_output_axes", std::vector<std::int64_t>{axis});
        auto* a = n.add_attribute();
        a->set_name("body"), a->set_type(onnx::AttributeProto::GRAPH);
        *a->mutable_g() = body.g();
        return g.is({"last", "y"});
    };
    CHECK(scan({N, 5, 3}, 1) == verdict::rows);
    CHECK(scan({5, N, 3}, 0) == verdict::rows);
    CHECK(scan({N, 5, 3}, 0) == verdict::mixed);
}

namespace {

namespace fs = std::filesystem;

/// Runs a model's data whole and each sample alone along the axes; returns what is wrong, or "".
std::string check_rows(runner& r, const std::vector<tensor>& inputs, const std::vector<int>& axes, std::size_t count,
                       const std::vector<int>& output_axes) {
    const precision_plan none;
    const precision_plan* p = &none;
    const auto program = make_program(*r.net, r.shared, {&p, 1});
    const qk_test::samples_apart apart(r, *program, inputs, axes, count);
    for (std::size_t o = 0; o < apart.outputs(); ++o)
        if (std::string wrong = apart.wrong(o, output_axes[o]); !wrong.empty()) return wrong;
    return "";
}

}  // namespace

TEST_CASE("of ONNX's node tests, each input and axis that is said to hold samples gives the same for each alone") {
    const auto all_folders = qk_test::node_test_folders();
    if (all_folders.empty()) return;
    std::vector<fs::path> tests;
    for (const fs::path& node_tests : all_folders)
        for (const auto& entry : fs::directory_iterator(node_tests))
            if (fs::exists(entry.path() / "model.onnx")) tests.push_back(entry.path());
    std::size_t rows = 0, asked = 0;
    std::set<std::string> covered;
    for (const fs::path& folder : tests) {
        const std::string name = folder.filename().string();
        std::vector<tensor> inputs;
        std::unique_ptr<runner> r;
        try {
            const model m = model::load(folder / "model.onnx");
            r = std::make_unique<runner>(m, 1);
            for (std::size_t i = 0; i < m.inputs().size(); ++i)
                inputs.push_back(read_tensor_proto(folder / "test_data_set_0" / ("input_" + std::to_string(i) + ".pb")).value);
        } catch (const error&) {
            continue;  // sequences, strings, unknown operators
        }
        std::set<std::vector<int>> tried;
        for (std::size_t i = 0; i < inputs.size(); ++i)
            for (int axis = 0; axis < 3 && axis < static_cast<int>(inputs[i].rank()); ++axis) {
                const std::int64_t count = inputs[i].dim(static_cast<std::size_t>(axis));
                if (count < 2) continue;
                for (const bool all : {false, true}) {  // this input alone, or all that have as many rows along that axis
                    std::vector<int> axes(inputs.size(), -1);
                    for (std::size_t k = 0; k < inputs.size(); ++k)
                        if (k == i ||
                            (all && static_cast<int>(inputs[k].rank()) > axis && inputs[k].dim(static_cast<std::size_t>(axis)) == count))
                            axes[k] = axis;
                    if (!tried.insert(axes).second) continue;
                    std::vector<batch_input> given;
                    for (std::size_t k = 0; k < inputs.size(); ++k) {
                        given.push_back({axes[k], inputs[k].shape()});
                        if (axes[k] >= 0) given.back().shape[static_cast<std::size_t>(axis)] = 1;
                    }
                    const batch_verdict v = follow_batch_axis(*r->net, given, count);
                    ++asked;
                    if (!v.rows()) continue;
                    ++rows;
                    for (const net_node& n : r->net->nodes) covered.insert(std::string(n.view.op_type()));
                    CAPTURE(name);
                    CAPTURE(i);
                    CAPTURE(axis);
                    CHECK(check_rows(*r, inputs, axes, static_cast<std::size_t>(count), v.output_axes) == "");
                }
            }
    }
    std::cout << rows << " of " << asked << " cuts are samples, through " << covered.size() << " operators\n";
    CHECK(rows > 500);
    CHECK(covered.size() > 100);
}

namespace {

tensor floats_of(dims shape, const std::vector<float>& values) { return make_tensor<float>(std::move(shape), values); }
std::vector<float> values_of(const tensor& t) { return {t.as<float>().begin(), t.as<float>().end()}; }

/// y = the sum of x over axis 0, up to each row.
model running_sum() {
    builder b;
    b.input("x", {N, 1}).output("y", {N, 1});
    to_proto(make_tensor<std::int64_t>({}, std::vector<std::int64_t>{0}), "axis", *b.g().add_initializer());
    b.node("CumSum", {"x", "axis"}, {"y"}, "sum");
    return b.model();
}

}  // namespace

TEST_CASE("a sum along axis 0 runs as a whole, says why, and is cut only on demand") {
    const model m = running_sum();
    const named_tensors x{{"x", floats_of({4, 1}, {0, 1, 1, 1})}};
    const evaluate_result r = evaluator(m).run(x);
    CHECK(values_of(r.outputs.at("y")) == std::vector<float>{0, 1, 2, 3});
    CHECK_FALSE(r.one_by_one);
    CHECK(r.whole.find("node 'sum' (CumSum) adds up along the samples") != std::string::npos);
    CHECK(batch_remark(m, x) == r.whole);
    session s(m, x);
    CHECK(values_of(s.outputs({}).at("y")) == std::vector<float>{0, 1, 2, 3});
    named_tensors cut = x, whole = x;
    cut.batch_axis = 0;
    CHECK(values_of(evaluator(m).run(cut).outputs.at("y")) == std::vector<float>{0, 1, 1, 1});
    CHECK(batch_remark(m, cut).empty());
    whole.batch_axis = no_batch_axis;
    const evaluate_result one = evaluator(m).run(whole);
    CHECK(one.samples == 1);
    CHECK(values_of(one.outputs.at("y")) == std::vector<float>{0, 1, 2, 3});
}

TEST_CASE("blocks along the samples run as a whole, wherever those stand and however the plan counts the axis") {
    quantizer q;
    q.format = qk::mxfp4;
    precision_plan plan;
    plan.tensors["y"] = q;
    const named_tensors x{{"x", floats_of({2, 2}, {60, 4, 0.25f, 0.0625f})}};
    builder sum;
    sum.input("x", {N, 2}).output("y", {N});
    set(sum.node("ReduceSum", {"x", "one"}, {"y"}, "sum"), "keepdims", std::int64_t{0});
    to_proto(make_tensor<std::int64_t>({1}, std::vector<std::int64_t>{1}), "one", *sum.g().add_initializer());
    const evaluate_result vector = evaluator(sum.model()).run(x, plan);
    CHECK(values_of(vector.outputs.at("y")) == std::vector<float>{64, 0});  // one block, whose scale is that of 64
    CHECK(vector.whole.find("along the samples") != std::string::npos);
    builder turned;
    turned.input("x", {N, 2}).output("y", {2, N});
    turned.node("Transpose", {"x"}, {"y"});
    CHECK(values_of(evaluator(turned.model()).run(x, plan).outputs.at("y")) == std::vector<float>{48, 0, 4, 0});
    builder plain;
    plain.input("x", {N, 2}).output("y", {N, 2});
    plain.node("Relu", {"x"}, {"y"});
    CHECK(evaluator(plain.model()).run(x, plan).one_by_one);
}

TEST_CASE("calibration sees what the network computes of the whole input") {
    builder b;  // moving sums of five ones
    b.input("x", {N, 1}).output("y", {N, 1}).constant("w", {1, 1, 5}, std::vector<float>(5, 1.0f));
    to_proto(make_tensor<std::int64_t>({1}, std::vector<std::int64_t>{0}), "zero", *b.g().add_initializer());
    b.node("Transpose", {"x"}, {"t"});
    b.node("Unsqueeze", {"t", "zero"}, {"u"});
    set(b.node("Conv", {"u", "w"}, {"c"}, "conv"), "pads", std::vector<std::int64_t>{2, 2});
    b.node("Squeeze", {"c", "zero"}, {"s"});
    b.node("Transpose", {"s"}, {"y"});
    const model m = b.model();
    const calibration seen = calibrate(m, {{"x", floats_of({20, 1}, std::vector<float>(20, 1.0f))}});
    CHECK(seen.tensors.at("c").range.hi == 5);
    CHECK(seen.whole.find("node 'conv' (Conv)") != std::string::npos);
}

TEST_CASE("a fixed first dimension takes any multiple of itself") {
    builder b;
    b.input("x", {2, 3}).output("y", {2, 3});
    set(b.node("Softmax", {"x"}, {"y"}, "mix"), "axis", 0);  // the rows of a sample may well mix
    const model m = b.model();
    const evaluate_result r = evaluator(m).run({{"x", random_tensor({6, 3}, 1, 1.0f)}});
    CHECK(r.samples == 3);
    CHECK(r.outputs.at("y").shape() == dims{6, 3});
    for (std::size_t k = 0; k < 3; ++k) {
        const evaluate_result one = evaluator(m).run({{"x", rows(random_tensor({6, 3}, 1, 1.0f), 2 * k, 2)}});
        CHECK(close(rows(r.outputs.at("y"), 2 * k, 2), one.outputs.at("y")));
    }
    CHECK_THROWS_WITH_AS(evaluator(m).run({{"x", random_tensor({5, 3}, 1, 1.0f)}}), doctest::Contains("multiple of 2"), error);
}

TEST_CASE("files are joined if rows are samples, and are samples themselves if not") {
    const temporary_folder folder("qk-batch", "the test");
    write_npy(folder / "0.npy", floats_of({3, 1}, {0, 0, 3}));
    write_npy(folder / "1.npy", floats_of({2, 1}, {1, 1}));
    const std::vector<std::string> files{(folder / "0.npy").string() + "," + (folder / "1.npy").string()};
    const named_tensors apart = read_inputs(running_sum(), files);
    CHECK(apart.ragged.at("x") == std::vector<dims>{{3, 1}, {2, 1}});
    evaluate_result r = evaluator(running_sum()).run(apart);
    CHECK(r.samples == 2);
    CHECK(values_of(sample_of(r.outputs, "y", 0, 2)) == std::vector<float>{0, 0, 3});
    CHECK(values_of(sample_of(r.outputs, "y", 1, 2)) == std::vector<float>{1, 2});
    builder b;
    b.input("x", {N, 1}).output("y", {N, 1});
    b.node("Relu", {"x"}, {"y"});
    CHECK(read_inputs(b.model(), files).at("x").shape() == dims{5, 1});
    CHECK(read_inputs(b.model(), files, "--inputs", {}, no_batch_axis).ragged.at("x").size() == 2);
    CHECK(read_inputs(running_sum(), files, "--inputs", {}, 0).at("x").shape() == dims{5, 1});
}

TEST_CASE("samples along another axis are cut and joined there") {
    builder b;
    b.input("x", {5, N, 3}).output("y", {5, 1, N, 2}).output("h", {1, N, 2});
    to_proto(random_tensor({1, 8, 3}, 3, 0.5f), "w", *b.g().add_initializer());
    to_proto(random_tensor({1, 8, 2}, 4, 0.5f), "r", *b.g().add_initializer());
    set(b.node("LSTM", {"x", "w", "r"}, {"y", "h"}, "lstm"), "hidden_size", 2);
    const model m = b.model();
    named_tensors x{{"x", random_tensor({5, 4, 3}, 5, 1.0f)}};
    x.batch_axis = no_batch_axis;
    const evaluate_result whole = evaluator(m).run(x);
    x.batch_axis = 1;
    const evaluate_result cut = evaluator(m).run(x);
    CHECK(whole.samples == 1);
    CHECK(cut.samples == 4);
    CHECK(cut.outputs.joined_along == std::map<std::string, int>{{"y", 2}, {"h", 1}});
    for (const char* name : {"y", "h"}) CHECK(close(cut.outputs.at(name), whole.outputs.at(name)));
    CHECK(sample_of(cut.outputs, "h", 2, 4).shape() == dims{1, 1, 2});
    x.batch_axis = 3;
    CHECK_THROWS_WITH_AS(evaluator(m).run(x), doctest::Contains("--batch-axis 3"), error);
}

TEST_CASE("inputs of other symbols, or with the symbol along another axis, are cut if the graph keeps them apart") {
    builder b;
    b.input("x", {N, 3}).input("k", {N, 3}).input("s", {1, N, 3}).output("y", {N, 3});
    b.g().mutable_input(1)->mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(0)->set_dim_param("M");
    to_proto(make_tensor<std::int64_t>({1}, std::vector<std::int64_t>{0}), "zero", *b.g().add_initializer());
    b.node("Squeeze", {"s", "zero"}, {"t"});
    b.node("Add", {"x", "k"}, {"a"});
    b.node("Add", {"a", "t"}, {"y"});
    const model m = b.model();
    const named_tensors data{
        {"x", random_tensor({4, 3}, 1, 1.0f)}, {"k", random_tensor({4, 3}, 2, 1.0f)}, {"s", random_tensor({1, 4, 3}, 3, 1.0f)}};
    const evaluate_result r = evaluator(m).run(data);
    CHECK(r.one_by_one);
    CHECK(r.samples == 4);
    named_tensors whole = data;
    whole.batch_axis = no_batch_axis;
    CHECK(close(r.outputs.at("y"), evaluator(m).run(whole).outputs.at("y")));
}
