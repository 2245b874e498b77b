// SPDX-License-Identifier: Apache-2.0
// Pair-safe int8 weights: neighbours in the order of onnxruntime's kernels stay within 16 bits, the error that this costs is small, and a
// saved plan says what was moved.
#include <doctest/doctest.h>
#include <onnx/onnx_pb.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "graph/quantize/model_changes.hpp"
#include "graph/quantize/pair_safe.hpp"
#include "qk/graph/base/format_text.hpp"
#include "qk/graph/calibrate/calibrate.hpp"
#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/export/export.hpp"
#include "qk/graph/quantize/plan_file.hpp"
#include "qk/graph/quantize/planner.hpp"
#include "small_graph.hpp"

using namespace qk::graph;

namespace {

/// Values of one sign for each output and close to the largest, so that most pairs do not fit at full range.
std::vector<float> large_weights(std::size_t outputs, std::size_t inputs, std::uint32_t seed, bool columns_outermost = false) {
    std::mt19937 random(seed);
    std::vector<float> w(outputs * inputs);
    for (std::size_t o = 0; o < outputs; ++o)
        for (std::size_t i = 0; i < inputs; ++i) {
            const float v = (0.2f + static_cast<float>(random() % 800) / 1000.0f) * (o % 3 == 0 ? -0.1f : 0.1f);
            w[columns_outermost ? i * outputs + o : o * inputs + i] = random() % 4 == 0 ? -v : v;
        }
    return w;
}

/// A plain Conv with an odd number of columns, a grouped, a depthwise and a strided one, a Gemm either way round and a MatMul.
model products() {
    small_graph g;
    g.input("x", {1, 3, 9, 9}).output("y", {1, 7});
    g.constant("w1", {8, 3, 3, 3}, 1, large_weights(8, 27, 1)).constant("b1", {8}, 0.1f);
    g.constant("w2", {8, 4, 3, 3}, 1, large_weights(8, 36, 2));
    g.constant("w3", {8, 1, 3, 3}, 1, large_weights(8, 9, 3));
    g.constant("w4", {5, 8, 1, 1}, 1, large_weights(5, 8, 4)).constant("b4", {5}, 0.1f);
    g.constant("w5", {11, 125}, 1, large_weights(11, 125, 5)).constant("b5", {11}, 0.1f);
    g.constant("w6", {11, 13}, 1, large_weights(13, 11, 6, true)).constant("w7", {13, 7}, 1, large_weights(7, 13, 7, true));
    small_graph::set(g.node("Conv", "plain", {"x", "w1", "b1"}), "pads", {1, 1, 1, 1});
    g.node("Relu", "relu", {"plain_out"});
    auto& grouped = g.node("Conv", "grouped", {"relu_out", "w2"});
    small_graph::set(grouped, "pads", {1, 1, 1, 1});
    small_graph::set(grouped, "group", 2);
    auto& depthwise = g.node("Conv", "depthwise", {"grouped_out", "w3"});
    small_graph::set(depthwise, "pads", {1, 1, 1, 1});
    small_graph::set(depthwise, "group", 8);
    small_graph::set(g.node("Conv", "strided", {"depthwise_out", "w4", "b4"}), "strides", {2, 2});
    g.node("Flatten", "flat", {"strided_out"});
    small_graph::set(g.node("Gemm", "turned", {"flat_out", "w5", "b5"}), "transB", std::int64_t{1});
    g.node("Gemm", "gemm", {"turned_out", "w6"});
    g.node("MatMul", "matmul", {"gemm_out", "w7"}, "y");
    return g.build();
}

const std::vector<std::string> pairing{"plain", "grouped", "strided", "turned", "gemm", "matmul"};

named_tensors samples() {
    std::mt19937 random(9);
    std::vector<float> v(12 * 3 * 81);
    for (float& f : v) f = static_cast<float>(random() % 1000) / 500.0f - 0.6f;
    return {{"x", make_tensor<float>({12, 3, 9, 9}, v)}};
}

precision_plan plan_of(const model& m, const char* weight = "int8", bool per_channel = true, approach how = approach::static_ranges) {
    quantize_options options;
    options.per_channel = per_channel, options.how = how;
    precision_requests requests;
    requests.set_default(parse_precision("uint8"), parse_precision(weight));
    return quantize(m, requests, calibrate(m, samples(), {.threads = 1}), options).plan;
}

/// Counts the pairs of a row-major matrix of codes, [outputs, inputs] in the kernel's order, that may leave 16 bits.
std::size_t too_large(const std::vector<std::vector<int>>& rows) {
    std::size_t n = 0;
    for (const auto& row : rows)
        for (std::size_t k = 0; k + 1 < row.size(); k += 2) {
            const int high = 255 * (std::max(row[k], 0) + std::max(row[k + 1], 0)),
                      low = 255 * (std::min(row[k], 0) + std::min(row[k + 1], 0));
            n += high > 32767 || low < -32768;
        }
    return n;
}

/// Returns the codes of a layer's weights in the order of the kernel's sum, written out for each operator.
std::vector<std::vector<int>> codes_of(const model& m, const precision_plan& plan, const std::string& layer) {
    const onnx::NodeProto& n = m.graph().node(m.node_index(layer));
    const quantizer& q = *plan.find({n.input(1), layer, 1});
    const tensor w = applied(q, m.constant(n.input(1)));
    const auto scale = [&](std::size_t o) { return q.scale[q.scale.size() == 1 ? 0 : o]; };
    const auto code = [&](std::size_t o, std::size_t i) { return static_cast<int>(std::lround(w.as<float>()[i] / scale(o))); };
    std::vector<std::vector<int>> rows;
    if (n.op_type() == "Conv") {
        const auto outputs = static_cast<std::size_t>(w.dim(0)), channels = static_cast<std::size_t>(w.dim(1)),
                   taps = w.size() / outputs / channels;
        for (std::size_t o = 0; o < outputs; ++o) {
            auto& row = rows.emplace_back();
            for (std::size_t t = 0; t < taps; ++t)
                for (std::size_t c = 0; c < channels; ++c) row.push_back(code(o, (o * channels + c) * taps + t));
        }
        return rows;
    }
    const bool turned = layer == "turned";
    const auto outputs = static_cast<std::size_t>(w.dim(turned ? 0 : 1)), inputs = w.size() / outputs;
    for (std::size_t o = 0; o < outputs; ++o) {
        auto& row = rows.emplace_back();
        for (std::size_t i = 0; i < inputs; ++i) row.push_back(code(o, turned ? o * inputs + i : i * outputs + o));
    }
    return rows;
}

}  // namespace

