// SPDX-License-Identifier: Apache-2.0
// Learns the scales of a plan (Esser et al. 2020). Equal quantizers of one tensor's readers, or on both sides of nodes that only move data,
// form a group with common scales; the scale of an int32 bias stays the product of its layer's scales.
#pragma once

#include <map>
#include <vector>

#include "qk/graph/model/model.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph::gradient {

class plan_scales {
  public:
    using gradients = std::vector<std::vector<double>>;  ///< by group, then scale

    /// step() and go_back() change `plan`, which must outlive this object.
    plan_scales(const model& m, precision_plan& plan);

    /// Returns the group of a quantizer of the plan; -1 if its scales do not learn.
    int group_of(const quantizer* q) const;
    std::size_t groups() const { return groups_.size(); }
    gradients zeros() const;

    /// Takes one step of Adam in the logarithm of each scale, of 3 * `rate` at most. `time` counts from 1.
    void step(const gradients& g, double rate, double time);

    void remember();  ///< stores the scales as they are now
    void go_back();   ///< restores the remembered scales; before the first remember(), the plan's own

  private:
    struct group {
        std::vector<quantizer*> members;
        std::vector<float> scale, best;
        std::vector<double> first, second;
    };
    struct biased {
        quantizer* bias;
        const quantizer *input, *weight;
        const onnx::NodeProto* layer;
    };
    void find_biases(const model& m, precision_plan& plan);
    void write();
    std::vector<group> groups_;
    std::map<const quantizer*, int> group_of_;
    std::vector<biased> biases_;
};

}  // namespace qk::graph::gradient
