// SPDX-License-Identifier: Apache-2.0
// Values that stay as they are although a precision was requested for them, and the remark that says so.
#include <doctest/doctest.h>

#include "build_model.hpp"
#include "plan_cases.hpp"
#include "small_graph.hpp"

using namespace qk::graph;
using namespace qk_test;
using qk::int8;

TEST_CASE("a bias that has no value for each weight scale stays float32, and says so where it was asked for") {
    for (const bool matrix : {false, true}) {
        small_graph g;
        g.input("x", {4, 8}).output("y", {4, 6}).constant("w", {8, 6});
        matrix ? g.constant("b", {4, 1}) : g.constant("b", {6});
        g.node("Gemm", "gemm", {"x", "w", "b"}, "y");
        const model m = g.build();
        const calibration seen = made_up_ranges({"x", "y"});
        precision_requests q;
        q.set_default("int8", "int8");
        CHECK(format_at(quantize(m, q, seen, {.per_channel = false}).plan, "b", "gemm", 2) == "int32");
        CHECK(format_at(quantize(m, q, seen, {.per_channel = true}).plan, "b", "gemm", 2) == (matrix ? "fp32" : "int32"));
        q.set_precision("gemm", role::bias, precision{.format = qk::int32});
        const quantize_result asked = quantize(m, q, seen, {.per_channel = true});
        CHECK(says(asked.report, plan_note::kind::unrealised, "int32 codes need") == matrix);
    }
}

TEST_CASE("a tensor of which calibration saw no finite value is named") {
    calibration seen = residual_ranges();
    seen.tensors.at("relu1_out").not_finite = seen.tensors.at("relu1_out").count;
    const quantize_result r = quantize(residual_model(), precision_requests().set_default("int8", "int8"), seen);
    CHECK(says(r.report, plan_note::kind::unrealised, "tensor 'relu1_out': calibration saw no finite value"));
    CHECK(count(r.report, plan_note::kind::unrealised) == 1);
}

TEST_CASE("an output that depends on no input stays float32 and says so") {
    small_graph g;
    g.input("x", {4, 8}).output("y", {4, 6}).output("k", {3}).constant("w", {8, 6}).constant("a", {3}).constant("b", {3});
    g.node("MatMul", "matmul", {"x", "w"}, "y");
    g.node("Add", "add", {"a", "b"}, "k");
    const quantize_result r = quantize(g.build(), precision_requests().set_default("int8", "int8"), made_up_ranges({"x", "y"}, {4, 8}),
                                       {.where = placement::all});
    CHECK(says(r.report, plan_note::kind::unrealised, "output 'k': depends on no input"));
    CHECK(format_at(r.plan, "y", "", 0) == "int8");
}

TEST_CASE("Einsums by constant weights stay float32 and say so, unless their type is asked for") {
    small_graph g;
    g.input("x", {3, 4, 8}).output("y", {3, 4, 2, 6}).constant("w", {8, 2, 6}).constant("v", {8, 8});
    g.node("MatMul", "matmul", {"x", "v"}, "t");
    auto* equation = g.node("Einsum", "projection", {"t", "w"}, "y").add_attribute();
    equation->set_name("equation"), equation->set_type(onnx::AttributeProto::STRING), equation->set_s("ibh,hnd->ibnd");
    const model m = g.build();
    const calibration seen = made_up_ranges({"x", "t", "y"}, {3, 4, 8});
    precision_requests q;
    q.set_default("int8", "int8");
    const quantize_result r = quantize(m, q, seen);
    CHECK(says(r.report, plan_note::kind::unrealised, "1 Einsum nodes multiply by constant weights ('projection')"));
    CHECK(format_at(r.plan, "w", "projection", 1) == "fp32");
    q.set_type_precision("Einsum", role::weight, precision{.format = int8});
    const quantize_result asked = quantize(m, q, seen);
    CHECK_FALSE(says(asked.report, plan_note::kind::unrealised, "Einsum"));
    CHECK(format_at(asked.plan, "w", "projection", 1) == "int8");
}

