// SPDX-License-Identifier: Apache-2.0
// expect: numbers to read are a span, vector or array of float, qk::float16 or qk::bfloat16: convert double or int to float first
#include <qk/fake_quantize.hpp>
#include <vector>
void use(std::vector<double>& x) { qk::fake_quantize<qk::mxfp4>(x, x); }
