// SPDX-License-Identifier: Apache-2.0
#include "graph/pipeline/judge.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "graph/evaluate/execute/quantize_value.hpp"
#include "graph/ops/elements.hpp"
#include "graph/ops/op.hpp"
#include "graph/ops/widened.hpp"

namespace qk::graph::pipeline {
namespace {

using numbers = std::vector<double>;

/// Writes a number into a text that has one place for it, as printf does.
std::string filled(const char* format, double value) {
    char text[256];
    std::snprintf(text, sizeof text, format, value);
    return text;
}
std::string count_of(std::size_t n, const std::string& what) { return std::to_string(n) + " " + what + (n == 1 ? "" : "s"); }

/// Half the distance of neighbours of 1 in the type that both sides compute in.
double half_place(data_type t) { return t == data_type::float16 ? 0x1p-11 : t == data_type::bfloat16 ? 0x1p-8 : 0x1p-24; }

double largest_of(const numbers& x) {
    double most = 0;
    for (const double v : x)
        if (std::isfinite(v)) most = std::max(most, std::fabs(v));
    return most;
}

/// Returns by how much each value may differ without departing, and says why in `words`.
numbers allowed(const leeway& room, const numbers& x, data_type type, std::string& words) {
    const double u = half_place(type);
    numbers all(x.size());
    if (room.inexact == 0) {
        words = "no sum lies between: up to 4 half units in the last place";
        for (std::size_t i = 0; i < x.size(); ++i) all[i] = 4 * u * std::fabs(x[i]);
    } else if (!room.bound.empty()) {
        words = filled("the order of a sum of k = %.0f products: (4 sqrt(k) + 16) half units in the last place of the sum of their sizes",
                       room.terms);
        const double each = u * (4 * std::sqrt(room.terms) + 16);
        for (std::size_t i = 0; i < x.size(); ++i) all[i] = each * room.bound[i] + 4 * u * std::fabs(x[i]);
    } else {
        const double share = (type == data_type::float32 || type == data_type::float64 ? 256 : type == data_type::float16 ? 8 : 4) * u;
        words = count_of(room.inexact, "operator") +
                filled(" that runtimes compute in ways of their own: %.2g of the largest value each", share);
        std::ranges::fill(all, share * static_cast<double>(room.inexact) * largest_of(x));
    }
    return all;
}

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

/// Which elements differ by more than is allowed.
struct verdicts {
    std::vector<bool> beyond;
    std::string words;
};

/// Codes of QuantizeLinear: those that the input reaches within what it may differ itself.
verdicts judge_codes(const judged_tensor& both, const numbers& ours, const numbers& theirs) {
    verdicts v{.beyond = std::vector<bool>(ours.size()), .words = {}};
    const numbers x = numbers_of(*both.before), room = allowed(both.room_before, x, both.before->type(), v.words);
    v.words = "a code on the other side of a tie that its input reaches (" + v.words + ")";
    const double low = static_cast<double>(ops::lowest_code(both.ours.type())),
                 high = static_cast<double>(ops::highest_code(both.ours.type()));
    for (std::size_t i = 0; i < ours.size(); ++i) {
        if (same(ours[i], theirs[i])) continue;
        const double y = x[i] / both.unit[i], zero = both.zero.empty() ? 0 : both.zero[i];
        const double reach = room[i] / both.unit[i] + 8 * half_place(both.before->type()) * std::fabs(y);
        const double least = std::clamp(std::ceil(y - reach - 0.5) + zero, low, high),
                     most = std::clamp(std::floor(y + reach + 0.5) + zero, low, high);
        v.beyond[i] = !(theirs[i] >= least && theirs[i] <= most);
    }
    return v;
}

/// Values behind a plan's quantizer: those that it gives within what its input may differ.
verdicts judge_quantized(const judged_tensor& both, const numbers& ours, const numbers& theirs) {
    verdicts v{.beyond = std::vector<bool>(ours.size()), .words = {}};
    const numbers x = numbers_of(*both.before), room = allowed(both.room_before, x, both.before->type(), v.words);
    v.words = "a code on the other side of a tie that its input reaches (" + v.words + ")";
    class : public allocator {
        std::shared_ptr<std::byte> allocate(std::size_t bytes) override { return thread_memory::of_heap(bytes); }
    } heap;
    const auto moved = [&](double way) {
        std::vector<float> at(x.size());
        for (std::size_t i = 0; i < x.size(); ++i) at[i] = static_cast<float>(x[i] + way * (room[i] + 8 * 0x1p-24 * std::fabs(x[i])));
        return numbers_of(execute::quantized(*both.how, make_tensor<float>(both.before->shape(), std::span<const float>(at)), false, heap));
    };
    const numbers low = moved(-1), high = moved(1);
    for (std::size_t i = 0; i < ours.size(); ++i) {
        if (same(ours[i], theirs[i])) continue;
        const double last = 8 * 0x1p-24 * std::fabs(ours[i]);
        v.beyond[i] =
            !(theirs[i] >= std::min({low[i], high[i], ours[i]}) - last && theirs[i] <= std::max({low[i], high[i], ours[i]}) + last);
    }
    return v;
}

/// Whole numbers that other operators make: sums of codes are exact, requantized ones and choices may fall to the other side of a tie.
verdicts judge_integers(const judged_tensor& both, const numbers& ours, const numbers& theirs) {
    verdicts v{.beyond = std::vector<bool>(ours.size()), .words = "whole numbers: the same"};
    std::size_t near = 0, far = 0;
    for (std::size_t i = 0; i < ours.size(); ++i) {
        v.beyond[i] = !same(ours[i], theirs[i]);
        if (v.beyond[i]) ++(std::fabs(ours[i] - theirs[i]) <= 1 ? near : far);
    }
    if (both.room.inexact == 0 || ours.size() < 16) return v;
    v.words = "whole numbers behind operators that round in their own way: the same, but for 1 in at most one of 100 values";
    if (far == 0 && near <= std::max<std::size_t>(1, ours.size() / 100)) v.beyond.assign(ours.size(), false);
    return v;
}

verdicts judge_floats(const judged_tensor& both, const numbers& ours, const numbers& theirs) {
    verdicts v{.beyond = std::vector<bool>(ours.size()), .words = {}};
    const numbers room = allowed(both.room, ours, both.ours.type(), v.words);
    for (std::size_t i = 0; i < ours.size(); ++i) v.beyond[i] = !same(ours[i], theirs[i]) && !(std::fabs(ours[i] - theirs[i]) <= room[i]);
    return v;
}

// What explains a departure.

/// Returns the channel of each element: axis 1 of pictures and sequences of vectors with one, else the last axis.
std::pair<std::size_t, std::size_t> channels_of(const dims& shape) {
    if (shape.size() < 2) return {1, 1};
    if (shape.size() == 4 || shape.size() == 5) {
        std::size_t inner = 1;
        for (std::size_t k = 2; k < shape.size(); ++k) inner *= static_cast<std::size_t>(shape[k]);
        return {static_cast<std::size_t>(shape[1]), inner};
    }
    return {static_cast<std::size_t>(shape.back()), 1};
}

/// One factor and one shift that make a group of values from another, and whether they do.
struct group {
    double xx = 0, xy = 0, shift = 0, scale = 0;
    std::size_t count = 0;
};

/// Says whether theirs is ours times a factor, or plus a constant, for all values or by channel. `tolerance`: what else may be between.
std::string linear_rule(const numbers& ours, const numbers& theirs, const std::vector<bool>& beyond, const dims& shape, double tolerance,
                        double shift_tolerance, bool codes) {
    const auto [channels, inner] = channels_of(shape);
    for (const std::size_t groups : {std::size_t{1}, channels}) {
        std::vector<group> all(groups);
        const auto of = [&, each = inner](std::size_t i) -> group& { return all[groups == 1 ? 0 : i / each % groups]; };
        for (std::size_t i = 0; i < ours.size(); ++i) {
            group& g = of(i);
            g.xx += ours[i] * ours[i], g.xy += ours[i] * theirs[i], g.shift += theirs[i] - ours[i], ++g.count;
        }
        for (group& g : all) g.scale = g.xx > 0 ? g.xy / g.xx : 1, g.shift /= static_cast<double>(std::max<std::size_t>(1, g.count));
        std::size_t scaled = 0, shifted = 0, other_scale = 0, other_shift = 0;
        std::size_t departing = 0, departing_scaled = 0, departing_shifted = 0;
        for (std::size_t i = 0; i < ours.size(); ++i) {
            const group& g = of(i);
            const bool is_scaled = std::fabs(theirs[i] - g.scale * ours[i]) <= tolerance * std::max(1.0, std::fabs(g.scale));
            const bool is_shifted = std::fabs(theirs[i] - ours[i] - g.shift) <= shift_tolerance;
            scaled += is_scaled, shifted += is_shifted;
            if (beyond[i]) ++departing, departing_scaled += is_scaled, departing_shifted += is_shifted;
        }
        for (const group& g : all) other_scale += std::fabs(g.scale - 1) > 1e-6, other_shift += std::fabs(g.shift) > 4 * shift_tolerance;
        const auto explains = [&](std::size_t all_values, std::size_t those) {
            return all_values * 50 >= ours.size() * 49 && those * 50 >= departing * 49;
        };
        if (other_shift != 0 && explains(shifted, departing_shifted) && shifted >= scaled)
            return groups != 1
                       ? std::to_string(other_shift) + " of " + std::to_string(groups) + " channels have a constant added: another bias"
                   : codes ? filled("every code is %+.3g: another zero point", all[0].shift)
                           : filled("every value is %+.4g: another constant is added", all[0].shift);
        if (other_scale != 0 && explains(scaled, departing_scaled) && groups * 2 <= ours.size())
            return groups != 1
                       ? std::to_string(other_scale) + " of " + std::to_string(groups) +
                             " channels have a factor of their own: other scales"
                       : (codes ? "every code is " : "every value is ") + filled("%.6g times as large: another scale", all[0].scale);
        if (channels <= 1) break;
    }
    return {};
}

std::string rule_for(const judged_tensor& both, const numbers& ours, const numbers& theirs, const std::vector<bool>& beyond,
                     const std::string& op_type) {
    std::size_t swapped = 0, different = 0, clipped = 0, unclipped = 0, edge = 0, pairs = 0;
    const bool values = both.ours.type() == data_type::float32 || ops::is_half(both.ours.type());
    const auto code = [&](double v, std::size_t i) {  // two neighbours may lie in channels or blocks of their own scales and zero points
        return both.unit.empty() || !values ? v : std::nearbyint(v / both.unit[i]) + (both.zero.empty() ? 0 : both.zero[i]);
    };
    for (std::size_t i = 0; i < ours.size(); ++i) {
        different += beyond[i];
        clipped += same(theirs[i], std::max(ours[i], 0.0));
        unclipped += same(ours[i], std::max(theirs[i], 0.0));
        if (i % 2 != 0 || i + 1 == ours.size() || !(beyond[i] || beyond[i + 1])) continue;
        const bool exchanged = code(ours[i], i) == code(theirs[i + 1], i + 1) && code(ours[i + 1], i + 1) == code(theirs[i], i);
        if (exchanged) swapped += std::size_t{beyond[i]} + std::size_t{beyond[i + 1]}, ++pairs;
    }
    if (swapped != 0 && swapped == different)
        return count_of(pairs, "pair") + " of neighbours exchanged: the two codes of a byte are swapped";
    if (clipped == ours.size()) return "it is clipped at 0: a Relu is applied to it";
    if (unclipped == ours.size()) return "it is not clipped at 0: a Relu is missing";
    const bool codes = ops::is_integer_type(both.ours.type());
    if (codes) {
        const double low = static_cast<double>(ops::lowest_code(both.ours.type())),
                     high = static_cast<double>(ops::highest_code(both.ours.type()));
        numbers inside_ours, inside_theirs;  // without what saturates, which no longer shows how far it is off
        std::vector<bool> inside;
        for (std::size_t i = 0; i < ours.size(); ++i) {
            const double zero = both.zero.empty() ? 0 : both.zero[i];
            if (theirs[i] <= low || theirs[i] >= high || ours[i] <= low || ours[i] >= high) {
                edge += beyond[i];
                continue;
            }
            inside_ours.push_back(ours[i] - zero), inside_theirs.push_back(theirs[i] - zero), inside.push_back(beyond[i]);
        }
        if (different != 0 && edge == different) return "all of them lie at the end of the range: it saturates elsewhere";
        const dims flat{static_cast<std::int64_t>(inside_ours.size())};
        return linear_rule(inside_ours, inside_theirs, inside, flat, 1.01, 0.01, true);
    }
    if (!both.unit.empty()) {
        numbers a(ours), b(theirs);
        for (std::size_t i = 0; i < a.size(); ++i) a[i] /= both.unit[i], b[i] /= both.unit[i];
        if (const std::string found = linear_rule(a, b, beyond, both.ours.shape(), 0.01, 0.01, true); !found.empty()) return found;
    }
    const double near = 1e-5 * std::max(largest_of(ours), largest_of(theirs));
    if (const std::string found = linear_rule(ours, theirs, beyond, both.ours.shape(), near, near, false); !found.empty()) return found;
    const op_facts& is = facts_of_type(op_type);
    if (is.has(ops::on_codes) && is.has(ops::repeats) && !is.has(ops::makes_codes) && different * 4 <= ours.size())
        return std::to_string(different) + " of " + std::to_string(ours.size()) + " codes are others";
    return {};
}

}  // namespace

double decibels(double signal, double noise) {
    if (noise == 0) return std::numeric_limits<double>::infinity();
    return signal == 0 ? -std::numeric_limits<double>::infinity() : 10 * std::log10(signal / noise);
}

void judge(const judged_tensor& both, tensor_diff& d) {
    const numbers ours = numbers_of(both.ours), theirs = numbers_of(both.theirs);
    if (ours.empty() && both.ours.size() != 0) {
        d.not_compared = "it holds no numbers";
        return;
    }
    const bool whole = ops::is_integer_type(both.ours.type()) || both.ours.type() == data_type::boolean;
    verdicts v = whole && both.before && !both.unit.empty() ? judge_codes(both, ours, theirs)
                 : whole                                    ? judge_integers(both, ours, theirs)
                 : both.how && both.before                  ? judge_quantized(both, ours, theirs)
                                                            : judge_floats(both, ours, theirs);
    double signal = 0, noise = 0;
    std::size_t beyond = 0;
    for (std::size_t i = 0; i < ours.size(); ++i) {
        if (std::isfinite(ours[i])) signal += ours[i] * ours[i];
        if (same(ours[i], theirs[i])) continue;
        ++d.different;
        const double away = std::fabs(ours[i] - theirs[i]);
        noise += away * away;
        beyond += v.beyond[i];
        d.largest = std::max(d.largest, std::isnan(away) ? std::numeric_limits<double>::infinity() : away);
        const double place = std::exp2(std::floor(std::log2(std::max({std::fabs(ours[i]), std::fabs(theirs[i]), 0x1p-126}))) + 1) *
                             half_place(both.ours.type());
        if (!whole) d.ulps = std::max(d.ulps, away / place);
        if (whole && both.ours.type() != data_type::boolean) d.codes = std::max(d.codes.value_or(0), away);
        else if (!both.unit.empty()) d.codes = std::max(d.codes.value_or(0), away / both.unit[i]);
    }
    if (d.different == 0 && !d.codes && (whole || !both.unit.empty())) d.codes = 0;
    if ((both.room.quantized_within || both.room_before.quantized_within) && decibels(signal, noise) >= 40) {
        beyond = 0;
        v.words = "codes within what is fused may fall to the other side of a tie: 40 dB";
    }
    d.decibels = d.values == 0 ? decibels(signal, noise) : std::min(d.decibels, decibels(signal, noise));
    d.values += ours.size();
    if (d.beyond == 0 && beyond > 0) d.rule = rule_for(both, ours, theirs, v.beyond, d.op_type);
    d.beyond += beyond;
    d.judged_by = v.words;
}

}  // namespace qk::graph::pipeline
