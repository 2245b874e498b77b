// SPDX-License-Identifier: Apache-2.0
// What outputs are worth: the share of right answers, and the distance from expected outputs.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "qk/graph/base/tensor.hpp"

namespace qk::graph {

/// Share of samples (axis 0) whose label is among the k largest of that sample's values. Of equal values the first counts as larger;
/// NaN counts as smallest. Labels outside of the classes are an error.
double top_k(const tensor& output, std::span<const std::int64_t> labels, std::size_t k);

/// The same for one sample: whether its label is among them. `sample`: what errors call it.
bool in_top_k(const tensor& output, std::int64_t label, std::size_t k, std::size_t sample);

struct output_difference {
    double absolute = 0;  ///< largest |got - expected|; Inf where one is NaN or they are unequal infinities
    double largest = 0;   ///< largest finite |expected|
    double relative = 0;  ///< absolute over largest (0 over 0 is 0)
};
/// Any numeric types; shapes must be the same, else an error that names the output.
output_difference compare_outputs(const tensor& got, const tensor& expected, const std::string& name);

}  // namespace qk::graph
