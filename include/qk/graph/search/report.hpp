// SPDX-License-Identifier: Apache-2.0
// Reports of sensitivity and search, as JSON and as one self-contained page.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "qk/graph/report/html.hpp"
#include "qk/graph/search/search.hpp"

namespace qk::graph {

/// What a page is about.
struct search_subject {
    std::string model, command;
    const calibration* seen = nullptr;  ///< source of the tensors' histograms; may be null
};

nlohmann::ordered_json to_json(const sensitivity_result& r);
/// Has the keys status, metric, baseline_metric, seconds, evaluations, layer_evaluations, plan, and what explains them.
nlohmann::ordered_json to_json(const search_result& r);

/// Returns sentences on what chance may make of a search's result; empty where nothing is known of it.
std::string chance_text(const search_result& r);

std::string sensitivity_html(const search_subject& subject, const sensitivity_result& r);
std::string search_html(const search_subject& subject, const search_result& r);

}  // namespace qk::graph
