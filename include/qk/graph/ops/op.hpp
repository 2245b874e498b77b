// SPDX-License-Identifier: Apache-2.0
// What an operator is to the evaluator: an entry of the table, and the view of one node's call that its function gets.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qk/graph/base/tensor.hpp"

namespace onnx {
class AttributeProto;
class GraphProto;
class NodeProto;
}  // namespace onnx

namespace qk::graph {

/// A node as operators see it: attributes by name, and the version of its domain that the model imports.
/// Every getter names the node in its error. Attribute values of a function body are already bound.
class node_view {
  public:
    node_view(const onnx::NodeProto& proto, int version) : proto_(&proto), version_(version) {}
    const onnx::NodeProto& proto() const { return *proto_; }
    int version() const { return version_; }  ///< opset version of this node's domain in the model
    std::string_view op_type() const;
    std::string_view name() const;

    bool has(std::string_view attribute) const;
    std::int64_t get_int(std::string_view attribute, std::int64_t otherwise) const;
    float get_float(std::string_view attribute, float otherwise) const;
    std::string get_string(std::string_view attribute, std::string_view otherwise) const;
    std::vector<std::int64_t> get_ints(std::string_view attribute, std::vector<std::int64_t> otherwise = {}) const;
    std::vector<float> get_floats(std::string_view attribute, std::vector<float> otherwise = {}) const;
    std::vector<std::string> get_strings(std::string_view attribute) const;
    tensor get_tensor(std::string_view attribute) const;                  ///< error if absent
    const onnx::GraphProto& get_graph(std::string_view attribute) const;  ///< error if absent

    /// Throws error: "node 'conv1' (Conv): <what>".
    [[noreturn]] void fail(const std::string& what) const;

  private:
    const onnx::AttributeProto* find(std::string_view attribute) const;
    const onnx::NodeProto* proto_;
    int version_;
};

class op_context;

/// Work done once for a node (weights packed, primitives built) and used in every run. Called from many threads at once: run is const.
class prepared_op {
  public:
    virtual ~prepared_op() = default;
    virtual void run(op_context& call) const = 0;
};

/// One call of one node: inputs are read, outputs are made with output().
class op_context {
  public:
    using subgraph_runner = std::function<std::vector<tensor>(const onnx::GraphProto&, std::span<const tensor>)>;

    op_context(const node_view& node, std::span<const tensor> inputs, std::span<tensor> outputs, allocator& memory,
               const subgraph_runner& subgraphs)
        : node_(&node), inputs_(inputs), outputs_(outputs), memory_(&memory), subgraphs_(&subgraphs) {}

    const node_view& node() const { return *node_; }
    [[noreturn]] void fail(const std::string& what) const { node_->fail(what); }

    std::size_t input_count() const { return inputs_.size(); }
    bool has_input(std::size_t i) const { return i < inputs_.size() && !inputs_[i].empty(); }
    /// Input i; an error naming the node if the model leaves it out.
    const tensor& input(std::size_t i) const {
        if (!has_input(i)) fail_without_input(i);
        return inputs_[i];
    }

    std::size_t output_count() const { return outputs_.size(); }
    /// Output i is named by the model and somebody may read it.
    bool wants(std::size_t i) const { return i < outputs_.size(); }
    /// Makes output i with uninitialised elements. Outputs that nobody wants get a scratch tensor all the same.
    tensor& output(std::size_t i, data_type type, dims shape);
    /// Makes output i share an existing tensor (Reshape, Identity).
    tensor& set_output(std::size_t i, tensor value);
    /// Uninitialised working memory that lives as long as the returned tensor.
    tensor scratch(data_type type, dims shape);
    /// The same call with other inputs and outputs, for an operator that is computed by way of another.
    op_context with(std::span<const tensor> inputs, std::span<tensor> outputs) const {
        return {*node_, inputs, outputs, *memory_, *subgraphs_};
    }
    /// And read as another operator's node (its attributes under another version).
    op_context with(const node_view& node, std::span<const tensor> inputs, std::span<tensor> outputs) const {
        return {node, inputs, outputs, *memory_, *subgraphs_};
    }
    /// Runs a graph attribute (If, Loop, Scan) with the given inputs; outer values are visible to it by name.
    std::vector<tensor> run_subgraph(const onnx::GraphProto& graph, std::span<const tensor> inputs) { return (*subgraphs_)(graph, inputs); }

  private:
    [[noreturn]] void fail_without_input(std::size_t i) const;

    const node_view* node_;
    std::span<const tensor> inputs_;
    std::span<tensor> outputs_;
    allocator* memory_;
    const subgraph_runner* subgraphs_;
    tensor discarded_;
};

/// What `prepare` sees: the node, and those inputs that are constants of the model (others are empty tensors).
struct prepare_context {
    const node_view& node;
    std::span<const tensor> constants;
};

/// A line of the table. `since` is the first opset version that this entry serves; the entry with the largest since <= the model's version
/// wins.
struct op_entry {
    std::string_view domain;  ///< "" is ai.onnx
    std::string_view name;
    int since;
    void (*run)(op_context&);
    std::unique_ptr<prepared_op> (*prepare)(const prepare_context&) = nullptr;  ///< may return nullptr: use run
};

/// Every operator the evaluator knows (ops/table.hpp); nullptr when the operator or version is unknown.
const op_entry* find_op(std::string_view domain, std::string_view name, int version);

}  // namespace qk::graph
