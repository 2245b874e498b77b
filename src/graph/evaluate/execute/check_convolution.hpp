// SPDX-License-Identifier: Apache-2.0
// Checks the code that a library made for one convolution: runs it once on whole numbers, whose sums are exact in any order, and compares.
// A library may be wrong for some shapes on some processors (oneDNN 2.6 with AMX: 1 x 1 kernels, strides that skip inputs). What is wrong
// here is not used, and the evaluator computes that shape another way.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace qk::graph::execute {

/// A convolution over [n, channels, height, width], channels last in memory; weights are [group, out, in, height, width], `out` and `in`
/// those of a group. y = relu((sum + bias) * scale + what y held), where the parts are asked for.
struct convolution_case {
    std::int64_t n, groups, in, out;                                     ///< in and out: channels of a group
    std::int64_t x[2], y[2], kernel[2], stride[2], dilation[2], pad[2];  ///< down, across; dilation 1: neighbours
    std::int64_t lowest_x, highest_x, lowest_w, highest_w;               ///< of the numbers to be drawn
    std::int64_t zero = 0;                                               ///< taken from each x; the padding has it
    bool bias = false, scaled = false, add = false, relu = false;
};

/// The operands of a check, in the orders of convolution_case.
struct convolution_numbers {
    std::vector<std::int32_t> x, w;
    std::vector<float> bias, scale, y;  ///< by channel; y: what is added to, then the result
};

/// Draws operands, has `run` compute numbers.y, and returns whether that is right: all of a small result, or values spread over a large
/// one.
bool computes_right(const convolution_case& c, const std::function<void(convolution_numbers&)>& run);

}  // namespace qk::graph::execute
