// SPDX-License-Identifier: Apache-2.0
// Plants bugs drawn from seeds in a circuit of its own, and counts how often compare's headline is right. A headline is judged by what it
// says of values that it has not seen: the mistakes that it names, made there, must give the device's values.
//
//     QK_CORPUS=docs/results build/release/tests/corpus_test     remakes docs/results/diagnosis.md and data/diagnosis.json (200 bugs)
//
// QK_CORPUS_SEED=N draws other bugs.
#include <doctest/doctest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <map>

#include "../../core/test_inputs.hpp"
#include "circuit.hpp"
#include "diagnose.hpp"
#include "expected_causes.hpp"
#include "qk/qk.hpp"

namespace {

using circuit::beyond;
using circuit::converter;
using circuit::lane;
using circuit::place;
using circuit::round_to;

constexpr std::size_t row = 96;

/// Returns rows of 96 values: ties and their neighbours in many binades, powers of two, values near the largest, zeros, subnormal float32.
values corpus_inputs(std::uint64_t seed, std::size_t rows, bool blocks) {
    values x;
    generator g{seed};
    while (x.size() < rows * row) {
        const std::uint32_t kind = g.below(16), top = !blocks ? 130 : kind == 0 ? 1 + g.below(24) : 90 + g.below(70);
        for (int k = 0; k < 32; ++k) {
            const std::uint32_t below = g.below(kind == 1 ? 3 : blocks ? 18 : 24);
            if (g.below(24) == 0) x.push_back(g.below(2) != 0 ? 0.0f : -0.0f);
            else if (g.below(24) == 0) x.push_back(assemble(g.below(2) != 0, top > below ? top - below : 0, 0));
            else if (g.below(12) == 0) x.push_back(assemble(g.below(2) != 0, top, 0x7fffffu & ~(g.word() >> g.below(32) >> 10)));
            else x.push_back(tie(g, top > below ? top - below : 0));
        }
        if (kind < 8)
            x[x.size() - 1 - g.below(32)] = assemble(g.below(2) != 0, top + (blocks ? 1 + g.below(3) : g.below(8)), g.word() & 0x7f0000u);
    }
    return x;
}

/// A bug: how it changes a converter, and words that the sentence of its cause must have; none: any cause that foretells the device.
struct bug {
    std::string name;
    std::vector<std::string> words;
    std::function<void(converter&)> plant;
    int stage;                                              ///< bugs of one stage exclude each other
    enum { any, floats, blocks, scaled, shared } to = any;  ///< shared: block floats
};

float largest_of_lanes(const values& v, std::size_t first, std::size_t count, const std::function<bool(std::size_t)>& in) {
    float m = 0;
    for (std::size_t k = 0; k < count; ++k)
        if (in(k)) m = std::max(m, std::abs(v[first + k]));
    return m;
}
int exponent_of(float most) { return most == 0 ? -1000 : std::ilogb(most); }
float to_bfloat16(float x) { return qk::widen(qk::narrow<qk::bfloat16>(x)); }

enum stage { rounding, sticky, subnormals, carry, low, zero, over, first, scale, lanes, code };

/// Mistakes of elements.
void add_element_bugs(std::vector<bug>& all, generator& g) {
    const auto add = [&](std::string name, std::vector<std::string> words, int stage, decltype(bug::to) to,
                         std::function<void(converter&)> plant) {
        all.push_back({std::move(name), std::move(words), std::move(plant), stage, to});
    };
    add("truncation", {"truncation"}, rounding, bug::any, [](converter& c) { c.how = round_to::zero; });
    add("half away", {"half-away"}, rounding, bug::any, [](converter& c) { c.how = round_to::away; });
    add("rounds down", {"rounds down"}, rounding, bug::any, [](converter& c) { c.how = round_to::floor; });
    add("rounds up", {"rounds up"}, rounding, bug::any, [](converter& c) { c.how = round_to::ceil; });
    add("ties to zero", {"ties go toward zero"}, rounding, bug::any, [](converter& c) { c.how = round_to::ties_to_zero; });
    add("ties to odd", {"ties go to the odd"}, rounding, bug::any, [](converter& c) { c.how = round_to::ties_to_odd; });
    add("away from zero", {"away from zero"}, rounding, bug::any, [](converter& c) { c.how = round_to::from_zero; });
    add("negative values truncated", {"truncation"}, rounding, bug::any, [](converter& c) {
        c.how = round_to::zero;
        c.how_where = [](const lane& s) { return s.negative; };
    });
    const int bits = 1 + static_cast<int>(g.below(12));
    add("sticky of " + std::to_string(bits) + " bits", {"sticky bits dropped"}, sticky, bug::any,
        [bits](converter& c) { c.sticky_bits = bits; });
    const int left = 1 + static_cast<int>(g.below(3));
    add("first shift leaves " + std::to_string(left), {"first shift cuts off", "low bits of the float32"}, sticky, bug::floats,
        [left](converter& c) { c.first_shift_bits = left; });
    add("subnormals a place too far", {"binade too small", "subnormal"}, subnormals, bug::floats,
        [](converter& c) { c.subnormal_shift = 1; });
    add("subnormals a place short", {"binade too large", "subnormal"}, subnormals, bug::floats,
        [](converter& c) { c.subnormal_shift = -1; });
    add("subnormals flushed", {"flushed"}, subnormals, bug::floats, [](converter& c) { c.flush = true; });
    add("tiny before rounding", {"flushed"}, subnormals, bug::floats, [](converter& c) { c.flush_before = true; });
    add("subnormals truncated", {"subnormal results are truncated"}, subnormals, bug::floats,
        [](converter& c) { c.truncates_subnormals = true; });
    add("carry lost", {"carry is lost"}, carry, bug::floats, [](converter& c) { c.carry_lost = true; });
    add("all ones kept", {"carry is lost"}, carry, bug::floats, [](converter& c) { c.carry_held = true; });
    add("lowest bit lost", {"lowest mantissa bit", "bit 0 of the code"}, low, bug::any, [](converter& c) { c.low_bit_lost = true; });
    add("sign of zero", {"sign of zero", "+0"}, zero, bug::any, [](converter& c) { c.zero_sign_lost = true; });
    add("next below the largest", {"below the largest"}, over, bug::any, [](converter& c) { c.over = beyond::next; });
    add("largest never given", {"below the largest"}, over, bug::any, [](converter& c) { c.over = beyond::never; });
    add("NaN beyond", {"NaN", "ieee"}, over, bug::any, [](converter& c) { c.over = beyond::nan; });
    add("Inf beyond", {"Inf", "ieee"}, over, bug::any, [](converter& c) { c.over = beyond::infinite; });
    add("zero beyond", {"becomes zero"}, over, bug::any, [](converter& c) { c.over = beyond::nought; });
    add("bfloat16 first", {"bfloat16 first"}, first, bug::any, [](converter& c) { c.input = to_bfloat16; });
    add("elements by bfloat16", {"bfloat16 first"}, first, bug::blocks, [](converter& c) { c.element = to_bfloat16; });
    const int more = 1 + static_cast<int>(g.below(5));
    add("rounded to " + std::to_string(more) + " more bits first", {"more mantissa bits first"}, first, bug::any,
        [more](converter& c) { c.first_rounded_bits = more; });
}

/// Mistakes of blocks: of their scales, and in the wires of their lanes.
void add_block_bugs(std::vector<bug>& all, generator& g) {
    const auto add = [&](std::string name, std::vector<std::string> words, int stage, decltype(bug::to) to,
                         std::function<void(converter&)> plant) {
        all.push_back({std::move(name), std::move(words), std::move(plant), stage, to});
    };
    add("scale one too high, then held", {"power of two too high"}, scale, bug::blocks, [](converter& c) { c.scale_before = 1; });
    add("scale one too high", {"power of two too high"}, scale, bug::blocks, [](converter& c) { c.scale_after = 1; });
    add("scale one too low", {"power of two too low"}, scale, bug::blocks, [](converter& c) { c.scale_after = -1; });
    add("exponents ORed", {"ORed"}, scale, bug::blocks, [](converter& c) {
        c.block_exponent = [](const values& v, std::size_t b, std::size_t n) {
            std::uint32_t field = 0;
            for (std::size_t k = b; k < b + n; ++k) field |= std::bit_cast<std::uint32_t>(v[k]) >> 23 & 255u;
            return field == 0 ? exponent_of(largest_of_lanes(v, b, n, [](std::size_t) { return true; })) : static_cast<int>(field) - 127;
        };
    });
    add("scale rounded up", {"'ceil'", "rounded up"}, scale, bug::blocks, [](converter& c) {
        c.block_exponent = [](const values& v, std::size_t b, std::size_t n) {
            const float m = largest_of_lanes(v, b, n, [](std::size_t) { return true; });
            return m == 0 ? -1000 : std::ilogb(m) + int{std::ldexp(1.0f, std::ilogb(m)) < m};
        };
    });
    add("first half", {"first half"}, scale, bug::blocks, [](converter& c) {
        c.block_exponent = [](const values& v, std::size_t b, std::size_t n) {
            return exponent_of(largest_of_lanes(v, b, n, [n](std::size_t k) { return 2 * k < n; }));
        };
    });
    const std::size_t missing = g.below(8);
    add("lane " + std::to_string(missing) + " not looked at", {"left out"}, scale, bug::blocks, [missing](converter& c) {
        c.block_exponent = [missing](const values& v, std::size_t b, std::size_t n) {
            return exponent_of(largest_of_lanes(v, b, n, [missing](std::size_t k) { return k != missing; }));
        };
    });
    add("positive ones alone", {"positive ones"}, scale, bug::blocks, [](converter& c) {
        c.block_exponent = [](const values& v, std::size_t b, std::size_t n) {
            return exponent_of(largest_of_lanes(v, b, n, [&v, b](std::size_t k) { return v[b + k] > 0; }));
        };
    });
    const std::size_t one = g.below(7), other = one + 1;
    add("lanes " + std::to_string(one) + " and " + std::to_string(other) + " swapped",
        {"swapped: those at positions " + std::to_string(one) + " and " + std::to_string(other)}, lanes, bug::blocks,
        [one, other](converter& c) {
            c.lane_of = [one, other](std::size_t k, std::size_t) { return k == one ? other : k == other ? one : k; };
        });
    const std::size_t turn = 1 + g.below(7);
    add("lanes rotated by " + std::to_string(turn), {"rotated"}, lanes, bug::blocks,
        [turn](converter& c) { c.lane_of = [turn](std::size_t k, std::size_t n) { return (k + turn) % n; }; });
    add("lanes shifted", {"shifted by one place"}, lanes, bug::blocks,
        [](converter& c) { c.lane_of = [](std::size_t k, std::size_t n) { return k == 0 ? n : k - 1; }; });
    add("lane 3 twice", {"comes out twice"}, lanes, bug::blocks,
        [](converter& c) { c.lane_of = [](std::size_t k, std::size_t) { return k == 4 ? 3 : k; }; });
    const int bit = static_cast<int>(g.below(3)), level = static_cast<int>(g.below(2));
    add("bit " + std::to_string(bit) + " stuck at " + std::to_string(level), {"stuck", "lowest mantissa bit"}, code, bug::any,
        [bit, level](converter& c) {
            c.after_code = [bit, level](lane& s, const place&) { s.code = level != 0 ? s.code | 1 << bit : s.code & ~(1 << bit); };
        });
    const std::size_t at = g.below(8);
    add("bit " + std::to_string(bit) + " stuck in lane " + std::to_string(at), {"stuck", "lowest mantissa bit"}, code, bug::blocks,
        [bit, level, at](converter& c) {
            c.after_code = [bit, level, at](lane& s, const place& p) {
                if (p.position == at) s.code = level != 0 ? s.code | 1 << bit : s.code & ~(1 << bit);
            };
        });
    const int scale_bit = static_cast<int>(g.below(6));
    add("bit " + std::to_string(scale_bit) + " of the scale stuck", {"scale's code is stuck"}, scale, bug::scaled,
        [scale_bit](converter& c) { c.scale_fault = [scale_bit](int s) { return std::min((s + 127) | 1 << scale_bit, 254) - 127; }; });
}

/// Mistakes that few inputs show: the corpus does not draw them.
void add_rarer_bugs(std::vector<bug>& all) {
    const auto add = [&](std::string name, std::vector<std::string> words, int stage, decltype(bug::to) to,
                         std::function<void(converter&)> plant) {
        all.push_back({std::move(name), std::move(words), std::move(plant), stage, to});
    };
    add("the nearest exponent by logarithm", {"nearest, by its logarithm"}, scale, bug::scaled, [](converter& c) {
        c.block_exponent = [largest = c.largest(), top = c.to.top](const values& v, std::size_t b, std::size_t n) {
            const double m = largest_of_lanes(v, b, n, [](std::size_t) { return true; });
            return m == 0 ? -1000 : static_cast<int>(std::nearbyint(std::log2(m / largest))) + top;
        };
    });
    add("the least scale is NaN", {"least scale is read as NaN"}, scale, bug::scaled, [](converter& c) { c.least_scale_is_nan = true; });
    add("-2^m beyond the range", {"-2^m"}, over, bug::shared, [](converter& c) { c.over = beyond::lowest; });
}

std::vector<bug> known_bugs(generator& g) {
    std::vector<bug> all;
    add_element_bugs(all, g);
    add_block_bugs(all, g);
    return all;
}

/// Draws a fault from the grammar: stage, fault, lane. It is in no table.
bug drawn_fault(generator& g, const circuit::target& to) {
    const std::size_t in_lane = g.below(to.block == 0 ? 8 : static_cast<std::uint32_t>(to.block));
    const bool everywhere = g.below(2) != 0, one = g.below(2) != 0;
    const int kind = static_cast<int>(g.below(4));
    const auto here = [=](const place& p) { return everywhere || p.position % 32 == in_lane; };
    const auto faulty = [=](std::int64_t word, int bit) {  // stuck, inverted, or joined to the wire beside it
        const std::int64_t mask = std::int64_t{1} << bit, beside = word >> 1 & mask;
        return kind == 0   ? (one ? word | mask : word & ~mask)
               : kind == 1 ? word ^ mask
               : kind == 2 ? (one ? word | beside : word & (beside | ~mask))
                           : word + (one ? mask : -mask);
    };
    constexpr const char* kinds[] = {"stuck", "inverted", "bridged", "added"};
    const std::string where = std::string(kinds[kind]) + (one ? " 1" : " 0") + (everywhere ? "" : " in lane " + std::to_string(in_lane));
    using hook = std::function<void(lane&, const place&)>;
    const auto at = [&](const std::string& stage, hook converter::*hooked, const std::function<void(lane&)>& change) {
        const hook in_place = [=](lane& s, const place& p) {
            if (here(p)) change(s);
        };
        return bug{stage + ": " + where, {}, [=](converter& c) { c.*hooked = in_place; }, 0, bug::any};
    };
    const auto bit_of = [&](int least, std::uint32_t n) { return least + static_cast<int>(g.below(n)); };
    const auto word = [=](std::int64_t w, int bit) { return std::max<std::int64_t>(0, faulty(w, bit)); };
    const auto wire = [=](bool w, bool beside) {
        return kind == 0 ? one : kind == 1 ? !w : kind == 2 ? (one ? w || beside : w && beside) : beside;
    };
    switch (g.below(7)) {
        case 0: {
            const int bit = bit_of(16, 8);
            return at("significand bit " + std::to_string(bit), &converter::after_input,
                      [=](lane& s) { s.significand = s.significand == 0 ? 0 : word(s.significand, bit) & 0xffffff; });
        }
        case 1: {
            const int bit = bit_of(0, 3);
            return at("shift bit " + std::to_string(bit), &converter::after_shift,
                      [=](lane& s) { s.shift = static_cast<int>(word(s.shift, bit)); });
        }
        case 2: return at("guard", &converter::after_cut, [=](lane& s) { s.guard = wire(s.guard, s.sticky); });
        case 3: return at("sticky", &converter::after_cut, [=](lane& s) { s.sticky = wire(s.sticky, s.guard); });
        case 4: return at("round up", &converter::after_round, [=](lane& s) { s.up = wire(s.up, s.negative); });
        case 5: {
            const int bit = bit_of(0, static_cast<std::uint32_t>(to.mantissa + 2));
            return at("code bit " + std::to_string(bit), &converter::after_code, [=](lane& s) { s.code = word(s.code, bit) & 127; });
        }
        default: break;
    }
    const int bit = bit_of(0, 4);
    if (to.block == 0) return at("kept bit " + std::to_string(bit), &converter::after_cut, [=](lane& s) { s.kept = word(s.kept, bit); });
    return {"scale bit " + std::to_string(bit) + ": " + where,
            {},
            [=](converter& c) { c.scale_fault = [=](int s) { return std::clamp(static_cast<int>(word(s + 127, bit)), 0, 254) - 127; }; },
            0,
            bug::any};
}

enum class verdict { right, roughly, silent, wrong };
constexpr const char* verdicts[] = {"right", "roughly", "silent", "wrong"};

struct judged_bug {
    std::string kind, format, name, headline;
    std::size_t mismatches = 0;
    verdict how = verdict::silent;
    bool named = false;  ///< the headline names what was planted
};

/// Compares a converter on values, then tries the headline on others. nullopt: the bug shows on no value.
std::optional<judged_bug> judge_headline(const converter& device, const std::vector<std::vector<std::string>>& words, std::uint64_t seed) {
    const std::size_t rows = device.to.block == 0 ? 48 : 64;
    const std::vector<std::int64_t> shape{static_cast<std::int64_t>(rows), static_cast<std::int64_t>(row)};
    const conversion c = of(device.to.format, shape);
    const auto problem_of = [&](std::uint64_t from, values& x, values& expected, values& y) {
        x = corpus_inputs(from, rows, device.to.block != 0);
        expected.resize(x.size());
        qk::compare::expected_values(c, x, expected);
        y = device(x, row);
        std::size_t n = 0;
        for (std::size_t i = 0; i < x.size(); ++i) n += !qk::compare::same_value(expected[i], y[i]);
        return n;
    };
    values x, expected, y;
    judged_bug b;
    b.format = device.to.format;
    b.mismatches = problem_of(seed, x, expected, y);
    if (b.mismatches < 8) return std::nullopt;
    qk::compare::report r;
    r.values = x.size();
    r.mismatches = b.mismatches;
    const qk::compare::problem p{c, shape, x, expected, y};
    const auto made = qk::compare::diagnose(p, {p, qk::compare::units_of(c, x)}, r);
    const std::string text = to_text(r);
    b.headline = text.substr(0, text.find("\n\n"));
    if (made.empty()) return b;
    const std::size_t unseen = problem_of(seed + 7777, x, expected, y);
    const qk::compare::problem other{c, shape, x, expected, y};
    const values told = qk::compare::predicted(other, {other, qk::compare::units_of(c, x)}, made);
    std::size_t left = 0, added = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        if (qk::compare::same_value(told[i], y[i])) continue;
        ++(qk::compare::same_value(expected[i], y[i]) ? added : left);
    }
    b.named = true;
    for (const auto& any : words) {
        const auto said = [&](const std::string& w) { return b.headline.find(w) != std::string::npos; };
        b.named = b.named && (any.empty() || std::any_of(any.begin(), any.end(), said));
    }
    const bool foretold = 100 * (left + added) <= unseen, nearly = 5 * left <= unseen && 20 * added <= unseen;
    b.how = foretold && b.named ? verdict::right : foretold || nearly ? verdict::roughly : verdict::wrong;
    return b;
}

