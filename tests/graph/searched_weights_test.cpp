// SPDX-License-Identifier: Apache-2.0
// Searched scales where values share a float32 scale (int4 in blocks of 32 and the like): against every scale by brute force, never worse
// than the rule, with zero points, in plans; and weighted by what the layers read.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <random>

#include "graph/calibrate/searched_scales.hpp"
#include "graph/quantize/weigh_scales.hpp"
#include "qk/graph/base/format_text.hpp"
#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/quantize/choices.hpp"
#include "qk/option_names.hpp"
#include "qk/reference/codes.hpp"
#include "rounded_weights.hpp"
#include "small_graph.hpp"

using namespace qk::graph;
using qk::scale_objective;
using qk::scale_rule;

namespace {

/// Every number of a format, for a zero point.
std::vector<double> numbers(const qk::format& f, std::int64_t zero_point) {
    std::vector<double> all;
    if (const auto* whole = std::get_if<qk::integer>(&f))
        for (std::int64_t q = qmin(*whole); q <= qmax(*whole); ++q) all.push_back(static_cast<double>(q - zero_point));
    if (const auto* split = std::get_if<qk::floating>(&f))
        for (std::uint32_t c = 0; c < (1u << bits(*split)); ++c) all.push_back(static_cast<double>(qk::reference::value_of(*split, c)));
    if (const auto* listed = std::get_if<qk::table>(&f))
        for (int c = 0; c < listed->size(); ++c) all.push_back(static_cast<double>(value_of(*listed, static_cast<std::uint32_t>(c))));
    std::erase_if(all, [](double v) { return !std::isfinite(v); });
    return all;
}

struct block {
    std::vector<float> x, w;  ///< w: empty, or a weight for each
};

double cost(const block& b, std::span<const double> y, scale_objective what) {
    double sum = 0;
    for (std::size_t i = 0; i < b.x.size(); ++i) {
        const double d = std::abs(static_cast<double>(b.x[i]) - y[i]);
        sum += (b.w.empty() ? 1.0 : static_cast<double>(b.w[i])) * (what == scale_objective::mae ? d : d * d);
    }
    return sum;
}
/// The error at one scale: each value goes to the nearest of all numbers.
double cost_at(const block& b, const std::vector<double>& all, double scale, scale_objective what, std::vector<double>* codes = nullptr) {
    std::vector<double> y(b.x.size()), nearest(b.x.size());
    for (std::size_t i = 0; i < b.x.size(); ++i) {
        const auto distance = [&](double v) { return std::abs(static_cast<double>(b.x[i]) - v * scale); };
        nearest[i] = *std::min_element(all.begin(), all.end(), [&](double p, double q) { return distance(p) < distance(q); });
        y[i] = nearest[i] * scale;
    }
    if (codes != nullptr) *codes = nearest;
    return cost(b, y, what);
}

/// The least error of all scales: between neighbours of the sorted scales at which some code changes the codes are known, and so is the
/// best scale for them; for mae it is one at which some value is met.
double least_of_all(const block& b, const qk::format& f, std::int64_t first_zero, std::int64_t last_zero, scale_objective what) {
    if (cost(b, std::vector<double>(b.x.size(), 0.0), what) == 0) return 0;  // zeros alone count: no scale changes a code
    double least = std::numeric_limits<double>::infinity();
    for (std::int64_t z = first_zero; z <= last_zero; ++z) {
        const std::vector<double> all = numbers(f, z);
        std::vector<double> sorted = all, at;
        std::ranges::sort(sorted);
        for (const float x : b.x)
            for (std::size_t k = 0; k < sorted.size(); ++k) {
                if (what == scale_objective::mae) at.push_back(static_cast<double>(x) / sorted[k]);
                else if (k > 0) at.push_back(static_cast<double>(x) / ((sorted[k] + sorted[k - 1]) / 2));
            }
        std::erase_if(at, [](double s) { return !(s > 0 && std::isfinite(s)); });
        std::ranges::sort(at);
        at.erase(std::unique(at.begin(), at.end()), at.end());
        if (what != scale_objective::mae && !at.empty()) at.insert(at.begin(), at[0] / 4);  // below all of them every value is clipped
        for (std::size_t i = 0; i < at.size(); ++i) {
            if (what == scale_objective::mae) {
                least = std::min(least, cost_at(b, all, at[i], what));
                continue;
            }
            std::vector<double> codes;
            cost_at(b, all, i + 1 < at.size() ? (at[i] + at[i + 1]) / 2 : at[i] * 1.5, what, &codes);
            double xq = 0, qq = 0;
            for (std::size_t k = 0; k < codes.size(); ++k) {
                const double w = b.w.empty() ? 1.0 : static_cast<double>(b.w[k]);
                xq += w * static_cast<double>(b.x[k]) * codes[k], qq += w * codes[k] * codes[k];
            }
            if (xq > 0) least = std::min(least, cost_at(b, all, xq / qq, what));
        }
    }
    return least;
}

block drawn(std::mt19937& draw, int kind, std::size_t count) {
    std::normal_distribution<float> normal;
    block b;
    for (std::size_t i = 0; i < count; ++i) {
        const float v = normal(draw);
        b.x.push_back(kind == 0   ? v
                      : kind == 1 ? v + 2
                      : kind == 2 ? (i % 5 == 0 ? 8 * v : v)
                      : kind == 3 ? std::round(2 * v) / 2
                                  : v * std::exp2(static_cast<float>(draw() % 20) - 10));
        if (kind % 2 == 1) b.w.push_back(draw() % 6 == 0 ? 0.0f : std::exp2(static_cast<float>(draw() % 60) / 10 - 3));
    }
    return b;
}

struct searched_case {
    const char* format;
    std::int64_t first_zero, last_zero, rule_zero;
};

/// Compares searched_scale with brute force on random blocks of some lengths.
void check_blocks(const searched_case& c, int blocks, std::mt19937& draw) {
    const qk::format f = format_from(c.format);
    for (int i = 0; i < blocks; ++i) {
        const block b = drawn(draw, i % 5, std::size_t{3} + static_cast<std::size_t>(i) % 14);
        const qk::semantics how{.scale_rule = scale_rule::search,
                                .scale_objective = i % 3 == 0 ? scale_objective::mae : scale_objective::weighted};
        const float largest = std::abs(*std::ranges::max_element(b.x, {}, [](float v) { return std::abs(v); }));
        const std::vector<double> all = numbers(f, c.rule_zero);
        const scale_pair rule{largest / static_cast<float>(*std::ranges::max_element(all)), c.rule_zero};
        const scale_pair found = detail::searched_scale(f, how, {c.first_zero, c.last_zero}, rule, b.x, b.w);
        const double reached = cost_at(b, numbers(f, found.zero_point), static_cast<double>(found.scale), how.scale_objective),
                     started = cost_at(b, all, static_cast<double>(rule.scale), how.scale_objective),
                     best = least_of_all(b, f, c.first_zero, c.last_zero, how.scale_objective);
        const std::vector<double> zeros(b.x.size(), 0.0);
        const double rounding = 1e-6 * cost(b, zeros, how.scale_objective);  // of the scale to float32
        CHECK_MESSAGE(reached <= started + rounding, c.format, " block ", i);
        CHECK_MESSAGE(reached <= best + rounding, c.format, " block ", i);
        CHECK_MESSAGE(best <= reached + rounding, c.format, " block ", i);
        CHECK(found.zero_point >= c.first_zero);
        CHECK(found.zero_point <= c.last_zero);
    }
}

const std::vector<searched_case>& cases() {
    static const std::vector<searched_case> all{{"int4", 0, 0, 0},       {"int4", -1, 0, 0},    {"uint4", 0, 15, 8}, {"int2", -2, 1, 0},
                                                {"int:bits=3", 0, 0, 0}, {"uint2", 0, 3, 1},    {"int8", 0, 0, 0},   {"fp4_e2m1", 0, 0, 0},
                                                {"fp6_e2m3", 0, 0, 0},   {"fp8_e5m2", 0, 0, 0}, {"nf4", 0, 0, 0}};
    return all;
}

/// x [samples, 32] * w [32, 6]: the first channels are a hundred times the last ones.
tensor unequal_channels(std::int64_t samples) {
    std::mt19937 draw(5);
    std::normal_distribution<float> normal;
    tensor x(data_type::float32, {samples, 32});
    for (std::size_t i = 0; i < x.size(); ++i) x.as<float>()[i] = normal(draw) * std::exp2(-static_cast<float>(i % 32) / 5);
    return x;
}
model product_of_unequal_channels() {
    small_graph g;
    g.input("x", {1, 32}).output("y", {1, 6}).constant("w", {32, 6});
    g.node("MatMul", "product", {"x", "w"}, "y");
    return g.build();
}
double output_error(const model& m, const model& changed, const precision_plan& plan, const tensor& x) {
    const tensor right = evaluator(m).run({{"x", x}}).outputs.at("y");
    const tensor y = evaluator(changed).run({{"x", x}}, plan).outputs.at("y");
    return sqnr(right.as<float>(), y.as<float>());
}

}  // namespace

