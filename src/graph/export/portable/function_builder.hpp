// SPDX-License-Identifier: Apache-2.0
// Builds a model-local function: standard operators in order, with one constant for equal values.
#pragma once

#include <onnx/onnx_pb.h>

#include <map>
#include <string>
#include <vector>

#include "graph/export/graph_writer.hpp"
#include "graph/export/marks.hpp"
#include "graph/model/tensor_proto.hpp"

namespace qk::graph::detail {

/// The name of a value inside a function. Operators return the value that they make.
using operand = std::string;

class function_builder {
  public:
    /// `opset` is the version of the standard operators, which must be the model's: runtimes refuse a function with another one.
    function_builder(const std::string& name, int opset, const std::string& what) : opset_(opset) {
        proto_.set_name(name);
        proto_.set_domain(marks::function_domain);
        proto_.set_doc_string(what);
        proto_.add_opset_import()->set_version(opset);
    }

    operand input(const std::string& name) {
        proto_.add_input(name);
        return name;
    }
    /// Returns a constant with the list of integers that every call passes as attribute `name`.
    operand integers_of_call(const std::string& name) { return of_call(name, "value_ints", onnx::AttributeProto::INTS); }
    operand integer_of_call(const std::string& name) { return of_call(name, "value_int", onnx::AttributeProto::INT); }

    operand op(const std::string& type, const std::vector<operand>& inputs, const std::string& stem = "") {
        return add(type, inputs, stem.empty() ? type : stem).output(0);
    }
    operand cast(const operand& x, data_type to) {
        onnx::NodeProto& n = add("Cast", {x}, "Cast");
        set_attribute(n, "to", static_cast<std::int64_t>(to));
        return n.output(0);
    }
    /// Reduces axes, which stay with length 1. Axes became an input in opset 18, for ReduceSum in 13.
    operand reduce(const std::string& type, const operand& x, const std::vector<std::int64_t>& axes) {
        const bool as_input = opset_ >= (type == "ReduceSum" ? 13 : 18);
        onnx::NodeProto& n = add(type, as_input ? std::vector<operand>{x, integers(axes)} : std::vector<operand>{x}, type);
        if (!as_input) set_attribute(n, "axes", axes);
        set_attribute(n, "keepdims", std::int64_t{1});
        return n.output(0);
    }
    /// Reshapes x to a shape that Shape returned: a length of 0 stays 0 (before opset 14 it means the length that x has there).
    operand reshape(const operand& x, const operand& shape) {
        onnx::NodeProto& n = add("Reshape", {x, shape}, "Reshape");
        if (opset_ >= 14) set_attribute(n, "allowzero", std::int64_t{1});
        return n.output(0);
    }
    operand gather(const operand& x, const operand& index, std::int64_t axis) {
        onnx::NodeProto& n = add("Gather", {x, index}, "Gather");
        set_attribute(n, "axis", axis);
        return n.output(0);
    }
    operand concat(const std::vector<operand>& parts, std::int64_t axis = 0) {
        onnx::NodeProto& n = add("Concat", parts, "Concat");
        set_attribute(n, "axis", axis);
        return n.output(0);
    }

    operand constant(const tensor& t, const std::string& stem) {
        std::string key = std::to_string(static_cast<int>(t.type())) + to_string(t.shape());
        key.append(reinterpret_cast<const char*>(t.bytes()), t.size_bytes());
        const auto [known, fresh] = constants_.try_emplace(key);
        if (!fresh) return known->second;
        onnx::NodeProto& n = add("Constant", {}, stem);
        to_proto(t, "", *add_attribute(n, "value", onnx::AttributeProto::TENSOR).mutable_t());
        return known->second = n.output(0);
    }
    operand number(double v, data_type type) {
        switch (type) {
            case data_type::float64: return constant(make_tensor<double>({}, std::vector<double>{v}), "c");
            case data_type::int64:
                return constant(make_tensor<std::int64_t>({}, std::vector<std::int64_t>{static_cast<std::int64_t>(v)}), "c");
            default: return constant(make_tensor<float>({}, std::vector<float>{static_cast<float>(v)}), "c");
        }
    }
    operand integers(const std::vector<std::int64_t>& v) {
        return constant(make_tensor<std::int64_t>({static_cast<std::int64_t>(v.size())}, v), "i");
    }

    /// Names the result "y" in the node that makes it, without an Identity: each node costs one in every call that a runtime inlines.
    onnx::FunctionProto finish(const operand& result) {
        proto_.add_output("y");
        bool made = false;
        for (auto& n : *proto_.mutable_node()) {
            for (std::string& i : *n.mutable_input())
                if (i == result) i = "y";
            for (std::string& o : *n.mutable_output())
                if (o == result) o = "y", made = true;
        }
        if (!made) throw error("function '" + proto_.name() + "' gives back what no node of its makes");
        return std::move(proto_);
    }

  private:
    operand of_call(const std::string& name, const char* kind, onnx::AttributeProto::AttributeType type) {
        proto_.add_attribute(name);
        onnx::NodeProto& n = add("Constant", {}, name);
        add_attribute(n, kind, type).set_ref_attr_name(name);
        return n.output(0);
    }
    onnx::NodeProto& add(const std::string& type, const std::vector<operand>& inputs, const std::string& stem) {
        onnx::NodeProto& n = *proto_.add_node();
        n.set_op_type(type);
        for (const operand& i : inputs) n.add_input(i);
        const std::string name = stem + "_" + std::to_string(++count_);
        n.set_name(proto_.name() + "/" + name);
        n.add_output(name);
        return n;
    }
    onnx::FunctionProto proto_;
    int opset_, count_ = 0;
    std::map<std::string, operand> constants_;
};

}  // namespace qk::graph::detail
