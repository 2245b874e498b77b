// SPDX-License-Identifier: Apache-2.0
// Parts of the program builder: the key by which plans share steps, and nodes that wait for the next one.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "graph/evaluate/execute/program.hpp"
#include "graph/model/operator_name.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph::execute::detail {

inline bool is_layer(const net_node& n) { return product_axes_of(n.view.proto()).has_value(); }

/// Returns whether a plan has a quantizer inside `net`, the network of a subgraph.
inline bool touches(const precision_plan& plan, const network& net) {
    for (const net_node& n : net.nodes) {
        for (const net_input& i : n.inputs)
            for (const edge& e : i.edges)
                if (plan.find(e) != nullptr) return true;
        for (const subnetwork& s : n.bodies)
            if (touches(plan, *s.body)) return true;
    }
    return false;
}

/// Identifies a step: plans that need the same key share one step.
struct step_key {
    enum class kind : std::uint8_t { node, quantizer, convolution, dense, attention, device } what = kind::node;
    std::vector<int> parts;  ///< numbers of nodes and quantizers, and the slots that are read
    int own_plan = -1;       ///< the candidate whose plan has a quantizer in a subgraph of the node: not shared; else -1
    friend bool operator==(const step_key&, const step_key&) = default;
};
struct step_key_hash {
    std::size_t operator()(const step_key& k) const noexcept {
        return slots_hash()(k.parts) * 31 + static_cast<std::size_t>(k.what) * 7 + static_cast<std::size_t>(k.own_plan + 1);
    }
};

/// Returns whether a node is the operator of that name in ONNX's own domain.
inline bool is_op(const net_node& n, operator_word name) {
    return operator_of(n.view) == name && (n.view.proto().domain().empty() || n.view.proto().domain() == "ai.onnx");
}

/// A convolution that is not computed yet, because the only reader of its value may join its unit.
struct unit_plan {
    const net_node *conv = nullptr, *add = nullptr, *relu = nullptr;
    std::vector<slot> in;
};

/// The only reader of a value.
struct reader {
    const net_node* node;
    const net_input* input;
};

/// Lets each step release the values that no later step and no candidate reads.
inline void release_values(program& p) {
    std::vector<int> last(static_cast<std::size_t>(p.slot_count), -1);
    for (std::size_t i = 0; i < p.steps.size(); ++i)
        for (const slot s : p.steps[i].in)
            if (s >= 0) last[static_cast<std::size_t>(s)] = static_cast<int>(i);
    for (const auto& c : p.candidates)
        for (const slot s : c.outputs)
            if (s >= 0) last[static_cast<std::size_t>(s)] = std::max(last[static_cast<std::size_t>(s)], c.after);
    for (std::size_t i = 0; i < p.steps.size(); ++i)  // unread results are released at once
        for (const slot s : p.steps[i].out)
            if (s >= 0 && last[static_cast<std::size_t>(s)] < 0) last[static_cast<std::size_t>(s)] = static_cast<int>(i);
    for (std::size_t s = 0; s < last.size(); ++s)
        if (last[s] >= 0) p.steps[static_cast<std::size_t>(last[s])].release.push_back(static_cast<slot>(s));
}

}  // namespace qk::graph::execute::detail
