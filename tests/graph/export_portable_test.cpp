// SPDX-License-Identifier: Apache-2.0
// Style portable: which functions it writes and how many, where calls and Q/DQ pairs stand, how many bytes constants take, and when it
// raises the opset.
#include <doctest/doctest.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "qk/graph/base/format_text.hpp"
#include "qk/graph/calibrate/calibrate.hpp"
#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/export/export.hpp"
#include "qk/graph/quantize/planner.hpp"
#include "qk/graph/recover/recover.hpp"
#include "qk/option_names.hpp"
#include "qk/portable/function.hpp"
#include "small_graph.hpp"

using namespace qk::graph;

namespace {

/// Builds conv1 - relu1 - { conv2 - add <- relu1 } - relu2 - conv3. There are 64 channels, so that blocks are whole; conv1 and conv2 have
/// biases.
model network(int opset = 17) {
    small_graph g(opset);
    g.input("x", {1, 64, 4, 4}).output("y", {1, 64, 4, 4});
    for (const char* w : {"w1", "w2", "w3"}) g.constant(w, {64, 64, 1, 1}, 0.2f);
    for (const char* b : {"b1", "b2"}) g.constant(b, {64}, 0.1f);
    g.node("Conv", "conv1", {"x", "w1", "b1"}, "c1");
    g.node("Relu", "relu1", {"c1"}, "r1");
    g.node("Conv", "conv2", {"r1", "w2", "b2"}, "c2");
    g.node("Add", "add", {"c2", "r1"}, "a");
    g.node("Relu", "relu2", {"a"}, "r2");
    g.node("Conv", "conv3", {"r2", "w3"}, "y");
    return g.build();
}

export_result write(const model& m, const char* activation, const char* weight, quantize_options options = {},
                    export_options how = {.style = export_style::portable}) {
    std::vector<float> v(64 * 16);
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = std::sin(static_cast<float>(i));
    const calibration seen = calibrate(m, {{"x", make_tensor<float>({1, 64, 4, 4}, v)}}, {.threads = 1});
    return export_model(m, quantize(m, precision_requests().set_default(activation, weight), seen, options).plan, how);
}

int count(const model& m, const std::string& op, const std::string& domain = "") {
    return static_cast<int>(std::count_if(m.graph().node().begin(), m.graph().node().end(),
                                          [&](const auto& n) { return n.op_type() == op && n.domain() == domain; }));
}
quantizer of(const qk::format& f) {
    quantizer q;
    q.format = f, q.axis = 1;
    return q;
}
precision_plan only(const std::string& tensor, const quantizer& q) { return {.tensors = {{tensor, q}}, .edges = {}, .accumulators = {}}; }
int calls(const model& m) {
    return static_cast<int>(
        std::count_if(m.graph().node().begin(), m.graph().node().end(), [](const auto& n) { return n.domain() == "qk"; }));
}
std::set<std::string> function_names(const model& m) {
    std::set<std::string> names;
    for (const auto& f : m.proto().functions()) names.insert(f.domain() + ":" + f.name());
    return names;
}

}  // namespace

TEST_CASE("portable: one function a format, named after it, for the model's opset") {
    const export_result r = write(network(), "mxfp8_e4m3", "mxfp4");
    CHECK(function_names(r.exported) == std::set<std::string>{"qk:mxfp8_e4m3", "qk:decode_mxfp4"});
    CHECK(count(r.exported, "mxfp8_e4m3", "qk") == 3);  // x, r1, r2
    CHECK(count(r.exported, "decode_mxfp4", "qk") == 3);
    CHECK(r.exported.opset("qk") == 1);
    for (const auto& f : r.exported.proto().functions()) {
        REQUIRE(f.opset_import_size() == 1);
        CHECK(f.opset_import(0).version() == r.exported.opset(""));
        CHECK(f.doc_string().starts_with(f.name().starts_with("decode_") ? f.name().substr(7) : f.name()));
        for (const auto& n : f.node()) CHECK(n.domain().empty());  // only standard operators
    }
    // The readers of a tensor share one call: five calls for x, c2, r2, y and r1, which has two readers.
    quantize_options everywhere;
    everywhere.where = placement::all;
    CHECK(count(write(network(), "mxfp8_e4m3", "mxfp4", everywhere).exported, "mxfp8_e4m3", "qk") == 5);
    // A format spelled with parameters gets a function name that ONNX allows.
    CHECK(function_names(write(network(), "bfp:block=16,exponent=8,mantissa=5", "fp16").exported) ==
          std::set<std::string>{"qk:bfp_block_16_exponent_8_mantissa_5"});
}

