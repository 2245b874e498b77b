// SPDX-License-Identifier: Apache-2.0
// Where the bytes of tensors come from: the heap, or what a thread was given for a while.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace qk::graph {

/// The evaluator's per-thread arena, or the heap.
class allocator {
  public:
    virtual ~allocator() = default;
    virtual std::shared_ptr<std::byte> allocate(std::size_t bytes) = 0;
};

/// While one lives, the tensors that its thread makes take their bytes from `source`. Fresh pages of the system cost more than what a small
/// layer computes on them, so long work on one thread keeps its own.
class thread_memory {
  public:
    explicit thread_memory(allocator& source) : before_(current) { current = &source; }
    ~thread_memory() { current = before_; }
    thread_memory(const thread_memory&) = delete;
    thread_memory& operator=(const thread_memory&) = delete;

    static std::shared_ptr<std::byte> allocate(std::size_t bytes) { return current != nullptr ? current->allocate(bytes) : of_heap(bytes); }
    /// 64-byte aligned, with room for a vector read past the end.
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
