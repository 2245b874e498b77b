// SPDX-License-Identifier: Apache-2.0
// expect: numbers to read are a span, vector or array of float, qk::float16 or qk::bfloat16: convert other types first
#include <qk/codec.hpp>
#include <vector>
void use(const std::vector<double>& x, std::span<std::byte> packed) { qk::encode<qk::mxfp4>(x, packed); }
