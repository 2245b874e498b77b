// SPDX-License-Identifier: Apache-2.0
#include "graph/evaluate/execute/batch_axis.hpp"

#include <algorithm>

#include "graph/ops/walk/walk.hpp"

namespace qk::graph::execute {
namespace {

using ops::walk_counts;
using ops::walk_graph;
using ops::walked;

walk_graph graph_of(const network& net) {
    walk_graph g;
    g.values = net.values.size();
    g.inputs = net.inputs;
    for (const net_input& o : net.outputs) g.outputs.push_back(o.value);
    for (std::size_t i = 0; i < net.values.size(); ++i) {
        const net_value& v = net.values[i];
        if (v.late) g.constants.emplace_back(static_cast<int>(i), ops::walked_constant(v.late->shape()));  // only large ones are read late
        else if (v.is_constant()) g.constants.emplace_back(static_cast<int>(i), ops::walked_constant(v.constant));
    }
    for (const net_node& n : net.nodes) {
        walk_graph::node& to = g.nodes.emplace_back(walk_graph::node{&n.view, n.op, {}, n.outputs});
        for (const net_input& i : n.inputs) to.inputs.push_back(i.value);
        for (const subnetwork& s : n.bodies) to.bodies.push_back({s.graph, std::make_shared<walk_graph>(graph_of(*s.body)), s.captured});
    }
    return g;
}

}  // namespace

batch_verdict follow_batch_axis(const network& net, const std::vector<batch_input>& inputs, std::int64_t count) {
    const walk_counts counts{1, std::max<std::int64_t>(count, 2), 1009, 2003};
    std::vector<walked> given;
    for (const batch_input& i : inputs) {
        walked v;
        v.is = i.axis < 0 ? walked::kind::shared : walked::kind::rows;
        v.axis = i.axis, v.ranked = i.ranked, v.shape = i.shape;
        if (i.axis >= 0 && (!i.ranked || static_cast<std::size_t>(i.axis) >= i.shape.size()))
            v.is = walked::kind::undecided, v.why = "an input";
        given.push_back(std::move(v));
    }
    const walk_graph graph = graph_of(net);
    const std::vector<walked> known = ops::walk(graph, std::move(given), counts);
    batch_verdict verdict;
    verdict.is = batch_verdict::kind::rows;
    const auto lose = [&](batch_verdict::kind is, std::string why) {
        if (verdict.is == batch_verdict::kind::mixed || (verdict.is == is)) return;
        verdict.is = is, verdict.why = std::move(why);
    };
    for (std::size_t i = 0; i < known.size(); ++i)
        if (known[i].is_rows()) verdict.places[net.values[i].name] = {known[i].axis, known[i].shape.size()};
    bool any = false;
    std::size_t number = 0;
    for (const int o : graph.outputs) {
        const walked& v = known[static_cast<std::size_t>(o)];
        const std::string name = net.outputs[number].edges.empty() ? std::string() : net.outputs[number].edges.back().tensor;
        ++number;
        const bool placed = v.is == walked::kind::shared || (v.is_rows() && v.outer == 1);
        verdict.output_axes.push_back(!placed ? -2 : v.axis);
        any = any || v.is_rows();
        if (v.is == walked::kind::mixed) lose(batch_verdict::kind::mixed, v.why);
        else if (v.is == walked::kind::undecided) lose(batch_verdict::kind::undecided, v.why);
        else if (v.numbers != walked::numbering::none) lose(batch_verdict::kind::mixed, "output '" + name + "' numbers the samples");
        else if (v.is == walked::kind::counted) lose(batch_verdict::kind::mixed, "output '" + name + "' is the number of samples");
        else if (!placed) lose(batch_verdict::kind::mixed, "output '" + name + "' has the samples several times along an axis");
    }
    if (verdict.rows() && !any) lose(batch_verdict::kind::mixed, "no output depends on the samples");
    return verdict;
}

}  // namespace qk::graph::execute
