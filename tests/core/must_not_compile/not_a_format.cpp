// SPDX-License-Identifier: Apache-2.0
// expect: the template argument is a format, for instance qk::mxfp4 or qk::block_float{.block_size = 16}
#include <qk/fake_quantize.hpp>
void use(std::span<const float> x, std::span<float> y) { qk::fake_quantize<3>(x, y); }
