// SPDX-License-Identifier: Apache-2.0
// Labels: which count, and that a label of no class, of no sample or of no whole number is an error wherever labels are read.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <map>

#include "build_model.hpp"
#include "qk/graph/evaluate/accuracy.hpp"
#include "qk/graph/gradient.hpp"
#include "qk/graph/pipeline.hpp"
#include "qk/graph/search/report.hpp"

#ifdef QK_HAVE_LEARN
#include "qk/graph/learn.hpp"
#endif

using namespace qk::graph;
namespace pipeline = qk::graph::pipeline;

namespace {

using classes = std::vector<std::int64_t>;

/// A model whose output is its input times a matrix near the identity; the samples are its logits. Without `declared` the file says nothing
/// of the number of classes.
struct logits {
    std::vector<std::int64_t> shape;
    onnx::ModelProto m;
    tensor x;

    explicit logits(std::vector<std::int64_t> of, bool declared = true) : shape(std::move(of)) {
        qk_test::builder b;
        std::vector<std::int64_t> open = shape;
        open[0] = -1;
        const std::int64_t n = shape.back();
        b.input("x", open);
        if (!declared) open.back() = -1;
        b.output("y", open);
        std::vector<float> w(static_cast<std::size_t>(n * n), 0.01f);
        for (std::int64_t i = 0; i < n; ++i) w[static_cast<std::size_t>(i * n + i)] = 1;
        b.constant("w", {n, n}, w).node("MatMul", {"x", "w"}, {"y"}, "layer");
        m = b.m;
        x = qk_test::random_tensor(dims(shape.begin(), shape.end()), 3, 2);
    }

    void give(pipeline::data_settings& data, pipeline::array_source labels, int ignore = -100) const {
        data.inputs = named_tensors{{"x", x}};
        data.labels = std::move(labels);
        data.positions.ignore_label = ignore;
    }
    /// Evaluates a coarse plan of weights, which does not depend on the samples.
    nlohmann::ordered_json measured(const pipeline::array_source& labels, std::vector<std::string> metrics, int ignore = -100) const {
        pipeline::evaluate_settings s;
        s.model = m, s.metrics = std::move(metrics);
        give(s.data, labels, ignore);
        s.precision.weight = "int4";
        return pipeline::evaluate(s).summary;
    }
    /// The same of chosen samples alone.
    logits only(const std::vector<std::size_t>& samples) const {
        logits part = *this;
        part.shape[0] = static_cast<std::int64_t>(samples.size());
        part.x = tensor(x.type(), dims(part.shape.begin(), part.shape.end()));
        const std::size_t each = x.size() / static_cast<std::size_t>(shape[0]);
        for (std::size_t i = 0; i < samples.size(); ++i)
            std::copy_n(x.as<float>().begin() + static_cast<std::ptrdiff_t>(samples[i] * each), each,
                        part.x.as<float>().begin() + static_cast<std::ptrdiff_t>(i * each));
        return part;
    }
};

/// Returns what every door that reads labels says of them; empty: it takes them.
std::map<std::string, std::string> doors(const logits& l, const pipeline::array_source& labels, int ignore = -100) {
    std::map<std::string, std::string> said;
    const auto ask = [&](const char* door, const auto& call) {
        try {
            call();
            said[door] = "";
        } catch (const error& e) {
            said[door] = e.what();
        }
    };
    const std::vector<std::string> values{"l2"}, choices{"loss"};
    ask("evaluate", [&] { l.measured(labels, {"loss"}, ignore); });
    ask("evaluate l2", [&] { l.measured(labels, {"l2"}, ignore); });
    ask("evaluate, usual metrics", [&] { l.measured(labels, {}, ignore); });
    for (const char* metric : {"loss", "sqnr"}) {
        ask((std::string("search ") + metric).c_str(), [&] {
            pipeline::search_settings s;
            s.model = l.m, s.wide = "int16/int8", s.narrow = {"int4/int4"}, s.metric = metric, s.wide_share = 0.5;
            l.give(s.data, labels, ignore);
            pipeline::search(s);
        });
        ask((std::string("sensitivity ") + metric).c_str(), [&] {
            pipeline::sensitivity_settings s;
            s.model = l.m, s.narrow = {"int4/int4"}, s.metric = metric;
            l.give(s.data, labels, ignore);
            pipeline::sensitivity(s);
        });
    }
    ask("quantize", [&] {
        pipeline::quantize_settings s;
        s.model = l.m, s.returns_model = true, s.precision.activation = "int8", s.precision.weight = "int8";
        l.give(s.data, labels, ignore);
        pipeline::quantize(s);
    });
    ask("gradient", [&] {
        pipeline::gradient_settings s;
        s.model = l.m;
        l.give(s.data, labels, ignore);
        pipeline::gradient(s);
    });
#ifdef QK_HAVE_LEARN
    ask("finetune", [&] {
        pipeline::finetune_settings s;
        s.model = l.m, s.epochs = 1, s.precision.activation = "int8", s.precision.weight = "int8";
        l.give(s.data, labels, ignore);
        pipeline::finetune(s);
    });
#endif
    return said;
}

void all_refuse(const logits& l, const pipeline::array_source& labels, const std::string& text, int ignore = -100) {
    for (const auto& [door, said] : doors(l, labels, ignore)) {
        INFO(door << ": " << said << " (expected: " << text << ")");
        CHECK(said.find(text) != std::string::npos);
    }
}
void all_take(const logits& l, const pipeline::array_source& labels, int ignore = -100) {
    for (const auto& [door, said] : doors(l, labels, ignore)) {
        INFO(door << ": " << said);
        CHECK(said.empty());
    }
}

}  // namespace

