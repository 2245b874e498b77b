// SPDX-License-Identifier: Apache-2.0
// Finds layers between Q/DQ pairs that need a guard because onnxruntime's optimizer would make of them what the plan does not say. Every
// rule is a case of tests/graph/fusing_evidence.py.
#pragma once

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "graph/export/qdq.hpp"
#include "graph/export/writer.hpp"
#include "graph/model/operator_name.hpp"
#include "graph/ops/widened.hpp"
#include "qk/graph/model/attribute.hpp"
#include "qk/graph/model/model.hpp"
#include "qk/graph/plan/layers.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph::detail {

/// Returns whether onnxruntime's QLinearAveragePool computes what an AveragePool does: it has no dilations, and where padding counts it
/// divides the sum of a window that reaches beyond the padding (ceil_mode) by all places of the window.
inline bool has_integer_pool(const onnx::NodeProto& n) {
    return find_attribute(n, "dilations") == nullptr &&
           (int_attribute(n, "ceil_mode", 0) == 0 || int_attribute(n, "count_include_pad", 0) == 0);
}

class fusing_rules {
  public:
    /// The arguments must outlive the rules.
    fusing_rules(const model& m, const precision_plan& plan, const quantizer_writer& writer)
        : model_(m), plan_(plan), writer_(writer), has_bytes_(has_byte_activations()) {}

    /// Returns whether a reader of an activation needs a guard before it: for its own sake, or because the scale is known in a run only and
    /// onnxruntime fuses the reader into an operator that looks for it when the model is loaded (its QLinearWhere crashes).
    bool needs_guard(const quantizer& q, model::use u) const {
        return u.node >= 0 && (needs_guard(u.node) || (q.dynamic && !is_layer(model_.graph().node(u.node))));
    }

    /// Returns whether onnxruntime would change what this node computes if a DequantizeLinear fed it: it requantizes float constants (also
    /// those of a MatMul, which it joins with an Add behind it to a Gemm), and makes integer operators with types, scales and attributes
    /// that these do not have, so that the model does not load or run.
    bool needs_guard(int node) const {
        const onnx::NodeProto& n = model_.graph().node(node);
        if (cannot_fuse(n)) return true;
        for (int k = 0; is_layer(n) && k < n.input_size(); ++k) {
            const quantizer* q = model_.is_constant(n.input(k)) ? planned(n, k) : nullptr;
            if (q != nullptr && becomes_nbits(*q, {node, k}, false)) return true;
        }
        return false;
    }

    /// Returns whether an int32 bias needs a guard of its own. An integer layer adds the bias's codes to sums of products of codes, whose
    /// scale is bias_scale(); onnxruntime makes such a layer of any int32 bias and never reads the scale that it has. Where both scales are
    /// equal to 1e-6, or the codes lead to the planned values within an eighth of that scale (zeros do whatever the scale), it may.
    bool misreads_bias(model::use u) const {
        if (u.node < 0 || u.input != 2 || !is_layer(model_.graph().node(u.node))) return false;
        const onnx::NodeProto& n = model_.graph().node(u.node);
        if (n.input_size() < 3) return false;
        const quantizer *x = planned(n, 0), *w = planned(n, 1), *b = planned(n, 2);
        const integer* f = b == nullptr ? nullptr : std::get_if<integer>(&b->format);
        if (f == nullptr || f->bits <= 16 || b->scale.empty()) return false;
        if (x == nullptr || w == nullptr) return true;  // pairs that lie further ahead may be moved here
        if (!is_integer_format(x->format) || !is_integer_format(w->format)) return false;
        if (x->scale.size() != 1 || w->scale.empty()) return true;
        const tensor value = ops::widened(model_.constant(n.input(2)));
        for (std::size_t i = 0; i < value.size(); ++i) {
            const double sum = bias_scale(n, x->scale[0], w->scale[i % w->scale.size()]);
            const double own = static_cast<double>(b->scale[i % b->scale.size()]);
            const double code = std::fabs(static_cast<double>(value.as<float>()[i])) / own;
            if (std::fabs(own - sum) * code > std::max(0.125, 1e-6 * code) * sum) return true;
        }
        return false;
    }

