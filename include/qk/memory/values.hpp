// SPDX-License-Identifier: Apache-2.0
// Numbers as a call reads and writes them: float, float16 or bfloat16, one after the other or in rows with a pitch.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstring>
#include <span>

#include "qk/expect.hpp"
#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/parameters.hpp"
#include "qk/storage.hpp"

namespace qk {

namespace kernels {  // in lanes/code_lanes.hpp, which those who only name parameters need not read
inline namespace QK_ISA {
template <class Arch, class Half>
void widen_all(const Half* from, std::size_t n, float* to) noexcept;
template <class Arch, class Half>
void narrow_all(const float* from, std::size_t n, Half* to) noexcept;
}  // namespace QK_ISA
}  // namespace kernels

namespace detail {
inline namespace QK_ISA {

/// Values of a pass: their buffers are on the stack and stay in the first-level cache. Number of 16-bit values that are converted to or
/// from float together.
inline constexpr std::size_t tile = 512, widened = 4 * tile;

template <class R>
concept readable_numbers = span_of<R, const float> || span_of<R, const float16> || span_of<R, const bfloat16>;
template <class R>
concept writable_numbers = span_of<R, float> || span_of<R, float16> || span_of<R, bfloat16>;

/// What a values_sink of `Call` calls.
template <class Call>
void call_sink(void* to, std::size_t first, std::span<const float> values) {
    (*static_cast<Call*>(to))(first, values);
}

}  // namespace QK_ISA
}  // namespace detail

/// Rows of a matrix that do not follow each other at once: row r begins at number r * pitch of the memory, pitch >= columns.
struct pitched_rows {
    std::size_t rows = 0;
    std::size_t columns = 0;
    std::size_t pitch = 0;

    /// Returns how many numbers of the memory they reach over.
    QK_INLINE constexpr std::size_t reach() const { return rows == 0 ? 0 : (rows - 1) * pitch + columns; }
    QK_INLINE constexpr std::size_t place(std::size_t i) const { return columns == pitch ? i : i / columns * pitch + i % columns; }
    /// Calls call(number of the first value, its place in the memory, count) for each run of neighbours among n values.
    template <class Call>
    QK_INLINE constexpr void each_run(std::size_t first, std::size_t n, const Call& call) const {
        if (columns == pitch) return call(first, first, n);
        for (std::size_t i = first; i < first + n;) {
            const std::size_t left = columns - i % columns, some = left < first + n - i ? left : first + n - i;
            call(i, place(i), some);
            i += some;
        }
    }
};

/// Numbers to read: a span (or vector, or array) of float, float16 or bfloat16; with pitched_rows those of a part of a larger matrix:
/// values_in(x, {.rows = 8, .columns = 100, .pitch = 128}) has 800.
class values_in {
  public:
    template <detail::readable_numbers R>
    QK_INLINE constexpr values_in(R&& r) {
        take(r);
        size_ = floats_.size() + halves_.size() + brains_.size();
        rows_ = {1, size_, size_};
    }
    template <detail::readable_numbers R>
    QK_INLINE constexpr values_in(R&& r, pitched_rows rows) {
        take(r);
        QK_EXPECT(rows.pitch >= rows.columns, "qk: a pitch must be at least the number of columns");
        QK_EXPECT(floats_.size() + halves_.size() + brains_.size() >= rows.reach(),
                  "qk: the memory is too short for its rows and their pitch");
        rows_ = rows;
        size_ = rows.rows * rows.columns;
    }

    template <storage T>
    QK_INLINE constexpr values_in(const T* first, std::size_t n) : values_in(std::span<const T>(first, n)) {}

    template <class R>
    requires(!detail::readable_numbers<R> && !std::same_as<std::remove_cvref_t<R>, values_in>) QK_INLINE constexpr values_in(R&&) {
        constexpr bool is_readable = detail::readable_numbers<R>;
        static_assert(is_readable,
                      "numbers to read are a span, vector or array of float, qk::float16 or qk::bfloat16: convert other types first");
    }

    QK_INLINE constexpr std::size_t size() const { return size_; }
    QK_INLINE constexpr std::size_t bytes() const { return rows_.reach() * (floats_.data() != nullptr ? sizeof(float) : sizeof(float16)); }
    QK_INLINE constexpr const void* memory() const {
        if (floats_.data() != nullptr) return floats_.data();
        return halves_.data() != nullptr ? static_cast<const void*>(halves_.data()) : brains_.data();
    }
    /// Returns null unless the memory holds float, one number after the other.
    QK_INLINE constexpr const float* floats() const { return rows_.columns == rows_.pitch ? floats_.data() : nullptr; }
    QK_INLINE constexpr float operator[](std::size_t i) const {
        const std::size_t at = rows_.place(i);
        return floats_.data() != nullptr ? floats_[at] : halves_.data() != nullptr ? widen(halves_[at]) : widen(brains_[at]);
    }
    /// Copies `n` values from number `first` on to `out`, as floats.
    template <class Arch>
    QK_APART void copy(std::size_t first, std::size_t n, float* out) const {
        rows_.each_run(first, n, [&](std::size_t i, std::size_t at, std::size_t some) {
            float* to = out + (i - first);
            if (floats_.data() != nullptr) std::memcpy(to, floats_.data() + at, some * sizeof(float));
            else if (halves_.data() != nullptr) kernels::widen_all<Arch>(halves_.data() + at, some, to);
            else kernels::widen_all<Arch>(brains_.data() + at, some, to);
        });
    }

