// SPDX-License-Identifier: Apache-2.0
#include <onnx/onnx_pb.h>

#include <limits>
#include <set>

#include "graph/ops/clamp.hpp"
#include "qk/graph/export/drop_activations.hpp"
#include "qk/graph/plan/layers.hpp"

namespace qk::graph {

std::vector<std::string> drop_needless_activations(model& m, const precision_plan& plan) {
    std::set<std::string> gone;
    std::vector<std::pair<int, std::string>> renamed;  // producer and its new output
    const layer_view layers(m);
    for (int n = 0; n < m.graph().node_size(); ++n) {
        const onnx::NodeProto& node = m.graph().node(n);
        if (layers.nodes()[static_cast<std::size_t>(n)].kind != layer_kind::activation || node.output_size() != 1) continue;
        const std::string &in = node.input(0), &out = node.output(0);
        const int producer = m.producer(in);
        if (producer < 0 || m.uses(in).size() != 1 || m.uses(out).empty() || plan.find({in, node.name(), 0}) != nullptr) continue;
        if (m.graph().node(producer).output_size() != 1) continue;
        const auto [lowest, highest, known] = ops::clamp_bounds_of(node, [&](const std::string& name) -> std::optional<float> {
            const tensor t = m.is_constant(name) ? m.constant(name) : tensor();
            return t.type() == data_type::float32 && t.size() == 1 ? std::optional(t.as<float>()[0]) : std::nullopt;
        });
        if (!known) continue;
        const quantizer* first = nullptr;
        bool same = true;
        for (const auto& u : m.uses(out)) {
            const quantizer* q = plan.find({out, u.node < 0 ? std::string() : m.graph().node(u.node).name(), u.input});
            same = same && q != nullptr && (first == nullptr || *q == *first);
            first = q;
        }
        if (!same || first->dynamic || first->scale.size() != 1) continue;
        const integer* f = std::get_if<integer>(&first->format);
        if (f == nullptr || first->semantics.integer_infinity != integer_special::highest) continue;
        const std::int64_t zero = first->zero_point.empty() ? 0 : first->zero_point[0];
        const double scale = static_cast<double>(first->scale[0]);
        if (static_cast<double>(qmin(*f) - zero) * scale < lowest || static_cast<double>(qmax(*f) - zero) * scale > highest) continue;
        gone.insert(node.name());
        renamed.emplace_back(producer, out);
    }
    if (gone.empty()) return {};
    onnx::GraphProto& g = m.graph();
    for (const auto& [producer, name] : renamed) g.mutable_node(producer)->set_output(0, name);
    auto* nodes = g.mutable_node();
    int kept = 0;
    for (int n = 0; n < nodes->size(); ++n)
        if (!gone.contains(nodes->Get(n).name())) nodes->SwapElements(kept++, n);
    nodes->DeleteSubrange(kept, nodes->size() - kept);
    m.reindex();
    return {gone.begin(), gone.end()};
}

std::size_t store_activations_unsigned(precision_plan& plan, const model& m) {
    std::size_t changed = 0;
    const auto store = [&](const std::string& tensor, quantizer& q) {
        if (m.is_constant(tensor) || !(q.format == qk::format(int8)) || q.dynamic || q.scale.size() != 1) return;
        q.format = uint8;
        q.zero_point = {(q.zero_point.empty() ? 0 : q.zero_point[0]) + 128};
        ++changed;
    };
    for (auto& [name, q] : plan.tensors) store(name, q);
    for (auto& [e, q] : plan.edges) store(e.tensor, q);
    return changed;
}

}  // namespace qk::graph