TEST_CASE("a searched scale and zero point are as good as the best of all scales, by brute force, in every objective") {
    std::mt19937 draw(31);
    for (const searched_case& c : cases()) check_blocks(c, std::string_view(c.format).find('8') != std::string_view::npos ? 4 : 30, draw);
}

// build/release/tests/searched_weights_test --no-skip -tc="100000 blocks": takes an hour, most of it in brute force over formats of 8 bits;
// -sc="nf4*" is one format.
TEST_CASE("100000 blocks" * doctest::skip()) {
    for (const searched_case& c : cases()) SUBCASE((std::string(c.format) + ", zero points from " + std::to_string(c.first_zero)).c_str()) {
            std::mt19937 draw(32);
            check_blocks(c, 100000, draw);
        }
}

TEST_CASE("powers of two, long rows, zeros and special values") {
    std::mt19937 draw(33);
    const qk::semantics how{.scale_rule = scale_rule::search};
    for (int i = 0; i < 50; ++i) {
        const block b = drawn(draw, i % 5, 32);
        const qk::format f = format_from("int4:pow2");
        const scale_pair s = detail::searched_scale(f, how, {0, 0}, {4.0f, 0}, b.x, b.w);
        CHECK(std::exp2(std::round(std::log2(s.scale))) == s.scale);
        const auto error = [&](double scale) { return cost_at(b, numbers(f, 0), scale, scale_objective::mse); };
        for (int e = -20; e < 10; ++e) CHECK(error(static_cast<double>(s.scale)) <= error(std::ldexp(1.0, e)) * (1 + 1e-6));
    }
    // More scales than are sorted at once.
    std::vector<float> many(20000);
    std::normal_distribution<float> normal;
    for (float& v : many) v = normal(draw);
    const block row{many, {}};
    const scale_pair best = detail::searched_scale(qk::int8, how, {0, 0}, {0.05f, 0}, many);
    for (const float s : {0.03f, 0.032f, 0.034f, 0.036f, 0.04f, 0.05f, best.scale * 1.001f, best.scale * 0.999f})
        CHECK(cost_at(row, numbers(qk::int8, 0), static_cast<double>(best.scale), scale_objective::mse) <=
              cost_at(row, numbers(qk::int8, 0), static_cast<double>(s), scale_objective::mse) * (1 + 1e-9));
    const std::vector<float> zeros(8, 0.0f);
    CHECK(detail::searched_scale(qk::int4, how, {0, 0}, {1.0f, 0}, zeros) == scale_pair{1.0f, 0});
    const std::vector<float> special{std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(), 7.0f, -3.0f};
    const scale_pair s = detail::searched_scale(qk::int4, how, {0, 0}, {3.0f, 0}, special);
    CHECK(s.scale == 1.0f);
    const std::vector<float> tiny{1e-44f, -3e-45f};
    CHECK(detail::searched_scale(qk::int4, how, {0, 0}, {1.0f, 0}, tiny) == scale_pair{1.0f, 0});
}

