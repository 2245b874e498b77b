// SPDX-License-Identifier: Apache-2.0
// How given data is cut into samples: the batching rule of evaluator::run.
#pragma once

#include <string>
#include <vector>

#include "qk/graph/base/tensor.hpp"
#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/model/model.hpp"

namespace qk::graph::execute {

/// Data in the order of the model's inputs. An input is either cut along axis 0 into `count` samples, or given whole to each.
struct sample_set {
    std::size_t count = 1;
    bool symbolic = false;  ///< cut along a symbol: a whole batch could run at once, too
    std::vector<tensor> inputs;
    std::vector<char> cut;

    /// Inputs for samples [first, first + n).
    std::vector<tensor> slice(std::size_t first, std::size_t n) const;
};

/// Errors name the input, what the model expects and what was given.
sample_set make_samples(const model& m, const named_tensors& given);

/// Rows [first, first + n) of axis 0, sharing the buffer.
tensor rows(const tensor& t, std::size_t first, std::size_t n);

/// "[N,3,32,32]" as the model declares it.
std::string describe(const value_info& v);

}  // namespace qk::graph::execute
