// SPDX-License-Identifier: Apache-2.0
// expect: ggml's blocks are only read, by decode and products
#include <vector>

#include "qk/fake_quantize.hpp"
void f(const std::vector<float>& x, std::vector<float>& y) { qk::fake_quantize<qk::ggml::q4_K>(x, y); }
