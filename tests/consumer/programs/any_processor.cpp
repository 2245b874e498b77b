// SPDX-License-Identifier: Apache-2.0
// A small processor without vectors: one value at a time, without xsimd, exceptions or RTTI, and with the same bits.
#define QK_SCALAR
#include <qk/codec.hpp>
#include <qk/reference.hpp>

#include "same.hpp"

int main() {
    const std::vector<float> x = numbers(200);
    std::vector<float> expected(x.size()), y(x.size()), decoded(x.size());
    std::vector<std::byte> packed(qk::packed_bytes<qk::mxfp4>(x.size()));
    qk::reference::fake_quantize(qk::mxfp4, x, expected);
    qk::fake_quantize<qk::mxfp4>(x, y);
    qk::encode<qk::mxfp4>(x, packed);
    qk::decode<qk::mxfp4>(packed, decoded);
    return same(y, expected) && same(decoded, expected) ? 0 : 1;
}
