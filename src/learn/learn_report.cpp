// SPDX-License-Identifier: Apache-2.0
// Reports what learning did to weights and biases.
#include "learn/learn_rounding.hpp"
#include "qk/graph/base/names.hpp"

namespace qk::graph {

void add_to(quantize_report& report, const std::vector<learned_weight>& done) {
    for (const learned_weight& w : done) {
        const auto note = [&](const std::string& text, const char* origin) {
            report.notes.push_back({plan_note::kind::unrealised, "layer '" + w.layer + "'", text, origin});
        };
        if (!w.left.empty()) note("its weights are rounded to nearest: " + w.left, "weight rounding");
        if (!w.bias_left.empty()) note("its bias is not corrected: " + w.bias_left, "bias correction");
        const bool learned = w.left.empty() && (w.how == weight_rounding::adaround || w.how == weight_rounding::adaquant);
        for (edge_report& e : report.edges) {
            if (e.edge.tensor != w.weight || e.edge.consumer != w.layer) continue;
            if (learned) {
                e.sqnr = w.weight_sqnr;
                e.why += formatted("; rounded by %s: the layer's output at %.3g dB, to nearest %.3g dB",
                                   w.how == weight_rounding::adaround ? "AdaRound" : "AdaQuant", w.learned, w.nearest);
            }
            if (w.bias_moved > 0) e.why += formatted("; bias corrected by up to %.3g", w.bias_moved);
        }
    }
}

}  // namespace qk::graph
