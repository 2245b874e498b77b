// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/pipeline/diff.hpp"

#include <onnx/onnx_pb.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>

#include "graph/pipeline/cancelling.hpp"
#include "graph/pipeline/forced.hpp"
#include "graph/pipeline/judge.hpp"
#include "graph/pipeline/runtimes.hpp"
#include "graph/pipeline/tensors.hpp"
#include "qk/formats/parse.hpp"
#include "qk/graph/files/json_text.hpp"
#include "qk/graph/pipeline/expand.hpp"
#include "qk/graph/pipeline/files.hpp"
#include "qk/graph/pipeline/onnxruntime_time.hpp"
#include "qk/graph/report/html.hpp"

namespace qk::graph::pipeline {
namespace {

using tensor_values = std::map<std::string, tensor>;

/// Types that travel to and from a runtime's Python as numpy arrays.
bool numpy_has(data_type t) {
    return t <= data_type::uint64 && t != data_type::undefined && t != data_type::string && t != data_type::complex64;
}

/// The network, and what qk makes of every run.
struct own_side {
    model m;
    precision_plan plan{};
    std::vector<traced_tensor> tensors{};
    std::vector<named_tensors> runs{};
    std::vector<tensor_values> values{};
};

own_side evaluate_own(const diff_settings& settings, diff_outcome& done, const progress_function& progress) {
    own_side own{.m = settings.model.load()};
    named_tensors inputs = settings.data.load_inputs(own.m, true);
    if (settings.precision.any()) {
        prepare_for_plan(own.m);
        expand_for(own.m, settings.precision);
        quantize_result made = make_plan(own.m, settings.data, settings.precision.read(own.m), nullptr, false, progress);
        own.plan = std::move(made.plan);
    }
    own.tensors = trace_tensors(own.m, own.plan);
    own.runs = runs_of(own.m, inputs);
    done.samples = own.runs.size();
    if (own.runs.size() == 1 && !own.m.inputs().empty() && own.runs[0].at(own.m.inputs()[0].name).rank() > 0)
        done.samples = static_cast<std::size_t>(own.runs[0].at(own.m.inputs()[0].name).dim(0));
    tensor_source source(own.m, own.plan, own.tensors, settings.data.threads);
    for (std::size_t r = 0; r < own.runs.size(); ++r) {
        own.values.push_back(source.run(own.runs[r]));
        if (progress) progress("evaluating", r + 1, own.runs.size());
    }
    return own;
}

/// Returns the tensors to ask a runtime for: those that nodes make, of types that numpy has.
std::vector<std::string> wanted_of(const own_side& own) {
    std::vector<std::string> wanted;
    for (const traced_tensor& t : own.tensors) {
        const auto value = own.values.front().find(t.name);
        if (!t.node.empty() && t.name == t.tensor && value != own.values.front().end() && numpy_has(value->second.type()))
            wanted.push_back(t.tensor);
    }
    return wanted;
}

double signal_to_difference(const tensor& ours, const tensor& theirs) {
    const std::vector<double> a = numbers_of(ours), b = numbers_of(theirs);
    double signal = 0, noise = 0;
    for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
        if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) {
            if (std::isfinite(a[i])) signal += a[i] * a[i];
            continue;
        }
        signal += a[i] * a[i];
        noise += (a[i] - b[i]) * (a[i] - b[i]);
    }
    return decibels(signal, noise);
}

/// Keeps what the quantizer of a tensor that departs took and gave.
std::optional<conversion_case> conversion_of(const judged_tensor& both) {
    if (!both.how || !both.before || both.before->type() != data_type::float32) return std::nullopt;
    conversion_case c{.input = {}, .theirs = {}, .shape = both.ours.shape(), .how = *both.how};
    const auto x = both.before->as<float>();
    c.input.assign(x.begin(), x.end());
    const std::vector<double> v = numbers_of(both.theirs);
    for (std::size_t i = 0; i < v.size(); ++i)
        c.theirs.push_back(static_cast<float>(both.unit.empty() || both.ours.type() == data_type::float32
                                                  ? v[i]
                                                  : (v[i] - (both.zero.empty() ? 0 : both.zero[i])) * both.unit[i]));
    return c;
}

