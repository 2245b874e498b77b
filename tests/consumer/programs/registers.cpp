// SPDX-License-Identifier: Apache-2.0
// Decoding into a lambda's registers: what it gets are the values of decode, each once and in order, for whole vectors and the ends.
#include <cstring>
#include <qk/codec.hpp>

#include "same.hpp"

namespace {

template <auto Format>
bool agrees(std::size_t n, const qk::codec_parameters& p) {
    const qk::packed_layout layout = qk::layout_of(Format, qk::resolved(p.axis, n));
    std::vector<std::byte> packed(layout.bytes());
    for (std::size_t i = 0; i < packed.size(); ++i)
        packed[i] = static_cast<std::byte>(i * 2654435761u >> 13);  // every code means something
    const float tensor = 0.01f;
    if (layout.tensor.count != 0) std::memcpy(packed.data() + layout.tensor.offset, &tensor, sizeof tensor);
    std::vector<float> expected(n), got(n);
    qk::decode<Format>(packed, expected, p);
    std::size_t next = 0;
    bool in_order = true;
    qk::decode_to<Format>(packed, n, p, [&](std::size_t first, auto values, std::size_t lanes) {
        in_order = in_order && first == next && lanes != 0;
        qk::kernels::store_first<qk::kernels::native>(got.data() + first, lanes, values);
        next = first + lanes;
    });
    return in_order && next == n && same(got, expected);
}

}  // namespace

int main() {
    for (const std::size_t n : {32u, 96u, 100u, 1600u, 2064u, 5000u}) {
        const std::vector<float> scale((n + 31) / 32, 0.11f);
        if (!agrees<qk::mxfp4>(n, {}) || !agrees<qk::nvfp4>(n, {})) return 1;
        if (!agrees<qk::int8>(n, qk::affine{.scale = 0.1f, .zero_point = 3}) || !agrees<qk::int4>(n, qk::affine{.scale = 0.3f})) return 2;
        if (!agrees<qk::fp8_e4m3fn>(n, qk::affine{.scale = 0.1f})) return 3;
        if (!agrees<qk::int4>(n, qk::per_block{scale, {}, {1, n, 1}, 32}) || !agrees<qk::mx6>(n, {})) return 4;
    }
}
