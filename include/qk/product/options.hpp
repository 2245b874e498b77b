// SPDX-License-Identifier: Apache-2.0
// What a product reads and writes.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>

#include "qk/inline.hpp"
#include "qk/memory/planes.hpp"
#include "qk/memory/values.hpp"
#include "qk/product/activation.hpp"

namespace qk {

/// A matrix of packed weights, [rows][columns]: what encode makes of it with along_axis{rows, columns, 1}. Its numbers are, bit for bit,
/// what decode gives for the same planes and parameters.
struct packed_weights {
    std::size_t rows = 0;
    std::size_t columns = 0;
    const_planes planes{};
    codec_parameters parameters{};  ///< those of decode; of block formats, whose blocks lie in rows, NVFP4's tensor scale alone
};

/// Rows of a packed matrix, as a cache of keys or values holds those of one head: row r is number first_row + r * row_step of the matrix,
/// and of each row the columns from first_column on. [tokens][heads * size]: the head is a range of columns; [heads * tokens][size]: of
/// rows.
struct packed_rows {
    packed_weights matrix;  ///< all of it; a scale of the head alone is an affine in its parameters
    std::size_t rows = 0;
    std::size_t columns = 0;
    std::size_t first_row = 0;
    std::size_t row_step = 1;
    std::size_t first_column = 0;
};

/// Returns how many bytes a rounded vector has: its columns, up to a multiple of 32.
[[nodiscard]] QK_INLINE constexpr std::size_t padded_columns(std::size_t columns) { return (columns + 31) / 32 * 32; }

/// Vectors rounded to int8 by block of 32, as product_sums::integers rounds them: value k is q[k] * scale[k / 32]. round_vectors makes them
/// once for several products, or they come from elsewhere. Numbers are from -127 to 127, and 0 behind a vector's last one.
struct rounded_vectors {
    std::span<const std::int8_t> q;  ///< [count][padded_columns(columns)]
    std::span<const float> scale;    ///< [count][padded_columns(columns) / 32]
};

/// `count` vectors of as many values as W has columns. Value k of vector m is number m * stride + k * step of `values`.
struct product_input {
    values_in values;
    std::size_t count = 1;
    std::size_t stride = 0;  ///< 0: the vectors lie one after the other
    std::size_t step = 1;
    rounded_vectors rounded{};  ///< in place of `values`, for product_sums::integers alone

    /// What values_in takes is one vector by itself: product<mxfp4>(w, x, y).
    template <class X>
    requires(!std::same_as<std::remove_cvref_t<X>, product_input> && !std::same_as<std::remove_cvref_t<X>, rounded_vectors>) QK_INLINE
        constexpr product_input(X&& x, std::size_t vectors = 1, std::size_t distance = 0, std::size_t apart = 1)
        : values(std::forward<X>(x)), count(vectors), stride(distance), step(apart) {}
    QK_INLINE constexpr product_input(const rounded_vectors& x, std::size_t vectors = 1)
        : values(std::span<const float>()), count(vectors), rounded(x) {}

    QK_INLINE constexpr bool is_rounded() const { return rounded.q.data() != nullptr; }
};

/// `count` vectors of as many values as W has rows, likewise.
struct product_output {
    values_out values;
    std::size_t stride = 0;
    std::size_t step = 1;

    template <class Y>
    requires(!std::same_as<std::remove_cvref_t<Y>, product_output>) QK_INLINE
        constexpr product_output(Y&& y, std::size_t distance = 0, std::size_t apart = 1)
        : values(std::forward<Y>(y)), stride(distance), step(apart) {}
};

/// Rows of W, from `first` to before `last`: those that a call computes. It writes no other value of y.
struct row_range {
    std::size_t first = 0;
    std::size_t last = std::numeric_limits<std::size_t>::max();  ///< at most the number of rows
};

/// How products and sums are computed; qk/product.hpp has the order of each.
enum class product_sums : std::uint8_t {
    floats,    ///< in float32, in sixteen partial sums
    chains,    ///< in float32, one after the other: the faster order for many vectors, and a slow one for a single one
    integers,  ///< x is rounded to int8 by block of 32, and products of whole numbers are added without an error
};

/// Rounds x on its way: call(context, x, y, n) writes n numbers to y. Pieces of x begin at multiples of 256, so a format's block may have
/// any length that divides 256. qk::rounded_to gives one.
struct input_rounding {
    void (*call)(const void* context, const float* x, float* y, std::size_t n) noexcept = nullptr;
    const void* context = nullptr;
};

/// What happens to a sum s of row r before it is written, in this order, each step rounded to float32:
/// s * scale, s * row_scale[r], s + bias[r], activation(s), s * times, s + plus, and the rounding to y's type.
struct product_options {
    float scale = 1;                     ///< of the tensor, of an expert
    std::span<const float> row_scale{};  ///< one for each row of W, or none
    std::span<const float> bias{};       ///< likewise
    activation act = activation::none;
    values_in times = std::span<const float>();  ///< laid out as y is, or none: the other half of a gated unit
    values_in plus = std::span<const float>();   ///< laid out as y is, or none: y itself for y += W x
    row_range rows{};
    product_sums sums = product_sums::floats;
    input_rounding round{};  ///< x is rounded by it first: to MX, to block floats
};

/// Says that vector `from` of x is multiplied by an expert, and that the product is vector `to` of y.
struct expert_choice {
    std::uint32_t expert = 0;
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    float weight = 1;  ///< what follows the activation is multiplied by it
};
/// What a router chose. W is the experts' matrices one after the other, [experts * rows][columns]; so are row_scale and bias.
struct product_experts {
    std::size_t rows = 0;                     ///< of one expert; product_options::rows are among them
    std::span<const expert_choice> chosen{};  ///< neighbours with the same expert share its decoded weights
    std::span<const float> scale{};           ///< of each expert, or none: a sum is multiplied by it after `scale`
};

/// What happens to a sum s of column c of weighted_rows, in this order: s * scale, s * column_scale[c], s + plus.
struct weighted_options {
    float scale = 1;
    std::span<const float> column_scale{};
    std::span<const float> begin{};             ///< laid out as y is, or none: where the sums begin, as after the rows of an earlier page
    values_in plus = std::span<const float>();  ///< laid out as y is, or none
    row_range columns{};                        ///< those that a call computes
};

}  // namespace qk
