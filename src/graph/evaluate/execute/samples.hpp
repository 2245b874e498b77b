// SPDX-License-Identifier: Apache-2.0
// Cuts given data into samples by the batching rule of evaluator::run.
#pragma once

#include <string>
#include <vector>

#include "qk/graph/base/tensor.hpp"
#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/model/model.hpp"

namespace qk::graph::execute {

/// Data in the order of the model's inputs. An input is either cut along an axis into `count` samples, or given whole to each.
struct sample_set {
    std::size_t count = 1;
    bool symbolic = false;  ///< cut along a symbol: whether its rows are samples is for the graph to say
    std::vector<tensor> inputs;
    std::vector<int> axes;               ///< by input, the axis that is cut; -1: given whole
    std::vector<int> wider;              ///< if not empty, what `axes` would be if inputs of other symbols with as many rows were cut, too
    std::string uncut;                   ///< why data that is open along axis 0 is not cut at all
    int asked = 0;                       ///< the axis that the user named
    std::vector<std::vector<dims>> own;  ///< by input, the shape of each sample of ragged data; empty: all alike
    bool ragged = false;                 ///< samples have shapes of their own and run one by one

    /// Returns the rows of one sample of an input along the axis that is cut.
    std::size_t rows_each(std::size_t input) const;

    /// Returns the inputs for samples [first, first + n).
    std::vector<tensor> slice(std::size_t first, std::size_t n) const;
};

/// Cuts `given` into samples. Errors name the input, what the model expects and what was given.
sample_set make_samples(const model& m, const named_tensors& given);

/// Returns rows [first, first + n) of axis 0, which share the buffer.
tensor rows(const tensor& t, std::size_t first, std::size_t n);
/// Returns rows [first, first + n) of an axis; a copy if that is not axis 0.
tensor rows_along(const tensor& t, int axis, std::size_t first, std::size_t n);
/// Copies `part` to the rows of an axis of `whole` that begin at `first`.
void put_rows(tensor& whole, int axis, std::size_t first, const tensor& part);

/// Returns one sample of a joined tensor, without the padding of ragged data; the whole tensor if axis 0 does not divide among the samples.
tensor sample_of(const named_tensors& joined, const std::string& name, std::size_t sample, std::size_t samples);

/// Returns the part of `t` of this shape that begins at its first element; shares the buffer if that is all of `t`.
tensor corner(const tensor& t, const dims& shape);

/// Returns a tensor of this shape that begins with `t` on all axes and is zero elsewhere; shares the buffer if that is `t` itself.
tensor padded(const tensor& t, const dims& shape);

/// Pads tensors to the shape `longest` and joins them along axis 0.
tensor join_padded(std::vector<tensor> parts, const dims& longest);

}  // namespace qk::graph::execute
