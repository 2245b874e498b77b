// SPDX-License-Identifier: Apache-2.0
// Scores a model's outputs: the share of right answers, and the distance from expected outputs.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "qk/graph/base/tensor.hpp"

namespace qk::graph {

/// Returns the share of samples (axis 0) whose label is among the k largest of that sample's values. Of equal values the first counts as
/// larger; NaN counts as smallest. Throws an error if a label is not a class.
double top_k(const tensor& output, std::span<const std::int64_t> labels, std::size_t k);

/// Returns whether one sample's label is among its k largest values, by the rules of top_k(). `sample` is its number in errors.
bool in_top_k(const tensor& output, std::int64_t label, std::size_t k, std::size_t sample);

struct output_difference {
    double absolute = 0;  ///< largest |got - expected|; Inf if only one is NaN or they are unequal infinities
    double largest = 0;   ///< largest finite |expected|
    double relative = 0;  ///< absolute over largest (0 over 0 is 0)
};
/// Compares tensors of any numeric types. Throws an error that names the output if the shapes differ.
output_difference compare_outputs(const tensor& got, const tensor& expected, const std::string& name);

}  // namespace qk::graph
