// SPDX-License-Identifier: Apache-2.0
// Scores a model's outputs: which labels count, the share of right answers, and the distance from expected outputs.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "qk/graph/base/tensor.hpp"

namespace qk::graph {

/// The label that counts nowhere, unless another is named.
inline constexpr int ignored_label = -100;

/// The choices that one sample's output holds: `rows` of them, each among `classes`.
struct choice_rows {
    std::size_t rows = 1, length = 1, classes = 1;
    bool positions = false;  ///< the rows are positions, and each `length` of them are a sequence
};
/// Reads an output of a sample that has so many labels: [B,S,C] are B sequences of S choices among C, [B,C] with B labels are B choices,
/// and any other is one choice among all of its values.
choice_rows choices_of(const dims& shape, std::size_t labels);

/// Throws an error that names the label, and where it stands ("index 3"), unless it is a class, from 0 to classes - 1.
void check_class(std::int64_t label, std::size_t classes, const std::string& where = "");
/// Throws an error that names the first label, by its index in [N] or [N,each] and its value, that is neither a class, from 0 to
/// classes - 1, nor `ignored`. Labels before `first` are not looked at.
void check_labels(std::span<const std::int64_t> labels, std::size_t each, std::size_t classes, std::int64_t ignored, std::size_t first = 0);
/// Throws an error that names the first label of no sample, by its index and value, unless there is one for each row of each sample.
void check_label_count(std::span<const std::int64_t> labels, std::size_t samples, const choice_rows& of);
/// Returns how many labels are not `ignored`. Throws an error, which calls them `name`, where that is none.
std::size_t counting_labels(std::span<const std::int64_t> labels, std::int64_t ignored, const std::string& name);
/// Returns "index 3", or "index [1,2]" where there are several labels for each sample: the place of a label as errors name it.
std::string label_index(std::size_t at, std::size_t each);

/// Returns the share of samples (axis 0) whose label is among the k largest of that sample's values, of those whose label is not `ignored`.
/// Of equal values the first counts as larger; NaN counts as smallest. Throws an error if another label is not a class, or none counts.
double top_k(const tensor& output, std::span<const std::int64_t> labels, std::size_t k, std::int64_t ignored = ignored_label);

/// Returns whether one sample's label, a class, is among its k largest values, by the rules of top_k().
bool in_top_k(const tensor& output, std::int64_t label, std::size_t k);

struct output_difference {
    double absolute = 0;  ///< largest |got - expected|; Inf if only one is NaN or they are unequal infinities
    double largest = 0;   ///< largest finite |expected|
    double relative = 0;  ///< absolute over largest (0 over 0 is 0)
};
/// Compares tensors of any numeric types. Throws an error that names the output if the shapes differ.
output_difference compare_outputs(const tensor& got, const tensor& expected, const std::string& name);

}  // namespace qk::graph
