// SPDX-License-Identifier: Apache-2.0
// Layers under an accumulator: the evaluator must give the values of matrix_multiply_add on operands that this test lays out itself.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "accumulator_cases.hpp"
#include "graph/evaluate/execute/quantize_value.hpp"
#include "graph/gradient/backward.hpp"
#include "hardware/devices/device_layer.hpp"
#include "qk/dot.hpp"
#include "qk/dot/devices.hpp"
#include "qk/dot/text.hpp"
#include "qk/formats/parse.hpp"
#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/evaluate/session.hpp"
#include "qk/graph/quantize/plan_file.hpp"
#include "small_graph.hpp"

using namespace qk::graph;

namespace {

tensor values(dims shape, float scale) {
    tensor t(data_type::float32, std::move(shape));
    for (std::size_t i = 0; i < t.size(); ++i)
        t.as<float>()[i] = scale * std::sin(static_cast<float>(i) * 0.37f) * static_cast<float>(1 + i % 7);
    return t;
}

/// Returns [m][k] times [k][n] by matrix_multiply_add; element i is multiplied by scales[i], then bias(row, column) is added.
std::vector<float> expected(const std::string& unit, const coded& a, const std::vector<float>& rows, const coded& b,
                            const std::vector<float>& columns, std::size_t m, std::size_t n, std::size_t k,
                            const std::vector<float>& scales, const std::function<float(std::size_t, std::size_t)>& bias) {
    const auto how = *qk::parse_accumulator(unit);
    std::vector<std::uint64_t> d(m * n);
    qk::matrix_multiply_add(a.format, b.format, how, {m, n, k}, {{a.of(rows), {}, {}, {}}, a.zero_point},
                            {{b.of(columns), {}, {}, {}}, b.zero_point}, {}, d);
    std::vector<float> y;
    for (std::size_t i = 0; i < d.size(); ++i) {
        const float v = how.sum == qk::summation::integer ? static_cast<float>(static_cast<std::int64_t>(d[i]))
                        : qk::bits(how.result) <= 16      ? qk::value_of(how.result, static_cast<std::uint32_t>(d[i]))
                                                          : std::bit_cast<float>(static_cast<std::uint32_t>(d[i]));
        y.push_back(v * scales[i] + bias(i / n, i % n));
    }
    return y;
}

quantizer quantizer_of(const coded& c) {
    quantizer q;
    q.format = c.format;
    if (qk::is_integer_format(c.format) || c.scale != 1) q.scale = {c.scale};
    if (c.zero_point != 0) q.zero_point = {c.zero_point};
    return q;
}

void same(const tensor& got, const std::vector<float>& wanted) {
    REQUIRE(got.size() == wanted.size());
    std::size_t different = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i)
        different += std::bit_cast<std::uint32_t>(got.as<float>()[i]) != std::bit_cast<std::uint32_t>(wanted[i]);
    CHECK(different == 0);
}

/// Checks y = MatMul(x, w) with x [5,k] and the constant w [k,6].
void check_matmul(const std::string& unit, const coded& cx, const coded& cw, std::size_t k, float scale) {
    const auto length = static_cast<std::int64_t>(k);
    small_graph g;
    g.input("x", {5, length}).output("y", {5, 6}).constant("w", {length, 6}, 3.0f);
    g.node("MatMul", "product", {"x", "w"}, "y");
    const model m = g.build();
    const tensor x = values({5, length}, scale), w = m.constant("w");
    precision_plan plan;
    plan.tensors["x"] = quantizer_of(cx);
    plan.tensors["w"] = quantizer_of(cw);
    const auto run = under(m, {{"product", unit}}, {{"x", x}}, plan);
    const std::vector<float> rows(x.as<float>().begin(), x.as<float>().end()), columns(w.as<float>().begin(), w.as<float>().end());
    INFO(unit, " k ", k);
    same(run.outputs.at("y"), expected(unit, cx, rows, cw, columns, 5, 6, k, std::vector<float>(30, cx.scale * cw.scale),
                                       [](std::size_t, std::size_t) { return 0.0f; }));
}

const coded e4m3{qk::fp8_e4m3fn}, scaled{qk::fp8_e4m3fn, 0.07f}, sixteen{qk::fp16}, signed8{qk::int8, 0.05f},
    shifted{qk::uint8, 0.03f, 128};

}  // namespace

