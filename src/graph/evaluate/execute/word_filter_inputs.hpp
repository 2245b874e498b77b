// SPDX-License-Identifier: Apache-2.0
// What tiles of 4 x 4 places are multiplied as by word_filter.hpp: sums and differences of words, and what words could not hold of them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "word_tile.hpp"

namespace qk::graph::execute::words {

inline constexpr std::int64_t products_a_tile = 16, tiles_a_block = 18;

#ifdef QK_WORDS

/// A sum or difference of words that is some times 2^16 more than the word that holds it.
struct overflow {
    std::int32_t sums, weights;  ///< which of a block's, and of a pair of channels
    std::int32_t times;          ///< a pair of words, that of the other channel zero
};

/// Those of a block. They are gathered up to a sixteenth of all words, where they take about as long as the products that are spared.
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
    std::int64_t across;  ///< tiles in a row of them
};

/// u[product][tile][channel] of bytes.
void filter_inputs(const layer_call& c, const block& b, std::int16_t* u);
/// The same of numbers of 16 bits. False: too many are large.
bool filter_words(const layer_call& c, const block& b, std::int16_t* u, overflows& lost);

#endif

}  // namespace qk::graph::execute::words
