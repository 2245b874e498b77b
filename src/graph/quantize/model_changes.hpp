// SPDX-License-Identifier: Apache-2.0
// What planning changes in a model beside the formats of its edges. A plan keeps it, so that the plan and the float model together are what
// a file holds.
#pragma once

#include <map>
#include <string>

#include "qk/graph/base/tensor.hpp"
#include "qk/graph/model/model.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph {

/// Returns where `now` has other values than `before`, both float32: where the quantizer under which they are read tells them apart, or, of
/// blocks whose scales follow from their values and with `q` nullptr, everywhere.
moved_values moved_between(const tensor& before, const tensor& now, const quantizer* q);

/// Returns a constant with moved values in the places of its own, in its type.
tensor with_moved(const tensor& stored, const moved_values& moved);

/// The constants of floats that nodes read, as they are before weights are rounded and biases corrected.
class constants_before {
  public:
    explicit constants_before(const model& m);
    /// Writes into plan.moved where the constants of `now` have other values, as moved_between() says.
    void record(const model& now, precision_plan& plan) const;

  private:
    std::map<std::string, tensor> values_;
};

/// Rotates and scales the model, and adds biases of zeros, as a saved plan says: what has to be done before the plan's names are looked up.
/// `label` names the plan in errors.
void reshape_for(model& m, const precision_plan& plan, const std::string& label);

/// Puts the moved values of a plan into the model's constants.
void apply_moved(model& m, const precision_plan& plan);

}  // namespace qk::graph
