// SPDX-License-Identifier: Apache-2.0
// The parts of a search that run no model: metrics, the cache, latency tables, mixing of plans.
#include <doctest/doctest.h>

#include <unistd.h>
#include <cmath>

#include <filesystem>
#include <fstream>
#include <limits>

#include "graph/search/cache.hpp"
#include "graph/search/latency.hpp"
#include "qk/graph/search/metric.hpp"

using namespace qk::graph;

namespace {

struct temporary_file {
    std::filesystem::path path = std::filesystem::temp_directory_path() / ("qk_search_parts_" + std::to_string(::getpid()));
    temporary_file() { std::filesystem::remove(path); }
    ~temporary_file() { std::filesystem::remove(path); }
    void write(const std::string& text, std::ios::openmode mode = std::ios::trunc) const { std::ofstream(path, mode) << text; }
};

double value(const char* name, const std::vector<std::vector<float>>& y, const std::vector<std::vector<float>>& r,
             std::vector<std::int64_t> labels = {}) {
    const metric& m = find_metric(name);
    metric_terms sums{};
    for (std::size_t s = 0; s < y.size(); ++s) {
        const metric_terms t = m.sample(y[s], r[s], labels.empty() ? -1 : labels[s]);
        for (std::size_t i = 0; i < t.size(); ++i) sums[i] += t[i];
    }
    return m.finish(sums, y.size());
}

}  // namespace

TEST_CASE("metrics by their definitions") {
    const std::vector<std::vector<float>> r{{1, 0, 0}, {0, 2, 0}}, y{{1, 3, 4}, {0, 2, 0}};
    CHECK(value("l2", y, r) == 2.5);  // (5 + 0) / 2
    CHECK(value("mse", y, r) == doctest::Approx(25.0 / 6));
    CHECK(value("sqnr", y, r) == doctest::Approx(10 * std::log10(5.0 / 25)));
    CHECK(value("psnr", y, r) == doctest::Approx(10 * std::log10(1.5 * 1.5 * 6 / 25)));
    CHECK(value("cosine", y, r) == doctest::Approx((1 / std::sqrt(26.0) + 1) / 2));
    CHECK(value("top1", y, r, {2, 1}) == 1.0);
    CHECK(value("top1", y, r, {0, 1}) == 0.5);
    CHECK(value("top5", y, r, {0, 2}) == 1.0);
    CHECK(value("agreement", y, r) == 0.5);
    CHECK(value("sqnr", r, r) == std::numeric_limits<double>::infinity());
    CHECK(value("kl", r, r) == doctest::Approx(0));
    const double p = std::exp(4.0) / (std::exp(1.0) + std::exp(3.0) + std::exp(4.0));
    CHECK(value("loss", {{1, 3, 4}}, {{1, 0, 0}}, {2}) == doctest::Approx(-std::log(p)));
    CHECK(value("loss", {{0.25f, 0.5f, 0.25f}}, {{1, 0, 0}}, {1}) == doctest::Approx(std::log(2.0)));  // already a distribution
}

TEST_CASE("of equal outputs the first counts, and NaN is never right") {
    CHECK(value("top1", {{1, 1, 0}}, {{1, 1, 0}}, {0}) == 1.0);
    CHECK(value("top1", {{1, 1, 0}}, {{1, 1, 0}}, {1}) == 0.0);
    const float nan = std::nanf("");
    CHECK(value("top1", {{nan, nan, nan}}, {{1, 1, 0}}, {0}) == 0.0);
    CHECK_FALSE(better(find_metric("l2"), nan, 1e30));
    CHECK(better(find_metric("l2"), 1e30, nan));
}

TEST_CASE("a cache gives back exactly what was measured, under its own key") {
    const temporary_file file;
    const double third = 1.0 / 3;
    {
        search_cache cache(file.path, "aaaa");
        cache.add({0, 1, 2}, {third, -0.0});
        cache.add({1, 1, 1}, {std::nan(""), std::numeric_limits<double>::infinity()});
    }
    search_cache same(file.path, "aaaa"), other(file.path, "bbbb");
    REQUIRE(same.size() == 2);
    CHECK(same.find({0, 1, 2})->metric == third);
    CHECK(std::isnan(same.find({1, 1, 1})->metric));
    CHECK(std::isinf(same.find({1, 1, 1})->error));
    CHECK_FALSE(same.find({2, 2, 2}));
    CHECK(other.size() == 0);
}

TEST_CASE("a line that a crash tore is passed over, and the search goes on") {
    const temporary_file file;
    { search_cache(file.path, "k").add({0}, {1, 1}); }
    file.write(R"({"key":"k","choice":"1","met)", std::ios::app);
    { search_cache(file.path, "k").add({2}, {3, 3}); }
    const search_cache again(file.path, "k");
    CHECK(again.size() == 2);
    CHECK(again.find({2})->metric == 3);
}

TEST_CASE("somebody's own file is not taken for a cache") {
    const temporary_file file;
    file.write("important notes\nsecond line\n");
    CHECK_THROWS_WITH_AS(search_cache(file.path, "k"), doctest::Contains("is not a search cache"), error);
    CHECK_THROWS_AS(search_cache("/nonexistent/folder/cache", "k"), error);
}

TEST_CASE("what the cache knows is not measured again") {
    const temporary_file file;
    search_cache cache(file.path, "k");
    std::size_t measured = 0;
    const auto measure = cache.around([&](std::span<const assignment> c) {
        measured += c.size();
        return std::vector<score>(c.size(), {double(c.size()), 0});
    });
    const std::vector<assignment> two{{0}, {1}}, three{{0}, {1}, {2}};
    measure(two);
    CHECK(measure(three)[2].metric == 1);
    CHECK(measured == 3);
}

TEST_CASE("latency tables: names before types, globs, and a sentence for what is missing") {
    const temporary_file file;
    file.write(R"({"unit": "us", "layers": {"head*": {"int8/int8": 7}}, "op_types": {"Conv": {"int8/int8": 0.5}}})");
    const latency_table table = latency_table::load(file.path);
    CHECK(table.unit() == "us");
    CHECK(table.cost("head.fc", "Conv", 1e6, "int8/int8") == 7);
    CHECK(table.cost("stem", "Conv", 4e6, "int8/int8") == 2);
    CHECK_THROWS_WITH_AS(table.cost("stem", "Gemm", 1, "int8/int8"), doctest::Contains("no entry for layer 'stem' (Gemm) at int8/int8"),
                         error);
    file.write(R"({"layer": {}})");
    CHECK_THROWS_WITH_AS(latency_table::load(file.path), doctest::Contains("/layer"), error);
    file.write("{");
    CHECK_THROWS_WITH_AS(latency_table::load(file.path), doctest::Contains(file.path.string().c_str()), error);
}