TEST_CASE("the layers whose kernels pair are found: a depthwise Conv is none, nor is a dynamic one") {
    const model m = products();
    CHECK(pairing_layers(m, plan_of(m)) == pairing);
    CHECK(pairing_layers(m, plan_of(m, "int8", true, approach::dynamic)) == std::vector<std::string>{"turned", "gemm", "matmul"});
    CHECK(pairing_layers(m, plan_of(m, "int8:reduce_range")).empty());
    CHECK(pairing_layers(m, plan_of(m, "uint8:symmetric")).empty());
    CHECK(pairing_layers(m, plan_of(m, "int8", true, approach::weight_only)).empty());
}

TEST_CASE("no pair leaves 16 bits, with samples and without, per channel and per tensor, for any number of threads") {
    for (const bool per_channel : {false, true})
        for (const bool sampled : {false, true}) {
            CAPTURE(per_channel);
            CAPTURE(sampled);
            model m = products();
            precision_plan plan = plan_of(m, "int8", per_channel);
            for (const std::string& layer : pairing) CHECK(too_large(codes_of(m, plan, layer)) > 0);
            const layer_moments moments = sampled ? gather_moments(m, plan, samples(), {.threads = 2}) : layer_moments{};
            model same = m;
            precision_plan also = plan;
            const auto done = make_pair_safe(m, plan, pairing, moments, {.threads = 1});
            REQUIRE(done.size() == pairing.size());
            for (std::size_t i = 0; i < done.size(); ++i) {
                CAPTURE(pairing[i]);
                CHECK(done[i].layer == pairing[i]);
                CHECK(done[i].left.empty());
                CHECK(too_large(codes_of(m, plan, pairing[i])) == 0);
                const onnx::NodeProto& n = m.graph().node(m.node_index(pairing[i]));
                CHECK(is_pair_safe(n, 1, *plan.find({n.input(1), n.name(), 1}), m.constant(n.input(1))));
                CHECK(done[i].weight_sqnr > 30);
            }
            if (sampled) CHECK(gather_moments(same, also, samples(), {.threads = 1}).at("grouped").mean == moments.at("grouped").mean);
            make_pair_safe(same, also, pairing, moments, {.threads = 3});
            CHECK(also == plan);
            CHECK(same.constant("w5").as<float>()[77] == m.constant("w5").as<float>()[77]);
        }
}

