// SPDX-License-Identifier: Apache-2.0
// Fine-tuning with quantizers in place, traces of the Hessian, and searches that are guided by gradients.
#include <doctest/doctest.h>
#include <onnx/onnx_pb.h>

#include <cmath>
#include <cstring>

#include "graph/gradient/traces.hpp"
#include "qk/graph/calibrate/calibrate.hpp"
#include "qk/graph/evaluate/accuracy.hpp"
#include "qk/graph/evaluate/fold.hpp"
#include "qk/graph/files/npy.hpp"
#include "qk/graph/learn/finetune.hpp"
#include "qk/graph/quantize/planner.hpp"
#include "qk/graph/search/search.hpp"

using namespace qk::graph;

namespace {

tensor images(const char* file, std::int64_t first, std::int64_t samples) {
    const tensor x = read_npy(std::string(QK_SOURCE_DIR) + "/examples/digits/" + file);
    dims shape = x.shape();
    const std::size_t row = x.size_bytes() / static_cast<std::size_t>(shape[0]);
    shape[0] = samples;
    return {x.type(), shape, std::shared_ptr<std::byte>(x.buffer(), x.buffer().get() + static_cast<std::size_t>(first) * row)};
}

struct digits {
    model m = model::load(std::string(QK_SOURCE_DIR) + "/examples/digits/digits.onnx");
    std::string input = m.inputs()[0].name, output = m.outputs()[0].name;
    digits() {
        fold_constants(m);
        fold_batch_normalization(m);
    }
    precision_plan plan(const char* format, const named_tensors& data) const {
        const calibration seen = calibrate(m, data);
        precision_requests requests;
        requests.set_default(parse_precision(format), parse_precision(format));
        return planner(m, &seen).plan(requests.list(), {}, false).plan;
    }
    double distance(const model& learned, const precision_plan& p, const named_tensors& data) const {
        const tensor a = evaluator(m).run(data).outputs.at(output), b = evaluator(learned).run(data, p).outputs.at(output);
        double sum = 0;
        for (std::size_t i = 0; i < a.size(); ++i) sum += std::pow(static_cast<double>(a.as<float>()[i] - b.as<float>()[i]), 2);
        return sum;
    }
};

}  // namespace

TEST_CASE("fine-tuning brings a coarse plan nearer to the float model, on samples that it has not seen, too") {
    const digits d;
    const named_tensors learn{{d.input, images("train_images.npy", 0, 160)}}, other{{d.input, images("test_images.npy", 0, 100)}};
    const precision_plan plan = d.plan("int2", learn);
    finetune_options options{.threads = 2, .epochs = 4};
    const finetune_result r = finetune(d.m, plan, learn, {}, options);
    CHECK(r.learned_from == 144);
    CHECK(r.held_out == 16);
    REQUIRE(r.losses.size() >= 2);
    CHECK(r.best > 0);
    CHECK(r.losses[r.best] < 0.9 * r.losses[0]);
    CHECK(d.distance(r.learned, plan, other) < 0.8 * d.distance(d.m, plan, other));

    options.threads = 1;  // must give the same bits
    const finetune_result again = finetune(d.m, plan, learn, {}, options);
    CHECK(again.losses == r.losses);
    CHECK(r.learned.proto().SerializeAsString() == again.learned.proto().SerializeAsString());
}

TEST_CASE("what is kept is never worse than the start; labels; wrong use") {
    const digits d;
    const named_tensors learn{{d.input, images("train_images.npy", 0, 40)}};
    const precision_plan plan = d.plan("int8", learn);
    const finetune_result bad = finetune(d.m, plan, learn, {}, {.epochs = 2, .rate = 5});  // the learning rate is far too large
    CHECK(bad.best == 0);
    CHECK(bad.learned.proto().SerializeAsString() == d.m.proto().SerializeAsString());

    const tensor t = images("train_labels.npy", 0, 40);
    std::vector<std::int64_t> labels;
    for (std::size_t i = 0; i < 40; ++i)
        labels.push_back(t.type() == data_type::int64 ? t.as<std::int64_t>()[i] : static_cast<std::int64_t>(t.as<std::uint8_t>()[i]));
    const finetune_result r = finetune(d.m, d.plan("int2", learn), learn, labels, {.epochs = 2});
    CHECK(r.losses[r.best] <= r.losses[0]);
    CHECK_THROWS_WITH_AS(finetune(d.m, plan, learn, std::vector<std::int64_t>{1, 2}), doctest::Contains("2 labels for 40 samples"), error);
    CHECK_THROWS_WITH_AS(finetune(d.m, plan, {{d.input, images("train_images.npy", 0, 1)}}), doctest::Contains("two samples"), error);
}

TEST_CASE("traces of the Hessian are positive, and the same for any number of threads") {
    const digits d;
    const named_tensors data{{d.input, images("train_images.npy", 0, 24)}};
    std::vector<std::string> layers;
    for (const int n : layer_view(d.m).compute_layers()) layers.push_back(d.m.graph().node(n).name());
    const std::vector<double> one = average_hessian_traces(d.m, data, layers, {.threads = 1}),
                              three = average_hessian_traces(d.m, data, layers, {.threads = 3});
    CHECK(one == three);
    for (const double t : one) CHECK(t > 0);
    // With 10 passes, one for each output, the trace is exact; the estimate is near it.
    const std::vector<double> exact = average_hessian_traces(d.m, data, layers, {.passes = 10});
    for (std::size_t l = 0; l < exact.size(); ++l) CHECK(one[l] == doctest::Approx(exact[l]).epsilon(0.35));
}

TEST_CASE("searches that gradients rank, and hawq_v2, keep the promise") {
    const digits d;
    const named_tensors data{{d.input, images("train_images.npy", 0, 64)}};
    const calibration seen = calibrate(d.m, data);
    search_options options;
    options.wide = "int16/int8";
    options.narrow = {"int8/int4"};
    options.scoring.metric = "sqnr";
    options.target = 25;
    options.ranking = "measured";
    const search_result measured = search(d.m, data, seen, options);
    REQUIRE(measured.target_met);
    options.ranking = "gradient";
    const search_result guided = search(d.m, data, seen, options);
    CHECK(guided.target_met);
    CHECK(guided.metric >= 25);
    CHECK(guided.cost <= 1.02 * measured.cost);
    options.target = -300;  // the all-narrow mix meets it, so no order has to be estimated
    const search_result loose = search(d.m, data, seen, options);
    CHECK(loose.target_met);
    CHECK(loose.evaluations == 2);
    options.ranking = "measured";
    CHECK(loose.cost == search(d.m, data, seen, options).cost);
    options.target = 25, options.ranking = "gradient";
    options.strategy = "hawq_v2";
    const search_result hawq = search(d.m, data, seen, options);
    CHECK(hawq.target_met);
    CHECK(hawq.cost <= hawq.wide_cost);
    options.ranking = "best";
    CHECK_THROWS_WITH_AS(search(d.m, data, seen, options), doctest::Contains("none of gradient, measured, auto"), error);
}
