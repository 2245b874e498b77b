// SPDX-License-Identifier: Apache-2.0
// Makes the plan of any assignment without planning again, from one uniform plan for each option.
#pragma once

#include <string>
#include <vector>

#include "qk/graph/plan/layers.hpp"
#include "qk/graph/plan/plan.hpp"
#include "qk/graph/search/trials.hpp"

namespace qk::graph {

/// Assigns every edge that the options treat differently to one layer: to its consumer, if that is a searched layer; else (Add, Concat,
/// nodes that only move data) to the first searched layer downstream of the consumer, or if there is none to the last one upstream. Options
/// are chosen edge by edge, so two layers that share a tensor may read it in two formats, and a bias goes with its layer.
class mixture {
  public:
    /// uniform[o] is the plan with all searched layers at option o. The searched layers are those of `names`, in graph order.
    mixture(const layer_view& layers, std::vector<precision_plan> uniform, const std::vector<std::string>& names);

    /// Returns the layers for which the options differ at all.
    const std::vector<std::string>& layers() const { return names_; }
    std::size_t options() const { return uniform_.size(); }
    const precision_plan& uniform(std::size_t option) const { return uniform_[option]; }

    precision_plan plan(const assignment& choice) const;

    /// The operands of a layer that change, for a sensitivity of weights alone or activations alone.
    enum class part { both, weights, activations };
    /// Returns the plan with `layer`, or one part of it, at `option` and everything else at `base`.
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
    precision_plan common_;                           // edges that are the same under every option
};

const char* name_of(mixture::part p);  ///< for tables

}  // namespace qk::graph
