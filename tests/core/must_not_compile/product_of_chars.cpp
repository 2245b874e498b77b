// SPDX-License-Identifier: Apache-2.0
// expect: the bytes of a plane are a span, vector or array of std::byte
#include <cstdint>
#include <vector>

#include "qk/memory/planes.hpp"
#include "qk/product.hpp"
void f(const std::vector<std::uint8_t>& codes, const std::vector<float>& x, std::vector<float>& y) {
    qk::product<qk::fp8_e4m3fn>({8, 8, {codes}}, x, y);
}
