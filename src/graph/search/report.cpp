// SPDX-License-Identifier: Apache-2.0
// Pages and JSON of sensitivity and search.
#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "graph/base/process_memory.hpp"
#include "qk/graph/files/json_text.hpp"
#include "qk/graph/quantize/plan_file.hpp"
#include "qk/graph/report/report.hpp"
#include "qk/graph/search/report.hpp"

namespace qk::graph {
namespace detail {

/// Returns null for NaN and Inf, which JSON lacks.
inline nlohmann::ordered_json finite_number(double v) {
    return std::isfinite(v) ? nlohmann::ordered_json(v) : nlohmann::ordered_json(nullptr);
}

inline nlohmann::ordered_json trial_json(const search_space& space, const trial& t) {
    nlohmann::ordered_json layers = nlohmann::ordered_json::object();
    for (std::size_t l = 0; l < space.size(); ++l) layers[space.layers[l]] = space.options[t.choice[l]];
    return {{"metric", finite_number(t.result.metric)}, {"error", finite_number(t.result.error)}, {"cost", t.cost}, {"layers", layers}};
}

/// Returns the definition of a metric; empty for a user's own.
inline std::string definition_of(const std::string& name) {
    for (const metric& m : all_metrics())
        if (m.name == name) return std::string(m.what);
    return {};
}

/// Returns what a run took. Functions of models run them elsewhere, where nobody counts layers.
inline std::vector<std::pair<std::string, std::string>> effort_facts(std::size_t evaluations, std::size_t layers, std::size_t naive,
                                                                     double seconds) {
    std::vector<std::pair<std::string, std::string>> facts{{"evaluations", std::to_string(evaluations)}};
    if (naive > 0) facts.emplace_back("layer evaluations", std::to_string(layers) + " of " + std::to_string(naive));
    facts.emplace_back("seconds", html_number(seconds));
    return facts;
}

/// Writes the metric's definition and the remarks below a page's facts.
inline void explain_metric(html_page& page, const std::string& name, const std::vector<std::string>& remarks) {
    if (const std::string what = definition_of(name); !what.empty()) page.paragraph(name + ": " + what + ".");
    for (const std::string& r : remarks) page.paragraph("Remark: " + r + ".");
}

/// Draws what each layer adds to the wide model's error when it alone is narrow, in network order, for the layers that the search measured
/// so.
inline void draw_alone(html_page& page, const search_result& r) {
    const auto wide = std::find_if(r.history.begin(), r.history.end(), [&](const trial& t) { return t.choice == r.space.all(0); });
    if (wide == r.history.end()) return;
    std::map<std::pair<std::size_t, std::uint8_t>, const trial*> alone;  // by layer, then option
    for (const trial& t : r.history) {
        const auto narrowed = [](std::uint8_t o) { return o != 0; };
        if (std::count_if(t.choice.begin(), t.choice.end(), narrowed) != 1) continue;
        const auto l = static_cast<std::size_t>(std::find_if(t.choice.begin(), t.choice.end(), narrowed) - t.choice.begin());
        alone.emplace(std::pair{l, t.choice[l]}, &t);
    }
    std::vector<html_bar> bars;
    for (const auto& [where, t] : alone)
        bars.push_back({r.space.layers[where.first] + "  " + r.space.options[where.second], t->result.error - wide->result.error,
                        "makes " + html_number(t->result.error) + "; " + r.metric_name + " " + html_number(t->result.metric),
                        where.second});
    if (!bars.empty())
        page.heading("Sensitivity")
            .bar_chart("What narrowing each layer alone adds to the output's mean squared error (all wide: " +
                           html_number(wide->result.error) + "), in network order",
                       bars);
}

/// Returns a layer for a table: its name, and the module of torch where that is another.
inline std::string with_module(const std::string& layer, const std::map<std::string, std::string>& modules) {
    const auto found = modules.find(layer);
    return found == modules.end() ? layer : layer + " (" + found->second + ")";
}

/// Returns how many layers have each option, as text.
inline std::string share_text(const search_space& space, const assignment& a) {
    std::string s;
    for (std::size_t o = 0; o < space.options.size(); ++o) {
        const auto n = std::count(a.begin(), a.end(), static_cast<std::uint8_t>(o));
        s += (s.empty() ? "" : ", ") + std::to_string(n) + " x " + space.options[o];
    }
    return s;
}

inline void draw_tensors(html_page& page, const search_subject& subject) {
    if (!subject.seen || subject.seen->empty()) return;
    page.heading("Activations").open_details("Histograms of " + std::to_string(subject.seen->tensors.size()) + " tensors").open_grid();
    for (const auto& [name, s] : subject.seen->tensors) {
        if (!s.histogram.empty()) draw_histogram(page, name, s, {{"lowest", s.range.lo}, {"highest", s.range.hi}}, 60);
    }
    page.close_grid().close_details();
}

}  // namespace detail

nlohmann::ordered_json to_json(const sensitivity_result& r) {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const sensitivity_row& row : r.rows) {
        rows.push_back({{"layer", row.layer},
                        {"op_type", row.op_type},
                        {"option", row.option},
                        {"part", name_of(row.part)},
                        {"metric", detail::finite_number(row.metric)},
                        {"harm", detail::finite_number(row.harm)},
                        {"error", detail::finite_number(row.error)},
                        {"added", detail::finite_number(row.added)},
                        {"saving", row.saving},
                        {"standard_error", detail::finite_number(row.standard_error)},
                        {"measured", row.measured}});
    }
    nlohmann::ordered_json json{{"metric_name", r.metric_name},
                                {"direction", r.widened ? "widen" : "narrow"},
                                {"base_metric", detail::finite_number(r.base_metric)},
                                {"base_error", detail::finite_number(r.base_error)},
                                {"metric_definition", detail::definition_of(r.metric_name)},
                                {"remarks", r.remarks},
                                {"cost_unit", r.cost_unit},
                                {"seconds", r.seconds},
                                {"evaluations", r.statistics.evaluations},
                                {"layer_evaluations", r.statistics.layer_evaluations},
                                {"naive_layer_evaluations", r.statistics.naive_layer_evaluations},
                                {"peak_bytes", std::max(r.statistics.peak_bytes, peak_process_bytes())},
                                {"sensitivity", rows}};
    if (!r.modules.empty()) json["modules"] = r.modules;
    return json;
}

