// SPDX-License-Identifier: Apache-2.0
#include "graph/pipeline/accuracy_level.hpp"
#include "graph/model/operator_name.hpp"

#include <onnx/onnx_pb.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "graph/model/edit.hpp"
#include "graph/ops/portable_call.hpp"
#include "graph/pipeline/runtimes.hpp"
#include "graph/pipeline/tensors.hpp"
#include "qk/graph/model/attribute.hpp"

namespace qk::graph::pipeline {
namespace {

/// Sets the attribute, or removes it for level 0, which is the operator's own default. Returns how many nodes have the level, products of
/// portable files among them.
std::size_t set_levels(onnx::GraphProto& g, int level) {
    std::size_t count = 0;
    for (onnx::NodeProto& n : *g.mutable_node()) {
        detail::for_each_subgraph(n, [&](onnx::GraphProto& body) { count += set_levels(body, level); });
        if (const auto call = n.domain() == "qk" ? ops::portable_call_of(n) : std::nullopt;
            call && call->result == portable::result_shape::product)
            count += (call->sums == portable::sums::integers) == (level == 4);  // as it was exported
        if (operator_of(n) != "MatMulNBits" || n.domain() != "com.microsoft") continue;
        detail::remove_attribute(n, "accuracy_level");
        if (level != 0) detail::set_attribute(n, "accuracy_level", static_cast<std::int64_t>(level));
        ++count;
    }
    return count;
}

}  // namespace

std::string level_price::text() const {
    const std::string what = "accuracy level " + std::to_string(level);
    if (!not_measured.empty()) return what + ": its price was not measured: " + not_measured;
    char numbers[160];
    std::snprintf(numbers, sizeof numbers, "output at %.2f dB of the float model, %.2f dB without the level: it costs %.2f dB", with,
                  without, without - with);
    return what + " in " + runtime + ": " + numbers;
}

nlohmann::ordered_json level_price::json() const {
    nlohmann::ordered_json all{{"level", level}};
    if (!not_measured.empty()) all["not_measured"] = not_measured;
    else all["runtime"] = runtime, all["sqnr"] = with, all["sqnr_without"] = without, all["price"] = without - with;
    return all;
}

void set_accuracy_level(model& exported, int level) {
    if (set_levels(exported.graph(), level) == 0)
        throw error(
            "--accuracy-level is for MatMulNBits, which --export nbits writes for weights of 2, 4 and 8 bits, and 4 for --weights product "
            "with "
            "elements that are whole numbers, 16 or a multiple of 32 to a scale; this file has none");
    exported.reindex();
}

model without_level(const model& exported) {
    model m = exported;
    set_levels(m.graph(), 0);
    m.reindex();
    return m;
}

level_price price_of_level(const model& plain, const model& without, const model& exported, int level, const data_settings& data) {
    level_price price{.level = level};
    try {
        if (!data.has_samples()) throw error("no samples are given (--inputs or --calibration)");
        const named_tensors samples =
            evenly_chosen(plain, data.inputs.empty() ? data.load_calibration(plain) : data.load_inputs(plain), 32);
        const std::vector<named_tensors> runs = runs_of(plain, samples);
        std::string output;
        for (const value_info& o : plain.outputs())
            if (output.empty() && (o.type == data_type::float32 || o.type == data_type::float16)) output = o.name;
        if (output.empty()) throw error("no output is float");
        const auto run = [&](const model& m) { return run_in_runtime("onnxruntime", m, {output}, runs, false); };
        const runtime_answer reference = run(plain);
        price.without = decibels_beside(output, reference, run(without));
        price.with = decibels_beside(output, reference, run(exported));
        price.runtime = reference.runtime;
    } catch (const error& e) {  // the file can be written all the same
        price.not_measured = e.what();
    }
    return price;
}

}  // namespace qk::graph::pipeline
