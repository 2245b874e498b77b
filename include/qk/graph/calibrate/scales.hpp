// SPDX-License-Identifier: Apache-2.0
// Scales and zero points from ranges and from weights. docs/reference/numerics.md, section 5.
#pragma once

#include <cstdint>
#include <span>

#include "qk/formats/format.hpp"
#include "qk/graph/base/tensor.hpp"
#include "qk/graph/plan/layers.hpp"
#include "qk/graph/plan/plan.hpp"
#include "qk/graph/plan/requests.hpp"

namespace qk::graph {

/// Smallest and largest value seen. lo > hi: nothing was seen.
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
/// (7) NVFP4's tensor scale: absmax / (largest element * largest block scale).
float scale_of(nvfloat format, value_range range);
/// Smallest power of two that is at least s; s > 0.
double pow2_at_least(double s);

/// Range of finite elements, 0 for none.
value_range range_of(std::span<const float> values);

/// The quantizer of a constant, from its float values: scales per tensor, per channel or per run of what.block_size, range by
/// min-max or, when `what.method` says mse, by the smallest squared error among 80 shrunk ranges. The format's own blocks need none.
quantizer weight_quantizer(const tensor& value, const precision& what, const operand_axes& axes);

/// The same for a value that is known by its range alone (an activation).
quantizer activation_quantizer(const precision& what, value_range range, const operand_axes& axes);

/// x after the quantizer, whole tensor: what a plan does to an edge. Scalars and rank 1 run along axis 0.
void apply(const quantizer& q, const tensor& x, std::span<float> y);
tensor applied(const quantizer& q, const tensor& x);

/// 10 log10(signal / error); +infinity when equal, and 0 signal gives 0 or -infinity.
double sqnr(std::span<const float> reference, std::span<const float> value);

/// Squared error that a scale makes on values (or on histogram bins: `weights` counts each value).
double squared_error(integer format, scale_pair s, std::span<const float> values, std::span<const double> weights = {});
/// scale_of with the exponent (among five around that of non_overflow) of least squared error.
scale_pair best_pow2(integer format, value_range range, bool symmetric, std::span<const float> values,
                     std::span<const double> weights = {});
/// Whether scales of that precision are symmetric when nothing was said: weights are, activations are not.
bool is_symmetric(const precision& what, bool weight);

}  // namespace qk::graph
