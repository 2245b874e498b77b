// SPDX-License-Identifier: Apache-2.0
// A check that long work on a thread makes again and again, and that ends it by an exception: a caller may take back what it asked for.
#pragma once

#include <functional>

namespace qk::graph {

/// While an object lives, loops over samples and layers that are begun on its thread call `check` before each item, on whatever thread
/// runs it. What it throws ends the loop. An empty function checks nothing.
class stop_check {
  public:
    explicit stop_check(std::function<void()> check) : check_(std::move(check)), before_(present) {
        if (check_) present = &check_;
    }
    ~stop_check() { present = before_; }
    stop_check(const stop_check&) = delete;
    stop_check& operator=(const stop_check&) = delete;

    /// Returns the check of this thread; null: none.
    static const std::function<void()>* current() { return present; }

  private:
    static inline constinit thread_local const std::function<void()>* present = nullptr;
    std::function<void()> check_;
    const std::function<void()>* before_;
};

}  // namespace qk::graph
