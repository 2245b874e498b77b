// SPDX-License-Identifier: Apache-2.0
// Working memory of one thread. A buffer returns to a free list when its last tensor is destroyed, so a run holds only what is alive at
// once.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "graph/ops/op.hpp"
#include "qk/graph/base/limits.hpp"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define QK_POISONED_ARENA 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define QK_POISONED_ARENA 1
#endif
#ifdef QK_POISONED_ARENA
#include <sanitizer/asan_interface.h>
#endif

namespace qk::graph::execute {

/// Under AddressSanitizer, allows access to the first `used` of a buffer's `size` bytes and to no others.
inline void set_usable([[maybe_unused]] std::byte* p, [[maybe_unused]] std::size_t used, [[maybe_unused]] std::size_t size) {
#ifdef QK_POISONED_ARENA
    ASAN_UNPOISON_MEMORY_REGION(p, used);
    ASAN_POISON_MEMORY_REGION(p + used, size - used);
#endif
}
#undef QK_POISONED_ARENA

/// Buffers are rounded up to a quarter of a power of two (at most 25 % waste) and reused within their class. A buffer may be
/// released on any thread, and may outlive the arena.
class arena : public allocator {
  public:
    explicit arena(std::shared_ptr<memory_budget> budget) : core_(std::make_shared<core>()) { core_->budget = std::move(budget); }

    /// Throws an error if the budget is exceeded, before the memory is taken.
    std::shared_ptr<std::byte> allocate(std::size_t bytes) override {
        const int c = class_of(bytes);
        std::byte* p = nullptr;
        {
            const std::lock_guard lock(core_->mutex);
            auto& list = core_->free[static_cast<std::size_t>(c)];
            if (!list.empty()) {
                p = list.back();
                list.pop_back();
            } else {
                core_->budget->take(size_of_class(c));
                core_->held += size_of_class(c);
                core_->most = std::max(core_->most, core_->held);
            }
        }
        if (p == nullptr) {
            p = static_cast<std::byte*>(::operator new (size_of_class(c), std::align_val_t{64}));
            const std::lock_guard lock(core_->mutex);
            core_->own.emplace_back(p, c);
        }
        set_usable(p, bytes + 64, size_of_class(c));
        return {p, [k = core_, c](std::byte* q) {
                    set_usable(q, 0, size_of_class(c));
                    k->take_back(q, c);
                }};
    }

    /// Hands a buffer over to its tensors: the arena no longer counts it, and its last tensor returns it to the system. Returns false if no
    /// buffer of this arena of about `bytes` bytes begins at `p`.
    bool give_away(const std::byte* p, std::size_t bytes) {
        const std::lock_guard lock(core_->mutex);
        const auto at = std::find_if(core_->own.begin(), core_->own.end(), [&](const auto& o) { return o.first == p; });
        if (at == core_->own.end() || at->second != class_of(bytes)) return false;
        core_->budget->give(size_of_class(at->second));
        core_->held -= size_of_class(at->second);
        core_->given.push_back(at->first);
        core_->own.erase(at);
        return true;
    }

    /// Returns the most bytes taken from the system at once: in each size class the most that was alive at once.
    std::size_t held() const {
        const std::lock_guard lock(core_->mutex);
        return core_->most;
    }

  private:
    // Classes 0, 1, 2, 3 of octave k: 2^k * (4, 5, 6, 7) / 4, starting at 256 bytes. 64 bytes on top for vector reads past the end.
    static int class_of(std::size_t bytes) {
        const std::size_t n = std::max<std::size_t>(bytes + 64, 256);
        const int octave = static_cast<int>(std::bit_width(n)) - 1;
        const std::size_t quarter = (n - 1) >> (octave - 2);  // 3 (exactly a power of two) to 7
        return (octave - 8) * 4 + static_cast<int>(quarter) - 3;
    }
    static std::size_t size_of_class(int c) { return static_cast<std::size_t>(4 + c % 4) << (c / 4 + 6); }

    struct core {
        std::mutex mutex;
        std::array<std::vector<std::byte*>, 160> free;
        std::vector<std::pair<std::byte*, int>> own;  ///< buffers taken from the system, and their classes
        std::vector<std::byte*> given;                ///< buffers that belong to their tensors now (give_away)
        std::size_t held = 0, most = 0;               ///< bytes taken from the system: now, and at most
        std::shared_ptr<memory_budget> budget;

        /// Frees p, or returns it to its free list, when its last tensor is destroyed.
        void take_back(std::byte* p, int c) {
            {
                const std::lock_guard lock(mutex);
                const auto at = std::find(given.begin(), given.end(), p);
                if (at == given.end()) return free[static_cast<std::size_t>(c)].push_back(p);
                given.erase(at);
            }
            release(p, c);
        }
        static void release(std::byte* p, int c) {
            set_usable(p, size_of_class(c), size_of_class(c));
            ::operator delete (p, std::align_val_t{64});
        }
        ~core() {
            budget->give(held);
            for (std::size_t c = 0; c < free.size(); ++c)
                for (std::byte* p : free[c]) release(p, static_cast<int>(c));
        }
    };
    std::shared_ptr<core> core_;
};

}  // namespace qk::graph::execute
