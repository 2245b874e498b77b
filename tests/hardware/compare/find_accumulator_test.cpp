// SPDX-License-Identifier: Apache-2.0
// Gives the search units that multiply and add, known by their answers alone: it must find each accumulator with at most 10,000 questions.
#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>

#include "dot_questions.hpp"
#include "qk/compare/dot.hpp"
#include "qk/dot/text.hpp"
#include "qk/formats/codes/code.hpp"

namespace {

using qk::accumulator;
using qk::compare::dot_case;
using qk::compare::dot_task;
using qk::compare::questions;

/// Returns a device that computes with accumulator `a`.
qk::compare::black_box of_text(const dot_task& task, const accumulator& a) {
    return [&task, a](const dot_case& c) {
        const questions asked(task, c);
        std::vector<std::uint64_t> d;
        for (std::size_t q = 0; q < asked.size(); ++q) d.push_back(asked.answer(a, q));
        return d;
    };
}
/// Returns a device that computes with `sum`, which gets the values of a row, the values of a column, and C.
qk::compare::black_box of_loop(const dot_task& task,
                               const std::function<float(const std::vector<float>&, const std::vector<float>&, float)>& sum) {
    return [&task, sum](const dot_case& c) {
        const auto value = [](const qk::format& f, std::uint64_t code) {
            return qk::value_of(std::get<qk::floating>(f), static_cast<std::uint32_t>(code));
        };
        std::vector<std::uint64_t> d;
        for (std::size_t i = 0; i < c.shape.m; ++i) {
            for (std::size_t j = 0; j < c.shape.n; ++j) {
                std::vector<float> a, b;
                for (std::size_t l = 0; l < c.shape.k; ++l) {
                    a.push_back(value(task.a, c.a[i * c.shape.k + l]));
                    b.push_back(value(task.b, c.b[l * c.shape.n + j]));
                }
                d.push_back(
                    std::bit_cast<std::uint32_t>(sum(a, b, std::bit_cast<float>(static_cast<std::uint32_t>(c.c[i * c.shape.n + j])))));
            }
        }
        return d;
    };
}

/// Returns the accumulator that the search finds. It must answer as the device does, to the search's questions and to others.
accumulator found(const std::string& name, const dot_task& task, const qk::compare::black_box& device) {
    std::size_t asked = 0;
    const auto from = std::chrono::steady_clock::now();
    const auto r = qk::compare::find_accumulator(task, [&](const dot_case& c) {
        asked += c.shape.m * c.shape.n;
        return device(c);
    });
    const std::string text(qk::to_text(r.best).view());
    INFO(name, ": ", text);
    if (std::getenv("QK_SHOW") != nullptr)
        MESSAGE(name, ": ", text, ", ", asked, " questions, ", r.met, " met, ",
                std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count(), " s");
    CHECK(r.complete());
    CHECK(asked == r.questions);
    CHECK(asked <= 10000);
    qk::compare::random_source other{12345};
    const dot_case fresh = qk::compare::make_questions(task, 36, 32, other);
    const std::vector<std::uint64_t> d = device(fresh);
    const questions again(task, fresh);
    std::size_t wrong = 0;
    for (std::size_t q = 0; q < again.size(); ++q) wrong += !qk::compare::same_answer(task, r.best, again.answer(r.best, q), d[q]);
    CHECK(wrong == 0);
    const auto back = qk::parse_accumulator(text);
    CHECK(back.error.view() == "");
    CHECK(back.value == r.best);
    return r.best;
}

accumulator parsed(const char* text) {
    const auto p = qk::parse_accumulator(text);
    REQUIRE_MESSAGE(p.error.empty(), std::string(p.error.view()));
    return p.value;
}

}  // namespace

TEST_CASE("loops in float32") {
    const dot_task task{.a = qk::fp16, .b = qk::fp16, .k = 16};
    accumulator a = found("fma, one after the other", task, of_loop(task, [](const auto& x, const auto& y, float c) {
                              for (std::size_t i = 0; i < x.size(); ++i) c = std::fma(x[i], y[i], c);
                              return c;
                          }));
    CHECK(a.sum == qk::summation::sequential);
    CHECK(a.fused);
    CHECK(a.place == qk::place::inside);
    const dot_task wide{.a = qk::bf16, .b = qk::bf16, .k = 16};
    a = found("two sums, even and odd terms", wide, of_loop(wide, [](const auto& x, const auto& y, float c) {
                  float sums[2] = {0, 0};
                  for (std::size_t i = 0; i < x.size(); ++i) sums[i % 2] = std::fma(x[i], y[i], sums[i % 2]);
                  return c + (sums[0] + sums[1]);
              }));
    CHECK(a.lanes == 2);
    CHECK(a.place == qk::place::after);
}

