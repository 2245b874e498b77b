// SPDX-License-Identifier: Apache-2.0
// expect: the first argument is a format: qk::mxfp4, a struct such as qk::block_float{.block_size = 16}, or what qk::parse_format(text)
// holds
#include <qk/qk.hpp>
void use(std::span<const float> x, std::span<float> y) { qk::fake_quantize("mxfp4", x, y); }
