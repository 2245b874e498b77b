// SPDX-License-Identifier: Apache-2.0
// raise_opset of export.hpp: where an operator changed between versions, the node is rewritten.
// https://github.com/onnx/onnx/blob/main/docs/Changelog.md
#include <onnx/onnx_pb.h>

#include <algorithm>

#include "qk/graph/export/export.hpp"
#include "qk/graph/export/graph_writer.hpp"
#include "qk/graph/model/edit.hpp"
#include "qk/graph/model/subgraphs.hpp"
#include "qk/graph/ops/op.hpp"

namespace qk::graph {
namespace detail {

/// Rewrites the nodes of one graph, one version after the other.
class opset_raiser {
  public:
    opset_raiser(onnx::GraphProto& g, const model& m, int from, int to) : g_(g), model_(m) {
        const auto add = [&](const auto& infos) {
            for (const auto& v : infos)
                if (v.type().tensor_type().has_shape()) ranks_[v.name()] = v.type().tensor_type().shape().dim_size();
        };
        add(g.value_info()), add(g.input()), add(g.output());
        for (int v = from + 1; v <= to; ++v)
            for (int i = 0, count = g_.node_size(); i < count; ++i) {
                if (!g_.node(i).domain().empty()) continue;
                rewrite(*g_.mutable_node(i), v);
            }
        for (auto& n : *g_.mutable_node()) for_each_subgraph(n, [&](onnx::GraphProto& inner) { opset_raiser(inner, m, from, to); });
    }

  private:
    static bool is(const onnx::NodeProto& n, std::initializer_list<std::string_view> ops) {
        return std::find(ops.begin(), ops.end(), n.op_type()) != ops.end();
    }
    [[noreturn]] void fail(const onnx::NodeProto& n, int version) const {
        throw error(model_.label() + ": node '" + n.name() + "' (" + n.op_type() + ") changed its meaning in opset " +
                    std::to_string(version) +
                    ", which the export needs; convert the model to a newer opset first (onnx.version_converter)");
    }
    std::string constant(const onnx::NodeProto& n, const std::string& what, const tensor& value) {
        const std::string name = n.name() + "/" + what;
        to_proto(value, name, *g_.add_initializer());
        return name;
    }
    static tensor numbers(const std::vector<std::int64_t>& v) {
        return make_tensor<std::int64_t>({static_cast<std::int64_t>(v.size())}, v);
    }
    static void set_input(onnx::NodeProto& n, int index, const std::string& name) {
        while (n.input_size() <= index) n.add_input();
        n.set_input(index, name);
    }
    /// Turns attribute `name`, if there is one, into input `index`: the constant value_of(attribute).
    template <class Value>
    void to_input(onnx::NodeProto& n, const std::string& name, int index, const Value& value_of) {
        const auto* a = find_attribute(n, name);
        if (a == nullptr) return;
        set_input(n, index, constant(n, name, value_of(*a)));
        remove_attribute(n, name);
    }
    void ints_to_input(onnx::NodeProto& n, const std::string& name, int index) {
        to_input(n, name, index, [](const auto& a) { return numbers({a.ints().begin(), a.ints().end()}); });
    }
    void float_to_input(onnx::NodeProto& n, const std::string& name, int index) {
        to_input(n, name, index, [](const auto& a) { return make_tensor<float>({}, std::vector<float>{a.f()}); });
    }
    onnx::NodeProto& add(const std::string& op, const std::string& name, const std::vector<std::string>& in, const std::string& out) {
        auto& n = *g_.add_node();
        n.set_op_type(op);
        n.set_name(name);
        for (const auto& i : in) n.add_input(i);
        n.add_output(out);
        return n;
    }

    void rewrite(onnx::NodeProto& n, int version) {
        switch (version) {
            case 2:
                for (auto& a : *n.mutable_attribute())
                    if (n.op_type() == "Pad" && a.name() == "paddings") a.set_name("pads");
                break;
            case 4:
                if (n.op_type() == "Concat" && !find_attribute(n, "axis")) set_attribute(n, "axis", std::int64_t{1});
                break;
            case 5:
                if (n.op_type() == "Reshape") ints_to_input(n, "shape", 1);
                break;
            case 6: remove_attribute(n, "consumed_inputs"); break;
            case 7: to_7(n); break;
            case 9:
                if (n.op_type() == "BatchNormalization") {
                    if (const auto* a = find_attribute(n, "spatial"); a != nullptr && a->i() == 0) fail(n, version);
                    remove_attribute(n, "spatial");
                } else if (n.op_type() == "Upsample") {
                    if (find_attribute(n, "scales") == nullptr) fail(n, version);
                    to_input(n, "scales", 1, [](const auto& a) {
                        return make_tensor<float>({a.floats_size()}, std::vector<float>(a.floats().begin(), a.floats().end()));
                    });
                } else if (n.op_type() == "Scan") {
                    fail(n, version);
                }
                break;
            case 10:
                if (n.op_type() == "Slice") ints_to_input(n, "starts", 1), ints_to_input(n, "ends", 2), ints_to_input(n, "axes", 3);
                if (n.op_type() == "TopK") to_input(n, "k", 1, [](const auto& a) { return numbers({a.i()}); });
                if (n.op_type() == "Upsample") n.set_op_type("Resize");
                break;
            case 11: to_11(n); break;
            case 12:
                if (n.op_type() == "Dropout") float_to_input(n, "ratio", 1);
                break;
            case 13:
                if (is(n, {"Squeeze", "Unsqueeze", "ReduceSum"})) ints_to_input(n, "axes", 1);
                if (n.op_type() == "Split") ints_to_input(n, "split", 1);
                if (is(n, {"Softmax", "LogSoftmax", "Hardmax"})) softmax_to_13(n);
                break;
            case 18:
                if (is(n, {"ReduceMax", "ReduceMin", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceProd",
                           "ReduceSumSquare"}))
                    ints_to_input(n, "axes", 1);
                if (n.op_type() == "Split" && n.input_size() < 2)
                    set_attribute(n, "num_outputs", static_cast<std::int64_t>(n.output_size()));
                break;
            case 20:
                for (auto& a : *n.mutable_attribute())
                    if (n.op_type() == "GridSample" && a.name() == "mode")
                        a.set_s(a.s() == "bilinear" ? "linear" : a.s() == "bicubic" ? "cubic" : a.s());
                break;
            case 21:
                if (n.op_type() == "GroupNormalization") fail(n, version);
                break;
            default: break;
        }
    }

