// SPDX-License-Identifier: Apache-2.0
// Measures plans: one model output against its reference, over the samples of a session.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "qk/graph/evaluate/session.hpp"
#include "qk/graph/search/metric.hpp"
#include "qk/graph/search/metric_server.hpp"
#include "qk/graph/search/positions.hpp"
#include "qk/graph/search/trials.hpp"

namespace qk::graph {

/// A user's own measure of one model output over all samples: outputs and reference joined on axis 0, labels empty if there are none.
using user_metric = std::function<double(const tensor& outputs, const tensor& reference, std::span<const std::int64_t> labels)>;

/// Runs `command OUTPUT.npy REFERENCE.npy [LABELS.npy]` through the shell; the first number it prints on standard output is the metric.
/// Error naming the command if it fails or prints no number.
user_metric metric_from_command(const std::string& command);

struct score_options {
    std::string metric = "l2";
    user_metric user{};                               ///< instead of `metric`
    std::shared_ptr<metric_server> server = nullptr;  ///< likewise, a program of the user's own
    bool user_higher_is_better = false;
    std::string user_name{};  ///< the command, or whatever identifies it in a cache
    bool has_user() const { return user || server; }
    int output_index = 0;              ///< which model output; out of range is an error
    std::vector<std::int64_t> labels;  ///< one for each sample, or one for each of its positions
    position_options positions{};
    named_tensors float_outputs{};  ///< of the same inputs, if calibrate() gave them: saves a run
    session_options session;
};

/// Holds the samples, the labels and the reference outputs.
class scorer {
  public:
    /// The reference is the model's own float output until set_reference() says otherwise. Labels: positions.hpp.
    scorer(const model& m, named_tensors inputs, score_options options);

    /// Scores count from the outputs under `plan` from now on.
    void set_reference(const precision_plan& plan);

    void rest() { session_.rest(); }  ///< session::rest
    /// session::hold.
    void hold(const std::string& name, const quantizer& how, const tensor& value) { session_.hold(name, how, value); }

    std::vector<score> operator()(std::span<const precision_plan> candidates);
    /// About what a candidate's metric will be: that of a sixteenth of the samples. Nothing where that says little, or a user measures.
    std::optional<double> peek(const precision_plan& candidate);
    /// What the reference itself scores: 0 errors, and the accuracy that drops are counted from.
    score reference_score();

    const qk::graph::metric& measure() const { return metric_; }
    /// Metric, output and labels as text: part of what identifies a measurement.
    std::string description() const;
    std::size_t samples() const { return session_.samples(); }
    const session_statistics& statistics() const { return session_.statistics(); }

  private:
    void take_reference(const tensor& all);
    std::vector<float> sample_of(const tensor& output) const;
    /// The terms of a sample, and its mean squared error.
    std::pair<metric_terms, double> terms_of(std::size_t sample, std::span<const tensor> outputs) const;
    score finish(std::span<const metric_terms> terms, std::span<const double> errors) const;
    std::vector<score> score_whole(std::span<const precision_plan> candidates);
    std::vector<score> measure_whole(std::span<const precision_plan> candidates);
    double measure_user(const tensor& outputs, const precision_plan& plan) const;
    void share(std::vector<double>& values) const;  ///< added up over processes
    void share(std::vector<metric_terms>& terms) const;

    score_options options_;
    qk::graph::metric metric_;
    qk::graph::positions positions_;
    session session_;
    std::string output_name_;
    std::vector<std::vector<float>> reference_;  ///< of each sample that this process evaluates
    std::vector<dims> reference_shapes_;
    tensor reference_tensor_;        ///< for a user's metric
    precision_plan reference_plan_;  ///< that the reference was computed under
};

}  // namespace qk::graph
