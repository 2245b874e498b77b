// SPDX-License-Identifier: Apache-2.0
// Runs parts of one operator's work side by side where a run has threads to spare: fewer samples than threads.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>

namespace qk::graph {

/// Runs a body for every part in [0, n), in any order and on any threads, and returns when all are done.
using part_runner = std::function<void(std::size_t n, const std::function<void(std::size_t)>& body)>;

/// The runner of the parts of this thread's operators. Null: the thread runs them itself, one after the other.
const part_runner*& runs_parts();

/// While an object lives, operators on its thread hand their parts to `runner`.
class parts_side_by_side {
  public:
    explicit parts_side_by_side(const part_runner* runner) : before_(std::exchange(runs_parts(), runner)) {}
    ~parts_side_by_side() { runs_parts() = before_; }
    parts_side_by_side(const parts_side_by_side&) = delete;
    parts_side_by_side& operator=(const parts_side_by_side&) = delete;

  private:
    const part_runner* before_;
};

/// A reference to a callable, of one type for all callables: a function that takes it is compiled once, and so are the callable's loops.
template <class... Sizes>
class body_of {
  public:
    template <class Body>
    body_of(const Body& body) : body_(&body), run_([](const void* b, Sizes... sizes) { (*static_cast<const Body*>(b))(sizes...); }) {}
    void operator()(Sizes... sizes) const { run_(body_, sizes...); }

  private:
    const void* body_;
    void (*run_)(const void*, Sizes...);
};

/// Calls body(part) for every part in [0, n). What a part is must depend on shapes alone, so that results have the same bits for any number
/// of threads. Throws the first exception of a part.
void for_each_part(std::size_t n, body_of<std::size_t> body);

/// Calls body(begin, end) for ranges that cover [0, n). An item's result must not depend on the range that it is in. `work` is about how
/// many elementary operations (additions of elements in cache) an item takes: ranges are made long enough to take some ten microseconds.
void for_each_range(std::size_t n, std::size_t work, body_of<std::size_t, std::size_t> body);

}  // namespace qk::graph
