// SPDX-License-Identifier: Apache-2.0
#include <onnx/onnx_pb.h>

#include <algorithm>

#include "graph/ops/widened.hpp"
#include "graph/quantize/model_changes.hpp"
#include "graph/quantize/pair_safe.hpp"
#include "qk/graph/quantize/learning.hpp"
#include "qk/graph/search/rounded_weights.hpp"

namespace qk::graph {
namespace detail {

/// Marks in the seed of a quantizer's semantics. These bits are free: rounding that draws no random numbers ignores the seed, and the
/// values of rounded weights are known. Options whose quantizers of a weight are equal may round it differently, as inputs of other ranges
/// weigh otherwise: an ordinal tells them apart.
inline constexpr std::uint64_t compensated_mark = std::uint64_t{1} << 62, learned_mark = std::uint64_t{1} << 61,
                               safe_mark = std::uint64_t{1} << 60, next_ordinal = std::uint64_t{1} << 52,
                               any_mark = compensated_mark | learned_mark | safe_mark | (safe_mark - next_ordinal);

inline bool is_marked(const quantizer& q) { return (q.semantics.seed & any_mark) != 0; }

inline bool same_bytes(const tensor& a, const tensor& b) {
    return a.size_bytes() == b.size_bytes() && std::equal(a.bytes(), a.bytes() + a.size_bytes(), b.bytes());
}

/// Returns the quantizers of the constants that these layers read as factors.
inline precision_plan weights_of(const model& m, const precision_plan& plan, const std::vector<std::string>& layers) {
    precision_plan weights;
    for (const std::string& layer : layers) {
        const onnx::NodeProto& node = m.graph().node(m.node_index(layer));
        for (int i = 0; i < node.input_size() && i < 2; ++i) {
            const quantizer* q = m.is_constant(node.input(i)) ? plan.find({node.input(i), layer, i}) : nullptr;
            if (q != nullptr) weights.edges[{node.input(i), layer, i}] = *q;
        }
    }
    return weights;
}

}  // namespace detail

void rounded_weights::round(const model& m, precision_plan& plan, const std::vector<std::string>& layers, weight_rounding how,
                            bool pair_safe, const named_tensors& samples, const named_tensors& pair_samples,
                            const compensate_options& options) {
    model rounded = m;
    std::map<std::string, std::uint64_t> marks;  // by layer
    const pair_safe_options safe_options{.threads = options.threads};
    std::vector<std::string> safe;
    if (pair_safe)
        for (std::string& layer : pairing_layers(m, plan))
            if (std::ranges::find(layers, layer) != layers.end()) safe.push_back(std::move(layer));
    const layer_moments moments = safe.empty() ? layer_moments() : gather_moments(m, plan, pair_samples, safe_options);
    const auto make_safe = [&](bool rescales, bool moves) {
        if (safe.empty()) return;
        pair_safe_options now = safe_options;
        now.rescales = rescales, now.moves = moves;
        for (pair_safe_weight& done : make_pair_safe(rounded, plan, safe, moments, now)) {
            if (done.left.empty() && moves && done.moved > 0) marks[done.layer] |= detail::safe_mark;
        }
    };
    make_safe(true, how == weight_rounding::nearest);
    const precision_plan weights = detail::weights_of(m, plan, layers);
    if (how == weight_rounding::compensated)
        for (const compensated_weight& done : compensate_rounding(rounded, weights, samples, options))
            if (done.left.empty()) marks[done.layer] |= detail::compensated_mark;
    if (how == weight_rounding::adaround) {
        precision_plan learning = weights;
        for (const learned_weight& done :
             learn_rounding(rounded, learning, samples, [&](const std::string&) { return how; }, {.threads = options.threads}))
            if (done.left.empty()) marks[done.layer] |= detail::learned_mark;
    }
    if (how != weight_rounding::nearest) make_safe(false, true);
    for (const auto& [where, q] : weights.edges) {
        const auto mark = marks.find(where.consumer);
        if (mark == marks.end()) continue;
        quantizer marked = q;
        marked.semantics.seed |= mark->second;
        auto& known = values_[where.tensor];
        const tensor& value = rounded.constant(where.tensor);
        const auto taken = [&](bool by_others) {
            return std::ranges::any_of(
                known, [&](const auto& k) { return k.first == marked && (!by_others || !detail::same_bytes(k.second, value)); });
        };
        while (taken(true)) marked.semantics.seed += detail::next_ordinal;
        plan.edges[where] = marked;
        if (taken(false)) continue;
        known.emplace_back(marked, value);
        const tensor own = ops::widened(m.constant(where.tensor)), now = ops::widened(value);
        moved_[where.tensor].emplace_back(marked, moved_between(own, now, &q));
    }
}

void rounded_weights::hand_to(scorer& measure) const {
    for (const auto& [name, each] : values_)
        for (const auto& [how, value] : each) measure.hold(name, how, value);
}

const tensor* rounded_weights::find(const std::string& weight, const quantizer& how) const {
    const auto known = values_.find(weight);
    if (known == values_.end() || !detail::is_marked(how)) return nullptr;
    const auto found = std::ranges::find(known->second, how, &std::pair<quantizer, tensor>::first);
    return found == known->second.end() ? nullptr : &found->second;
}

std::map<std::string, tensor> rounded_weights::take(precision_plan& plan) const {
    std::map<std::string, tensor> taken;
    for (auto& [where, q] : plan.edges) {
        if (!detail::is_marked(q)) continue;
        if (const tensor* value = find(where.tensor, q)) taken[where.tensor] = *value;
        for (const auto& [how, values] : moved_.at(where.tensor))
            if (how == q) plan.moved[where.tensor] = values;
        q.semantics.seed &= ~detail::any_mark;
    }
    return taken;
}

void rounded_weights::hold_moved(const model& m, precision_plan& plan, scorer& measure) {
    for (auto& [where, q] : plan.edges) {
        const auto found = plan.moved.find(where.tensor);
        if (found == plan.moved.end() || !m.is_constant(where.tensor)) continue;
        auto& known = moved_[where.tensor];
        const auto same = [&, &held = q](const auto& k) {
            quantizer plain = k.first;
            plain.semantics.seed &= ~detail::any_mark;
            return plain == held && k.second == found->second;
        };
        if (const auto k = std::ranges::find_if(known, same); k != known.end()) {
            q = k->first;
            continue;
        }
        quantizer marked = q;
        marked.semantics.seed |= detail::safe_mark + known.size() * detail::next_ordinal;
        measure.hold(where.tensor, marked, with_moved(m.constant(where.tensor), found->second));
        known.emplace_back(marked, found->second);
        q = std::move(marked);
    }
    plan.moved.clear();
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
