// SPDX-License-Identifier: Apache-2.0
#include "graph/pipeline/foreign_nodes.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <set>

#include "graph/calibrate/of_values.hpp"
#include "graph/model/check.hpp"
#include "graph/model/edit.hpp"
#include "graph/model/subgraphs.hpp"
#include "graph/ops/op.hpp"
#include "graph/pipeline/runtimes.hpp"
#include "graph/pipeline/tensors.hpp"
#include "qk/graph/calibrate/calibrate.hpp"
#include "qk/graph/plan/layers.hpp"

namespace qk::graph::pipeline {
namespace {

/// Appends what qk does not run of a node: itself, or nodes inside of it.
void collect_foreign(const model& m, const onnx::NodeProto& n, std::vector<const onnx::NodeProto*>& foreign) {
    if (const onnx::FunctionProto* f = find_function(m.proto(), n)) {
        for (const onnx::NodeProto& inner : f->node()) collect_foreign(m, inner, foreign);
    } else if (find_op(n.domain(), n.op_type(), m.opset(n.domain())) == nullptr) {
        foreign.push_back(&n);
    }
    detail::for_each_subgraph(n, [&](const onnx::GraphProto& g) {
        for (const onnx::NodeProto& inner : g.node()) collect_foreign(m, inner, foreign);
    });
}

/// The nodes that cannot be run, and the tensors that they would make.
struct lost_part {
    std::vector<bool> nodes;
    std::set<std::string> tensors;
    const onnx::NodeProto* first = nullptr;  ///< the first operator that qk does not have
    std::set<std::string> operators{};
};

/// Returns the tensors that a node reads, those that its bodies read from outside among them.
std::unordered_set<std::string_view> read_by(const onnx::NodeProto& n) {
    std::unordered_set<std::string_view> read(n.input().begin(), n.input().end());
    detail::for_each_subgraph(n, [&](const onnx::GraphProto& g) { detail::collect_outer(g, read); });
    return read;
}

lost_part lost_of(const model& m) {
    lost_part lost;
    for (const auto& n : m.graph().node()) {
        const std::unordered_set<std::string_view> read = read_by(n);
        std::vector<const onnx::NodeProto*> foreign;
        collect_foreign(m, n, foreign);
        const bool behind = std::ranges::any_of(read, [&](std::string_view i) { return lost.tensors.contains(std::string(i)); });
        if (!foreign.empty() && lost.first == nullptr) lost.first = foreign.front();
        for (const onnx::NodeProto* f : foreign) lost.operators.insert((f->domain().empty() ? "" : f->domain() + ":") + f->op_type());
        lost.nodes.push_back(!foreign.empty() || behind);
        if (lost.nodes.back()) lost.tensors.insert(n.output().begin(), n.output().end());
    }
    lost.tensors.erase("");
    return lost;
}

/// Returns the model without what cannot be run; what that reads are outputs, so that there is one.
model part_that_runs(const model& m, const lost_part& lost) {
    model part = m;
    onnx::GraphProto& g = part.graph();
    std::set<std::string> outputs;
    for (int k = g.output_size(); k-- > 0;)
        if (lost.tensors.contains(g.output(k).name())) g.mutable_output()->DeleteSubrange(k, 1);
        else outputs.insert(g.output(k).name());
    for (int i = 0; i < m.graph().node_size(); ++i) {
        if (!lost.nodes[static_cast<std::size_t>(i)]) continue;
        for (const std::string_view read : read_by(m.graph().node(i))) {
            const std::string in(read);
            if (!in.empty() && !lost.tensors.contains(in) && m.producer(in) >= 0 && outputs.insert(in).second) g.add_output()->set_name(in);
        }
    }
    detail::remove_nodes(g, lost.nodes);
    for (int k = g.value_info_size(); k-- > 0;)
        if (lost.tensors.contains(g.value_info(k).name())) g.mutable_value_info()->DeleteSubrange(k, 1);
    part.reindex();
    return part;
}

/// Asks for float32 where a layer reads what has no range.
void leave_out(const model& m, const lost_part& lost, asked_precision& asked) {
    std::size_t left = 0;
    for (const auto& n : m.graph().node()) {
        const bool reads = std::ranges::any_of(n.input(), [&](const std::string& i) { return lost.tensors.contains(i); });
        const bool layer = kind_of(n) == layer_kind::compute;
        if (!reads || (!layer && asked.options.where == placement::layers)) continue;
        left += layer;
        asked.requests.push_back(
            {.scope = scope::layer, .role = role::all, .name = n.name(), .what = precision{.format = fp32}, .origin = "calibration"});
    }
    for (const auto& o : m.graph().output())
        if (lost.tensors.contains(o.name()) && asked.options.where != placement::layers)
            asked.requests.push_back(
                {.scope = scope::tensor, .role = role::all, .name = o.name(), .what = precision{.format = fp32}, .origin = "calibration"});
    std::vector<std::string> operators(lost.operators.begin(), lost.operators.end());
    asked.unused.push_back({plan_note::kind::adjusted, m.label(),
                            "qk does not have " + comma_separated(operators) + " ('" + lost.first->name() +
                                "'): ranges come from what runs before, and " + std::to_string(left) + " layer" + (left == 1 ? "" : "s") +
                                " behind stay" + (left == 1 ? "s" : "") +
                                " float32; --run-with onnxruntime calibrates them, if it has the operators"});
}

/// Returns the names of the activations, those of floats first to be asked of a runtime.
std::vector<std::string> activations_of(const model& m) {
    const layer_view layers(m);
    std::vector<std::string> names;
    for (const auto& n : m.graph().node())
        for (const std::string& o : n.output())
            if (!o.empty() && layers.is_float(o)) names.push_back(o);
    return names;
}

calibration in_runtime(const model& m, const data_settings& data, const std::string& runtime) {
    if (runtime != "onnxruntime" && runtime != "openvino")
        throw error("--run-with '" + runtime + "' is neither onnxruntime nor openvino." +
                    did_you_mean(runtime, {"onnxruntime", "openvino"}));
    const std::vector<named_tensors> runs = runs_of(m, data.load_calibration(m));
    const runtime_answer answer = run_in_runtime(runtime, m, activations_of(m), runs, false);
    calibration seen;
    for (std::size_t r = 0; r < answer.runs.size(); ++r) {
        std::map<std::string, tensor> values = answer.runs[r];
        for (const auto& [name, value] : runs[r]) values.emplace(name, value);
        observe_values(seen, values, r);
    }
    return seen;
}

}  // namespace

std::unique_ptr<temporary_folder> calibrate_elsewhere(const model& m, const data_settings& data, asked_precision& asked,
                                                      const std::string& run_with, const progress_function& progress) {
    if (asked.saved || !data.has_samples()) {
        if (!run_with.empty()) throw error("--run-with calibrates by samples: give --calibration X.npy, and no saved plan");
        return nullptr;
    }
    const lost_part lost = lost_of(m);
    if (run_with.empty() && lost.first == nullptr) return nullptr;
    calibration seen;
    if (!run_with.empty()) {
        seen = in_runtime(m, data, run_with);
    } else {
        leave_out(m, lost, asked);
        const model part = part_that_runs(m, lost);
        calibrate_options wanted = options_for(asked.options.method);
        wanted.threads = data.threads, wanted.histograms = true;
        if (part.graph().node_size() > 0 && part.graph().output_size() > 0)
            seen = calibrate(part, data.load_calibration(part), wanted, [&](std::size_t n, std::size_t all) {
                if (progress) progress("calibrating", n, all);
            });
    }
    auto folder = std::make_unique<temporary_folder>("qk-calibration", "statistics");
    save_calibration(seen, *folder / "statistics.json");
    return folder;
}

}  // namespace qk::graph::pipeline
