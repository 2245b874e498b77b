// SPDX-License-Identifier: Apache-2.0
// `session` returns the evaluator's results, computes once what candidates share, and does not depend on threads or on other candidates.
#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>

#include <onnx/onnx_pb.h>

#include "../data_folders.hpp"
#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/evaluate/session.hpp"
#include "qk/graph/files/npy.hpp"

namespace fs = std::filesystem;
using namespace qk::graph;

namespace {

/// Puts bfp16 on inputs 0 and 1 of every Conv and Gemm node, mx6 on those of node `narrow`.
precision_plan plan_of(const model& m, const std::string& narrow) {
    precision_plan p;
    for (const auto& n : m.graph().node()) {
        if (n.op_type() != "Conv" && n.op_type() != "Gemm") continue;
        for (int i = 0; i < 2; ++i) {
            quantizer q;
            q.format = n.name() == narrow ? qk::format(qk::mx6) : qk::format(qk::bfp16);
            q.axis = 1;
            p.edges[{n.input(i), n.name(), i}] = q;
        }
    }
    return p;
}

std::vector<std::string> layers_of(const model& m) {
    std::vector<std::string> names;
    for (const auto& n : m.graph().node())
        if (n.op_type() == "Conv" || n.op_type() == "Gemm") names.push_back(n.name());
    return names;
}

double first_logit(std::size_t, std::size_t, std::span<const tensor> outputs) { return double(outputs[0].as<float>()[0]); }

void check_sharing(const fs::path& network) {
    INFO(network.string());
    const model m = model::load(network);
    const named_tensors inputs{{"input", read_npy(qk_test::reference_of(network, "input.input"))}};
    std::vector<precision_plan> plans{plan_of(m, "")};
    for (const std::string& layer : layers_of(m)) plans.push_back(plan_of(m, layer));
    REQUIRE(plans.size() == 21);

    session four(m, inputs, {.threads = 4, .stop = {}});
    const auto scores = four.evaluate(plans, first_logit);
    REQUIRE(scores.size() == plans.size());
    CHECK(four.statistics().naive_layer_evaluations == 21 * 20);
    CHECK(four.statistics().layer_evaluations <= 20 + 20 * 21 / 2);  // candidate k recomputes layers k to 20

    session one(m, inputs, {.threads = 1, .stop = {}});
    const evaluator e(m, {.threads = 2});
    for (const std::size_t i : {std::size_t{0}, std::size_t{7}, std::size_t{20}}) {
        CHECK(one.evaluate({&plans[i], 1}, first_logit)[0] == scores[i]);
        const tensor y = e.run(inputs, plans[i]).outputs.at("logits");
        for (std::size_t s = 0; s < four.samples(); ++s) CHECK(double(y.as<float>()[s * 10]) == scores[i][s]);
        const tensor z = four.outputs(plans[i]).at("logits");
        CHECK(std::memcmp(y.bytes(), z.bytes(), y.size_bytes()) == 0);
    }
    session stopped(m, inputs, {.threads = 2, .stop = [] { return true; }});
    CHECK(stopped.evaluate(plans, first_logit).empty());
}

}  // namespace

TEST_CASE("candidates share what lies upstream of their differences, and score as if each were alone") {
    for (const fs::path& folder : qk_test::data_with("reference")) check_sharing(qk_test::residual_network(folder));
}
