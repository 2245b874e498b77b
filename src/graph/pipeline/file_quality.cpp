// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/pipeline/file_quality.hpp"

#include <cmath>

#include "graph/pipeline/bad_samples.hpp"

namespace qk::graph::pipeline {
namespace {

constexpr std::size_t some_samples = 32;  ///< enough for decibels; top-1 takes every sample that has a label

output_consumer both_of(output_consumer one, output_consumer other) {
    return {[a = one.begin, b = other.begin](std::size_t samples) { a(samples), b(samples); },
            [a = std::move(one.take), b = std::move(other.take)](std::size_t sample, std::span<const tensor> outputs) {
                a(sample, outputs), b(sample, outputs);
            }};
}

double value_of(const output_measure& measure, const char* metric) {
    nlohmann::ordered_json j;
    measure.write(j);
    return j[metric].get<double>();
}

}  // namespace

nlohmann::ordered_json number_or_null(double value) {
    return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
}

nlohmann::ordered_json to_json(const file_quality& q) {
    nlohmann::ordered_json j{{"samples", q.samples}, {"of", q.of}, {"sqnr", number_or_null(q.sqnr)}};
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

quality_judge::quality_judge(const model& m, const data_settings& data, quality_samples how_many) : threads_(data.threads) {
    const bool of_inputs = !data.inputs.empty() && (!data.calibration.empty() || data.hold_out == 0);
    inputs_ = of_inputs ? data.load_inputs(m) : data.load_all_calibration(m);
    const std::size_t all = samples_of(m, inputs_).count, step = of_inputs ? 0 : data.held_out_step(all);
    of_ = of_inputs ? "inputs" : step > 0 ? "calibration samples that were held out" : "calibration samples";
    const int output = first_float_output(m).value_or(0);
    const std::vector<std::int64_t> labels = data.load_labels(m, inputs_, output);
    const bool judges = !labels.empty();
    const auto is_wanted = [&](std::size_t i) {
        if (step > 0) return is_held_out(i, step);
        const bool few = !judges && how_many == quality_samples::some && all > some_samples;
        return !few || i * some_samples / all != (i + 1) * some_samples / all;
    };
    inputs_ = chosen_samples(m, inputs_, is_wanted);
    samples_ = samples_of(m, inputs_).count;
    noise_.emplace(m, inputs_, std::vector<std::string>{"sqnr"}, output, std::vector<std::int64_t>{}, position_options{}, true);
    output_consumer consumer = noise_->reference();
    if (judges) {
        std::vector<std::int64_t> own;
        const std::size_t each = labels.size() / all;
        for (std::size_t i = 0; i < labels.size(); ++i)
            if (is_wanted(i / each)) own.push_back(labels[i]);
        right_.emplace(m, inputs_, std::vector<std::string>{"top1"}, output, std::move(own),
                       position_options{.ignore_label = data.positions.ignore_label}, true);
        consumer = both_of(consumer, right_->measured());
    }
    evaluator(m, {.threads = threads_, .keep_outputs = false}).run(inputs_, {}, {}, {}, consumer);
    if (right_) float_top1_ = value_of(*right_, "top1");
}

file_quality quality_judge::of(const model& m, const precision_plan& plan) {
    output_consumer consumer = noise_->measured();
    if (right_) consumer = both_of(consumer, right_->measured());
    evaluator(m, {.threads = threads_, .keep_outputs = false}).run(inputs_, plan, {}, {}, consumer);
    file_quality q{.sqnr = value_of(*noise_, "sqnr"), .samples = samples_, .of = of_};
    if (right_) q.top1 = value_of(*right_, "top1"), q.float_top1 = float_top1_;
    return q;
}

}  // namespace qk::graph::pipeline
