// SPDX-License-Identifier: Apache-2.0
// The type in which an export stores int8 weights: uint8 with zero point 128 where they are not pair-safe (pair_safe_test.cpp), int8 if
// requested or if products cannot saturate. The values are the same.
#include <doctest/doctest.h>
#include <onnx/onnx_pb.h>

#include <map>

#include "qk/graph/base/format_text.hpp"
#include "qk/graph/calibrate/calibrate.hpp"
#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/export/export.hpp"
#include "qk/graph/quantize/plan_file.hpp"
#include "qk/graph/quantize/planner.hpp"
#include "qk/graph/recover/recover.hpp"
#include "small_graph.hpp"

using namespace qk::graph;

namespace {

/// Builds a network with a Conv, a MatMul and a Gemm.
model network() {
    small_graph g;
    g.input("x", {2, 3, 6, 6}).output("y", {2, 5});
    g.constant("w1", {8, 3, 3, 3}, 0.5f).constant("b1", {8}).constant("w2", {8, 6}).constant("w3", {5, 6}).constant("b3", {5});
    g.node("Conv", "conv", {"x", "w1", "b1"}, "c");
    g.node("Relu", "relu", {"c"}, "r");
    g.node("GlobalAveragePool", "gap", {"r"}, "g");
    g.node("Flatten", "flat", {"g"}, "f");
    g.node("MatMul", "matmul", {"f", "w2"}, "m");
    small_graph::set(g.node("Gemm", "gemm", {"m", "w3", "b3"}, "y"), "transB", 1);
    return g.build();
}

named_tensors pictures() {
    std::vector<float> v(2 * 3 * 36);
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(static_cast<int>(i * 7919 % 401) - 200) / 100.0f;
    return {{"x", make_tensor<float>({2, 3, 6, 6}, v)}};
}

struct written {
    model source;
    precision_plan plan;
    export_result result;

    /// Returns the type in which the export stores a tensor's codes; undefined if it stores none.
    data_type type_of(const std::string& tensor) const {
        data_type found = data_type::undefined;
        for (const auto& t : result.exported.graph().initializer())
            if (t.name().starts_with(tensor + "_quantized")) found = static_cast<data_type>(t.data_type());
        return found;
    }
    std::vector<std::int64_t> zero_points_of(const std::string& tensor) const {
        for (const auto& t : result.exported.graph().initializer()) {
            if (!t.name().starts_with(tensor + "_zero_point")) continue;
            std::vector<std::int64_t> all;
            const qk::graph::tensor v = result.exported.constant(t.name());
            for (std::size_t i = 0; i < v.size(); ++i)
                all.push_back(v.type() == data_type::int8 ? std::int64_t{v.as<std::int8_t>()[i]} : std::int64_t{v.as<std::uint8_t>()[i]});
            return all;
        }
        return {};
    }
    std::string notes() const {
        std::string all;
        for (const std::string& n : result.notes) all += n + "\n";
        return all;
    }
};

written write(const std::string& activation, const std::string& weight, export_options how, bool per_channel,
              approach a = approach::static_ranges, bool asymmetric = false) {
    const model m = network();
    quantize_options options;
    options.per_channel = per_channel, options.how = a;
    const calibration seen = calibrate(m, pictures(), {.threads = 1});
    precision w = parse_precision(weight);
    if (asymmetric) w.symmetric = false;
    precision_requests requests;
    requests.set_default(parse_precision(activation), w);
    const precision_plan plan = quantize(m, requests, seen, options).plan;
    return {m, plan, export_model(m, plan, how)};
}

constexpr const char* layer_weights[] = {"w1", "w2", "w3"};

}  // namespace

TEST_CASE("int8 weights that are not pair-safe are uint8 around 128, in every style that onnxruntime runs") {
    for (const export_style style : {export_style::qdq, export_style::portable, export_style::qoperator, export_style::qinteger})
        for (const bool per_channel : {false, true}) {
            CAPTURE(style.name());
            CAPTURE(per_channel);
            const bool dynamic = style == export_style::qinteger;
            const written w = write("uint8", "int8", {.style = style}, per_channel, dynamic ? approach::dynamic : approach::static_ranges);
            for (const char* name : layer_weights) {
                CHECK(w.type_of(name) == data_type::uint8);
                const auto zeros = w.zero_points_of(name);
                REQUIRE(!zeros.empty());
                for (const std::int64_t z : zeros) CHECK(z == 128);
            }
            CHECK(w.notes().find("3 int8 weights written as uint8 with zero point + 128") != std::string::npos);
            CHECK(w.notes().find("saturate") != std::string::npos);
            // The plan keeps its symmetric int8.
            for (const char* name : layer_weights) {
                CHECK(w.plan.tensors.at(name).format == qk::format(qk::int8));
                CHECK(w.plan.tensors.at(name).zero_point.empty());
            }
        }
}