TEST_CASE("a label of no class is an error with its index and value, at every door") {
    for (const bool declared : {true, false}) {
        const logits l({6, 5}, declared);
        all_refuse(l, classes{0, 1, 2, 5, 4, 0}, "label 5 at index 3 is none of the 5 classes");
        all_refuse(l, classes{0, -1, 2, 3, 4, 0}, "label -1 at index 1 is none of the 5 classes");
        all_refuse(l, classes(6, 255), "label 255 at index 0 is none of the 5 classes");
        all_refuse(l, classes{0, 1, 2, 3, -100, 0}, "label -100 at index 4", 2);
        all_take(l, classes{0, 1, 2, 3, 4, 0});
        all_take(l, classes{0, 1, -100, 3, 4, 0});
        all_take(l, classes{0, 255, 1, 3, 255, 0}, 255);
    }
    const logits sequence({3, 4, 5});
    all_refuse(sequence, make_tensor<std::int64_t>({3, 4}, classes{0, 1, 2, 3, 4, 0, 7, 2, 3, 4, 0, 1}), "label 7 at index [1,2]");
    all_refuse(sequence, make_tensor<std::int64_t>({3, 4}, classes{0, 1, 2, 3, 4, 0, -1, 2, 3, 4, 0, 1}), "label -1 at index [1,2]");
}

TEST_CASE("labels are as many as the samples, and axis 0 counts them") {
    const logits l({6, 5}), sequence({3, 4, 5});
    all_refuse(l, classes{0, 1, 2, 3, 4, 0, 3, 1}, "has 8 labels for 6 samples: label 3 at index 6 is of none of them");
    all_refuse(l, classes(12, 2), "label 2 at index 6");
    all_refuse(l, classes{0, 1, 2}, "has 3 labels for 6 samples");
    all_refuse(l, make_tensor<std::int64_t>({2, 3}, classes{0, 1, 2, 3, 4, 0}), "labels of shape [2,3] for 6 samples");
    all_refuse(l, make_tensor<std::int64_t>({6, 5}, classes(30, 0)), "give one");  // one of many
    all_take(l, make_tensor<std::int64_t>({6, 1}, classes{0, 1, 2, 3, 4, 0}));
    all_refuse(sequence, make_tensor<std::int64_t>({4, 3}, classes(12, 1)), "label 1 at index [3,0] is of none");
    pipeline::evaluate_settings s;  // one more label than positions
    s.model = sequence.m;
    sequence.give(s.data, make_tensor<std::int64_t>({3, 5}, classes(15, 1)));
    CHECK_THROWS_WITH_AS(pipeline::evaluate(s), doctest::Contains("label 1 at index [0,4] has no position"), error);
}