TEST_CASE("tensor cores and their like") {
    const dot_task fp8{.a = qk::fp8_e4m3fn, .b = qk::fp8_e5m2};
    const auto same_fields = [](const char* name, const dot_task& task, const char* text) {
        const accumulator a = parsed(text), b = found(name, task, of_text(task, a));
        INFO(name, ": ", std::string(qk::to_text(a).view()), " found as ", std::string(qk::to_text(b).view()));
        CHECK(b.sum == a.sum);
        CHECK(b.align == a.align);
        CHECK(b.groups == a.groups);
        CHECK(b.place == a.place);
        CHECK(b.round == a.round);
        CHECK(b.result == a.result);
    };
    same_fields("25 bits in groups of 16", fp8, "groups=16,align=25,round=toward-zero");
    same_fields("13 bits, groups of 32, cut to 13 bits", fp8, "groups=32,align=13,round=toward-zero,result=e8m13");
    same_fields("30 bits rounded down, after the accumulator", fp8, "groups=8,align=30,cut=down,place=after");
    const dot_task half{.a = qk::fp16, .b = qk::fp16, .k = 16, .d_bits = 16};
    same_fields("Volta's kind, half results", half, "groups=4,align=23,result=fp16,round=half-even");
    const dot_task brain{.a = qk::bf16, .b = qk::bf16, .k = 16};
    same_fields("flushing, in pairs", brain,
                "sum=pairwise,groups=4,place=after,flush-inputs=positive,flush-partials,zero=positive-products");
    same_fields("two stages", brain, "groups=8,align=24,place=after,join=31,product-overflow,zero=exact-positive");
    const dot_task four{.a = qk::mxfp4, .b = qk::mxfp8_e4m3};
    same_fields("MX blocks, exact", four, "sum=exact,groups=32");
    const dot_task nv{.a = qk::nvfp4, .b = qk::nvfp4, .k = 128};
    same_fields("NVFP4: the exact sum of 16 with its scales", nv, "groups=64,bundle=16,align=35,round=toward-zero");
    const dot_task block{.a = qk::bfp16, .b = qk::block_float{.block_size = 16, .exponent_bits = 8, .mantissa_bits = 5}, .k = 32};
    same_fields("block floats, one group a block", block, "groups=8,align=26,round=toward-zero");
}

TEST_CASE("integers") {
    const dot_task task{.a = qk::int8, .b = qk::int8, .k = 32};
    const accumulator a = found("24 bits, saturating every four", task, of_text(task, parsed("sum=integer,width=24,groups=4,saturate")));
    CHECK(a.width == 24);
    CHECK(a.groups == 4);
    CHECK(a.saturate);
}

namespace {

/// Returns an int8 device that turns its 32-bit sums into codes by `code`.
qk::compare::black_box requantizing(const std::function<std::int64_t(std::int64_t)>& code) {
    return [code](const dot_case& c) {
        std::vector<std::uint64_t> d;
        for (std::size_t i = 0; i < c.shape.m; ++i) {
            for (std::size_t j = 0; j < c.shape.n; ++j) {
                auto sum = static_cast<std::int64_t>(c.c[i * c.shape.n + j]);
                for (std::size_t l = 0; l < c.shape.k; ++l)
                    sum += static_cast<std::int8_t>(c.a[i * c.shape.k + l]) * static_cast<std::int8_t>(c.b[l * c.shape.n + j]);
                d.push_back(static_cast<std::uint64_t>(code(static_cast<std::int32_t>(sum))) & 255u);
            }
        }
        return d;
    };
}
std::int64_t away(double x) { return static_cast<std::int64_t>(std::round(x)); }

}  // namespace

TEST_CASE("integer sums that become codes") {
    const dot_task task{.a = qk::int8, .b = qk::int8, .k = 16, .d_bits = 8};
    using by = qk::requantize_by;
    const auto found_by = [&](const char* name, const std::function<std::int64_t(std::int64_t)>& code) {
        return found(name, task, requantizing(code)).requantize;
    };
    qk::requantization r = found_by("a float scale, int8", [](std::int64_t s) {
        return std::clamp<std::int64_t>(static_cast<std::int64_t>(std::nearbyint(static_cast<float>(s) * 0.0037f)) - 5, -128, 127);
    });
    CHECK(r.by == by::scale);
    CHECK(r.zero_point == -5);
    CHECK(r.output == qk::int8);
    CHECK(std::bit_cast<float>(r.scale_bits) == 0.0037f);
    r = found_by("a half, ties to even, uint8", [](std::int64_t s) {
        return std::clamp<std::int64_t>(static_cast<std::int64_t>(std::nearbyint(static_cast<double>(s) * 0.5)) + 128, 0, 255);
    });
    CHECK(r.by == by::scale);
    CHECK(std::bit_cast<float>(r.scale_bits) == 0.5f);
    CHECK(r.output == qk::uint8);
    r = found_by("gemmlowp: two roundings, ties away", [](std::int64_t s) {
        const std::int64_t high = away(static_cast<double>(s) * 1518500250 / 0x1p31);
        return std::clamp<std::int64_t>(away(static_cast<double>(high) / 16) + 3, -128, 127);
    });
    CHECK(r.by == by::gemmlowp);
    CHECK(r.shift == -4);
    CHECK(std::abs(r.multiplier / 1518500250.0 - 1) < 1e-3);
    r = found_by("one rounding, ties up", [](std::int64_t s) {
        return std::clamp<std::int64_t>(static_cast<std::int64_t>(std::floor(static_cast<double>(s) * 0.25 + 0.5)) - 128, -128, 127);
    });
    CHECK(r.by == by::multiplier);
    CHECK(r.multiplier == 1 << 30);
    CHECK(r.shift == -1);
    CHECK(r.zero_point == -128);
}

TEST_CASE("what no accumulator answers is said") {
    const dot_task task{.a = qk::fp16, .b = qk::fp16, .k = 8, .most_questions = 600};
    qk::compare::random_source noise{5};
    const auto r = qk::compare::find_accumulator(task, [&](const dot_case& c) {
        std::vector<std::uint64_t> d(c.shape.m * c.shape.n);
        for (std::uint64_t& v : d) v = noise.word();
        return d;
    });
    CHECK(!r.complete());
    CHECK(r.same.empty());
}
