// SPDX-License-Identifier: Apache-2.0
// Runs a convolution, with the residual Add and the Relu behind it, as one step. Before: Conv [-> Add] [-> Relu]. After: one call of
// oneDNN. Conditions: two spatial axes, float32, constant weights and bias; values in between have no other reader and no quantizer.
#pragma once

#include "graph/evaluate/execute/layout.hpp"
#include "graph/evaluate/execute/network.hpp"
#include "graph/evaluate/execute/prepared_convolution.hpp"

namespace qk::graph::execute {

#ifdef QK_HAVE_ONEDNN

inline constexpr bool have_conv_units = true;

class conv_unit {
  public:
    /// `x` and `w` are the quantizers of the two operands, null if there is none; `weights` are already quantized by `w`.
    conv_unit(const net_node& conv, bool add, bool relu, late_weights weights, tensor bias, const quantizer* x, const quantizer* w)
        : conv_(&conv), add_(add), relu_(relu), convolution_(std::move(weights), false, std::move(bias), x, w, 0, 4) {}

    /// Returns the narrow form that run() needs of an x of this shape; null means floats.
    const narrow_form* form_at(const dims& x) const { return convolution_.form_of(prepared(x)); }

    /// Returns the result. It, x and `residual` (of the result's shape, if there is an Add) are channels last; `narrow` is x in form_at(its
    /// shape). Returns an empty tensor if these shapes are not supported: then run the nodes one by one.
    tensor run(const tensor& x, const tensor& narrow, const tensor& residual, allocator& memory) const;

  private:
    const prepared_convolution::at_shape& prepared(const dims& x) const;

    const net_node* conv_;
    bool add_, relu_;
    prepared_convolution convolution_;
};

#else

inline constexpr bool have_conv_units = false;

class conv_unit {
  public:
    conv_unit(const net_node&, bool, bool, const late_weights&, const tensor&, const quantizer*, const quantizer*) {}
    const narrow_form* form_at(const dims&) const { return nullptr; }
    tensor run(const tensor&, const tensor&, const tensor&, allocator&) const { return {}; }
};

#endif

}  // namespace qk::graph::execute
