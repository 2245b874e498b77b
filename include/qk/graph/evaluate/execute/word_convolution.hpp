// SPDX-License-Identifier: Apache-2.0
// Convolutions of whole numbers of 8 or 16 bits by weights of 8 on processors with AVX2 that cannot sum bytes: numbers are widened to
// words of 16 bits, whose products are added in pairs, exactly (`vpmaddwd`: 16 products an instruction, where floats have 8).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "qk/graph/evaluate/execute/narrow_values.hpp"

namespace qk::graph::execute {

/// Sizes of a convolution without groups: x is [images, height, width, channels], y [images, out height, out width, outputs].
struct word_shape {
    struct axis {
        std::int64_t in, out, kernel, stride, dilation, pad_begin;  ///< dilation 1: taps side by side
    };
    std::int64_t images, channels, outputs;
    axis down, across;
};

/// Weights of one byte as pairs of words for vectors of outputs.
class packed_word_weights {
  public:
    /// `w` [outputs, channels, kernel height, kernel width], int8. `joined`: the taps of a row lie side by side in x. `is_filtered`: for
    /// fewer products of numbers of `planes` bytes.
    packed_word_weights(const tensor& w, bool joined, bool is_filtered, int planes);

    bool joined;
    std::int64_t rows;                   ///< of the kernel
    std::int64_t run;                    ///< channels times taps that lie side by side
    std::int64_t pairs;                  ///< of words of a run, the last one filled up
    std::vector<std::int16_t> words;     /// [vectors of 8 outputs, two side by side where there are two][runs][pairs][16 or 32 words]
    std::vector<std::int32_t> sums;      /// of the weights of each output
    bool is_filtered;                    ///< as it was asked for
    std::vector<std::int16_t> filtered;  /// what tiles of 4 x 4 places of x are multiplied by: in place of `words`, or first of all
    std::int64_t largest = 0;            ///< sum of magnitudes of an output
};

/// y = relu(scale * (conv(x, w) + bias / scale) + added), with what is asked of it; sums are exact, each step behind them rounds once.
class word_convolution {
  public:
    /// Is this a processor for it, and is that better than floats: AVX2, and nothing wider?
    static bool is_quick();

    /// Are 2 x 2 results from 16 products instead of 36 quicker for this shape (Winograd's minimal filtering)?
    static bool is_filtered(const word_shape& s, const narrow_form& form);

    /// `form`: of the numbers. `scale`: of the products, for each output. Nothing: sums could pass 2^31.
    static std::optional<word_convolution> make(const word_shape& s, const narrow_form& form,
                                                std::shared_ptr<const packed_word_weights> weights, std::vector<float> scale,
                                                std::span<const float> bias, bool relu);

    /// `x`: bytes, or words of 16 bits where the form has two planes, channels last. `added` is y's size or null, and may not be y.
    void run(const std::byte* x, const float* added, float* y, allocator& memory) const;

  private:
    word_convolution() = default;
    void widen(const std::byte* x, std::int16_t* to) const;

    word_shape shape_{};
    narrow_form form_;
    std::shared_ptr<const packed_word_weights> weights_;
    std::vector<float> scale_, bias_;       ///< filled up to whole vectors; the bias in units of the products
    std::vector<std::int32_t> correction_;  ///< of sums: numbers without a sign of 16 bits are taken less 2^15
    std::vector<std::int32_t> places_;      ///< where the window of each of an image's results begins, in words
    std::vector<std::int32_t> runs_;        ///< where the runs of a window begin in it
    std::int64_t height_ = 0, width_ = 0;   ///< of x with its padding
    bool relu_ = false;
};

}  // namespace qk::graph::execute
