// SPDX-License-Identifier: Apache-2.0
// Whether rows of the data are samples is a fact of the graph: this follows the axis that the samples stand along from the inputs to the
// outputs, operator by operator. No data is looked at. "Rows" is said only where every operator on the way is known to keep the samples
// apart, so that a sample alone gives what it gives among others.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/evaluate/execute/network.hpp"

namespace qk::graph::execute {

/// An input as the samples lie in it.
struct batch_input {
    int axis = -1;  ///< the axis that samples stand along; -1: the same for every sample
    dims shape;     ///< of one sample; a length below 0 is not known
    bool ranked = true;
};

struct batch_verdict {
    enum class kind : std::uint8_t {
        rows,      ///< each sample is computed by itself
        mixed,     ///< an operator computes with several samples
        undecided  ///< an operator is not known here, or what it does depends on what is not known
    } is = kind::undecided;
    std::string why;               ///< the node that decided, and what it does; empty for rows
    std::vector<int> output_axes;  ///< the axis of the samples in each output; -1: one value for all samples; -2: not known
    struct place {
        int axis = -1;
        std::size_t rank = 0;
    };
    std::unordered_map<std::string, place> places;  ///< of the samples, in every value that has them
    bool rows() const { return is == kind::rows; }
};

/// Follows the samples through a network; `inputs` in the network's order. `count` is the number of samples that would run together.
batch_verdict follow_batch_axis(const network& net, const std::vector<batch_input>& inputs, std::int64_t count);

}  // namespace qk::graph::execute
