// SPDX-License-Identifier: Apache-2.0
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <set>

#include "graph/model/check.hpp"
#include "graph/model/subgraphs.hpp"
#include "graph/plan/operand_tables.hpp"
#include "graph/quantize/plan_remarks.hpp"
#include "qk/graph/model/attribute.hpp"
#include "qk/graph/plan/layers.hpp"

namespace qk::graph {

namespace detail {

/// Returns the names of Einsums of an activation and a constant matrix none of whose operands is quantized.
inline std::vector<std::string> projections_by_einsum(const model& m, const std::map<edge, quantizer>& chosen) {
    std::vector<std::string> names;
    for (const auto& n : m.graph().node()) {
        if (find_attribute(n, "equation") == nullptr) continue;
        bool data = false, matrix = false, quantized = false;
        for (int i = 0; i < n.input_size(); ++i) {
            const bool constant = m.is_constant(n.input(i));
            data = data || !constant, matrix = matrix || (constant && m.constant_shape(n.input(i)).size() > 1);
            quantized = quantized || chosen.contains({n.input(i), n.name(), i});
        }
        if (data && matrix && !quantized) names.push_back(n.name());
    }
    return names;
}

/// Counts layers of one kind, and keeps the first one's name.
struct counted_layers {
    std::size_t count = 0;
    std::string first;
    void add(const std::string& name, std::size_t more = 1) {
        if (count == 0 && more > 0) first = name;
        count += more;
    }
    /// Returns "1 layer ('a')" or "3 layers ('a', ...)".
    std::string text(const std::string& what) const {
        return std::to_string(count) + " " + what + (count == 1 ? "" : "s") + " ('" + first + (count == 1 ? "')" : "', ...)");
    }
};

/// Returns how many layers run when a node runs one of the model's functions; 0 for any other node. Calls are not circular (check.hpp).
inline std::size_t layers_behind(const onnx::ModelProto& m, const onnx::NodeProto& n) {
    const onnx::FunctionProto* f = n.domain() == "qk" ? nullptr : find_function(m, n);  // those of domain qk are quantizers of an export
    if (f == nullptr) return 0;
    std::size_t sum = 0;
    const auto add = [&](const auto& self, const auto& nodes) -> void {
        for (const onnx::NodeProto& inner : nodes) {
            sum += kind_of(inner) == layer_kind::compute || is_recurrent(inner) ? 1 : layers_behind(m, inner);
            for_each_subgraph(inner, [&](const onnx::GraphProto& g) { self(self, g.node()); });
        }
    };
    add(add, f->node());
    return sum;
}

inline bool is_double(const model& m, const std::string& tensor) {
    if (m.is_constant(tensor)) return m.constant_type(tensor) == data_type::float64;
    return std::ranges::any_of(m.inputs(), [&](const value_info& i) { return i.name == tensor && i.type == data_type::float64; });
}
inline bool is_sparse(const model& m, const std::string& tensor) {
    return std::ranges::any_of(m.graph().sparse_initializer(), [&](const auto& t) { return t.values().name() == tensor; });
}

/// Returns sentences about layers of the graph that no default reaches, whatever its formats are, and about recurrent weights without one.
inline std::vector<std::string> out_of_reach(const model& m, const std::map<edge, quantizer>& chosen, const std::set<edge>& excluded) {
    counted_layers called, doubles, sparse, recurrent;
    std::string function, operators;
    for (const auto& n : m.graph().node()) {
        if (const std::size_t layers = layers_behind(m.proto(), n); layers > 0) {
            if (called.count == 0) function = n.op_type();
            called.add(n.name(), layers);
        }
        if (kind_of(n) == layer_kind::compute || is_recurrent(n)) {
            if (std::ranges::any_of(n.input(), [&](const auto& i) { return is_double(m, i); })) doubles.add(n.name());
            for (const auto& i : n.input())
                if (is_sparse(m, i)) sparse.add(i);
        }
        const auto left = [&](int i) {
            return i < n.input_size() && m.is_constant(n.input(i)) && !is_double(m, n.input(i)) && !is_sparse(m, n.input(i)) &&
                   !chosen.contains({n.input(i), n.name(), i}) && !excluded.contains({n.input(i), n.name(), i});
        };
        if (is_recurrent(n) && (left(1) || left(2))) {
            recurrent.add(n.name());
            if (operators.find(n.op_type()) == std::string::npos) operators += (operators.empty() ? "" : ", ") + n.op_type();
        }
    }
    std::vector<std::string> said;
    if (called.count > 0)
        said.push_back(std::to_string(called.count) + (called.count == 1 ? " layer" : " layers") + " in functions of the model ('" +
                       function + "', which '" + called.first +
                       "' calls): left in float32; onnx.inliner.inline_local_functions puts functions in the place of their calls");
    if (doubles.count > 0)
        said.push_back(doubles.text("layer") +
                       " of float64: left as it is, since formats stand for float32, float16 and bfloat16; convert the "
                       "model to float32 first");
    if (sparse.count > 0) said.push_back(sparse.text("sparse initializer") + ": left in float32; write it as a dense one first");
    if (recurrent.count > 0)
        said.push_back("the weights of " + recurrent.text(operators + " node") + ": left in float32; an entry {\"op_type\": \"" +
                       operators.substr(0, operators.find(',')) + "\", ...} in a requests file asks for them");
    return said;
}

}  // namespace detail

void note_what_stayed(const model& m, const std::vector<request>& requests, const std::map<edge, quantizer>& chosen,
                      const std::set<edge>& excluded, std::vector<plan_note>& notes) {
    const bool nothing = chosen.empty();
    const auto general =
        std::ranges::find_if(requests, [](const request& r) { return r.scope == scope::everything && !is_identity(r.what.format); });
    if (general == requests.end()) {
        const bool any = std::ranges::any_of(requests, [](const request& r) { return !is_identity(r.what.format); });
        const std::string why = any ? "" : ", because no request asks for another format";
        if (nothing) notes.push_back({plan_note::kind::unchanged, m.label(), "the plan changes nothing: every value stays float32" + why});
        return;
    }
    std::size_t inner = 0;
    const auto count = [&](const auto& self, const onnx::NodeProto& n) -> void {
        detail::for_each_subgraph(n, [&](const onnx::GraphProto& g) {
            for (const auto& i : g.node()) inner += kind_of(i) == layer_kind::compute || is_recurrent(i), self(self, i);
        });
    };
    for (const auto& n : m.graph().node()) count(count, n);
    if (inner > 0)
        notes.push_back({plan_note::kind::unrealised, m.label(),
                         std::to_string(inner) + " layers in the bodies of If, Loop or Scan: left in float32", general->origin});
    if (const auto einsums = detail::projections_by_einsum(m, chosen); !einsums.empty())
        notes.push_back({plan_note::kind::unrealised, m.label(),
                         std::to_string(einsums.size()) + " Einsum nodes multiply by constant weights ('" + einsums.front() +
                             (einsums.size() > 1 ? "', ...)" : "')") +
                             ": left in float32; an entry {\"op_type\": \"Einsum\", ...} in a requests file asks for them",
                         general->origin});
    for (std::string& text : detail::out_of_reach(m, chosen, excluded))
        notes.push_back({plan_note::kind::unrealised, m.label(), std::move(text), general->origin});
    if (nothing)
        notes.push_back({plan_note::kind::unrealised, m.label(), "nothing was quantized: no layer has float values that the requests mean",
                         general->origin});
}

void note_tied_weights(const model& m, const std::map<edge, quantizer>& chosen, const std::map<edge, edge_precision>& asked,
                       std::vector<plan_note>& notes) {
    std::map<std::string, std::string> copies;
    for (const auto& [name, became] : m.history().tensors())
        for (const successor& s : successors_of_tensor(m, name))
            if (m.is_constant(name) && m.is_constant(s.name) && m.constant_shape(name).size() > 1) copies[s.name] = name;
    std::set<std::string> said;
    for (const auto& [e, q] : chosen) {
        const auto request_at = asked.find(e);
        if (!m.is_constant(e.tensor) || request_at == asked.end() || request_at->second.part != layer_view::part::weight ||
            !said.insert(e.tensor).second)
            continue;
        const auto copy = copies.find(e.tensor);
        const bool floats = std::ranges::any_of(m.uses(e.tensor), [&, &weight = e.tensor](const auto& u) {
            return u.node >= 0 && !chosen.contains({weight, m.graph().node(u.node).name(), u.input});
        });
        if (copy == copies.end() && !floats) continue;
        const std::string& tied = copy == copies.end() ? e.tensor : copy->second;
        notes.push_back({plan_note::kind::tied,
                         "layer '" + e.consumer + "'",
                         "its weights are those of '" + tied + "', which others read too: quantized for each use by itself",
                         {},
                         request_at->second.node});
    }
}

}  // namespace qk::graph
