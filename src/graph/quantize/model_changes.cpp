// SPDX-License-Identifier: Apache-2.0
#include "graph/quantize/model_changes.hpp"

#include <onnx/onnx_pb.h>

#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "graph/model/tensor_proto.hpp"
#include "graph/ops/widened.hpp"
#include "graph/quantize/missing_biases.hpp"
#include "graph/quantize/scale_channels.hpp"
#include "qk/graph/calibrate/scales.hpp"
#include "qk/graph/quantize/learning.hpp"

namespace qk::graph {
namespace {

std::vector<float> copied(const tensor& t) { return {t.as<float>().begin(), t.as<float>().end()}; }

bool same_bits(float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0; }

/// Returns the one quantizer under which nodes read a constant; nullptr if they read it under several, or as it is.
const quantizer* only_quantizer(const model& m, const precision_plan& plan, const std::string& name) {
    const quantizer* found = nullptr;
    for (const auto& use : m.uses(name)) {
        const quantizer* q = use.node < 0 ? nullptr : plan.find({name, m.graph().node(use.node).name(), use.input});
        if (q == nullptr || q->dynamic || (found != nullptr && *q != *found)) return nullptr;
        found = q;
    }
    return found;
}

}  // namespace

moved_values moved_between(const tensor& before, const tensor& now, const quantizer* q) {
    const std::span<const float> old = before.as<float>(), own = now.as<float>();
    const auto differing = [&](std::span<const float> a, std::span<const float> b) {
        moved_values moved;
        for (std::size_t i = 0; i < a.size(); ++i)
            if (!same_bits(a[i], b[i])) moved.place.push_back(static_cast<std::int64_t>(i)), moved.value.push_back(own[i]);
        return moved;
    };
    // Scales of blocks follow from the values, and the same value may have another code at another scale.
    if (q == nullptr || is_block_format(q->format)) return differing(old, own);
    const tensor wanted = applied(*q, now), read = applied(*q, before);
    return differing(std::as_const(read).as<float>(), std::as_const(wanted).as<float>());
}

tensor with_moved(const tensor& stored, const moved_values& moved) {
    const tensor own = ops::widened(stored);
    tensor changed = make_tensor<float>(own.shape(), copied(own));
    for (std::size_t i = 0; i < moved.place.size(); ++i) changed.as<float>()[static_cast<std::size_t>(moved.place[i])] = moved.value[i];
    return ops::narrowed(changed, stored.type());
}

constants_before::constants_before(const model& m) {
    for (const auto& n : m.graph().node())
        for (const std::string& name : n.input()) {
            if (name.empty() || values_.contains(name) || !m.is_constant(name)) continue;
            const tensor value = ops::widened(m.constant(name));
            if (value.type() == data_type::float32) values_[name] = make_tensor<float>(value.shape(), copied(value));
        }
}

void constants_before::record(const model& now, precision_plan& plan) const {
    plan.moved.clear();
    for (const auto& [name, before] : values_) {
        if (!now.is_constant(name)) continue;
        const tensor value = ops::widened(now.constant(name));
        if (value.type() != data_type::float32 || value.shape() != before.shape()) continue;
        moved_values moved = moved_between(before, value, only_quantizer(now, plan, name));
        if (!moved.place.empty()) plan.moved[name] = std::move(moved);
    }
}

void reshape_for(model& m, const precision_plan& plan, const std::string& label) {
    if (plan.rotated) rotate_streams(m);
    for (const scaled_channels& one : plan.scaled) scale_again(m, one, label);
    add_missing_biases(m, &plan);
}

void apply_moved(model& m, const precision_plan& plan) {
    for (auto& initializer : *m.graph().mutable_initializer()) {
        const auto found = plan.moved.find(initializer.name());
        if (found == plan.moved.end()) continue;
        const tensor changed = with_moved(m.constant(initializer.name()), found->second);
        to_proto(changed, found->first, initializer);
    }
    m.reindex();
}

}  // namespace qk::graph
