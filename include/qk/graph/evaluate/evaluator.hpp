// SPDX-License-Identifier: Apache-2.0
// Runs a model on the CPU under a precision plan, without rewriting it. Deterministic: the same bits for any number of threads and any
// batch.
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

/// Tensors by name. Of ragged data, samples of different lengths, the tensor holds each sample padded to the longest, and `ragged` the
/// shape that each has (leading dimension 1): what runs is the sample without its padding.
struct named_tensors : std::map<std::string, tensor> {
    using std::map<std::string, tensor>::map;
    std::map<std::string, std::vector<dims>> ragged{};
};

struct evaluate_options {
    int threads = 0;             ///< 0: one per core
    int batch = 0;               ///< samples handed to one run; 0: chosen here. Bits do not depend on it for models that do not mix samples
    bool keep_outputs = true;    ///< false: a run's result has none, for who only observes and must not hold a value for every sample
    bool any_order = false;      ///< the observer takes a value's elements in any order: spares it conversions
    bool plain_kernels = false;  ///< Eigen even where oneDNN is there: what the fast path is compared with
    run_limits limits{};
};

/// What the evaluator tells while it runs; called from several threads, once per sample chunk and tensor, before quantization.
using tensor_observer = std::function<void(const std::string& name, const tensor& value, std::size_t sample)>;
/// Samples done so far, of all.
using progress = std::function<void(std::size_t done, std::size_t all)>;

/// Who takes outputs as they are made, so that nobody holds them for every sample.
struct output_consumer {
    std::function<void(std::size_t samples)> begin;  ///< once, before the first
    /// A sample's outputs in the model's order, leading dimension 1 (whole where axis 0 does not divide among the samples of a run); called
    /// from several threads at once, in no particular order. They end with the call.
    std::function<void(std::size_t sample, std::span<const tensor> outputs)> take;
};

struct evaluate_result {
    named_tensors outputs;  ///< joined on axis 0
    std::size_t samples = 0;
    bool one_by_one = false;     ///< the model does not mix samples, so each ran alone
    double seconds = 0;          ///< running alone: without loading, preparation and what a consumer does
    std::size_t peak_bytes = 0;  ///< most that the arenas of all threads held at once
};

/// A model prepared to run many times. Runs of one evaluator must not overlap; each uses `threads` threads.
class evaluator {
  public:
    explicit evaluator(const model& m, evaluate_options options = {});
    ~evaluator();
    evaluator(evaluator&&) noexcept;
    evaluator& operator=(evaluator&&) noexcept;

    /// Batching rule: if every input fits the model's shapes, symbols bound consistently, the data runs as given, split along the leading
    /// symbol; else, if every input is N times a fixed leading 1, sample by sample, joined on axis 0; else an error that names the input.
    evaluate_result run(const named_tensors& inputs, const precision_plan& plan = {}, const tensor_observer& observe = {},
                        const progress& report = {}, const output_consumer& consume = {}) const;

    const model& source() const;

  private:
    struct state;
    std::unique_ptr<state> state_;
};

}  // namespace qk::graph
