// SPDX-License-Identifier: Apache-2.0
// Quantized models: behind a pair of QuantizeLinear and DequantizeLinear a layer reads codes and every other node reads floats, in any
// order and layout, with the results of running node after node.
#include <doctest/doctest.h>
#include <onnx/onnx_pb.h>

#include <cmath>
#include <random>

#include "build_model.hpp"
#include "qk/graph/evaluate/evaluator.hpp"

using namespace qk::graph;
using qk_test::random_tensor;

namespace {

/// Type, scale and zero point of a tensor's 8-bit codes.
struct coding {
    bool is_signed;
    float scale;
    int zero;
};

class quantized_model : public qk_test::builder {
  public:
    void codes(const std::string& name, const dims& shape, bool is_signed, const std::vector<int>& values) {
        tensor t(is_signed ? data_type::int8 : data_type::uint8, shape);
        for (std::size_t i = 0; i < t.size(); ++i) t.bytes()[i] = static_cast<std::byte>(values[i]);
        to_proto(t, name, *g().add_initializer());
    }
    /// Adds `from` -> QuantizeLinear -> DequantizeLinear -> `to`.
    void pair(const std::string& from, const std::string& to, const coding& c) {
        constant(to + ".s", {}, {c.scale});
        codes(to + ".z", {}, c.is_signed, {c.zero});
        node("QuantizeLinear", {from, to + ".s", to + ".z"}, {to + ".q"});
        node("DequantizeLinear", {to + ".q", to + ".s", to + ".z"}, {to});
    }
    void weights(const std::string& name, const dims& shape, unsigned seed) {
        std::mt19937 random(seed);
        std::vector<int> values(element_count(shape));
        for (int& v : values) v = static_cast<int>(random() % 255) - 127;
        codes(name + ".q", shape, true, values);
        constant(name + ".s", {}, {0x1p-7f});
        codes(name + ".z", {}, true, {0});
        node("DequantizeLinear", {name + ".q", name + ".s", name + ".z"}, {name});
    }
};

/// Counts the elements that differ by more than 1e-5 of the largest magnitude in `b`.
std::size_t differences(const tensor& a, const tensor& b) {
    REQUIRE(a.shape() == b.shape());
    float largest = 0;
    for (const float v : b.as<float>()) largest = std::max(largest, std::abs(v));
    std::size_t n = 0;
    for (std::size_t i = 0; i < a.size(); ++i) n += !(std::abs(a.as<float>()[i] - b.as<float>()[i]) <= 1e-5f * largest);
    return n;
}

constexpr coding codings[] = {{true, 0.03f, 0},    {false, 0.02f, 0}, {false, 0.03f, 128},
                              {true, 0.02f, -128}, {false, 0.03f, 7}, {true, 0.03f, -20}};

}  // namespace

TEST_CASE("a dequantized value is the same to a layer and to everybody else") {
    for (const coding& c : codings)
        for (const bool floats_first : {false, true}) {
            quantized_model m;
            m.input("x", {1, 24, 19, 19});
            for (const char* y : {"y", "kept", "pooled"}) m.output(y, {});
            m.pair("x", "d", c);
            m.weights("w", {32, 24, 3, 3}, 1);
            m.constant("two", {}, {2.0f});
            const auto others = [&] {
                m.node("Mul", {"d", "two"}, {"kept"});
                auto& pool = m.node("MaxPool", {"d"}, {"pooled"});
                qk_test::set(pool, "kernel_shape", std::vector<std::int64_t>{2, 2});
            };
            if (floats_first) others();
            m.node("Conv", {"d", "w"}, {"y"}, "conv");
            if (!floats_first) others();
            const model made = m.model();
            const named_tensors inputs{{"x", random_tensor({1, 24, 19, 19}, 2, 1)}};
            const named_tensors quick = evaluator(made, {.threads = 1}).run(inputs).outputs,
                                plain = evaluator(made, {.threads = 1, .plain_kernels = true}).run(inputs).outputs;
            CAPTURE(c.zero);
            CAPTURE(c.is_signed);
            CHECK(differences(quick.at("y"), plain.at("y")) == 0);
            for (const char* same : {"kept", "pooled"}) {
                REQUIRE(quick.at(same).size() == plain.at(same).size());
                CHECK(std::memcmp(quick.at(same).bytes(), plain.at(same).bytes(), plain.at(same).size_bytes()) == 0);
            }
        }
}

TEST_CASE("a chain of layers with a pair between each two, and a matrix product behind them") {
    for (const coding& c : codings) {
        quantized_model m;
        m.input("x", {2, 24, 19, 19}).output("y", {});
        m.pair("x", "d0", {c.is_signed, 0x1p-5f, c.zero});  // scales are powers of two, so that float sums are exact as well
        m.weights("w0", {32, 24, 3, 3}, 1);
        m.node("Conv", {"d0", "w0"}, {"c0"}, "first");
        m.node("Relu", {"c0"}, {"r0"});
        m.pair("r0", "d1", {false, 0x1p-4f, 0});
        m.weights("w1", {48, 32, 1, 1}, 2);
        m.node("Conv", {"d1", "w1"}, {"c1"}, "second");
        m.pair("c1", "d2", {c.is_signed, 0x1p-2f, c.zero});
        m.weights("w2", {17, 40}, 3);
        m.node("MatMul", {"d2", "w2"}, {"y"}, "product");
        const model made = m.model();
        const named_tensors inputs{{"x", random_tensor({2, 24, 19, 19}, 5, 1)}};
        const tensor quick = evaluator(made, {.threads = 1}).run(inputs).outputs.at("y"),
                     plain = evaluator(made, {.threads = 1, .plain_kernels = true}).run(inputs).outputs.at("y");
        CAPTURE(c.zero);
        CHECK(differences(quick, plain) == 0);
    }
}

TEST_CASE("a dequantized value that is an output, or that nobody multiplies, is floats") {
    quantized_model m;
    m.input("x", {1, 3, 5, 5}).output("d", {1, 3, 5, 5});
    m.pair("x", "d", {true, 0.5f, 0});
    tensor x = random_tensor({1, 3, 5, 5}, 9, 3);
    x.as<float>()[0] = 1000, x.as<float>()[1] = -1000;
    const tensor d = evaluator(m.model(), {.threads = 1}).run(named_tensors{{"x", x}}).outputs.at("d");
    for (std::size_t i = 0; i < d.size(); ++i) {
        const float code = std::clamp(std::nearbyint(x.as<float>()[i] / 0.5f), -128.0f, 127.0f);
        CHECK(d.as<float>()[i] == code * 0.5f);
    }
}
