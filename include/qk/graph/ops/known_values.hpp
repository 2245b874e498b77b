// SPDX-License-Identifier: Apache-2.0
// What is known of a model's values without running it: their shapes and element types.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>

#include "qk/graph/model/model.hpp"

namespace qk::graph {

/// Starts from what the model states of its inputs and constants, and follows the rule of each operator. An open length is walked as a
/// number, another one each time: what is the same for all of them holds for any.
class known_values {
  public:
    explicit known_values(const model& m);

    /// Returns nullptr when not even the rank is known. A length below 0 is not known.
    const dims* shape(const std::string& value) const {
        const auto found = shapes_.find(value);
        return found == shapes_.end() ? nullptr : &found->second;
    }
    /// Returns data_type::undefined when the type is not known, or the value is no tensor.
    data_type type(const std::string& value) const {
        const auto found = types_.find(value);
        return found == types_.end() ? data_type::undefined : found->second;
    }

    /// The types of all values by name.
    const std::unordered_map<std::string, data_type>& types() const { return types_; }

  private:
    std::unordered_map<std::string, dims> shapes_;
    std::unordered_map<std::string, data_type> types_;
};

/// Returns what is known of this model's values; the walk is made once for a model.
inline std::shared_ptr<const known_values> known_values_of(const model& m) { return m.found<known_values>(); }

/// Returns how many walks this program has made.
std::size_t walks_made();

}  // namespace qk::graph
