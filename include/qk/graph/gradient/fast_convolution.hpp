// SPDX-License-Identifier: Apache-2.0
// Convolutions of float32 sequences and images by oneDNN, forwards and by both operands backwards. Where oneDNN is not there, or has
// nothing quick for a geometry, whoever asks gets none and works on columns.
#pragma once

#include <memory>
#include <vector>

#include "qk/graph/base/tensor.hpp"
#include "qk/graph/ops/window.hpp"

namespace qk::graph::gradient {

/// All operands as ONNX has them: x [N,C,...], weights [M,C/group,...], y [N,M,...]. One thread; the same bits on each.
class fast_convolution {
  public:
    struct geometry {
        dims x, weights, y;
        std::int64_t group = 1;
        std::vector<std::int64_t> stride, dilation, pad_begin, pad_end;
        friend auto operator<=>(const geometry&, const geometry&) = default;
    };

    /// Made on first use and kept for all models, some thousand of them at most. nullptr: work on columns.
    static std::shared_ptr<const fast_convolution> find(const ops::window& w, const dims& x, const dims& weights, std::int64_t group);

    virtual ~fast_convolution() = default;
    virtual bool has_forward() const = 0;
    virtual bool has_by_input() const = 0;
    virtual bool has_by_weights() const = 0;
    /// y = conv(x, weights) + bias; `bias` may be null.
    virtual void forward(const float* x, const float* weights, const float* bias, float* y) const = 0;
    /// Weights as by_input reads them, to be made once for several gradients.
    virtual std::shared_ptr<const void> prepared(const float* weights) const = 0;
    virtual void by_input(const float* g, const void* prepared_weights, float* dx) const = 0;
    virtual void by_weights(const float* x, const float* g, float* dw) const = 0;
    /// Both, g laid out once where they read it alike.
    virtual void by_both(const float* x, const float* g, const void* prepared_weights, float* dx, float* dw) const = 0;
};

}  // namespace qk::graph::gradient