TEST_CASE("MatMul under units is matrix_multiply_add") {
    for (const std::size_t k : {3, 32, 70, 300}) {
        check_matmul("nvidia.hopper.wgmma.f32.e4m3.e4m3", e4m3, scaled, k, 2.0f);
        check_matmul("nvidia.hopper.wgmma.f32.f16.f16", sixteen, sixteen, k, 2.0f);
        check_matmul("amd.cdna3.mfma.f32_f16", sixteen, sixteen, k, 2.0f);
        check_matmul("sum=sequential", scaled, sixteen, k, 2.0f);
        check_matmul("groups=16,align=25", signed8, signed8, k, 2.0f);
        check_matmul("sum=exact", shifted, signed8, k, 2.0f);
        check_matmul("sum=exact", e4m3, scaled, k, 2.0f);
        check_matmul("sum=exact,result=fp16,round=toward-zero", {qk::fp4_e2m1}, {qk::fp6_e3m2}, k, 2.0f);
        check_matmul("sum=exact,groups=16", e4m3, scaled, k, 2.0f);  // the general form where k is larger than a group
        check_matmul("sum=exact", sixteen, sixteen, k, 2.0f);        // the general form
        check_matmul("sum=integer,width=32", shifted, signed8, k, 2.0f);
        check_matmul("sum=integer,width=12", shifted, signed8, k, 2.0f);
        check_matmul("sum=integer,groups=4,place=after,width=17", signed8, {qk::int4, 0.3f}, k, 2.0f);
        check_matmul("sum=integer,requantize=scale,scale=0.01,output=uint8,zero-point=9", shifted, signed8, k, 2.0f);
        check_matmul("sum=integer,width=20,saturate", shifted, signed8, k, 2.0f);
    }
    check_matmul("nvidia.hopper.wgmma.f16.e4m3.e5m2", e4m3, {qk::fp8_e5m2, 8.0f}, 64, 100.0f);
    check_matmul("nvidia.hopper.wgmma.f16.f16.f16", sixteen, sixteen, 300, 1000.0f);  // Inf in float16: some sums take the general form
}

TEST_CASE("Conv under a unit is matrix_multiply_add on the gathered operands") {
    small_graph g;
    g.input("x", {1, 4, 7, 6}).output("y", {1, 6, 4, 3});
    g.constant("w", {6, 2, 3, 3}, 3.0f).constant("b", {6}, 0.5f);
    auto& n = g.node("Conv", "conv", {"x", "w", "b"}, "y");
    small_graph::set(n, "strides", {2, 2});
    small_graph::set(n, "pads", {1, 1, 1, 1});
    small_graph::set(n, "group", 2);
    const model m = g.build();
    const tensor x = values({1, 4, 7, 6}, 1.5f), w = m.constant("w"), b = m.constant("b");
    const std::string unit = "nvidia.hopper.wgmma.f32.e4m3.e4m3";
    quantizer by_channel = quantizer_of(scaled);
    by_channel.axis = 0;
    by_channel.scale = {0.07f, 0.08f, 0.09f, 0.1f, 0.2f, 0.3f};
    precision_plan plan;
    plan.tensors["x"] = quantizer_of(scaled);
    plan.tensors["w"] = by_channel;
    const auto run = under(m, {{"conv", unit}}, {{"x", x}}, plan, 2);
    std::vector<float> wanted;
    for (std::size_t o = 0; o < 6; ++o) {  // each output channel has a scale of its own
        const std::size_t group = o / 3;
        std::vector<float> row(w.as<float>().begin() + static_cast<std::ptrdiff_t>(o * 18),
                               w.as<float>().begin() + static_cast<std::ptrdiff_t>(o * 18 + 18));
        std::vector<float> columns;
        for (std::size_t c = 0; c < 2; ++c)
            for (int i = 0; i < 3; ++i)
                for (int j = 0; j < 3; ++j)
                    for (int r = 0; r < 4; ++r)
                        for (int s = 0; s < 3; ++s) {
                            const int down = 2 * r - 1 + i, across = 2 * s - 1 + j;
                            const bool inside = down >= 0 && down < 7 && across >= 0 && across < 6;
                            const auto at = (group * 2 + c) * 42 + static_cast<std::size_t>(inside ? down * 6 + across : 0);
                            columns.push_back(inside ? x.as<float>()[at] : 0.0f);
                        }
        const coded cw{qk::fp8_e4m3fn, by_channel.scale[o]};
        for (const float v : expected(unit, cw, row, scaled, columns, 1, 12, 18, std::vector<float>(12, scaled.scale * cw.scale),
                                      [&](std::size_t, std::size_t) { return b.as<float>()[o]; }))
            wanted.push_back(v);
    }
    same(run.outputs.at("y"), wanted);
}

