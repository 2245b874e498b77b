// SPDX-License-Identifier: Apache-2.0
// The options by which verbs take precision: --activation, --weight, --plan, --per-channel, --calibration-method, --target, ...
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "options/data_options.hpp"
#include "options/option_table.hpp"
#include "qk/graph/calibrate/statistics.hpp"
#include "qk/graph/model/model.hpp"
#include "qk/graph/quantize/planner.hpp"

namespace qk::tool {

struct precision_options {
    std::string activation, weight, bias;
    std::string plan;    ///< requests file, saved plan or AIMET encodings
    std::string target;  ///< profile, or the name of a built-in one
    std::string method, placement, approach, semantics, rounding, pow2, weight_rounding;
    double percentile = 0;
    int weight_block = 0;
    bool per_channel = false, symmetric = false, asymmetric_weights = false, reduce_range = false, dual = false, strict = false;

    /// Adds the options to a verb. Without `formats`: not --activation and --weight (search has its own).
    void add(option_table& verb, bool formats = true);

    /// Whether anything asks for a precision at all.
    bool any() const { return !activation.empty() || !weight.empty() || !bias.empty() || !plan.empty(); }

    /// Requests of --plan, then of --activation and --weight as the default. Error for names that mean nothing.
    /// `saved`: the plan itself, when --plan is one.
    struct asked {
        std::vector<graph::request> requests;
        graph::quantize_options options;
        std::optional<graph::precision_plan> saved;
        std::vector<graph::plan_note> notes{};  ///< of a saved plan: names that led elsewhere
    };
    asked read(const graph::model& m) const;
};

/// A model ready for planning: constants and batch normalization folded.
graph::model load_for_planning(const std::string& file);

/// Statistics for planning: a calibration file, or a pass over --calibration (or the inputs) with what the methods need. Nothing is
/// run when no request needs a range.
/// `histograms`: gathered even where no method needs them (a report draws them).
graph::calibration calibrate_for(const graph::model& m, const data_options& data, const precision_options::asked& asked,
                                 bool histograms = false, const graph::named_tensors* inputs = nullptr,
                                 graph::named_tensors* outputs = nullptr);

/// Everything between the command line and a plan. The model has its constants folded; where weights are rounded with compensation, they
/// change.
graph::quantize_result make_plan(graph::model& m, const data_options& data, const precision_options& precision,
                                 graph::calibration* seen = nullptr, bool full = false);

}  // namespace qk::tool
