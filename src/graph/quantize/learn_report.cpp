// SPDX-License-Identifier: Apache-2.0
// What weights that learned say in a report.
#include <cstdio>

#include "qk/graph/quantize/learn_rounding.hpp"

namespace qk::graph {

void add_to(quantize_report& report, const std::vector<learned_weight>& done) {
    const auto text = [](double v, const char* unit) {
        char number[32];
        std::snprintf(number, sizeof number, "%.3g%s", v, unit);
        return std::string(number);
    };
    for (const learned_weight& w : done) {
        if (!w.left.empty())
            report.notes.push_back({plan_note::kind::unrealised, "layer '" + w.layer + "'", "its weights are rounded to nearest: " + w.left,
                                    "weight rounding"});
        if (!w.bias_left.empty())
            report.notes.push_back(
                {plan_note::kind::unrealised, "layer '" + w.layer + "'", "its bias is not corrected: " + w.bias_left, "bias correction"});
        const bool learned = w.left.empty() && (w.how == weight_rounding::adaround || w.how == weight_rounding::adaquant);
        for (edge_report& e : report.edges) {
            if (e.edge.tensor != w.weight || e.edge.consumer != w.layer) continue;
            if (learned) {
                e.sqnr = w.weight_sqnr;
                e.why += std::string("; rounded by ") + (w.how == weight_rounding::adaround ? "AdaRound" : "AdaQuant") +
                         ": the layer's output at " + text(w.learned, " dB") + ", to nearest " + text(w.nearest, " dB");
            }
            if (w.bias_moved > 0) e.why += "; bias corrected by up to " + text(w.bias_moved, "");
        }
    }
}

}  // namespace qk::graph
