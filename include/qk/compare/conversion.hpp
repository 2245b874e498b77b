// SPDX-License-Identifier: Apache-2.0
// A format with its semantics, scales and array shape: the conversion that a device's converter is compared with.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "qk/codec/layout/layout.hpp"
#include "qk/formats/format.hpp"
#include "qk/memory/values.hpp"
#include "qk/parameters.hpp"
#include "qk/semantics.hpp"

namespace qk::compare {

/// Everything that a call of fake_quantize or encode needs.
struct conversion {
    qk::format format;
    qk::semantics how;
    int axis = -1;      ///< axis of `blocks`, counted from 0; -1 for a scalar
    along_axis blocks;  ///< the array seen along `axis`
    enum class granularity { none, tensor, channel, block } given = granularity::none;
    std::vector<float> scale;
    std::vector<std::int64_t> zero_point;  ///< one for each scale; empty: all 0
    int scale_axis = 0;
    along_axis scale_blocks;  ///< the array seen along scale_axis
    std::size_t scale_block = 0;
    /// Stochastic rounding with the caller's bits: `how.random_words` points to these, one for each value. Copies share them.
    std::shared_ptr<const std::vector<std::uint32_t>> words;

    void use_words(std::vector<std::uint32_t> w) {
        words = std::make_shared<const std::vector<std::uint32_t>>(std::move(w));
        how.random_words = *words;
    }
    affine one() const;
    per_channel channels() const { return {scale, zero_point, scale_blocks}; }
    per_block grid() const { return {scale, zero_point, scale_blocks, scale_block}; }
};

/// Returns an array of this shape as seen along axis `axis` (0 <= axis < rank, or rank 0).
along_axis seen_along(std::span<const std::int64_t> shape, int axis);

codec_parameters parameters_of(const conversion& c);
/// Returns how the codes of n values are packed.
packed_layout layout_of(const conversion& c, std::size_t n);

void fake_quantize(const conversion& c, std::span<const float> x, std::span<float> y);
/// Computes what fake_quantize computes with the scalar oracle of qk/reference.hpp; devices are compared with this.
void expected_values(const conversion& c, std::span<const float> x, std::span<float> y);

/// Returns for each value the factor of its element: the scale or step of its block, or the scale that the caller gave. NaN in a block that
/// is NaN.
std::vector<float> units_of(const conversion& c, std::span<const float> x);
/// Return the given zero point and scale of value i; 0 and 1 if none were given.
std::int64_t zero_point_of(const conversion& c, std::size_t i);
float scale_of(const conversion& c, std::size_t i);

/// Is true for equal values: NaN equals NaN, but +0 differs from -0.
inline bool same_value(float a, float b) { return a != a ? b != b : std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b); }

/// Calls visit(first, stride, count) for each block of the format; `first` is a position in the array.
template <class Visit>
void for_each_block(const conversion& c, Visit visit) {
    const along_axis a = c.blocks;
    const auto size = static_cast<std::size_t>(block_size(c.format));
    for (std::size_t o = 0; o < a.outer && size != 0; ++o) {
        for (std::size_t l = 0; l < a.length; l += size) {
            for (std::size_t i = 0; i < a.inner; ++i) visit((o * a.length + l) * a.inner + i, a.inner, std::min(size, a.length - l));
        }
    }
}

}  // namespace qk::compare
