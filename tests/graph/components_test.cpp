// SPDX-License-Identifier: Apache-2.0
// Components come to the graph module by one call each: before it what needs one says so, and after it, made any number of times, it works.
#include <doctest/doctest.h>

#include <thread>

#include "qk/graph/plan/accumulators.hpp"
#include "qk/graph/quantize/learning.hpp"
#include "small_graph.hpp"

#ifdef QK_HAVE_HARDWARE
#include "qk/graph/hardware.hpp"
#endif
#ifdef QK_HAVE_LEARN
#include "qk/graph/learn.hpp"
#endif

using namespace qk::graph;

namespace {

/// Calls it from two threads, twice each.
[[maybe_unused]] void called(void (*enter)()) {
    const auto twice = [enter] { enter(), enter(); };
    std::thread other(twice);
    twice();
    other.join();
}

}  // namespace

TEST_CASE("an accumulator needs hardware") {
    const std::string text = "sum=exact";
    CHECK_THROWS_WITH_AS(check_accumulator_text(text, "--accumulator"),
                         doctest::Contains("--accumulator: an accumulator needs the component hardware"), error);
    CHECK_THROWS_WITH_AS(parse_accumulator_request(text, "--accumulator"), doctest::Contains("calls qk::hardware::enter()"), error);
#ifdef QK_HAVE_HARDWARE
    called(qk::hardware::enter);
    CHECK_NOTHROW(check_accumulator_text(text, "--accumulator"));
    CHECK(parse_accumulator_request(text, "--accumulator").accumulator == text);
    CHECK_THROWS_WITH_AS(check_accumulator_text("sum=never", "--accumulator"), doctest::Contains("--accumulator: "), error);
#endif
}

TEST_CASE("a rotation and learned rounding need learn") {
    small_graph g;
    g.input("x", {2, 4}).constant("w", {4, 3}).output("y", {2, 3});
    g.node("MatMul", "layer", {"x", "w"}, "y");
    model m = g.build();
    precision_plan plan;
    const auto how = [](const std::string&) { return weight_rounding::adaround; };
    CHECK_THROWS_WITH_AS(rotate_streams(m), doctest::Contains("a rotation needs the component learn"), error);
    CHECK_THROWS_WITH_AS(learn_rounding(m, plan, {}, how), doctest::Contains("links qk::learn and calls qk::learn::enter()"), error);
    CHECK_FALSE(learn_component.is_entered());
#ifdef QK_HAVE_LEARN
    called(qk::learn::enter);
    CHECK(learn_component.is_entered());
    CHECK(rotate_streams(m).empty());
    CHECK(learn_rounding(m, plan, {}, how).empty());
#endif
}
