// SPDX-License-Identifier: Apache-2.0
// A list of nodes while its opset is raised: the model's graph, a body of If, Loop or Scan, or one of the model's functions. It finds what
// is known of tensors there and around it, and adds nodes and constants under new names.
#pragma once

#include <onnx/onnx_pb.h>

#include <filesystem>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/export/taken_names.hpp"
#include "graph/model/infer_shapes.hpp"
#include "qk/graph/model/attribute.hpp"
#include "qk/graph/model/model.hpp"

namespace qk::graph::detail {

class raised_body {
  public:
    using node_list = google::protobuf::RepeatedPtrField<onnx::NodeProto>;

    /// `names` and `outside` outlive this; `outside` is the body around this one.
    raised_body(onnx::GraphProto& g, taken_names& names, std::filesystem::path folder, const raised_body* outside = nullptr)
        : graph_(&g), nodes_(g.mutable_node()), names_(names), folder_(std::move(folder)), outside_(outside) {
        for (int i = 0; i < g.initializer_size(); ++i) initializers_[g.initializer(i).name()] = i;
        const auto declare = [&](const auto& infos) {
            for (const auto& v : infos)
                if (v.type().has_tensor_type()) declared_[v.name()] = v.type().tensor_type();
        };
        declare(g.value_info()), declare(g.input()), declare(g.output());
        for (const auto& v : g.input()) own_.insert(v.name());
        know_producers();
    }
    raised_body(onnx::FunctionProto& f, taken_names& names)
        : nodes_(f.mutable_node()), names_(names), function_outputs_(f.output().begin(), f.output().end()) {
        own_.insert(f.input().begin(), f.input().end());
        know_producers();
    }

    node_list& nodes() { return *nodes_; }
    taken_names& names() { return names_; }
    const std::filesystem::path& folder() const { return folder_; }
    /// Gives ranks that were inferred for the model's own graph.
    void know(const inferred_shapes& shapes) { inferred_ = &shapes; }

    onnx::NodeProto& node(const std::string& op, const std::string& stem, const std::vector<std::string>& in, const std::string& out) {
        onnx::NodeProto& n = *nodes_->Add();
        n.set_op_type(op);
        n.set_name(names_.fresh(stem + "/" + op));
        for (const std::string& i : in) n.add_input(i);
        n.add_output(out);
        return n;
    }
    /// Adds a constant: an initializer, or in a function, which has none, a node.
    std::string constant(const std::string& stem, const tensor& value) {
        const std::string name = names_.fresh(stem);
        if (graph_ != nullptr) {
            to_proto(value, name, *graph_->add_initializer());
        } else {
            onnx::AttributeProto& a = *node("Constant", stem, {}, name).add_attribute();
            a.set_name("value");
            a.set_type(onnx::AttributeProto::TENSOR);
            to_proto(value, name, *a.mutable_t());
        }
        return name;
    }

    /// Returns whether anything here, in a body inside or around this one reads a tensor that a node here makes.
    bool is_read(const std::string& name) const {
        std::unordered_set<std::string_view> read;
        for (const auto& n : *nodes_) {
            read.insert(n.input().begin(), n.input().end());
            for_each_subgraph(n, [&](const onnx::GraphProto& g) { collect_outer(g, read); });
        }
        if (graph_ != nullptr)
            for (const auto& o : graph_->output()) read.insert(o.name());
        else read.insert(function_outputs_.begin(), function_outputs_.end());
        return read.contains(name);
    }

    /// Returns the value of an initializer or a Constant, from around this body, too; nullopt for anything else.
    std::optional<tensor> value_of(const std::string& name) const {
        if (const auto i = initializers_.find(name); i != initializers_.end()) return to_tensor(graph_->initializer(i->second), folder_);
        if (const auto p = producers_.find(name); p != producers_.end()) {
            const onnx::NodeProto& n = nodes_->Get(p->second);
            const auto* a = n.op_type() == "Constant" ? find_attribute(n, "value") : nullptr;
            return a && a->has_t() ? std::optional(to_tensor(a->t(), folder_)) : std::nullopt;
        }
        return outside_ && !own_.contains(name) ? outside_->value_of(name) : std::nullopt;
    }

