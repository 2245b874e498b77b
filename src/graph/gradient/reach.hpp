// SPDX-License-Identifier: Apache-2.0
// What reaches what in a network: nodes whose paths to an output lead through others, and values that are made of constants alone.
#pragma once

#include <cstddef>
#include <set>
#include <vector>

#include "graph/evaluate/execute/network.hpp"

namespace qk::graph::gradient {

/// Marks by node those from which a path to the chosen output leads through one of `ends`, these included.
inline std::vector<char> nodes_behind(const execute::network& net, std::size_t output, const std::set<std::size_t>& ends) {
    std::vector<char> behind(net.nodes.size(), 0), leads(net.values.size(), 0), hidden(net.values.size(), 0);
    leads[static_cast<std::size_t>(net.outputs[output].value)] = 1;
    for (std::size_t n = net.nodes.size(); n-- > 0;) {
        const execute::net_node& node = net.nodes[n];
        bool useful = false;
        for (const int o : node.outputs) {
            if (o < 0) continue;
            useful = useful || leads[static_cast<std::size_t>(o)] != 0;
            behind[n] = behind[n] != 0 || hidden[static_cast<std::size_t>(o)] != 0;
        }
        if (useful && ends.contains(n)) behind[n] = 1;
        const auto mark = [&](int v) {
            if (v < 0) return;
            if (useful) leads[static_cast<std::size_t>(v)] = 1;
            if (behind[n] != 0) hidden[static_cast<std::size_t>(v)] = 1;
        };
        for (const execute::net_input& use : node.inputs) mark(use.value);
        for (const execute::subnetwork& s : node.bodies)
            for (const int v : s.captured) mark(v);
    }
    return behind;
}

/// Marks by value constants and what nodes make of constants alone (the Transpose of weights).
inline std::vector<char> from_constants(const execute::network& net) {
    std::vector<char> from(net.values.size(), 0);
    for (std::size_t v = 0; v < from.size(); ++v) from[v] = net.values[v].is_constant();
    for (const execute::net_node& n : net.nodes) {
        bool all = !n.inputs.empty() && n.bodies.empty() && !execute::is_random(n);
        for (const execute::net_input& i : n.inputs) all = all && (i.value < 0 || from[static_cast<std::size_t>(i.value)] != 0);
        for (const int o : n.outputs)
            if (o >= 0) from[static_cast<std::size_t>(o)] = all;
    }
    return from;
}

/// Adds the roots that errors of activations need if an input of the network has no gradient (token numbers): all values that are made of
/// constants and of something else. Constants are roots only if nodes have bodies, which may capture them: each pass would hold gradients
/// as large as the constants.
inline void add_roots_behind_constants(const execute::network& net, const std::vector<char>& from, std::vector<char>& roots) {
    for (const execute::net_node& n : net.nodes) {
        bool reads = false;
        for (const execute::net_input& i : n.inputs) reads = reads || (i.value >= 0 && from[static_cast<std::size_t>(i.value)] != 0);
        for (const int o : n.outputs)
            if (reads && o >= 0 && from[static_cast<std::size_t>(o)] == 0) roots[static_cast<std::size_t>(o)] = 1;
        if (n.bodies.empty()) continue;
        for (std::size_t v = 0; v < net.values.size(); ++v)  // bodies may capture constants
            if (!net.values[v].constant.empty()) roots[v] = 1;
    }
}

}  // namespace qk::graph::gradient