bool fits_to(const bug& b, const circuit::target& to) {
    switch (b.to) {
        case bug::floats: return !to.fixed;
        case bug::blocks: return to.block != 0;
        case bug::scaled: return to.block == 32;
        case bug::shared: return to.fixed;
        default: return true;
    }
}

/// Draws a bug of a kind; `kind` is 1 to 3 for so many of the table's mistakes, 0 for a fault of the grammar.
judged_bug drawn_bug(int kind, std::uint64_t seed) {
    for (generator g{seed};;) {
        const circuit::target& to = circuit::targets[g.below(static_cast<std::uint32_t>(std::size(circuit::targets)))];
        converter device(to);
        std::vector<bug> planted;
        const std::vector<bug> all = known_bugs(g);
        if (kind == 0) planted.push_back(drawn_fault(g, to));
        while (static_cast<int>(planted.size()) < kind) {
            const bug& b = all[g.below(static_cast<std::uint32_t>(all.size()))];
            const bool fits = fits_to(b, to);
            const bool alone = std::none_of(planted.begin(), planted.end(), [&](const bug& o) { return o.stage == b.stage; });
            if (fits && alone) planted.push_back(b);
        }
        const values probe = corpus_inputs(seed * 31 + 1, 48, to.block != 0);
        for (const bug& b : planted) b.plant(device);
        const auto shows = [&](const bug& one) {  // the others alone give other values
            converter others(to);
            for (const bug& b : planted)
                if (b.name != one.name) b.plant(others);
            const values with = device(probe, row), without = others(probe, row);
            std::size_t n = 0;
            for (std::size_t i = 0; i < probe.size(); ++i) n += !qk::compare::same_value(with[i], without[i]);
            return n >= 8;
        };
        if (!std::all_of(planted.begin(), planted.end(), shows)) continue;
        std::vector<std::vector<std::string>> words;
        std::string name;
        for (const bug& b : planted) {
            words.push_back(b.words);
            name += (name.empty() ? "" : "; ") + b.name;
        }
        if (auto b = judge_headline(device, words, seed * 31 + 1)) {
            constexpr const char* kinds[] = {"circuit", "single", "pair", "triple"};
            b->kind = kinds[kind];
            b->name = name;
            return *b;
        }
    }
}

