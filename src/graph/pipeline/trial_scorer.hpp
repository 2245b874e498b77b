// SPDX-License-Identifier: Apache-2.0
// Measures trials of a search that runs elsewhere: the same model, data and measure, so the same bits.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "qk/graph/pipeline/mix.hpp"

namespace qk::graph::pipeline {

class trial_scorer {
  public:
    /// Loads model and data as search() and sensitivity() do. Throws for settings under which a plan alone does not say what a trial is:
    /// rounding that changes weights, scaled channels, rotations, errors counted from the wide model.
    explicit trial_scorer(const mix_settings& settings);
    ~trial_scorer();
    trial_scorer(trial_scorer&&) noexcept;

    /// Returns the scores of saved plans, as text.
    std::vector<score> operator()(std::span<const std::string> plans);

  private:
    struct prepared;
    std::unique_ptr<prepared> prepared_;
};

/// Throws where trials cannot be measured elsewhere.
void check_elsewhere(const mix_settings& settings, const mix_options& options);

}  // namespace qk::graph::pipeline