TEST_CASE("the network's outputs are nearer than with weights of 7 bits") {
    const model whole = products();
    const tensor wanted = evaluator(whole, {.threads = 1}).run(samples()).outputs.at("y");
    const auto decibels = [&](const model& m, const precision_plan& plan) {
        return sqnr(wanted.as<float>(), evaluator(m, {.threads = 1}).run(samples(), plan).outputs.at("y").as<float>());
    };
    model m = products();
    precision_plan plan = plan_of(m);
    const double full = decibels(m, plan), seven = decibels(m, plan_of(m, "int8:reduce_range"));
    make_pair_safe(m, plan, pairing, gather_moments(m, plan, samples()), {});
    const double safe = decibels(m, plan);
    MESSAGE("full range ", full, " dB, pair-safe ", safe, " dB, 7 bits ", seven, " dB");
    CHECK(safe > seven + 1);
    CHECK(safe > full - 3);
}

TEST_CASE("an int32 bias follows its weights' scales") {
    model m = products();
    precision_plan plan = plan_of(m);
    make_pair_safe(m, plan, pairing, {}, {});
    for (const auto& [layer, weight, bias] : {std::tuple{"plain", "w1", "b1"}, {"strided", "w4", "b4"}, {"turned", "w5", "b5"}}) {
        const onnx::NodeProto& n = m.graph().node(m.node_index(layer));
        const quantizer &x = *plan.find({n.input(0), layer, 0}), &w = *plan.find({weight, layer, 1}), &b = *plan.find({bias, layer, 2});
        REQUIRE(b.format == qk::format(qk::int32));
        for (std::size_t i = 0; i < b.scale.size(); ++i) CHECK(b.scale[i] == doctest::Approx(x.scale[0] * w.scale[i]).epsilon(1e-5));
    }
}

TEST_CASE("scales that somebody chose stay, and powers of two stay powers of two") {
    model m = products();
    precision_plan plan = plan_of(m);
    for (float& s : plan.tensors.at("w5").scale) s *= 1.25f;
    const std::vector<float> chosen = plan.tensors.at("w5").scale;
    make_pair_safe(m, plan, pairing, {}, {});
    CHECK(plan.tensors.at("w5").scale == chosen);
    CHECK(too_large(codes_of(m, plan, "turned")) == 0);
    model powers = products();
    precision_plan of_two = plan_of(powers, "int8:pow2");
    make_pair_safe(powers, of_two, pairing, {}, {});
    for (const float s : of_two.tensors.at("w5").scale) CHECK(std::exp2(std::round(std::log2(s))) == s);
    CHECK(too_large(codes_of(powers, of_two, "turned")) == 0);
}

