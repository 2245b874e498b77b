// SPDX-License-Identifier: Apache-2.0
// Definitions of word_filter.hpp.
#include "graph/evaluate/words/word_filter.hpp"

#include <algorithm>
#include <array>
#include <span>

#include "graph/evaluate/words/word_filter_inputs.hpp"

namespace qk::graph::execute {

bool word_convolution::is_filtered(const word_shape& s, const narrow_form& form) {
    const auto plain = [](const word_shape::axis& a) { return a.kernel == 3 && a.stride == 1 && a.dilation == 1; };
    constexpr std::int64_t most_weights = 256 * 256;  // two megabytes of words
    constexpr std::int64_t most_channels = 1024;      // with 9 products of 255 and 128 from each, results times four are below 2^31
    const std::int64_t tiles = (s.down.out + 1) / 2 * ((s.across.out + 1) / 2);
    constexpr std::int64_t fewest_channels = 16;
    return form.whole && plain(s.down) && plain(s.across) && s.channels % 16 == 0 && s.channels >= fewest_channels &&
           s.channels <= most_channels && s.outputs >= 16 && s.channels * s.outputs <= most_weights &&
           tiles * 16 * 4 <= s.down.out * s.across.out * 9 * 3;
}

namespace words {
namespace {

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

/// Combines a tile's 16 sums, `Step` numbers apart, into four times its 2 x 2 results.
template <std::int64_t Step>
struct tile_results {
    __m256i at[2][2];