TEST_CASE("portable: the opset is raised where something needs it, and a note says what") {
    struct row {
        int before;
        const char *activation, *weight;
        bool per_channel;
        int after;
        const char* reason;
    };
    for (const row& r :
         {row{17, "mxfp8_e4m3", "mxfp4", false, 17, ""}, row{17, "int8", "int8", true, 17, ""}, row{13, "bf16", "fp6_e2m3", true, 13, ""},
          row{10, "int8", "int8", false, 10, ""}, row{10, "int8", "int8", true, 13, "per channel"},
          row{10, "bfp16", "bfp16", false, 12, "functions"}, row{11, "bf16", "bf16", false, 13, "Cast"},
          row{17, "int8", "int4", false, 21, "int4"}, row{17, "int16", "int8", false, 21, "int16"},
          row{17, "fp8_e4m3fn", "mxfp4", false, 17, ""}, row{17, "fp8_e4m3fn", "fp8_e4m3fn", false, 19, "float8e4m3fn"},
          row{17, "int2", "int2", false, 17, ""}, row{21, "int4", "int4", true, 21, ""}}) {
        INFO(std::string(r.activation) << " " << std::string(r.weight) << " from " << r.before);
        quantize_options options;
        options.per_channel = r.per_channel;
        const export_result got = write(network(r.before), r.activation, r.weight, options);
        CHECK(got.opset_before == r.before);
        CHECK(got.opset_after == r.after);
        CHECK(got.exported.opset("") == r.after);
        CHECK(got.exported.proto().ir_version() >= (r.after >= 21 ? 10 : r.after >= 19 ? 9 : 4));
        const auto raised =
            std::find_if(got.notes.begin(), got.notes.end(), [](const std::string& n) { return n.starts_with("opset raised"); });
        CHECK((raised != got.notes.end()) == (r.after != r.before));
        if (raised != got.notes.end()) CHECK(raised->find(r.reason) != std::string::npos);
    }
}

TEST_CASE("portable: nothing stands between a node and its Relu") {
    for (const char* f : {"int8", "uint8", "int4", "int16", "fp8_e4m3fn", "bf16", "bfp16", "mx6", "mxfp8_e4m3", "nvfp4"}) {
        INFO(std::string(f));
        const model m = write(network(), f, f).exported;
        for (const auto& n : m.graph().node()) {
            if (n.op_type() != "Relu") continue;
            const onnx::NodeProto& before = m.graph().node(m.producer(n.input(0)));
            CHECK((before.op_type() == "Conv" || before.op_type() == "Add"));
        }
        CHECK(count(m, "Relu") == 2);
    }
}

TEST_CASE("portable: constants take the bytes that the format promises") {
    struct row {
        const char* format;
        std::size_t codes, scales, shifts;
    };
    const std::size_t n = 64 * 64;
    for (const row& r : {row{"mxfp4", n / 2, n / 32, 0}, row{"mxfp6_e2m3", n * 6 / 8, n / 32, 0}, row{"mxfp8_e4m3", n, n / 32, 0},
                         row{"mxint8", n, n / 32, 0}, row{"nvfp4", n / 2, n / 16, 0}, row{"mx4", n * 3 / 8, n / 16, n / 16},
                         row{"mx6", n * 5 / 8, n / 16, n / 16}, row{"mx9", n, n / 16, n / 16}, row{"bfp16", n, n / 8, 0},
                         row{"bfp:block=16,exponent=8,mantissa=10", n * 11 / 8, n / 16, 0}, row{"fp6_e3m2", n * 6 / 8, 0, 0},
                         row{"fp4_e2m1", n / 2, 0, 0}, row{"int2", n / 4, 0, 0}}) {
        INFO(std::string(r.format));
        const model m = write(network(), "bf16", r.format).exported;
        std::size_t codes = 0, scales = 0, shifts = 0;
        for (const auto& t : m.graph().initializer()) {
            if (!t.name().starts_with("w1_")) continue;
            if (t.name().find("_codes") != std::string::npos) codes += t.raw_data().size();
            if (t.name().find("_scales") != std::string::npos) scales += t.raw_data().size();
            if (t.name().find("_shifts") != std::string::npos) shifts += t.raw_data().size();
        }
        CHECK(codes == r.codes);
        CHECK(scales == r.scales);
        CHECK(shifts == r.shifts);
        const model whole =
            write(network(), "bf16", r.format, {}, {.style = export_style::portable, .weights = weight_storage::floats}).exported;
        CHECK(calls(whole) == 0);
        CHECK(whole.constant("w1_rounded").size_bytes() == 4 * n);
    }
}

