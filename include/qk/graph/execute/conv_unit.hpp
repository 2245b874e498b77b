// SPDX-License-Identifier: Apache-2.0
// A convolution with the residual Add and the Relu behind it as one step. Before: Conv [-> Add] [-> Relu]. After: one call of oneDNN.
// Conditions: two spatial axes, float32, constant weights and bias; values in between have no other reader and no quantizer.
#pragma once

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "qk/graph/execute/layout.hpp"
#include "qk/graph/execute/network.hpp"
#include "qk/graph/execute/onednn.hpp"

namespace qk::graph::execute {

class conv_unit {
  public:
    conv_unit(const net_node& conv, bool add, bool relu, tensor weights, tensor bias)
        : conv_(&conv), add_(add), relu_(relu), weights_(std::move(weights)), bias_(std::move(bias)) {}

    /// x and the result are channels last; `residual` (if there is an Add) too, of the result's shape. An empty tensor: not possible
    /// for these shapes, do the nodes one by one.
    tensor run(const tensor& x, const tensor& residual, allocator& memory) const;

  private:
    const net_node* conv_;
    bool add_, relu_;
    tensor weights_, bias_;
#ifdef QK_HAVE_ONEDNN
    struct made {
        dims x, y;
        std::optional<dnn_convolution> convolution;
    };
    const made& prepared(const dims& x) const;
    mutable std::shared_mutex mutex_;
    mutable std::vector<std::unique_ptr<made>> made_;  ///< by input shape
#endif
};

#ifdef QK_HAVE_ONEDNN
inline constexpr bool have_conv_units = true;
#else
inline constexpr bool have_conv_units = false;
#endif

}  // namespace qk::graph::execute

#ifndef QK_GRAPH_COMPILED
#include "qk/graph/execute/conv_unit-inl.hpp"
#endif
