// SPDX-License-Identifier: Apache-2.0
// A head of a cache at a time: short rows give the bytes of one call over all of them, without room for all.
#include <qk/codec.hpp>

#include "same.hpp"

int main() {
    for (const std::size_t size : {std::size_t{32}, std::size_t{64}, std::size_t{128}, std::size_t{256}}) {
        const std::size_t heads = 6, bytes = qk::packed_bytes<qk::mxfp4>(size);
        const std::vector<float> x = numbers(heads * size);
        std::vector<std::byte> codes(heads * size / 2), scales(heads * size / 32), one(bytes);
        qk::encode<qk::mxfp4>(x, qk::planes{codes, scales, {}, {}}, qk::along_axis{heads, size, 1});
        for (std::size_t h = 0; h < heads; ++h) {
            qk::encode<qk::mxfp4>(std::span(x).subspan(h * size, size), one);
            for (std::size_t i = 0; i < bytes; ++i) {
                const std::byte there = i < size / 2 ? codes[h * size / 2 + i] : scales[h * size / 32 + i - size / 2];
                if (one[i] != there) return 1;
            }
        }
    }
}