    /// Returns whether onnxruntime makes MatMulNBits of weights and their product. It does so for weights of 4 bits in any MatMul, or Gemm
    /// that does not transpose them; for weights of 8 bits unless the other operand has pairs of 8-bit integers too, which fuse into an
    /// integer product first. In functions (`called`) pairs with dynamic scales fuse so only in a MatMul without a bias; as nodes of their
    /// own they do with a bias, too, and a guard would hinder them.
    bool becomes_nbits(const quantizer& q, model::use u, bool called) const {
        const integer* f = std::get_if<integer>(&q.format);
        if (f == nullptr || f->bits > 8 || u.node < 0) return false;
        const onnx::NodeProto& n = model_.graph().node(u.node);
        const bool gemm = operator_of(n) == "Gemm" && u.input == 1 && int_attribute(n, "transB", 0) == 0;
        if (!gemm && (operator_of(n) != "MatMul" || n.input_size() != 2)) return false;
        const int other = 1 - u.input;
        const quantizer* beside = planned(n, other);
        const bool pair = beside != nullptr && !(beside->dynamic && (gemm || (called && has_bias(n)))) && !cannot_fuse(n) &&
                          !misreads_bias({u.node, 2}) && (model_.is_constant(n.input(other)) || writer_.dequantizes_activation(*beside));
        const integer* g = pair ? std::get_if<integer>(&beside->format) : nullptr;
        if (f->bits <= 4 || g == nullptr || g->bits <= 4 || g->bits > 8) return true;
        return !model_.is_constant(n.input(other)) && !fills(*g, container_of(*g).type);  // what is clipped is kept apart (qdq.hpp)
    }

    /// Returns whether products of a layer's int8 weights may saturate on x86-64 with AVX2 and no VNNI, where onnxruntime's kernels of
    /// uint8 by int8 add two of them in 16 bits. Codes of up to 64 leave room; where no activation has 8 bits, for weights in blocks, and
    /// for ConvTranspose, there is no such kernel. tests/graph/int8_evidence.py.
    bool may_saturate(const quantizer& q, const std::vector<model::use>& readers) const {
        const integer* f = std::get_if<integer>(&q.format);
        if (f == nullptr || container_of(*f).type != data_type::int8 || qmin(*f) >= -64 || !has_bytes_) return false;
        if (q.block_size > 0 && q.scale.size() > 1) return false;
        return std::ranges::any_of(readers, [&](model::use u) {
            return u.node >= 0 && u.input <= 1 && is_layer(model_.graph().node(u.node)) &&
                   operator_of(model_.graph().node(u.node)) != "ConvTranspose";
        });
    }

    const quantizer* planned(const onnx::NodeProto& n, int input) const { return plan_.find({n.input(input), n.name(), input}); }
    /// Returns whether the plan quantizes a layer's weights or bias.
    bool changes_weights(const onnx::NodeProto& n) const {
        bool changes = false;
        for (int k = 1; is_layer(n) && k < n.input_size(); ++k) changes = changes || planned(n, k) != nullptr;
        return changes;
    }

  private:
    static bool is_layer(const onnx::NodeProto& n) {
        return n.domain().empty() &&
               (operator_of(n) == "Conv" || operator_of(n) == "ConvTranspose" || operator_of(n) == "Gemm" || operator_of(n) == "MatMul");
    }
    /// Is true for a MatMul that onnxruntime joins with the Add behind it to a Gemm.
    bool has_bias(const onnx::NodeProto& n) const {
        const auto readers = model_.uses(n.output(0));
        return readers.size() == 1 && readers[0].node >= 0 && operator_of(model_.graph().node(readers[0].node)) == "Add" &&
               model_.is_constant(model_.graph().node(readers[0].node).input(1 - readers[0].input));
    }
    /// Returns whether the integer operator that the node would become lacks what the plan needs.
    bool cannot_fuse(const onnx::NodeProto& n) const {
        if (n.domain().empty() && operator_of(n) == "AveragePool") return !has_integer_pool(n);
        for (int k = 0; is_layer(n) && k < n.input_size(); ++k) {
            if (n.input(k).empty() || !model_.is_constant(n.input(k))) continue;
            const quantizer* q = planned(n, k);
            if (q == nullptr && k == 0) continue;
            if (q == nullptr || !writer_.dequantizes(*q)) return true;
            if (k > 1) continue;
            const integer* f = std::get_if<integer>(&q->format);
            if (f == nullptr || f->bits > 16 || f->bits <= 2) return true;
            // Scales by row, by block, or for each of several matrices do not fit: integer products have scales by column.
            if (q->scale.size() > 1 &&
                (k == 0 || q->block_size > 0 || (operator_of(n) == "MatMul" && model_.constant_shape(n.input(k)).size() > 2)))
                return true;
        }
        return false;
    }

    /// Returns whether activations have 8-bit codes, by the plan or by quantizers that the model itself has.
    bool has_byte_activations() const {
        const auto bytes = [&](const std::string& tensor, const quantizer& q) {
            const integer* f = std::get_if<integer>(&q.format);
            return f != nullptr && f->bits > 4 && f->bits <= 8 && !model_.is_constant(tensor);
        };
        const auto own = [](const onnx::NodeProto& n) { return operator_of(n).ends_with("QuantizeLinear"); };
        return std::ranges::any_of(plan_.tensors, [&](const auto& t) { return bytes(t.first, t.second); }) ||
               std::ranges::any_of(plan_.edges, [&](const auto& e) { return bytes(e.first.tensor, e.second); }) ||
               std::ranges::any_of(model_.graph().node(), own);
    }

    const model& model_;
    const precision_plan& plan_;
    const quantizer_writer& writer_;
    bool has_bytes_;
};

}  // namespace qk::graph::detail
