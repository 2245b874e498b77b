// SPDX-License-Identifier: Apache-2.0
// Attention that runs as one step has the bits of its operators run one after the other, on any number of threads.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "build_model.hpp"
#include "qk/formats/parse.hpp"
#include "qk/graph/evaluate/evaluator.hpp"

using namespace qk::graph;
using qk_test::random_tensor;

namespace {

/// An attention as exporters write it: q [.., m, k], keys [.., k, n], v [.., n, w].
struct kind {
    dims q, k, v, mask;        ///< an empty mask means none
    std::string scale;         ///< "Div", "Mul", "Mul from the left" or none
    dims scale_shape = {};     ///< empty: a scalar
    std::int64_t axis = -1;    ///< of the softmax
    const char* between = "";  ///< an operator between softmax and context, or "also" if another node reads softmax's output
    bool mask_first = false;   ///< Add's first operand is the mask
};

struct built {
    model m;
    named_tensors inputs;
};

built build(const kind& c) {
    qk_test::builder b;
    named_tensors inputs;
    const auto input = [&](const std::string& name, const dims& shape, unsigned seed) {
        b.input(name, shape);
        inputs[name] = random_tensor(shape, seed, 1);
    };
    input("q", c.q, 1), input("k", c.k, 2), input("v", c.v, 3);
    b.node("MatMul", {"q", "k"}, {"s"}, "scores");
    std::string last = "s";
    if (!c.scale.empty()) {
        b.constant("by", c.scale_shape, std::vector<float>(element_count(c.scale_shape), 2.3f));
        const bool left = c.scale == "Mul from the left";
        b.node(c.scale.substr(0, 3), left ? std::vector<std::string>{"by", last} : std::vector<std::string>{last, "by"}, {"scaled"},
               "scale");
        last = "scaled";
    }
    if (!c.mask.empty()) {
        input("mask", c.mask, 4);
        for (float& v : inputs["mask"].as<float>()) v = v < 0.5f ? v : -3.4028234663852886e38f;
        b.node("Add", c.mask_first ? std::vector<std::string>{"mask", last} : std::vector<std::string>{last, "mask"}, {"masked"}, "add");
        last = "masked";
    }
    qk_test::set(b.node("Softmax", {last}, {"p"}, "softmax"), "axis", c.axis);
    last = "p";
    if (c.between == std::string("also")) b.node("Neg", {"p"}, {"z"}, "also"), b.output("z", {});
    else if (*c.between != 0) b.node(c.between, {"p"}, {"p2"}, "between"), last = "p2";
    b.node("MatMul", {last, "v"}, {"y"}, "context");
    b.output("y", {});
    return {b.model(), std::move(inputs)};
}

bool same_bits(const tensor& a, const tensor& b) {
    return a.shape() == b.shape() && std::memcmp(a.bytes(), b.bytes(), a.size_bytes()) == 0;
}

double error_of(const tensor& got, const tensor& want) {
    double noise = 0, all = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
        const double d = double{got.as<float>()[i]} - double{want.as<float>()[i]};
        noise += d * d, all += double{want.as<float>()[i]} * double{want.as<float>()[i]};
    }
    return std::sqrt(noise / all);
}

/// Runs the model with an observer, puts its output into `y` and returns the names of all values that the observer saw.
std::set<std::string> steps_seen(const built& b, const precision_plan& plan, tensor& y) {
    std::set<std::string> seen;
    const auto run =
        evaluator(b.m, {.threads = 1}).run(b.inputs, plan, [&](const std::string& name, const tensor&, std::size_t) { seen.insert(name); });
    y = run.outputs.at("y");
    return seen;
}

}  // namespace

