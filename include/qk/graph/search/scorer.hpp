// SPDX-License-Identifier: Apache-2.0
// Scores plans: compares one model output with its reference, over the samples of a session.
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
#include "qk/graph/search/spread.hpp"
#include "qk/graph/search/trials.hpp"

namespace qk::graph {

/// A user's own metric of one model output over all samples: outputs and reference are joined on axis 0; labels are empty if there are
/// none.
using user_metric = std::function<double(const tensor& outputs, const tensor& reference, std::span<const std::int64_t> labels)>;

/// The same for a program that looks at every output: all of the model's outputs and their references, in the model's order.
using outputs_metric =
    std::function<double(std::span<const tensor> outputs, std::span<const tensor> reference, std::span<const std::int64_t> labels)>;
/// A user's own metric of a whole model, as it is exported.
using model_metric = std::function<double(const model& m)>;

/// Scores plans elsewhere, with the same measure: on other machines.
using remote_scores = std::function<std::vector<score>(std::span<const precision_plan> candidates)>;

/// Returns a metric that runs `command OUTPUT.npy REFERENCE.npy [LABELS.npy]` through the shell and reads the number that its standard
/// output begins with. It throws an error with the command if that fails or prints no number.
user_metric metric_from_command(const std::string& command);

struct score_options {
    std::string metric = "l2";
    user_metric user{};                                           ///< a user's function, instead of `metric`
    std::shared_ptr<metric_server> server = nullptr;              ///< a user's program, instead of `metric`
    outputs_metric of_outputs{};                                  ///< a user's function of all outputs, instead of `metric`
    bool of_any_samples = false;                                  ///< of_outputs may be asked about samples that are drawn again
    std::function<double(const precision_plan& plan)> of_plan{};  ///< a user's function of what the plan makes, instead of `metric`
    remote_scores elsewhere{};                                    ///< scores every candidate; here only the reference is measured
    bool user_higher_is_better = false;
    std::string user_name{};   ///< the command, or whatever identifies it in a cache
    std::string user_title{};  ///< what results and pages call it; empty: "user"
    bool has_user() const { return user || server || of_outputs || of_plan; }
    int output_index = 0;              ///< model output that is measured; out of range is an error
    std::vector<std::int64_t> labels;  ///< one for each sample, or one for each of its positions
    position_options positions{};
    named_tensors float_outputs{};  ///< float outputs of the same inputs, if calibrate() returned them: saves a run
    session_options session;
};

/// Holds the samples, the labels and the reference outputs.
class scorer {
  public:
    /// The reference is the model's own float output until set_reference() changes it. Labels: see positions.hpp.
    scorer(const model& m, named_tensors inputs, score_options options);

    /// Makes the outputs under `plan` the reference from now on.
    void set_reference(const precision_plan& plan);

    void rest() { session_.rest(); }  ///< frees packed weights (session::rest)
    /// Sets the value that a constant has under a quantizer (session::hold).
    void hold(const std::string& name, const quantizer& how, const tensor& value) { session_.hold(name, how, value); }

    std::vector<score> operator()(std::span<const precision_plan> candidates);
    /// Scores plans in this process, also where trials are measured elsewhere.
    std::vector<score> here(std::span<const precision_plan> candidates);
    /// Estimates a candidate's metric from a sixteenth of the samples. Returns nullopt where these are too few or a user's metric measures.
    std::optional<double> peek(const precision_plan& candidate);
    /// Returns the terms of each sample for the last candidates that were scored, one candidate behind the other; none with a user's
    /// metric.
    std::span<const metric_terms> last_terms() const { return last_terms_; }
    /// Measures two plans on the same samples, and what chance may make of it. With a user's metric of outputs by 40 draws of samples, if
    /// it may be asked about them and a call takes less than 50 ms; else nullopt, and with another program's metric, or one of models.
    std::optional<measured_difference> compare(const precision_plan& before, const precision_plan& after);
    /// Returns the score of the reference itself: its error is 0, and its accuracy is the one that drops are counted from.
    score reference_score();

    const qk::graph::metric& measure() const { return metric_; }
    /// Returns what the measure is called: a user's function by its name, with "()" where a metric of qk's has that name.
    std::string title() const;
    /// Returns metric, output and labels as text: part of what identifies a measurement.
    std::string description() const;
    std::size_t samples() const { return session_.samples(); }
    const session_statistics& statistics() const { return session_.statistics(); }

  private:
    void take_reference(const tensor& all);
    std::vector<float> sample_of(const tensor& output) const;
    /// Returns the terms of a sample and its mean squared error.
    std::pair<metric_terms, double> terms_of(std::size_t sample, std::span<const tensor> outputs) const;
    score finish(std::span<const metric_terms> terms, std::span<const double> errors) const;
    std::vector<score> score_samples(std::span<const precision_plan> candidates);
    std::vector<score> score_whole(std::span<const precision_plan> candidates);
    std::vector<score> measure_whole(std::span<const precision_plan> candidates);
    double measure_user(const named_tensors& outputs, const precision_plan& plan) const;
    score score_of(const named_tensors& outputs, const precision_plan& plan) const;
    std::vector<named_tensors> outputs_of(std::span<const precision_plan> candidates);
    bool joins_simply() const;  ///< outputs of samples stand one behind the other
    std::vector<tensor> in_order(const named_tensors& outputs) const;
    void share(std::vector<double>& values) const;  ///< sums values over processes
    void share(std::vector<metric_terms>& terms) const;

    std::optional<measured_difference> compare_by_user(std::span<const precision_plan> both);

    score_options options_;
    std::vector<metric_terms> last_terms_;
    qk::graph::metric metric_;
    qk::graph::positions positions_;
    session session_;
    std::string output_name_;
    std::vector<std::vector<float>> reference_;  ///< output of each sample that this process evaluates
    std::vector<dims> reference_shapes_;
    tensor reference_tensor_;         ///< for a user's metric
    named_tensors references_;        ///< for a user's metric of all outputs
    std::vector<std::string> names_;  ///< of the model's outputs
    precision_plan reference_plan_;   ///< plan that the reference was computed under
};

}  // namespace qk::graph
