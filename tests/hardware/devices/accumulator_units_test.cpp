// SPDX-License-Identifier: Apache-2.0
// The evaluator computes several columns side by side in vector lanes; for every unit of the catalogue whose operands have no blocks it
// must give the bits of matrix_multiply_add, on values that tell units apart.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <random>

#include "accumulator_cases.hpp"
#include "hardware/devices/device_columns.hpp"
#include "qk/dot.hpp"
#include "qk/dot/devices.hpp"
#include "qk/dot/text.hpp"
#include "small_graph.hpp"

using namespace qk::graph;

namespace {

/// Returns values that tell units apart. `mood` 0: ordinary, 1: any exponent, 2: subnormal results, 3: the upper end of the range,
/// 4: cancelling, 5: powers of two whose products are the smallest normal number and what rounds it, else: with Inf and NaN.
std::vector<float> hard_values(std::size_t count, int mood, std::mt19937& random) {
    std::vector<float> x(count);
    for (std::size_t i = 0; i < count; ++i) {
        const auto any = static_cast<std::uint32_t>(random());
        const auto with_exponent = [&](std::uint32_t e) { return std::bit_cast<float>((any & 0x807fffffu) | e << 23); };
        const auto place = static_cast<std::uint32_t>(random());
        switch (mood) {
            case 0: x[i] = with_exponent(124 + place % 4); break;
            case 1: x[i] = with_exponent(1 + place % 254); break;
            case 2: x[i] = with_exponent(place % 4 == 0 ? 0 : 48 + place % 24); break;
            case 3: x[i] = with_exponent(140 + place % 114); break;
            case 4: x[i] = place % 3 == 0 ? std::copysign(0.0f, with_exponent(127)) : std::trunc(4 * with_exponent(126)); break;
            case 5:
                x[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(with_exponent(place % 2 == 0 ? 64 : 51 + place % 4 / 2)) &
                                            0xffc00000u);
                break;
            default:
                x[i] = place % 40 == 0   ? std::copysign(std::numeric_limits<float>::infinity(), with_exponent(127))
                       : place % 64 == 1 ? std::numeric_limits<float>::quiet_NaN()
                                         : with_exponent(118 + place % 20);
        }
    }
    return x;
}

/// Checks y = MatMul(x, w) with inputs x [5,k] and w [k,21]; 21 columns are whole panels and a part of one.
void check_hard_matmul(const std::string& unit, const qk::format& a, const qk::format& b, std::mt19937& random) {
    for (const std::size_t k : {3, 40, 70}) {
        for (int mood = 0; mood < 7; ++mood) {
            const bool whole = qk::is_integer_format(a) || qk::is_integer_format(b);
            std::vector<float> rows = hard_values(5 * k, whole ? 0 : mood, random), columns = hard_values(k * 21, whole ? 0 : mood, random);
            for (auto* v : {&rows, &columns})
                for (float& x : *v) x *= whole ? std::ldexp(1.0f, 2 * mood + 1) : 1.0f;
            const coded ca{a}, cb{b};
            const auto how = *qk::parse_accumulator(unit);
            std::vector<std::uint64_t> d(5 * 21);
            qk::matrix_multiply_add(a, b, how, {5, 21, k}, {{ca.of(rows), {}, {}, {}}, 0}, {{cb.of(columns), {}, {}, {}}, 0}, {}, d);
            small_graph g;
            const auto length = static_cast<std::int64_t>(k);
            g.input("x", {5, length}).input("w", {length, 21}).output("y", {5, 21});
            g.node("MatMul", "product", {"x", "w"}, "y");
            tensor x(data_type::float32, {5, length}), w(data_type::float32, {length, 21});
            std::copy(rows.begin(), rows.end(), x.as<float>().begin());
            std::copy(columns.begin(), columns.end(), w.as<float>().begin());
            precision_plan plan;
            plan.tensors["x"].format = a;
            plan.tensors["w"].format = b;
            if (whole) plan.tensors["x"].scale = plan.tensors["w"].scale = {1.0f};
            const auto run = under(g.build(), {{"product", unit}}, {{"x", x}, {"w", w}}, plan);
            std::size_t different = 0;
            for (std::size_t i = 0; i < d.size(); ++i) {
                const float wanted = execute::stored_value(how, d[i]), got = run.outputs.at("y").as<float>()[i];
                different += std::bit_cast<std::uint32_t>(got) != std::bit_cast<std::uint32_t>(wanted) && (got == got || wanted == wanted);
            }
            INFO(unit, " k ", k, " mood ", mood);
            CHECK(different == 0);
        }
    }
}

}  // namespace

TEST_CASE("every unit that multiplies elements, on values that tell units apart") {
    std::mt19937 random(21);
    std::vector<std::string> seen;
    qk::devices::each([&](const qk::device& d) {
        if (qk::is_block_format(d.a) || d.accumulator.partial == qk::fp64) return;
        const std::string key =
            std::string(qk::to_text(d.a).view()) + std::string(qk::to_text(d.b).view()) + std::string(qk::to_text(d.accumulator).view());
        if (std::find(seen.begin(), seen.end(), key) != seen.end()) return;
        seen.push_back(key);
        check_hard_matmul(std::string(d.name), d.a, d.b, random);
    });
    CHECK(seen.size() >= 60);
    for (const char* unit :
         {"sum=sequential,fused=0", "sum=pairwise", "sum=pairwise,groups=8,lanes=2,place=after,flush-partials", "sum=pairwise,flush-tiny",
          "sum=sequential,groups=8,reverse", "sum=sequential,result=fp16,round=toward-zero",
          "sum=sequential,groups=12,lanes=3,place=after,fused=0,zero=positive-products,flush-partials",
          "groups=8,place=after,align=24,join=31,zero=positive", "align=26,cut=down,place=after,join=33,join-addend=26,zero=positive",
          "groups=6,lanes=2,place=after,align=24,join=28,join-cut=toward-zero,zero=exact-positive,result=bf16,partial=bf16"}) {
        check_hard_matmul(unit, qk::bf16, qk::fp16, random);
        check_hard_matmul(unit, qk::fp8_e5m2, qk::fp8_e4m3fn, random);
    }
    for (const char* unit :
         {"sum=integer,width=20,saturate,groups=4,place=after", "sum=integer,width=12,saturate", "sum=integer,width=30,groups=1,saturate"})
        for (const qk::integer& f : {qk::int8, qk::int16}) check_hard_matmul(unit, f, f, random);
}