TEST_CASE("attention in one step has the bits of its operators, whatever the mask, the scale and the number of threads") {
    const dims q{2, 4, 70, 16}, k{2, 4, 16, 90}, v{2, 4, 90, 24};
    const std::vector<kind> kinds{{q, k, v, {2, 1, 1, 90}, "Div"},
                                  {q, k, v, {1, 1, 70, 90}, "Mul"},
                                  {q, k, v, {70, 90}, "Mul from the left", {1}},
                                  {q, k, v, {90}, "", {}, 3},
                                  {q, k, v, {2, 4, 70, 1}, "Div", {}, -1, "", true},
                                  {q, k, v, {}, "Div"},
                                  {q, k, v, {}, ""},
                                  {q, {1, 4, 16, 90}, {90, 24}, {4, 1, 90}, "Div"},
                                  {{3, 5, 8}, {3, 8, 7}, {3, 7, 9}, {1, 5, 7}, "Div"},
                                  {{40, 8}, {8, 70}, {70, 3}, {}, "Mul"},
                                  {{1, 4, 1, 16}, {1, 4, 16, 300}, {1, 4, 300, 16}, {1, 1, 1, 300}, "Div"},
                                  {{1, 2, 300, 32}, {1, 2, 32, 1500}, {1, 2, 1500, 40}, {300, 1500}, "Mul"},
                                  // Some or all operators of these cannot run as one step and run one after the other.
                                  {q, k, v, {}, "Div", {90}},
                                  {q, k, v, {2, 4, 70, 90}, "Div", {}, 1},
                                  {{1, 4, 70, 16}, {1, 4, 16, 90}, {1, 4, 90, 24}, {3, 1, 70, 90}, "Div"},
                                  {{1, 1, 70, 16}, {1, 1, 16, 90}, v, {}, "Div"},
                                  {q, k, v, {}, "Div", {1, 1, 1, 1, 1}},
                                  {q, k, v, {}, "Div", {}, -1, "Abs"},
                                  {q, k, v, {}, "Div", {}, -1, "also"}};
    for (const kind& c : kinds) {
        CAPTURE(c.scale);
        CAPTURE(to_string(c.q));
        CAPTURE(to_string(c.mask));
        CAPTURE(c.axis);
        const built b = build(c);
        const tensor y = evaluator(b.m, {.threads = 1}).run(b.inputs).outputs.at("y");
        tensor one_by_one;
        CHECK(steps_seen(b, {}, one_by_one).contains("p"));
        CHECK(same_bits(y, one_by_one));
        CHECK(same_bits(y, evaluator(b.m, {.threads = 3}).run(b.inputs).outputs.at("y")));
        CHECK(error_of(y, evaluator(b.m, {.threads = 1, .plain_kernels = true}).run(b.inputs).outputs.at("y")) < 1e-5);
    }
}

TEST_CASE("a quantizer inside of an attention is not passed over") {
    const built b = build({{1, 2, 40, 16}, {1, 2, 16, 50}, {1, 2, 50, 24}, {40, 50}, "Div"});
    const tensor floats = evaluator(b.m, {.threads = 2}).run(b.inputs).outputs.at("y");
    for (const edge& e : {edge{"s", "scale", 0}, edge{"scaled", "add", 0}, edge{"masked", "softmax", 0}, edge{"p", "context", 0},
                          edge{"v", "context", 1}, edge{"q", "scores", 0}}) {
        CAPTURE(e.tensor);
        precision_plan plan;
        quantizer rough;
        rough.format = *qk::parse_format("mxfp4");
        rough.axis = -1;
        plan.edges[e] = rough;
        const tensor y = evaluator(b.m, {.threads = 2}).run(b.inputs, plan).outputs.at("y");
        tensor one_by_one;
        steps_seen(b, plan, one_by_one);
        CHECK(same_bits(y, one_by_one));
        CHECK(error_of(y, floats) > 1e-3);
    }
}

TEST_CASE("a long attention never holds all of its scores") {
    const built b = build({{1, 1, 2000, 8}, {1, 1, 8, 2000}, {1, 1, 2000, 8}, {2000}, "Div"});  // 16 MB of scores
    CHECK(evaluator(b.m, {.threads = 1}).run(b.inputs).peak_bytes < 4 << 20);
}

TEST_CASE("operands that do not fit name the node") {
    for (const kind& c : {kind{{2, 5, 8}, {2, 9, 7}, {2, 7, 3}, {}, "Div"}, kind{{2, 5, 8}, {2, 8, 7}, {2, 6, 3}, {}, "Div"},
                          kind{{2, 5, 8}, {2, 8, 7}, {2, 7, 3}, {6}, "Div"}}) {
        const built b = build(c);
        CHECK_THROWS_WITH_AS(evaluator(b.m, {.threads = 1}).run(b.inputs), doctest::Contains("node '"), error);
    }
}