TEST_CASE("portable: operands that onnxruntime's optimizer would spoil are kept from it, others are not") {
    // onnxruntime fuses these combinations correctly, so no guard stands in the way of fusion.
    for (const auto& [a, w] :
         {std::pair{"int8", "int8"}, std::pair{"uint8", "int8"}, std::pair{"uint8", "int4"}, std::pair{"int16", "int8"}})
        CHECK(count(write(network(), a, w).exported, "Max") == 0);
    // onnxruntime drops a Relu before a 4-bit QuantizeLinear whatever the zero point, and makes a 4-bit MaxPool, which does not exist.
    for (const char* f : {"int4", "uint4", "int:bits=3"}) {
        const model m = write(network(), f, "int4").exported;
        for (const auto& n : m.graph().node())
            if (n.op_type() == "QuantizeLinear") {
                CHECK(m.graph().node(m.producer(n.input(0))).op_type() == "Max");
                const onnx::NodeProto& pair = m.graph().node(m.uses(n.output(0)).at(0).node);
                CHECK(m.graph().node(m.uses(pair.output(0)).at(0).node).op_type() == "Max");
            }
    }
    // Weights in float, 4 bits beside 8, FP8 or int32: each of the three layers has a guard on its input.
    for (const auto& [a, w] : {std::pair{"int8", "mxfp4"}, std::pair{"uint8", "fp16"}, std::pair{"int4", "int8"},
                               std::pair{"uint8", "fp8_e4m3fn"}, std::pair{"int8", "int32"}}) {
        INFO(std::string(a) << " " << std::string(w));
        const model m = write(network(), a, w).exported;
        for (const auto& n : m.graph().node())
            if (n.op_type() == "Conv") CHECK(m.graph().node(m.producer(n.input(0))).op_type() == "Max");
    }
}

TEST_CASE("portable, qdq, qoperator: an int32 bias of another scale than s_x * s_w is kept from its layer, one that fits is not") {
    const model m = network();
    std::vector<float> v(64 * 16);
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = std::sin(static_cast<float>(i));
    const calibration seen = calibrate(m, {{"x", make_tensor<float>({1, 64, 4, 4}, v)}}, {.threads = 1});
    const precision_plan fits = quantize(m, precision_requests().set_default("uint8", "int8"), seen).plan;
    for (const export_style style : {export_style::portable, export_style::qdq, export_style::qoperator}) {
        const auto guards = [&](const auto& change) {
            precision_plan p = fits;
            change(p);
            const export_result written = export_model(m, p, {.style = style});
            int found = 0;
            for (const auto& n : written.exported.graph().node())
                found +=
                    n.op_type() == "Max" && written.exported.graph().node(written.exported.producer(n.input(0))).input(0).starts_with("b1");
            CHECK(count(written.exported, "Max") == found);  // no other layer is hindered
            const auto says = [](const std::string& note) {
                return note.find("the int32 bias of 1 layers ('conv1')") != std::string::npos;
            };
            CHECK(std::ranges::any_of(written.notes, says) == (found == 1));
            return found;
        };
        CHECK(guards([](precision_plan&) {}) == 0);
        CHECK(guards([](precision_plan& p) { p.tensors.at("b1").scale[0] *= 1.5f; }) == 1);
        CHECK(guards([](precision_plan& p) { p.tensors.at("b1").scale[0] = 1e-9f; }) == 1);
        CHECK(guards([](precision_plan& p) { p.tensors.at("w1").scale[0] *= 0.8f; }) == 1);
        CHECK(guards([](precision_plan& p) { p.tensors.at("x").scale[0] *= 0.8f; }) == 1);
        CHECK(guards([](precision_plan& p) { p.tensors.erase("x"); }) == 1);
        // A scale written with seven digits still fits.
        CHECK(guards([](precision_plan& p) { p.tensors.at("b1").scale[0] *= 1.0000005f; }) == 0);
    }
}