TEST_CASE("a default that quantizes nothing, or leaves layers inside of bodies, says so") {
    small_graph half;
    half.input("x", {4, 8}, 10).output("y", {4, 8});
    half.node("Relu", "relu", {"x"}, "y");
    precision_requests q;
    q.set_default("mx6", "mx6");
    CHECK(says(quantize(half.build(), q, {}).report, plan_note::kind::unrealised, "nothing was quantized"));
    CHECK_THROWS_WITH_AS(quantize(half.build(), q, {}, {.strict = true}), doctest::Contains("nothing was quantized"), error);
    CHECK_FALSE(says(quantize(residual_model(), q, {}).report, plan_note::kind::unrealised, ""));

    small_graph g;
    g.input("x", {4, 8}).input("yes", {}, 9).output("y", {4, 8}).constant("w", {8, 8});
    auto& choice = g.node("If", "choice", {"yes"}, "t");
    for (const char* name : {"then_branch", "else_branch"}) {
        auto* a = choice.add_attribute();
        a->set_name(name);
        a->set_type(onnx::AttributeProto::GRAPH);
        auto* inner = a->mutable_g()->add_node();
        inner->set_op_type("MatMul");
        inner->add_input("x");
        inner->add_input("w");
        inner->add_output(std::string(name) + "_y");
        a->mutable_g()->add_output()->set_name(std::string(name) + "_y");
        a->mutable_g()->mutable_output(0)->mutable_type()->mutable_tensor_type()->set_elem_type(1);
    }
    g.node("MatMul", "last", {"t", "w"}, "y");
    const quantize_result r = quantize(g.build(), q, {});
    CHECK(says(r.report, plan_note::kind::unrealised, "2 layers in the bodies"));
    CHECK(format_at(r.plan, "t", "last", 0) == "mx6");  // an If's output holds its branches' values, not its condition's
}

TEST_CASE("layers in the model's functions, of float64 and with sparse weights stay as they are, and a remark names them") {
    precision_requests q;
    q.set_default("mx6", "mx6");

    builder called;
    called.input("x", {4, 8}).output("y", {4, 6}).constant("w", {8, 6}, std::vector<float>(48, 0.5f));
    auto* import = called.m.add_opset_import();
    import->set_domain("pkg"), import->set_version(1);
    for (const char* name : {"Lin", "Twice"}) {  // the second calls the first twice
        auto& f = *called.m.add_functions();
        f.set_domain("pkg"), f.set_name(name);
        for (const char* i : {"a", "b"}) f.add_input(i);
        f.add_output("o");
        f.add_opset_import()->set_version(17);
        *f.add_opset_import() = *import;
        const bool inner = name == std::string("Lin");
        for (const char* o : {"unused", "o"}) {
            auto& n = *f.add_node();
            n.set_op_type(inner ? "MatMul" : "Lin"), n.set_domain(inner ? "" : "pkg");
            n.add_input("a"), n.add_input("b"), n.add_output(o);
        }
    }
    called.node("Twice", {"x", "w"}, {"y"}, "call").set_domain("pkg");
    const quantize_result functions = quantize(called.model(), q, {});
    CHECK(functions.plan.edges.empty());
    CHECK(says(functions.report, plan_note::kind::unrealised, "4 layers in functions of the model ('Twice', which 'call' calls)"));
    CHECK(says(functions.report, plan_note::kind::unrealised, "nothing was quantized"));

    builder wide;
    wide.input("x", {4, 8}, 11).output("y", {4, 8}, 11);
    to_proto(make_tensor<double>({8, 8}, std::vector<double>(64, 0.5)), "w", *wide.g().add_initializer());
    wide.node("MatMul", {"x", "w"}, {"t"}, "first"), wide.node("MatMul", {"t", "w"}, {"y"}, "second");
    CHECK(says(quantize(wide.model(), q, {}).report, plan_note::kind::unrealised, "2 layers ('first', ...) of float64"));

    builder thin;
    thin.input("x", {4, 8}).output("y", {4, 8});
    auto& w = *thin.g().add_sparse_initializer();
    to_proto(make_tensor<float>({2}, std::vector<float>{1.5f, 3}), "w", *w.mutable_values());
    to_proto(make_tensor<std::int64_t>({2}, std::vector<std::int64_t>{0, 3}), "w_indices", *w.mutable_indices());
    w.add_dims(8), w.add_dims(8);
    thin.node("MatMul", {"x", "w"}, {"y"}, "product");
    const quantize_result sparse = quantize(thin.model(), q, {});
    CHECK(format_at(sparse.plan, "w", "product", 1) == "fp32");
    CHECK(format_at(sparse.plan, "x", "product", 0) == "mx6");
    CHECK(says(sparse.report, plan_note::kind::unrealised, "1 sparse initializer ('w')"));
}

