// SPDX-License-Identifier: Apache-2.0
#include <onnx/onnx_pb.h>

#include <optional>

#include "graph/ops/op.hpp"
#include "graph/ops/widened.hpp"
#include "graph/quantize/divide_channels.hpp"
#include "qk/graph/model/attribute.hpp"
#include "qk/graph/plan/layers.hpp"

namespace qk::graph::detail {
namespace {

/// Returns a constant of floats as float32, or nullopt for anything else.
std::optional<tensor> floats_of(const model& m, const std::string& name) {
    if (name.empty() || !m.is_constant(name)) return std::nullopt;
    tensor t = ops::widened(m.constant(name));
    return t.type() == data_type::float32 ? std::optional(std::move(t)) : std::nullopt;
}

bool along_last(const std::optional<tensor>& t, std::size_t channels) {
    return t && t->rank() > 0 && t->size() == channels && static_cast<std::size_t>(t->shape().back()) == channels;
}

tensor divided(const tensor& t, const std::vector<float>& s) {
    tensor y(data_type::float32, t.shape());
    for (std::size_t i = 0; i < y.size(); ++i) y.as<float>()[i] = t.as<float>()[i] / s[i % s.size()];
    return y;
}

bool is_op(const onnx::NodeProto& n, operator_word name) {
    return operator_of(n) == name && (n.domain().empty() || n.domain() == "ai.onnx");
}

/// Divides tensor x by s in constants of the node that makes it, or of the nodes that make its operands. Returns false if that cannot be
/// done. With `change` false the model stays as it is, and the result says whether it can be done.
bool divide_result(model& m, const std::string& x, const std::vector<float>& s, bool change, std::string& into, int depth) {
    const int p = m.producer(x);
    if (p < 0 || depth > 4) return false;
    const onnx::NodeProto& n = m.graph().node(p);
    const auto only_reader = [&](const std::string& t) { return m.uses(t).size() == 1; };
    const auto last_axis = [&] { return int_attribute(n, "axis", -1) == -1; };
    const auto take = [&](std::initializer_list<int> constants) {
        for (const int k : constants)
            if (k < n.input_size() && !n.input(k).empty() && !along_last(floats_of(m, n.input(k)), s.size())) return false;
        if (change)
            for (const int k : constants)
                if (k < n.input_size() && !n.input(k).empty()) replace_constant(m, p, k, divided(*floats_of(m, n.input(k)), s));
        into = n.name();
        return true;
    };
    if (is_op(n, "LayerNormalization") && last_axis()) return take({1, 2});
    if ((operator_of(n) == "RMSNormalization" || operator_of(n) == "SimplifiedLayerNormalization") && last_axis()) return take({1});
    if (is_op(n, "Mul")) {
        for (const int k : {0, 1})
            if (along_last(floats_of(m, n.input(k)), s.size())) return take({k});
        for (const int k : {1, 0})  // only one of the two factors is divided
            if (only_reader(n.input(k)) && divide_result(m, n.input(k), s, false, into, depth + 1))
                return divide_result(m, n.input(k), s, change, into, depth + 1);
        return false;
    }
    if (is_op(n, "Add")) {
        for (const int k : {0, 1}) {
            if (!along_last(floats_of(m, n.input(k)), s.size()) || !only_reader(n.input(1 - k))) continue;
            if (!divide_result(m, n.input(1 - k), s, false, into, depth + 1)) continue;
            if (change) {
                divide_result(m, std::string(m.graph().node(p).input(1 - k)), s, true, into, depth + 1);
                replace_constant(m, p, k, divided(*floats_of(m, m.graph().node(p).input(k)), s));
            }
            return true;
        }
        return false;
    }
    const auto product = product_axes_of(n);
    if (product && !product->windows && product->in != 1 && n.input_size() == 2 &&
        depth > 0) {  // its outputs are the last axis of its weights
        const auto w = floats_of(m, n.input(1));
        if (!w || w->rank() != 2 || static_cast<std::size_t>(w->dim(1)) != s.size()) return false;
        if (change) replace_constant(m, p, 1, divided(*w, s));
        into = n.name();
        return true;
    }
    return false;
}

}  // namespace

void replace_constant(model& m, int node, int index, const tensor& value, const std::string& done) {
    onnx::NodeProto& n = *m.graph().mutable_node(node);
    const std::string name = n.input(index);
    for (auto& held : *m.graph().mutable_initializer()) {
        if (held.name() != name) continue;
        const tensor own = ops::narrowed(value, static_cast<data_type>(held.data_type()));
        if (m.uses(name).size() == 1) return to_proto(own, name, held);
        std::string fresh = name + "_" + done;
        while (m.is_constant(fresh) || m.producer(fresh) >= 0) fresh += "_";
        to_proto(own, fresh, *m.graph().add_initializer());
        n.set_input(index, fresh);
        m.history().add_tensor(
            name, {.name = fresh, .is_node = false, .how = bond::place, .why = "channels were " + done + " for '" + n.name() + "'"});
        return m.reindex();
    }
}

std::string divide_channels(model& m, const std::string& x, const std::vector<int>& readers, const std::vector<float>& s) {
    std::string into;
    if (m.uses(x).size() == readers.size() && divide_result(m, x, s, false, into, 0)) {
        divide_result(m, x, s, true, into, 0);
        return into;
    }
    std::vector<float> inverse;
    for (const float v : s) inverse.push_back(1 / v);
    data_type type = data_type::float32;
    for (const auto& held : m.graph().initializer())
        if (held.name() == m.graph().node(readers.front()).input(1)) type = static_cast<data_type>(held.data_type());
    std::string stem = x + "_scaled";
    while (m.is_constant(stem) || m.producer(stem) >= 0 || m.is_constant(stem + "_by")) stem += "_";
    to_proto(ops::narrowed(make_tensor<float>({static_cast<std::int64_t>(s.size())}, inverse), type), stem + "_by",
             *m.graph().add_initializer());
    for (const int r : readers) m.graph().mutable_node(r)->set_input(0, stem);
    onnx::NodeProto& mul = *m.graph().add_node();
    mul.set_op_type("Mul");
    mul.set_name(stem);
    mul.add_input(x), mul.add_input(stem + "_by"), mul.add_output(stem);
    return {};
}

}  // namespace qk::graph::detail
