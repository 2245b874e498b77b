// SPDX-License-Identifier: Apache-2.0
// expect: after the arrays come qk::affine{.scale = s}, qk::along_axis, qk::per_channel or qk::per_block, and qk::semantics
#include <qk/fake_quantize.hpp>
void use(std::span<const float> x, std::span<float> y) { qk::fake_quantize<qk::int8>(x, y, 0.05f); }
