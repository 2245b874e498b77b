// SPDX-License-Identifier: Apache-2.0
// expect: numbers to read are a span, vector or array of float, qk::float16 or qk::bfloat16: convert double or int to float first
#include <qk/backward.hpp>
#include <vector>
void use(std::span<const float> x, const std::vector<double>& g, std::span<float> in) { qk::fake_quantize_backward<qk::mxfp4>(x, g, in); }