TEST_CASE("Gemm under a unit: transposed weights, a bias; operands without quantizers become what the device multiplies") {
    small_graph g;
    g.input("x", {3, 40}).output("y", {3, 5}).constant("w", {5, 40}, 2.0f).constant("b", {5}, 1.0f);
    auto& n = g.node("Gemm", "dense", {"x", "w", "b"}, "y");
    small_graph::set(n, "transB", 1);
    const model m = g.build();
    const tensor x = values({3, 40}, 1.0f), w = m.constant("w"), b = m.constant("b");
    const std::string unit = "nvidia.ampere.mma.f32.bf16.bf16.f32";
    const auto run = under(m, {{"dense", unit}}, {{"x", x}});
    std::vector<float> columns(200);
    for (std::size_t i = 0; i < 5; ++i)
        for (std::size_t j = 0; j < 40; ++j) columns[j * 5 + i] = w.as<float>()[i * 40 + j];
    const std::vector<float> rows(x.as<float>().begin(), x.as<float>().end());
    same(run.outputs.at("y"), expected(unit, {qk::bf16}, rows, {qk::bf16}, columns, 3, 5, 40, std::vector<float>(15, 1.0f),
                                       [&](std::size_t, std::size_t j) { return b.as<float>()[j]; }));
    const auto plain = under(m, {}, {{"x", x}});
    CHECK(std::memcmp(plain.outputs.at("y").bytes(), run.outputs.at("y").bytes(), 60) != 0);
}

TEST_CASE("requests name layers, types and everything; what they cannot mean is an error") {
    const model m = residual_model();
    const auto file = parse_plan_file(R"({"default": {"accumulator": "sum=exact"},
        "requests": [{"op_type": "Conv", "accumulator": "sum=sequential"},
                     {"layer": "conv2", "accumulator": "nvidia.hopper.wgmma.f32.f16.f16"}]})",
                                      "f.json");
    CHECK(file.requests.empty());
    const auto units = resolve_accumulators(m, file.accumulators);
    CHECK(units ==
          layer_accumulators{{"conv1", "sum=sequential"}, {"conv2", "nvidia.hopper.wgmma.f32.f16.f16"}, {"conv3", "sum=sequential"}});
    CHECK(resolve_accumulators(m, {parse_accumulator_request("conv*:sum=exact", "--accumulator")}).size() == 3);
    CHECK_THROWS_WITH_AS(resolve_accumulators(m, {parse_accumulator_request("convv2:sum=exact", "--accumulator")}),
                         doctest::Contains("conv2"), error);
    CHECK_THROWS_WITH_AS(resolve_accumulators(m, {parse_accumulator_request("Gemm:sum=exact", "--accumulator")}), doctest::Contains("Gemm"),
                         error);
    CHECK_THROWS_WITH_AS(parse_accumulator_request("nvidia.hoper.wgmma.f32.f16.f16", "--accumulator"), doctest::Contains("did you mean"),
                         error);
    CHECK_THROWS_WITH_AS(parse_plan_file(R"({"requests": [{"layer": "a", "accumulator": "align=x"}]})", "f.json"),
                         doctest::Contains("f.json"), error);
    precision_plan plan;
    plan.tensors["x"] = quantizer_of(signed8);
    CHECK_THROWS_WITH_AS(under(m, {{"conv1", "nvidia.hopper.wgmma.f32.f16.f16"}}, {{"x", values({1, 4, 8, 8}, 1)}}, plan),
                         doctest::Contains("conv1"), error);
}

TEST_CASE("a saved plan keeps what multiplies; plans that differ in it alone are different steps") {
    const model m = residual_model();
    precision_plan plan;
    plan.accumulators = {{"conv1", "sum=exact"}, {"conv2", "nvidia.hopper.wgmma.f32.f16.f16"}};
    const auto read = parse_plan_file(to_json(plan).dump(), "p.json");
    REQUIRE(read.plan);
    CHECK(*read.plan == plan);
    CHECK(!to_json(precision_plan{}).contains("accumulators"));
    CHECK_THROWS_WITH_AS(parse_plan_file(R"({"qk": "plan", "accumulators": {"conv1": "align=x"}})", "p.json"), doctest::Contains("p.json"),
                         error);
    precision_plan lost;
    lost.accumulators = {{"convv1", "sum=exact"}};
    CHECK_THROWS_WITH_AS(check_plan(lost, m, "p.json"), doctest::Contains("Did you mean"), error);

    const named_tensors x{{"x", values({3, 4, 8, 8}, 1)}};
    session runs(m, x, {.threads = 1, .stop = {}});
    precision_plan other = plan;
    other.accumulators["conv1"] = "groups=4,align=11,round=toward-zero,partial=fp16,result=fp16";
    const std::vector<precision_plan> plans{{}, plan, other};
    std::vector<std::vector<float>> y(3);
    runs.evaluate(plans, [&](std::size_t candidate, std::size_t, std::span<const tensor> outputs) {
        y[candidate].insert(y[candidate].end(), outputs[0].as<float>().begin(), outputs[0].as<float>().end());
        return 0.0;
    });
    for (std::size_t i = 0; i < 3; ++i) {
        const tensor alone = evaluator(m, {.threads = 1}).run(x, plans[i]).outputs.begin()->second;
        CHECK(std::equal(y[i].begin(), y[i].end(), alone.as<float>().begin(), alone.as<float>().end()));
    }
    CHECK(y[0] != y[1]);
    CHECK(y[1] != y[2]);
}

