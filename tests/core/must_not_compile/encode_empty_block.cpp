// SPDX-License-Identifier: Apache-2.0
// expect: this format cannot exist: std::puts(qk::check(format).c_str()) says why
#include <qk/codec.hpp>
void use(std::span<const float> x, std::span<std::byte> p) { qk::encode<qk::floating{.exponent_bits = 0, .mantissa_bits = 3}>(x, p); }
