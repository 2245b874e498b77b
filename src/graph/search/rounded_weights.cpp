// SPDX-License-Identifier: Apache-2.0
#include <onnx/onnx_pb.h>

#include <algorithm>

#include "qk/graph/quantize/learn_rounding.hpp"
#include "qk/graph/search/rounded_weights.hpp"

namespace qk::graph {
namespace detail {

/// Marks in the seed of a quantizer's semantics. These bits are free: rounding that draws no random numbers ignores the seed, and the
/// values of rounded weights are known.
inline constexpr std::uint64_t compensated_mark = std::uint64_t{1} << 62, learned_mark = std::uint64_t{1} << 61,
                               any_mark = compensated_mark | learned_mark;

inline bool is_marked(const quantizer& q) { return (q.semantics.seed & any_mark) != 0; }

}  // namespace detail

void rounded_weights::round(const model& m, precision_plan& plan, const std::vector<std::string>& layers, weight_rounding how,
                            const named_tensors& samples, const compensate_options& options) {
    precision_plan weights;
    for (const std::string& layer : layers) {
        const onnx::NodeProto& node = m.graph().node(m.node_index(layer));
        for (int i = 0; i < node.input_size() && i < 2; ++i) {
            const quantizer* q = m.is_constant(node.input(i)) ? plan.find({node.input(i), layer, i}) : nullptr;
            if (q != nullptr) weights.edges[{node.input(i), layer, i}] = *q;
        }
    }
    model rounded = m;
    const auto remember = [&](const auto& done, std::uint64_t mark) {
        if (!done.left.empty()) return;
        const auto at = std::find_if(weights.edges.begin(), weights.edges.end(),
                                     [&](const auto& e) { return e.first.tensor == done.weight && e.first.consumer == done.layer; });
        quantizer marked = at->second;
        marked.semantics.seed |= mark;
        plan.edges[at->first] = marked;
        auto& known = values_[done.weight];
        if (std::none_of(known.begin(), known.end(), [&](const auto& k) { return k.first == marked; }))
            known.emplace_back(marked, rounded.constant(done.weight));
    };
    if (how == weight_rounding::compensated)
        for (const compensated_weight& done : compensate_rounding(rounded, weights, samples, options))
            remember(done, detail::compensated_mark);
    if (how == weight_rounding::adaround)
        for (const learned_weight& done :
             learn_rounding(rounded, weights, samples, [&](const std::string&) { return how; }, {.threads = options.threads}))
            remember(done, detail::learned_mark);
}

void rounded_weights::hand_to(scorer& measure) const {
    for (const auto& [name, each] : values_)
        for (const auto& [how, value] : each) measure.hold(name, how, value);
}

std::map<std::string, tensor> rounded_weights::take(precision_plan& plan) const {
    std::map<std::string, tensor> taken;
    for (auto& [where, q] : plan.edges) {
        if (!detail::is_marked(q)) continue;
        for (const auto& [how, value] : values_.at(where.tensor))
            if (how == q) taken[where.tensor] = value;
        q.semantics.seed &= ~detail::any_mark;
    }
    return taken;
}

model with_weights(model m, const std::map<std::string, tensor>& values) {
    if (values.empty()) return m;
    for (auto& initializer : *m.graph().mutable_initializer()) {
        const auto found = values.find(initializer.name());
        if (found == values.end()) continue;
        initializer.Clear();
        to_proto(found->second, found->first, initializer);
    }
    m.reindex();
    return m;
}

}  // namespace qk::graph
