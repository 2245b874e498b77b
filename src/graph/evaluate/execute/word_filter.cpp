// SPDX-License-Identifier: Apache-2.0
// Definitions of word_filter.hpp.
#include "word_filter.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

namespace qk::graph::execute {

bool word_convolution::is_filtered(const word_shape& s, const narrow_form& form) {
    const auto plain = [](const word_shape::axis& a) { return a.kernel == 3 && a.stride == 1 && a.dilation == 1; };
    constexpr std::int64_t most_weights = 256 * 256;  // two megabytes of words
    constexpr std::int64_t most_channels = 1024;      // 9 products of 255 and 128 from each, times four, are below 2^31
    const std::int64_t tiles = (s.down.out + 1) / 2 * ((s.across.out + 1) / 2);
    constexpr std::int64_t fewest_channels = 16;
    return form.whole && plain(s.down) && plain(s.across) && s.channels % 16 == 0 && s.channels >= fewest_channels &&
           s.channels <= most_channels && s.outputs >= 16 && s.channels * s.outputs <= most_weights &&
           tiles * 16 * 4 <= s.down.out * s.across.out * 9 * 3;
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

/// A sum or difference of words that is `times` 2^16 more than the word that holds it.
struct overflow {
    std::int32_t product, tile, channel, times;
};

/// Those of a block. They are gathered up to a sixteenth of all words, where they take about as long as the products that are spared.
struct overflows {
    overflow* first;
    std::size_t count, most;
};

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

/// What the word and `eighth`, the eighth of the whole, tell: from bit 13 on how often 2^16 is lost, 0 for most. Each time they differ by
/// 2^13 more, and by up to four for what was cut off.
[[gnu::target("avx2,fma")]] inline __m256i lost_of(__m256i word, __m256i eighth) {
    const __m256i apart = _mm256_sub_epi16(eighth, _mm256_srai_epi16(word, 3));
    return _mm256_add_epi16(apart, _mm256_set1_epi16(1 << 12));
}

/// Those of the sixteen channels from `channel` on that lose something; false: there are too many.
[[gnu::target("avx2,fma")]] bool note(__m256i lost, overflows& to, std::int64_t product, std::int64_t tile, std::int64_t channel) {
    const __m256i times = _mm256_srai_epi16(lost, 13), none = _mm256_cmpeq_epi16(times, _mm256_setzero_si256());
    alignas(32) std::int16_t each[16];
    _mm256_store_si256(reinterpret_cast<__m256i*>(each), times);
    for (unsigned some = ~static_cast<unsigned>(_mm256_movemask_epi8(none)) & 0x55555555u; some != 0; some &= some - 1) {
        if (to.count == to.most) return false;
        const int i = std::countr_zero(some) / 2;
        to.first[to.count++] = {static_cast<std::int32_t>(product), static_cast<std::int32_t>(tile), static_cast<std::int32_t>(channel) + i,
                                each[i]};
    }
    return true;
}

/// Two columns of sixteen channels of words, filtered downwards, and of their eighths where somebody needs them.
struct column_pair {
    __m256i words[2][4], eighths[2][4];
    __m256i large;  ///< has one of the two upper bits where a number is too large for its sums to fit in any case
    bool has_eighths;

    [[gnu::target("avx2,fma")]] void read(const std::int16_t* x, std::int64_t row, std::int64_t channels, __m256i to_large) {
        large = _mm256_setzero_si256(), has_eighths = false;
#pragma GCC unroll 2
        for (int j = 0; j < 2; ++j, x += channels) {
            const __m256i x0 = load(x), x1 = load(x + row), x2 = load(x + 2 * row), x3 = load(x + 3 * row);
            down(x0, x1, x2, x3, words[j]);
            for (const __m256i v : {x0, x1, x2, x3}) large = _mm256_or_si256(large, _mm256_add_epi16(v, to_large));
        }
    }
    [[gnu::target("avx2,fma")]] void read_eighths(const std::int16_t* x, std::int64_t row, std::int64_t channels) {
        for (int j = 0; j < 2; ++j, x += channels) {
            const __m256i x0 = load(x), x1 = load(x + row), x2 = load(x + 2 * row), x3 = load(x + 3 * row);
            down(_mm256_srai_epi16(x0, 3), _mm256_srai_epi16(x1, 3), _mm256_srai_epi16(x2, 3), _mm256_srai_epi16(x3, 3), eighths[j]);
        }
        has_eighths = true;
    }
    [[gnu::target("avx2,fma")]] static void down(__m256i x0, __m256i x1, __m256i x2, __m256i x3, __m256i* to) {
        to[0] = _mm256_sub_epi16(x0, x2), to[1] = _mm256_add_epi16(x1, x2), to[2] = _mm256_sub_epi16(x2, x1),
        to[3] = _mm256_sub_epi16(x1, x3);
    }
};

/// Notes what a tile's words lost, each of its sixteen sums from the eighths. False: too much.
[[gnu::target("avx2,fma")]] bool note_tile(const column_pair& left, const column_pair& right, __m256i eighth_of_more,
                                           const std::int16_t* words, std::int64_t step, overflows& to, std::int64_t tile,
                                           std::int64_t channel) {
#pragma GCC unroll 4
    for (std::int64_t i = 0; i < 4; ++i) {
        __m256i eighth[4];
        column_pair::down(left.eighths[0][i], left.eighths[1][i], right.eighths[0][i], right.eighths[1][i], eighth);
        if (i == 1) eighth[1] = _mm256_add_epi16(eighth[1], eighth_of_more);
        __m256i lost[4], any = _mm256_setzero_si256();
#pragma GCC unroll 4
        for (std::int64_t j = 0; j < 4; ++j) {
            lost[j] = lost_of(load(words + (4 * i + j) * step), eighth[j]);
            any = _mm256_or_si256(any, lost[j]);
        }
        if (_mm256_testz_si256(any, _mm256_set1_epi16(-8192)) != 0) continue;
        for (std::int64_t j = 0; j < 4; ++j)
            if (!note(lost[j], to, 4 * i + j, tile, channel)) return false;
    }
    return true;
}

/// filter_inputs of numbers of 16 bits, those without a sign less 2^15. Where one of a tile's is large, what they are an eighth of is
/// computed too and tells how often 2^16 was lost. False: too often.
[[gnu::target("avx2,fma")]] bool filter_words(const layer_call& c, const block& b, bool flipped, std::int16_t* u, overflows& lost) {
    const std::int64_t channels = c.shape.channels, row = c.width * channels, step = tiles_a_block * channels;
    // Four numbers, each 2^15 - 2^13 too small.
    const __m256i more = _mm256_set1_epi16(flipped ? -32768 : 0),
                  eighth_of_more = _mm256_set1_epi16(flipped ? 4 * (0x8000 - 0x2000) / 8 : 0);
    // Four numbers without a sign below 2^14, or with one within 2^13, are fine: upper bits of the number, or of the number plus 2^13.
    const __m256i to_large = _mm256_set1_epi16(flipped ? -32768 : 1 << 13), upper = _mm256_set1_epi16(-16384);
    for (std::int64_t k = 0; k < channels; k += 16) {
        column_pair pairs[2], *left = pairs, *right = pairs + 1;
        for (std::int64_t t = b.begin; t < b.end; ++t) {
            const std::int16_t* x = c.x + t / b.across * 2 * row + t % b.across * 2 * channels + k;
            if (t == b.begin || t % b.across == 0) left->read(x, row, channels, to_large);
            else std::swap(left, right);  // what was at the right of the tile before
            right->read(x + 2 * channels, row, channels, to_large);
            std::int16_t* to = u + (t - b.begin) * channels + k;
            for (std::int64_t i = 0; i < 4; ++i) {
                __m256i word[4];
                column_pair::down(left->words[0][i], left->words[1][i], right->words[0][i], right->words[1][i], word);
                if (i == 1) word[1] = _mm256_xor_si256(word[1], more);
                for (std::int64_t j = 0; j < 4; ++j) store(word[j], to + (4 * i + j) * step);
            }
            if (_mm256_testz_si256(_mm256_or_si256(left->large, right->large), upper) != 0) continue;
            if (!left->has_eighths) left->read_eighths(x, row, channels);
            right->read_eighths(x + 2 * channels, row, channels);
            if (!note_tile(*left, *right, eighth_of_more, to, step, lost, t - b.begin, k)) return false;
        }
    }
    return true;
}

/// What a tile's 16 sums, `step` numbers apart, come to: four times its 2 x 2 results.
struct tile_results {
    __m256i at[2][2];

    [[gnu::target("avx2,fma")]] tile_results(const std::int32_t* sums, std::int64_t step) {
        __m256i left[4], right[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i, sums += 4 * step) {
            const __m256i m1 = load(sums + step), m2 = load(sums + 2 * step);
            left[i] = _mm256_add_epi32(load(sums), _mm256_add_epi32(m1, m2));
            right[i] = _mm256_sub_epi32(m1, _mm256_add_epi32(m2, load(sums + 3 * step)));
        }
        at[0][0] = _mm256_add_epi32(left[0], _mm256_add_epi32(left[1], left[2]));
        at[0][1] = _mm256_add_epi32(right[0], _mm256_add_epi32(right[1], right[2]));
        at[1][0] = _mm256_sub_epi32(left[1], _mm256_add_epi32(left[2], left[3]));
        at[1][1] = _mm256_sub_epi32(right[1], _mm256_add_epi32(right[2], right[3]));
    }
};

/// What is left to do for a vector of outputs: numbers without a sign lack 2^15 times their weights' sum.
template <bool Flipped>
[[gnu::target("avx2,fma")]] inline __m256i whole_sum(__m256i four_times, __m256i behind) {
    if constexpr (!Flipped) return _mm256_srai_epi32(four_times, 2);
    // Of four times the result, which may pass 2^31, to within it and back.
    const __m256i before = _mm256_add_epi32(behind, _mm256_add_epi32(behind, behind));
    return _mm256_add_epi32(_mm256_srai_epi32(_mm256_sub_epi32(four_times, before), 2), behind);
}

/// From a block's sums to its results within the picture, for a vector of outputs. What is the same for all of them is held in registers:
/// stores of results might change it where it lies.
template <bool Flipped, bool Added>
[[gnu::target("avx2,fma")]] void finish_block(const std::int32_t* sums, std::int64_t outputs, const layer_call& c, const block& b,
                                              std::int64_t vector) {
    const ending e(c, vector);
    const std::int64_t step = tiles_a_block * outputs, pixel = c.shape.outputs, across = c.shape.across.out, row = across * pixel,
                       down = c.shape.down.out;
    __m256i behind = _mm256_setzero_si256();
    if constexpr (Flipped) behind = load(c.correction + vector * vector_outputs);
    const __m256 scale = e.scale, bias = e.bias, least = e.least;
    const float* const added = e.added;
    float* const to = e.y;
    const bool fills_vector = e.outputs == vector_outputs;
    const auto put = [&](__m256i four_times, std::int64_t at)
        __attribute__((target("avx2,fma"), always_inline)) {  // finish() of whole ones
        __m256 y = _mm256_mul_ps(_mm256_add_ps(_mm256_cvtepi32_ps(whole_sum<Flipped>(four_times, behind)), bias), scale);
        asm("" : "+x"(y));
        if constexpr (Added) y = _mm256_add_ps(y, _mm256_loadu_ps(added + at));
        _mm256_storeu_ps(to + at, _mm256_max_ps(least, y));
    };
    std::int64_t i = b.begin / b.across * 2, j = b.begin % b.across * 2;
    for (std::int64_t t = b.begin; t < b.end; ++t, sums += outputs) {
        const tile_results of(sums, step);
        const std::int64_t at = i * row + j * pixel;
        const bool more_across = j + 1 < across, more_down = i + 1 < down;
        if (fills_vector && more_across && more_down) {
            put(of.at[0][0], at), put(of.at[0][1], at + pixel), put(of.at[1][0], at + row), put(of.at[1][1], at + row + pixel);
        } else {
            finish(whole_sum<Flipped>(of.at[0][0], behind), e, at);
            if (more_across) finish(whole_sum<Flipped>(of.at[0][1], behind), e, at + pixel);
            if (more_down) finish(whole_sum<Flipped>(of.at[1][0], behind), e, at + row);
            if (more_across && more_down) finish(whole_sum<Flipped>(of.at[1][1], behind), e, at + row + pixel);
        }
        if ((j += 2) >= across) j = 0, i += 2;
    }
}

/// What words could not hold is added to the sums: times the weights, which are pairs of words for each output.
template <int Vectors>
[[gnu::target("avx2,fma")]] void add_lost(const overflows& lost, const std::int16_t* weights, std::int64_t pairs, std::int32_t* sums) {
    constexpr std::int64_t outputs = Vectors * vector_outputs;
    const __m256i upper = _mm256_set1_epi32(-65536);
    for (const overflow& o : std::span(lost.first, lost.count)) {
        const std::int16_t* w = weights + (o.product * pairs + o.channel / 2) * 16 * Vectors;
        std::int32_t* to = sums + (o.product * tiles_a_block + o.tile) * outputs;
        for (std::int64_t v = 0; v < Vectors; ++v) {
            const __m256i pair = load(w + 16 * v);
            __m256i more = o.channel % 2 == 0 ? _mm256_slli_epi32(pair, 16) : _mm256_and_si256(pair, upper);
            if (o.times != 1) more = _mm256_mullo_epi32(more, _mm256_set1_epi32(o.times));
            auto* at = reinterpret_cast<__m256i*>(to + v * vector_outputs);
            _mm256_store_si256(at, _mm256_add_epi32(_mm256_load_si256(at), more));
        }
    }
}

/// tile() of tiles side by side, all of their channels.
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

/// The results of a block for a pair of vectors, from what filter_inputs or filter_words made.
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
    add_lost<Vectors>(lost, weights, pairs, sums);
    const auto finish_with = c.correction == nullptr ? (c.added == nullptr ? finish_block<false, false> : finish_block<false, true>)
                                                     : (c.added == nullptr ? finish_block<true, false> : finish_block<true, true>);
    for (int v = 0; v < Vectors; ++v) finish_with(sums + v * vector_outputs, outputs, c, b, vector + v);
}

}  // namespace

bool run_filtered(const layer_call& c, const narrow_form& form, allocator& memory) {
    const std::int64_t across = (c.shape.across.out + 1) / 2, tiles = (c.shape.down.out + 1) / 2 * across, channels = c.shape.channels;
    const auto words = static_cast<std::size_t>(products_a_tile * tiles_a_block * channels);
    const auto room = memory.allocate(words * sizeof(std::int16_t));
    auto* u = reinterpret_cast<std::int16_t*>(room.get());
    overflows lost{nullptr, 0, form.planes == 2 ? words / 16 : 0};
    const auto room_of_lost = memory.allocate(std::max<std::size_t>(lost.most, 1) * sizeof(overflow));
    lost.first = reinterpret_cast<overflow*>(room_of_lost.get());
    const std::int64_t vectors = whole_vectors(c.shape.outputs);
    for (std::int64_t t = 0; t < tiles; t += tiles_a_block) {
        const block b{t, std::min(t + tiles_a_block, tiles), across};
        lost.count = 0;
        if (form.planes == 1) filter_inputs(c, b, u);
        else if (!filter_words(c, b, c.correction != nullptr, u, lost)) return false;
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
