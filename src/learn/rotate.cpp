// SPDX-License-Identifier: Apache-2.0
// Definitions of rotate.hpp: finds streams, rotates their constants and takes gains out.
#include "learn/rotate.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>

#include "graph/model/edit.hpp"
#include "graph/model/operator_name.hpp"
#include "graph/ops/widened.hpp"
#include "graph/quantize/divide_channels.hpp"
#include "learn/stream.hpp"
#include "qk/graph/model/attribute.hpp"
#include "qk/graph/plan/layers.hpp"

namespace qk::learn {
namespace {

using namespace graph;

using graph::detail::constant_use;
using graph::detail::stream;

/// Returns the tensor with every run of H values along the last axis (`along_rows`), or the one before it, replaced by (run * gain) Q.
tensor rotated(const tensor& given, const rotation& q, bool along_rows, const std::vector<float>& gain) {
    tensor y(data_type::float32, given.shape());
    const std::size_t h = q.channels(), stride = along_rows ? 1 : static_cast<std::size_t>(given.shape().back());
    const auto x = given.as<float>();
    auto to = y.as<float>();
    std::vector<double> run(h);
    for (std::size_t first = 0; first < x.size(); first += h * stride)
        for (std::size_t i = first; i < first + stride; ++i) {
            for (std::size_t k = 0; k < h; ++k)
                run[k] = static_cast<double>(x[i + k * stride]) * (gain.empty() ? 1.0 : static_cast<double>(gain[k]));
            q.times(run);
            for (std::size_t k = 0; k < h; ++k) to[i + k * stride] = static_cast<float>(run[k]);
        }
    return y;
}

bool has_transposed_weights(const onnx::NodeProto& n) {
    return operator_of(n) == "Gemm" && graph::detail::int_attribute(n, "transB", 0) != 0;
}

void rotate_constant(model& m, const constant_use& at, const rotation& q, bool reads, const std::vector<float>& gain = {}) {
    const onnx::NodeProto& n = m.graph().node(at.node);
    const bool weights = at.input == 1 && (operator_of(n) == "MatMul" || operator_of(n) == "Gemm");
    const bool along_rows = !weights || reads == has_transposed_weights(n);
    graph::detail::replace_constant(m, at.node, at.input, rotated(ops::widened(m.constant(n.input(at.input))), q, along_rows, gain),
                                    "rotated");
}

/// Removes Mul nodes by a gain: readers of their outputs read their inputs instead.
void take_out(model& m, const std::set<int>& nodes) {
    std::vector<bool> gone(static_cast<std::size_t>(m.graph().node_size()), false);
    for (const int index : nodes) {
        const onnx::NodeProto& n = m.graph().node(index);
        const std::string from = m.is_constant(n.input(0)) ? n.input(1) : n.input(0);
        for (const auto& u : m.uses(n.output(0))) m.graph().mutable_node(u.node)->set_input(u.input, from);
        const std::string why = "the gain of '" + n.name() + "' went into the weights behind it, which were rotated";
        m.history().add_node(n.name(), n.op_type(), {.name = from, .is_node = false, .how = bond::place, .why = why});
        m.history().add_tensor(n.output(0), {.name = from, .is_node = false, .how = bond::place, .why = why});
        gone[static_cast<std::size_t>(index)] = true;
    }
    if (nodes.empty()) return;
    graph::detail::remove_nodes(m.graph(), gone);
    m.reindex();
    graph::detail::drop_unused_initializers(m);
}

void apply(model& m, const stream& s, const rotation& q) {
    for (const constant_use& at : s.written) rotate_constant(m, at, q, false);
    for (const auto& [at, gain] : s.read) rotate_constant(m, at, q, true, gain);
    for (const constant_use& at : s.gains) {
        tensor ones(data_type::float32, m.constant_shape(m.graph().node(at.node).input(at.input)));
        std::ranges::fill(ones.as<float>(), 1.0f);
        graph::detail::replace_constant(m, at.node, at.input, ones, "taken_over");
    }
    take_out(m, s.gain_nodes);
    m.reindex();
}

/// Returns the tensors that normalizations read, in the order of the graph.
std::vector<std::string> normalized(const model& m) {
    std::vector<std::string> found;
    for (const onnx::NodeProto& n : m.graph().node()) {
        const operator_name op = operator_of(n);
        if (n.input_size() == 0 || n.input(0).empty() || m.is_constant(n.input(0))) continue;
        const bool one = graph::detail::one_of(op, {"RMSNormalization", "SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization",
                                                    "LayerNormalization", "SkipLayerNormalization"});
        const bool square = (op == "Pow" || (op == "Mul" && n.input(0) == n.input(1))) && n.output_size() == 1 &&
                            std::ranges::all_of(m.uses(n.output(0)), [&](const auto& u) {
                                return u.node >= 0 && operator_of(m.graph().node(u.node)) == "ReduceMean";
                            });
        if (one || (square && !m.uses(n.output(0)).empty())) found.push_back(n.input(0));
    }
    return found;
}

}  // namespace

std::vector<rotated_stream> rotate_streams(model& m, std::uint64_t seed) {
    std::vector<rotated_stream> results;
    std::set<std::string> met;
    for (const std::string& start : normalized(m)) {
        if (met.contains(start)) continue;
        const stream s(m, start);
        met.insert(start), met.insert(s.tensors.begin(), s.tensors.end());
        if (!s.refused.empty() && s.per_head) continue;  // a normalization of single heads reads no residual stream
        rotated_stream result{.tensor = start, .channels = s.channels, .readers = {}, .writers = {}, .refused = s.refused};
        if (s.refused.empty()) {
            for (const auto& [at, gain] : s.read) result.readers.push_back(m.graph().node(at.node).name());
            for (const constant_use& at : s.written) result.writers.push_back(m.graph().node(at.node).name());
            apply(m, s, rotation(s.channels, seed));
        }
        results.push_back(std::move(result));
    }
    return results;
}

}  // namespace qk::learn