    [[gnu::target("avx2,fma")]] explicit tile_results(const std::int32_t* sums) {
        __m256i left[4], right[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i, sums += 4 * Step) {
            const __m256i m1 = load(sums + Step), m2 = load(sums + 2 * Step);
            left[i] = _mm256_add_epi32(_mm256_add_epi32(m1, m2), load(sums));
            right[i] = _mm256_sub_epi32(_mm256_sub_epi32(m1, m2), load(sums + 3 * Step));
        }
        at[0][0] = _mm256_add_epi32(left[0], _mm256_add_epi32(left[1], left[2]));
        at[0][1] = _mm256_add_epi32(right[0], _mm256_add_epi32(right[1], right[2]));
        at[1][0] = _mm256_sub_epi32(left[1], _mm256_add_epi32(left[2], left[3]));
        at[1][1] = _mm256_sub_epi32(right[1], _mm256_add_epi32(right[2], right[3]));
    }
};

/// Divides four times the results of a vector of outputs by 4. Results of unsigned numbers (`Flipped`) lack 2^13 times their weights' sum,
/// a quarter of `behind`, which is added.
template <bool Flipped>
[[gnu::target("avx2,fma")]] inline __m256i whole_sum(__m256i four_times, __m256i behind) {
    if constexpr (!Flipped) return _mm256_srai_epi32(four_times, 2);
    // Four times the result may pass 2^31. For numbers less 2^15 it does not: divides that, and adds all of `behind`.
    const __m256i before = _mm256_add_epi32(behind, _mm256_add_epi32(behind, behind));
    return _mm256_add_epi32(_mm256_srai_epi32(_mm256_sub_epi32(four_times, before), 2), behind);
}

/// Writes the results of a block that lie within the picture from its sums, for one of its `Vectors` vectors of outputs. Copies of what all
/// results share stay in registers: stores of results may alias the originals.
template <int Vectors, bool Flipped, bool Added>
[[gnu::target("avx2,fma")]] void finish_block(const std::int32_t* sums, const layer_call& c, const block& b, std::int64_t vector) {
    constexpr std::int64_t outputs = Vectors * vector_outputs, step = tiles_a_block * outputs;
    const ending e(c, vector);
    const std::int64_t pixel = c.shape.outputs, across = c.shape.across.out, row = across * pixel, down = c.shape.down.out;
    __m256i behind = _mm256_setzero_si256();
    if constexpr (Flipped) behind = load(c.correction + vector * vector_outputs);
    const __m256 scale = e.scale, bias = e.bias, least = e.least;
    const auto put = [&](__m256i four_times, const float* added, float* to)
        __attribute__((target("avx2,fma"), always_inline)) {  // finish() of a whole vector
        __m256 y = _mm256_mul_ps(_mm256_add_ps(_mm256_cvtepi32_ps(whole_sum<Flipped>(four_times, behind)), bias), scale);
        asm("" : "+x"(y));
        if constexpr (Added) y = _mm256_add_ps(y, _mm256_loadu_ps(added));
        _mm256_storeu_ps(to, _mm256_max_ps(least, y));
    };
    std::int64_t i = b.begin / b.across * 2, j = b.begin % b.across * 2;
    for (std::int64_t t = b.begin; t < b.end; j = 0, i += 2) {
        const std::int64_t end = std::min(b.end, t + (across - j + 1) / 2);
        const bool more_down = i + 1 < down;
        std::int64_t at = i * row + j * pixel;
        const std::int64_t whole = e.outputs == vector_outputs && more_down ? std::min(end, t + (across - j) / 2) : t;
        const float* added = Added ? e.added + at : nullptr;
        float* to = e.y + at;
        j += 2 * (whole - t);
        for (at += 2 * (whole - t) * pixel; t < whole; ++t, sums += outputs, to += 2 * pixel) {
            const tile_results<step> of(sums);
            put(of.at[0][0], added, to), put(of.at[0][1], added + pixel, to + pixel);
            put(of.at[1][0], added + row, to + row), put(of.at[1][1], added + row + pixel, to + row + pixel);
            if constexpr (Added) added += 2 * pixel;
        }
        for (; t < end; ++t, sums += outputs, at += 2 * pixel, j += 2) {
            const tile_results<step> of(sums);
            const bool more_across = j + 1 < across;
            finish(whole_sum<Flipped>(of.at[0][0], behind), e, at);
            if (more_across) finish(whole_sum<Flipped>(of.at[0][1], behind), e, at + pixel);
            if (more_down) finish(whole_sum<Flipped>(of.at[1][0], behind), e, at + row);
            if (more_across && more_down) finish(whole_sum<Flipped>(of.at[1][1], behind), e, at + row + pixel);
        }
    }
}

/// Adds what words could not hold, times the weights (pairs of words for each output), to the sums.
template <int Vectors>
[[gnu::target("avx2,fma")]] void add_lost(const overflows& lost, const std::int16_t* weights, std::int32_t* sums) {
    for (const overflow& o : std::span(lost.first, lost.count)) {
        const __m256i times = _mm256_set1_epi32(o.times);
        for (std::int64_t v = 0; v < Vectors; ++v) {
            const __m256i more = _mm256_madd_epi16(times, load(weights + (o.weights * Vectors + v) * 16));
            auto* at = reinterpret_cast<__m256i*>(sums + (o.sums * Vectors + v) * vector_outputs);
            _mm256_store_si256(at, _mm256_add_epi32(_mm256_load_si256(at), _mm256_slli_epi32(more, 16)));
        }
    }
}

/// Does what tile() does, for `Tiles` tiles side by side and all of their channels.
template <int Tiles, int Vectors>
[[gnu::target("avx2,fma")]] void multiply(const std::int16_t* x, const std::int16_t* w, std::int64_t pairs, std::int32_t* sums) {
    __m256i sum[Tiles][Vectors];
    const std::int16_t* const end = x + 2 * pairs;
    const auto products = [&](bool first) __attribute__((target("avx2,fma"), always_inline)) {
        __m256i weights[Vectors];
        for (int v = 0; v < Vectors; ++v) weights[v] = load(w + 16 * v);
#pragma GCC unroll 6
        for (int p = 0; p < Tiles; ++p) {
            std::int32_t pair;
            std::memcpy(&pair, x + p * 2 * pairs, sizeof pair);
            const __m256i both = _mm256_set1_epi32(pair);
#pragma GCC unroll 2
            for (int v = 0; v < Vectors; ++v) {
                const __m256i m = _mm256_madd_epi16(both, weights[v]);
                sum[p][v] = first ? m : _mm256_add_epi32(sum[p][v], m);
            }
        }
    };
    products(true);
    for (x += 2, w += 16 * Vectors; x != end; x += 2, w += 16 * Vectors) products(false);
    for (int p = 0; p < Tiles; ++p)
        for (int v = 0; v < Vectors; ++v)
            _mm256_store_si256(reinterpret_cast<__m256i*>(sums + (p * Vectors + v) * vector_outputs), sum[p][v]);
}

/// Computes the results of a block for `Vectors` vectors of outputs, from what filter_inputs or filter_words made.
template <int Vectors>
[[gnu::target("avx2,fma")]] void run_block(const layer_call& c, const block& b, const std::int16_t* u, const overflows& lost,
                                           std::int64_t vector) {
    constexpr std::int64_t outputs = Vectors * vector_outputs, step = tiles_a_block * outputs;
    alignas(32) std::int32_t sums[products_a_tile * step];
    const std::int64_t pairs = c.shape.channels / 2, tiles = b.end - b.begin;
    const std::int16_t* weights = c.weights.filtered.data() + vector * products_a_tile * pairs * 16;
    for (std::int64_t m = 0; m < products_a_tile; ++m) {
        const std::int16_t *x = u + m * tiles_a_block * c.shape.channels, *w = weights + m * pairs * 16 * Vectors;
        std::int32_t* to = sums + m * step;
        std::int64_t t = 0;
        for (; t + 6 <= tiles; t += 6) multiply<6, Vectors>(x + t * c.shape.channels, w, pairs, to + t * outputs);
        if (t + 4 <= tiles) multiply<4, Vectors>(x + t * c.shape.channels, w, pairs, to + t * outputs), t += 4;
        if (t + 2 <= tiles) multiply<2, Vectors>(x + t * c.shape.channels, w, pairs, to + t * outputs), t += 2;
        if (t < tiles) multiply<1, Vectors>(x + t * c.shape.channels, w, pairs, to + t * outputs);
    }
    add_lost<Vectors>(lost, weights, sums);
    const auto finish_with = c.correction == nullptr
                                 ? (c.added == nullptr ? finish_block<Vectors, false, false> : finish_block<Vectors, false, true>)
                                 : (c.added == nullptr ? finish_block<Vectors, true, false> : finish_block<Vectors, true, true>);
    for (int v = 0; v < Vectors; ++v) finish_with(sums + v * vector_outputs, c, b, vector + v);
}

}  // namespace

std::size_t room_to_filter(const word_shape& s, const narrow_form& form) {
    const auto words = static_cast<std::size_t>(products_a_tile * tiles_a_block * s.channels);
    return words * sizeof(std::int16_t) + (form.planes == 2 ? words / 16 * sizeof(overflow) : 0);
}

bool run_filtered(const layer_call& c, const narrow_form& form, std::byte* room) {
    const std::int64_t across = (c.shape.across.out + 1) / 2, tiles = (c.shape.down.out + 1) / 2 * across;
    const auto words = static_cast<std::size_t>(products_a_tile * tiles_a_block * c.shape.channels);
    auto* u = reinterpret_cast<std::int16_t*>(room);
    overflows lost{reinterpret_cast<overflow*>(u + words), 0, form.planes == 2 ? words / 16 : 0};
    const std::int64_t vectors = whole_vectors(c.shape.outputs);
    for (std::int64_t t = 0; t < tiles; t += tiles_a_block) {
        const block b{t, std::min(t + tiles_a_block, tiles), across};
        lost.count = 0;
        if (form.planes == 1) filter_inputs(c, b, u);
        else if (!filter_words(c, b, u, lost)) return false;
        for (std::int64_t v = 0; v < vectors; v += 2) {
            if (v + 1 < vectors) run_block<2>(c, b, u, lost, v);
            else run_block<1>(c, b, u, lost, v);
        }
    }
    return true;
}

#endif

}  // namespace words
}  // namespace qk::graph::execute
