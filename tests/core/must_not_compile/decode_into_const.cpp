// SPDX-License-Identifier: Apache-2.0
// expect: numbers to write are a span, vector or array of float, qk::float16 or qk::bfloat16, neither const nor temporary
#include <qk/codec.hpp>
#include <vector>
void use(std::span<const std::byte> packed, const std::vector<float>& y) { qk::decode<qk::mxfp4>(packed, y); }
