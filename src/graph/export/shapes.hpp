// SPDX-License-Identifier: Apache-2.0
// What is known of a model's tensor shapes without running it: what it declares, what follows from that, and what the weights of a tensor's
// readers imply.
#pragma once

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "graph/model/infer_shapes.hpp"
#include "qk/graph/model/attribute.hpp"
#include "qk/graph/model/model.hpp"

namespace qk::graph::detail {

/// What is known about one axis of a tensor; -1: not known.
struct axis_facts {
    std::size_t rank = 0;      ///< 0: not known
    std::int64_t length = -1;  ///< of the requested axis
    std::int64_t inner = -1;   ///< product of the lengths behind it
};

class known_shapes {
  public:
    explicit known_shapes(const model& m) : model_(m), inferred_(m) {}

    axis_facts find(const std::string& tensor, int axis, const std::vector<model::use>& readers) const {
        axis_facts facts;
        if (const dims* d = inferred_.find(tensor)) {
            facts.rank = d->size();
            if (const auto place = place_of(axis, d->size())) {
                facts.length = std::max<std::int64_t>((*d)[*place], -1), facts.inner = 1;
                for (std::size_t i = *place + 1; i < d->size(); ++i)
                    facts.inner = (*d)[i] < 0 || facts.inner < 0 ? -1 : facts.inner * (*d)[i];
            }
        }
        for (const model::use u : readers) {
            if (u.node < 0 || u.input != 0 || facts.length > 0) continue;
            const axis_facts implied = from_reader(model_.graph().node(u.node), axis);
            if (facts.rank == 0) facts.rank = implied.rank;
            if (facts.rank == implied.rank || implied.rank == 0) facts.length = implied.length;
        }
        return facts;
    }

  private:
    static std::optional<std::size_t> place_of(int axis, std::size_t rank) {
        const int i = rank == 1 ? 0 : axis < 0 ? axis + static_cast<int>(rank) : axis;
        return i >= 0 && i < static_cast<int>(rank) ? std::optional(static_cast<std::size_t>(i)) : std::nullopt;
    }
    /// Returns what a layer with constant weights implies about its first operand.
    axis_facts from_reader(const onnx::NodeProto& n, int axis) const {
        if (!n.domain().empty() || n.input_size() < 2 || !model_.is_constant(n.input(1))) return {};
        const dims weights = model_.constant(n.input(1)).shape();
        if (n.op_type() == "Conv" || n.op_type() == "ConvTranspose") {
            if (weights.size() < 3) return {};
            const auto rank = static_cast<int>(weights.size());
            const bool channels = axis == 1 || axis == 1 - rank;
            return {weights.size(), !channels ? -1 : n.op_type() == "Conv" ? weights[1] * int_attribute(n, "group", 1) : weights[0]};
        }
        if (n.op_type() == "Gemm" && weights.size() == 2) {
            const std::int64_t inner = weights[int_attribute(n, "transB", 0) != 0 ? 1 : 0];
            const bool reduced = (axis < 0 ? axis + 2 : axis) == (int_attribute(n, "transA", 0) != 0 ? 0 : 1);
            return {2, reduced ? inner : -1};
        }
        if (n.op_type() == "MatMul" && weights.size() >= 2 && axis == -1) return {0, weights[weights.size() - 2]};
        return {};
    }

    const model& model_;
    inferred_shapes inferred_;
};

}  // namespace qk::graph::detail
