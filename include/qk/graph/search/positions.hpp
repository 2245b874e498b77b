// SPDX-License-Identifier: Apache-2.0
// Which rows of an output a metric counts: in outputs of rank 3 one row for each position of a sequence, without padding.
// docs/guide/search.md.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "qk/graph/evaluate/accuracy.hpp"
#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/model/model.hpp"
#include "qk/graph/search/metric.hpp"

namespace qk::graph {

struct position_options {
    std::string mask;                  ///< the model's input that is 0 where a position is padding; empty: every position counts
    bool next_token = false;           ///< position t is measured against the label of position t + 1
    bool per_position = false;         ///< cosine and l2 per position, not per sequence
    int ignore_label = ignored_label;  ///< samples and positions with this label count in no metric
    friend bool operator==(const position_options&, const position_options&) = default;
};

/// Labels and padding of all samples, and how a metric is computed where an output is [N, S, C].
class positions {
  public:
    positions() = default;
    /// `labels` has one entry for each sample, or one for each of its positions. If it is empty with `next_token`, the labels are the ids
    /// that the model reads. Throws, naming --mask, --labels or --next-token, if an input is missing, sizes do not fit, or no label counts.
    positions(const model& m, const named_tensors& inputs, std::size_t samples, std::vector<std::int64_t> labels, position_options options);

    bool has_labels() const { return !labels_.empty(); }
    const std::vector<std::int64_t>& labels() const { return labels_; }
    /// Returns whether a label says that this sample, of one label, counts nowhere.
    bool is_ignored(std::size_t sample) const { return labels_per_sample_ == 1 && labels_[sample] == options_.ignore_label; }

    /// Throws an error unless the labels of a sample fit its output, of this shape: one for each choice, each a class or ignored.
    void check(const dims& shape, std::size_t sample) const;
    /// Returns the terms of one sample, whose labels it checks; `shape` is that of its output. With rank 3 a metric of choices
    /// (metric::by_position) takes each position by itself, other metrics take all positions that count together.
    metric_terms terms(const metric& m, const dims& shape, std::span<const float> y, std::span<const float> reference,
                       std::size_t sample) const;
    /// Returns the metric from the summed terms of all samples. Throws an error where labels or a mask left nothing to measure.
    double finish(const metric& m, const metric_terms& sums) const;
    /// Returns the options as text: with the labels they identify a measurement.
    std::string description() const;

  private:
    bool by_position(const metric& m) const;
    void read_mask(const model& m, const named_tensors& inputs, std::size_t samples);
    void read_ids(const model& m, const named_tensors& inputs, std::size_t samples);
    bool is_real(std::size_t sample, std::size_t row, const choice_rows& of) const;
    std::optional<std::int64_t> label_of(std::size_t sample, std::size_t row, const choice_rows& of) const;
    bool counts(std::size_t sample, std::size_t row, const choice_rows& of, bool with_label) const;

    position_options options_;
    std::vector<std::int64_t> labels_;
    bool given_ = false;  ///< the labels are the user's, not the model's own ids
    std::size_t labels_per_sample_ = 0, mask_per_sample_ = 0;
    std::vector<char> mask_;
};

/// Returns token ids, or a mask of any type, as integers.
std::vector<std::int64_t> as_integers(const tensor& t);

/// Returns the model's input of token ids: the one whose name ends with "input_ids", or else the first integer input [N, S] that is no
/// mask, type or position. Empty if there is none.
std::string token_input(const model& m, const std::string& mask);

/// Returns labels as a tensor for a user's own metric: [N], or [N,S] where there are several for each sample of the output.
tensor labels_by_sample(std::span<const std::int64_t> labels, const tensor& output);

}  // namespace qk::graph