diff_side compare_side(const own_side& own, const runtime_answer& other, const diff_settings& settings, const progress_function& progress) {
    diff_side side{.against = other.runtime, .tensors = {}, .first = 0};
    for (const traced_tensor& t : own.tensors) {
        if (t.node.empty() && !other.runs.front().contains(t.name)) continue;  // inputs are the same, and no runtime gives constants
        side.tensors.push_back({.name = t.name,
                                .node = t.node,
                                .op_type = t.op_type,
                                .format = t.how ? std::string(to_text(t.how->format).view()) : std::string()});
    }
    std::map<std::string, conversion_case> conversions;
    std::optional<forced_network> forced;
    for (std::size_t r = 0; r < own.runs.size(); ++r) {
        const tensor_values& theirs = other.runs[r];
        if (!forced || own.values[r].begin()->second.shape() != own.values[0].begin()->second.shape())
            forced.emplace(own.m, own.plan, own.tensors, own.values[r], theirs, settings.data.threads);
        const std::map<std::string, judged_tensor> all = forced->run(own.runs[r], theirs);
        for (tensor_diff& d : side.tensors) {
            const auto judged = all.find(d.name);
            const auto mine = own.values[r].find(d.name), given = theirs.find(d.name);
            if (judged == all.end()) {
                if (given == theirs.end()) d.not_compared = "the other side does not have it";
                else if (mine == own.values[r].end()) d.not_compared = "it holds no numbers";
                else {
                    d.not_compared =
                        "its shape is " + to_string(given->second.shape()) + " there and " + to_string(mine->second.shape()) + " here";
                }
                continue;
            }
            const bool departed = d.departs();
            judge(judged->second, d);
            const double along = signal_to_difference(mine->second, given->second);
            d.along = r == 0 ? along : std::min(d.along, along);
            if (d.departs() && !departed)
                if (auto c = conversion_of(judged->second)) conversions.emplace(d.name, std::move(*c));
        }
        if (progress) progress("comparing", r + 1, own.runs.size());
    }
    for (tensor_diff& d : side.tensors) {
        const auto maker = other.made_by.find(d.name);
        if (maker != other.made_by.end() && maker->second != d.op_type) d.there = maker->second;
        if (d.departs() && d.rule.empty() && d.there.ends_with("accuracy_level 4"))
            d.rule = "it is fused into " + d.there + ", which rounds activations to int8 in blocks";
    }
    while (side.first < side.tensors.size() && !side.tensors[side.first].departs()) ++side.first;
    if (side.departs() && settings.explain) {
        tensor_diff& first = side.tensors[side.first];
        if (const auto c = conversions.find(first.name); c != conversions.end())
            if (std::string found = settings.explain(c->second); !found.empty()) first.rule = std::move(found);
    }
    return side;
}

/// Returns what a folder, or another model that qk runs, has of every run.
runtime_answer read_other(const diff_settings& settings, const own_side& own) {
    const std::filesystem::path place = settings.against;
    runtime_answer answer{.runtime = settings.against, .runs = {}};
    std::error_code failed;
    if (std::filesystem::is_directory(place, failed)) {
        const tensor_folder folder(place, own.tensors);
        if (folder.runs() != 0 && folder.runs() != own.runs.size())
            throw error("--against " + settings.against + " was written for " + std::to_string(folder.runs()) +
                        " runs, and the inputs make " + std::to_string(own.runs.size()) + ": give both the same --inputs and --samples");
        for (std::size_t r = 0; r < own.runs.size(); ++r) answer.runs.push_back(folder.run(r, own.runs.size()));
        return answer;
    }
    const model m = model::load(place);
    const std::vector<traced_tensor> tensors = trace_tensors(m, {});
    tensor_source source(m, {}, tensors, settings.data.threads);
    for (const named_tensors& run : own.runs) answer.runs.push_back(source.run(run));
    return answer;
}