namespace {
quantizer along(const char* format, int axis) {
    quantizer q;
    q.format = *qk::parse_format(format);
    q.axis = axis;
    return q;
}
tensor rounded(const tensor& x, const quantizer& q) { return execute::quantized(q, x, false, gradient::thread_allocator::get()); }
}  // namespace

namespace {
/// Checks MatMul of x [2,3,k] and w [k,n] under `unit` against matrix_multiply_add on the planes that encode packs.
void check_product_of_blocks(const std::string& unit, const qk::format& fa, const qk::format& fb, std::int64_t k, std::int64_t n,
                             float spread) {
    CAPTURE(unit);
    std::mt19937 random(static_cast<unsigned>(k));
    std::uniform_real_distribution<float> exponent(-spread, spread);
    const auto spread_out = [&](tensor t) {
        for (float& v : t.as<float>()) v *= std::exp2(std::round(exponent(random)));
        return t;
    };
    small_graph g;
    g.input("x", {2, 3, k}).output("y", {2, 3, n}).constant("w", {k, n}, 2.0f);
    g.node("MatMul", "product", {"x", "w"}, "y");
    model m = g.build();
    const tensor x = spread_out(values({2, 3, k}, 1.0f)), w = m.constant("w");
    precision_plan plan;
    plan.tensors["x"] = along("int8", -1), plan.tensors["w"] = along("int8", 0);
    plan.tensors["x"].format = fa, plan.tensors["w"].format = fb;
    const tensor y = under(m, {{"product", unit}}, {{"x", x}}, plan).outputs.at("y");
    const auto length = static_cast<std::size_t>(k), width = static_cast<std::size_t>(n);
    const qk::along_axis rows{6, length, 1}, columns{1, length, width};
    std::vector<std::byte> a(qk::packed_bytes(fa, rows)), b(qk::packed_bytes(fb, columns));
    REQUIRE(kernel_calls::encode(fa, x.as<float>(), a, rows) == qk::encode_status::done);
    REQUIRE(kernel_calls::encode(fb, w.as<float>(), b, columns) == qk::encode_status::done);
    const auto how = *qk::parse_accumulator(unit);
    std::vector<std::uint64_t> d(6 * width);
    // The evaluator multiplies matrix by matrix, but NVFP4 has one tensor scale for all of them.
    qk::matrix_multiply_add(fa, fb, how, {6, width, length}, {qk::planes_of(qk::layout_of(fa, rows), std::span<const std::byte>(a))},
                            {qk::planes_of(qk::layout_of(fb, columns), std::span<const std::byte>(b))}, {}, d);
    std::vector<float> wanted;
    for (const std::uint64_t code : d) wanted.push_back(execute::stored_value(how, code));
    same(y, wanted);
}
}  // namespace

TEST_CASE("MatMul of blocks: what encode packs along the sum is what the unit multiplies") {
    struct row {
        const char *a, *b, *unit;
    };
    for (const row& r :
         {row{"mxfp8_e4m3", "mxfp4", "sum=exact"}, row{"mxfp4", "mxint8", "sum=exact"}, row{"mx6", "bfp16", "sum=exact,zero=positive"},
          row{"bfp16", "mx9", "sum=sequential"}, row{"mx9", "mx4", "groups=16,align=25,round=toward-zero"},
          row{"mxfp4", "mxfp6_e2m3", "groups=64,bundle=32,align=30,round=toward-zero"},
          row{"mxfp6_e3m2", "mxfp4", "groups=64,bundle=16,align=28,cut=down,result=fp16"},
          row{"nvfp4", "mxfp4", "groups=32,bundle=16,align=33"}, row{"mxfp8_e5m2", "fp8_e4m3fn", "groups=32,align=25"}})
        for (const float spread : {0.0f, 6.0f, 30.0f})
            check_product_of_blocks(r.unit, *qk::parse_format(r.a), *qk::parse_format(r.b), 70, 37, spread);
}

