// SPDX-License-Identifier: Apache-2.0
// expect: the first argument is a format
#include <cstdint>
#include <vector>

#include "qk/dispatch.hpp"
void f(const std::vector<float>& x, std::vector<float>& y) { qk::dispatch::fake_quantize("mxfp4", x, y); }