using counts = std::map<std::string, std::array<int, 4>>;

std::string quoted(const std::string& s) {
    std::string q = "\"";
    for (const char ch : s) q += ch == '\n' ? "\\n" : ch == '"' || ch == '\\' ? std::string("\\") + ch : std::string(1, ch);
    return q + "\"";
}
void write_results(const std::string& folder, const std::vector<judged_bug>& bugs, const counts& n, double seconds) {
    std::ofstream json(folder + "/data/diagnosis.json"), page(folder + "/diagnosis.md");
    // A row a line, as bench/rows.py writes it.
    json << "{\n\"bugs\": [\n[\"kind\", \"format\", \"bug\", \"differences\", \"verdict\", \"headline\"]";
    for (const judged_bug& b : bugs)
        json << ",\n[" << quoted(b.kind) << ", " << quoted(b.format) << ", " << quoted(b.name) << ", " << b.mismatches << ", "
             << quoted(verdicts[static_cast<int>(b.how)]) << ", " << quoted(b.headline) << "]";
    json << "\n],\n\"processor_seconds_each\": " << seconds / static_cast<double>(bugs.size()) << "\n}\n";
    page << "# Diagnosis: planted bugs\n\nHow often the headline of `qk compare` is right, on " << bugs.size()
         << " bugs that `tests/hardware/compare/corpus_test.cpp` draws from seeds and plants in a circuit of its own (`circuit.hpp`). "
            "Singles, "
            "pairs and triples are\n"
            "mistakes as the table has them; \"circuit\" faults are drawn by stage, fault and lane, and no row was written for "
            "them.\n\nA headline is tried on values that it has not seen:\n"
            "*right* if it names what was planted and its mistakes give 99 % of the differences there, *roughly* if they give four fifths, "
            "or all under another name, *silent* if it says that no\n"
            "known mistake explains it, *wrong* otherwise. A bug that changes fewer than eight values is drawn again. "
            "[data/diagnosis.json](data/diagnosis.json) has every bug with its "
            "headline.\n\n| | bugs | right | roughly | silent | wrong |\n|---|---|---|---|---|---|\n";
    std::array<int, 4> sum{};
    const auto line = [&](const std::string& name, const std::array<int, 4>& k) {
        page << "| " << name << " | " << k[0] + k[1] + k[2] + k[3] << " | " << k[0] << " | " << k[1] << " | " << k[2] << " | " << k[3]
             << " |\n";
    };
    for (const char* kind : {"single", "pair", "triple", "circuit"}) {
        line(kind, n.at(kind));
        for (std::size_t v = 0; v < 4; ++v) sum[v] += n.at(kind)[v];
    }
    line("together", sum);
    char text[64];
    std::snprintf(text, sizeof text, "%.1f", seconds / static_cast<double>(bugs.size()));
    page << "\n" << text << " processor seconds for each of them. Remade by `QK_CORPUS=docs/results build/release/tests/corpus_test`.\n";
}

}  // namespace

