// SPDX-License-Identifier: Apache-2.0
// Many plans on one set of samples: what two plans have in common upstream is computed once. The inner loop of every search.
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
    ranks together{};            ///< with other processes: each evaluates its own share of the samples
    std::function<bool()> stop;  ///< asked between samples, from several threads; true ends the call early
    bool one_by_one = false;     ///< the model is known not to mix samples: spares the trial that finds out
};

/// Adds up over all calls of a session, of evaluate() and of outputs().
struct session_statistics {
    std::size_t evaluations = 0;              ///< candidates evaluated
    std::size_t layer_evaluations = 0;        ///< layers (Conv, ConvTranspose, Gemm, MatMul) computed, each over all samples
    std::size_t naive_layer_evaluations = 0;  ///< what evaluating each candidate alone would have computed
    double seconds = 0;                       ///< inside evaluate(), preparation of programs included
    std::size_t peak_bytes = 0;               ///< most that the arenas of all threads held at once
};

/// What a candidate is worth on one sample, from the model's outputs (in the model's order; leading dimension 1). Called once for each
/// (candidate, sample), from several threads at once, in no particular order: keep state per sample if there is any.
using sample_metric = std::function<double(std::size_t candidate, std::size_t sample, std::span<const tensor> outputs)>;

class session {
  public:
    /// Holds `inputs` (shared, not copied), cut into samples by the batching rule of evaluator::run.
    session(const model& m, named_tensors inputs, session_options options = {});
    ~session();
    session(session&&) noexcept;
    session& operator=(session&&) noexcept;

    std::size_t samples() const;

    /// scores[candidate][sample]; empty if `stop` said so. Calls must not overlap. With several processes all make the same calls, and
    /// `metric` sees each sample on one of them.
    std::vector<std::vector<double>> evaluate(std::span<const precision_plan> candidates, const sample_metric& metric);

    /// Lets go of the weights that runs have packed; the next run packs them again.
    void rest();

    /// The same of the first `samples` alone, which the statistics leave out; the others score 0. False: the model mixes samples, or they
    /// are divided among processes, or `stop` said so.
    bool peek(const precision_plan& candidate, std::size_t samples, const sample_metric& metric);

    /// From now on the constant `name` under this quantizer is `value` under it: weights that were rounded another way than each to the
    /// nearest. Programs that exist already keep what they have.
    void hold(const std::string& name, const quantizer& how, const tensor& value);

    /// The outputs of one plan, joined on axis 0: the same bits as evaluator::run.
    named_tensors outputs(const precision_plan& plan);

    const session_statistics& statistics() const;

  private:
    struct state;
    std::unique_ptr<state> state_;
};

}  // namespace qk::graph
