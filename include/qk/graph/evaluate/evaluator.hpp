// SPDX-License-Identifier: Apache-2.0
// Runs a model on the CPU under a precision plan, without rewriting it. Outputs have the same bits for any number of threads and, unless
// the model mixes samples, for any batch.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "qk/graph/base/limits.hpp"
#include "qk/graph/base/tensor.hpp"
#include "qk/graph/model/model.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph {

/// Instead of an axis: the samples stand along none, so the whole input is one sample, or each file of a folder.
inline constexpr int no_batch_axis = -1;

/// Tensors by name. If the data is ragged (samples with shapes of their own), the tensor holds each sample padded to the longest, and
/// `ragged` the shape of each sample. Samples run without their padding.
struct named_tensors : std::map<std::string, tensor> {
    using std::map<std::string, tensor>::map;
    std::map<std::string, std::vector<dims>> ragged{};
    std::optional<int> batch_axis{};            ///< of data: the axis that samples stand along, if the user says it
    std::map<std::string, int> joined_along{};  ///< of outputs: where samples are joined along another axis than 0
    std::vector<std::size_t> left_out{};        ///< samples of the data as given that are not here, ascending; their labels go, too
};

struct evaluate_options {
    int threads = 0;              ///< 0: one per core
    int batch = 0;                ///< rows in one run of a model whose rows are no samples by themselves; 0: all. Others run one by one
    bool keep_outputs = true;     ///< false: a run returns no outputs, to save memory where only the observer matters
    bool any_order = false;       ///< the observer accepts a value's elements in any order, which saves conversions
    bool plain_kernels = false;   ///< use Eigen even if oneDNN is available, as a reference for the fast path
    bool packed_weights = false;  ///< products keep weights under a quantizer as codes, in a quarter of the memory or less: their sums have
                                  ///< another order, that of MatMulNBits (qk/product.hpp)
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
    /// Receives a sample's outputs in the model's order, as they are for that sample alone (the whole output if axis 0 does not divide
    /// among the samples of a run). Called from several threads at once, in no particular order. The tensors are valid during the call
    /// only.
    std::function<void(std::size_t sample, std::span<const tensor> outputs)> take;
};

struct evaluate_result {
    named_tensors outputs;  ///< joined on axis 0, or where the samples stand in them
    std::size_t samples = 0;
    bool one_by_one = false;        ///< each sample ran alone, because the graph keeps them apart
    std::string whole;              ///< otherwise, why rows ran together; empty if there is one sample
    std::size_t packed_layers = 0;  ///< products that multiplied by packed weights
    double seconds = 0;             ///< time of the runs, without loading, preparation and the consumer's work
    std::size_t peak_bytes = 0;     ///< sum over all threads of the most that each one's arena held
};

/// Returns whether the evaluator knows the node's operator in the model's opset, or the model defines it as a function.
bool can_evaluate(const model& m, const onnx::NodeProto& node);

/// A model prepared to run many times. Runs of one evaluator must not overlap; each uses `threads` threads.
class evaluator {
  public:
    explicit evaluator(const model& m, evaluate_options options = {});
    ~evaluator();
    evaluator(evaluator&&) noexcept;
    evaluator& operator=(evaluator&&) noexcept;

    /// Batching rule: if every input fits the model's shapes, symbols bound consistently, and the graph keeps rows along the leading symbol
    /// apart (execute/batch_axis.hpp), each row is a sample; if it does not, or that cannot be decided, the data runs as a whole (see
    /// batch_remark). Otherwise, if every input is N times a fixed leading length, each of these is a sample. Outputs are joined. Otherwise
    /// an error names the input. `inputs.batch_axis` overrides this.
    evaluate_result run(const named_tensors& inputs, const precision_plan& plan = {}, const tensor_observer& observe = {},
                        const progress& report = {}, const output_consumer& consume = {}) const;

    const model& source() const;

  private:
    struct state;
    std::unique_ptr<state> state_;
};

/// Says in a sentence why data runs as a whole though its first axis is open: which node computes with several rows, or could not be
/// decided. Empty if samples run one by one, or the data has one.
std::string batch_remark(const model& m, const named_tensors& inputs);

}  // namespace qk::graph
