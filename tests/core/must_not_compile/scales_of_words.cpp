// SPDX-License-Identifier: Apache-2.0
// expect: scales are a span, vector or array of float, qk::float16 or qk::bfloat16
#include <cstdint>
#include <vector>

#include "qk/product.hpp"
void f(std::span<const std::byte> codes, const std::vector<std::uint16_t>& halves, const std::vector<float>& x, std::vector<float>& y) {
    qk::product<qk::int4>({8, 32, {codes}, qk::per_block{halves, {}, {8, 32, 1}, 32}}, x, y);
}
