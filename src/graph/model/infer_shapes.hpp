// SPDX-License-Identifier: Apache-2.0
// Infers lengths of axes from a graph without running it: through Reshape, Transpose, products and whatever keeps or joins shapes.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "qk/graph/model/model.hpp"

namespace qk::graph::detail {

class inferred_shapes {
  public:
    /// Starts from the shapes that the model states, above all those of its inputs.
    explicit inferred_shapes(const model& m);

    /// Returns nullptr when not even the rank is known. Lengths below 0 are unknown.
    const dims* find(const std::string& tensor) const {
        const auto found = shapes_.find(tensor);
        return found == shapes_.end() ? nullptr : &found->second;
    }

  private:
    friend class shape_rules;
    const model& model_;
    std::unordered_map<std::string, dims> shapes_;  ///< an unknown length is a negative symbol: equal symbols are equal lengths
    std::unordered_map<std::string, dims> values_;  ///< what tensors that hold lengths contain, as far as that is known
    std::int64_t symbols_ = 0;
};

}  // namespace qk::graph::detail
