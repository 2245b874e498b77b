// SPDX-License-Identifier: Apache-2.0
// Defects of other systems in calibration, export and operators that qk must not have, each under its number. Defects of requests and of
// search are tested in plan_test, plan_json_test and search_test.
#include <doctest/doctest.h>
#include <onnx/onnx_pb.h>
#include <sys/resource.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <random>
#include <thread>

#include "call_op.hpp"
#include "qk/graph/base/format_text.hpp"
#include "qk/graph/calibrate/calibrate.hpp"
#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/export/export.hpp"
#include "qk/graph/quantize/planner.hpp"
#include "small_graph.hpp"

using namespace qk::graph;

namespace {

tensor waves(dims shape, float size = 1) {
    tensor t(data_type::float32, shape);
    for (std::size_t i = 0; i < t.size(); ++i) t.as<float>()[i] = std::sin(static_cast<float>(i) * 1.37f) * size;
    return t;
}
model convolution(float weights, const std::vector<float>& bias) {
    small_graph g;
    g.input("x", {1, 4, 6, 6}).output("y", {1, 4, 6, 6}).constant("w", {4, 4, 1, 1}, weights).constant("b", {4}, 1, bias);
    g.node("Conv", "conv", {"x", "w", "b"}, "y");
    return g.build();
}
double decibels(const tensor& reference, const tensor& value) { return sqnr(reference.as<float>(), value.as<float>()); }
bool same_bits(const tensor& a, const tensor& b) {
    for (std::size_t i = 0; i < a.size(); ++i)
        if (std::bit_cast<std::uint32_t>(a.as<float>()[i]) != std::bit_cast<std::uint32_t>(b.as<float>()[i])) return false;
    return a.shape() == b.shape();
}

}  // namespace

TEST_CASE("a bias of any size survives the export of an integer layer") {
    for (const float size : {1.0f, 1e3f, 1e6f}) {
        INFO(size);
        const model m = convolution(1e-4f, {size, -size, size / 3, 0});
        const tensor x = waves({1, 4, 6, 6}, 1e-3f);
        const calibration seen = calibrate(m, {{"x", x}}, {.threads = 1});
        const tensor whole = evaluator(m, {.threads = 1}).run({{"x", x}}).outputs.at("y");
        const quantize_result planned = quantize(m, precision_requests().set_default("uint8", "int8"), seen);
        for (const export_style s : {export_style::qdq, export_style::qoperator}) {
            const export_result r = export_model(m, planned.plan, {.style = s});
            const tensor y = evaluator(r.exported, {.threads = 1}).run({{"x", x}}).outputs.at("y");
            CHECK(decibels(whole, y) > 60);  // the bias dominates the output and has 32 bits
        }
    }
}

TEST_CASE("non_overflow never clips") {
    std::mt19937 random(8);
    const auto uniform = [&] { return static_cast<float>(random()) * 0x1p-32f; };
    for (int i = 0; i < 20000; ++i) {
        const float size = std::ldexp(1 + uniform(), static_cast<int>(random() % 60) - 30);
        const value_range r{-size * uniform(), size * uniform()};
        for (const int bits : {4, 8, 16}) {
            const qk::integer f{.bits = bits, .pow2 = true};
            const float scale = scale_of(f, r, true).scale;
            CHECK(std::ldexp(1.0f, std::ilogb(scale)) == scale);
            const float absmax = std::max(-r.lo, r.hi);
            CHECK(absmax <= scale * static_cast<float>(qmax(f)));
        }
    }
}

TEST_CASE("models of every block format and of 32-bit integers need no operator of anybody's library, and shrink") {
    small_graph g;
    g.input("x", {2, 64}).output("y", {2, 256}).constant("w", {64, 256});
    g.node("MatMul", "matmul", {"x", "w"}, "y");
    const model m = g.build();
    const tensor x = waves({2, 64});
    const calibration seen = calibrate(m, {{"x", x}}, {.threads = 1});
    for (const char* format : {"bfp16", "mx9", "mx6", "mx4", "mxint8", "mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4",
                               "nvfp4", "int32", "uint32"}) {
        INFO(format);
        const precision_plan plan = quantize(m, precision_requests().set_default(format, format), seen).plan;
        const export_result r = export_model(m, plan, {.style = export_style::portable});
        std::set<std::pair<std::string, std::string>> local;
        for (const auto& f : r.exported.proto().functions()) local.insert({f.domain(), f.name()});
        const auto standard = [&](const onnx::NodeProto& n) {
            return n.domain().empty() || n.domain() == "ai.onnx" || local.contains({n.domain(), n.op_type()});
        };
        for (const auto& n : r.exported.graph().node()) CHECK(standard(n));
        for (const auto& f : r.exported.proto().functions())
            for (const auto& n : f.node()) CHECK(standard(n));
        const tensor planned = evaluator(m, {.threads = 1}).run({{"x", x}}, plan).outputs.at("y");
        CHECK(decibels(planned, evaluator(r.exported, {.threads = 1}).run({{"x", x}}).outputs.at("y")) > 90);
        double bytes = 0;
        for (const auto& i : r.exported.graph().initializer()) bytes += static_cast<double>(r.exported.constant(i.name()).size_bytes());
        const double wide = 64 * 256 * 4, promised = wide * qk::bits_per_value(format_from(format)) / 32;
        CHECK(bytes < promised + wide / 16);  // the rest of the file: tables, shapes
    }
}

