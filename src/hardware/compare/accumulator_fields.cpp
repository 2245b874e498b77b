// SPDX-License-Identifier: Apache-2.0
#include "accumulator_fields.hpp"

#include <algorithm>

#include "qk/dot/devices.hpp"

namespace qk::compare {
namespace {

template <auto Member>
void set_member(accumulator& a, int v) {
    a.*Member = static_cast<std::remove_reference_t<decltype(a.*Member)>>(v);
}
constexpr floating registers[] = {fp32, e8m13, tf32, fp16, bf16};
template <auto Member>
void set_register(accumulator& a, int v) {
    a.*Member = registers[v];
}
/// Sets partial sums and result alike, for devices whose registers have one format.
void set_registers(accumulator& a, int v) { a.partial = a.result = registers[v]; }
void set_roundings(accumulator& a, int v) { a.partial_round = a.round = static_cast<rounding>(v); }

std::vector<int> from_to(int first, int last, std::vector<int> v = {}) {
    for (int n = first; n <= last; ++n) v.push_back(n);
    return v;
}
std::vector<int> powers(std::size_t below, std::vector<int> more) {
    for (int n = 1; static_cast<std::size_t>(n) < below; n *= 2) more.push_back(n);
    return more;
}

}  // namespace

std::vector<field> fields_of(const dot_task& task) {
    using a = accumulator;
    std::vector<field> all{{set_member<&a::groups>, powers(task.k, {0})}};
    if (is_integer_format(task.a)) {
        all.push_back({set_member<&a::width>, from_to(8, 64)});
        all.push_back({set_member<&a::saturate>, {0, 1}});
        return all;
    }
    const std::vector<int> roundings{static_cast<int>(rounding::half_even), static_cast<int>(rounding::toward_zero),
                                     static_cast<int>(rounding::half_away), static_cast<int>(rounding::down),
                                     static_cast<int>(rounding::up)};
    const std::vector<int> formats = task.d_bits == 16 ? std::vector<int>{3, 4} : std::vector<int>{0, 1, 2};
    all.insert(all.end(), {{set_member<&a::align>, from_to(1, 48)},
                           {set_member<&a::place>, {0, 1}},
                           {set_roundings, roundings},
                           {set_member<&a::round>, roundings},
                           {set_member<&a::partial_round>, roundings},
                           {set_registers, formats},
                           {set_register<&a::result>, formats},
                           {set_register<&a::partial>, {0, 1, 2, 3, 4}},
                           {set_member<&a::lanes>, {1, 2, 4, 8}},
                           {set_member<&a::bundle>, {1, 2, 4, 8, 16}},
                           {set_member<&a::cut>, {static_cast<int>(rounding::toward_zero), static_cast<int>(rounding::down)}},
                           {set_member<&a::fused>, {0, 1}},
                           {set_member<&a::reverse>, {0, 1}},
                           {set_member<&a::sum>, {0, 1, 2, 3}},
                           {set_member<&a::join>, from_to(20, 36, {0})},
                           {set_member<&a::join_addend>, from_to(20, 32)},
                           {set_member<&a::join_drop>, from_to(20, 34, {0})},
                           {set_member<&a::join_cut>, {static_cast<int>(rounding::down), static_cast<int>(rounding::toward_zero)}},
                           {set_member<&a::operand_bits>, {0, 7, 10}},
                           {set_member<&a::flush_inputs>, {0, 1, 2}},
                           {set_member<&a::flush_partials>, {0, 1}},
                           {set_member<&a::product_overflow>, {0, 1}},
                           {set_member<&a::overflow>, {0, 1, 2}},
                           {set_member<&a::zero>, {0, 1, 2, 3}}});
    return all;
}

std::vector<accumulator> seeds_of(const dot_task& task) {
    std::vector<accumulator> all;
    const auto add = [&](accumulator a) {
        a.addend = task.c;
        if (check(a).empty() && check_operands(task.a, task.b, a).empty() && std::find(all.begin(), all.end(), a) == all.end())
            all.push_back(a);
    };
    if (is_integer_format(task.a)) {
        add({.sum = summation::integer});
        add({.sum = summation::integer, .groups = 1, .saturate = true});
        return all;
    }
    const bool narrow = task.d_bits == 16;
    for (const floating r : {narrow ? fp16 : fp32, narrow ? bf16 : e8m13}) {
        for (const floating partial : {fp32, r}) {
            for (const rounding round : {rounding::half_even, rounding::toward_zero}) {
                const accumulator plain{.partial = partial, .result = r, .partial_round = round, .round = round};
                accumulator a = plain;
                add(a);
                a.sum = summation::aligned;
                for (const int align : {13, 23, 24, 25, 30}) {
                    a.align = align;
                    for (const int groups : {0, 4, 8, 16}) {
                        a.groups = groups;
                        for (const qk::place where : {qk::place::inside, qk::place::after}) {
                            a.place = where;
                            add(a);
                        }
                    }
                }
                for (const summation s : {summation::sequential, summation::pairwise}) {
                    for (const int groups : {0, 4}) {
                        for (const int lanes : {1, 2, 4}) {
                            for (const bool fused : {true, false}) {
                                a = plain;
                                a.sum = s;
                                a.groups = groups;
                                a.lanes = lanes;
                                a.fused = fused;
                                a.place = groups == 0 && lanes == 1 ? qk::place::inside : qk::place::after;
                                add(a);
                            }
                        }
                    }
                }
            }
        }
    }
    devices::each([&](const device& d) {
        const bool fits =
            d.accumulator.sum != summation::integer && d.accumulator.partial != fp64 && (bits(d.accumulator.result) <= 16) == narrow;
        if (fits) add(d.accumulator);
    });
    return all;
}

}  // namespace qk::compare
