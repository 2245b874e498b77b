// SPDX-License-Identifier: Apache-2.0
#include "learn/learn_input_scale.hpp"

#include <onnx/onnx_pb.h>

#include "graph/gradient/straight_through.hpp"
#include "qk/graph/plan/layers.hpp"

namespace qk::graph::detail {

bool input_scale_learns(const model& m, const precision_plan& plan, const onnx::NodeProto& layer) {
    const quantizer* q = plan.find({layer.input(0), layer.name(), 0});
    if (q == nullptr || q->scale.size() != 1 || q->dynamic || !gradient::scale_learns(*q) || bits_per_value(q->format) >= 16) return false;
    if (m.uses(layer.input(0)).size() != 1) return false;
    const int producer = m.producer(layer.input(0));
    return producer < 0 || kind_of(m.graph().node(producer)) != layer_kind::mover;
}

float better_factor(const std::function<double(float)>& error, double start) {
    constexpr float least = 0.2f, most = 2.0f;
    float best = 1;
    double lowest = start;
    for (const float step : {1.25f, 1.1f, 1.03f})
        for (const float by : {1 / step, step})
            for (float next = best * by; next >= least && next <= most; next *= by) {
                const double found = error(next);
                if (!(found < lowest)) break;
                lowest = found, best = next;
            }
    return best;
}

}  // namespace qk::graph::detail
