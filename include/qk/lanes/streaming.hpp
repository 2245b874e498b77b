// SPDX-License-Identifier: Apache-2.0
// How results are stored. A plain store first reads the line that it overwrites. While data fit the caches, kernels prefetch that line;
// above the size of the last level they store past the caches.
#pragma once

#include <cstddef>
#include <type_traits>

#include "qk/inline.hpp"
#include "qk/isa.hpp"
#include "qk/lanes/simd.hpp"

namespace qk {

/// A number that one thread may set while others read it. (<atomic> would be a fifth of what including qk costs.)
class shared_size {
  public:
    QK_INLINE constexpr explicit shared_size(std::size_t n) noexcept : value_(n) {}
    shared_size(const shared_size&) = delete;
    shared_size& operator=(const shared_size&) = delete;
    ~shared_size() = default;

    QK_INLINE std::size_t load() const noexcept { return __atomic_load_n(&value_, __ATOMIC_RELAXED); }
    QK_INLINE void store(std::size_t n) noexcept { __atomic_store_n(&value_, n, __ATOMIC_RELAXED); }
    QK_INLINE std::size_t exchange(std::size_t n) noexcept { return __atomic_exchange_n(&value_, n, __ATOMIC_RELAXED); }
    QK_INLINE operator std::size_t() const noexcept { return load(); }
    QK_INLINE std::size_t operator=(std::size_t n) noexcept { return store(n), n; }

  private:
    std::size_t value_;
};

/// Input plus output, in bytes, from which kernels store past the caches. Set it to SIZE_MAX to never do so, to 0 to always.
/// 32 MiB is the last-level cache of common servers; a value within a factor of two of the machine's own costs little.
inline shared_size streaming_bytes{std::size_t{32} << 20};

namespace kernels {
inline namespace QK_ISA {

/// Is true when n floats that are read, and as many that are written, do not fit the caches.
inline bool exceeds_caches(std::size_t n) noexcept { return 2 * n * sizeof(float) >= streaming_bytes.load(); }

/// Is true when n results are to be stored past the caches. If y is x nothing is gained: y overwrites what was just read. Vectors are
/// streamed to aligned addresses only.
template <class Arch>
bool streams(const float* x, const float* y, std::size_t n) noexcept {
    return x != y && exceeds_caches(n);
}

/// Where a loop of its own stores: an argument whose type says it.
inline constexpr std::true_type past_caches;
inline constexpr std::false_type through_caches;

/// Stores a result, past the caches if `streaming`: seldom, and then memory is what takes the time.
template <class Arch>
QK_INLINE void put(float* to, vf<Arch> v, bool streaming) noexcept {
    if (__builtin_expect(streaming, 0)) stream<Arch>(to, v);
    else store<Arch>(to, v);
}

/// Prefetches, for writing, the lines that stores will need `distance` floats after the `Vectors` vectors at y.
template <class Arch, std::size_t Vectors>
QK_INLINE void own_ahead(const float* y) noexcept {
    constexpr std::size_t distance = 128, line = 16, floats = Vectors * lanes<Arch>;
    for (std::size_t i = 0; i < floats; i += line) __builtin_prefetch(y + distance + i, 1);
}

/// How many floats ahead lines are prefetched for reading: in the caches, and in data that come from memory. That is a page further,
/// since what processors prefetch by themselves mostly ends with the page that is read.
inline constexpr std::size_t read_distance = 320, memory_distance = 1024 + read_distance;

/// Returns how far ahead to prefetch in a row of `n` floats.
inline std::size_t distance_in_row(std::size_t n) noexcept { return exceeds_caches(n) ? memory_distance : read_distance; }

/// Prefetches lines for reading. By itself the processor looks less far ahead where a loop does much between two loads, and foresees
/// some loops and not others.
template <class Arch, std::size_t Vectors>
QK_INLINE void read_ahead(const float* x, std::size_t distance = read_distance) noexcept {
    constexpr std::size_t line = 16, floats = Vectors * lanes<Arch>;
    for (std::size_t i = 0; i < floats; i += line) __builtin_prefetch(x + distance + i);
}

}  // namespace QK_ISA
}  // namespace kernels
}  // namespace qk
