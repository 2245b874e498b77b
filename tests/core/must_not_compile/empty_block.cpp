// SPDX-License-Identifier: Apache-2.0
// expect: this format cannot exist: std::puts(qk::check(format).c_str()) says why
#include <qk/fake_quantize.hpp>
void use(std::span<const float> x, std::span<float> y) { qk::fake_quantize<qk::block_float{.block_size = 0}>(x, y); }
