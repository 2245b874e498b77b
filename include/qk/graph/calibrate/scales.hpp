// SPDX-License-Identifier: Apache-2.0
// Scales and zero points from ranges and from weights. docs/reference/numerics.md, "Calibration".
#pragma once

#include <cstdint>
#include <span>

#include "qk/formats/format.hpp"
#include "qk/graph/base/tensor.hpp"
#include "qk/graph/plan/layers.hpp"
#include "qk/graph/plan/plan.hpp"
#include "qk/graph/plan/requests.hpp"

namespace qk::graph {

/// Smallest and largest value seen; both are 0 when nothing was seen.
struct value_range {
    float lo = 0;
    float hi = 0;
    friend bool operator==(const value_range&, const value_range&) = default;
};

struct scale_pair {
    float scale = 1;
    std::int64_t zero_point = 0;
    friend bool operator==(const scale_pair&, const scale_pair&) = default;
};

/// (1) The range is widened to hold 0.
/// (2) symmetric: scale = absmax / qmax, zero point 0; unsigned: scale = 2 absmax / (2^b - 1), zero point 2^(b-1).
/// (3) asymmetric: scale = (hi - lo) / (qmax - qmin), zero point = RNE(qmin - lo / scale), held in [qmin, qmax].
/// (4) A scale below the smallest normal float32 becomes 1 with zero point 0.
/// (5) format.pow2: the scale's exponent is chosen by `rule`; min_mse is decided by the caller (best_pow2).
scale_pair scale_of(integer format, value_range range, bool symmetric, pow2_rule rule = pow2_rule::non_overflow);
/// (6) Scaled floats (is_scaled, plan.hpp): absmax / largest finite value; others have scale 1.
float scale_of(floating format, value_range range);
/// (7) NVFP4's tensor scale: absmax / (largest element * largest block scale); 1 for formats without one.
float tensor_scale_of(const format& format, value_range range);
float scale_of(const table& format, value_range range);
/// Returns the smallest power of two that is at least s; s > 0.
double pow2_at_least(double s);

/// Returns the range of the finite elements; [0, 0] if there are none.
value_range range_of(std::span<const float> values);

/// Returns the quantizer of a constant from its float values: scales per tensor, per channel or per run of what.block_size, the range by
/// min-max or, if `what.method` is mse, by the least squared error among 80 shrunk ranges. Formats with own blocks need no scales.
quantizer weight_quantizer(const tensor& value, const precision& what, const operand_axes& axes);

/// Returns the quantizer of a value of which only the range is known (an activation).
quantizer activation_quantizer(const precision& what, value_range range, const operand_axes& axes);

/// Quantizes and dequantizes a whole tensor, as a plan does on an edge. Scalars and rank 1 run along axis 0.
void apply(const quantizer& q, const tensor& x, std::span<float> y);
tensor applied(const quantizer& q, const tensor& x);

/// Returns 10 log10(signal / error): +infinity when both are equal, -infinity when the reference is 0 everywhere and the value is not.
double sqnr(std::span<const float> reference, std::span<const float> value);

/// Returns the squared error that a scale causes on values (or on histogram bins: `weights` counts each value).
double squared_error(integer format, scale_pair s, std::span<const float> values, std::span<const double> weights = {});
/// Returns scale_of with the exponent (among five around that of non_overflow) of least squared error.
scale_pair best_pow2(integer format, value_range range, bool symmetric, std::span<const float> values,
                     std::span<const double> weights = {});
/// Does scale_rule::search choose the float32 scales of such weights: integers, small floats and tables? Blocks of block formats are
/// searched by the kernels.
bool searches_scales(const qk::format& format, const qk::semantics& how);
/// Returns whether scales of that precision are symmetric; where it does not say, weights are and activations are not.
bool is_symmetric(const precision& what, bool weight);

}  // namespace qk::graph
