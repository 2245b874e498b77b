// SPDX-License-Identifier: Apache-2.0
// Runs the float network and the same network under a plan side by side, node by node over all samples, so that the values of both are at
// hand at each node. If a node's weights, bias or quantizers are changed at its turn, the nodes behind it see the change.
#pragma once

#include <functional>
#include <vector>

#include "graph/gradient/sample_runs.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph::detail {

class side_by_side {
  public:
    /// A node before the quantized network runs it, with its values in every run. Runs are in the order of the samples.
    struct visit {
        std::size_t node = 0;
        const execute::net_node* at = nullptr;
        std::vector<tensor> reads;   ///< by run: input 0 as the quantized network reads it
        std::vector<tensor> unread;  ///< by run: that input before its quantizers
        std::vector<tensor> makes;   ///< by run: output 0 of the float network
    };

    /// Chooses, evenly, as many runs of the samples as have their values fit into `memory` bytes. The functions that walk() calls may
    /// change `plan`.
    side_by_side(const model& m, const precision_plan& plan, const named_tensors& samples, int threads, std::size_t memory);

    std::size_t runs() const { return chosen_.size(); }
    std::size_t nodes() const { return runs_.net().nodes.size(); }
    execute::network& net() { return *runs_.runner.net; }
    execute::workers& pool() { return runs_.runner.pool; }

    /// Calls `before` at each node that is `wanted`; it may change constants of net(). Calls `after`, if there is one, with output 0 of the
    /// quantized network by run; when it returns true, the node runs again.
    void walk(const std::function<bool(std::size_t node)>& wanted, const std::function<void(const visit&)>& before,
              const std::function<bool(const visit&, const std::vector<tensor>& made)>& after, const progress& report = {});

    /// To be called by `before` if it has changed a quantizer of the node's activations, too: they are read again.
    void read_again() { again_ = true; }

    /// Returns a value as an input of a node reads it under the plan.
    tensor read_as(const execute::net_input& use, const tensor& value) const;

  private:
    using values = std::vector<tensor>;  ///< by index of the network's value
    void choose_runs(std::size_t memory);
    std::vector<tensor> run_node(const execute::net_node& node, const values& own, std::span<const tensor> in) const;
    void read_inputs(const execute::net_node& node, std::vector<std::vector<tensor>>& in, bool constants_alone);
    void run_quantized(std::size_t n, const std::vector<std::vector<tensor>>& in, const std::vector<std::vector<tensor>>& plain,
                       std::vector<std::vector<tensor>>& made);

    gradient::sample_runs runs_;
    const precision_plan* plan_;
    bool again_ = false;
    std::vector<std::size_t> chosen_;        ///< runs that are taken
    std::vector<std::size_t> last_;          ///< by value: the last node that reads it
    std::vector<values> plain_, quantized_;  ///< by run
};

}  // namespace qk::graph::detail