TEST_CASE("the weights of recurrent layers take the weights' format, and a remark says that what they read stays float32") {
    builder b;
    b.input("x", {3, 1, 8}).output("y", {3, 1, 1, 8});
    b.constant("w", {1, 32, 8}, std::vector<float>(256, 0.25f)).constant("r", {1, 32, 8}, std::vector<float>(256, 0.125f));
    b.constant("v", {8, 8}, std::vector<float>(64, 0.5f));
    b.node("MatMul", {"x", "v"}, {"t"}, "product");
    qk_test::set(b.node("LSTM", {"t", "w", "r"}, {"y"}, "lstm"), "hidden_size", std::int64_t{8});
    const model m = b.model();
    precision_requests q;
    q.set_default("mx6", "mx6");
    const quantize_result r = quantize(m, q, {});
    CHECK(format_at(r.plan, "w", "lstm", 1) == "mx6");
    CHECK(format_at(r.plan, "r", "lstm", 2) == "mx6");
    CHECK(format_at(r.plan, "t", "lstm", 0) == "fp32");
    CHECK(says(r.report, plan_note::kind::recurrent, "the weights of this LSTM take mx6"));
    CHECK_FALSE(says(r.report, plan_note::kind::unrealised, "nothing was quantized"));
    q.set_type_precision("LSTM", role::weight, precision{.format = qk::int8});
    const quantize_result asked = quantize(m, q, {});
    CHECK(format_at(asked.plan, "w", "lstm", 1) == "int8");
    CHECK_FALSE(says(asked.report, plan_note::kind::recurrent, "LSTM"));
    q.set_type_precision("LSTM", role::weight, precision{.format = qk::fp32});
    const quantize_result kept = quantize(m, q, {});
    CHECK(format_at(kept.plan, "w", "lstm", 1) == "fp32");
    CHECK_FALSE(says(kept.report, plan_note::kind::unrealised, "LSTM"));  // it was asked
}

TEST_CASE("numbers that are sizes stay float32 under every placement; data that is measured and used does not") {
    small_graph g;
    g.input("x", {1, 3, 10, 10})
        .output("y", {1, 3, 15, 25})
        .output("r", {7})
        .constant("w", {3, 3, 1, 1})
        .constant("to", {4}, 1, {1, 3, 15, 25});
    g.constant("zero", {}, 1, {0}).constant("one", {}, 1, {1});
    g.node("Conv", "conv", {"x", "w"}, "c");
    g.node("Shape", "shape", {"c"}, "lengths");
    small_graph::set(g.node("Cast", "cast", {"lengths"}, "float_lengths"), "to", 1);
    g.node("Div", "div", {"to", "float_lengths"}, "scales");
    g.node("Resize", "resize", {"c", "", "scales"}, "y");
    small_graph::set(g.node("ReduceMax", "most", {"c"}, "limit"), "keepdims", 0);
    g.node("Abs", "abs", {"limit"}, "distance");
    g.node("Range", "range", {"zero", "distance", "one"}, "r");
    const model m = g.build();
    const calibration seen = made_up_ranges({"x", "c", "scales", "float_lengths", "limit", "distance", "y", "r"});
    for (const char* format : {"int8", "bfp16", "mxfp4"})
        for (const placement where : {placement::all, placement::every}) {
            const precision_plan p = quantize(m, precision_requests().set_default(format, format), seen, {.where = where}).plan;
            CHECK(format_at(p, "c", "resize", 0) == format);
            for (const auto& [tensor, node, input] : std::initializer_list<std::tuple<const char*, const char*, int>>{
                     {"to", "div", 0}, {"float_lengths", "div", 1}, {"scales", "resize", 2}, {"limit", "abs", 0}, {"distance", "range", 1}})
                CHECK_MESSAGE(format_at(p, tensor, node, input) == "fp32", tensor);
        }
}

TEST_CASE("blocks of a number beside pictures run along its own last axis") {
    small_graph g;
    g.input("x", {1, 3, 6, 6}).output("y", {1, 3, 4, 4}).constant("w", {3, 3, 3, 3});
    g.node("Conv", "conv", {"x", "w"}, "c");
    small_graph::set(g.node("ReduceMax", "most", {"c"}, "m"), "keepdims", 0);
    g.node("Div", "div", {"c", "m"}, "y");
    const precision_plan p = quantize(g.build(), precision_requests().set_default("bfp16", "bfp16"), made_up_ranges({"x", "c", "m", "y"}),
                                      {.where = placement::all})
                                 .plan;
    CHECK(p.find({"c", "div", 0})->axis == 1);
    CHECK(p.find({"m", "div", 1})->axis == -1);
}
