// SPDX-License-Identifier: Apache-2.0
// Threads of a run, each with its own arena. Work items are handed out one by one, so results must not depend on which thread runs which
// item. If there are too few items for all threads, parts of an item's operators are handed out, too.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>

#include "graph/base/inner_loop.hpp"
#include "graph/evaluate/execute/arena.hpp"

namespace qk::graph::execute {

class workers {
  public:
    workers(int threads, const std::shared_ptr<memory_budget>& budget);

    int threads() const { return threads_; }
    arena& memory(std::size_t worker) { return arenas_[worker]; }

    /// Calls body(item, arena of the thread) for every item in [0, n). The first exception ends the loop and is rethrown here.
    void for_each(std::size_t n, body_of<std::size_t, arena&> body);

    std::size_t held() const {
        std::size_t all = 0;
        for (const arena& a : arenas_) all += a.held();
        return all;
    }

  private:
    int threads_;
    std::shared_ptr<void> more_than_cores_;  ///< oneTBB's permission for them; void keeps oneTBB's headers out of here
    std::deque<arena> arenas_;
};

}  // namespace qk::graph::execute
