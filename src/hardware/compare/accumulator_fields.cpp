// SPDX-License-Identifier: Apache-2.0
#include "accumulator_fields.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "qk/dot/devices.hpp"

namespace qk::compare {
namespace {

template <auto Member>
void set_member(accumulator& a, int v) {
    a.*Member = static_cast<std::remove_reference_t<decltype(a.*Member)>>(v);
}
/// A register as a field's value: kind, exponent and mantissa bits in one number.
constexpr specials register_kinds[] = {specials::ieee, specials::fn, specials::none, specials::fnuz};
constexpr int coded_register(int e, int m, int kind = 0) { return kind * 1024 + e * 32 + m; }
constexpr int coded_register(floating f) { return coded_register(f.exponent_bits, f.mantissa_bits); }
constexpr floating register_of(int v) {
    const int e = v % 1024 / 32;
    const qk::specials kind = register_kinds[v / 1024];
    return {e, v % 32, (1 << (e - 1)) - int{kind.negative_zero}, kind};
}
template <auto Member>
void set_register(accumulator& a, int v) {
    a.*Member = register_of(v);
}
/// Sets partial sums and result alike, for devices whose registers have one format.
void set_registers(accumulator& a, int v) { a.partial = usual_partial(a.result = register_of(v)); }
/// Sets lanes of neighbouring terms.
void set_chunks(accumulator& a, int v) {
    a.lanes = v;
    a.chunked = true;
    a.place = qk::place::after;
}
/// Sets groups whose last term comes first.
void set_reversed_groups(accumulator& a, int v) {
    a.groups = v;
    a.lanes = 1;
    a.reverse = true;
}
void set_roundings(accumulator& a, int v) { a.partial_round = a.round = static_cast<rounding>(v); }

std::vector<int> from_to(int first, int last, std::vector<int> v = {}) {
    for (int n = first; n <= last; ++n) v.push_back(n);
    return v;
}
std::vector<int> powers(std::size_t below, std::vector<int> more) {
    for (int n = 1; static_cast<std::size_t>(n) < below; n *= 2) more.push_back(n);
    return more;
}

/// Returns the registers that a result may have: those of its stored width, or those that it shows in float32.
std::vector<int> result_registers(const dot_task& task, const seen_results& seen) {
    std::vector<int> v;
    if (task.d_bits <= 16) {
        const int width = seen.width == 0 ? task.d_bits : seen.width;
        // Of kinds that answer alike the usual one comes first: formats of 8 bits have NaN, narrower ones have none.
        for (const int kind : width >= 8 ? std::array{0, 1, 2, 3} : std::array{0, 2, 1, 3}) {
            for (int e = 1; e <= std::min(8, width - 1); ++e) {
                const int code = coded_register(e, width - 1 - e, kind);
                if (kind == 0 ? is_register(register_of(code)) : is_narrow_result(register_of(code))) v.push_back(code);
            }
        }
        return v;
    }
    const int m = seen.mantissa == 0 ? 23 : std::max(1, seen.mantissa);
    for (int e = std::max(2, seen.exponent_bits); e <= 8; ++e) {
        if (1 + e + m > 16) v.push_back(coded_register(e, m));
    }
    if (m < 23) v.push_back(coded_register(fp32));
    return v;
}
std::vector<int> partial_registers(const std::vector<int>& results) {
    std::vector<int> v;
    for (const int r : results) {
        if (is_register(register_of(r))) v.push_back(r);
    }
    for (const floating f : {fp32, e8m13, tf32, fp16, bf16}) v.push_back(coded_register(f));
    for (int m = 4; m <= 22; ++m) v.push_back(coded_register(8, m));
    for (const int e : {5, 6, 7}) {
        for (int m = 4; m <= 23; ++m) v.push_back(coded_register(e, m));
    }
    std::sort(v.begin(), v.end());
    v.erase(std::unique(v.begin(), v.end()), v.end());
    return v;
}

}  // namespace

void seen_results::look(const dot_task& task, std::uint64_t d) {
    width = std::max(width, static_cast<int>(std::bit_width(d & ((std::uint64_t{1} << task.d_bits) - 1))));
    if (is_integer_format(task.a) || task.d_bits != 32) return;
    const auto w = static_cast<std::uint32_t>(d);
    const auto field = static_cast<int>(w >> 23 & 255u);
    if (field == 255 || (w & 0x7fffffffu) == 0) return;
    if (field != 0) mantissa = std::max(mantissa, (w & 0x7fffffu) == 0 ? 1 : 23 - std::countr_zero(w & 0x7fffffu));
    while (exponent_bits < 8 && (field == 0 || field - 127 >= 1 << (exponent_bits - 1))) ++exponent_bits;
}

std::vector<field> fields_of(const dot_task& task, const seen_results& seen) {
    using a = accumulator;
    std::vector<int> groups{0};
    for (std::size_t n = 1; n <= std::min<std::size_t>(task.k, 128); ++n) groups.push_back(static_cast<int>(n));
    std::vector<field> all{{set_member<&a::groups>, task.k <= 128 ? groups : powers(task.k, groups)}};
    if (is_integer_format(task.a)) {
        all.push_back({set_member<&a::width>, from_to(8, 64)});
        all.push_back({set_member<&a::saturate>, {0, 1}});
        all.push_back({set_member<&a::place>, {0, 1}});
        return all;
    }
    const std::vector<int> roundings{static_cast<int>(rounding::half_even), static_cast<int>(rounding::toward_zero),
                                     static_cast<int>(rounding::half_away), static_cast<int>(rounding::down),
                                     static_cast<int>(rounding::up)};
    const std::vector<int> cuts{static_cast<int>(rounding::toward_zero), static_cast<int>(rounding::down),
                                static_cast<int>(rounding::to_odd)};
    const std::vector<int> formats = result_registers(task, seen);
    all.insert(all.end(), {{set_member<&a::align>, from_to(1, 48)},
                           {set_member<&a::place>, {0, 1}},
                           {set_roundings, roundings},
                           {set_member<&a::round>, roundings},
                           {set_member<&a::partial_round>, roundings},
                           {set_registers, formats},
                           {set_register<&a::result>, formats},
                           {set_register<&a::partial>, partial_registers(formats)},
                           {set_member<&a::lanes>, {1, 2, 3, 4, 5, 6, 7, 8, 16}},
                           {set_member<&a::chunked>, {0, 1}},
                           {set_chunks, {2, 3, 4, 5, 6, 7, 8, 16}},
                           {set_reversed_groups, groups},
                           {set_member<&a::bundle>, {1, 2, 4, 8, 16}},
                           {set_member<&a::cut>, cuts},
                           {set_member<&a::lost_is_zero>, {0, 1}},
                           {set_member<&a::fused>, {0, 1}},
                           {set_member<&a::reverse>, {0, 1}},
                           {set_member<&a::sum>, {0, 1, 2, 3}},
                           {set_member<&a::join>, from_to(20, 36, {0})},
                           {set_member<&a::join_addend>, from_to(20, 32)},
                           {set_member<&a::join_drop>, from_to(20, 34, {0})},
                           {set_member<&a::join_cut>, {static_cast<int>(rounding::down), static_cast<int>(rounding::toward_zero)}},
                           {set_member<&a::operand_bits>, {0, 7, 10}},
                           {set_member<&a::flush_inputs>, {0, 1, 2, 3}},
                           {set_member<&a::flush_partials>, {0, 1}},
                           {set_member<&a::flush_tiny>, {0, 1}},
                           {set_member<&a::product_overflow>, {0, 1}},
                           {set_member<&a::product_range>, {0, 1}},
                           {set_member<&a::overflow>, {0, 1, 2}},
                           {set_member<&a::zero>, {0, 1, 2, 3}}});
    return all;
}

namespace {

/// Adds sequential sums of groups in reverse. The order of groups shows only where their size is right.
void add_reversed(floating r, int k, const auto& add) {
    for (const rounding round : {rounding::half_even, rounding::toward_zero}) {
        for (const bool fused : {true, false}) {
            for (int groups = 2; groups <= std::min(16, k); ++groups)
                add({.sum = summation::sequential,
                     .groups = groups,
                     .fused = fused,
                     .partial = r,
                     .result = r,
                     .partial_round = round,
                     .round = round,
                     .reverse = true});
        }
    }
}

}  // namespace

std::vector<accumulator> seeds_of(const dot_task& task, const seen_results& seen) {
    std::vector<accumulator> all;
    const auto add = [&](accumulator a) {
        a.addend = task.c;
        a = meaningful(a);
        if (check(a).empty() && check_operands(task.a, task.b, a).empty() && std::find(all.begin(), all.end(), a) == all.end())
            all.push_back(a);
    };
    if (is_integer_format(task.a)) {
        add({.sum = summation::integer});
        add({.sum = summation::integer, .groups = 1, .saturate = true});
        return all;
    }
    const bool narrow = task.d_bits <= 16;
    for (const int code : result_registers(task, seen)) {
        const floating r = register_of(code);
        if (is_register(r) && !narrow) add_reversed(r, static_cast<int>(task.k), add);
        for (const rounding round : {rounding::half_even, rounding::toward_zero}) {
            if (narrow) add({.partial = usual_partial(r), .result = r, .partial_round = round, .round = round});
        }
    }
    std::vector<floating> results{narrow ? fp16 : fp32, narrow ? bf16 : e8m13};
    if (narrow && seen.width > 3 && seen.width != 16) {
        const std::vector<int> all_of_them = result_registers(task, seen);
        results = {register_of(all_of_them[all_of_them.size() / 2]), register_of(all_of_them.back())};
    }
    if (!narrow && seen.mantissa != 0)
        results = {register_of(result_registers(task, seen).front()), {8, seen.mantissa, 127, specials::ieee}};
    if (results[0] == results[1]) results.pop_back();
    for (const floating r : results) {
        for (const floating partial : {fp32, usual_partial(r)}) {
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