TEST_CASE("the export writes pair-safe weights as int8, and others as uint8") {
    model m = products();
    precision_plan plan = plan_of(m);
    const auto type_of = [](const export_result& r, const std::string& weight) {
        for (const auto& t : r.exported.graph().initializer())
            if (t.name() == weight + "_quantized") return static_cast<data_type>(t.data_type());
        return data_type::undefined;
    };
    const export_result before = export_model(m, plan);
    for (const char* w : {"w1", "w2", "w4", "w5", "w6", "w7"}) CHECK(type_of(before, w) == data_type::uint8);
    CHECK(type_of(before, "w3") == data_type::int8);  // the kernel of a depthwise Conv does not pair
    make_pair_safe(m, plan, pairing, {}, {});
    const export_result after = export_model(m, plan);
    for (const char* w : {"w1", "w2", "w3", "w4", "w5", "w6", "w7"}) CHECK(type_of(after, w) == data_type::int8);
    for (const std::string& note : after.notes) CHECK(note.find("int8 weights written") == std::string::npos);
    CHECK(type_of(export_model(m, plan, {.int8_weights = int8_codes::as_unsigned}), "w5") == data_type::uint8);
    const tensor planned = evaluator(m, {.threads = 1}).run(samples(), plan).outputs.at("y"),
                 exported = evaluator(after.exported, {.threads = 1}).run(samples()).outputs.at("y");
    for (std::size_t i = 0; i < planned.size(); ++i)
        CHECK(planned.as<float>()[i] == doctest::Approx(exported.as<float>()[i]).epsilon(1e-4));
}

TEST_CASE("weights whose kernel's order is not known are left") {
    small_graph g;
    g.input("x", {2, 3, 4}).output("y", {2, 3, 5}).output("z", {2, 3, 5});
    g.constant("batched", {2, 4, 5}, 1, large_weights(2, 20, 3)).constant("shared", {4, 5}, 1, large_weights(5, 4, 4, true));
    g.node("MatMul", "each", {"x", "batched"}, "y");
    g.node("MatMul", "one", {"x", "shared"}, "a");
    g.node("MatMul", "two", {"x", "shared"}, "b");
    g.node("Add", "sum", {"a", "b"}, "z");
    model m = g.build();
    precision_plan plan;
    plan.tensors["x"] = {.format = qk::uint8, .scale = {0.01f}, .zero_point = {100}};
    plan.tensors["batched"] = plan.tensors["shared"] = {.format = qk::int8, .scale = {0.1f / 127}, .zero_point = {}};
    const precision_plan before = plan;
    const auto done = make_pair_safe(m, plan, pairing_layers(m, plan), {}, {});
    REQUIRE(done.size() == 3);
    for (const auto& w : done) CHECK(!w.left.empty());
    CHECK(plan == before);
    const onnx::NodeProto& n = m.graph().node(0);
    CHECK(!is_pair_safe(n, 1, plan.tensors.at("batched"), m.constant("batched")));
}

TEST_CASE("a saved plan holds what was moved, and puts it into the model that it was made for") {
    model m = products();
    const model own = m;
    precision_plan plan = plan_of(m);
    make_pair_safe(m, plan, pairing, gather_moments(m, plan, samples()), {});
    constants_before(own).record(m, plan);
    const plan_file read = parse_plan_file(to_json(plan).dump(), "plan.json");
    REQUIRE(read.plan);
    CHECK(*read.plan == plan);
    model again = own;
    apply_moved(again, *read.plan);
    for (const char* w : {"w1", "w2", "w4", "w5", "w6", "w7"}) {
        const tensor a = m.constant(w), b = again.constant(w);
        for (std::size_t i = 0; i < a.size(); ++i) CHECK(a.as<float>()[i] == b.as<float>()[i]);
    }
    precision_plan wrong = plan;
    wrong.moved["w1"].place[0] = 1 << 20;
    CHECK_THROWS_WITH_AS(check_plan(wrong, own, "p.json"), doctest::Contains("\"moved\" has place 1048576 of tensor 'w1'"), error);
    wrong = plan, wrong.moved["nothing"] = {};
    CHECK_THROWS_WITH_AS(check_plan(wrong, own, "p.json"), doctest::Contains("'nothing', which is no constant"), error);
}
