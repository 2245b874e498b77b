// SPDX-License-Identifier: Apache-2.0
// Convolutions of float32 sequences and images by oneDNN: forward, and backward by both operands. If qk is built without oneDNN, or oneDNN
// has no fast code for a geometry, callers multiply matrices of columns (im2col) instead.
#pragma once

#include <memory>
#include <vector>

#include "graph/ops/window.hpp"
#include "qk/graph/base/tensor.hpp"

namespace qk::graph::gradient {

/// All operands are laid out as in ONNX: x [N,C,...], weights [M,C/group,...], y [N,M,...]. A call uses one thread and gives the same bits
/// on each.
class fast_convolution {
  public:
    struct geometry {
        dims x, weights, y;
        std::int64_t group = 1;
        std::vector<std::int64_t> stride, dilation, pad_begin, pad_end;
        friend auto operator<=>(const geometry&, const geometry&) = default;
    };

    /// Returns the convolution of a geometry, or nullptr if there is none. It is made on first use and kept for all models; some thousand
    /// are kept at most.
    static std::shared_ptr<const fast_convolution> find(const ops::window& w, const dims& x, const dims& weights, std::int64_t group);

    virtual ~fast_convolution() = default;
    virtual bool has_forward() const = 0;
    virtual bool has_by_input() const = 0;
    virtual bool has_by_weights() const = 0;
    /// y = conv(x, weights) + bias; `bias` may be null.
    virtual void forward(const float* x, const float* weights, const float* bias, float* y) const = 0;
    /// Returns the weights in the layout that by_input() reads, for use with several gradients.
    virtual std::shared_ptr<const void> prepared(const float* weights) const = 0;
    virtual void by_input(const float* g, const void* prepared_weights, float* dx) const = 0;
    virtual void by_weights(const float* x, const float* g, float* dw) const = 0;
    /// Computes both gradients; converts the layout of g once if both read the same one.
    virtual void by_both(const float* x, const float* g, const void* prepared_weights, float* dx, float* dw) const = 0;
};

}  // namespace qk::graph::gradient