TEST_CASE("AMD's operators from many threads, on data that others own, with attributes that make no sense") {
    const tensor x = waves({16, 96}, 3);
    const tensor before(data_type::float32, {16, 96});
    std::copy(x.bytes(), x.bytes() + x.size_bytes(), const_cast<tensor&>(before).bytes());
    const auto bfp = [&] {
        return qk_test::call_op("com.amd.quark:BFPQuantizeDequantize", 1, {x},
                                {{"bfp_method", std::string("to_bfp")},
                                 {"bit_width", std::int64_t{16}},
                                 {"block_size", std::int64_t{8}},
                                 {"axis", std::int64_t{1}},
                                 {"rounding_mode", std::int64_t{2}},
                                 {"convert_to_bfloat_before_bfp", std::int64_t{1}}})[0];
    };
    const auto mx = [&] {
        return qk_test::call_op("com.amd.quark:MXQuantizeDequantize", 1, {x},
                                {{"element_dtype", std::string("fp4_e2m1")}, {"axis", std::int64_t{0}}})[0];
    };
    const tensor a = bfp(), b = mx();
    std::vector<int> wrong(8);
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < wrong.size(); ++t)
        threads.emplace_back([&, t] {
            for (int i = 0; i < 40; ++i) wrong[t] += !same_bits(bfp(), a) + !same_bits(mx(), b);
        });
    for (std::thread& t : threads) t.join();
    for (const int w : wrong) CHECK(w == 0);
    CHECK(same_bits(x, before));
    for (const char* element : {"fp8", "", "FP4"})
        CHECK_THROWS_AS(qk_test::call_op("com.amd.quark:MXQuantizeDequantize", 1, {x}, {{"element_dtype", std::string(element)}}), error);
}

TEST_CASE("a quantized model is saved and comes back the same") {
    const model m = convolution(1, {1, 2, 3, 4});
    const tensor x = waves({1, 4, 6, 6});
    const calibration seen = calibrate(m, {{"x", x}}, {.threads = 1});
    const std::filesystem::path file = std::filesystem::temp_directory_path() / ("qk_defect_11_" + std::to_string(::getpid()) + ".onnx");
    for (const char* format : {"int8", "mxfp4"}) {
        const precision_plan plan = quantize(m, precision_requests().set_default(format, format), seen).plan;
        const export_result r = export_model(m, plan, {.style = export_style::portable});
        r.exported.save(file);
        const model back = model::load(file);
        CHECK(same_bits(evaluator(r.exported, {.threads = 1}).run({{"x", x}}).outputs.at("y"),
                        evaluator(back, {.threads = 1}).run({{"x", x}}).outputs.at("y")));
    }
    std::filesystem::remove(file);
}

TEST_CASE("calibration keeps no activations") {
    small_graph g;
    g.input("x", {1, 1, 64, 64}).output("y", {1, 16, 64, 64}).constant("w", {16, 1, 1, 1}).constant("v", {16, 16, 1, 1});
    g.node("Conv", "one", {"x", "w"}, "a");
    g.node("Relu", "relu", {"a"}, "b");
    g.node("Conv", "two", {"b", "v"}, "y");
    const model m = g.build();
    const auto resident = [] {
        rusage u{};
        getrusage(RUSAGE_SELF, &u);
        return static_cast<double>(u.ru_maxrss) * 1024;
    };
    const tensor few = waves({8, 1, 64, 64}), many = waves({1000, 1, 64, 64});
    const calibration small = calibrate(m, {{"x", few}}, {.threads = 2});
    const double before = resident();
    const calibration large = calibrate(m, {{"x", many}}, {.threads = 2});
    const double activations = 1000.0 * 3 * 16 * 64 * 64 * 4;  // 786 MB
    CHECK(resident() - before < activations / 8);
    CHECK(small.tensors.size() == large.tensors.size());
}
