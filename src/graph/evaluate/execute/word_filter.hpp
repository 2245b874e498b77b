// SPDX-License-Identifier: Apache-2.0
// Convolutions of words by 3 x 3 taps at stride 1 with fewer products: Winograd's minimal filtering F(2x2, 3x3) (Winograd 1980; Lavin and
// Gray, "Fast Algorithms for Convolutional Neural Networks", 2016), in whole numbers and therefore exact.
//
// Of a row of four inputs d and three taps g two results need four products instead of six:
//     m0 = (d0 - d2) * 2 g0,   m1 = (d1 + d2) (g0 + g1 + g2),   m2 = (d2 - d1) (g0 - g1 + g2),   m3 = (d1 - d3) * 2 g2
//     2 y0 = m0 + m1 + m2,     2 y1 = m1 - m2 - m3
// The same down and across makes 2 x 2 results, times four, of 4 x 4 inputs: 16 products instead of 36. Sums and differences of four bytes
// fit a word. Those of numbers of 16 bits would need 18, but few of a layer's do: a word holds them modulo 2^16, and where that loses k
// times 2^16, k times 2^16 times the weights are added to the sums (the others' bits of the weights leave at the top). Numbers without a
// sign are taken less 2^13, so that sums of four that are small, as most are behind a Relu, fit. Sums of products may pass 2^31 in
// between, results times four do not.
#pragma once

#include <vector>

#include "word_tile.hpp"

namespace qk::graph::execute::words {

/// The weights of 16 products, for w [outputs, channels, 3, 3] int8: [pairs of vectors][16][pairs of channels][32 words, 16 of a single
/// vector].
std::vector<std::int16_t> filtered_weights(const tensor& w);

/// Sums of magnitudes of an output's weights whose results times four stay below 2^31, times numbers of 16 bits.
inline constexpr std::int64_t largest_filtered = 16383;

/// One image, by blocks of tiles, in a room of room_to_filter() bytes. False, and what y holds is void: of these numbers of 16 bits too
/// many need more than a word.
bool run_filtered(const layer_call& c, const narrow_form& form, std::byte* room);
std::size_t room_to_filter(const word_shape& s, const narrow_form& form);

}  // namespace qk::graph::execute::words