TEST_CASE("portable: activations with a scale for each channel are kept from operators that have one") {
    const model m = network();
    quantizer q = of(qk::uint8);
    q.scale.assign(64, 0.01f), q.zero_point.assign(64, 3);
    const model written = export_model(m, only("r1", q), {.style = export_style::portable}).exported;
    for (const auto& n : written.graph().node())
        if (n.op_type() == "QuantizeLinear") CHECK(written.graph().node(written.producer(n.input(0))).op_type() == "Max");
    CHECK(count(written, "Max") == 2);
}

TEST_CASE("portable: what cannot be written is an error that names it") {
    const model m = network();
    const auto refused = [&](const quantizer& q) { export_model(m, only("r1", q), {.style = export_style::portable}); };
    CHECK_THROWS_WITH_AS(refused(of(qk::e8m0)), doctest::Contains("tensor 'r1'"), error);
    quantizer q = of(qk::mxfp4);
    q.semantics.rounding = qk::rounding::stochastic;
    CHECK_THROWS_WITH_AS(refused(q), doctest::Contains("tensor 'r1': mxfp4 is rounded stochastically, which no standard operator does"),
                         error);
    q.semantics = {};
    q.semantics.flush_inputs = true;
    CHECK_THROWS_WITH_AS(refused(q), doctest::Contains("with subnormals flushed has no standard operators"), error);
    CHECK_THROWS_WITH_AS(refused(of(qk::int8)), doctest::Contains("has no scale in the plan"), error);
    CHECK_THROWS_WITH_AS(export_model(m, only("nobody", of(qk::mxfp4)), {.style = export_style::portable}), doctest::Contains("nobody"),
                         error);
    CHECK_THROWS_WITH_AS(
        export_style_from("portabel"),
        "unknown export style 'portabel'; the styles are portable, qdq, qoperator, qinteger, amd, nbits. Did you mean 'portable'?", error);
    CHECK_THROWS_WITH_AS(weight_storage_from("zip"), "unknown weight storage 'zip'; it is packed, float or product.", error);
}

TEST_CASE("portable: zero points of blocks take as many bits as the codes, and are read back") {
    for (const char* format : {"uint4", "int4", "uint8", "int:bits=3,signed=0"}) {
        CAPTURE(format);
        small_graph g(17);
        g.input("x", {8, 128}).output("y", {8, 48});
        g.constant("w", {128, 48}, 0.2f);
        g.node("MatMul", "mm", {"x", "w"}, "y");
        const model m = g.build();
        quantizer q = of(format_from(format));
        const qk::integer f = std::get<qk::integer>(q.format);
        q.axis = 0, q.block_size = 32;
        for (std::int64_t i = 0; i < 4 * 48; ++i)
            q.scale.push_back(0.02f + 0.0001f * static_cast<float>(i)), q.zero_point.push_back(qmin(f) + i * 7 % (qmax(f) - qmin(f) + 1));
        const precision_plan plan = only("w", q);
        const export_result r = export_model(m, plan, {.style = export_style::portable});
        std::size_t bytes = 0, floats = 0;
        for (const auto& t : r.exported.graph().initializer()) {
            if (t.name() == "w_zero_codes") bytes = r.exported.constant(t.name()).size_bytes();
            floats += t.name().find("zero_point") != std::string::npos && t.data_type() == onnx::TensorProto::FLOAT;
        }
        if (count(r.exported, "DequantizeLinear") == 0) CHECK(bytes == static_cast<std::size_t>(4 * 48 * f.bits / 8));
        CHECK(floats == 0);
        std::vector<float> v(8 * 128);
        for (std::size_t i = 0; i < v.size(); ++i) v[i] = std::sin(static_cast<float>(i));
        const named_tensors x{{"x", make_tensor<float>({8, 128}, v)}};
        const auto planned = evaluator(m, {.threads = 1}).run(x, plan).outputs.at("y"),
                   written = evaluator(r.exported, {.threads = 1}).run(x).outputs.at("y");
        for (std::size_t i = 0; i < planned.size(); ++i) CHECK(planned.as<float>()[i] == doctest::Approx(written.as<float>()[i]));
        const recovered_plan found = recover_plan(r.exported);
        const quantizer* back = found.plan.find({"w", "mm", 1});
        REQUIRE(back != nullptr);
        CHECK(back->scale == q.scale);
        CHECK(back->zero_point == q.zero_point);
    }
}

