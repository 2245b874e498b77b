// SPDX-License-Identifier: Apache-2.0
// Intervals by bootstrap and errors of differences, against closed forms and against how often they hold.
#include "qk/graph/search/spread.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <vector>

using namespace qk::graph;

namespace {

/// Terms of a metric that is a mean over samples, as top1.
std::vector<metric_terms> terms_of(const std::vector<double>& values) {
    std::vector<metric_terms> terms;
    for (const double v : values) terms.push_back({v, 0, 0, 0, 1});
    return terms;
}
std::vector<double> drawn(std::mt19937_64& random, std::size_t n) {
    std::normal_distribution<double> normal(3, 2);
    std::vector<double> values(n);
    for (double& v : values) v = normal(random);
    return values;
}

}  // namespace

TEST_CASE("quantiles of Student's distribution are those of tables") {
    CHECK(student(1.959964, 9) == doctest::Approx(2.306).epsilon(0.01));
    CHECK(student(1.959964, 31) == doctest::Approx(2.042).epsilon(0.001));
    CHECK(student(2.575829, 9) == doctest::Approx(3.355).epsilon(0.01));
    CHECK(student(1.959964, 100001) == doctest::Approx(1.96).epsilon(0.0001));
}

TEST_CASE("the jackknife of a mean is its standard error, and pairs take out what samples have in common") {
    std::mt19937_64 random(1);
    const std::vector<double> before = drawn(random, 50);
    std::vector<double> after = before, changes;
    double mean = 0, squares = 0;
    for (double& v : after) changes.push_back(0.1 * drawn(random, 1)[0]), v += changes.back();
    for (const double c : changes) mean += c / 50;
    for (const double c : changes) squares += (c - mean) * (c - mean);
    const double error = error_of_difference(find_metric("top1"), terms_of(before), terms_of(after));
    CHECK(error == doctest::Approx(std::sqrt(squares / (50 * 49))).epsilon(1e-9));
    CHECK(error_of_difference(find_metric("top1"), terms_of(before), terms_of(before)) == doctest::Approx(0));
    CHECK(std::isinf(error_of_difference(find_metric("top1"), terms_of({1}), terms_of({2}))));
}

TEST_CASE("in 95 of 100 draws the interval holds the mean of as many other samples") {
    for (const std::size_t n : {8u, 16u, 64u}) {
        std::mt19937_64 random(n);
        int inside = 0;
        const int rounds = 1000;
        for (int i = 0; i < rounds; ++i) {
            const interval found = bootstrapped(find_metric("top1"), terms_of(drawn(random, n)));
            const double others = value_over(find_metric("top1"), terms_of(drawn(random, n)));
            inside += found.low <= others && others <= found.high;
        }
        INFO(n, " samples: ", inside, " of ", rounds);
        CHECK(inside > 920);
        CHECK(inside < 980);
    }
}

TEST_CASE("an interval is the same each time, and has no ends where there is one sample") {
    std::mt19937_64 random(7);
    const std::vector<metric_terms> terms = terms_of(drawn(random, 20));
    const interval a = bootstrapped(find_metric("top1"), terms), b = bootstrapped(find_metric("top1"), terms);
    CHECK(a.low == b.low);
    CHECK(a.high == b.high);
    CHECK(a.low < value_over(find_metric("top1"), terms));
    CHECK(a.high > value_over(find_metric("top1"), terms));
    CHECK(std::isinf(bootstrapped(find_metric("top1"), terms_of({1})).low));
}