TEST_CASE("qinteger has one scalar zero point of 128, per channel too") {
    const written w = write("uint8", "int8", {.style = export_style::qinteger}, true, approach::dynamic);
    int products = 0;
    for (const auto& n : w.result.exported.graph().node()) {
        if (n.op_type() != "MatMulInteger" && n.op_type() != "ConvInteger") continue;
        ++products;
        REQUIRE(n.input_size() == 4);
        const tensor zero = w.result.exported.constant(n.input(3));
        CHECK(zero.rank() == 0);
        CHECK(zero.type() == data_type::uint8);
        CHECK(int{zero.as<std::uint8_t>()[0]} == 128);
    }
    CHECK(products == 3);
    // Elsewhere results may differ only by the order of float sums.
    const tensor planned = evaluator(w.source, {.threads = 1}).run(pictures(), w.plan).outputs.at("y");
    const tensor exported = evaluator(w.result.exported, {.threads = 1}).run(pictures()).outputs.at("y");
    for (std::size_t i = 0; i < planned.size(); ++i)
        CHECK(planned.as<float>()[i] == doctest::Approx(exported.as<float>()[i]).epsilon(1e-2));
}

TEST_CASE("the values are those of int8, bit for bit") {
    for (const bool asymmetric : {false, true})
        for (const bool per_channel : {false, true})
            for (const weight_storage storage : {weight_storage::packed, weight_storage::floats})
                for (const char* format : {"int8", "int8:narrow"}) {
                    CAPTURE(asymmetric);
                    CAPTURE(per_channel);
                    CAPTURE(format);
                    const auto outputs = [&](int8_codes codes) {
                        const written w = write("uint8", format, {.weights = storage, .int8_weights = codes}, per_channel,
                                                approach::static_ranges, asymmetric);
                        if (storage == weight_storage::packed)
                            CHECK(w.type_of("w1") == (codes == int8_codes::as_unsigned ? data_type::uint8 : data_type::int8));
                        CHECK(recover_plan(w.result.exported).plan.tensors.at("w2") == w.plan.tensors.at("w2"));
                        return evaluator(w.result.exported, {.threads = 1}).run(pictures()).outputs.at("y");
                    };
                    const tensor a = outputs(int8_codes::as_unsigned), b = outputs(int8_codes::as_signed);
                    for (std::size_t i = 0; i < a.size(); ++i) CHECK(a.as<float>()[i] == b.as<float>()[i]);
                }
}

TEST_CASE("int8 stays where it is asked for, and where no product can saturate") {
    const written asked = write("uint8", "int8", {.int8_weights = int8_codes::as_signed}, true);
    CHECK(asked.type_of("w1") == data_type::int8);
    CHECK(asked.notes().find("3 int8 weights written as int8, as asked") != std::string::npos);
    const auto quiet = [](const written& w) {
        CHECK(w.type_of("w1") == data_type::int8);
        CHECK(w.notes().find("int8 weights written") == std::string::npos);
    };
    quiet(write("uint8", "int8:reduce_range", {}, false));  // codes have 7 bits
    quiet(write("uint8", "int:bits=7", {}, false));
    quiet(write("int16", "int8", {}, false));  // 8-bit kernels do not apply
    quiet(write("int8", "int8", {.style = export_style::amd}, false));
    quiet(write("bf16", "int8", {}, false, approach::weight_only));
}

TEST_CASE("qoperator multiplies int8 by int8 where activations are int8") {
    for (const char* weight : {"int8", "uint8:symmetric"}) {
        const written w = write("int8", weight, {.style = export_style::qoperator}, false);
        int products = 0;
        for (const auto& n : w.result.exported.graph().node())
            if (n.op_type() == "QLinearConv" || n.op_type() == "QLinearMatMul" || n.op_type() == "QGemm") {
                ++products;
                CHECK(w.result.exported.constant(n.input(3)).type() == data_type::int8);
                CHECK(w.result.exported.constant(n.input(5)).type() == data_type::int8);
            }
        CHECK(products >= 2);
        const tensor planned = evaluator(w.source, {.threads = 1}).run(pictures(), w.plan).outputs.at("y");
        const tensor exported = evaluator(w.result.exported, {.threads = 1}).run(pictures()).outputs.at("y");
        for (std::size_t i = 0; i < planned.size(); ++i)
            CHECK(planned.as<float>()[i] == doctest::Approx(exported.as<float>()[i]).epsilon(2e-2));
    }
}

TEST_CASE("a target profile asks for signed weights") {
    const auto read = [](const std::string& text) { return read_target(json_cursor::parse(text, "profile.json")); };
    CHECK(read(R"({"name": "mine", "int8_weights": "signed", "operators": {"*": {}}})").signed_int8);
    const target_profile wide = read(R"({"name": "mine", "int8_weights": "unsigned", "operators": {"*": {}}})"),
                         safe = read(R"({"name": "mine", "int8_weights": "pair_safe"})");
    CHECK(!wide.signed_int8);
    CHECK(wide.unsigned_int8);
    CHECK(!safe.signed_int8);
    CHECK(!safe.unsigned_int8);
    const target_profile without = read(R"({"name": "mine"})"), empty = read(R"({"name": "mine", "operators": {"*": {}}})");
    const qk::format f = qk::int8;
    for (const target_profile* t : {&without, &empty}) {
        CHECK(!t->signed_int8);
        CHECK(!t->unsigned_int8);
        CHECK(t->allows("Conv", &f, &f));  // a profile without a list of operators allows all
    }
    CHECK(!read(R"({"name": "mine", "operators": {}})").allows("Conv", &f, &f));
    CHECK_THROWS_WITH_AS(read(R"({"name": "mine", "int8_weights": "wide", "operators": {}})"),
                         doctest::Contains("\"int8_weights\" is \"pair_safe\""), error);
}
