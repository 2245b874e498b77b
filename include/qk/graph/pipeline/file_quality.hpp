// SPDX-License-Identifier: Apache-2.0
// What a person wants to know of a quantized model: how far its output is from the float model's, and how often each is right.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/pipeline/data.hpp"
#include "qk/graph/pipeline/output_measure.hpp"

namespace qk::graph::pipeline {

/// Returns a number as JSON has it; null where it is not finite.
nlohmann::ordered_json number_or_null(double value);

struct file_quality {
    double sqnr = 0;  ///< decibels of the first output of floats
    std::optional<double> top1{}, float_top1{};
    std::size_t samples = 0;
    std::string of{};  ///< "inputs", "calibration samples" or "calibration samples that were held out"
};
nlohmann::ordered_json to_json(const file_quality& q);

/// Returns the output whose quality is measured; nullopt if a model has none.
std::optional<int> first_float_output(const model& m);

/// How many samples a quality is measured on. All of those with labels always.
enum class quality_samples : std::uint8_t { some, every };

/// Holds samples, labels and the float model's outputs, and measures quantized models against them: on the inputs if there are any, else on
/// the calibration samples, of which those held out alone count where some are.
class quality_judge {
  public:
    /// Runs the float model.
    quality_judge(const model& m, const data_settings& data, quality_samples how_many);
    /// Runs a model under a plan.
    file_quality of(const model& m, const precision_plan& plan);
    std::size_t samples() const { return samples_; }
    const named_tensors& inputs() const { return inputs_; }  ///< those that it measures on
    const std::string& of_what() const { return of_; }       ///< as file_quality::of

  private:
    int threads_;
    std::size_t samples_ = 0;
    std::string of_;
    named_tensors inputs_;
    std::optional<output_measure> noise_, right_;  ///< decibels; top-1, where each sample has a label
    std::optional<double> float_top1_{};
};

}  // namespace qk::graph::pipeline
