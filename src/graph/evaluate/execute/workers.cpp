// SPDX-License-Identifier: Apache-2.0
// Definitions of workers.hpp.
#include "graph/evaluate/execute/workers.hpp"

#include <tbb/global_control.h>
#include <tbb/info.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <thread>

namespace qk::graph::execute {

workers::workers(int threads, const std::shared_ptr<memory_budget>& budget)
    : threads_(threads > 0 ? threads : std::max(1, static_cast<int>(std::thread::hardware_concurrency()))) {
    for (int i = 0; i < threads_; ++i) arenas_.emplace_back(budget);
    // oneTBB gives no more threads than there are cores, with a warning on standard error, unless told otherwise.
    if (threads_ > tbb::info::default_concurrency())
        more_than_cores_ =
            std::make_shared<tbb::global_control>(tbb::global_control::max_allowed_parallelism, static_cast<std::size_t>(threads_));
}

void workers::for_each(std::size_t n, body_of<std::size_t, arena&> body) {
    if (threads_ == 1) {
        for (std::size_t i = 0; i < n; ++i) body(i, arenas_[0]);
        return;
    }
    // With many items it does not matter that threads are idle at the end, and a whole operator is faster than its parts.
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

}  // namespace qk::graph::execute