TEST_CASE("what was searched is found again: values on a grid keep their codes") {
    std::mt19937 draw(34);
    for (const char* format : {"int4", "uint4", "fp4_e2m1", "int8"}) {
        const block b = drawn(draw, 0, 64);
        const tensor w = make_tensor<float>({64, 1}, b.x);
        const precision what{.format = format_from(format), .block_size = 32, .scale_rule = scale_rule::search};
        const operand_axes axes{.block = 0, .channel = 1};
        const tensor once = applied(weight_quantizer(w, what, axes), w);
        CHECK_MESSAGE(same(applied(weight_quantizer(once, what, axes), once), once), format);
    }
}

TEST_CASE("the rule search in plans: words, blocks, channels, zero points; never a larger error than the rule it starts from") {
    std::mt19937 draw(35);
    std::vector<float> values;
    for (int i = 0; i < 8; ++i) {
        const block b = drawn(draw, i % 3, 48);
        values.insert(values.end(), b.x.begin(), b.x.end());
    }
    const tensor w = make_tensor<float>({8, 48}, values);
    for (const char* format : {"int4", "uint4", "int8", "int2", "fp4_e2m1", "fp8_e4m3fn", "nf4"})
        for (const int block : {0, 16, 32})
            for (const bool per_channel : {false, true}) {
                precision what = parse_side(format, true);
                what.per_channel = per_channel;
                if (block > 0) what.block_size = block;
                const operand_axes axes{.block = 1, .channel = 0};
                const quantizer rule = weight_quantizer(w, what, axes);
                what.scale_rule = scale_rule::search;
                const quantizer found = weight_quantizer(w, what, axes);
                CHECK(found.scale.size() == rule.scale.size());
                CHECK(sqnr(w.as<float>(), applied(found, w).as<float>()) >= sqnr(w.as<float>(), applied(rule, w).as<float>()));
            }
    CHECK(parse_side("int4@search", true).scale_rule == scale_rule::search);
    // Gaussian weights, blocks of 32: a dB more than the range's own scale. docs/reference/numerics.md has the numbers.
    std::vector<float> gaussian(1 << 14);
    std::normal_distribution<float> normal;
    for (float& v : gaussian) v = normal(draw);
    const tensor g = make_tensor<float>({1 << 9, 32}, gaussian);
    const auto decibels = [&](precision what) {
        what.block_size = 32;
        return sqnr(gaussian, applied(weight_quantizer(g, what, {.block = 1, .channel = 0}), g).as<float>());
    };
    const double plain = decibels({.format = qk::int4, .method = range_method::min_max});
    CHECK(plain == doctest::Approx(20.2).epsilon(0.01));
    CHECK(decibels({.format = qk::int4, .scale_rule = scale_rule::search}) > 21.3);
    CHECK(decibels({.format = qk::uint4, .symmetric = false, .scale_rule = scale_rule::search}) >
          decibels({.format = qk::uint4, .symmetric = false}) + 0.4);
}

