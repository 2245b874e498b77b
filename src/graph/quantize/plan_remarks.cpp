// SPDX-License-Identifier: Apache-2.0
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <set>

#include "qk/graph/model/subgraphs.hpp"
#include "qk/graph/plan/layers.hpp"
#include "qk/graph/quantize/plan_remarks.hpp"

namespace qk::graph {

namespace detail {

/// Returns the names of Einsums of an activation and a constant matrix none of whose operands is quantized.
inline std::vector<std::string> projections_by_einsum(const model& m, const std::map<edge, quantizer>& chosen) {
    std::vector<std::string> names;
    for (const auto& n : m.graph().node()) {
        if (n.op_type() != "Einsum" || !(n.domain().empty() || n.domain() == "ai.onnx")) continue;
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

}  // namespace detail

void note_what_stayed(const model& m, const std::vector<request>& requests, const std::map<edge, quantizer>& chosen,
                      std::vector<plan_note>& notes) {
    const bool nothing = chosen.empty();
    const auto general =
        std::ranges::find_if(requests, [](const request& r) { return r.scope == scope::everything && !is_identity(r.what.format); });
    if (general == requests.end()) {
        const bool asked = std::ranges::any_of(requests, [](const request& r) { return !is_identity(r.what.format); });
        const std::string why = asked ? "" : ", because no request asks for another format";
        if (nothing) notes.push_back({plan_note::kind::unchanged, m.label(), "the plan changes nothing: every value stays float32" + why});
        return;
    }
    std::size_t inner = 0;
    const auto count = [&](const auto& self, const onnx::NodeProto& n) -> void {
        detail::for_each_subgraph(n, [&](const onnx::GraphProto& g) {
            for (const auto& i : g.node()) inner += kind_of(i) == layer_kind::compute, self(self, i);
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
        const auto wish = asked.find(e);
        if (!m.is_constant(e.tensor) || wish == asked.end() || wish->second.part != layer_view::part::weight ||
            !said.insert(e.tensor).second)
            continue;
        const auto copy = copies.find(e.tensor);
        const bool floats = std::ranges::any_of(m.uses(e.tensor), [&](const auto& u) {
            return u.node >= 0 && !chosen.contains({e.tensor, m.graph().node(u.node).name(), u.input});
        });
        if (copy == copies.end() && !floats) continue;
        const std::string& tied = copy == copies.end() ? e.tensor : copy->second;
        notes.push_back({plan_note::kind::tied,
                         "layer '" + e.consumer + "'",
                         "its weights are those of '" + tied + "', which others read too: quantized for each use by itself",
                         {},
                         wish->second.node});
    }
}

}  // namespace qk::graph
