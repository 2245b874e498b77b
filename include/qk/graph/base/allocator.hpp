// SPDX-License-Identifier: Apache-2.0
// Memory of tensors: from the heap, or from an allocator that a thread uses for a while.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace qk::graph {

/// Gives tensors their buffers. The evaluator's per-thread arenas implement it; without an allocator, buffers come from the heap.
class allocator {
  public:
    virtual ~allocator() = default;
    virtual std::shared_ptr<std::byte> allocate(std::size_t bytes) = 0;
};

/// While an object lives, tensors made on its thread take their bytes from `source`. Fresh pages of the system cost more than what a small
/// layer computes on them, so long work on one thread keeps an allocator of its own.
class thread_memory {
  public:
    explicit thread_memory(allocator& source) : before_(current) { current = &source; }
    ~thread_memory() { current = before_; }
    thread_memory(const thread_memory&) = delete;
    thread_memory& operator=(const thread_memory&) = delete;

    static std::shared_ptr<std::byte> allocate(std::size_t bytes) { return current != nullptr ? current->allocate(bytes) : of_heap(bytes); }
    /// Returns memory that is 64-byte aligned, with room for a vector load past the end.
    static std::shared_ptr<std::byte> of_heap(std::size_t bytes) {
        const std::size_t n = (bytes + 63) / 64 * 64 + 64;
        return {static_cast<std::byte*>(::operator new (n, std::align_val_t{64})),
                [](std::byte* p) { ::operator delete (p, std::align_val_t{64}); }};
    }

  private:
    static inline constinit thread_local allocator* current = nullptr;
    allocator* before_;
};

}  // namespace qk::graph
