// SPDX-License-Identifier: Apache-2.0
// Threads of a run: each has its arena; work items are handed out one by one, so results must not depend on who does what. Where items
// leave threads idle, the parts of an item's operators are handed out, too.
#pragma once

#include <tbb/global_control.h>
#include <tbb/info.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <thread>

#include "qk/graph/base/inner_loop.hpp"
#include "qk/graph/evaluate/execute/arena.hpp"

namespace qk::graph::execute {

class workers {
  public:
    workers(int threads, const std::shared_ptr<memory_budget>& budget)
        : threads_(threads > 0 ? threads : std::max(1, static_cast<int>(std::thread::hardware_concurrency()))) {
        for (int i = 0; i < threads_; ++i) arenas_.emplace_back(budget);
        // oneTBB gives no more threads than there are cores, with a warning on standard error, unless told otherwise.
        if (threads_ > tbb::info::default_concurrency())
            more_than_cores_.emplace(tbb::global_control::max_allowed_parallelism, static_cast<std::size_t>(threads_));
    }

    int threads() const { return threads_; }
    arena& memory(std::size_t worker) { return arenas_[worker]; }

    /// body(item, arena of the thread) for every item in [0, n). The first exception ends the loop and is thrown here.
    template <class Body>
    void for_each(std::size_t n, const Body& body) {
        if (threads_ == 1) {
            for (std::size_t i = 0; i < n; ++i) body(i, arenas_[0]);
            return;
        }
        // With many items the last few do not matter, and an operator as a whole is quicker than its parts.
        const auto all = static_cast<std::size_t>(threads_);
        const bool some_idle = n % all != 0 && n < 4 * all;
        tbb::task_arena pool(threads_);
        pool.execute([&] {
            const part_runner parts = [](std::size_t count, const std::function<void(std::size_t)>& part) {
                // A thread that waits for the parts must not begin another item meanwhile: it would hold two in memory.
                tbb::this_task_arena::isolate([&] {
                    tbb::parallel_for(
                        std::size_t{0}, count, [&](std::size_t i) { part(i); }, tbb::simple_partitioner{});
                });
            };
            tbb::parallel_for(
                std::size_t{0}, n,
                [&](std::size_t i) {
                    const parts_side_by_side here(some_idle ? &parts : nullptr);
                    body(i, arenas_[static_cast<std::size_t>(tbb::this_task_arena::current_thread_index())]);
                },
                tbb::simple_partitioner{});
        });
    }

    std::size_t held() const {
        std::size_t all = 0;
        for (const arena& a : arenas_) all += a.held();
        return all;
    }

  private:
    int threads_;
    std::optional<tbb::global_control> more_than_cores_;
    std::deque<arena> arenas_;
};

}  // namespace qk::graph::execute
