// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/pipeline/verify.hpp"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "graph/pipeline/python_program.hpp"
#include "graph/pipeline/runtimes.hpp"
#include "graph/pipeline/tensors.hpp"
#include "qk/graph/base/names.hpp"
#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/pipeline/file_quality.hpp"

namespace qk::graph::pipeline {
namespace {

constexpr double most_lost = 1, same_above = 100;  ///< decibels

/// Returns by how much a runtime is worse.
double loss(double there, double here) { return there == here || (there > same_above && here > same_above) ? 0 : here - there; }

std::vector<std::string> float_outputs(const model& m) {
    std::vector<std::string> names;
    for (const value_info& o : m.outputs())
        if (o.type == data_type::float32 || o.type == data_type::float16 || o.type == data_type::float64) names.push_back(o.name);
    return names;
}

/// Runs a model in qk, all samples of a run together.
runtime_answer run_here(const model& m, const precision_plan& plan, const std::vector<named_tensors>& runs, int threads) {
    runtime_answer answer{.runtime = "qk", .runs = {}};
    evaluator runner(m, {.threads = threads});
    for (const named_tensors& run : runs) {
        named_tensors whole = run;
        whole.batch_axis = no_batch_axis;
        answer.runs.emplace_back(runner.run(whole, plan).outputs);
    }
    return answer;
}

/// Takes an output into account.
void compare(verified_file& v, const std::string& name, const runtime_answer& reference, const runtime_answer& here,
             const runtime_answer& there) {
    if (!there.runs.front().contains(name)) throw error(there.runtime + " does not give output '" + name + "'");
    const double own = decibels_beside(name, reference, here), its = decibels_beside(name, reference, there);
    if (v.output.empty() || loss(its, own) > loss(v.sqnr, v.of_qk)) v.output = name, v.sqnr = its, v.of_qk = own;
}

}  // namespace

bool verified_file::departs() const { return !not_run.empty() || !(loss(sqnr, of_qk) <= most_lost); }

std::string verified_file::text() const {
    if (!not_run.empty()) return "not verified: " + not_run;
    char numbers[160];
    std::snprintf(numbers, sizeof numbers, "%.2f dB in %s, %.2f dB as qk computes it, on %zu %s", sqnr, runtime.c_str(), of_qk, samples,
                  of.c_str());
    return (departs() ? "not verified: output '" : "verified: output '") + output + "' at " + numbers;
}

nlohmann::ordered_json to_json(const verified_file& v) {
    nlohmann::ordered_json j{{"runtime", v.runtime}, {"departs", v.departs()}};
    if (!v.not_run.empty()) {
        j["not_run"] = v.not_run;
        return j;
    }
    j["output"] = v.output;
    j["sqnr"] = number_or_null(v.sqnr), j["of_qk"] = number_or_null(v.of_qk);
    j["samples"] = v.samples, j["of"] = v.of;
    return j;
}

void check_verify(const std::string& runtime, const data_settings& data) {
    if (runtime != "onnxruntime" && runtime != "openvino")
        throw error("--verify '" + runtime + "' is neither onnxruntime nor openvino." + did_you_mean(runtime, {"onnxruntime", "openvino"}));
    if (!data.has_samples()) throw error("--verify runs the file on samples: give --inputs or --calibration");
    python_with(runtime);  // throws where it is missing
}

verified_file verify_in(const std::string& runtime, const model& original, const model& planned, const precision_plan& plan,
                        const model& exported, const data_settings& data) {
    check_verify(runtime, data);
    const std::vector<std::string> outputs = float_outputs(original);
    if (outputs.empty()) throw error("--verify compares outputs of floats, and the model has none");
    const quality_judge judge(original, data, 32, false);
    verified_file v{.runtime = runtime, .samples = judge.samples(), .of = judge.words()};
    const std::vector<named_tensors> runs = runs_of(original, judge.inputs());
    const runtime_answer reference = run_here(original, {}, runs, data.threads), here = run_here(planned, plan, runs, data.threads);
    try {
        const runtime_answer there = run_in_runtime(runtime, exported, outputs, runs, true);
        v.runtime = there.runtime;
        for (const std::string& name : outputs) compare(v, name, reference, here, there);
    } catch (const error& e) {
        v.not_run = e.what();
    }
    return v;
}

}  // namespace qk::graph::pipeline
