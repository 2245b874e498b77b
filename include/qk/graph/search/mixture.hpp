// SPDX-License-Identifier: Apache-2.0
// Mixed plans without planning again: from one uniform plan for each option, a plan for any choice of options by layer.
#pragma once

#include <string>
#include <vector>

#include "qk/graph/plan/layers.hpp"
#include "qk/graph/plan/plan.hpp"
#include "qk/graph/search/trials.hpp"

namespace qk::graph {

/// Every edge that the options treat differently belongs to one layer: to its consumer, if that is a searched layer; else (Add, Concat,
/// what only moves data) to the first searched layer that reads what it leads to, or failing that to the last one before it.
/// Edges are chosen one by one, so a tensor that two layers share may reach them in two formats, and a bias goes with its layer.
class mixture {
  public:
    /// uniform[o]: the plan with all searched layers at option o. Searched are those of `names`, in graph order.
    mixture(const layer_view& layers, std::vector<precision_plan> uniform, const std::vector<std::string>& names);

    /// Layers for which the options differ at all.
    const std::vector<std::string>& layers() const { return names_; }
    std::size_t options() const { return uniform_.size(); }
    const precision_plan& uniform(std::size_t option) const { return uniform_[option]; }

    precision_plan plan(const assignment& choice) const;

    /// Which operand of a layer narrows, for a sensitivity of weights alone or activations alone.
    enum class part { both, weights, activations };
    /// The plan with `layer` at `option`, or one part of it, and everything else at `base`.
    precision_plan plan(const assignment& base, std::size_t layer, std::uint8_t option, part which) const;

  private:
    struct choice_of_edge {
        edge where;
        std::vector<const quantizer*> by_option;  // nullptr: float32
        bool weight = false;
    };
    void put(precision_plan& plan, const choice_of_edge& e, std::size_t option) const;

    std::vector<precision_plan> uniform_;
    std::vector<std::string> names_;
    std::vector<std::vector<choice_of_edge>> edges_;  // by layer
    precision_plan common_;                           // what no option changes
};

const char* name_of(mixture::part p);  ///< for tables

}  // namespace qk::graph