TEST_CASE("the circuit without a fault gives what the formats say") {
    for (const circuit::target& to : circuit::targets) {
        const values x = corpus_inputs(5, 64, to.block != 0);
        const std::vector<std::int64_t> shape{64, static_cast<std::int64_t>(row)};
        const conversion c = of(to.format, shape);
        values expected(x.size());
        qk::compare::expected_values(c, x, expected);
        const values y = converter(to)(x, row);
        std::size_t wrong = 0, first = 0;
        for (std::size_t i = x.size(); i-- > 0;)
            if (!qk::compare::same_value(expected[i], y[i])) ++wrong, first = i;
        CHECK_MESSAGE(wrong == 0, std::string(to.format), ": ", wrong, ", at ", first, " input ", x[first], " expected ", expected[first],
                      " circuit ", y[first]);
    }
}

TEST_CASE("every mistake alone is named") {
    generator g{2};
    std::vector<bug> all = known_bugs(g);
    add_rarer_bugs(all);
    for (std::size_t k = 0; k < all.size(); ++k) {
        std::optional<judged_bug> b;
        std::size_t from = k;
        for (; !b && from < k + std::size(circuit::targets); ++from) {  // the formats take turns
            const circuit::target& to = circuit::targets[from % std::size(circuit::targets)];
            if (!fits_to(all[k], to)) continue;
            converter device(to);
            all[k].plant(device);
            b = judge_headline(device, {all[k].words}, 5 + k);
        }
        REQUIRE_MESSAGE(b, all[k].name);
        CHECK_MESSAGE(b->named, all[k].name, " in ", b->format, ": ", b->headline);
    }
}