nlohmann::ordered_json to_json(const search_result& r) {
    nlohmann::ordered_json front = nlohmann::ordered_json::array(), layers = nlohmann::ordered_json::object();
    for (const trial& t : r.front) front.push_back(detail::trial_json(r.space, t));
    for (std::size_t l = 0; l < r.space.size(); ++l) layers[r.space.layers[l]] = r.space.options[r.choice[l]];
    nlohmann::ordered_json json{{"status", r.status},
                                {"metric", detail::finite_number(r.metric)},
                                {"baseline_metric", detail::finite_number(r.baseline_metric)},
                                {"seconds", r.seconds},
                                {"evaluations", r.evaluations},
                                {"layer_evaluations", r.layer_evaluations},
                                {"plan", to_json(r.plan)},
                                {"strategy", r.strategy},
                                {"metric_name", r.metric_name},
                                {"float_metric", detail::finite_number(r.float_metric)},
                                {"target", r.target ? detail::finite_number(*r.target) : nlohmann::ordered_json(nullptr)},
                                {"target_met", r.target_met},
                                {"cost", r.cost},
                                {"wide_cost", r.wide_cost},
                                {"float_cost", r.float_cost},
                                {"cost_unit", r.cost_unit},
                                {"naive_layer_evaluations", r.naive_layer_evaluations},
                                {"cached", r.cached},
                                {"samples", r.samples},
                                {"peak_bytes", std::max(r.peak_bytes, peak_process_bytes())},
                                {"metric_definition", detail::definition_of(r.metric_name)},
                                {"remarks", r.remarks},
                                {"layers", layers},
                                {"front", front}};
    if (!r.modules.empty()) json["modules"] = r.modules;
    if (r.sampling_error > 0) json["sampling_error"] = r.sampling_error;
    if (const auto& d = r.over_wide) {
        json["metric_low"] = detail::finite_number(d->metric.low), json["metric_high"] = detail::finite_number(d->metric.high);
        json["over_wide"] = {
            {"difference", detail::finite_number(d->value)}, {"chance", detail::finite_number(d->chance)}, {"noise", d->is_noise()}};
    }
    return json;
}

