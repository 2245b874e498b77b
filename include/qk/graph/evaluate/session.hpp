// SPDX-License-Identifier: Apache-2.0
// Evaluates many plans on one set of samples, the inner loop of every search. What two plans have in common upstream is computed once.
//
// A call of evaluate() merges all its candidates into one program in which a value exists once for a given set of upstream
// quantizers; each sample then runs through that program alone, on one thread. So
//   - give many candidates in one call (a whole sensitivity sweep, a chain of nested plans): they share their common prefix;
//     candidates of different calls share quantized weights and packed primitives, and nothing else;
//   - memory is one sample's shared values for each thread, whatever the number of samples and candidates;
//   - scores do not depend on the number of threads, nor on which other candidates stand in the same call.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "qk/graph/base/ranks.hpp"
#include "qk/graph/evaluate/evaluator.hpp"

namespace qk::graph {

struct session_options {
    int threads = 0;             ///< 0: one per core
    ranks together{};            ///< processes that divide the samples; each evaluates its own share
    std::function<bool()> stop;  ///< called between samples, from several threads; true ends the call early
};

/// Totals over all calls of evaluate() and outputs() on one object.
struct session_statistics {
    std::size_t evaluations = 0;              ///< candidates evaluated
    std::size_t layer_evaluations = 0;        ///< layers (Conv, ConvTranspose, Gemm, MatMul) computed, each over all samples
    std::size_t naive_layer_evaluations = 0;  ///< layers that would be computed if each candidate ran alone
    double seconds = 0;                       ///< inside evaluate() and outputs(), including the preparation of programs
    std::size_t peak_bytes = 0;               ///< sum over all threads of the most that each one's arena held
};

/// Returns the score of a candidate on one sample from the model's outputs (in the model's order, as they are for the sample alone). Called
/// once for each (candidate, sample), from several threads at once and in no particular order: keep state, if there is any, by sample.
using sample_metric = std::function<double(std::size_t candidate, std::size_t sample, std::span<const tensor> outputs)>;

class session {
  public:
    /// Keeps `inputs` (shared, not copied) and cuts them into samples by the batching rule of evaluator::run.
    session(const model& m, named_tensors inputs, session_options options = {});
    ~session();
    session(session&&) noexcept;
    session& operator=(session&&) noexcept;

    std::size_t samples() const;

    /// Returns scores[candidate][sample]; empty if `stop` returned true. Calls must not overlap. If there are several processes, all must
    /// make the same calls, and `metric` is called for each sample in one of them.
    std::vector<std::vector<double>> evaluate(std::span<const precision_plan> candidates, const sample_metric& metric);

    /// Frees the weights that runs have packed; the next run packs them again.
    void rest();

    /// Calls `metric` for the first `samples` samples only, with candidate number 0; the statistics do not count it. Returns false if the
    /// rows are no samples, there are fewer samples, they are divided among processes, or `stop` returned true.
    bool peek(const precision_plan& candidate, std::size_t samples, const sample_metric& metric);

    /// Replaces the constant `name` under the quantizer `how` by `value` under `how`, in programs that are made from now on. Used for
    /// weights that are not each rounded to the nearest.
    void hold(const std::string& name, const quantizer& how, const tensor& value);

    /// Returns the outputs under one plan, joined on axis 0: the same bits as evaluator::run.
    named_tensors outputs(const precision_plan& plan);

    const session_statistics& statistics() const;

  private:
    struct state;
    std::unique_ptr<state> state_;
};

}  // namespace qk::graph
