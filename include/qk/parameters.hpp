// SPDX-License-Identifier: Apache-2.0
// What a kernel is given besides the format: where blocks run, and the scales that the caller supplies.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/storage.hpp"

namespace qk {

namespace detail {
inline namespace QK_ISA {
template <class Range, class T>
concept span_of = std::convertible_to<Range&&, std::span<T>>;
template <class R>
concept readable_scales = span_of<R, const float> || span_of<R, const float16> || span_of<R, const bfloat16>;
}  // namespace QK_ISA
}  // namespace detail

/// Scales as the caller keeps them: a span, vector or array of float, float16 or bfloat16. They are read as float32.
class scales_in {
  public:
    QK_INLINE constexpr scales_in() = default;
    template <detail::span_of<const float> R>
    QK_INLINE constexpr scales_in(R&& r) : floats_(std::span<const float>(r)), size_(floats_.size()) {}
    template <detail::span_of<const float16> R>
    QK_INLINE constexpr scales_in(R&& r) : halves_(std::span<const float16>(r)), size_(halves_.size()) {}
    template <detail::span_of<const bfloat16> R>
    QK_INLINE constexpr scales_in(R&& r) : brains_(std::span<const bfloat16>(r)), size_(brains_.size()) {}

    template <storage T>
    QK_INLINE constexpr scales_in(const T* first, std::size_t n) : scales_in(std::span<const T>(first, n)) {}

    template <class R>
    requires(!detail::readable_scales<R> && !std::same_as<std::remove_cvref_t<R>, scales_in>) QK_INLINE constexpr scales_in(R&&) {
        constexpr bool are_scales = detail::readable_scales<R>;
        static_assert(
            are_scales,
            "scales are a span, vector or array of float, qk::float16 or qk::bfloat16: copy or cast 16-bit words to a type that says "
            "which they are");
    }

    QK_INLINE constexpr std::size_t size() const { return size_; }
    QK_INLINE constexpr bool empty() const { return size_ == 0; }
    /// Returns null unless the memory holds float.
    QK_INLINE constexpr const float* data() const { return floats_.data(); }
    QK_INLINE constexpr std::span<const float> floats() const { return floats_; }
    QK_INLINE constexpr const float16* halves() const { return halves_.data(); }  ///< likewise
    QK_INLINE constexpr const bfloat16* brains() const { return brains_.data(); }
    QK_INLINE constexpr const void* memory() const {
        if (floats_.data() != nullptr) return floats_.data();
        return halves_.data() != nullptr ? static_cast<const void*>(halves_.data()) : brains_.data();
    }
    QK_INLINE constexpr float operator[](std::size_t i) const {
        return floats_.data() != nullptr ? floats_[i] : halves_.data() != nullptr ? widen(halves_[i]) : widen(brains_[i]);
    }
    QK_INLINE constexpr scales_in subspan(std::size_t first, std::size_t n) const {
        if (floats_.data() != nullptr) return floats_.subspan(first, n);
        if (halves_.data() != nullptr) return halves_.subspan(first, n);
        return brains_.data() != nullptr ? scales_in(brains_.subspan(first, n)) : scales_in();
    }

  private:
    std::span<const float> floats_;
    std::span<const float16> halves_;
    std::span<const bfloat16> brains_;
    std::size_t size_ = 0;
};

/// Zero points: a span, vector or array of std::int64_t, std::int8_t or std::uint8_t with one for each scale, or a number that all share.
/// None at all: 0.
class zero_points_in {
  public:
    QK_INLINE constexpr zero_points_in() = default;
    QK_INLINE constexpr zero_points_in(std::int64_t shared) : shared_(shared), is_shared_(true) {}
    template <detail::span_of<const std::int64_t> R>
    QK_INLINE constexpr zero_points_in(R&& r) : words_(std::span<const std::int64_t>(r)), size_(words_.size()) {}
    template <detail::span_of<const std::int8_t> R>
    QK_INLINE constexpr zero_points_in(R&& r) : bytes_(std::span<const std::int8_t>(r)), size_(bytes_.size()) {}
    template <detail::span_of<const std::uint8_t> R>
    QK_INLINE constexpr zero_points_in(R&& r) : unsigned_bytes_(std::span<const std::uint8_t>(r)), size_(unsigned_bytes_.size()) {}
    template <class T>
    QK_INLINE constexpr zero_points_in(const T* first, std::size_t n) : zero_points_in(std::span<const T>(first, n)) {}

