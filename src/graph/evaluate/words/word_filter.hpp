// SPDX-License-Identifier: Apache-2.0
// Convolves words with 3 x 3 taps at stride 1 in fewer products: Winograd's minimal filtering F(2x2, 3x3) (Winograd 1980; Lavin and Gray,
// "Fast Algorithms for Convolutional Neural Networks", 2016), in whole numbers and therefore exact.
//
// For a row of four inputs d and three taps g, two results need four products instead of six:
//     m0 = (d0 - d2) * 2 g0,   m1 = (d1 + d2) (g0 + g1 + g2),   m2 = (d2 - d1) (g0 - g1 + g2),   m3 = (d1 - d3) * 2 g2
//     2 y0 = m0 + m1 + m2,     2 y1 = m1 - m2 - m3
// Applied down and across, this makes 2 x 2 results, times four, from 4 x 4 inputs with 16 products instead of 36. Sums and differences of
// four bytes fit a word. Those of 16-bit numbers may need 18 bits, but few in a layer do: a word holds them modulo 2^16, and where that
// loses k * 2^16, k * 2^16 times the weights is added to the sums, modulo 2^32. Unsigned numbers are taken less 2^13, so that a sum of four
// small ones, as most are behind a Relu, fits. Sums of products may pass 2^31 in between; results times four do not.
#pragma once

#include <vector>

#include "graph/evaluate/words/word_tile.hpp"

namespace qk::graph::execute::words {

/// Returns the weights of the 16 products, for w [outputs, channels, 3, 3] int8: [pairs of vectors][16][pairs of channels][32 words, or 16
/// for a single vector].
std::vector<std::int16_t> filtered_weights(const tensor& w);

/// Largest sum of magnitudes of an output's weights for which results times four stay below 2^31 with 16-bit numbers.
inline constexpr std::int64_t largest_filtered = 16383;

/// Computes one image by blocks of tiles, in `room` of room_to_filter() bytes. Returns false, and leaves y undefined, if too many sums of
/// 16-bit numbers need more than a word.
bool run_filtered(const layer_call& c, const narrow_form& form, std::byte* room);
std::size_t room_to_filter(const word_shape& s, const narrow_form& form);

}  // namespace qk::graph::execute::words
