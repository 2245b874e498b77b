// SPDX-License-Identifier: Apache-2.0
// Definitions of word_filter_inputs.hpp.
#include "graph/evaluate/words/word_filter_inputs.hpp"

#include <bit>
#include <span>

#ifdef QK_WORDS

namespace qk::graph::execute::words {

[[gnu::target("avx2,fma")]] void filter_inputs(const layer_call& c, const block& b, std::int16_t* u) {
    const std::int64_t channels = c.shape.channels, row = c.width * channels, step = tiles_a_block * channels;
    for (std::int64_t t = b.begin; t < b.end; ++t)
        for (std::int64_t k = 0; k < channels; k += 16) {
            const std::int16_t* x = c.x + t / b.across * 2 * row + t % b.across * 2 * channels + k;
            std::int16_t* to = u + (t - b.begin) * channels + k;
            for (std::int64_t i = 0; i < 4; ++i, to += 4 * step) {
                // Rows of x: 0 - 2, 1 + 2, 2 - 1, 1 - 3.
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

namespace {

/// Sums and differences that saturate at the ends of a word. `Biased` numbers are stored less 2^15, and so is their sum; their difference
/// has no bias.
template <bool Biased>
[[gnu::target("avx2,fma")]] inline __m256i sum(__m256i a, __m256i b) {
    if constexpr (!Biased) return _mm256_adds_epi16(a, b);
    const __m256i bias = _mm256_set1_epi16(-32768);
    return _mm256_xor_si256(_mm256_adds_epu16(_mm256_xor_si256(a, bias), _mm256_xor_si256(b, bias)), bias);
}
template <bool Biased>
[[gnu::target("avx2,fma")]] inline void filter_four(__m256i x0, __m256i x1, __m256i x2, __m256i x3, __m256i* to) {
    to[0] = _mm256_subs_epi16(x0, x2), to[1] = sum<Biased>(x1, x2), to[2] = _mm256_subs_epi16(x2, x1), to[3] = _mm256_subs_epi16(x1, x3);
}

/// Smallest and largest numbers by lane. Where neither is an end of a word, no sum has saturated and all are exact.
struct bounds {
    __m256i least, most;
    /// Includes the four results of filter_four. If `Biased`, the lowest word is an exact value of the second one, the sum: its minimum is
    /// ignored.
    template <bool Biased>
    [[gnu::target("avx2,fma")]] void include(const __m256i* x) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            if (!Biased || i != 1) least = _mm256_min_epi16(least, x[i]);
            most = _mm256_max_epi16(most, x[i]);
        }
    }
    /// Returns bit 2 * i set if lane i has reached an end of a word.
    [[gnu::target("avx2,fma")]] unsigned at_end() const {
        const __m256i lowest = _mm256_set1_epi16(-32768), highest = _mm256_set1_epi16(32767);
        const __m256i is = _mm256_or_si256(_mm256_cmpeq_epi16(least, lowest), _mm256_cmpeq_epi16(most, highest));
        return static_cast<unsigned>(_mm256_movemask_epi8(is)) & 0x55555555u;
    }
};

/// Two columns of sixteen channels, filtered downwards.
template <bool Biased>
struct column_pair {
    __m256i at[2][4];
    bounds within;

    [[gnu::target("avx2,fma")]] void read(const std::int16_t* x, std::int64_t row, std::int64_t channels) {
        filter_four<Biased>(load(x), load(x + row), load(x + 2 * row), load(x + 3 * row), at[0]);
        x += channels;
        filter_four<Biased>(load(x), load(x + row), load(x + 2 * row), load(x + 3 * row), at[1]);
        within = {at[0][0], at[0][0]};
        within.include<Biased>(at[0]), within.include<Biased>(at[1]);
    }
};

/// Computes the sixteen words of one channel of a tile, from x[0] on, in int, and notes what words cannot hold. Returns false if that is
/// too much.
template <bool Biased>
bool filter_channel(const std::int16_t* x, std::int64_t row, std::int64_t channels, std::int64_t step, std::int16_t* to, overflows& lost,
                    std::int64_t tile, std::int64_t channel) {
    int d[4][4];
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) {
            const int v = x[i * row + j * channels];
            d[i][j] = Biased ? v + 0x8000 - 0x2000 : v;
        }
    int down[4][4];
    for (int j = 0; j < 4; ++j)
        down[0][j] = d[0][j] - d[2][j], down[1][j] = d[1][j] + d[2][j], down[2][j] = d[2][j] - d[1][j], down[3][j] = d[1][j] - d[3][j];
    for (int i = 0; i < 4; ++i) {
        const int* r = down[i];
        const int whole[4] = {r[0] - r[2], r[1] + r[2], r[2] - r[1], r[1] - r[3]};
        for (int j = 0; j < 4; ++j) {
            const auto word = static_cast<std::int16_t>(whole[j]);
            to[(4 * i + j) * step] = word;
            if (word == whole[j]) continue;
            if (!lost.has_room(1)) return false;
            lost.add(4 * i + j, tile, channel, channels, (whole[j] - word) >> 16);
        }
    }
    return true;
}

/// Says which of four sums of sixteen channels words could not hold, one bit each. Bytes are eight channels: sums 0 and 1 of the first
/// eight, sums 0 and 1 of the others, then sums 2 and 3 likewise.
struct lost_in_row {
    std::uint64_t some;
    std::int32_t row, tile;
};

/// Replaces saturated sums by words modulo 2^16, in a tile whose columns were filtered downwards without a loss. Writes a lost_in_row for
/// each row that lost something, and returns the end of these.
template <bool Biased>
[[gnu::target("avx2,fma")]] lost_in_row* put_words(const column_pair<Biased>& left, const column_pair<Biased>& right, std::int64_t step,
                                                   std::int16_t* to, std::int32_t tile, lost_in_row* lost) {
    const auto bytes = [](__m256i a, __m256i b) __attribute__((target("avx2,fma"), always_inline)) {
        return static_cast<std::uint32_t>(_mm256_movemask_epi8(_mm256_packs_epi16(a, b)));
    };
#pragma GCC unroll 4
    for (std::int32_t i = 0; i < 4; ++i, to += 4 * step) {
        const __m256i x0 = left.at[0][i], x1 = left.at[1][i], x2 = right.at[0][i], x3 = right.at[1][i];
        __m256i word[4] = {_mm256_sub_epi16(x0, x2), _mm256_add_epi16(x1, x2), _mm256_sub_epi16(x2, x1), _mm256_sub_epi16(x1, x3)}, fits[4];
        if (Biased && i == 1) word[1] = _mm256_xor_si256(word[1], _mm256_set1_epi16(-32768));
        for (std::int64_t j = 0; j < 4; ++j) {
            fits[j] = _mm256_cmpeq_epi16(word[j], load(to + j * step));
            store(word[j], to + j * step);
        }
        *lost = {~(bytes(fits[0], fits[1]) | std::uint64_t{bytes(fits[2], fits[3])} << 32), i, tile};
        lost += lost->some != 0;
    }
    return lost;
}

/// A tile of sixteen channels, of which those in `lanes` (bits as in at_end) have a sum that reached an end of a word.
template <bool Biased>
struct stopped_tile {
    const column_pair<Biased>* left;  ///< the right pair follows in memory
    const std::int16_t* x;
    std::int32_t tile;
    unsigned lanes;
};

/// Computes stopped tiles again and notes what words cannot hold. Has few branches, because large numbers are unpredictable. Returns false
/// if there are too many.
template <bool Biased>
[[gnu::target("avx2,fma")]] bool mend_tiles(const layer_call& c, std::span<const stopped_tile<Biased>> tiles, std::int64_t channel,
                                            std::int16_t* u, overflows& lost) {
    const std::int64_t channels = c.shape.channels, row = c.width * channels, step = tiles_a_block * channels;
    lost_in_row rows[4 * tiles_a_block + 1], *end = rows;
    for (const stopped_tile<Biased>& t : tiles) {
        std::int16_t* to = u + t.tile * channels + channel;
        if ((t.left[0].within.at_end() | t.left[1].within.at_end()) == 0) {
            end = put_words(t.left[0], t.left[1], step, to, t.tile, end);
            continue;
        }
        for (unsigned some = t.lanes; some != 0; some &= some - 1) {  // rare: already downwards
            const std::int64_t i = std::countr_zero(some) / 2;
            if (!filter_channel<Biased>(t.x + i, row, channels, step, to + i, lost, t.tile, channel + i)) return false;
        }
    }
    std::size_t many = 0;
    for (const lost_in_row* in = rows; in != end; ++in) many += static_cast<std::size_t>(std::popcount(in->some));
    if (!lost.has_room(many)) return false;
    *end = {};
    const lost_in_row* in = rows;
    for (std::uint64_t some = in->some; many > 0; --many) {
        const int at = std::countr_zero(some), product = 4 * in->row + at / 32 * 2 + at / 8 % 2, k = at / 16 % 2 * 8 + at % 8;
        const int word = u[product * step + in->tile * channels + channel + k];
        // A negative word is 2^16 too small, any other 2^16 too large; a sum of four unsigned numbers is too small in any case.
        lost.add(product, in->tile, channel + k, channels, Biased && product == 5 ? 1 : -(word >> 15 | 1));
        some &= some - 1;
        in += some == 0;
        some = some == 0 ? in->some : some;
    }
    return true;
}

/// Computes four of a tile's sums from columns that were filtered downwards.
template <bool Biased>
[[gnu::target("avx2,fma")]] inline void filter_row(const __m256i& x0, const __m256i& x1, const __m256i& x2, const __m256i& x3,
                                                   std::int64_t step, std::int16_t* to, bounds& within) {
    __m256i word[4];
    filter_four<Biased>(x0, x1, x2, x3, word);
    within.include<Biased>(word);
#pragma GCC unroll 4
    for (std::int64_t j = 0; j < 4; ++j) store(word[j], to + j * step);
}

/// Filters a block of tiles; unsigned numbers are stored less 2^15 (`Biased`).
template <bool Biased>
[[gnu::target("avx2,fma")]] bool filter_all(const layer_call& c, const block& b, std::int16_t* u, overflows& lost) {
    const std::int64_t channels = c.shape.channels, row = c.width * channels, step = tiles_a_block * channels;
    for (std::int64_t k = 0; k < channels; k += 16) {
        column_pair<Biased> pairs[2 * tiles_a_block + 1],
            *right = pairs;  // each row of tiles takes one more than its tiles; pairs[0] stays free
        stopped_tile<Biased> stopped[tiles_a_block];
        std::size_t count = 0;
        std::int64_t j = b.begin % b.across;
        const std::int16_t* x = c.x + b.begin / b.across * 2 * row + j * 2 * channels + k;
        std::int16_t* to = u + k;
        for (std::int32_t t = 0; t < static_cast<std::int32_t>(b.end - b.begin); ++t, ++j, to += channels, x += 2 * channels) {
            if (j == b.across) j = 0, x += 2 * row - b.across * 2 * channels;
            if (t == 0 || j == 0) (++right)->read(x, row, channels);
            const column_pair<Biased>* left = right++;  // what was at the right of the tile before
            right->read(x + 2 * channels, row, channels);
            bounds within{_mm256_min_epi16(left->within.least, right->within.least),
                          _mm256_max_epi16(left->within.most, right->within.most)};
            const auto &l = left->at, &r = right->at;
            filter_row<false>(l[0][0], l[1][0], r[0][0], r[1][0], step, to, within);
            filter_row<Biased>(l[0][1], l[1][1], r[0][1], r[1][1], step, to + 4 * step, within);
            filter_row<false>(l[0][2], l[1][2], r[0][2], r[1][2], step, to + 8 * step, within);
            filter_row<false>(l[0][3], l[1][3], r[0][3], r[1][3], step, to + 12 * step, within);
            stopped[count] = {left, x, t, within.at_end()};
            count += stopped[count].lanes != 0;
        }
        if (!mend_tiles<Biased>(c, std::span<const stopped_tile<Biased>>(stopped, count), k, u, lost)) return false;
    }
    return true;
}

}  // namespace

bool filter_words(const layer_call& c, const block& b, std::int16_t* u, overflows& lost) {
    return c.correction != nullptr ? filter_all<true>(c, b, u, lost) : filter_all<false>(c, b, u, lost);
}

}  // namespace qk::graph::execute::words

#endif
