// SPDX-License-Identifier: Apache-2.0
// Notes about requests that end up without an effect. Only resolve.cpp includes this file, which uses its resolved_edges().
#pragma once

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "qk/graph/base/names.hpp"
#include "qk/graph/quantize/resolve.hpp"

namespace qk::graph::detail {

std::map<edge, edge_precision> resolved_edges(const layer_view& layers, const std::vector<request>& requests,
                                              const resolve_options& options);

inline bool same_formats(const std::map<edge, edge_precision>& a, const std::map<edge, edge_precision>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
        const precision *p = x.second.what, *q = y.second.what;
        return x.first == y.first && x.second.automatic_bias == y.second.automatic_bias &&
               (p == q || (p != nullptr && q != nullptr && *p == *q));
    });
}

/// Is true when the edges differ without the exclusion `which`; an exclusion leaves no edge of its own that would show its effect.
inline bool excludes_something(const layer_view& layers, std::vector<request> requests, std::size_t which, const resolve_options& options,
                               const std::map<edge, edge_precision>& with) {
    requests.erase(requests.begin() + static_cast<std::ptrdiff_t>(which));
    return !same_formats(with, resolved_edges(layers, requests, options));
}

/// Suggests names that a request could have meant: tensors of similar spelling for a tensor, else the layers nearest in the network to the
/// nodes that it matched, or layers of similar spelling if it matched none.
inline std::string nearest_of(const layer_view& layers, const request& r, const std::vector<int>& matched) {
    const model& m = layers.source();
    if (r.scope == scope::tensor) {
        std::vector<std::string> tensors;
        for (int n = 0; n < m.graph().node_size(); ++n) {
            const auto& info = layers.nodes()[static_cast<std::size_t>(n)];
            for (std::size_t i = 0; i < info.parts.size(); ++i)
                if (info.parts[i] != layer_view::part::none && info.kind != layer_kind::activation)
                    tensors.push_back(m.graph().node(n).input(static_cast<int>(i)));
        }
        return did_you_mean(r.name, tensors);
    }
    std::vector<std::string> near;
    const std::vector<int> compute = layers.compute_layers();
    for (const int n : matched) {
        const auto closest = std::ranges::min_element(compute, {}, [n](int layer) { return std::abs(layer - n); });
        if (closest == compute.end() || near.size() == 3) break;
        const std::string& name = m.graph().node(*closest).name();
        if (std::find(near.begin(), near.end(), name) == near.end()) near.push_back(name);
    }
    if (!near.empty()) return " The nearest layers that can be: " + listed(near) + ".";
    std::vector<std::string> names;
    for (const int n : compute) names.push_back(m.graph().node(n).name());
    return did_you_mean(r.name, names);
}

inline std::string without_effect(const layer_view& layers, const request& r, const std::vector<int>& matched) {
    std::vector<std::string> names;
    std::set<std::string> types;
    for (const int n : matched) {
        names.push_back(layers.source().graph().node(n).name());
        types.insert(layers.source().graph().node(n).op_type());
    }
    std::string text = is_identity(r.what.format) ? "has no effect: nothing that it names would have been quantized without it"
                                                  : "has no effect: nothing that it names can be quantized as asked";
    if (!names.empty() && types.size() <= 3) text += " (" + comma_separated({types.begin(), types.end()}) + ": " + listed(names) + ")";
    return text + "." + nearest_of(layers, r, matched);
}

/// Adds a note for each request that no edge comes from and that is not `settled`.
inline void note_without_effect(const layer_view& layers, const std::vector<request>& requests, const resolve_options& options,
                                const std::set<int>& settled, const std::map<int, std::vector<int>>& matched, resolution& result) {
    std::set<int> used;
    for (const auto& [e, p] : result.edges) used.insert(p.sequence);
    for (std::size_t i = 0; i < requests.size(); ++i) {
        const request& r = requests[i];
        const int sequence = static_cast<int>(i);
        if (r.scope == scope::everything || r.quiet || used.contains(sequence) || settled.contains(sequence)) continue;
        if (is_identity(r.what.format) && excludes_something(layers, requests, i, options, result.edges)) continue;
        const auto nodes = matched.find(sequence);
        const std::vector<int> none, &of = nodes == matched.end() ? none : nodes->second;
        result.notes.push_back(
            {plan_note::kind::unrealised, describe(r), without_effect(layers, r, of), r.origin, of.empty() ? -1 : of.front()});
    }
}

}  // namespace qk::graph::detail
