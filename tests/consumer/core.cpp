// SPDX-License-Identifier: Apache-2.0
// A runtime author's program: one header, three calls, no exceptions and no RTTI.
#include <cstdio>
#include <qk/qk.hpp>
#include <vector>

int main() {
    std::vector<float> x(64, 0.3f), y(64);
    x[0] = 1.0f;
    qk::fake_quantize<qk::mxfp4>(x, y);
    if (y[0] != 1.0f || y[1] != 0.25f) return 1;  // scale 1/4: 4 and 1.2 -> 1
    qk::fake_quantize<qk::int8>(x, y, qk::affine{.scale = 0.25f, .zero_point = 3});
    if (y[0] != 1.0f || y[1] != 0.25f) return 1;
    qk::fake_quantize(qk::block_float{.block_size = 16, .exponent_bits = 8, .mantissa_bits = 5}, x, y);
    if (y[0] != 1.0f || y[1] != 0.3125f) return 1;  // step 1/16: 4.8 -> 5
    std::puts("consumer_core: fine");
}
