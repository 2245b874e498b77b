// SPDX-License-Identifier: Apache-2.0
// Raising a model's opset changes no result. opset_evidence.py proves that with onnxruntime from opset 7 on; here the evaluator judges what
// onnxruntime does not run: operators of opsets 1 to 6. It also judges files that export raises.
#include <doctest/doctest.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "build_model.hpp"
#include "qk/graph/calibrate/calibrate.hpp"
#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/export/export.hpp"
#include "qk/graph/quantize/planner.hpp"

using namespace qk::graph;
using qk_test::builder;
using qk_test::random_tensor;

namespace {

void set_float(onnx::NodeProto& n, const std::string& name, float v) {
    auto* a = n.add_attribute();
    a->set_name(name);
    a->set_type(onnx::AttributeProto::FLOAT);
    a->set_f(v);
}
void set_text(onnx::NodeProto& n, const std::string& name, const std::string& v) {
    auto* a = n.add_attribute();
    a->set_name(name);
    a->set_type(onnx::AttributeProto::STRING);
    a->set_s(v);
}

std::vector<float> answers(const model& m, const tensor& x) {
    std::vector<float> all;
    for (const auto& [name, y] : evaluator(m, {.threads = 1}).run({{"x", x}}).outputs) {
        REQUIRE(y.type() == data_type::float32);
        all.insert(all.end(), y.as<float>().begin(), y.as<float>().end());
    }
    REQUIRE(!all.empty());
    return all;
}

/// An operator as it was: how its node is made, and the last opset at which it was so.
struct old_form {
    const char* what;
    int opset;
    std::vector<std::int64_t> shape;
    std::function<void(builder&)> make;
};

std::vector<old_form> old_forms() {
    using qk_test::set;
    return {
        {"Concat without an axis",
         3,
         {1, 2, 3},
         [](builder& b) {
             b.node("Concat", {"x", "x"}, {"y"}, "n");
         }},
        {"Reshape by an attribute",
         4,
         {1, 2, 3},
         [](builder& b) {
             set(b.node("Reshape", {"x"}, {"y"}, "n"), "shape", {1, 6});
         }},
        {"Pad with paddings",
         1,
         {1, 2, 3},
         [](builder& b) {
             set(b.node("Pad", {"x"}, {"y"}, "n"), "paddings", {0, 1, 0, 0, 0, 2});
         }},
        {"Cast to a name",
         5,
         {1, 2, 3},
         [](builder& b) {
             set_text(b.node("Cast", {"x"}, {"i"}, "n"), "to", "INT32");
             set_text(b.node("Cast", {"i"}, {"y"}, "m"), "to", "FLOAT");
         }},
        {"Selu by default",
         5,
         {1, 2, 3},
         [](builder& b) { set(b.node("Selu", {"x"}, {"y"}, "n"), "consumed_inputs", std::vector<std::int64_t>{0}); }},
        {"Tile along an axis",
         5,
         {1, 2, 3},
         [](builder& b) {
             b.constant("tiles", {}, {3}).constant("axis", {}, {1});
             b.node("Tile", {"x", "tiles", "axis"}, {"y"}, "n");
         }},
        {"Add along an axis",
         6,
         {1, 2, 3},
         [](builder& b) {
             b.constant("b", {2}, {10, 20});
             auto& n = b.node("Add", {"x", "b"}, {"y"}, "n");
             set(n, "broadcast", std::int64_t{1}), set(n, "axis", std::int64_t{1});
         }},
    };
}

std::vector<old_form> old_layers() {
    using qk_test::set;
    return {
        {"PRelu by channel",
         6,
         {1, 2, 3},
         [](builder& b) {
             b.constant("slope", {2}, {0.25f, 4});
             b.node("PRelu", {"x", "slope"}, {"y"}, "n");
         }},
        {"Upsample by height and width",
         6,
         {1, 2, 3, 2},
         [](builder& b) {
             auto& n = b.node("Upsample", {"x"}, {"y"}, "n");
             set_float(n, "height_scale", 2), set_float(n, "width_scale", 1.5f), set_text(n, "mode", "bilinear");
         }},
        {"GlobalLpPool with a float p", 1, {1, 2, 3, 2}, [](builder& b) { set_float(b.node("GlobalLpPool", {"x"}, {"y"}, "n"), "p", 3); }},
        {"BatchNormalization with is_test",
         6,
         {2, 2, 3},
         [](builder& b) {
             b.constant("s", {2}, {2, 3}).constant("b", {2}, {1, -1}).constant("m", {2}, {0.5f, 0.25f}).constant("v", {2}, {1, 4});
             set(b.node("BatchNormalization", {"x", "s", "b", "m", "v"}, {"y"}, "n"), "is_test", std::int64_t{1});
         }},
        {"GRU with output_sequence",
         6,
         {3, 1, 2},
         [](builder& b) {
             std::vector<float> w(6 * 2), r(6 * 2);
             for (std::size_t i = 0; i < w.size(); ++i)
                 w[i] = 0.1f * static_cast<float>(i) - 0.5f, r[i] = 0.3f - 0.05f * static_cast<float>(i);
             b.constant("w", {1, 6, 2}, w).constant("r", {1, 6, 2}, r);
             auto& n = b.node("GRU", {"x", "w", "r"}, {"y"}, "n");
             set(n, "hidden_size", std::int64_t{2}), set(n, "output_sequence", std::int64_t{1});
         }},
        {"Upsample of opset 9",
         9,
         {1, 1, 3, 2},
         [](builder& b) {
             b.constant("scales", {4}, {1, 1, 2, 1.5f});
             b.node("Upsample", {"x", "scales"}, {"y"}, "n");
         }},
        {"Resize of opset 10",
         10,
         {1, 1, 5, 4},
         [](builder& b) {
             b.constant("scales", {4}, {1, 1, 0.6f, 1.7f});
             b.node("Resize", {"x", "scales"}, {"y"}, "n");
         }},
        {"DFT along axis 1", 19, {1, 6, 4, 1}, [](builder& b) { b.node("DFT", {"x"}, {"y"}, "n"); }},
    };
}

}  // namespace