    /// NumPy's broadcasting came with opset 7; before, `axis` said where the second operand's dimensions stand.
    void to_7(onnx::NodeProto& n) {
        if (is(n, {"Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less"})) {
            if (const auto* a = find_attribute(n, "axis")) {
                if (!model_.is_constant(n.input(1)) || ranks_.count(n.input(0)) == 0 || a->i() < -64 || a->i() > 64) fail(n, 7);
                const tensor b = model_.constant(n.input(1));
                dims shape = b.shape();
                const auto behind = ranks_[n.input(0)] - a->i() - static_cast<std::int64_t>(shape.size());
                if (behind < 0) fail(n, 7);
                shape.resize(shape.size() + static_cast<std::size_t>(behind), 1);
                n.set_input(1, constant(n, "operand", b.reshaped(shape)));
            }
            remove_attribute(n, "axis");
            remove_attribute(n, "broadcast");
        }
        if (n.op_type() == "PRelu") {
            if (!model_.is_constant(n.input(1))) fail(n, 7);
            const tensor slope = model_.constant(n.input(1));
            if (slope.size() > 1) {
                if (ranks_.count(n.input(0)) == 0 || ranks_[n.input(0)] < 2) fail(n, 7);
                dims shape{static_cast<std::int64_t>(slope.size())};
                shape.resize(static_cast<std::size_t>(ranks_[n.input(0)]) - 1, 1);
                n.set_input(1, constant(n, "slope", slope.reshaped(shape)));
            }
        }
        if (is(n, {"BatchNormalization", "Dropout"})) {
            const auto* test = find_attribute(n, "is_test");
            if (test == nullptr || test->i() == 0) fail(n, 7);
            remove_attribute(n, "is_test");
        }
        remove_attribute(n, n.op_type() == "Gemm" ? "broadcast" : "");
        if (n.op_type() == "Upsample" && !find_attribute(n, "scales")) fail(n, 7);
    }

    void to_11(onnx::NodeProto& n) {
        if (n.op_type() == "Clip") float_to_input(n, "min", 1), float_to_input(n, "max", 2);
        if (n.op_type() == "Pad") ints_to_input(n, "pads", 1), float_to_input(n, "value", 2);
        if (n.op_type() == "Scatter") n.set_op_type("ScatterElements");
        if (n.op_type() == "Resize") {
            if (n.input_size() < 2) fail(n, 11);
            const std::string scales = n.input(1);
            set_input(n, 1, "");
            set_input(n, 2, scales);
            set_attribute(n, "coordinate_transformation_mode", std::string("asymmetric"));
            set_attribute(n, "nearest_mode", std::string("floor"));
        }
    }

    /// Before 13 these operators took the tensor as a matrix [before axis, from axis on] and normalised its rows.
    void softmax_to_13(onnx::NodeProto& n) {
        const auto* a = find_attribute(n, "axis");
        const std::int64_t axis = a ? a->i() : 1;
        remove_attribute(n, "axis");
        set_attribute(n, "axis", std::int64_t{-1});
        const auto rank = ranks_.find(n.input(0));
        if (axis == -1 || (rank != ranks_.end() && axis == rank->second - 1)) return;
        const std::string x = n.input(0), y = n.output(0), stem = n.name();
        n.set_input(0, stem + "/rows");
        n.set_output(0, stem + "/normalised");
        set_attribute(add("Flatten", stem + "/Flatten", {x}, stem + "/rows"), "axis", axis);
        add("Shape", stem + "/Shape", {x}, stem + "/shape");
        add("Reshape", stem + "/Reshape", {stem + "/normalised", stem + "/shape"}, y);
    }

    onnx::GraphProto& g_;
    const model& model_;
    std::map<std::string, std::int64_t> ranks_;
};

}  // namespace detail

void raise_opset(model& m, int version) {
    const int from = m.opset("");
    if (from >= version) return;
    onnx::ModelProto& p = m.proto();
    detail::opset_raiser(*p.mutable_graph(), model(m), from, version);
    bool found = false;
    for (auto& o : *p.mutable_opset_import())
        if (o.domain().empty() || o.domain() == "ai.onnx") o.set_version(version), found = true;
    if (!found) p.add_opset_import()->set_version(version);
    detail::allow_free_initializers(p);
    m.reindex();
}

}  // namespace qk::graph