bool names_runtime(const diff_settings& s) { return s.against == "onnxruntime" || s.against == "openvino"; }

void check_settings(const diff_settings& s) {
    if (s.against.empty() == s.command.empty())
        throw error("say what to compare with: --against onnxruntime, openvino, a model's file or a folder of tensors, or --command CMD");
    if (!s.optimizer.empty() && s.optimizer != "off" && s.optimizer != "on" && s.optimizer != "both")
        throw error("--optimizer is off, on or both, not '" + s.optimizer + "'");
    const bool runtime = names_runtime(s);
    if (!s.optimizer.empty() && !runtime) throw error("--optimizer is for --against onnxruntime and openvino");
    if (!s.library.empty() && s.against != "onnxruntime") throw error("--library is for --against onnxruntime");
    if (s.precision.any() && (runtime || !s.command.empty()))
        throw error("a plan is for --against DIR: a runtime runs the model as it is (quantize it first, then compare the file)");
    std::error_code failed;
    if (!runtime && s.command.empty() && !std::filesystem::exists(s.against, failed))
        throw error("--against '" + s.against + "' is no file or folder, and no runtime that is known: onnxruntime, openvino");
}

}  // namespace

bool diff_outcome::agree() const {
    return std::ranges::none_of(sides, [](const diff_side& s) { return s.departs(); });
}

diff_outcome diff(const diff_settings& settings, const progress_function& progress) {
    check_settings(settings);
    const stop_check here(stopping(settings.cancel));
    diff_outcome done;
    output_set files(settings.overwrite);
    done.remarks = declare_run(files, settings.model, settings.data, settings.precision);
    const bool runtime = names_runtime(settings);
    if (!runtime && settings.command.empty()) files.input("--against", settings.against);
    declare_report(files, settings.report);
    const std::filesystem::path library = settings.library.empty() ? std::filesystem::path() : onnxruntime_library(settings.library);
    const own_side own = evaluate_own(settings, done, progress);
    if (own.runs.empty() || own.values.front().empty()) throw error("there is nothing to compare: the network has no tensor of numbers");
    if (runtime) {
        for (const bool optimizes : {false, true}) {
            if (settings.optimizer == (optimizes ? "off" : "on")) continue;
            if (progress) progress("running " + settings.against, 0, 0);
            runtime_answer other = run_in_runtime(settings.against, own.m, wanted_of(own), own.runs, optimizes, library);
            if (!library.empty()) other.runtime += " with qk's operators";
            other.runtime += settings.against == "openvino" ? (optimizes ? ", outputs alone" : ", every tensor an output")
                             : optimizes                    ? ", optimizer on"
                                                            : ", optimizer off";
            done.sides.push_back(compare_side(own, other, settings, progress));
        }
    } else {
        const runtime_answer other =
            settings.command.empty() ? read_other(settings, own) : run_command(settings.command, own.m, wanted_of(own), own.runs);
        done.sides.push_back(compare_side(own, other, settings, progress));
    }
    for (const diff_side& s : done.sides)
        if (std::ranges::none_of(s.tensors, [](const tensor_diff& d) { return d.values > 0; }))
            throw error(s.against + " has none of the network's tensors in the network's shapes: nothing can be compared");
    if (!settings.report.empty()) {
        files.write(settings.report, diff_html(settings.model.short_name(), settings.command_line, done));
        files.write(beside_report(settings.report), json_text(to_json(done), 1) + "\n");
        files.commit();
    }
    return done;
}

