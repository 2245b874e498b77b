// SPDX-License-Identifier: Apache-2.0
// Definitions of word_filter.hpp.
#include "word_filter.hpp"

#include <algorithm>
#include <array>

namespace qk::graph::execute {

bool word_convolution::is_filtered(const word_shape& s, const narrow_form& form) {
    const auto plain = [](const word_shape::axis& a) { return a.kernel == 3 && a.stride == 1 && a.dilation == 1; };
    constexpr std::int64_t most_weights = 256 * 256;  // two megabytes of words
    constexpr std::int64_t most_channels = 1024;      // 9 products of 255 and 128 from each, times four, are below 2^31
    const std::int64_t tiles = (s.down.out + 1) / 2 * ((s.across.out + 1) / 2);
    return form.planes == 1 && plain(s.down) && plain(s.across) && s.channels % 16 == 0 && s.channels <= most_channels && s.outputs >= 16 &&
           s.channels * s.outputs <= most_weights && tiles * 16 * 4 <= s.down.out * s.across.out * 9 * 3;
}

namespace words {
namespace {

constexpr std::int64_t products_a_tile = 16, tiles_a_block = 24;

/// 2 g0, g0 + g1 + g2, g0 - g1 + g2, 2 g2
std::array<int, 4> filtered_taps(int g0, int g1, int g2) { return {2 * g0, g0 + g1 + g2, g0 - g1 + g2, 2 * g2}; }

}  // namespace

std::vector<std::int16_t> filtered_weights(const tensor& w) {
    const std::int64_t outputs = w.dim(0), channels = w.dim(1), pairs = channels / 2, vectors = whole_vectors(outputs);
    std::vector<std::int16_t> words(static_cast<std::size_t>(vectors * products_a_tile * pairs * 16), 0);
    const auto values = w.as<std::int8_t>();
    for (std::int64_t o = 0; o < outputs; ++o) {
        const std::int64_t vector = o / vector_outputs, first = vector / 2 * 2, side = std::min<std::int64_t>(2, vectors - first);
        for (std::int64_t c = 0; c < channels; ++c) {
            const std::int8_t* g = values.data() + (o * channels + c) * 9;
            std::array<std::array<int, 4>, 3> across{};
            for (std::size_t r = 0; r < 3; ++r) across[r] = filtered_taps(g[3 * r], g[3 * r + 1], g[3 * r + 2]);
            for (std::size_t j = 0; j < 4; ++j) {
                const std::array<int, 4> down = filtered_taps(across[0][j], across[1][j], across[2][j]);
                for (std::size_t i = 0; i < 4; ++i) {
                    const std::int64_t product = static_cast<std::int64_t>(4 * i + j);
                    const std::int64_t at = (first * products_a_tile * pairs + (product * pairs + c / 2) * side + vector - first) * 16 +
                                            o % vector_outputs * 2 + c % 2;
                    words[static_cast<std::size_t>(at)] = static_cast<std::int16_t>(down[i]);
                }
            }
        }
    }
    return words;
}

#ifdef QK_WORDS

namespace {

/// A block of tiles, numbered along the rows of tiles.
struct block {
    std::int64_t begin, end;
    std::int64_t across;  ///< tiles in a row of them
};

/// What the tiles' inputs are multiplied as: u[product][tile][channel].
[[gnu::target("avx2,fma")]] void filter_inputs(const layer_call& c, const block& b, std::int16_t* u) {
    const std::int64_t channels = c.shape.channels, row = c.width * channels, step = tiles_a_block * channels;
    for (std::int64_t t = b.begin; t < b.end; ++t)
        for (std::int64_t k = 0; k < channels; k += 16) {
            const std::int16_t* x = c.x + t / b.across * 2 * row + t % b.across * 2 * channels + k;
            std::int16_t* to = u + (t - b.begin) * channels + k;
            for (std::int64_t i = 0; i < 4; ++i, to += 4 * step) {
                // Rows of x: 0 less 2, 1 and 2, 2 less 1, 1 less 3.
                const std::int16_t *one = x + (i == 0 ? 0 : i == 2 ? 2 : 1) * row, *other = x + (i == 3 ? 3 : i == 2 ? 1 : 2) * row;
                __m256i d[4];
                for (std::int64_t j = 0; j < 4; ++j) {
                    const __m256i p = load(one + j * channels), q = load(other + j * channels);
                    d[j] = i == 1 ? _mm256_add_epi16(p, q) : _mm256_sub_epi16(p, q);
                }
                store(_mm256_sub_epi16(d[0], d[2]), to);
                store(_mm256_add_epi16(d[1], d[2]), to + step);
                store(_mm256_sub_epi16(d[2], d[1]), to + 2 * step);
                store(_mm256_sub_epi16(d[1], d[3]), to + 3 * step);
            }
        }
}

/// Two results side by side, or one at the right edge, times four.
[[gnu::target("avx2,fma")]] inline void finish_row(const __m256i* m, const layer_call& c, const ending& e, std::int64_t i, std::int64_t j,
                                                   std::int64_t first) {
    const std::int64_t at = (i * c.shape.across.out + j) * c.shape.outputs + first;
    const __m256i left = _mm256_add_epi32(m[0], _mm256_add_epi32(m[1], m[2]));
    finish(_mm256_srai_epi32(left, 2), e, at, first);
    if (j + 1 >= c.shape.across.out) return;
    const __m256i right = _mm256_sub_epi32(m[1], _mm256_add_epi32(m[2], m[3]));
    finish(_mm256_srai_epi32(right, 2), e, at + c.shape.outputs, first);
}

/// From a tile's 16 sums, `step` numbers apart, to its 2 x 2 results: those within the picture, of eight outputs.
[[gnu::target("avx2,fma")]] void finish_tile(const std::int32_t* sums, std::int64_t step, const layer_call& c, const ending& e,
                                             std::int64_t i, std::int64_t j, std::int64_t first) {
    __m256i upper[4], lower[4];
    for (std::int64_t k = 0; k < 4; ++k) {
        const __m256i m1 = load(sums + (4 + k) * step), m2 = load(sums + (8 + k) * step);
        upper[k] = _mm256_add_epi32(load(sums + k * step), _mm256_add_epi32(m1, m2));
        lower[k] = _mm256_sub_epi32(m1, _mm256_add_epi32(m2, load(sums + (12 + k) * step)));
    }
    finish_row(upper, c, e, i, j, first);
    if (i + 1 < c.shape.down.out) finish_row(lower, c, e, i + 1, j, first);
}

/// The results of a block for a pair of vectors, from what filter_inputs made.
template <int Vectors>
[[gnu::target("avx2,fma")]] void run_block(const layer_call& c, const block& b, const std::int16_t* u, std::int64_t vector) {
    constexpr std::int64_t outputs = Vectors * vector_outputs, step = tiles_a_block * outputs;
    alignas(32) std::int32_t sums[products_a_tile * step];
    const std::int64_t pairs = c.shape.channels / 2, tiles = b.end - b.begin;
    const std::int32_t start = 0;
    products of{c.weights.filtered.data() + vector * products_a_tile * pairs * 16, &start, 1, pairs};
    for (std::int64_t m = 0; m < products_a_tile; ++m, of.words += pairs * 16 * Vectors)
        for (std::int64_t t = 0; t < tiles; t += places_a_tile) {
            const std::int16_t* windows[places_a_tile];
            for (std::int64_t k = 0; k < places_a_tile; ++k)
                windows[k] = u + (m * tiles_a_block + std::min(t + k, tiles - 1)) * c.shape.channels;
            tile_of<Vectors>(std::min(tiles - t, places_a_tile), windows, of, sums + m * step + t * outputs);
        }
    const ending e(c, vector);
    for (int v = 0; v < Vectors; ++v) {
        const std::int64_t first = v * vector_outputs;
        for (std::int64_t t = b.begin; t < b.end; ++t)
            finish_tile(sums + (t - b.begin) * outputs + first, step, c, e, t / b.across * 2, t % b.across * 2, first);
    }
}

}  // namespace

void run_filtered(const layer_call& c, allocator& memory) {
    const std::int64_t across = (c.shape.across.out + 1) / 2, tiles = (c.shape.down.out + 1) / 2 * across, channels = c.shape.channels;
    const auto room = memory.allocate(static_cast<std::size_t>(products_a_tile * tiles_a_block * channels) * sizeof(std::int16_t));
    auto* u = reinterpret_cast<std::int16_t*>(room.get());
    const std::int64_t vectors = whole_vectors(c.shape.outputs);
    for (std::int64_t t = 0; t < tiles; t += tiles_a_block) {
        const block b{t, std::min(t + tiles_a_block, tiles), across};
        filter_inputs(c, b, u);
        for (std::int64_t v = 0; v < vectors; v += 2) {
            if (v + 1 < vectors) run_block<2>(c, b, u, v);
            else run_block<1>(c, b, u, v);
        }
    }
}

#endif

}  // namespace words
}  // namespace qk::graph::execute