TEST_CASE("raise_opset: what operators were in old opsets keeps its results") {
    std::vector<old_form> forms = old_forms();
    for (old_form& f : old_layers()) forms.push_back(std::move(f));
    for (const old_form& f : forms)
        for (const int to : {7, 9, 10, 11, 13, 21, 25}) {
            if (to <= f.opset) continue;
            INFO(std::string(f.what) << " raised to " << to);
            builder b(f.opset);
            b.input("x", f.shape);
            f.make(b);
            b.g().add_output()->set_name("y");
            const tensor x = random_tensor(f.shape, 3, 2);
            model m = b.model();
            const auto before = answers(m, x);
            raise_opset(m, to);
            CHECK(m.opset("") == to);
            CHECK(answers(model::parse(m.proto().SerializeAsString()), x) == before);
        }
}

TEST_CASE("raise_opset: an error names node, operator and opset, and leaves the model as it was") {
    builder b(8);
    b.input("x", {2, 4}).output("y", {2, 4});
    auto& clip = b.node("Clip", {"x"}, {"c"}, "clip");
    set_float(clip, "min", 0);
    b.node("Dropout", {"c"}, {"d", "mask"}, "drop");
    b.node("Mul", {"d", "mask"}, {"y"}, "mul");
    model m = b.model();
    const std::string before = m.proto().SerializeAsString();
    try {
        raise_opset(m, 13);
        FAIL("no error");
    } catch (const error& e) {
        const std::string text = e.what();
        INFO(text);
        for (const char* part : {"'drop'", "Dropout", "opset 12", "mask", "opset 13"}) CHECK(text.find(part) != std::string::npos);
    }
    CHECK(m.proto().SerializeAsString() == before);
    raise_opset(m, 11);  // up to there the mask only needs a Cast
    CHECK(m.opset("") == 11);
}

TEST_CASE("raise_opset: functions have opsets of their own and keep those that are new enough") {
    builder b(11);
    b.m.set_ir_version(8);
    b.input("x", {2, 4}).output("y", {2, 1, 4});
    b.m.add_opset_import()->set_domain("pkg");
    b.m.mutable_opset_import(1)->set_version(1);
    b.node("F", {"x"}, {"f"}, "call").set_domain("pkg");
    b.node("G", {"f"}, {"y"}, "other").set_domain("pkg");
    for (const char* name : {"F", "G"}) {
        auto& f = *b.m.add_functions();
        f.set_domain("pkg"), f.set_name(name), f.add_input("a"), f.add_output("o");
        f.add_opset_import()->set_version(*name == 'F' ? 11 : 17);
        auto& n = *f.add_node();
        n.set_op_type(*name == 'F' ? "Unsqueeze" : "Relu"), n.add_input("a"), n.add_output("o");
        if (*name == 'F') qk_test::set(n, "axes", std::vector<std::int64_t>{1});
    }
    model m = b.model();
    const tensor x = random_tensor({2, 4}, 5, 1);
    const auto before = answers(m, x);
    raise_opset(m, 13);
    CHECK(m.proto().functions(0).opset_import(0).version() == 13);
    CHECK(m.proto().functions(0).node_size() == 2);  // a Constant has the axes
    CHECK(m.proto().functions(1).opset_import(0).version() == 17);
    CHECK(answers(model::parse(m.proto().SerializeAsString()), x) == before);
}

TEST_CASE("raise_opset: a file whose opset export raises computes what its plan computes") {
    // RoiAlign of opset 11 takes coordinates as they are; int16 takes the file to opset 21.
    builder b(11);
    b.input("x", {1, 1, 4, 4}).output("y", {1, 1, 2, 2});
    b.constant("w", {1, 1, 1, 1}, {0.75f}).constant("rois", {1, 4}, {0, 0, 3, 2});
    to_proto(make_tensor<std::int64_t>({1}, std::vector<std::int64_t>{0}), "batch", *b.g().add_initializer());
    b.node("Conv", {"x", "w"}, {"c"}, "conv");
    auto& roi = b.node("RoiAlign", {"c", "rois", "batch"}, {"y"}, "roi");
    qk_test::set(roi, "output_height", std::int64_t{2}), qk_test::set(roi, "output_width", std::int64_t{2});
    const model m = b.model();
    const tensor x = random_tensor({1, 1, 4, 4}, 7, 1);
    const calibration seen = calibrate(m, {{"x", x}}, {.threads = 1});
    const precision_plan plan = quantize(m, precision_requests().set_default("int16", "int16"), seen).plan;
    const export_result written = export_model(m, plan, {.style = export_style::portable});
    CHECK(written.opset_after == 21);
    const auto planned = evaluator(m, {.threads = 1}).run({{"x", x}}, plan).outputs.at("y");
    const auto got = answers(written.exported, x);
    for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == doctest::Approx(planned.as<float>()[i]).epsilon(1e-5));
}
