// SPDX-License-Identifier: Apache-2.0
// The scales of a plan as something that learns (Esser et al. 2020). Quantizers that stand for one another, of the readers of one tensor or
// on both sides of nodes that only move data, keep one scale; an int32 bias keeps the product of its layer's scales.
#pragma once

#include <map>
#include <vector>

#include "qk/graph/model/model.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph::gradient {

class plan_scales {
  public:
    using gradients = std::vector<std::vector<double>>;  ///< by group, then scale

    /// `plan` is changed by steps, and outlives this.
    plan_scales(const model& m, precision_plan& plan);

    /// Which scales a quantizer of the plan has; -1: none that learn.
    int group_of(const quantizer* q) const;
    std::size_t groups() const { return groups_.size(); }
    gradients zeros() const;

    /// One step of Adam in the logarithm of each scale, `rate` at most. `time` counts from 1.
    void step(const gradients& g, double rate, double time);

    void remember();  ///< the scales as they are now
    void go_back();   ///< to what was remembered; at first: the plan's own

  private:
    struct group {
        std::vector<quantizer*> members;
        std::vector<float> scale, best;
        std::vector<double> first, second;
    };
    struct biased {
        quantizer* bias;
        const quantizer *input, *weight;
    };
    void find_biases(const model& m, precision_plan& plan);
    void write();
    std::vector<group> groups_;
    std::map<const quantizer*, int> group_of_;
    std::vector<biased> biases_;
};

}  // namespace qk::graph::gradient