    QK_INLINE constexpr bool is_shared() const { return is_shared_; }
    QK_INLINE constexpr std::size_t size() const { return size_; }  ///< 0 where all share one
    QK_INLINE constexpr bool empty() const { return size_ == 0 && !is_shared_; }
    /// Returns null unless there is a std::int64_t for each scale.
    QK_INLINE constexpr const std::int64_t* data() const { return words_.data(); }
    QK_INLINE constexpr std::span<const std::int64_t> words() const { return words_; }
    QK_INLINE constexpr const void* memory() const {
        if (words_.data() != nullptr) return words_.data();
        return bytes_.data() != nullptr ? static_cast<const void*>(bytes_.data()) : unsigned_bytes_.data();
    }
    QK_INLINE constexpr std::int64_t operator[](std::size_t i) const {
        if (size_ == 0) return shared_;
        return words_.data() != nullptr ? words_[i] : bytes_.data() != nullptr ? bytes_[i] : unsigned_bytes_[i];
    }
    QK_INLINE constexpr zero_points_in subspan(std::size_t first, std::size_t n) const {
        if (size_ == 0) return *this;
        if (words_.data() != nullptr) return words_.subspan(first, n);
        return bytes_.data() != nullptr ? zero_points_in(bytes_.subspan(first, n)) : zero_points_in(unsigned_bytes_.subspan(first, n));
    }
    /// Returns whether all are the same.
    QK_INLINE constexpr bool all_alike() const {
        for (std::size_t i = 1; i < size_; ++i) {
            if ((*this)[i] != (*this)[0]) return false;
        }
        return true;
    }

  private:
    std::span<const std::int64_t> words_;
    std::span<const std::int8_t> bytes_;
    std::span<const std::uint8_t> unsigned_bytes_;
    std::size_t size_ = 0;
    std::int64_t shared_ = 0;
    bool is_shared_ = false;
};

/// One scale for the tensor. Integers: y = (q - zero_point) * scale. Floating formats: y = scale * cast(x / scale), zero_point unused.
/// NVFP4: `scale` is the tensor scale t; 0 computes it from the data.
struct affine {
    float scale = 1.0f;
    std::int64_t zero_point = 0;
};

/// The array seen as [outer][length][inner], row-major; blocks (or channels) run along `length`.
/// The last axis of a matrix of r rows and c columns is {r, c, 1}. `inner` == 0 stands for "the whole span is one row".
struct along_axis {
    std::size_t outer = 1;
    std::size_t length = 0;
    std::size_t inner = 0;
};

/// A scale for each index along an axis (per channel): scale.size() == axis.length; zero_point empty means all 0.
struct per_channel {
    scales_in scale;
    zero_points_in zero_point;
    along_axis axis;
};

/// A scale for each run of `block_size` along an axis, as ONNX's blocked QuantizeLinear lays them out:
/// scale is [outer][ceil(length / block_size)][inner]; zero_point likewise, or empty. Blocks in two dimensions: `block_rows` neighbours
/// along `outer` share their scales, so that scale is [ceil(outer / block_rows)][ceil(length / block_size)][inner]. A matrix in blocks of
/// 128 x 128 is {.axis = {rows, columns, 1}, .block_size = 128, .block_rows = 128}.
struct per_block {
    scales_in scale;
    zero_points_in zero_point;
    along_axis axis;
    std::size_t block_size = 0;
    std::size_t block_rows = 1;
};

/// Holds the axis of blocks, or the scales that the caller supplies; converts from any of the structs of parameters.hpp. Packed bytes do
/// not hold the scales that a caller supplies (integers, scaled floats): pass them to decode again.
struct codec_parameters {
    along_axis axis;  ///< of the blocks, or of the entries of `scale`
    affine one;       ///< scale of the tensor; NVFP4: 0 computes it
    bool has_one = false;
    scales_in scale;  ///< empty: use `one`
    zero_points_in zero_point;
    std::size_t group = 0;       ///< values along the axis that share an entry of `scale`; 0: per channel
    std::size_t block_rows = 1;  ///< neighbours along `outer` that do, too

    QK_INLINE constexpr codec_parameters() = default;
    QK_INLINE constexpr codec_parameters(along_axis a) : axis(a) {}
    QK_INLINE constexpr codec_parameters(affine a) : one(a), has_one(true) {}
    QK_INLINE constexpr codec_parameters(along_axis a, affine t) : axis(a), one(t), has_one(true) {}
    QK_INLINE constexpr codec_parameters(const per_channel& p) : axis(p.axis), scale(p.scale), zero_point(p.zero_point) {}
    QK_INLINE constexpr codec_parameters(const per_block& p)
        : axis(p.axis), scale(p.scale), zero_point(p.zero_point), group(p.block_size), block_rows(p.block_rows) {}

    QK_INLINE constexpr bool one_scale() const { return scale.empty(); }
    /// Returns the entry of `scale` for the value at (o, l, i). `a` is the resolved() axis.
    QK_INLINE constexpr std::size_t index(along_axis a, std::size_t o, std::size_t l, std::size_t i) const {
        return group == 0 ? l : (o / block_rows * ((a.length + group - 1) / group) + l / group) * a.inner + i;
    }
};

/// Gradients of the loss with respect to scale and zero point, summed over the span (qk/backward.hpp).
struct scale_gradient {
    double scale = 0;
    double zero_point = 0;
};

/// The gradients by each scale and zero point of a call with one for each channel or block: as many as there are scales, or empty where
/// they are not wanted.
struct scale_gradients {
    std::span<double> scale;
    std::span<double> zero_point;
};

}  // namespace qk
