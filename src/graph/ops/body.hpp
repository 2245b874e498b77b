// SPDX-License-Identifier: Apache-2.0
// The body of a composite operator: what it computes, as nodes of the standard's operators. Who knows those knows the composite. Its
// gradient is the tape of its body unless it has one by hand, the walk goes through the body where the row has no rule, and gradient_test
// asks the kernel for the body's values.
#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include <onnx/onnx_pb.h>

#include "graph/model/edit.hpp"
#include "graph/ops/op.hpp"
#include "qk/graph/model/model.hpp"

namespace qk::graph::ops {

class op_body {
  public:
    using value = int;                ///< within the body, which begins with the inputs of the call; -1: left out
    static constexpr int opset = 24;  ///< of the nodes

    struct node {
        onnx::NodeProto proto;
        node_view view{proto, opset};
        const op_entry* op = nullptr;
        std::vector<value> inputs, outputs;
    };

    /// Makes the body of a call of a row that has one.
    op_body(const node_view& call, const op_entry& row) : call_(&call), values_(call.proto().input_size()) { row.body(*this); }
    op_body(const op_body&) = delete;
    op_body& operator=(const op_body&) = delete;

    const node_view& call() const { return *call_; }
    value input(int i) const { return i < call_->proto().input_size() && !call_->proto().input(i).empty() ? i : -1; }

    /// Adds a node with attributes, pairs of a name and what set_attribute takes; returns its first output. Others have the next numbers.
    template <class... Values>
    value add(const char* op, std::vector<value> inputs, const std::pair<const char*, Values>&... attributes) {
        return add_node(op, std::move(inputs), 1, attributes...);
    }
    template <class... Values>
    value add_node(const char* op, std::vector<value> inputs, int outputs, const std::pair<const char*, Values>&... attributes) {
        node& n = nodes_.emplace_back();
        n.proto.set_op_type(op);
        n.proto.set_name(std::string(call_->name()));
        n.op = find_op("", op, opset);
        if (n.op == nullptr) call_->fail(std::string("its body has an operator that is not known: ") + op);
        for (const value v : inputs) n.proto.add_input(v < 0 ? std::string() : "v" + std::to_string(v));
        n.inputs = std::move(inputs);
        for (int k = 0; k < outputs; ++k) {
            n.proto.add_output("v" + std::to_string(values_));
            n.outputs.push_back(values_++);
        }
        (graph::detail::set_attribute(n.proto, attributes.first, attributes.second), ...);
        return n.outputs.front();
    }
    /// Adds a number in the type of another value.
    value number(float v, value like) {
        const value made = add("Constant", {}, std::pair("value_float", v));
        return add("CastLike", {made, like});
    }
    /// Says which value output k of the call is; -1: the body does not make it.
    void give(std::size_t k, value v) {
        if (k >= outputs_.size()) outputs_.resize(k + 1, -1);
        outputs_[k] = v;
    }

    int values() const { return values_; }
    const std::deque<node>& nodes() const { return nodes_; }
    value output(std::size_t k) const { return k < outputs_.size() ? outputs_[k] : -1; }

  private:
    const node_view* call_;
    int values_;
    std::deque<node> nodes_;
    std::vector<value> outputs_;
};

}  // namespace qk::graph::ops
