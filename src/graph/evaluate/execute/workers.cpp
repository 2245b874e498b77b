// SPDX-License-Identifier: Apache-2.0
// Definitions of workers.hpp.
#include "graph/evaluate/execute/workers.hpp"

#include <tbb/global_control.h>
#include <tbb/info.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "graph/base/stop_check.hpp"

// ThreadSanitizer cannot see how oneTBB, which is built without it, hands work to other threads. These say it in its builds: what a thread
// did before it gives over a place in memory, another sees after it took that place over.
#if defined(__has_feature)
#define QK_HAS_FEATURE(name) __has_feature(name)
#else
#define QK_HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_THREAD__) || QK_HAS_FEATURE(thread_sanitizer)
#include <sanitizer/tsan_interface.h>
#define QK_NOT_INSTRUMENTED __attribute__((no_sanitize_thread))
#else
#define QK_NOT_INSTRUMENTED
#endif

namespace qk::graph::execute {
namespace {

void give_over([[maybe_unused]] const void* place) {
#if defined(__SANITIZE_THREAD__) || QK_HAS_FEATURE(thread_sanitizer)
    __tsan_release(const_cast<void*>(place));
#endif
}
void take_over([[maybe_unused]] const void* place) {
#if defined(__SANITIZE_THREAD__) || QK_HAS_FEATURE(thread_sanitizer)
    __tsan_acquire(const_cast<void*>(place));
#endif
}

/// Takes the place `first` over, and gives `last` over at the end of its scope.
class turn {
  public:
    turn(const void* first, const void* last) : last_(last) { take_over(first); }
    ~turn() { give_over(last_); }
    turn(const turn&) = delete;
    turn& operator=(const turn&) = delete;

  private:
    const void* last_;
};

/// Calls item(i) for every i in [0, count), on the threads of the task arena of this thread.
template <class F>
class shared_loop {
  public:
    explicit shared_loop(const F& item) : item_(item) { give_over(&begun_); }
    ~shared_loop() { take_over(&ended_); }
    shared_loop(const shared_loop&) = delete;
    shared_loop& operator=(const shared_loop&) = delete;

    void run(std::size_t count) const {
        tbb::parallel_for(
            std::size_t{0}, count, [this](std::size_t i) QK_NOT_INSTRUMENTED { one(i); }, tbb::simple_partitioner{});
    }

  private:
    void one(std::size_t i) const {
        const turn here(&begun_, &ended_);
        item_(i);
    }

    const F& item_;
    std::int64_t begun_ = 0, ended_ = 0;  ///< places that are given over, nothing else
};

/// Task arenas that nobody uses now, by their number of threads. oneTBB 2021.8 never frees some 7 KB of each arena whose work several
/// threads took part in, so that a process that makes an arena for every run grows without end.
class idle_arenas {
  public:
    std::unique_ptr<tbb::task_arena> take(int threads) {
        const std::scoped_lock lock(mutex_);
        forget_after_fork();
        std::vector<std::unique_ptr<tbb::task_arena>>& own = idle_[threads];
        if (own.empty()) return std::make_unique<tbb::task_arena>(threads);
        std::unique_ptr<tbb::task_arena> last = std::move(own.back());
        own.pop_back();
        return last;
    }
    void give_back(int threads, std::unique_ptr<tbb::task_arena> arena) {
        const std::scoped_lock lock(mutex_);
        forget_after_fork();
        idle_[threads].push_back(std::move(arena));
    }

  private:
    using lists = std::map<int, std::vector<std::unique_ptr<tbb::task_arena>>>;

    /// The threads of a parent are not here, and its arenas may count on them.
    void forget_after_fork() {
        if (const pid_t now = getpid(); now != owner_) {
            new lists(std::move(idle_));  // never destroyed
            idle_.clear();
            owner_ = now;
        }
    }

    std::mutex mutex_;
    lists idle_;
    pid_t owner_ = getpid();
};

/// Holds an arena while it lives.
class borrowed_arena {
  public:
    explicit borrowed_arena(int threads) : threads_(threads), arena_(idle().take(threads)) {}
    ~borrowed_arena() { idle().give_back(threads_, std::move(arena_)); }
    borrowed_arena(const borrowed_arena&) = delete;
    borrowed_arena& operator=(const borrowed_arena&) = delete;
    tbb::task_arena& operator*() const { return *arena_; }

  private:
    /// Never destroyed: at the end of the process oneTBB may be gone before.
    static idle_arenas& idle() {
        static idle_arenas& all = *new idle_arenas;
        return all;
    }

    int threads_;
    std::unique_ptr<tbb::task_arena> arena_;
};

}  // namespace

workers::workers(int threads, const std::shared_ptr<memory_budget>& budget)
    : threads_(threads > 0 ? threads : std::max(1, static_cast<int>(std::thread::hardware_concurrency()))) {
    for (int i = 0; i < threads_; ++i) arenas_.emplace_back(budget);
    // oneTBB gives no more threads than there are cores, with a warning on standard error, unless told otherwise.
    if (threads_ > tbb::info::default_concurrency())
        more_than_cores_ =
            std::make_shared<tbb::global_control>(tbb::global_control::max_allowed_parallelism, static_cast<std::size_t>(threads_));
}

void workers::for_each(std::size_t n, body_of<std::size_t, arena&> body) {
    const std::function<void()>* check = stop_check::current();
    if (threads_ == 1) {
        for (std::size_t i = 0; i < n; ++i) {
            if (check != nullptr) (*check)();
            body(i, arenas_[0]);
        }
        return;
    }
    // With many items it does not matter that threads are idle at the end, and a whole operator is faster than its parts.
    const auto all = static_cast<std::size_t>(threads_);
    const bool some_idle = n % all != 0 && n < 4 * all;
    const borrowed_arena pool(threads_);
    (*pool).execute([&] {
        const part_runner parts = [](std::size_t count, const std::function<void(std::size_t)>& part) {
            // A thread that waits for the parts must not begin another item meanwhile: it would hold two in memory.
            tbb::this_task_arena::isolate([&] { shared_loop(part).run(count); });
        };
        const auto item = [&](std::size_t i) {
            if (check != nullptr) (*check)();
            const parts_side_by_side here(some_idle ? &parts : nullptr);
            arena& own = arenas_[static_cast<std::size_t>(tbb::this_task_arena::current_thread_index())];
            const turn mine(&own, &own);  // another thread may have had this index before
            body(i, own);
        };
        shared_loop(item).run(n);
    });
}

}  // namespace qk::graph::execute
