// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "qk/graph/base/format_text.hpp"
#include "qk/graph/report/report.hpp"

namespace qk::graph {

namespace detail {
inline std::string scale_text(const quantizer& q) {
    if (q.dynamic) return "dynamic";
    if (q.scale.size() > 1) return std::to_string(q.scale.size()) + " scales";
    if (q.scale.empty()) return "";
    return html_number(static_cast<double>(q.scale[0])) + (q.zero_point.empty() ? "" : ", " + std::to_string(q.zero_point[0]));
}

inline void show_recipe(html_page& page, const report_subject& subject) {
    if (!subject.recipe.empty()) page.paragraph(subject.recipe + ".");
    if (subject.tried.empty()) return;
    page.heading("What was tried");
    page.table(std::vector<std::string>{"step", "dB", "top-1, %", ""}, subject.tried);
}

inline void show_requests(html_page& page, const std::vector<request>& requests) {
    if (requests.empty()) return;
    page.heading("What was asked");
    std::vector<std::vector<std::string>> rows;
    for (const request& r : requests) rows.push_back({r.origin, describe(r), to_string(r.what.format)});
    page.table(std::vector<std::string>{"where", "what", "format"}, rows);
}
}  // namespace detail

void draw_histogram(html_page& page, const std::string& title, const tensor_statistics& s, const std::vector<html_marker>& markers,
                    std::size_t bars) {
    if (s.histogram.empty()) return;
    const double lo = std::min(0.0, static_cast<double>(s.range.lo)), hi = std::max(0.0, static_cast<double>(s.range.hi));
    if (!(hi > lo)) return;
    std::vector<double> edges(bars + 1), counts(bars, 0.0);
    for (std::size_t i = 0; i <= bars; ++i) edges[i] = lo + (hi - lo) * static_cast<double>(i) / static_cast<double>(bars);
    const histogram_points points = points_of(s);
    for (std::size_t i = 0; i < points.values.size(); ++i) {
        const double at = (static_cast<double>(points.values[i]) - lo) / (hi - lo) * static_cast<double>(bars);
        counts[std::min(bars - 1, static_cast<std::size_t>(std::max(at, 0.0)))] += points.weights[i];
    }
    page.histogram(title, edges, counts, markers);
}

void show_methods(html_page& page, const method_choice& choice) {
    page.heading("Calibration method");
    page.paragraph(std::string(name_of(choice.method())) + " does best by " + choice.metric + " of " + std::to_string(choice.samples) +
                   " samples.");
    std::vector<html_bar> bars;
    for (const method_choice::trial& t : choice.tried)
        bars.push_back({name_of(t.method), t.metric, t.method == choice.method() ? "chosen" : "", 0});
    page.bar_chart("Every method", bars, choice.metric);
}

std::string quantize_html(const report_subject& subject, const quantize_result& result, const plan_cost& cost, const calibration* seen) {
    constexpr const char* parts[] = {"none", "input", "weight", "bias"};
    const quantize_report& report = result.report;
    html_page page("Precision of " + subject.model);
    if (!subject.command.empty()) page.code(subject.command);
    std::vector<std::pair<std::string, std::string>> facts{{"weights in float32", html_bytes(cost.float_weight_bits / 8)},
                                                           {"weights under the plan", html_bytes(cost.weight_bits / 8)},
                                                           {"quantized edges", std::to_string(report.edges.size())},
                                                           {"remarks", std::to_string(report.notes.size() + subject.export_notes.size())}};
    if (cost.float_bit_operations > 0)
        facts.emplace_back("bit operations, of float32's", html_number(100 * cost.bit_operations / cost.float_bit_operations) + " %");
    if (subject.input_bytes > 0) facts.emplace_back("file before", html_bytes(subject.input_bytes));
    if (subject.output_bytes > 0) facts.emplace_back("file after", html_bytes(subject.output_bytes));
    facts.insert(facts.begin(), subject.facts.begin(), subject.facts.end());
    page.facts(facts);
    detail::show_recipe(page, subject);
    detail::show_requests(page, subject.requests);
    page.heading("What did not go as asked, and what followed");
    if (report.notes.empty() && subject.export_notes.empty()) page.paragraph("Nothing: every request was met as asked.");
    std::vector<std::vector<std::string>> notes;
    for (const plan_note& n : report.notes) notes.push_back({name_of(n.what), n.subject, n.text, n.origin});
    for (const std::string& n : subject.export_notes) notes.push_back({"export", "", n, ""});
    if (!notes.empty()) page.table(std::vector<std::string>{"kind", "subject", "what happened", "request"}, notes);

    if (report.method) show_methods(page, *report.method);

    page.heading("Error of each tensor");
    page.paragraph(
        "Signal to quantization noise in decibels: measured for weights, estimated from the calibration histogram for activations (block "
        "formats: not estimated).");
    std::vector<html_bar> bars[2];
    for (const edge_report& e : report.edges)
        if (std::isfinite(e.sqnr))
            bars[e.part == layer_view::part::input ? 0 : 1].push_back(
                {e.edge.tensor, e.sqnr, to_string(e.how.format), e.part == layer_view::part::bias ? 2 : 0});
    const auto worst = [](std::vector<html_bar>& b) {
        std::stable_sort(b.begin(), b.end(), [](const html_bar& x, const html_bar& y) { return x.value < y.value; });
        // Readers of a tensor that see the same get one bar.
        b.erase(
            std::unique(b.begin(), b.end(),
                        [](const html_bar& x, const html_bar& y) { return x.label == y.label && x.value == y.value && x.note == y.note; }),
            b.end());
        if (b.size() > 60) b.resize(60);
    };
    for (auto& b : bars) worst(b);
    if (!bars[0].empty()) page.bar_chart("Activations, the worst first", bars[0], "dB");
    if (!bars[1].empty()) page.bar_chart("Weights and biases, the worst first", bars[1], "dB");

    page.heading("Every quantized edge");
    std::vector<std::vector<std::string>> rows;
    for (const edge_report& e : report.edges)
        rows.push_back({e.edge.tensor, e.edge.consumer.empty() ? "model output" : e.consumer_text(), e.op_type,
                        e.edge.consumer.empty() ? "" : parts[static_cast<int>(e.part)], to_string(e.how.format),
                        html_number(static_cast<double>(e.range.lo)), html_number(static_cast<double>(e.range.hi)),
                        detail::scale_text(e.how), html_number(e.sqnr), e.why + (e.origin.empty() ? "" : " (" + e.origin + ")")});
    page.table(
        std::vector<std::string>{"tensor", "read by", "operator", "role", "format", "lowest", "highest", "scale, zero point", "dB", "why"},
        rows);

    if (seen != nullptr) {
        bool any = false;
        std::string last;
        for (const edge_report& e : report.edges) {
            const auto s = seen->tensors.find(e.edge.tensor);
            if (s == seen->tensors.end() || s->second.histogram.empty() || e.edge.tensor == last) continue;
            if (!any) page.heading("Activations and their ranges").open_grid();
            any = true;
            last = e.edge.tensor;
            draw_histogram(page, e.edge.tensor, s->second,
                           {{"lowest", static_cast<double>(e.range.lo), 1}, {"highest", static_cast<double>(e.range.hi), 1}});
        }
        if (any) page.close_grid();
    }
    return page.text();
}

std::vector<method_comparison> compare_methods(const calibration& seen, const std::vector<range_method>& methods, const precision& what,
                                               double percentile) {
    std::vector<method_comparison> all;
    for (const auto& [name, s] : seen.tensors) {
        method_comparison one{.tensor = name, .methods = {}};
        const double signal = s.histogram.empty() ? 0 : mean_square(s);
        for (const range_method m : methods) {
            if (!can_choose(s, m)) continue;
            method_range r{
                .method = m,
                .range = choose_range(
                    s, {.method = m, .percentile = percentile, .format = what.format, .symmetric = is_symmetric(what, false)}, name),
                .how = {}};
            r.how = activation_quantizer(what, r.range, {});
            r.error = estimated_error(s, r.how);
            r.sqnr = 10 * std::log10(signal / r.error);
            one.methods.push_back(std::move(r));
            if (one.methods.back().error < one.methods[one.best].error) one.best = one.methods.size() - 1;
        }
        all.push_back(std::move(one));
    }
    return all;
}

nlohmann::ordered_json to_json(const std::vector<method_comparison>& all) {
    using json = nlohmann::ordered_json;
    const auto number = [](double v) { return std::isfinite(v) ? json(v) : json(); };
    json tensors = json::object();
    for (const method_comparison& c : all) {
        json methods = json::object();
        for (const method_range& r : c.methods)
            methods[name_of(r.method)] = {{"range", {r.range.lo, r.range.hi}},
                                          {"scale", r.how.scale.empty() ? json() : json(r.how.scale[0])},
                                          {"zero_point", r.how.zero_point.empty() ? 0 : r.how.zero_point[0]},
                                          {"mse", number(r.error)},
                                          {"sqnr", number(r.sqnr)}};
        tensors[c.tensor] = {{"methods", methods}, {"best", c.methods.empty() ? json() : json(name_of(c.methods[c.best].method))}};
    }
    return tensors;
}

std::string calibration_html(const std::string& model, const std::string& command, const calibration& seen, const precision& what,
                             const std::vector<method_comparison>& all) {
    html_page page("Calibration of " + model);
    if (!command.empty()) page.code(command);
    page.facts(std::vector<std::pair<std::string, std::string>>{
        {"samples", std::to_string(seen.samples)}, {"tensors", std::to_string(all.size())}, {"format", to_string(what.format)}});
    // Mean SQNR over tensors, one bar for each method.
    std::map<std::string, std::pair<double, int>> means;
    std::map<std::string, int> wins;
    std::vector<std::vector<std::string>> rows;
    for (const method_comparison& c : all)
        for (std::size_t i = 0; i < c.methods.size(); ++i) {
            const method_range& r = c.methods[i];
            if (std::isfinite(r.sqnr)) means[name_of(r.method)].first += r.sqnr, ++means[name_of(r.method)].second;
            wins[name_of(r.method)] += i == c.best;
            rows.push_back({c.tensor, name_of(r.method), html_number(static_cast<double>(r.range.lo)),
                            html_number(static_cast<double>(r.range.hi)), detail::scale_text(r.how), html_number(r.error),
                            html_number(r.sqnr), i == c.best ? "best" : ""});
        }
    std::vector<html_bar> bars;
    for (const auto& [name, m] : means) bars.push_back({name, m.first / m.second, "best of " + std::to_string(wins[name]) + " tensors"});
    if (!bars.empty()) page.bar_chart("Mean signal to quantization noise over tensors", bars, "dB");
    page.heading("Every tensor and its ranges").open_grid();
    for (const method_comparison& c : all) {
        std::vector<html_marker> markers;
        int series = 1;
        for (const method_range& r : c.methods) {
            if (r.range.lo < 0) markers.push_back({name_of(r.method), static_cast<double>(r.range.lo), series});
            markers.push_back({name_of(r.method), static_cast<double>(r.range.hi), series++});
        }
        draw_histogram(page, c.tensor, seen.tensors.at(c.tensor), markers);
    }
    page.close_grid().heading("Ranges, scales and errors");
    page.table(std::vector<std::string>{"tensor", "method", "lowest", "highest", "scale, zero point", "mean squared error", "dB", ""},
               rows);
    return page.text();
}

}  // namespace qk::graph
