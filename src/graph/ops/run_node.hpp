// SPDX-License-Identifier: Apache-2.0
// Reads a Constant node and runs a single node on constants, for passes over a model.
#pragma once

#include <onnx/onnx_pb.h>

#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <vector>

#include "graph/model/check.hpp"
#include "graph/ops/op.hpp"
#include "qk/graph/model/model.hpp"

namespace qk::graph::detail {

/// Returns the value of a Constant node; nullopt for strings.
inline std::optional<tensor> constant_value(const onnx::NodeProto& n) {
    for (const auto& a : n.attribute()) {
        if (a.name() == "value" && a.t().data_type() != onnx::TensorProto::STRING) return to_tensor(a.t());
        if (a.name() == "sparse_value") return to_tensor(a.sparse_tensor());
        if (a.name() == "value_float") return make_tensor<float>({}, std::vector<float>{a.f()});
        if (a.name() == "value_int") return make_tensor<std::int64_t>({}, std::vector<std::int64_t>{a.i()});
        if (a.name() == "value_floats")
            return make_tensor<float>({a.floats_size()}, std::vector<float>(a.floats().begin(), a.floats().end()));
        if (a.name() == "value_ints")
            return make_tensor<std::int64_t>({a.ints_size()}, std::vector<std::int64_t>(a.ints().begin(), a.ints().end()));
    }
    return std::nullopt;
}

/// Throws instead of allocating more than `limit` bytes at once, so that a node stops before it takes memory for too large a result.
class bounded_heap : public allocator {
  public:
    explicit bounded_heap(std::size_t limit) : limit_(limit) {}
    std::shared_ptr<std::byte> allocate(std::size_t bytes) override {
        if (bytes > limit_) throw error("too large to fold");
        return thread_memory::of_heap(bytes);
    }

  private:
    std::size_t limit_;
};

/// Returns the outputs of a node of this opset; none if its operator is unknown. Throws if one would be larger than `limit` bytes, and
/// whatever the operator throws.
inline std::vector<tensor> run_alone(const onnx::NodeProto& n, int opset, const std::vector<tensor>& inputs, std::size_t limit) {
    const op_entry* op = find_op(n.domain(), n.op_type(), opset);
    if (op == nullptr || op->run == nullptr) return {};
    const node_view view(n, opset);
    bounded_heap heap(limit);
    const op_context::subgraph_runner none = [](const onnx::GraphProto&, std::span<const tensor>) -> std::vector<tensor> {
        throw error("subgraph");
    };
    std::vector<tensor> outputs(static_cast<std::size_t>(n.output_size()));
    op_context call(view, inputs, outputs, heap, none);
    op->run(call);
    return outputs;
}

/// Returns the outputs of a node of constants. Returns none if it cannot be computed now: an unknown operator, a function of the model, an
/// error that the run is to report, or a result that is too large.
inline std::vector<tensor> try_run(const model& m, const onnx::NodeProto& n, const std::vector<tensor>& inputs, std::size_t limit) {
    if (find_function(m.proto(), n) != nullptr) return {};
    try {
        auto outputs = run_alone(n, m.opset(n.domain()), inputs, limit);
        for (const tensor& t : outputs)
            if (t.empty() || t.size_bytes() > limit) return {};
        return outputs;
    } catch (const error&) {
        return {};
    } catch (const std::bad_alloc&) {
        return {};
    } catch (const std::length_error&) {
        return {};
    }
}

}  // namespace qk::graph::detail