std::string chance_text(const search_result& r) {
    if (!r.over_wide) return "";
    const measured_difference& d = *r.over_wide;
    const std::string range = "With as many other samples " + r.metric_name + " lies between " + html_number(d.metric.low) + " and " +
                              html_number(d.metric.high) + " in 95 of 100 cases.";
    if (r.choice == r.space.all(0)) return range;
    if (d.value == 0) return range + " The mix and all wide measure the same.";
    return range + " The mix differs from all wide by " + html_number(d.value) + ", and other samples move that by up to " +
           html_number(d.chance) + (d.is_noise() ? ": it is noise." : ": it is no noise.");
}

std::string sensitivity_html(const search_subject& subject, const sensitivity_result& r) {
    html_page page("Sensitivity of " + subject.model);
    const std::string base = r.widened ? "all narrow" : "all wide";
    page.facts(std::vector<std::pair<std::string, std::string>>{
        {"metric", r.metric_name}, {base, html_number(r.base_metric)}, {"output MSE, " + base, html_number(r.base_error)}});
    page.facts(
        detail::effort_facts(r.statistics.evaluations, r.statistics.layer_evaluations, r.statistics.naive_layer_evaluations, r.seconds));
    detail::explain_metric(page, r.metric_name, r.remarks);
    page.code(subject.command);
    const std::string change = r.widened ? "What widening each layer alone takes off " : "What narrowing each layer alone adds to ",
                      from = " (" + base + ": ";
    std::map<std::string, int> series;
    const auto colour = [&](const sensitivity_row& row) {
        return series.emplace(row.option, static_cast<int>(series.size())).first->second;
    };
    const auto draw = [&](mixture::part part, bool in_order, const std::string& title, double sensitivity_row::*value) {
        std::vector<const sensitivity_row*> chosen;
        for (const sensitivity_row& row : r.rows)
            if (row.part == part) chosen.push_back(&row);
        if (in_order)
            std::stable_sort(chosen.begin(), chosen.end(),
                             [](const sensitivity_row* x, const sensitivity_row* y) { return x->position < y->position; });
        std::vector<html_bar> bars;
        for (const sensitivity_row* row : chosen)
            bars.push_back({row->layer + "  " + row->option, r.widened ? -(row->*value) : row->*value,
                            "makes " + html_number(value == &sensitivity_row::added ? row->error : row->metric), colour(*row)});
        if (!bars.empty()) page.bar_chart(title, bars);
    };
    draw(mixture::part::both, true, change + "the output's mean squared error" + from + html_number(r.base_error) + "), in network order",
         &sensitivity_row::added);
    for (const mixture::part part : {mixture::part::both, mixture::part::weights, mixture::part::activations}) {
        const std::string of = part == mixture::part::both ? "" : std::string(", ") + name_of(part);
        draw(part, false,
             change + r.metric_name + of + from + html_number(r.base_metric) +
                 (r.widened ? "), the largest gain first" : "), the least harm first"),
             &sensitivity_row::harm);
    }
    std::vector<std::vector<std::string>> rows;
    for (const sensitivity_row& row : r.rows) {
        rows.push_back({detail::with_module(row.layer, r.modules), row.op_type, row.option, name_of(row.part), html_number(row.metric),
                        html_number(row.harm), html_number(row.error),
                        html_number(row.added) + (row.measured ? "" : " +- " + html_number(row.standard_error)), html_number(row.saving)});
    }
    const auto estimated = std::count_if(r.rows.begin(), r.rows.end(), [](const sensitivity_row& row) { return !row.measured; });
    if (estimated > 0)
        page.paragraph(std::to_string(estimated) + " of " + std::to_string(r.rows.size()) +
                       " rows are estimates from gradients, with their standard errors; the others were measured.");
    page.heading("All").table(std::vector<std::string>{"layer", "operator", "format", "what", r.metric_name, "harm", "output MSE",
                                                       "of it added", "saves (" + r.cost_unit + ")"},
                              rows);
    detail::draw_tensors(page, subject);
    return page.text();
}