  private:
    template <class R>
    QK_INLINE constexpr void take(R&& r) {
        if constexpr (detail::span_of<R, const float>) floats_ = std::span<const float>(r);
        else if constexpr (detail::span_of<R, const float16>) halves_ = std::span<const float16>(r);
        else brains_ = std::span<const bfloat16>(r);
    }

    std::span<const float> floats_;
    std::span<const float16> halves_;
    std::span<const bfloat16> brains_;
    pitched_rows rows_;
    std::size_t size_ = 0;
};

/// A function that takes numbers instead of memory: decode(packed, values_out(sink)) calls it with pieces of at most 2048 values, each
/// value once, while they are in the first-level cache; in the tensor's order where blocks lie in rows or a scale is for all.
class values_sink {
  public:
    /// `call(first, values)`: a std::size_t and a std::span<const float>. It is kept by reference.
    template <class Call>
    QK_INLINE values_sink(std::size_t size, Call& call)
        : size_(size), to_(const_cast<void*>(static_cast<const void*>(&call))), call_(detail::call_sink<Call>) {}
    QK_INLINE constexpr std::size_t size() const { return size_; }
    QK_INLINE void operator()(std::size_t first, std::span<const float> values) const { call_(to_, first, values); }

  private:
    std::size_t size_;
    void* to_;
    void (*call_)(void*, std::size_t, std::span<const float>);
};

/// Numbers to write. Rounds to nearest, ties to even, where the memory is narrower than float.
class values_out {
  public:
    template <detail::writable_numbers R>
    QK_INLINE constexpr values_out(R&& r) {
        take(r);
        size_ = floats_.size() + halves_.size() + brains_.size();
        rows_ = {1, size_, size_};
    }
    template <detail::writable_numbers R>
    QK_INLINE constexpr values_out(R&& r, pitched_rows rows) {
        take(r);
        QK_EXPECT(rows.pitch >= rows.columns, "qk: a pitch must be at least the number of columns");
        QK_EXPECT(floats_.size() + halves_.size() + brains_.size() >= rows.reach(),
                  "qk: the memory is too short for its rows and their pitch");
        rows_ = rows;
        size_ = rows.rows * rows.columns;
    }
    template <storage T>
    QK_INLINE constexpr values_out(T* first, std::size_t n) : values_out(std::span<T>(first, n)) {}
    QK_INLINE constexpr values_out(const values_sink& sink) : sink_(&sink), rows_{1, sink.size(), sink.size()}, size_(sink.size()) {}

    template <class R>
    requires(!detail::writable_numbers<R> && !std::same_as<std::remove_cvref_t<R>, values_out> &&
             !std::same_as<std::remove_cvref_t<R>, values_sink>) QK_INLINE constexpr values_out(R&&) {
        constexpr bool is_writable = detail::writable_numbers<R>;
        static_assert(is_writable,
                      "numbers to write are a span, vector or array of float, qk::float16 or qk::bfloat16, neither const nor temporary");
    }

    QK_INLINE constexpr std::size_t size() const { return size_; }
    QK_INLINE constexpr std::size_t bytes() const {
        return sink_ != nullptr ? 0 : rows_.reach() * (floats_.data() != nullptr ? sizeof(float) : sizeof(float16));
    }
    QK_INLINE constexpr const void* memory() const {
        if (sink_ != nullptr) return sink_;
        if (floats_.data() != nullptr) return floats_.data();
        return halves_.data() != nullptr ? static_cast<const void*>(halves_.data()) : brains_.data();
    }
    /// Returns null unless the memory holds float, one number after the other.
    QK_INLINE constexpr float* floats() const { return rows_.columns == rows_.pitch ? floats_.data() : nullptr; }
    template <class Arch>
    QK_APART void copy(const float* in, std::size_t first, std::size_t n) const {
        if (sink_ != nullptr) return (*sink_)(first, std::span<const float>(in, n));
        rows_.each_run(first, n, [&](std::size_t i, std::size_t at, std::size_t some) {
            const float* from = in + (i - first);
            if (floats_.data() != nullptr) std::memcpy(floats_.data() + at, from, some * sizeof(float));
            else if (halves_.data() != nullptr) kernels::narrow_all<Arch>(from, some, halves_.data() + at);
            else kernels::narrow_all<Arch>(from, some, brains_.data() + at);
        });
    }

  private:
    template <class R>
    QK_INLINE constexpr void take(R&& r) {
        if constexpr (detail::span_of<R, float>) floats_ = std::span<float>(r);
        else if constexpr (detail::span_of<R, float16>) halves_ = std::span<float16>(r);
        else brains_ = std::span<bfloat16>(r);
    }

    std::span<float> floats_;
    std::span<float16> halves_;
    std::span<bfloat16> brains_;
    const values_sink* sink_ = nullptr;
    pitched_rows rows_;
    std::size_t size_ = 0;
};

}  // namespace qk
