// SPDX-License-Identifier: Apache-2.0
// Limits for the runs of one evaluator: a malformed model may request any amount of memory or work, and gets an error that names the node.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "qk/graph/base/error.hpp"

namespace qk::graph {

struct run_limits {
    std::size_t memory = 0;                  ///< bytes of tensors, all threads together; 0: the machine's memory
    std::uint64_t body_steps = 100'000'000;  ///< nodes that one run may execute inside Loop, Scan and If
};

/// Counts the bytes that may still be allocated; the arenas of all threads share it.
class memory_budget {
  public:
    explicit memory_budget(std::size_t bytes = 0) : left_(bytes != 0 ? bytes : of_machine()) {}

    void take(std::size_t bytes) {
        std::size_t left = left_.load();
        do {
            if (bytes > left)
                throw error("a tensor of " + std::to_string(bytes) + " bytes does not fit in the memory that is left to this model (" +
                            std::to_string(left) + " bytes)");
        } while (!left_.compare_exchange_weak(left, left - bytes));
    }
    void give(std::size_t bytes) { left_ += bytes; }

  private:
    static std::size_t of_machine() {
        return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGE_SIZE));
    }
    std::atomic<std::size_t> left_;
};

}  // namespace qk::graph
