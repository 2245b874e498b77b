// SPDX-License-Identifier: Apache-2.0
// The parameters of encode and decode beside the format, and the memory that they read and write: float, float16 or bfloat16.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstring>
#include <span>

#include "qk/codec/layout/bits.hpp"
#include "qk/codec/layout/layout.hpp"
#include "qk/parameters.hpp"
#include "qk/storage.hpp"

namespace qk {

namespace kernels {  // in lanes/code_lanes.hpp, which those who only name parameters need not read
template <class Arch, class Half>
void widen_all(const Half* from, std::size_t n, float* to) noexcept;
template <class Arch, class Half>
void narrow_all(const float* from, std::size_t n, Half* to) noexcept;
}  // namespace kernels

/// Holds the axis of blocks, or the scales that the caller supplies; converts from any of the structs of parameters.hpp. Packed bytes do
/// not hold the scales that a caller supplies (integers, scaled floats): pass them to decode again.
struct codec_parameters {
    along_axis axis;  ///< of the blocks, or of the entries of `scale`
    affine one;       ///< scale of the tensor; NVFP4: 0 computes it
    bool has_one = false;
    std::span<const float> scale;  ///< empty: use `one`
    std::span<const std::int64_t> zero_point;
    std::size_t group = 0;  ///< values along the axis that share an entry of `scale`; 0: per channel

    constexpr codec_parameters() = default;
    constexpr codec_parameters(along_axis a) : axis(a) {}
    constexpr codec_parameters(affine a) : one(a), has_one(true) {}
    constexpr codec_parameters(along_axis a, affine t) : axis(a), one(t), has_one(true) {}
    constexpr codec_parameters(const per_channel& p) : axis(p.axis), scale(p.scale), zero_point(p.zero_point) {}
    constexpr codec_parameters(const per_block& p) : axis(p.axis), scale(p.scale), zero_point(p.zero_point), group(p.block_size) {}

    constexpr bool one_scale() const { return scale.empty(); }
    /// Returns the entry of `scale` for the value at (o, l, i). `a` is the resolved() axis.
    constexpr std::size_t index(along_axis a, std::size_t o, std::size_t l, std::size_t i) const {
        return group == 0 ? l : (o * ((a.length + group - 1) / group) + l / group) * a.inner + i;
    }
};

namespace detail {

template <class Range, class T>
concept span_of = std::convertible_to<Range&&, std::span<T>>;
template <class R>
concept readable_numbers = span_of<R, const float> || span_of<R, const float16> || span_of<R, const bfloat16>;
template <class R>
concept writable_numbers = span_of<R, float> || span_of<R, float16> || span_of<R, bfloat16>;

}  // namespace detail

/// Numbers to read: a span (or vector, or array) of float, float16 or bfloat16.
class values_in {
  public:
    template <detail::span_of<const float> R>
    constexpr values_in(R&& r) : floats_(std::span<const float>(r)), size_(floats_.size()) {}
    template <detail::span_of<const float16> R>
    constexpr values_in(R&& r) : halves_(std::span<const float16>(r)), size_(halves_.size()) {}
    template <detail::span_of<const bfloat16> R>
    constexpr values_in(R&& r) : brains_(std::span<const bfloat16>(r)), size_(brains_.size()) {}

    template <class R>
    requires(!detail::readable_numbers<R> && !std::same_as<std::remove_cvref_t<R>, values_in>) constexpr values_in(R&&) {
        static_assert(detail::readable_numbers<R>,
                      "numbers to read are a span, vector or array of float, qk::float16 or qk::bfloat16: convert other types first");
    }

    constexpr std::size_t size() const { return size_; }
    constexpr std::size_t bytes() const { return size_ * (floats_.data() != nullptr ? sizeof(float) : sizeof(float16)); }
    constexpr const void* memory() const {
        if (floats_.data() != nullptr) return floats_.data();
        return halves_.data() != nullptr ? static_cast<const void*>(halves_.data()) : brains_.data();
    }
    /// Returns null unless the memory holds float.
    constexpr const float* floats() const { return floats_.data(); }
    constexpr float operator[](std::size_t i) const {
        return floats_.data() != nullptr ? floats_[i] : halves_.data() != nullptr ? widen(halves_[i]) : widen(brains_[i]);
    }
    /// Copies `n` values from number `first` on to `out`, as floats.
    template <class Arch>
    QK_APART void copy(std::size_t first, std::size_t n, float* out) const {
        if (floats_.data() != nullptr) {
            std::memcpy(out, floats_.data() + first, n * sizeof(float));
        } else if (halves_.data() != nullptr) {
            kernels::widen_all<Arch>(halves_.data() + first, n, out);
        } else {
            kernels::widen_all<Arch>(brains_.data() + first, n, out);
        }
    }

  private:
    std::span<const float> floats_;
    std::span<const float16> halves_;
    std::span<const bfloat16> brains_;
    std::size_t size_ = 0;
};

/// Numbers to write. Rounds to nearest, ties to even, where the memory is narrower than float.
class values_out {
  public:
    template <detail::span_of<float> R>
    constexpr values_out(R&& r) : floats_(std::span<float>(r)), size_(floats_.size()) {}
    template <detail::span_of<float16> R>
    constexpr values_out(R&& r) : halves_(std::span<float16>(r)), size_(halves_.size()) {}
    template <detail::span_of<bfloat16> R>
    constexpr values_out(R&& r) : brains_(std::span<bfloat16>(r)), size_(brains_.size()) {}

    template <class R>
    requires(!detail::writable_numbers<R> && !std::same_as<std::remove_cvref_t<R>, values_out>) constexpr values_out(R&&) {
        static_assert(detail::writable_numbers<R>,
                      "numbers to write are a span, vector or array of float, qk::float16 or qk::bfloat16, neither const nor temporary");
    }

    constexpr std::size_t size() const { return size_; }
    constexpr std::size_t bytes() const { return size_ * (floats_.data() != nullptr ? sizeof(float) : sizeof(float16)); }
    constexpr const void* memory() const {
        if (floats_.data() != nullptr) return floats_.data();
        return halves_.data() != nullptr ? static_cast<const void*>(halves_.data()) : brains_.data();
    }
    constexpr float* floats() const { return floats_.data(); }
    template <class Arch>
    QK_APART void copy(const float* in, std::size_t first, std::size_t n) const {
        if (floats_.data() != nullptr) {
            std::memcpy(floats_.data() + first, in, n * sizeof(float));
        } else if (halves_.data() != nullptr) {
            kernels::narrow_all<Arch>(in, n, halves_.data() + first);
        } else {
            kernels::narrow_all<Arch>(in, n, brains_.data() + first);
        }
    }

  private:
    std::span<float> floats_;
    std::span<float16> halves_;
    std::span<bfloat16> brains_;
    std::size_t size_ = 0;
};

}  // namespace qk
