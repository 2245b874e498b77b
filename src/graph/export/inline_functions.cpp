// SPDX-License-Identifier: Apache-2.0
#include "graph/export/inline_functions.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "graph/export/marks.hpp"
#include "graph/model/check.hpp"
#include "graph/model/operator_name.hpp"
#include "graph/model/taken_names.hpp"
#include "graph/model/tensor_proto.hpp"
#include "qk/graph/base/error.hpp"
#include "qk/graph/model/attribute.hpp"

namespace qk::graph::detail {
namespace {

class function_inliner {
  public:
    explicit function_inliner(model& m) : m_(m.proto()) { names_.take_graph(m_.graph()); }

    void run() {
        onnx::GraphProto& g = *m_.mutable_graph();
        bool any = false;
        google::protobuf::RepeatedPtrField<onnx::NodeProto> all;
        for (auto& n : *g.mutable_node()) {
            const onnx::FunctionProto* f = n.domain() == marks::function_domain ? find_function(m_, n) : nullptr;
            if (f == nullptr || n.output_size() != 1 || f->output_size() != 1) {
                all.Add()->Swap(&n);
                continue;
            }
            any = true;
            put(n, *f, all);
        }
        g.mutable_node()->Swap(&all);
        if (any) forget_functions();
    }

  private:
    void put(const onnx::NodeProto& call, const onnx::FunctionProto& f, google::protobuf::RepeatedPtrField<onnx::NodeProto>& to) {
        std::map<std::string, std::string> values;  // from names inside the function
        for (int k = 0; k < f.input_size(); ++k) values[f.input(k)] = k < call.input_size() ? call.input(k) : "";
        string_set needed;  // a body may compute what its result does not read
        needed.insert(f.output(0));
        for (int k = f.node_size(); k-- > 0;)
            if (makes_any(f.node(k), needed)) needed.insert(f.node(k).input().begin(), f.node(k).input().end());
        for (const auto& inner : f.node()) {
            if (!makes_any(inner, needed)) continue;
            if (operator_of(inner) == "Constant") {
                values[inner.output(0)] = constant(call, inner);
                continue;
            }
            onnx::NodeProto& n = *to.Add();
            n = inner;
            for (std::string& i : *n.mutable_input())
                if (!i.empty()) i = values.at(i);
            for (std::string& o : *n.mutable_output()) {
                const bool last = o == f.output(0);
                o = values[o] = last ? call.output(0) : names_.fresh(call.output(0) + "/" + o);
                if (last) n.set_doc_string(record(call, f));
            }
            n.set_name(names_.fresh(n.output(0) + "/" + n.op_type()));
        }
    }

    static bool makes_any(const onnx::NodeProto& n, const string_set& names) {
        return std::ranges::any_of(n.output(), [&](const std::string& o) { return names.contains(o); });
    }

    /// Returns what says of the node that makes a call's result which call it was.
    static std::string record(const onnx::NodeProto& call, const onnx::FunctionProto& f) {
        nlohmann::ordered_json inputs = nlohmann::ordered_json::array();
        for (int k = 0; k < std::min(f.input_size(), call.input_size()); ++k) inputs.push_back({f.input(k), call.input(k)});
        return nlohmann::ordered_json{{marks::inlined, f.name()}, {"inputs", inputs}, {"quantizer", call.doc_string()}}.dump();
    }

    /// Returns the name of an initializer with the value of a Constant inside the function, which may be an attribute of the call.
    std::string constant(const onnx::NodeProto& call, const onnx::NodeProto& inner) {
        const onnx::AttributeProto& a = inner.attribute(0);
        tensor value;
        if (a.has_t()) {
            value = to_tensor(a.t(), {});
        } else {
            const onnx::AttributeProto* given = a.ref_attr_name().empty() ? &a : find_attribute(call, a.ref_attr_name());
            if (given == nullptr) throw error("a call of '" + call.op_type() + "' lacks the attribute '" + a.ref_attr_name() + "'");
            const bool list = a.name() == "value_ints";
            const std::vector<std::int64_t> v =
                list ? std::vector<std::int64_t>(given->ints().begin(), given->ints().end()) : std::vector<std::int64_t>{given->i()};
            value = make_tensor<std::int64_t>(list ? dims{static_cast<std::int64_t>(v.size())} : dims{}, v);
        }
        std::string key = std::to_string(static_cast<int>(value.type())) + to_string(value.shape());
        key.append(reinterpret_cast<const char*>(value.bytes()), value.size_bytes());
        const auto [known, fresh] = constants_.try_emplace(key);
        if (fresh) {
            known->second = names_.fresh("qk/" + inner.output(0));
            to_proto(value, known->second, *m_.mutable_graph()->add_initializer());
        }
        return known->second;
    }

    void forget_functions() {
        auto& functions = *m_.mutable_functions();
        for (int k = functions.size(); k-- > 0;)
            if (functions.Get(k).domain() == marks::function_domain) functions.DeleteSubrange(k, 1);
        auto& imports = *m_.mutable_opset_import();
        for (int k = imports.size(); k-- > 0;)
            if (imports.Get(k).domain() == marks::function_domain) imports.DeleteSubrange(k, 1);
    }

    onnx::ModelProto& m_;
    taken_names names_;
    std::map<std::string, std::string> constants_;  ///< initializers by their values
};

}  // namespace

void inline_functions(model& m) {
    function_inliner(m).run();
    m.reindex();
}

}  // namespace qk::graph::detail