std::string search_html(const search_subject& subject, const search_result& r) {
    html_page page("Mixed precision of " + subject.model);
    page.facts(std::vector<std::pair<std::string, std::string>>{
        {"status", r.status},
        {r.metric_name, html_number(r.metric)},
        {"target", r.target ? html_number(*r.target) : "none"},
        {"all wide", html_number(r.baseline_metric)},
        {"cost, " + r.cost_unit, html_number(r.cost) + " of " + html_number(r.wide_cost)}});
    page.facts(detail::effort_facts(r.evaluations, r.layer_evaluations, r.naive_layer_evaluations, r.seconds));
    detail::explain_metric(page, r.metric_name, r.remarks);
    page.paragraph("Chosen: " + detail::share_text(r.space, r.choice) + "." +
                   (r.choice == r.space.all(0) ? " That changes nothing: every layer stays wide." : ""));
    if (r.sampling_error > 0)
        page.paragraph("One standard error of this accuracy over " + std::to_string(r.samples) + " samples is " +
                       html_number(r.sampling_error) + ".");
    if (const std::string text = chance_text(r); !text.empty()) page.paragraph(text);
    page.code(subject.command);

    html_series all{"trials", {}, false, {}}, front{"front", {}, true, {}},
        chosen{"chosen", {{r.cost, r.metric}}, false, {detail::share_text(r.space, r.choice)}};
    for (const trial& t : r.history) {
        if (!std::isfinite(t.result.metric)) continue;
        all.points.emplace_back(t.cost, t.result.metric);
        all.notes.push_back(detail::share_text(r.space, t.choice));
    }
    for (const trial& t : r.front) {
        if (std::isfinite(t.result.metric)) front.points.emplace_back(t.cost, t.result.metric);
    }
    page.heading("Accuracy against cost")
        .line_chart(r.metric_name + " against " + r.cost_unit, std::vector<html_series>{all, front, chosen}, {r.cost_unit, r.metric_name});

    detail::draw_alone(page, r);

    page.heading("The mix along the network");
    std::vector<html_bar> along;
    std::vector<std::vector<std::string>> rows;
    for (std::size_t l = 0; l < r.space.size(); ++l) {
        const std::uint8_t o = r.choice[l];
        along.push_back({r.space.layers[l], r.space.cost[l][o], r.space.options[o], o});
        rows.push_back({detail::with_module(r.space.layers[l], r.modules), r.space.options[0], r.space.options[o],
                        html_number(r.space.cost[l][0]), html_number(r.space.cost[l][o])});
    }
    page.bar_chart("Cost of each layer (" + r.cost_unit + "), coloured by its formats", along);
    page.table(std::vector<std::string>{"layer", "before", "after", "cost before", "cost after"}, rows);
    page.table(
        std::vector<std::string>{"model", r.metric_name, r.cost_unit},
        std::vector<std::vector<std::string>>{{"float32", html_number(r.float_metric), html_number(r.float_cost)},
                                              {"all " + r.space.options[0], html_number(r.baseline_metric), html_number(r.wide_cost)},
                                              {"chosen mix", html_number(r.metric), html_number(r.cost)}});
    page.heading("Plan").open_details("The plan as JSON").code(json_text(to_json(r.plan), 1)).close_details();
    detail::draw_tensors(page, subject);
    return page.text();
}

}  // namespace qk::graph
