// SPDX-License-Identifier: Apache-2.0
// When results go past the caches: above the last level, a plain store would first read the line that it overwrites.
#pragma once

#include <atomic>
#include <cstddef>

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

}  // namespace kernels
}  // namespace qk
