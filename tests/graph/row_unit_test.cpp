// SPDX-License-Identifier: Apache-2.0
// Nodes that work on rows and run as one step give the bits of running one after the other, behind a product or not, on any number of
// threads.
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

/// Builds a graph node by node; each call returns the name of its result.
struct graph {
    qk_test::builder b;
    named_tensors inputs;
    int made = 0;

    std::string input(const dims& shape) {
        const std::string name = "in" + std::to_string(inputs.size());
        b.input(name, shape);
        inputs[name] = random_tensor(shape, static_cast<unsigned>(inputs.size()) + 1, 1);
        return name;
    }
    std::string constant(const dims& shape, float spread = 1) {
        const std::string name = "c" + std::to_string(made++);
        const tensor t = random_tensor(shape, static_cast<unsigned>(made) + 100, spread);
        b.constant(name, shape, {t.as<float>().begin(), t.as<float>().end()});
        return name;
    }
    std::string number(float v) {
        const std::string name = "c" + std::to_string(made++);
        b.constant(name, {}, {v});
        return name;
    }
    std::string op(const std::string& kind, const std::vector<std::string>& in) {
        const std::string name = "v" + std::to_string(made++);
        last = &b.node(kind, in, {name}, "n_" + name);
        return name;
    }
    /// Adds a MatMul without a bias, since some processors' products add a bias first and others last.
    std::string product(const std::string& x, std::int64_t k, std::int64_t n) {
        return op("MatMul", {x, constant({k, n}, 1 / std::sqrt(static_cast<float>(k)))});
    }
    std::string gelu_by_erf(const std::string& x) {
        const std::string e = op("Add", {op("Erf", {op("Div", {x, number(1.41421356f)})}), number(1)});
        return op("Mul", {op("Mul", {x, number(0.5f)}), e});
    }
    std::string gelu_by_tanh(const std::string& x) {
        const std::string inner = op("Add", {x, op("Mul", {op("Pow", {x, number(3)}), number(0.044715f)})});
        return op("Mul", {op("Mul", {x, number(0.5f)}), op("Add", {op("Tanh", {op("Mul", {inner, number(0.7978846f)})}), number(1)})});
    }
    std::string mean(const std::string& x, std::int64_t axis = -1) {
        const std::string y = op("ReduceMean", {x});
        qk_test::set(*last, "axes", std::vector<std::int64_t>{axis});
        return y;
    }
    std::string norm_by_parts(const std::string& x, std::int64_t n) {
        const std::string d = op("Sub", {x, mean(x)});
        const std::string deviation = op("Sqrt", {op("Add", {mean(op("Pow", {d, number(2)})), number(1e-5f)})});
        return op("Add", {op("Mul", {op("Div", {d, deviation}), constant({n})}), constant({n})});
    }
    std::string norm(const std::string& x, std::int64_t n) { return op("LayerNormalization", {x, constant({n}), constant({n})}); }

    onnx::NodeProto* last = nullptr;
};

bool same_bits(const tensor& a, const tensor& b) {
    return a.shape() == b.shape() && std::memcmp(a.bytes(), b.bytes(), a.size_bytes()) == 0;
}

tensor run(const graph& g, int threads, const precision_plan& plan = {}) {
    return evaluator(g.b.model(), {.threads = threads}).run(g.inputs, plan).outputs.at("y");
}
/// Runs node after node, since an observer sees every value.
tensor run_one_by_one(const graph& g, std::size_t values, const precision_plan& plan = {}) {
    std::set<std::string> seen;
    const auto all = evaluator(g.b.model(), {.threads = 1}).run(g.inputs, plan, [&](const std::string& name, const tensor&, std::size_t) {
        seen.insert(name);
    });
    CHECK(seen.size() >= values);
    return all.outputs.at("y");
}

void finish(graph& g, const std::string& value) {
    g.b.node("Identity", {value}, {"y"}, "last");
    g.b.output("y", {});
}

}  // namespace

