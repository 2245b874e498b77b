// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/pipeline/file_quality.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

#include "graph/pipeline/bad_samples.hpp"

namespace qk::graph::pipeline {
namespace {

output_consumer both_of(output_consumer one, output_consumer other) {
    return {[a = one.begin, b = other.begin](std::size_t samples) { a(samples), b(samples); },
            [a = std::move(one.take), b = std::move(other.take)](std::size_t sample, std::span<const tensor> outputs) {
                a(sample, outputs), b(sample, outputs);
            }};
}

}  // namespace

nlohmann::ordered_json number_or_null(double value) {
    return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
}

nlohmann::ordered_json to_json(const file_quality& q) {
    nlohmann::ordered_json j{{"samples", q.samples},
                             {"of", q.of},
                             {"sqnr", number_or_null(q.sqnr)},
                             {"low", number_or_null(q.chance.low)},
                             {"high", number_or_null(q.chance.high)}};
    if (q.top1) j["top1"] = *q.top1;
    if (q.float_top1) j["float_top1"] = *q.float_top1;
    return j;
}

std::optional<int> first_float_output(const model& m) {
    for (std::size_t i = 0; i < m.outputs().size(); ++i) {
        const data_type type = m.outputs()[i].type;
        if (type == data_type::float32 || type == data_type::float16 || type == data_type::bfloat16 || type == data_type::float64)
            return static_cast<int>(i);
    }
    return std::nullopt;
}

double sample_quality::sqnr() const { return value_over(find_metric("sqnr"), noise); }

void sample_quality::add(const sample_quality& others) {
    noise.insert(noise.end(), others.noise.begin(), others.noise.end());
    right.insert(right.end(), others.right.begin(), others.right.end());
    float_right.insert(float_right.end(), others.float_right.begin(), others.float_right.end());
}

file_quality quality_of(const sample_quality& each, std::string of) {
    file_quality q{.sqnr = each.sqnr(), .samples = each.noise.size(), .of = std::move(of)};
    q.chance = bootstrapped(find_metric("sqnr"), each.noise);
    if (each.right.empty()) return q;
    q.top1 = value_over(find_metric("top1"), each.right);
    q.float_top1 = value_over(find_metric("top1"), each.float_right);
    return q;
}

quality_judge::quality_judge(const model& m, const data_settings& data, std::size_t most, bool labelled) : threads_(data.threads) {
    const bool held = data.held_out.of > 0, of_inputs = !held && !data.inputs.empty() && !data.calibration.empty();
    const named_tensors all = of_inputs ? data.load_inputs(m) : data.load_all_calibration(m);
    const std::size_t count = samples_of(m, all).count;
    of_ = held ? "held-out" : of_inputs ? "inputs" : "calibration samples";
    const int output = first_float_output(m).value_or(0);
    std::vector<std::int64_t> labels;
    if (labelled) labels = data.load_labels(m, all, output);
    const auto is_mine = [&](std::size_t sample) { return !held || data.held_out.has(sample); };
    inputs_ = std::make_unique<named_tensors>(chosen_samples(m, all, is_mine));
    if (labels.empty() && most > 0) *inputs_ = evenly_chosen(m, *inputs_, most);
    samples_ = samples_of(m, *inputs_).count;
    noise_ = std::make_unique<output_measure>(m, *inputs_, std::vector<std::string>{"sqnr"}, output, std::vector<std::int64_t>{},
                                              position_options{}, true);
    output_consumer consumer = noise_->reference();
    if (!labels.empty()) {
        std::vector<std::int64_t> own;
        const std::size_t each = labels.size() / count;
        for (std::size_t i = 0; i < labels.size(); ++i)
            if (is_mine(i / each)) own.push_back(labels[i]);
        right_ = std::make_unique<output_measure>(m, *inputs_, std::vector<std::string>{"top1"}, output, std::move(own),
                                                  position_options{.mask = {}, .ignore_label = data.positions.ignore_label}, true);
        consumer = both_of(consumer, right_->measured());
    }
    evaluator(m, {.threads = threads_, .keep_outputs = false}).run(*inputs_, {}, {}, {}, consumer);
    if (right_) float_right_ = right_->terms();
}

sample_quality quality_judge::of(const model& m, const precision_plan& plan) {
    output_consumer consumer = noise_->measured();
    if (right_) consumer = both_of(consumer, right_->measured());
    evaluator(m, {.threads = threads_, .keep_outputs = false}).run(*inputs_, plan, {}, {}, consumer);
    sample_quality each{.noise = noise_->terms(), .right = {}, .float_right = {}};
    if (right_) each.right = right_->terms(), each.float_right = float_right_;
    return each;
}

}  // namespace qk::graph::pipeline