nlohmann::ordered_json to_json(const diff_outcome& all) {
    const auto number = [](double v) { return std::isfinite(v) ? nlohmann::ordered_json(v) : nlohmann::ordered_json(nullptr); };
    nlohmann::ordered_json json{{"samples", all.samples}, {"agree", all.agree()}};
    json["sides"] = nlohmann::ordered_json::array();
    for (const diff_side& s : all.sides) {
        nlohmann::ordered_json side{{"against", s.against}};
        side["first"] = s.departs() ? nlohmann::ordered_json(s.tensors[s.first].name) : nlohmann::ordered_json(nullptr);
        side["tensors"] = nlohmann::ordered_json::array();
        for (const tensor_diff& d : s.tensors) {
            nlohmann::ordered_json t{{"name", d.name}, {"node", d.node}, {"operator", d.op_type}};
            if (!d.format.empty()) t["format"] = d.format;
            if (d.values == 0) {
                t["not_compared"] = d.not_compared;
            } else {
                t["departs"] = d.departs();
                t["values"] = d.values, t["different"] = d.different, t["beyond"] = d.beyond;
                t["codes"] = d.codes ? number(*d.codes) : nlohmann::ordered_json(nullptr);
                t["largest"] = number(d.largest), t["ulps"] = number(d.ulps);
                t["decibels"] = number(d.decibels), t["decibels_along"] = number(d.along);
                t["judged_by"] = d.judged_by;
                if (!d.there.empty()) t["there"] = d.there;
                if (d.departs()) t["rule"] = d.rule;
            }
            side["tensors"].push_back(std::move(t));
        }
        json["sides"].push_back(std::move(side));
    }
    return json;
}

std::string departure_text(const tensor_diff& d) {
    char text[200];
    if (d.codes) {
        const double whole = std::round(*d.codes), codes = std::fabs(*d.codes - whole) < 1e-3 ? whole : *d.codes;
        std::snprintf(text, sizeof text, "by up to %.4g code%s", codes, codes == 1 ? "" : "s");
    }
    if (!d.codes) std::snprintf(text, sizeof text, "by up to %.4g (%.3g units in the last place)", d.largest, d.ulps);
    std::string all = std::to_string(d.beyond) + " of " + std::to_string(d.values) + " values " + text;
    if (std::isfinite(d.decibels)) std::snprintf(text, sizeof text, ", %.1f dB", d.decibels), all += text;
    return all;
}

std::string diff_html(const std::string& model, const std::string& command, const diff_outcome& all) {
    html_page page("Tensor by tensor: " + model);
    if (!command.empty()) page.code(command);
    page.paragraph(
        "Each tensor is computed by qk from the other side's own values of what its node reads, so a difference counts where it is made "
        "and "
        "is not carried on. A bar is the ratio of signal to difference, cut at 160 dB, which is where both are the same; short bars are "
        "large differences. The column 'judged by' says what is no departure.");
    for (const diff_side& s : all.sides) {
        page.heading(s.against);
        std::size_t compared = 0, departing = 0;
        std::vector<html_bar> bars;
        std::vector<std::vector<std::string>> rows;
        for (const tensor_diff& d : s.tensors) {
            const std::string made = d.node.empty() ? "" : d.node + " (" + d.op_type + ")";
            if (d.values == 0) {
                rows.push_back({d.name, made, "", "", d.not_compared, ""});
                continue;
            }
            ++compared;
            departing += d.departs();
            const double db = std::clamp(std::isnan(d.decibels) ? 160.0 : d.decibels, 0.0, 160.0);
            bars.push_back({.label = d.name,
                            .value = db,
                            .note = d.departs()        ? "departs"
                                    : d.different == 0 ? "the same"
                                                       : "",
                            .series = d.departs() ? 1 : 0});
            rows.push_back({d.name, made, d.codes ? html_number(*d.codes) : "", html_number(d.decibels),
                            d.departs()        ? departure_text(d) + (d.rule.empty() ? "" : ": " + d.rule)
                            : d.different == 0 ? "the same"
                                               : "no departure",
                            d.judged_by});
        }
        const std::pair<std::string, std::string> facts[] = {{"tensors compared", std::to_string(compared)},
                                                             {"depart", std::to_string(departing)},
                                                             {"departs first", s.departs() ? s.tensors[s.first].name : "none"},
                                                             {"samples", std::to_string(all.samples)}};
        page.facts(facts);
        page.bar_chart("Signal to difference, in the network's order", bars, "dB");
        const std::string columns[] = {"tensor", "made by", "codes", "dB", "result", "judged by"};
        page.table(columns, rows);
    }
    return page.text();
}

}  // namespace qk::graph::pipeline
