// SPDX-License-Identifier: Apache-2.0
// Every named tensor of a network as it is multiplied: `qk evaluate --dump` writes them, `qk diff` compares them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/model/model.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph::pipeline {

/// A tensor of the network: an input, a constant that a plan quantizes, or what a node makes.
struct traced_tensor {
    std::string name;                ///< unique; "tensor -> reader" where readers take it through quantizers of their own
    std::string tensor;              ///< its name in the network
    std::string node, op_type;       ///< what makes it; empty for inputs and constants
    std::optional<quantizer> how{};  ///< the quantizer that it has passed
    bool constant = false;           ///< it is the same for all samples
    bool mixed = false;              ///< readers quantize it each in its own way: this is the value before them
};

/// Returns the tensors in the order in which the network computes them. Values that are no tensors (sequences) are left out.
std::vector<traced_tensor> trace_tensors(const model& m, const precision_plan& plan);

/// A model that gives tensors of another one as outputs, through Identity nodes; their names are what the functions below return.
class tapped_model {
  public:
    tapped_model(model m, precision_plan plan) : model_(std::move(m)), plan_(std::move(plan)) {}
    /// Adds an output that is `tensor` behind this quantizer; returns its name.
    std::string tap(const std::string& tensor, const quantizer* how);
    onnx::GraphProto& graph() { return model_.graph(); }
    precision_plan& plan() { return plan_; }
    /// Runs all samples of `inputs` together.
    named_tensors run(const named_tensors& inputs, int threads);

  private:
    model model_;
    precision_plan plan_;
    std::size_t taps_ = 0;
    std::optional<evaluator> runs_;
};

/// Returns data as the runs that it takes: one, or where the model fixes the number of rows, or samples differ in shape, one a sample.
std::vector<named_tensors> runs_of(const model& m, const named_tensors& inputs);

/// Returns the value of every traced tensor, by its name, for each of the runs.
class tensor_source {
  public:
    tensor_source(const model& m, const precision_plan& plan, const std::vector<traced_tensor>& tensors, int threads);
    std::map<std::string, tensor> run(const named_tensors& inputs);

  private:
    tapped_model all_;
    std::vector<std::pair<std::string, std::string>> names_;  ///< of the tensor, of the output
    int threads_;
};

/// Returns names of files without ending, one for each name: made safe for file systems, cut where they would refuse it ("features~"), and
/// numbered where a name before it has that file ("a_b-2").
std::vector<std::string> file_names_for(const std::vector<std::string>& names);

/// Writes tensors, run by run, into a folder that appears whole or not at all.
class tensor_dump {
  public:
    /// Throws where `folder` exists and is neither empty nor (with `overwrite`) a dump.
    tensor_dump(std::filesystem::path folder, bool overwrite, std::string model, std::vector<traced_tensor> tensors);
    ~tensor_dump();
    tensor_dump(const tensor_dump&) = delete;
    tensor_dump& operator=(const tensor_dump&) = delete;
    void add(std::map<std::string, tensor> run);
    /// Writes index.json and puts the folder in place. Returns the number of tensors in it.
    std::size_t commit(std::size_t samples);

  private:
    std::filesystem::path folder_, beside_;
    std::string model_;
    std::vector<traced_tensor> tensors_;
    std::vector<std::map<std::string, tensor>> runs_;
};

/// Reads a folder of tensors as tensor_dump writes it, or NAME.npy without an index.
class tensor_folder {
  public:
    tensor_folder(const std::filesystem::path& folder, const std::vector<traced_tensor>& tensors);
    std::size_t runs() const { return runs_; }  ///< 0: the folder does not say
    /// Returns what the folder has of run number `run` of `all`. A tensor that does not divide among the runs is an error that names its
    /// file.
    std::map<std::string, tensor> run(std::size_t run, std::size_t all) const;

  private:
    struct entry {
        std::string name;
        std::filesystem::path file;
        std::vector<dims> shapes;  ///< of each run; empty: the file divides evenly along axis 0
        bool constant = false;
    };
    std::vector<entry> entries_;
    std::size_t runs_ = 0;
};

}  // namespace qk::graph::pipeline
