// SPDX-License-Identifier: Apache-2.0
// Assigns edges to layers, and puts plans together from them.
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <unordered_map>

#include "qk/graph/search/mixture.hpp"

namespace qk::graph {
namespace detail {

/// Returns for every node the searched layer (index into the list) that its quantized inputs belong to, or -1.
inline std::vector<int> owners(const model& m, const std::unordered_map<std::string, int>& searched) {
    const auto& nodes = m.graph().node();
    const auto count = static_cast<std::size_t>(nodes.size());
    std::vector<int> own(count, -1);
    for (std::size_t n = 0; n < count; ++n) {
        if (const auto i = searched.find(nodes[static_cast<int>(n)].name()); i != searched.end()) own[n] = i->second;
    }
    // Nodes are in topological order, so the loop from the end knows a node's readers before the node.
    std::vector<int> leads_to = own;
    for (std::size_t n = count; n-- > 0;) {
        if (leads_to[n] >= 0) continue;
        for (const std::string& output : nodes[static_cast<int>(n)].output()) {
            for (const model::use& use : m.uses(output)) {
                if (use.node < 0) continue;
                const int layer = leads_to[static_cast<std::size_t>(use.node)];
                if (layer >= 0 && (leads_to[n] < 0 || layer < leads_to[n])) leads_to[n] = layer;
            }
        }
    }
    std::vector<int> comes_from = own;
    for (std::size_t n = 0; n < count; ++n) {
        if (comes_from[n] >= 0) continue;
        for (const std::string& input : nodes[static_cast<int>(n)].input()) {
            if (const int producer = m.producer(input); producer >= 0)
                comes_from[n] = std::max(comes_from[n], comes_from[static_cast<std::size_t>(producer)]);
        }
    }
    for (std::size_t n = 0; n < count; ++n) own[n] = leads_to[n] >= 0 ? leads_to[n] : comes_from[n];
    return own;
}

inline bool same(const quantizer* a, const quantizer* b) { return a == b || (a && b && *a == *b); }

}  // namespace detail

const char* name_of(mixture::part p) {
    return p == mixture::part::both ? "layer" : p == mixture::part::weights ? "weights alone" : "activations alone";
}

mixture::mixture(const layer_view& layers, std::vector<precision_plan> uniform, const std::vector<std::string>& names)
    : uniform_(std::move(uniform)) {
    const model& m = layers.source();
    std::unordered_map<std::string, int> searched;
    for (std::size_t l = 0; l < names.size(); ++l) searched[names[l]] = static_cast<int>(l);
    const std::vector<int> owner = detail::owners(m, searched);

    if (!uniform_.empty()) common_.accumulators = uniform_.front().accumulators;
    std::vector<std::vector<choice_of_edge>> by_layer(names.size());
    const auto consider = [&](const edge& where, int layer, bool weight) {
        choice_of_edge e{where, {}, weight};
        for (const precision_plan& p : uniform_) e.by_option.push_back(p.find(where));
        const bool fixed =
            std::all_of(e.by_option.begin(), e.by_option.end(), [&](const quantizer* q) { return detail::same(q, e.by_option[0]); });
        if (fixed || layer < 0) put(common_, e, 0);
        else by_layer[static_cast<std::size_t>(layer)].push_back(std::move(e));
    };
    for (int n = 0; n < m.graph().node_size(); ++n) {
        const onnx::NodeProto& node = m.graph().node(n);
        const auto& parts = layers.nodes()[static_cast<std::size_t>(n)].parts;
        for (int i = 0; i < node.input_size(); ++i) {
            if (node.input(i).empty()) continue;
            const bool weight =
                static_cast<std::size_t>(i) < parts.size() && parts[static_cast<std::size_t>(i)] == layer_view::part::weight;
            consider({node.input(i), node.name(), i}, owner[static_cast<std::size_t>(n)], weight);
        }
    }
    for (std::size_t o = 0; o < m.outputs().size(); ++o) {
        const std::string& name = m.outputs()[o].name;
        const int producer = m.producer(name);
        consider({name, "", static_cast<int>(o)}, producer < 0 ? -1 : owner[static_cast<std::size_t>(producer)], false);
    }
    for (std::size_t l = 0; l < names.size(); ++l) {
        if (by_layer[l].empty()) continue;
        names_.push_back(names[l]);
        edges_.push_back(std::move(by_layer[l]));
    }
}

void mixture::put(precision_plan& plan, const choice_of_edge& e, std::size_t option) const {
    if (const quantizer* q = e.by_option[option]) plan.edges[e.where] = *q;
}

precision_plan mixture::plan(const assignment& choice) const {
    return plan(choice, edges_.size(), 0, part::both);  // no layer differs from `choice`
}

precision_plan mixture::plan(const assignment& base, std::size_t layer, std::uint8_t option, part which) const {
    precision_plan result = common_;
    for (std::size_t l = 0; l < edges_.size(); ++l) {
        for (const choice_of_edge& e : edges_[l]) {
            const bool changes = l == layer && (which == part::both || (which == part::weights) == e.weight);
            put(result, e, changes ? option : base[l]);
        }
    }
    return result;
}

}  // namespace qk::graph
