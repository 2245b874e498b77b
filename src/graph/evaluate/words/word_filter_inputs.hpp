// SPDX-License-Identifier: Apache-2.0
// Makes the factors of word_filter.hpp from tiles of 4 x 4 places: sums and differences of words, and what words could not hold of them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "graph/evaluate/words/word_tile.hpp"

namespace qk::graph::execute::words {

inline constexpr std::int64_t products_a_tile = 16, tiles_a_block = 18;

#ifdef QK_WORDS

/// Notes that a sum or difference differs from the word that holds it by a multiple of 2^16.
struct overflow {
    std::int32_t sums, weights;  ///< index of the block's sum, and of the weights of a pair of channels
    std::int32_t times;          ///< the multiple, in a pair of words; the other channel's is zero
};

/// The overflows of a block. There are at most a sixteenth as many as words: then they take about as long as the saved products.
struct overflows {
    overflow* first;
    std::size_t count, most;

    bool has_room(std::size_t more) const { return count + more <= most; }
    void add(std::int64_t product, std::int64_t tile, std::int64_t channel, std::int64_t channels, std::int32_t times) {
        first[count++] = {static_cast<std::int32_t>(product * tiles_a_block + tile),
                          static_cast<std::int32_t>((product * channels + channel) / 2), (times & 0xffff) << channel % 2 * 16};
    }
};

/// A block of tiles, numbered along the rows of tiles.
struct block {
    std::int64_t begin, end;
    std::int64_t across;  ///< tiles in a row of tiles
};

/// Writes u[product][tile][channel] for bytes.
void filter_inputs(const layer_call& c, const block& b, std::int16_t* u);
/// Writes u[product][tile][channel] for 16-bit numbers, and overflows to `lost`. Returns false if these are too many.
bool filter_words(const layer_call& c, const block& b, std::int16_t* u, overflows& lost);

#endif

}  // namespace qk::graph::execute::words
