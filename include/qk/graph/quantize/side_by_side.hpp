// SPDX-License-Identifier: Apache-2.0
// The float network and the same network under a plan, node by node over all samples: at each node there is what both make of every sample.
// A node that is changed when its turn comes (its weights, its bias, its quantizers) is what the nodes behind it see.
#pragma once

#include <functional>
#include <vector>

#include "qk/graph/gradient/sample_runs.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph::detail {

class side_by_side {
  public:
    /// What stands at a node before the quantized network runs it; runs are in the order of the samples.
    struct visit {
        std::size_t node = 0;
        const execute::net_node* at = nullptr;
        std::vector<tensor> reads;   ///< by run: input 0 as the quantized network reads it
        std::vector<tensor> unread;  ///< by run: the same before its quantizers
        std::vector<tensor> makes;   ///< by run: output 0 of the float network
    };

    /// As many samples as `memory` bytes hold the values of, evenly chosen. `plan` may be changed by whoever is called.
    side_by_side(const model& m, const precision_plan& plan, const named_tensors& samples, int threads, std::size_t memory);

    std::size_t runs() const { return chosen_.size(); }
    std::size_t nodes() const { return runs_.net().nodes.size(); }
    execute::network& net() { return *runs_.runner.net; }
    execute::workers& pool() { return runs_.runner.pool; }

    /// `before` is called at nodes that `wanted` names, and may change constants of net(); `after`, if there is one, gets what the
    /// quantized network made there, by run; true: the node runs again.
    void walk(const std::function<bool(std::size_t node)>& wanted, const std::function<void(const visit&)>& before,
              const std::function<bool(const visit&, const std::vector<tensor>& made)>& after, const progress& report = {});

    /// Said by `before`: the quantizer of what the node reads has changed, too.
    void read_again() { again_ = true; }

    /// A value as an input of a node reads it under the plan.
    tensor read_as(const execute::net_input& use, const tensor& value) const;

  private:
    using values = std::vector<tensor>;  ///< by number of the network
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