TEST_CASE("headlines of planted bugs") {
    const char* folder = std::getenv("QK_CORPUS");
    const char* other = std::getenv("QK_CORPUS_SEED");
    const std::uint64_t seed = other != nullptr ? 10000 * std::strtoull(other, nullptr, 10) : 0;
    const int parts = folder != nullptr ? 1 : 20;  // of 70, 50, 30 and 50
    std::vector<judged_bug> bugs;
    counts n;
    const std::clock_t from = std::clock();
    for (const auto& [kind, number] : {std::pair{1, 70}, {2, 50}, {3, 30}, {0, 50}}) {
        for (int k = 0; k < std::max(2, number / parts); ++k) {
            bugs.push_back(drawn_bug(kind, seed + static_cast<std::uint64_t>(1000 * (kind + 1) + k)));
            const judged_bug& b = bugs.back();
            ++n[b.kind][static_cast<std::size_t>(b.how)];
            INFO(b.kind, " in ", b.format, ": ", b.name, ": ", b.headline);
            if (std::getenv("QK_SHOW") != nullptr)
                std::printf("%s %s in %s: %s (%zu)\n%s\n\n", verdicts[static_cast<int>(b.how)], b.kind.c_str(), b.format.c_str(),
                            b.name.c_str(), b.mismatches, b.headline.c_str());
            if (folder == nullptr) CHECK(b.how != verdict::wrong);
        }
    }
    int wrong = 0, right = 0;
    for (const auto& [kind, k] : n) wrong += k[3], right += k[0];
    CHECK(100 * wrong <= static_cast<int>(bugs.size()));
    CHECK(2 * right >= static_cast<int>(bugs.size()));
    if (folder != nullptr) write_results(folder, bugs, n, static_cast<double>(std::clock() - from) / CLOCKS_PER_SEC);
}