    std::optional<std::size_t> rank_of(const std::string& name) const {
        if (const auto i = initializers_.find(name); i != initializers_.end())
            return static_cast<std::size_t>(graph_->initializer(i->second).dims_size());
        if (const auto d = declared_.find(name); d != declared_.end() && d->second.has_shape())
            return static_cast<std::size_t>(d->second.shape().dim_size());
        const dims* known = inferred_ ? inferred_->find(name) : nullptr;
        if (known) return known->size();
        return outside_ && !own_.contains(name) ? outside_->rank_of(name) : std::nullopt;
    }

    /// Returns undefined where neither a declaration nor the nodes on the way to the tensor say its type.
    data_type type_of(std::string name) const {
        for (std::size_t step = 0; step <= producers_.size(); ++step) {
            if (const auto i = initializers_.find(name); i != initializers_.end())
                return static_cast<data_type>(graph_->initializer(i->second).data_type());
            if (const auto d = declared_.find(name); d != declared_.end() && d->second.elem_type() != 0)
                return static_cast<data_type>(d->second.elem_type());
            const auto p = producers_.find(name);
            if (p == producers_.end()) return outside_ && !own_.contains(name) ? outside_->type_of(name) : data_type::undefined;
            const onnx::NodeProto& n = nodes_->Get(p->second);
            if (const auto made = type_made_by(n, name)) return *made;
            const int like = one_of(n.op_type(), {"Where", "CastLike", "DequantizeLinear"}) ? 1 : n.op_type() == "OneHot" ? 2 : 0;
            if (like >= n.input_size()) return data_type::undefined;
            name = std::string(n.input(like));
        }
        return data_type::undefined;
    }

  private:
    void know_producers() {
        for (int i = 0; i < nodes_->size(); ++i)
            for (const std::string& o : nodes_->Get(i).output())
                if (!o.empty()) producers_[o] = i, own_.insert(o);
    }

    /// Returns the type that a node's output has whatever its inputs are; undefined if this cannot be said; nullopt: that of an input.
    static std::optional<data_type> type_made_by(const onnx::NodeProto& n, const std::string& output) {
        const std::string& op = n.op_type();
        const bool first = n.output(0) == output;
        const auto attribute = [&](const char* name) { return static_cast<data_type>(int_attribute(n, name, 0)); };
        if (!n.domain().empty()) return data_type::undefined;
        if (op == "Cast") return attribute("to");
        if (op == "Constant" || op == "ConstantOfShape") {
            if (const auto* a = find_attribute(n, "value")) return static_cast<data_type>(a->t().data_type());
            const bool floats = op == "ConstantOfShape" || find_attribute(n, "value_float") || find_attribute(n, "value_floats");
            const bool integers = find_attribute(n, "value_int") || find_attribute(n, "value_ints");
            return floats ? data_type::float32 : integers ? data_type::int64 : data_type::undefined;
        }
        if (one_of(op, {"Shape", "Size", "NonZero", "ArgMax", "ArgMin", "NonMaxSuppression", "SequenceLength"})) return data_type::int64;
        if (one_of(op, {"And", "Or", "Xor", "Not", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "IsNaN", "IsInf",
                        "OptionalHasElement"}))
            return data_type::boolean;
        if (one_of(op, {"MatMulInteger", "ConvInteger"})) return data_type::int32;
        if (one_of(op, {"TopK", "MaxPool", "Unique"}) && !first) return data_type::int64;
        if (one_of(op, {"EyeLike", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "DequantizeLinear"})) {
            const char* name = op == "DequantizeLinear" ? "output_dtype" : "dtype";
            return find_attribute(n, name) ? std::optional(attribute(name)) : std::nullopt;
        }
        if (one_of(op, {"QuantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "If", "Loop", "Scan", "SequenceMap",
                        "RandomNormal", "RandomUniform", "Multinomial", "Dropout"}) &&
            !(op == "Dropout" && first))
            return data_type::undefined;
        return std::nullopt;
    }

    onnx::GraphProto* graph_ = nullptr;  ///< null: a function
    node_list* nodes_;
    taken_names& names_;
    std::vector<std::string> function_outputs_;
    std::filesystem::path folder_;
    const raised_body* outside_ = nullptr;
    const inferred_shapes* inferred_ = nullptr;
    string_set own_;  ///< names of its inputs and of what its nodes make
    string_map<int> initializers_, producers_;
    string_map<onnx::TypeProto::Tensor> declared_;
};

}  // namespace qk::graph::detail
