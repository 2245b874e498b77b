// SPDX-License-Identifier: Apache-2.0
// expect: parameters come in this order: the scale, the axis, or the axis and the scale of the tensor; then qk::semantics
#include "qk/fake_quantize.hpp"
void f(std::span<const float> x, std::span<float> y) { qk::fake_quantize<qk::mxfp4>(x, y, qk::semantics::quark, qk::along_axis{1, 8, 8}); }