TEST_CASE("portable: a call says what it means, and the plan comes back from that alone") {
    quantizer channels = of(qk::uint2);
    for (int i = 0; i < 64; ++i) channels.scale.push_back(0.01f * static_cast<float>(i + 1)), channels.zero_point.push_back(i % 4);
    quantizer grid = of(qk::fp6_e2m3);
    grid.axis = 2, grid.block_size = 4, grid.scale.assign(64 * 4, 0.25f);
    quantizer up = of(qk::mxfp4);
    up.semantics = qk::semantics::quark, up.semantics.rounding = qk::rounding::up;
    quantizer even = of(qk::mxfp8_e4m3);
    even.semantics.scale_rule = qk::scale_rule::even;
    quantizer one = of(qk::fp8_e4m3fn);
    one.scale = {0.5f};
    quantizer dynamic = of(qk::int4);
    dynamic.dynamic = true, dynamic.axis = -1;
    quantizer global = of(qk::nvfp4);
    global.scale = {0.125f};
    for (const quantizer& q : {channels, grid, up, even, one, dynamic, global, of(qk::bfp16), of(qk::mx9), of(qk::nf4)}) {
        INFO(to_string(q.format));
        export_result r = export_model(network(), only("r1", q), {.style = export_style::portable});
        int said = 0;
        for (auto& n : *r.exported.graph().mutable_node()) {
            if (n.domain() != "qk") continue;
            ++said;
            n.clear_doc_string();
            for (const char* name : {"qk_version", "format", "semantics", "scale_rule", "scales", "axis", "block", "flatten", "result"})
                CHECK(std::ranges::any_of(n.attribute(), [&](const auto& a) { return a.name() == name; }));
        }
        CHECK(said == 1);
        const precision_plan again = recover_plan(r.exported).plan;
        const quantizer* found = again.find({"r1", "conv2", 0});
        REQUIRE(found != nullptr);
        CHECK(*found == q);
    }
}

TEST_CASE("portable: semantics as text and back") {
    for (const auto& named : qk::semantics_names) {
        CHECK(qk::portable::parse_semantics_text(qk::portable::text_of(named.value), named.value.scale_rule).value == named.value);
        for (const auto& r : qk::rounding_names) {
            qk::semantics s = named.value;
            s.rounding = r.value, s.scale_rule = qk::scale_rule::ceil, s.overflow = qk::overflow_rule::propagate,
            s.zero_point_before = true;
            s.mx_zero = qk::zero_sign::underflow_positive, s.nan_without_code = qk::nan_rule::nan, s.clamp_mx_scale = false;
            const auto text = qk::portable::text_of(s);
            INFO(text.c_str());
            const auto read = qk::portable::parse_semantics_text(text, s.scale_rule);
            REQUIRE(read);
            CHECK(*read == s);
        }
    }
    using qk::portable::parse_semantics_text;
    CHECK(parse_semantics_text("", qk::scale_rule::floor).error.view().find("unknown semantics") == 0);
    CHECK(parse_semantics_text("ocp,colour=red", qk::scale_rule::floor).error == "semantics have no choice 'colour'");
    CHECK(parse_semantics_text("ocp,rounding=sideways", qk::scale_rule::floor).error.view().find("unknown rounding 'sideways'") == 0);
}
