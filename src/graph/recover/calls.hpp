// SPDX-License-Identifier: Apache-2.0
// Reads back the calls that style portable writes: which quantizer a call carries out, and what a call with constant inputs returns.
#pragma once

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "graph/export/description.hpp"
#include "graph/export/marks.hpp"
#include "graph/export/portable/function_builder.hpp"
#include "graph/export/portable/packed.hpp"
#include "graph/model/check.hpp"
#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/model/model.hpp"

namespace qk::graph::detail {

/// Returns the function that a node calls if qk wrote it, otherwise nullptr.
inline const onnx::FunctionProto* called_quantizer(const model& m, const onnx::NodeProto& n) {
    return n.domain() == marks::function_domain && n.output_size() == 1 ? find_function(m.proto(), n) : nullptr;
}

/// Returns the quantizer of a call from its description and its inputs `scale` and `zero_point` (or `zero_codes`); nullopt when they do not
/// determine one.
inline std::optional<quantizer> quantizer_of_call(const model& m, const onnx::NodeProto& n) {
    const onnx::FunctionProto* f = called_quantizer(m, n);
    if (f == nullptr) return std::nullopt;
    const auto argument = [&](const std::string& name) -> std::optional<tensor> {
        for (int k = 0; k < std::min(f->input_size(), n.input_size()); ++k)
            if (f->input(k) == name) return m.is_constant(n.input(k)) ? std::optional(m.constant(n.input(k))) : std::nullopt;
        return tensor();
    };
    const std::optional<tensor> scale = argument("scale"), zero_point = argument("zero_point");
    if (!scale || !zero_point) return std::nullopt;
    std::vector<float> scales;
    std::vector<std::int64_t> zeros;
    if (scale->type() == data_type::float32) scales.assign(scale->as<float>().begin(), scale->as<float>().end());
    if (const std::optional<tensor> codes = argument(marks::zero_codes); !codes) return std::nullopt;
    else if (!codes->empty()) {
        const auto how = described(n.doc_string(), scales, {});
        const integer* g = how ? std::get_if<integer>(&how->format) : nullptr;
        if (g == nullptr || codes->type() != data_type::uint8) return std::nullopt;
        zeros = unpacked_zero_points(*g, *codes, scales.size());
    }
    for (std::size_t i = 0; i < zero_point->size(); ++i)
        zeros.push_back(static_cast<std::int64_t>(
            zero_point->type() == data_type::float64 ? zero_point->as<double>()[i] : static_cast<double>(zero_point->as<float>()[i])));
    return described(n.doc_string(), scales, zeros);
}

/// Returns the results of the calls whose inputs are all constants, by name, computed as the model computes them.
inline std::map<std::string, tensor> called_constants(const model& m) {
    onnx::ModelProto calls;
    calls.set_ir_version(std::max<std::int64_t>(m.proto().ir_version(), 8));
    *calls.mutable_opset_import() = m.proto().opset_import();
    *calls.mutable_functions() = m.proto().functions();
    onnx::GraphProto& g = *calls.mutable_graph();
    g.set_name("calls");
    const auto declare = [](onnx::ValueInfoProto& v, const std::string& name) {
        v.set_name(name);
        v.mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::FLOAT);
    };
    std::map<std::string, tensor> results;
    std::set<std::string> held;
    for (const auto& n : m.graph().node()) {
        if (called_quantizer(m, n) == nullptr || !std::ranges::all_of(n.input(), [&](const std::string& i) { return m.is_constant(i); }))
            continue;
        *g.add_node() = n;
        declare(*g.add_output(), n.output(0));
        for (const std::string& i : n.input())
            if (held.insert(i).second) to_proto(m.constant(i), i, *g.add_initializer());
    }
    if (g.node_size() == 0) return results;
    // A run needs an input.
    const std::string none = "qk/none";
    onnx::NodeProto& idle = *g.add_node();
    idle.set_op_type("Identity");
    idle.add_input(none), idle.add_output(none + "/y");
    declare(*g.add_input(), none);
    g.mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape()->add_dim()->set_dim_value(1);
    declare(*g.add_output(), idle.output(0));
    const model small = model::parse(calls.SerializeAsString(), {}, m.label());
    for (auto& [name, value] : evaluator(small, {.threads = 1}).run({{none, make_tensor<float>({1}, std::vector<float>{0})}}).outputs)
        if (name != idle.output(0)) results.emplace(name, std::move(value));
    return results;
}

/// Removes qk's functions that nobody calls any more, and imports of their domain and of AMD's that nothing uses.
inline void forget_functions(onnx::ModelProto& m) {
    const auto called = [&](const std::string& domain, const std::string* name) {
        return std::any_of(m.graph().node().begin(), m.graph().node().end(),
                           [&](const onnx::NodeProto& n) { return n.domain() == domain && (name == nullptr || n.op_type() == *name); });
    };
    auto& functions = *m.mutable_functions();
    for (int k = functions.size(); k-- > 0;)
        if (functions.Get(k).domain() == marks::function_domain && !called(marks::function_domain, &functions.Get(k).name()))
            functions.DeleteSubrange(k, 1);
    auto& imports = *m.mutable_opset_import();
    for (int k = imports.size(); k-- > 0;) {
        const std::string& domain = imports.Get(k).domain();
        const bool known = domain == "com.amd.quark" || domain == "com.vai.quantize" || domain == marks::function_domain;
        if (known && !called(domain, nullptr)) imports.DeleteSubrange(k, 1);
    }
}

}  // namespace qk::graph::detail
