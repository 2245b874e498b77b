// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/quantize/learning.hpp"

#include "qk/graph/base/names.hpp"

namespace qk::graph {

std::vector<learned_weight> learn_rounding(model& m, precision_plan& plan, const named_tensors& samples,
                                           const std::function<weight_rounding(const std::string&)>& how, const learn_options& options,
                                           const progress& report) {
    return learn_component.functions_for("learned rounding or a correction of biases")
        .learn_rounding(m, plan, samples, how, options, report);
}

std::vector<rotated_stream> rotate_streams(model& m, std::uint64_t seed) {
    return learn_component.functions_for("a rotation").rotate_streams(m, seed);
}

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

void add_to(quantize_report& report, const std::vector<rotated_stream>& done) {
    for (const rotated_stream& r : done) {
        const bool refused = !r.refused.empty();
        const std::string said = refused ? "its channels cannot be rotated: " + r.refused
                                         : std::to_string(r.channels) + " channels were rotated: written by " + listed(r.writers) +
                                               ", read by " + listed(r.readers);
        report.notes.push_back(
            {refused ? plan_note::kind::unrealised : plan_note::kind::rotated, "stream '" + r.tensor + "'", said, "rotation"});
    }
    if (done.empty())
        report.notes.push_back({plan_note::kind::unrealised, "rotation",
                                "the model has no stream that a normalization reads: nothing was rotated", "rotation"});
}

}  // namespace qk::graph
