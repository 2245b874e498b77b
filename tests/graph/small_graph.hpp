// SPDX-License-Identifier: Apache-2.0
// Builds ONNX models of a few nodes, one line of code each, for tests of plans.
#pragma once

#include <onnx/onnx_pb.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "qk/graph/model/model.hpp"

/// Builds a model: inputs, constants with deterministic values, nodes, outputs.
class small_graph {
  public:
    explicit small_graph(int opset = 17) {
        proto_.set_ir_version(8);
        auto* import = proto_.add_opset_import();
        import->set_domain("");
        import->set_version(opset);
        proto_.mutable_graph()->set_name("small");
    }
    small_graph& input(const std::string& name, std::initializer_list<std::int64_t> shape, int type = 1) {
        declare(*proto_.mutable_graph()->add_input(), name, shape, type);
        return *this;
    }
    small_graph& output(const std::string& name, std::initializer_list<std::int64_t> shape) {
        declare(*proto_.mutable_graph()->add_output(), name, shape, 1);
        return *this;
    }
    /// Adds a constant whose element k is scale * (k * 7919 mod 201 - 100) / 100, or `values` if there are any.
    small_graph& constant(const std::string& name, std::initializer_list<std::int64_t> shape, float scale = 1,
                          std::vector<float> values = {}) {
        auto* t = proto_.mutable_graph()->add_initializer();
        t->set_name(name);
        t->set_data_type(1);
        std::int64_t n = 1;
        for (const std::int64_t d : shape) t->add_dims(d), n *= d;
        for (std::int64_t i = 0; i < n; ++i)
            t->add_float_data(values.empty() ? scale * static_cast<float>((i * 7919 % 201) - 100) / 100.0f
                                             : values[static_cast<std::size_t>(i)]);
        return *this;
    }
    small_graph& integers(const std::string& name, std::vector<std::int64_t> values) {
        auto* t = proto_.mutable_graph()->add_initializer();
        t->set_name(name);
        t->set_data_type(7);
        t->add_dims(static_cast<std::int64_t>(values.size()));
        for (const std::int64_t v : values) t->add_int64_data(v);
        return *this;
    }
    /// Adds a node called `name` with one output, which is called `name`_out unless `output` says otherwise.
    onnx::NodeProto& node(const std::string& op, const std::string& name, std::initializer_list<std::string> inputs,
                          std::string output = {}) {
        auto* n = proto_.mutable_graph()->add_node();
        n->set_op_type(op);
        n->set_name(name);
        for (const std::string& i : inputs) n->add_input(i);
        n->add_output(output.empty() ? name + "_out" : output);
        return *n;
    }
    static void set(onnx::NodeProto& n, const std::string& name, std::initializer_list<std::int64_t> values) {
        auto* a = n.add_attribute();
        a->set_name(name);
        a->set_type(onnx::AttributeProto::INTS);
        for (const std::int64_t v : values) a->add_ints(v);
    }
    static void set(onnx::NodeProto& n, const std::string& name, std::int64_t value) {
        auto* a = n.add_attribute();
        a->set_name(name);
        a->set_type(onnx::AttributeProto::INT);
        a->set_i(value);
    }
    qk::graph::model build() const { return qk::graph::model::parse(proto_.SerializeAsString(), {}, "small"); }

  private:
    static void declare(onnx::ValueInfoProto& v, const std::string& name, std::initializer_list<std::int64_t> shape, int type) {
        v.set_name(name);
        auto* t = v.mutable_type()->mutable_tensor_type();
        t->set_elem_type(type);
        t->mutable_shape();
        for (const std::int64_t d : shape) t->mutable_shape()->add_dim()->set_dim_value(d);
    }
    onnx::ModelProto proto_;
};

/// Builds x -> conv1 -> relu1 -> { conv2 -> add <- relu1 } -> relu2 -> pool -> conv3 -> model output y; x has four channels of 8 x 8.
inline qk::graph::model residual_model() {
    small_graph g;
    g.input("x", {1, 4, 8, 8}).output("y", {1, 4, 4, 4});
    for (const char* w : {"w1", "w2", "w3"}) g.constant(w, {4, 4, 1, 1});
    for (const char* b : {"b1", "b2"}) g.constant(b, {4}, 0.1f);
    g.node("Conv", "conv1", {"x", "w1", "b1"});
    g.node("Relu", "relu1", {"conv1_out"});
    g.node("Conv", "conv2", {"relu1_out", "w2", "b2"});
    g.node("Add", "add", {"conv2_out", "relu1_out"});
    g.node("Relu", "relu2", {"add_out"});
    auto& pool = g.node("MaxPool", "pool", {"relu2_out"});
    small_graph::set(pool, "kernel_shape", {2, 2});
    small_graph::set(pool, "strides", {2, 2});
    g.node("Conv", "conv3", {"pool_out", "w3"}, "y");
    return g.build();
}
