// SPDX-License-Identifier: Apache-2.0
// expect: packed codes are planes, or a span, vector or array of std::byte: write std::as_writable_bytes(std::span(v)) for other bytes
#include <qk/codec.hpp>
#include <vector>
void use(std::span<const float> x, std::vector<unsigned char>& packed) { qk::encode<qk::mxfp4>(x, packed); }
