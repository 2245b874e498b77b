// SPDX-License-Identifier: Apache-2.0
// expect: numbers to read are a span, vector or array of float, qk::float16 or qk::bfloat16: convert double or int to float first
#include <qk/qk.hpp>
#include <vector>
void use(const qk::format& f, std::vector<double>& x, std::vector<float>& y) { qk::fake_quantize(f, x, y, qk::affine{.scale = 2}); }
