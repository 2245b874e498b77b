// SPDX-License-Identifier: Apache-2.0
// `qk diff` as one call: tensor by tensor, where another runtime departs from what the network says.
#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "qk/graph/base/tensor.hpp"
#include "qk/graph/pipeline/plan.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph::pipeline {

/// What a conversion took and gave, for those who look for the mistake in it.
struct conversion_case {
    std::vector<float> input, theirs;
    dims shape;
    quantizer how;
};

/// Each member is the command's option of the same name; empty: not given.
struct diff_settings {
    model_source model;
    std::string against;                                           ///< onnxruntime, openvino, a model's file, or a folder of tensors
    std::string command;                                           ///< a runtime to call instead
    std::string optimizer;                                         ///< off, on or both (the default) where the runtime has one
    std::string library{};                                         ///< qk's operators for onnxruntime: a file, or beside_qk
    std::string report;                                            ///< HTML
    std::string command_line{};                                    ///< as typed, for the report
    std::function<std::string(const conversion_case&)> explain{};  ///< returns the converter's mistake that explains a case, or nothing
    bool overwrite = false;
    data_settings data;
    precision_settings precision;
    cancel_function cancel{};
};

/// One tensor beside what qk computes from the other side's own inputs of the node that makes it.
struct tensor_diff {
    std::string name{}, node{}, op_type{}, format{};
    std::string not_compared{};     ///< why, where it was not
    std::size_t values = 0;         ///< of all runs
    std::size_t different = 0;      ///< not the same value
    std::size_t beyond = 0;         ///< differ by more than ties and the order of sums explain: above 0 the tensor departs
    std::optional<double> codes{};  ///< the largest difference, in codes of its quantizer; none where it has none
    double largest = 0;             ///< the largest difference
    double ulps = 0;                ///< the same in units of the last place of the value there
    double decibels = 0;            ///< signal to difference; infinite where nothing differs
    double along = 0;               ///< the same from the network's inputs on, with what earlier tensors bring along
    std::string there{};            ///< the operator that makes it on the other side, where an optimizer put another one in its place
    std::string judged_by{};        ///< the rule that says what is no departure
    std::string rule{};             ///< what explains a departure
    bool departs() const { return beyond > 0; }
};

/// One comparison: a runtime with its optimizer off or on.
struct diff_side {
    std::string against;
    std::vector<tensor_diff> tensors;  ///< in the network's order
    std::size_t first = 0;             ///< the first that departs; tensors.size(): none
    bool departs() const { return first < tensors.size(); }
};

struct diff_outcome {
    std::vector<diff_side> sides;
    std::vector<std::string> remarks;
    std::size_t samples = 0;
    bool agree() const;
};

/// Compares. Throws qk::graph::error.
diff_outcome diff(const diff_settings& settings, const progress_function& progress = {});

/// Returns how a tensor departs: "812 of 1024 values by up to 3 codes, 12.3 dB".
std::string departure_text(const tensor_diff& d);
nlohmann::ordered_json to_json(const diff_outcome& all);
std::string diff_html(const std::string& model, const std::string& command, const diff_outcome& all);

}  // namespace qk::graph::pipeline
