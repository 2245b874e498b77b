// SPDX-License-Identifier: Apache-2.0
// Weights rounded otherwise than to nearest as one of a search's choices: with compensation, or by AdaRound, the other searched layers
// having the same choice while it learns. Each is made once, and what it is worth in a mix is measured there.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "qk/graph/quantize/compensate.hpp"
#include "qk/graph/search/scorer.hpp"

namespace qk::graph {

class rounded_weights {
  public:
    /// Rounds the weights of these layers under `plan`, and marks their quantizers in it: for the evaluator a marked one is another one
    /// than the same without. Layers that rounding leaves alone keep their quantizers.
    void round(const model& m, precision_plan& plan, const std::vector<std::string>& layers, weight_rounding how,
               const named_tensors& samples, const compensate_options& options);

    /// Has `measure` take these values where a plan has the marked quantizers.
    void hand_to(scorer& measure) const;

    /// Takes the marks out of a plan, and gives the values of the weights that had one, by name.
    std::map<std::string, tensor> take(precision_plan& plan) const;

    /// By weight: each marked quantizer, and the values before quantization.
    const std::map<std::string, std::vector<std::pair<quantizer, tensor>>>& all() const { return values_; }

  private:
    std::map<std::string, std::vector<std::pair<quantizer, tensor>>> values_;
};

/// The model with these initializers instead of its own.
model with_weights(model m, const std::map<std::string, tensor>& values);

}  // namespace qk::graph
