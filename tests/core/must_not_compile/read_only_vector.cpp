// SPDX-License-Identifier: Apache-2.0
// expect: numbers to write are a span, vector or array of float, qk::float16 or qk::bfloat16, neither const nor temporary
#include <qk/qk.hpp>
#include <vector>
void use(const std::vector<float>& x, const std::vector<float>& y) { qk::fake_quantize(qk::bfp16, x, y); }
