// SPDX-License-Identifier: Apache-2.0
// How results are stored: a plain store first reads the line that it overwrites. In the caches that line is asked for ahead; above
// the last level results go past the caches.
#pragma once

#include <atomic>
#include <cstddef>

#include "qk/inline.hpp"
#include "qk/kernels/lanes/simd.hpp"

namespace qk {

/// Input plus output, in bytes, from which kernels store past the caches. Set it to SIZE_MAX to never do so, to 0 to always.
/// 32 MiB is the last-level cache of common servers; a value within a factor of two of the machine's own costs little.
inline std::atomic<std::size_t> streaming_bytes{std::size_t{32} << 20};

namespace kernels {

/// y overwrites what was just read when it is x: nothing to gain then. Vectors are streamed to aligned addresses only.
template <class Arch>
bool streams(const float* x, const float* y, std::size_t n) noexcept {
    return x != y && 2 * n * sizeof(float) >= streaming_bytes.load(std::memory_order_relaxed);
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
