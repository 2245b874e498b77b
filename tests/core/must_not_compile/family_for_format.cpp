// SPDX-License-Identifier: Apache-2.0
// expect: the template argument is a value, for instance qk::mxfp4 or qk::microscaling{}, not a type
#include "qk/fake_quantize.hpp"
void f(std::span<const float> x, std::span<float> y) { qk::fake_quantize<qk::microscaling>(x, y); }