TEST_CASE("every unit that multiplies blocks") {
    std::size_t units = 0;
    qk::devices::each([&](const qk::device& d) {
        if (!qk::is_block_format(d.a)) return;
        ++units;
        for (const float spread : {0.0f, 12.0f}) check_product_of_blocks(std::string(d.name), d.a, d.b, 200, 21, spread);
    });
    CHECK(units >= 10);
}

TEST_CASE("Conv of blocks sums row, column, channel; groups, padding and channels that fill no block") {
    for (const std::int64_t group : {1, 2}) {
        const std::int64_t in = group == 1 ? 20 : 32;
        small_graph g;
        g.input("x", {2, in * group, 5, 4}).output("y", {2, 6, 3, 4}).constant("w", {6, in, 3, 3}, 2.0f).constant("b", {6}, 1.0f);
        auto& n = g.node("Conv", "conv", {"x", "w", "b"}, "y");
        small_graph::set(n, "strides", {2, 1});
        small_graph::set(n, "pads", {1, 1, 1, 1});
        auto* attribute = n.add_attribute();
        attribute->set_name("group"), attribute->set_type(onnx::AttributeProto::INT), attribute->set_i(group);
        const model m = g.build();
        const tensor x = values({2, in * group, 5, 4}, 1.0f), w = m.constant("w"), bias = m.constant("b");
        precision_plan plan;
        plan.tensors["x"] = along("mxfp8_e4m3", 1), plan.tensors["w"] = along("mxfp6_e3m2", 1);
        const tensor px = rounded(x, plan.tensors["x"]), pw = rounded(w, plan.tensors["w"]);
        const tensor exact = under(m, {{"conv", "sum=exact"}}, {{"x", x}}, plan, 2).outputs.at("y");
        const tensor in_order = under(m, {{"conv", "sum=sequential"}}, {{"x", x}}, plan, 2).outputs.at("y");
        std::vector<float> wanted_exact, wanted_in_order;
        for (std::int64_t s = 0; s < 2; ++s)
            for (std::int64_t o = 0; o < 6; ++o)
                for (std::int64_t i = 0; i < 3; ++i)
                    for (std::int64_t j = 0; j < 4; ++j) {
                        double sum = 0;  // exact in double: few terms of few bits
                        float loop = 0;
                        for (std::int64_t r = 0; r < 3; ++r)
                            for (std::int64_t c = 0; c < 3; ++c)
                                for (std::int64_t k = 0; k < in; ++k) {
                                    const std::int64_t row = 2 * i - 1 + r, column = j - 1 + c, channel = o / (6 / group) * in + k;
                                    const bool inside = row >= 0 && row < 5 && column >= 0 && column < 4;
                                    const auto at = static_cast<std::size_t>(((s * in * group + channel) * 5 + row) * 4 + column);
                                    const float a = inside ? px.as<float>()[at] : 0.0f,
                                                v = pw.as<float>()[static_cast<std::size_t>(((o * in + k) * 3 + r) * 3 + c)];
                                    sum += static_cast<double>(a) * static_cast<double>(v);
                                    loop = std::fma(a, v, loop);
                                }
                        const float add = bias.as<float>()[static_cast<std::size_t>(o)];
                        wanted_exact.push_back(static_cast<float>(sum) + add), wanted_in_order.push_back(loop + add);
                    }
        same(exact, wanted_exact);
        same(in_order, wanted_in_order);
    }
}

TEST_CASE("blocks that a unit cannot sum along are an error that names the layer") {
    const model m = residual_model();
    const named_tensors x{{"x", values({1, 4, 8, 8}, 1)}};
    precision_plan plan;
    plan.tensors["x"] = along("mxfp4", 3);
    CHECK_THROWS_WITH_AS(under(m, {{"conv1", "sum=exact"}}, x, plan), doctest::Contains("conv1"), error);
    CHECK_THROWS_WITH_AS(under(m, {{"conv1", "sum=exact"}}, x, plan), doctest::Contains("axis 1"), error);
    plan.tensors["x"] = along("mxfp4", 1);
    plan.tensors["x"].semantics.rounding = qk::rounding::stochastic;
    CHECK_THROWS_WITH_AS(under(m, {{"conv1", "sum=exact"}}, x, plan), doctest::Contains("random"), error);
    plan.tensors["x"] = along("mxfp4", 1);
    CHECK_THROWS_WITH_AS(under(m, {{"conv1", "nvidia.hopper.wgmma.f32.f16.f16"}}, x, plan), doctest::Contains("mxfp4"), error);
}