TEST_CASE("what works on rows has the same bits as one step, whatever its operands look like") {
    using make = std::string (*)(graph&, const dims&);
    const make all[] = {
        [](graph& g, const dims& s) { return g.gelu_by_erf(g.input(s)); },
        [](graph& g, const dims& s) { return g.gelu_by_tanh(g.input(s)); },
        [](graph& g, const dims& s) {
            return g.norm_by_parts(g.op("Add", {g.input(s), g.input(s)}), s.back());
        },
        [](graph& g, const dims& s) {
            return g.norm(g.op("Add", {g.input(s), g.input(s)}), s.back());
        },
        [](graph& g, const dims& s) {
            const std::string x = g.input(s), gate = g.op("Mul", {x, g.op("Sigmoid", {x})});
            return g.op("Mul", {gate, g.op("Neg", {g.op("Exp", {g.input(s)})})});
        },
        // Nodes behind products.
        [](graph& g, const dims& s) { return g.gelu_by_erf(g.product(g.input(s), s.back(), 200)); },
        [](graph& g, const dims& s) {
            return g.op("Add", {g.input(s), g.product(g.input(s), s.back(), s.back())});
        },
        [](graph& g, const dims& s) {
            const std::string x = g.input(s);
            return g.norm(g.op("Add", {g.product(x, s.back(), s.back()), x}), s.back());
        },
        [](graph& g, const dims& s) {
            const std::string x = g.input(s), gate = g.product(x, s.back(), 96);
            return g.op("Mul", {g.op("Mul", {gate, g.op("Sigmoid", {gate})}), g.product(x, s.back(), 96)});
        },
        // Operands that are rows, columns and scalars.
        [](graph& g, const dims& s) {
            dims column = s;
            column.back() = 1;
            const std::string c = g.op("Sqrt", {g.op("Abs", {g.op("Sub", {g.number(2), g.input(column)})})});
            const std::string r = g.op("Div", {g.input({s.back()}), g.op("Relu", {g.input(s)})});
            return g.op("Sub", {g.op("Add", {c, g.op("Reciprocal", {g.op("Softplus", {r})})}), c});
        },
        // Nodes of which some or all cannot run as one step.
        [](graph& g, const dims& s) {
            return g.op("Mul", {g.op("Tanh", {g.input(s)}), g.op("Tanh", {g.input({1})})});
        },
        [](graph& g, const dims& s) {
            return g.op("Add", {g.mean(g.op("Tanh", {g.input(s)}), 0), g.op("Exp", {g.input(s)})});
        },
        [](graph& g, const dims& s) {
            return g.op("Mul", {g.op("Tanh", {g.product(g.input({1, s.back()}), s.back(), 96)}), g.input({40, 96})});
        },
        [](graph& g, const dims& s) {
            const std::string t = g.op("Tanh", {g.op("Exp", {g.input(s)})});
            g.b.node("Identity", {t}, {"z"}, "also");
            g.b.output("z", {});
            return g.op("Mul", {t, g.op("Neg", {t})});
        },
        [](graph& g, const dims& s) {
            const std::string x = g.input(s), m = g.mean(x);
            return g.op("Pow",
                        {g.op("Pow", {g.op("Pow", {g.op("Abs", {g.op("Sub", {x, m})}), g.number(0.5f)}), g.number(1)}), g.number(1.5f)});
        },
    };
    for (const dims& shape : {dims{2, 70, 96}, dims{1, 128, 256}, dims{300, 40}, dims{5, 3}, dims{1, 2500}, dims{1, 3, 7, 33}}) {
        CAPTURE(to_string(shape));
        for (std::size_t k = 0; k < std::size(all); ++k) {
            CAPTURE(k);
            graph g;
            finish(g, all[k](g, shape));
            const tensor y = run(g, 1), want = run_one_by_one(g, 3);
            CHECK(same_bits(y, want));
            CHECK(same_bits(y, run(g, 3)));
        }
    }
}

TEST_CASE("what lies between is never held as a whole") {
    graph g;
    finish(g, g.gelu_by_tanh(g.norm_by_parts(g.input({1, 1000, 1000}), 1000)));
    CHECK(evaluator(g.b.model(), {.threads = 1}).run(g.inputs).peak_bytes < 6'000'000);  // one value takes 4'000'000
}

TEST_CASE("a quantizer between them is not passed over") {
    graph g;
    const std::string x = g.input({1, 64, 128}), p = g.product(x, 128, 128), sum = g.op("Add", {p, x}), t = g.op("Tanh", {sum});
    finish(g, g.op("Mul", {t, g.number(3)}));
    const tensor floats = run(g, 2);
    for (const std::string& name : {p, sum, t}) {
        CAPTURE(name);
        precision_plan plan;
        quantizer rough;
        rough.format = *qk::parse_format("mxfp4");
        rough.axis = -1;
        plan.tensors[name] = rough;
        const tensor y = run(g, 2, plan);
        CHECK(same_bits(y, run_one_by_one(g, 3, plan)));
        CHECK(!same_bits(y, floats));
    }
}
