// SPDX-License-Identifier: Apache-2.0
// Units that multiply and add with mistakes that no accumulator makes: each is seen, and named so or called unknown, never another device.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>

#include "qk/compare/bins.hpp"
#include "qk/compare/dot.hpp"
#include "qk/dot/text.hpp"
#include "qk/formats/codes/code.hpp"

namespace {

using qk::compare::dot_case;
using qk::compare::dot_task;
using qk::compare::found_accumulator;

float value(const qk::format& f, std::uint64_t code) { return qk::value_of(std::get<qk::floating>(f), static_cast<std::uint32_t>(code)); }

/// Returns a unit that adds in float32, one product after the other; a product is product(a, b), and the sum begins with start(c).
qk::compare::black_box unit(
    const dot_task& task, const std::function<float(float, float)>& product,
    const std::function<float(float)>& start = [](float c) { return c; }) {
    return [&task, product, start](const dot_case& q) {
        const auto [m, n, k] = q.shape;
        std::vector<std::uint64_t> d;
        for (std::size_t i = 0; i < m; ++i) {
            for (std::size_t j = 0; j < n; ++j) {
                float sum = start(std::bit_cast<float>(static_cast<std::uint32_t>(q.c[i * n + j])));
                for (std::size_t l = 0; l < k; ++l) sum += product(value(task.a, q.a[i * k + l]), value(task.b, q.b[l * n + j]));
                d.push_back(std::bit_cast<std::uint32_t>(sum));
            }
        }
        return d;
    };
}
float times(float a, float b) { return a * b; }

found_accumulator judged(const dot_task& task, const qk::compare::black_box& device) {
    const found_accumulator r = qk::compare::find_accumulator(task, device);
    INFO(r.mistake, ", ", std::string(qk::to_text(r.best).view()), ", ", r.met, " of ", r.questions);
    CHECK(!r.complete());
    CHECK(r.same.empty());
    CHECK(r.questions <= task.most_questions);
    REQUIRE(!r.unmet.empty());
    for (const auto& q : r.unmet) CHECK(q.computed != q.given);
    return r;
}

}  // namespace

TEST_CASE("mistakes of dot units are named") {
    const dot_task task{.a = qk::fp8_e4m3fn, .b = qk::fp8_e5m2, .k = 4, .most_questions = 5000};
    CHECK(judged(task, unit(task, times, [](float) { return -0.0f; })).mistake.starts_with("C is ignored"));
    CHECK(
        judged(task, unit(task, [](float a, float b) { return a == 0 || b == 0 ? 0.0f : a * b; })).mistake.find("a factor of 0 gives 0") ==
        0);
    CHECK(judged(task, unit(task, [](float a, float b) { return (std::abs(a) < 0x1p-6f ? std::copysign(0.0f, a) : a) * b; })).mistake ==
          "subnormal numbers of a are zero, those of b are not");
    CHECK(judged(task, unit(task,
                            [](float a, float b) {
                                const float p = a * b;
                                return std::isfinite(p) ? std::trunc(p * 0x1p12f) * 0x1p-12f : p;
                            }))
              .mistake == "products are cut to a unit of 2^-12");
    CHECK(judged(task, [&](const dot_case& q) { return std::vector<std::uint64_t>(q.c.size(), 0x41); }).mistake ==
          "every answer is the same, whatever the operands");
}

TEST_CASE("sums of eight products that wrap at 18 bits are named so, and not taken for a device") {
    const dot_task task{.a = qk::int8, .b = qk::int8, .k = 32, .most_questions = 5000};
    const auto r = judged(task, [](const dot_case& q) {
        const auto [m, n, k] = q.shape;
        std::vector<std::uint64_t> d;
        for (std::size_t i = 0; i < m; ++i) {
            for (std::size_t j = 0; j < n; ++j) {
                auto sum = static_cast<std::int64_t>(q.c[i * n + j]);
                for (std::size_t g = 0; g < k; g += 8) {
                    std::int64_t part = 0;
                    for (std::size_t l = g; l < g + 8; ++l)
                        part += static_cast<std::int8_t>(q.a[i * k + l]) * static_cast<std::int8_t>(q.b[l * n + j]);
                    sum += ((part + 131072) & 262143) - 131072;
                }
                d.push_back(static_cast<std::uint64_t>(sum) & 0xffffffffu);
            }
        }
        return d;
    });
    CHECK(r.mistake == "the sum of each 8 products wraps at 18 bits");
}

TEST_CASE("one multiply and add, with C") {
    const dot_task task{.a = qk::fp16, .b = qk::fp16, .k = 1};
    const auto r = qk::compare::find_accumulator(task, [&](const dot_case& q) {
        std::vector<std::uint64_t> d;
        for (std::size_t i = 0; i < q.c.size(); ++i)
            d.push_back(std::bit_cast<std::uint32_t>(std::fma(value(task.a, q.a[i / q.shape.n]), value(task.b, q.b[i % q.shape.n]),
                                                              std::bit_cast<float>(static_cast<std::uint32_t>(q.c[i])))));
        return d;
    });
    CHECK(r.complete());
}
