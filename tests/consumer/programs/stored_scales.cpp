// SPDX-License-Identifier: Apache-2.0
// Four-bit weights as files have them: a float16 scale for 32 values and one zero point for all; a bfloat16 scale and a zero point in a
// byte for each block; blocks of 16 x 16 with a float scale.
#include <qk/codec.hpp>
#include <qk/reference.hpp>

#include "same.hpp"

namespace {

template <auto Format>
bool agrees(const std::vector<float>& w, const qk::per_block& stored) {
    std::vector<float> expected(w.size()), rounded(w.size()), decoded(w.size());
    qk::reference::fake_quantize(Format, w, expected, stored);
    qk::fake_quantize<Format>(w, rounded, stored);
    std::vector<std::byte> packed(qk::packed_bytes<Format>(w.size()));
    qk::encode<Format>(w, packed, stored);
    qk::decode<Format>(packed, decoded, stored);
    return same(rounded, expected) && same(decoded, expected);
}

}  // namespace

int main() {
    const qk::along_axis rows{32, 64, 1};
    const std::vector<float> w = numbers(32 * 64);
    const std::vector<qk::float16> halves(64, qk::narrow<qk::float16>(0.21f));
    const std::vector<qk::bfloat16> brains(64, qk::narrow<qk::bfloat16>(0.17f));
    const std::vector<std::uint8_t> zeros(64, 7);
    const std::vector<float> of_squares{0.1f, 0.2f, 0.3f, 0.4f, 0.15f, 0.25f, 0.35f, 0.45f};
    return agrees<qk::uint4>(w, {.scale = halves, .zero_point = 8, .axis = rows, .block_size = 32}) &&
                   agrees<qk::uint4>(w, {.scale = brains, .zero_point = zeros, .axis = rows, .block_size = 32}) &&
                   agrees<qk::int4>(w, {.scale = of_squares, .zero_point = {}, .axis = rows, .block_size = 16, .block_rows = 16})
               ? 0
               : 1;
}
