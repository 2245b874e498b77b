// SPDX-License-Identifier: Apache-2.0
// What a person wants to know of a quantized model: how far its output is from the float model's, and how often each is right.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/pipeline/data.hpp"
#include "qk/graph/pipeline/output_measure.hpp"
#include "qk/graph/search/spread.hpp"

namespace qk::graph::pipeline {

/// Returns a number as JSON has it; null where it is not finite.
nlohmann::ordered_json number_or_null(double value);

struct file_quality {
    double sqnr = 0;    ///< decibels of the first output of floats
    interval chance{};  ///< where they would be with as many other samples: bootstrapped()
    std::optional<double> top1{}, float_top1{};
    std::size_t samples = 0;
    std::string of{};  ///< "held-out", "inputs" or "calibration samples"
};
nlohmann::ordered_json to_json(const file_quality& q);

/// Returns the output whose quality is measured; nullopt if a model has none.
std::optional<int> first_float_output(const model& m);

/// What a model was worth on each sample: the terms of sqnr, and with labels those of top1, the float model's too.
struct sample_quality {
    std::vector<metric_terms> noise, right, float_right;

    double sqnr() const;
    void add(const sample_quality& others);
};
file_quality quality_of(const sample_quality& each, std::string of);

/// Holds samples, labels and the float model's outputs, and measures quantized models against them: on the samples that are held out, or on
/// the inputs where none are, or on the calibration samples where there are no inputs.
class quality_judge {
  public:
    /// Runs the float model on `most` of the samples, spread evenly (0: all), and on all of them where `labelled` and the data has labels.
    quality_judge(const model& m, const data_settings& data, std::size_t most, bool labelled);
    /// Runs a model under a plan.
    sample_quality of(const model& m, const precision_plan& plan);
    const named_tensors& inputs() const { return *inputs_; }  ///< those that it measures on
    std::size_t samples() const { return samples_; }
    const std::string& words() const { return of_; }  ///< file_quality::of

  private:
    int threads_;
    std::size_t samples_ = 0;
    std::string of_;
    std::unique_ptr<named_tensors> inputs_;          ///< where the measures look, wherever the judge goes
    std::unique_ptr<output_measure> noise_, right_;  ///< decibels; top-1, where each sample has a label
    std::vector<metric_terms> float_right_;
};

}  // namespace qk::graph::pipeline
