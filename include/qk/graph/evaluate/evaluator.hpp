// SPDX-License-Identifier: Apache-2.0
// Runs a model on the CPU under a precision plan, without rewriting it. Outputs have the same bits for any number of threads and, unless
// the model mixes samples, for any batch.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "qk/graph/base/limits.hpp"
#include "qk/graph/base/tensor.hpp"
#include "qk/graph/model/model.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph {

/// Tensors by name. If the data is ragged (samples of different lengths), the tensor holds each sample padded to the longest, and `ragged`
/// the shape of each sample (leading dimension 1). Samples run without their padding.
struct named_tensors : std::map<std::string, tensor> {
    using std::map<std::string, tensor>::map;
    std::map<std::string, std::vector<dims>> ragged{};
};

struct evaluate_options {
    int threads = 0;             ///< 0: one per core
    int batch = 0;               ///< samples in one run of a model that mixes samples; 0: all. Other models run them one by one
    bool keep_outputs = true;    ///< false: a run returns no outputs, to save memory where only the observer matters
    bool any_order = false;      ///< the observer accepts a value's elements in any order, which saves conversions
    bool plain_kernels = false;  ///< use Eigen even if oneDNN is available, as a reference for the fast path
    run_limits limits{};
};

/// Receives values while a model runs, before quantization. Called from several threads, once for each run of samples and tensor; `sample`
/// is the first sample of the run.
using tensor_observer = std::function<void(const std::string& name, const tensor& value, std::size_t sample)>;
/// Receives the number of samples done so far, and of all samples.
using progress = std::function<void(std::size_t done, std::size_t all)>;

/// Receives outputs as they are made, so that they are not kept for every sample.
struct output_consumer {
    std::function<void(std::size_t samples)> begin;  ///< called once, before the first take()
    /// Receives a sample's outputs in the model's order, leading dimension 1 (the whole output if axis 0 does not divide among the samples
    /// of a run). Called from several threads at once, in no particular order. The tensors are valid during the call only.
    std::function<void(std::size_t sample, std::span<const tensor> outputs)> take;
};

struct evaluate_result {
    named_tensors outputs;  ///< joined on axis 0
    std::size_t samples = 0;
    bool one_by_one = false;     ///< each sample ran alone, because the model does not mix them
    double seconds = 0;          ///< time of the runs, without loading, preparation and the consumer's work
    std::size_t peak_bytes = 0;  ///< sum over all threads of the most that each one's arena held
};

/// A model prepared to run many times. Runs of one evaluator must not overlap; each uses `threads` threads.
class evaluator {
  public:
    explicit evaluator(const model& m, evaluate_options options = {});
    ~evaluator();
    evaluator(evaluator&&) noexcept;
    evaluator& operator=(evaluator&&) noexcept;

    /// Batching rule: if every input fits the model's shapes, symbols bound consistently, the data runs as given, cut along the leading
    /// symbol. Otherwise, if every input is N times a fixed leading 1, samples run one by one and outputs are joined on axis 0. Otherwise
    /// an error names the input.
    evaluate_result run(const named_tensors& inputs, const precision_plan& plan = {}, const tensor_observer& observe = {},
                        const progress& report = {}, const output_consumer& consume = {}) const;

    const model& source() const;

  private:
    struct state;
    std::unique_ptr<state> state_;
};

}  // namespace qk::graph
