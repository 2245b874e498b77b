// SPDX-License-Identifier: Apache-2.0
// expect: the other block formats take theirs from the data
#include <qk/fake_quantize.hpp>
void use(std::span<const float> x, std::span<float> y) { qk::fake_quantize<qk::mxfp4>(x, y, qk::affine{.scale = 2}); }