TEST_CASE("labels may be of any type that holds whole numbers") {
    const logits l({4, 3});
    const auto loss = [&](const pipeline::array_source& labels) { return l.measured(labels, {"loss"})["loss"].get<double>(); };
    const double wanted = loss(classes{2, 0, 1, -100});
    CHECK(loss(make_tensor<float>({4}, std::vector<float>{2, 0, 1, -100})) == wanted);
    CHECK(loss(make_tensor<double>({4}, std::vector<double>{2, 0, 1, -100})) == wanted);
    CHECK(loss(make_tensor<std::int8_t>({4}, std::vector<std::int8_t>{2, 0, 1, -100})) == wanted);
    CHECK(loss(make_tensor<std::uint64_t>({4}, std::vector<std::uint64_t>{1, 0, 1, 0})) == loss(classes{1, 0, 1, 0}));
    tensor flags(data_type::boolean, {4});
    for (std::size_t i = 0; i < 4; ++i) flags.bytes()[i] = std::byte(i % 2 == 0);
    CHECK(loss(flags) == loss(classes{1, 0, 1, 0}));
    all_refuse(l, make_tensor<float>({4}, std::vector<float>{2, 0.5f, 1, 0}), "label 0.5 at index 1 is no whole number");
    all_refuse(l, make_tensor<float>({4}, std::vector<float>{2, 0, 1, std::nanf("")}), "at index 3 is no class");
    all_refuse(l, make_tensor<double>({4}, std::vector<double>{2, 1e300, 1, 0}), "label 1e+300 at index 1 is no class");
    // 2^64 - 100 is not -100.
    all_refuse(l, make_tensor<std::uint64_t>({4}, std::vector<std::uint64_t>{0, 1, std::uint64_t(0) - 100, 2}),
               "label 18446744073709551516 at index 2 is no class");
}

TEST_CASE("no label that counts is an error") {
    const logits l({4, 3}), sequence({2, 3, 4});
    all_refuse(l, classes(4, -100), "no label counts: all 4");
    all_refuse(l, classes(4, 2), "no label counts: all 4", 2);
    all_refuse(l, make_tensor<std::int64_t>({0}, classes{}), "has 0 labels for 4 samples");
    all_refuse(sequence, make_tensor<std::int64_t>({2, 3}, classes(6, -100)), "no label counts: all 6");
}

TEST_CASE("ignored samples count in no metric, nor in its divisor") {
    const logits l({6, 7});
    std::vector<std::string> all;
    for (const metric& m : all_metrics()) all.emplace_back(m.name);
    const auto some = l.measured(classes{0, -100, 2, 3, -100, 6}, all), kept = l.only({0, 2, 3, 5}).measured(classes{0, 2, 3, 6}, all);
    for (const std::string& name : all) {
        INFO(name);
        CHECK(some[name] == kept[name]);
    }
    CHECK(l.measured(classes{0, -100, 2, 3, -100, 6}, {})["top1"] == l.only({0, 2, 3, 5}).measured(classes{0, 2, 3, 6}, {})["top1"]);
}

TEST_CASE("ignored positions count in no metric, nor does a sample of which none counts") {
    const logits l({3, 2, 7});
    std::vector<std::string> all;
    for (const metric& m : all_metrics()) all.emplace_back(m.name);
    const auto some = l.measured(make_tensor<std::int64_t>({3, 2}, classes{0, 1, -100, -100, 6, 5}), all),
               kept = l.only({0, 2}).measured(make_tensor<std::int64_t>({2, 2}, classes{0, 1, 6, 5}), all);
    for (const std::string& name : all) {
        INFO(name);
        CHECK(some[name] == kept[name]);
    }
}

TEST_CASE("a model of a fixed batch has a label for each row, and for each position of each sequence") {
    qk_test::builder b;
    b.input("x", {2, 3, 4}).output("y", {2, 3, 4}).node("Identity", {"x"}, {"y"});
    tensor x(data_type::float32, {4, 3, 4});
    const classes labels{0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3};
    std::ranges::fill(x.as<float>(), 0.0f);
    for (std::size_t i = 0; i < labels.size(); ++i) x.as<float>()[i * 4 + static_cast<std::size_t>(labels[i])] = 5;
    pipeline::evaluate_settings s;
    s.model = b.m, s.metrics = {"top1", "loss"};
    s.data.inputs = named_tensors{{"x", x}}, s.data.labels = make_tensor<std::int64_t>({4, 3}, labels);
    CHECK(pipeline::evaluate(s).summary["top1"] == 1.0);
    s.data.samples = 1;
    CHECK(pipeline::evaluate(s).summary["top1"] == 1.0);
}

