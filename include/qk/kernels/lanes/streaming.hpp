// SPDX-License-Identifier: Apache-2.0
// How results are stored: a plain store first reads the line that it overwrites. In the caches that line is asked for ahead; above
// the last level results go past the caches.
#pragma once

#include <cstddef>

#include "qk/inline.hpp"
#include "qk/kernels/lanes/simd.hpp"

namespace qk {

/// A number that one thread may set while others read it. (<atomic> would be a fifth of what including qk costs.)
class shared_size {
  public:
    constexpr explicit shared_size(std::size_t n) noexcept : value_(n) {}
    shared_size(const shared_size&) = delete;
    shared_size& operator=(const shared_size&) = delete;
    ~shared_size() = default;

    std::size_t load() const noexcept { return __atomic_load_n(&value_, __ATOMIC_RELAXED); }
    void store(std::size_t n) noexcept { __atomic_store_n(&value_, n, __ATOMIC_RELAXED); }
    std::size_t exchange(std::size_t n) noexcept { return __atomic_exchange_n(&value_, n, __ATOMIC_RELAXED); }
    operator std::size_t() const noexcept { return load(); }
    std::size_t operator=(std::size_t n) noexcept { return store(n), n; }

  private:
    std::size_t value_;
};

/// Input plus output, in bytes, from which kernels store past the caches. Set it to SIZE_MAX to never do so, to 0 to always.
/// 32 MiB is the last-level cache of common servers; a value within a factor of two of the machine's own costs little.
inline shared_size streaming_bytes{std::size_t{32} << 20};

namespace kernels {

/// y overwrites what was just read when it is x: nothing to gain then. Vectors are streamed to aligned addresses only.
template <class Arch>
bool streams(const float* x, const float* y, std::size_t n) noexcept {
    return x != y && 2 * n * sizeof(float) >= streaming_bytes.load();
}

/// The lines are asked for, to be written, that stores to `Vectors` vectors from y on will need when they get this far.
template <class Arch, std::size_t Vectors>
QK_INLINE void own_ahead(const float* y) noexcept {
    constexpr std::size_t distance = 128, line = 16, floats = Vectors * lanes<Arch>;
    for (std::size_t i = 0; i < floats; i += line) __builtin_prefetch(y + distance + i, 1);
}

/// Lines that are read are asked for, too, by loops that do so much between two loads that the processor looks ahead less by itself.
template <class Arch, std::size_t Vectors>
QK_INLINE void read_ahead(const float* x) noexcept {
    constexpr std::size_t distance = 320, line = 16, floats = Vectors * lanes<Arch>;
    for (std::size_t i = 0; i < floats; i += line) __builtin_prefetch(x + distance + i);
}

}  // namespace kernels
}  // namespace qk
