// SPDX-License-Identifier: Apache-2.0
// expect: numbers to write are a span, vector or array of float, qk::float16 or qk::bfloat16, neither const nor temporary
#include <qk/fake_quantize.hpp>
void use(std::span<const float> x, std::span<const float> y) { qk::fake_quantize<qk::mxfp4>(x, y); }
