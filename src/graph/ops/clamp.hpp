// SPDX-License-Identifier: Apache-2.0
// The bounds of a Relu or Clip.
#pragma once

#include <onnx/onnx_pb.h>

#include <limits>
#include <string>

#include "graph/ops/op.hpp"
#include "qk/graph/model/attribute.hpp"

namespace qk::graph::ops {

struct clamp_bounds {
    double lo = -std::numeric_limits<double>::infinity(), hi = -lo;
    bool known = true;  ///< false: a bound is no constant number, and stands at infinity
};

/// Returns the bounds of a node that clamps; those of Clip are attributes, or inputs since opset 11. number_of(name) returns what a
/// constant of one number holds, nullopt for other tensors.
template <class NumberOf>
clamp_bounds clamp_bounds_of(const onnx::NodeProto& n, const NumberOf& number_of) {
    clamp_bounds b;
    if (operator_of(n) == "Relu") return b.lo = 0, b;
    const auto bound = [&](int input, const char* attribute, double& to) {
        if (const auto* given = graph::detail::find_attribute(n, attribute)) to = static_cast<double>(given->f());
        if (n.input_size() <= input || n.input(input).empty()) return;
        if (const auto number = number_of(n.input(input))) to = static_cast<double>(*number);
        else b.known = false;
    };
    bound(1, "min", b.lo), bound(2, "max", b.hi);
    return b;
}

}  // namespace qk::graph::ops