TEST_CASE("gradients and fine-tuning leave ignored samples out") {
    const logits l({5, 4});
    const classes all{1, -100, 3, 0, -100}, some{1, 3, 0};
    const logits kept = l.only({0, 2, 3});
    const auto m = model::parse(l.m.SerializeAsString());
    const auto g = loss_gradient(m, {{"x", l.x}}, all), h = loss_gradient(m, {{"x", kept.x}}, some);
    CHECK(g.loss == doctest::Approx(h.loss).epsilon(1e-12));
    for (std::size_t i = 0; i < 4; ++i) {
        CHECK(g.gradients.at("x").as<float>()[4 + i] == 0);
        CHECK(g.gradients.at("x").as<float>()[8 + i] == doctest::Approx(h.gradients.at("x").as<float>()[4 + i]));
    }
    CHECK_THROWS_WITH_AS(loss_gradient(m, {{"x", l.x}}, classes{1, 2, 3, 4, 0}), doctest::Contains("label 4 at index 3"), error);
#ifdef QK_HAVE_LEARN
    const finetune_result r = finetune(m, {}, {{"x", l.x}}, all, {.epochs = 1});
    CHECK(r.learned_from + r.held_out == 3);
    CHECK_THROWS_WITH_AS(finetune(m, {}, {{"x", l.x}}, classes{1, 2, 3, 4, 0}), doctest::Contains("label 4 at index 3"), error);
    CHECK_THROWS_WITH_AS(finetune(m, {}, {{"x", l.x}}, classes{-100, -100, 3, -100, -100}), doctest::Contains("two samples"), error);
#endif
}

TEST_CASE("the gradient of positions is that of their mean loss") {
    const logits l({2, 3, 4});
    const auto m = model::parse(l.m.SerializeAsString());
    const classes labels{0, -100, 2, 3, 1, -100};
    const auto g = loss_gradient(m, {{"x", l.x}}, labels);
    pipeline::evaluate_settings s;
    s.model = l.m, s.metrics = {"loss"};
    l.give(s.data, make_tensor<std::int64_t>({2, 3}, labels));
    CHECK(g.loss == doctest::Approx(pipeline::evaluate(s).summary["loss"].get<double>()).epsilon(1e-6));
    for (std::size_t i = 4; i < 8; ++i) CHECK(g.gradients.at("x").as<float>()[i] == 0);
    CHECK_THROWS_WITH_AS(loss_gradient(m, {{"x", l.x}}, classes{0, 1}), doctest::Contains("2 labels for 2 samples of 3 positions"), error);
}

TEST_CASE("the functions of one sample and of joined outputs") {
    const std::vector<float> y{1, 3, 4};
    for (const char* name : {"loss", "perplexity", "top1", "top5"})
        for (const std::int64_t label : {-1, 3, 255})
            CHECK_THROWS_WITH_AS(find_metric(name).sample(y, y, label), doctest::Contains("is none of the 3 classes"), error);
    const tensor outputs = make_tensor<float>({3, 2}, std::vector<float>{1, 0, 0, 1, 1, 0});
    CHECK(top_k(outputs, classes{0, -100, 1}, 1) == 0.5);
    CHECK_THROWS_AS(top_k(outputs, classes{0, 2, 1}, 1), error);
    CHECK_THROWS_AS(top_k(outputs, classes{-100, -100, -100}, 1), error);
}

TEST_CASE("a user's own metric gets the labels as they are") {
    const logits l({3, 4});
    pipeline::search_settings s;
    s.model = l.m, s.wide = "int16/int8", s.narrow = {"int4/int4"}, s.wide_share = 0.5;
    l.give(s.data, classes{7, -100, 2});
    std::size_t as_given = 0;
    s.measure_outputs = [&](std::span<const tensor>, std::span<const tensor>, std::span<const std::int64_t> given) {
        as_given += classes(given.begin(), given.end()) == classes{7, -100, 2};
        REQUIRE(given.size() == 3);
        for (const std::int64_t label : given) CHECK((label == 7 || label == -100 || label == 2));  // also of samples drawn again
        return 1.0;
    };
    CHECK_NOTHROW(pipeline::search(s));
    CHECK(as_given >= 3);
    s.measures_any_samples = true;
    CHECK_NOTHROW(pipeline::search(s));
    l.give(s.data, classes{7, -100, 2, 5});
    CHECK_THROWS_WITH_AS(pipeline::search(s), doctest::Contains("label 5 at index 3"), error);
}
