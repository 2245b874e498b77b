// SPDX-License-Identifier: Apache-2.0
// The memory that every benchmark works on: distinct buffers, allocated and touched once, which copies and kernels share.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>

namespace qk::bench {

/// Sizes of input plus output in bytes of float32: one fits the L2 cache, one the L3 cache, one only memory.
inline constexpr std::size_t working_sets[] = {262144, 8388608, 268435456};

struct free_memory {
    void operator()(void* p) const { std::free(p); }
};

class buffer {
  public:
    explicit buffer(std::size_t bytes) : memory_(static_cast<std::byte*>(std::aligned_alloc(4096, (bytes + 8191) / 4096 * 4096))) {
        if (!memory_) std::abort();
        std::memset(memory_.get(), 0, bytes);
    }
    float* floats() const { return reinterpret_cast<float*>(memory_.get()); }
    std::byte* bytes() const { return memory_.get(); }

  private:
    std::unique_ptr<std::byte, free_memory> memory_;
};

/// x holds roughly normally distributed values (sums of uniform ones, the same in every run); y has the same size.
struct pair_of_buffers {
    buffer x{working_sets[2] / 2}, y{working_sets[2] / 2};

    pair_of_buffers() {
        std::uint64_t state = 1;
        for (std::size_t i = 0; i < working_sets[2] / 8; ++i) {
            int sum = 0;
            state = state * 6364136223846793005u + 1442695040888963407u;
            for (int k = 0; k < 4; ++k) sum += static_cast<int>(state >> (16 * k) & 0xffff) - 32768;
            x.floats()[i] = static_cast<float>(sum) * (1.0f / 37837.0f);
        }
    }
};

inline pair_of_buffers& buffers() {
    static pair_of_buffers b;
    return b;
}

}  // namespace qk::bench
