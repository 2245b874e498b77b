// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/plan/accumulators.hpp"

#include <onnx/onnx_pb.h>

#include "graph/ops/op.hpp"
#include "qk/graph/base/names.hpp"
#include "qk/graph/model/torch_names.hpp"
#include "qk/graph/plan/device_layer.hpp"
#include "qk/graph/plan/layers.hpp"

namespace qk::graph {
namespace {

bool is_multiplied(const std::string& op_type) { return facts_of_type(op_type).has(ops::sums_axes); }

bool means(const accumulator_request& r, const onnx::NodeProto& n, const std::string& module) {
    if (r.scope == scope::everything) return true;
    if (r.scope == scope::op_type) return n.op_type() == r.name;
    const std::string& name = n.name();
    if (is_glob(r.name) ? glob_match(r.name, module) : is_in_module(module, r.name)) return true;
    if (name == r.name || (is_glob(r.name) && glob_match(r.name, name))) return true;
    return name.size() > r.name.size() && name.starts_with(r.name) &&
           std::string_view("/._:").find(name[r.name.size()]) != std::string_view::npos;
}

}  // namespace

void check_accumulator_text(const std::string& text, const std::string& origin) {
    device_component.functions_for(origin + ": an accumulator").check(text, origin);
}

accumulator_request parse_accumulator_request(const std::string& text, const std::string& origin) {
    accumulator_request r{.origin = origin};
    const std::size_t colon = text.rfind(':');  // an accumulator's text has none
    r.accumulator = colon == std::string::npos ? text : text.substr(colon + 1);
    if (colon != std::string::npos) {
        r.name = text.substr(0, colon);
        r.scope = is_multiplied(r.name) ? scope::op_type : scope::layer;
        if (r.name.empty())
            throw error(origin + " " + text + ": nothing stands before the colon; say LAYER:ACCUMULATOR or TYPE:ACCUMULATOR");
    }
    check_accumulator_text(r.accumulator, origin);
    return r;
}

layer_accumulators resolve_accumulators(const model& m, const std::vector<accumulator_request>& requests) {
    layer_accumulators found;
    const std::vector<torch_module> modules = torch_modules(m);
    const auto enter = [&](const accumulator_request& r) {
        bool met = false;
        std::vector<std::string> names;
        for (int i = 0; i < m.graph().node_size(); ++i) {
            const onnx::NodeProto& n = m.graph().node(i);
            if (!is_multiplied(n.op_type())) continue;
            names.push_back(n.name());
            if (!means(r, n, modules[static_cast<std::size_t>(i)].path)) continue;
            met = true;
            found[n.name()] = r.accumulator;
        }
        if (met) return;
        if (r.scope == scope::everything) throw error(r.origin + ": the model has no Conv, Gemm or MatMul that a unit could multiply");
        throw error(r.origin + ": no Conv, Gemm or MatMul is meant by '" + r.name + "'." + did_you_mean(r.name, names));
    };
    for (const bool general : {true, false})
        for (const accumulator_request& r : requests)
            if ((r.scope == scope::everything) == general) enter(r);
    return found;
}

}  // namespace qk::graph
