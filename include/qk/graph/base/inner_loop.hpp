// SPDX-License-Identifier: Apache-2.0
// Parts of one operator's work side by side, where a run has threads to spare: fewer samples than threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <utility>

namespace qk::graph {

/// Runs a body for every part in [0, n), in any order and on any threads, and returns when all are done.
using part_runner = std::function<void(std::size_t n, const std::function<void(std::size_t)>& body)>;

/// Who runs the parts of this thread's operators; null: the thread itself, one after the other.
const part_runner*& runs_parts();

/// While it lives, operators of this thread leave their parts to `runner`.
class parts_side_by_side {
  public:
    explicit parts_side_by_side(const part_runner* runner) : before_(std::exchange(runs_parts(), runner)) {}
    ~parts_side_by_side() { runs_parts() = before_; }
    parts_side_by_side(const parts_side_by_side&) = delete;
    parts_side_by_side& operator=(const parts_side_by_side&) = delete;

  private:
    const part_runner* before_;
};

/// Calls body(part) for every part in [0, n). What a part is must depend on shapes alone, so that results have the same bits for any
/// number of threads. The first exception is thrown here.
template <class Body>
void for_each_part(std::size_t n, const Body& body) {
    const part_runner* runner = runs_parts();
    if (runner == nullptr || n < 2) {
        for (std::size_t i = 0; i < n; ++i) body(i);
        return;
    }
    const parts_side_by_side none(nullptr);  // parts of parts: one after the other
    (*runner)(n, body);
}

/// Calls body(begin, end) for ranges that cover [0, n). An item's result must not depend on the range that it is in. `work`: about how
/// many elementary operations (additions of elements in cache) an item takes: ranges of less than some ten microseconds are not made.
template <class Body>
void for_each_range(std::size_t n, std::size_t work, const Body& body) {
    constexpr std::size_t least = 1 << 16;
    const std::size_t items = std::max<std::size_t>(1, least / std::max<std::size_t>(work, 1));
    if (runs_parts() == nullptr || n < 2 * items) {
        if (n > 0) body(std::size_t{0}, n);
        return;
    }
    const std::size_t parts = std::min<std::size_t>(n / items, 64);
    for_each_part(parts, [&](std::size_t i) { body(n * i / parts, n * (i + 1) / parts); });
}

}  // namespace qk::graph
