// SPDX-License-Identifier: Apache-2.0
// Infers the shapes of a model's values without running it, by the walk over its graph.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>

#include "qk/graph/model/model.hpp"

namespace qk::graph::detail {

/// An open length is walked as a number, another one each time: what is the same for all of them holds for any. Numbers for two open
/// lengths differ, and one time all are 1, which broadcasts and is squeezed.
class inferred_shapes {
  public:
    /// Starts from the shapes that the model states, above all those of its inputs.
    explicit inferred_shapes(const model& m);

    /// Returns nullptr when not even the rank is known. A length below 0 is not known.
    const dims* find(const std::string& tensor) const {
        const auto found = shapes_.find(tensor);
        return found == shapes_.end() ? nullptr : &found->second;
    }

  private:
    std::unordered_map<std::string, dims> shapes_;
};

/// Returns the shapes of this model's values; the walk is made once for a model.
std::shared_ptr<const inferred_shapes> shapes_of(const model& m);

/// Returns how many walks this program has made.
std::size_t walks_made();

}  // namespace qk::graph::detail
