// SPDX-License-Identifier: Apache-2.0
// Finds samples that hold NaN: a range, a measure or a gradient from them means nothing.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "graph/evaluate/execute/samples.hpp"
#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/model/model.hpp"

namespace qk::graph::pipeline {

/// Cuts data as a run would: into one sample where its rows are no samples by themselves.
execute::sample_set samples_of(const model& m, const named_tensors& data);
/// Returns the data without these of its samples, ascending. Inputs that are given whole stay.
named_tensors remaining_samples(const model& m, const named_tensors& data, const execute::sample_set& samples,
                                const std::vector<std::size_t>& gone);

/// Samples that hold NaN, and the input that shows it for the first of them.
struct bad_samples {
    std::vector<std::size_t> which;  ///< ascending, from 0
    std::size_t of = 0;              ///< samples in all
    std::string input;
    /// Returns "sample 3 (from 0) of input 'x' holds NaN (1 of 200 samples does)".
    std::string text() const;
};
/// Finds NaN in the inputs of floats. Finds nothing where the model looks for missing values itself (IsNaN).
bad_samples find_bad_samples(const model& m, const named_tensors& data);

/// Returns the data without these samples, which it lists in `left_out`. Throws if none is left; `option` names the data.
named_tensors without_samples(const model& m, const named_tensors& data, const bad_samples& bad, const std::string& option);

}  // namespace qk::graph::pipeline