TEST_CASE("the objective weighted lowers the output's error where channels are unequal, for scales of every kind") {
    const model m = product_of_unequal_channels();
    const tensor x = unequal_channels(64);
    struct row {
        const char* format;
        int block;
        double gain;
    };
    for (const row& r : {row{"int4", 16, 0.5}, row{"int4", 0, 0.5}, row{"uint4", 16, 0.5}, row{"fp4_e2m1", 16, 0.5}, row{"nvfp4", 0, 0.2},
                         row{"mxfp4", 0, -1e-9}}) {
        precision what = parse_precision(r.format);
        if (r.block > 0) what.block_size = r.block;
        what.scale_rule = scale_rule::search;
        const precision_plan plain = weights_only(m, what, true).plan;
        what.scale_objective = scale_objective::weighted;
        precision_plan plan = weights_only(m, what, true).plan;
        model changed = m;
        CHECK(weighs_plan_scales(m, plan) == !is_block_format(what.format));
        CHECK(weighs_scales(m, plan) == is_block_format(what.format));
        const precision_plan before = plan;
        const auto done =
            is_block_format(what.format) ? weigh_scales(changed, plan, {{"x", x}}) : weigh_plan_scales(changed, plan, {{"x", x}});
        REQUIRE(done.size() == 1);
        CHECK(done[0].left.empty());
        CHECK((plan == before) == is_block_format(what.format));
        const double without = output_error(m, m, plain, x), with = output_error(m, changed, plan, x);
        CHECK_MESSAGE(with > without + r.gain, r.format, " ", r.block, ": ", with, " dB, by mse ", without);
    }
}

TEST_CASE("an int32 bias keeps the scale of its product when the weight's scales are searched by what the layer reads") {
    small_graph g;
    g.input("x", {1, 32}).output("y", {1, 6}).constant("w", {32, 6}).constant("b", {6}, 0.7f);
    g.node("Gemm", "product", {"x", "w", "b"}, "y");
    const model m = g.build();
    const tensor x = unequal_channels(16);
    precision_plan plan;
    plan.edges[{"w", "product", 1}] = weight_quantizer(
        m.constant("w"),
        {.format = qk::int8, .per_channel = true, .scale_rule = scale_rule::search, .scale_objective = scale_objective::weighted},
        {.block = 0, .channel = 1});
    quantizer bias{.format = qk::int32, .axis = 0, .scale = {}, .zero_point = {}};
    for (const float s : plan.edges.begin()->second.scale) bias.scale.push_back(s * 0.25f);
    plan.edges[{"b", "product", 2}] = bias;
    const std::vector<float> before = plan.find({"w", "product", 1})->scale;
    weigh_plan_scales(m, plan, {{"x", x}});
    const std::vector<float> now = plan.find({"w", "product", 1})->scale;
    CHECK(now != before);
    for (std::size_t i = 0; i < 6; ++i) CHECK(plan.find({"b", "product", 2})->scale[i] == doctest::Approx(now[i] * 0.25f).epsilon(1e-6));
}
