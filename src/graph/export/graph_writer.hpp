// SPDX-License-Identifier: Apache-2.0
// Adds nodes, constants and functions under new names to a model under export, and records the opset that the result requires.
#pragma once

#include <onnx/onnx_pb.h>

#include <limits>
#include <string>
#include <vector>

#include "graph/export/marks.hpp"
#include "graph/model/edit.hpp"
#include "graph/model/taken_names.hpp"
#include "qk/graph/model/attribute.hpp"
#include "qk/graph/model/model.hpp"

namespace qk::graph::detail {

class graph_writer {
  public:
    explicit graph_writer(model& m) : model_(&m) { names_.take_graph(m.graph()); }

    onnx::GraphProto& graph() { return model_->graph(); }
    model& target() { return *model_; }

    /// Returns `stem`, or `stem_2`, ...: a name that neither a tensor nor a node has.
    std::string fresh(const std::string& stem) { return names_.fresh(stem); }

    onnx::NodeProto& node(const std::string& op, const std::vector<std::string>& inputs, const std::vector<std::string>& outputs,
                          const std::string& domain = "") {
        onnx::NodeProto& n = *graph().add_node();
        n.set_op_type(op);
        n.set_domain(domain);
        n.set_name(fresh(outputs.front() + "/" + op));
        for (const std::string& i : inputs) n.add_input(i);
        for (const std::string& o : outputs) n.add_output(o);
        return n;
    }

    std::string constant(const std::string& stem, const tensor& value) {
        const std::string name = fresh(stem);
        to_proto(value, name, *graph().add_initializer());
        return name;
    }

    /// Adds a constant that is already rounded; `description` says how (description.hpp).
    std::string rounded_constant(const std::string& tensor_name, const tensor& value, const std::string& description) {
        const std::string name = constant(tensor_name + marks::rounded, value);
        graph().mutable_initializer(graph().initializer_size() - 1)->set_doc_string(description);
        return name;
    }

    /// Casts x to another type, under a name like `stem`.
    std::string cast(const std::string& x, const std::string& stem, data_type to) {
        if (to == data_type::bfloat16) require_opset(13, "Cast to bfloat16");
        const std::string y = fresh(stem);
        set_attribute(node("Cast", {x}, {y}), "to", static_cast<std::int64_t>(to));
        return y;
    }

    /// Adds a guard: a Max of one input, which is the identity, keeps onnxruntime from fusing what lies on its two sides.
    std::string kept_apart(const std::string& x) {
        if (!guards_) return x;
        const std::string y = fresh(x + marks::guarded);
        node("Max", {x}, {y});
        return y;
    }

    /// Adds a guard that OpenVINO does not drop: a Max with -Inf, whose constant all of them share.
    std::string kept_apart_twice(const std::string& x) {
        if (lowest_.empty())
            lowest_ = constant("qk/lowest", make_tensor<float>({}, std::vector<float>{-std::numeric_limits<float>::infinity()}));
        require_opset(8, "Max of shapes that differ");
        const std::string y = fresh(x + marks::guarded);
        node("Max", {x, lowest_}, {y});
        return y;
    }

    /// For files that onnxruntime's optimizer does not see: a Max would hide the pairs from another runtime.
    void leave_guards_out() { guards_ = false; }

    /// Records that the result needs at least this opset, because of `why`.
    void require_opset(int version, const std::string& why) {
        if (version > opset_) opset_ = version, opset_reason_ = why;
    }
    int required_opset() const { return opset_; }
    const std::string& opset_reason() const { return opset_reason_; }

    void import(const std::string& domain, int version) {
        for (const auto& o : model_->proto().opset_import())
            if (o.domain() == domain) return;
        auto* o = model_->proto().add_opset_import();
        o->set_domain(domain);
        o->set_version(version);
    }

  private:
    model* model_;
    taken_names names_;
    bool guards_ = true;
    std::string lowest_;  ///< the constant of kept_apart_twice
    int opset_ = 0;
    std::string opset_reason_;
};

}  // namespace qk::graph::detail
