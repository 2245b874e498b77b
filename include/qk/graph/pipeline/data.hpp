// SPDX-License-Identifier: Apache-2.0
// Samples as a user names them: files, preprocessing, how many.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/model/model.hpp"
#include "qk/graph/pipeline/sources.hpp"
#include "qk/graph/search/positions.hpp"

namespace qk::graph::pipeline {

/// What a recipe spends on the steps that it adds.
struct step_limits {
    std::size_t samples = 0;  ///< weights are rounded and biases corrected by at most so many, spread evenly; 0: all
    double worth = 1;         ///< channels are scaled where the squared error falls below this share
};

/// One of `of` parts into which samples are cut by turns; none where `of` is 0.
struct sample_part {
    std::size_t part = 0, of = 0;
    bool has(std::size_t sample) const { return of > 0 && sample % of == part; }
};

/// Each member is the command's option of the same name.
struct data_settings {
    data_source inputs, calibration;  ///< files, arrays, or a function that gives batches
    array_source labels;
    std::string preprocess;
    std::size_t samples = 0;       ///< 0: all
    std::string batch_axis;        ///< "": the graph says whether rows of axis 0 are samples; "none", or the axis they stand along
    int threads = 0;               ///< 0: one for each core
    position_options positions{};  ///< --mask, --next-token, --per-position, --ignore-label
    bool skip_bad_samples = false;

    // No options:
    sample_part held_out{};                              ///< calibration samples that a recipe keeps to judge by
    std::shared_ptr<const named_tensors> read_before{};  ///< what load_all_calibration() would return

    /// Returns the data for the model's inputs, preprocessed, cut to `samples`. Throws if there are fewer, or none, and where a sample
    /// holds NaN, unless `skip_bad_samples` leaves such samples out. With `keeps_nan` NaN is data like any other.
    named_tensors load_inputs(const model& m, bool keeps_nan = false) const;
    /// Returns data to calibrate with, preprocessed: `calibration`, or the inputs, without the samples that are held out; at most `most` of
    /// them, spread evenly, if that is not 0. A file of statistics is not data: see has_statistics().
    named_tensors load_calibration(const model& m, std::size_t most = 0) const;
    /// Returns the same with the samples that are held out.
    named_tensors load_all_calibration(const model& m) const;
    /// Returns the labels of these samples of `m`, without those of samples that were left out; empty if none are given. Throws an error
    /// that names the label where one is no whole number, has no sample, or is no class of the output (nor ignored), as far as the model
    /// says its shape, and where no label counts. Without `output_index` labels are what a user's own metric takes: any whole numbers.
    std::vector<std::int64_t> load_labels(const model& m, const named_tensors& inputs, std::optional<int> output_index) const;
    /// Returns batch_axis as named_tensors has it. Throws if it is no axis.
    std::optional<int> read_batch_axis() const;
    /// Is true when `calibration` names statistics instead of samples.
    bool has_statistics() const;
    /// Is true when samples are given, as inputs or to calibrate with.
    bool has_samples() const { return !inputs.empty() || (!calibration.empty() && !has_statistics()); }

  private:
    std::string misfit(const tensor& value, const value_info& input, const char* option, const std::string& more) const;
    tensor folder_labels() const;
    named_tensors load(const model& m, const data_source& from, const char* option, bool cut, bool keeps_nan) const;
    void keep_first(const model& m, named_tensors& data) const;
};

/// Returns those of the samples, as runs count them, for which `wanted` holds.
named_tensors chosen_samples(const model& m, const named_tensors& given, const std::function<bool(std::size_t)>& wanted);
/// Returns `most` of the samples, spread evenly, or all if there are no more.
named_tensors evenly_chosen(const model& m, const named_tensors& given, std::size_t most);

}  // namespace qk::graph::pipeline
