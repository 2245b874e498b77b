// SPDX-License-Identifier: Apache-2.0
// Weights that an option rounds other than to nearest: with compensation, or by AdaRound, which learns with the other searched layers at
// the same option, or so that int8 is pair-safe. Each weight is rounded once per option; how good it is in a mix is measured in that mix.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "qk/graph/quantize/compensate.hpp"
#include "qk/graph/search/scorer.hpp"

namespace qk::graph {

class rounded_weights {
  public:
    /// Rounds the weights of these layers under `plan`, and marks their quantizers in it, so that the evaluator tells a marked quantizer
    /// from the same one without a mark. Layers that rounding leaves alone keep their quantizers. With `pair_safe` int8 weights become that
    /// (pair_safe.hpp) by `pair_samples`, and their scales in the plan change, too.
    void round(const model& m, precision_plan& plan, const std::vector<std::string>& layers, weight_rounding how, bool pair_safe,
               const named_tensors& samples, const named_tensors& pair_samples, const compensate_options& options);

    /// Makes `measure` use the rounded values where a plan has the marked quantizers.
    void hand_to(scorer& measure) const;

    /// Removes the marks from a plan and returns the values of the weights that had one, by name. The plan gets what is moved in them.
    std::map<std::string, tensor> take(precision_plan& plan) const;

    /// Undoes take() elsewhere: marks the quantizers of the constants that the plan moves, and makes `measure` use the moved values there.
    void hold_moved(const model& m, precision_plan& plan, scorer& measure);

    /// Returns the values before quantization of a weight under a marked quantizer; nullptr: the model's own.
    const tensor* find(const std::string& weight, const quantizer& how) const;

    /// Returns, by weight, each marked quantizer and the values before quantization.
    const std::map<std::string, std::vector<std::pair<quantizer, tensor>>>& all() const { return values_; }

  private:
    std::map<std::string, std::vector<std::pair<quantizer, tensor>>> values_;
    std::map<std::string, std::vector<std::pair<quantizer, moved_values>>> moved_;
};

/// Returns the model with its initializers of these names replaced by `values`.
model with_weights(model m, const std::map<std::string, tensor>& values);

}  // namespace qk::graph
