// SPDX-License-Identifier: Apache-2.0
// NVFP4 along an axis under a tensor scale that calibration chose, rounded and packed.
#include <qk/codec.hpp>
#include <qk/reference.hpp>

#include "same.hpp"

int main() {
    const qk::along_axis axis{1, 48, 20};
    const qk::affine tensor{.scale = 0.01f};
    const std::vector<float> x = numbers(48 * 20);
    std::vector<float> expected(x.size()), known(x.size()), decoded(x.size());
    qk::reference::fake_quantize(qk::nvfp4, x, expected, axis, tensor);
    qk::fake_quantize<qk::nvfp4>(x, known, axis, tensor);
    std::vector<std::byte> packed(qk::packed_bytes<qk::nvfp4>(axis));
    qk::encode<qk::nvfp4>(x, packed, {axis, tensor});
    qk::decode<qk::nvfp4>(packed, decoded, {axis, tensor});
    return same(known, expected) && same(decoded, expected) ? 0 : 1;
}
