// SPDX-License-Identifier: Apache-2.0
// Convolves whole numbers of 8 or 16 bits with weights of 8 bits on processors with AVX2 that have no sums of bytes. Numbers are widened to
// words of 16 bits, whose products are added in pairs, exactly (`vpmaddwd`: 16 products an instruction; floats have 8).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "graph/evaluate/execute/narrow_values.hpp"

namespace qk::graph::execute {

/// Sizes of a convolution without groups: x is [images, height, width, channels], y [images, out height, out width, outputs].
struct word_shape {
    struct axis {
        std::int64_t in, out, kernel, stride, dilation, pad_begin;  ///< dilation 1: contiguous taps
    };
    std::int64_t images, channels, outputs;
    axis down, across;
};

/// Weights of one byte, packed as pairs of words for vectors of outputs.
class packed_word_weights {
  public:
    /// `w` is int8 [outputs, channels, kernel height, kernel width]. `joined`: the taps of a row are contiguous in x. `is_filtered`: also
    /// packs for Winograd's minimal filtering (fewer products) of numbers of `planes` bytes.
    packed_word_weights(const tensor& w, bool joined, bool is_filtered, int planes);

    bool joined;
    std::int64_t rows;                   ///< of the kernel
    std::int64_t run;                    ///< values in a run: channels times contiguous taps
    std::int64_t pairs;                  ///< pairs of words in a run, the last one padded
    std::vector<std::int16_t> words;     /// [pairs of vectors of 8 outputs][runs][pairs][32 words, or 16 for a single vector]
    std::vector<std::int32_t> sums;      /// sum of the weights of each output
    bool is_filtered;                    ///< as passed to the constructor
    std::vector<std::int16_t> filtered;  /// weights of tiles of 4 x 4 places of x: used in place of `words`, or tried first
    std::int64_t largest = 0;            ///< largest sum of magnitudes of an output's weights
};

/// y = relu(scale * (conv(x, w) + bias / scale) + added), where bias, addend and relu are optional; sums are exact, and each step behind
/// them rounds once.
class word_convolution {
  public:
    /// Returns whether words are faster than floats on this processor: it has AVX2, and nothing wider.
    static bool is_quick();

    /// Returns whether Winograd's minimal filtering, with 16 products for 2 x 2 results instead of 36, is faster for this shape.
    static bool is_filtered(const word_shape& s, const narrow_form& form);

    /// `form` is the form of x; `scale` is the scale of the products, for each output. Returns nullopt if sums or offsets in x could pass
    /// 2^31.
    static std::optional<word_convolution> make(const word_shape& s, const narrow_form& form,
                                                std::shared_ptr<const packed_word_weights> weights, std::vector<float> scale,
                                                std::span<const float> bias, bool relu);

    /// `x` holds bytes, or words of 16 bits if the form has two planes; channels last. `added` has y's size or is null, and must not be y.
    void run(const std::byte* x, const float* added, float* y, allocator& memory) const;

  private:
    word_convolution() = default;
    void widen(const std::byte* x, std::int16_t* to) const;

    word_shape shape_{};
    narrow_form form_;
    std::shared_ptr<const packed_word_weights> weights_;
    std::vector<float> scale_, bias_;       ///< padded to whole vectors; the bias in units of the products
    std::vector<std::int32_t> correction_;  ///< added to sums: unsigned 16-bit numbers are stored less 2^15
    std::vector<std::int32_t> places_;      ///< offset of each result's window in an image, in words
    std::vector<std::int32_t> runs_;        ///< offset of each run in a window, in words
    std::int64_t height_ = 0, width_ = 0;   ///< of x with its padding
    bool relu_ = false;
};

}  // namespace qk::graph::execute
