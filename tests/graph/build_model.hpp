// SPDX-License-Identifier: Apache-2.0
// Small models made by hand, for tests.
#pragma once

#include <onnx/onnx_pb.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "qk/graph/model/model.hpp"

namespace qk_test {

/// Returns a float32 tensor of normally distributed values with mean 0 and standard deviation `spread`.
inline qk::graph::tensor random_tensor(qk::graph::dims shape, unsigned seed, float spread) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, spread);
    qk::graph::tensor t(qk::graph::data_type::float32, std::move(shape));
    for (float& v : t.as<float>()) v = normal(random);
    return t;
}

struct builder {
    onnx::ModelProto m;

    explicit builder(int opset = 17) {
        m.set_ir_version(8);
        m.add_opset_import()->set_version(opset);
        m.mutable_graph()->set_name("g");
    }
    onnx::GraphProto& g() { return *m.mutable_graph(); }
    static void declare(onnx::ValueInfoProto& v, const std::string& name, const std::vector<std::int64_t>& shape, int type = 1) {
        v.set_name(name);
        auto* t = v.mutable_type()->mutable_tensor_type();
        t->set_elem_type(type);
        for (const std::int64_t d : shape) {
            if (d < 0) t->mutable_shape()->add_dim()->set_dim_param("N");
            else t->mutable_shape()->add_dim()->set_dim_value(d);
        }
    }
    builder& input(const std::string& name, const std::vector<std::int64_t>& shape, int type = 1) {
        declare(*g().add_input(), name, shape, type);
        return *this;
    }
    builder& output(const std::string& name, const std::vector<std::int64_t>& shape, int type = 1) {
        declare(*g().add_output(), name, shape, type);
        return *this;
    }
    builder& constant(const std::string& name, const qk::graph::dims& shape, const std::vector<float>& values) {
        qk::graph::to_proto(qk::graph::make_tensor<float>(shape, values), name, *g().add_initializer());
        return *this;
    }
    onnx::NodeProto& node(const std::string& op, const std::vector<std::string>& in, const std::vector<std::string>& out,
                          const std::string& name = "") {
        auto& n = *g().add_node();
        n.set_op_type(op);
        n.set_name(name);
        for (const auto& s : in) n.add_input(s);
        for (const auto& s : out) n.add_output(s);
        return n;
    }
    std::string bytes() const { return m.SerializeAsString(); }
    qk::graph::model model(const std::filesystem::path& folder = {}) const { return qk::graph::model::parse(bytes(), folder); }
};

inline void set(onnx::NodeProto& n, const std::string& name, std::int64_t v) {
    auto* a = n.add_attribute();
    a->set_name(name);
    a->set_type(onnx::AttributeProto::INT);
    a->set_i(v);
}
inline void set(onnx::NodeProto& n, const std::string& name, const std::vector<std::int64_t>& v) {
    auto* a = n.add_attribute();
    a->set_name(name);
    a->set_type(onnx::AttributeProto::INTS);
    for (const auto i : v) a->add_ints(i);
}

}  // namespace qk_test
