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
    std::vector<std::vector<dims>> own;  ///< by input: the shape of each sample of ragged data; empty: all alike
    bool ragged = false;                 ///< samples run one by one

    /// Inputs for samples [first, first + n).
    std::vector<tensor> slice(std::size_t first, std::size_t n) const;
};

/// Errors name the input, what the model expects and what was given.
sample_set make_samples(const model& m, const named_tensors& given);

/// Rows [first, first + n) of axis 0, sharing the buffer.
tensor rows(const tensor& t, std::size_t first, std::size_t n);

/// One sample of joined tensors, of ragged ones without its padding; the whole tensor where axis 0 does not divide among the samples.
tensor sample_of(const named_tensors& joined, const std::string& name, std::size_t sample, std::size_t samples);

/// The part of `t` that begins at its first element and has this shape; shares the buffer where it can.
tensor corner(const tensor& t, const dims& shape);

/// The same the other way: `t` in the corner of a tensor of zeros.
tensor padded(const tensor& t, const dims& shape);

/// Tensors of at most the shape `longest`, each padded to it, one after the other along axis 0.
tensor join_padded(std::vector<tensor> parts, const dims& longest);

/// "N,3,32,32" as the model declares it; "?" for what it leaves open.
std::string dims_text(const value_info& v);
/// The same in brackets, or "any shape".
std::string describe(const value_info& v);

}  // namespace qk::graph::execute
