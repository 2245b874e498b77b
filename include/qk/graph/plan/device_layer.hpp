// SPDX-License-Identifier: Apache-2.0
// What the component hardware brings to the graph module: layers that a device's matrix unit multiplies.
#pragma once

#include <memory>
#include <string>

#include "qk/graph/base/component.hpp"
#include "qk/graph/base/tensor.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph {
namespace execute {
struct net_node;  // a node of the evaluator: src/graph/evaluate/execute/network.hpp
}

/// A Conv, Gemm or MatMul as a device computes it. Several threads may run it at the same time.
class device_layer {
  public:
    virtual ~device_layer() = default;
    virtual tensor run(const tensor& x, const tensor& weights, const tensor& bias, allocator& memory) const = 0;
};

struct device_functions {
    /// Throws error where the text is neither a device nor an accumulator; the error begins with `origin`.
    void (*check)(const std::string& text, const std::string& origin);
    /// `accumulator` is a device's name or an accumulator's text. `x` and `w` are the quantizers of the operands; if one is null, that
    /// operand gets the format that the device multiplies, or float32. Constant weights are prepared here; otherwise `weights` is empty.
    std::shared_ptr<const device_layer> (*make)(const execute::net_node& node, const std::string& accumulator, const quantizer* x,
                                                const quantizer* w, const tensor& weights);
};

inline constinit component<device_functions> device_component("hardware", "QK_BUILD_HARDWARE");

}  // namespace qk::graph
