// SPDX-License-Identifier: Apache-2.0
// Definitions of plan_scales.hpp.
#include "graph/gradient/plan_scales.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "graph/gradient/straight_through.hpp"
#include "graph/ops/op.hpp"
#include "qk/graph/plan/layers.hpp"

namespace qk::graph::gradient {
namespace {

quantizer* entry_of(precision_plan& plan, const edge& e) {
    if (const auto i = plan.edges.find(e); i != plan.edges.end()) return &i->second;
    if (const auto i = plan.tensors.find(e.tensor); i != plan.tensors.end()) return &i->second;
    return nullptr;
}

/// Finds the tensor whose scale a tensor shares: the source of nodes that only move data and, for what a Concat joins, its result.
class shared_names {
  public:
    explicit shared_names(const model& m) : layers_(m) {
        for (const auto& n : m.graph().node())
            if (facts_of(n).has(ops::joins))
                for (const std::string& in : n.input())
                    if (!m.is_constant(in)) joined_[layers_.root(in)] = layers_.root(n.output(0));
    }
    std::string of(const std::string& tensor) const {
        std::string name = layers_.root(tensor);
        for (auto i = joined_.find(name); i != joined_.end(); i = joined_.find(name)) name = i->second;
        return name;
    }

  private:
    layer_view layers_;
    std::map<std::string, std::string> joined_;
};

}  // namespace

plan_scales::plan_scales(const model& m, precision_plan& plan) {
    find_biases(m, plan);
    std::set<const quantizer*> follows;
    for (const biased& b : biases_) follows.insert(b.bias);
    const shared_names names(m);
    std::map<std::string, std::vector<int>> by_name;
    const auto add = [&](const std::string& tensor, quantizer& q) {
        if (!scale_learns(q) || follows.contains(&q) || q.format == qk::format(int32)) return;
        std::vector<int>& known = by_name[names.of(tensor)];
        for (const int g : known)
            if (*groups_[static_cast<std::size_t>(g)].members[0] == q) {
                groups_[static_cast<std::size_t>(g)].members.push_back(&q);
                group_of_[&q] = g;
                return;
            }
        known.push_back(static_cast<int>(groups_.size()));
        group_of_[&q] = known.back();
        groups_.push_back({{&q}, q.scale, q.scale, std::vector<double>(q.scale.size(), 0.0), std::vector<double>(q.scale.size(), 0.0)});
    };
    for (auto& [tensor, q] : plan.tensors) add(tensor, q);
    for (auto& [e, q] : plan.edges) add(e.tensor, q);
}

void plan_scales::find_biases(const model& m, precision_plan& plan) {
    for (const auto& n : m.graph().node()) {
        if (kind_of(n) != layer_kind::compute || n.input_size() < 3) continue;
        quantizer *x = entry_of(plan, {n.input(0), n.name(), 0}), *w = entry_of(plan, {n.input(1), n.name(), 1}),
                  *b = entry_of(plan, {n.input(2), n.name(), 2});
        if (x == nullptr || w == nullptr || b == nullptr || b->format != qk::format(int32)) continue;
        if (x->scale.size() != 1 || w->scale.empty() || b->scale.empty() ||
            (w->scale.size() != 1 && b->scale.size() % w->scale.size() != 0))
            continue;
        biases_.push_back({b, x, w, &n});
    }
}

int plan_scales::group_of(const quantizer* q) const {
    const auto found = group_of_.find(q);
    return found == group_of_.end() ? -1 : found->second;
}

plan_scales::gradients plan_scales::zeros() const {
    gradients g;
    for (const group& one : groups_) g.emplace_back(one.scale.size(), 0.0);
    return g;
}

void plan_scales::step(const gradients& g, double rate, double time) {
    constexpr double keep = 0.9, keep_squares = 0.999;
    for (std::size_t k = 0; k < groups_.size(); ++k) {
        group& one = groups_[k];
        for (std::size_t i = 0; i < one.scale.size(); ++i) {
            const double d = g[k][i] * static_cast<double>(one.scale[i]);  // gradient by the scale's logarithm
            one.first[i] = keep * one.first[i] + (1 - keep) * d;
            one.second[i] = keep_squares * one.second[i] + (1 - keep_squares) * d * d;
            const double mean = one.first[i] / (1 - std::pow(keep, time)),
                         spread = std::sqrt(one.second[i] / (1 - std::pow(keep_squares, time)));
            if (!(spread > 0) || !std::isfinite(spread)) continue;
            one.scale[i] *= static_cast<float>(std::exp(-rate * std::clamp(mean / spread, -3.0, 3.0)));
        }
    }
    write();
}

void plan_scales::write() {
    for (group& one : groups_)
        for (quantizer* q : one.members) q->scale = one.scale;
    for (const biased& b : biases_)
        for (std::size_t i = 0; i < b.bias->scale.size(); ++i)
            b.bias->scale[i] = static_cast<float>(bias_scale(*b.layer, b.input->scale[0], b.weight->scale[i % b.weight->scale.size()]));
}

void plan_scales::remember() {
    for (group& one : groups_) one.best = one.scale;
}

void plan_scales::go_back() {
    bool changed = false;
    for (group& one : groups_) changed = changed || one.scale != one.best, one.scale = one.best;
    if (changed) write();
}

}  // namespace qk::graph::gradient
