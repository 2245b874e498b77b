// SPDX-License-Identifier: Apache-2.0
// From data to a scale to codes, without another library: of a tensor, of channels, of blocks; by the largest magnitude, by the range, by
// the least error.
#include <qk/codec.hpp>
#include <qk/scales.hpp>

#include "same.hpp"

namespace {

double error(const std::vector<float>& x, const std::vector<float>& y) {
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) sum += static_cast<double>(x[i] - y[i]) * static_cast<double>(x[i] - y[i]);
    return sum;
}

}  // namespace

int main() {
    std::vector<float> x = numbers(4 * 64), y(x.size()), z(x.size());
    float most = 0, lowest = 0, highest = 0;
    for (const float v : x) most = std::max(most, std::fabs(v)), lowest = std::min(lowest, v), highest = std::max(highest, v);

    const qk::affine largest = qk::scale_from<qk::int8>(x);
    if (largest.scale != static_cast<float>(static_cast<double>(most) / 127) || largest.zero_point != 0) return 1;
    const qk::affine range = qk::scale_from(qk::uint8, x, qk::scale_choice::min_max);
    if (range.scale != static_cast<float>((static_cast<double>(highest) - static_cast<double>(lowest)) / 255)) return 2;
    if (range.zero_point != std::lround(-lowest / range.scale)) return 3;
    if (qk::scale_from(qk::fp8_e4m3fn, x).scale != static_cast<float>(static_cast<double>(most) / 448)) return 4;

    // Blocks: each has the scale of its own values; the least error is no larger than that of the largest magnitude.
    const qk::along_axis rows{4, 64, 1};
    std::vector<float> scale(8), by_error(8);
    qk::scales_from(qk::int4, x, {.axis = rows, .block_size = 32}, qk::scale_choice::absmax, scale);
    qk::scales_from(qk::int4, x, {.axis = rows, .block_size = 32}, qk::scale_choice::mse, by_error);
    for (std::size_t b = 0; b < 8; ++b) {
        if (scale[b] != qk::scale_from(qk::int4, std::span(x).subspan(b * 32, 32)).scale) return 5;
    }
    std::vector<std::byte> packed(qk::packed_bytes<qk::int4>(x.size()));
    qk::encode<qk::int4>(x, packed, qk::per_block{scale, {}, rows, 32});
    qk::decode<qk::int4>(packed, y, qk::per_block{scale, {}, rows, 32});
    qk::fake_quantize<qk::int4>(x, z, qk::per_block{by_error, {}, rows, 32});
    if (!(error(x, z) < error(x, y))) return 6;

    // Squares of 2 x 32, in 16-bit memory, and floats by their error.
    std::vector<float> squares(4);
    std::vector<qk::float16> half;
    for (float& v : x) half.push_back(qk::narrow<qk::float16>(v)), v = qk::widen(half.back());
    qk::scales_from(qk::fp4_e2m1, half, {.axis = rows, .block_size = 32, .block_rows = 2}, qk::scale_choice::mse, squares);
    for (std::size_t s = 0; s < 4; ++s) {
        std::vector<float> both(x.begin() + static_cast<long>(s / 2 * 128 + s % 2 * 32),
                                x.begin() + static_cast<long>(s / 2 * 128 + s % 2 * 32 + 32));
        both.insert(both.end(), x.begin() + static_cast<long>(s / 2 * 128 + 64 + s % 2 * 32),
                    x.begin() + static_cast<long>(s / 2 * 128 + 96 + s % 2 * 32));
        if (squares[s] != qk::scale_from(qk::fp4_e2m1, both, qk::scale_choice::mse).scale) return 7;
    }
}
