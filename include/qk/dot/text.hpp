// SPDX-License-Identifier: Apache-2.0
// Accumulators from text and back: keys and values with commas between.
//
//   sum=exact|aligned|sequential|pairwise|integer   groups=N (0: all)   lanes=N   bundle=N   place=inside|after
//   align=F   cut=toward-zero|down|to-odd   join=F   join-addend=F   join-drop=N   join-cut=...            (align alone says sum=aligned)
//   fused=0|1   c=REGISTER   partial=REGISTER   result=REGISTER   round=ROUNDING   partial-round=ROUNDING
//   reverse   operands=F   flush-inputs=none|positive|kept-sign   flush-partials   product-overflow   overflow=ieee|infinity|saturate
//   zero=ieee|positive-products|exact-positive|positive   nan=quiet|all-ones
//   width=N   saturate   requantize=scale|gemmlowp|multiplier   scale=S   multiplier=N   shift=N   zero-point=N   output=INTEGER
//   requantize-round=usual|down|toward-zero   relu   symmetric   chunked
//
// REGISTER: fp32, tf32, fp16, bf16, e8m13, fp64, or eXmY. A result may have 3 to 8 bits, too: fp8_e4m3fn, fp6_e3m2, fp4_e2m1 and the like,
// or eXmYfn, eXmYfnuz, eXmYfinite (every code is a number). A key that is left out has accumulator's default, but `partial` that of result
// (float32 for such a format), `partial-round` that of round, and `c` is fp64 where the result is. "groups=16,align=25,round=toward-zero"
// is a device of Hopper's kind. parse_accumulator(to_text(a)) == a for every accumulator that passes check(a). A device's name stands for
// its accumulator.
#pragma once

#include <cstdint>
#include <limits>

#include "qk/dot/devices.hpp"
#include "qk/formats/parse.hpp"
#include "qk/isa.hpp"
#include "qk/option_names.hpp"

namespace qk {

using accumulator_text = fixed_text<447>;

inline namespace QK_ISA {

/// Allocates and throws nothing. An accumulator that it returns without an error has passed check().
parsed<accumulator> parse_accumulator(std::string_view text);
accumulator_text to_text(const accumulator& a);

}  // namespace QK_ISA

inline constexpr named_option<summation> summation_names[] = {{"exact", summation::exact},
                                                              {"aligned", summation::aligned},
                                                              {"sequential", summation::sequential},
                                                              {"pairwise", summation::pairwise},
                                                              {"integer", summation::integer}};
inline constexpr named_option<place> place_names[] = {{"inside", place::inside}, {"after", place::after}};
inline constexpr named_option<too_large> too_large_names[] = {
    {"ieee", too_large::ieee}, {"infinity", too_large::infinity}, {"saturate", too_large::saturate}};
inline constexpr named_option<zero_rule> zero_rule_names[] = {{"ieee", zero_rule::ieee},
                                                              {"positive-products", zero_rule::positive_products},
                                                              {"exact-positive", zero_rule::exact_positive},
                                                              {"positive", zero_rule::positive}};
inline constexpr named_option<input_flush> input_flush_names[] = {
    {"none", input_flush::none}, {"positive", input_flush::positive}, {"kept-sign", input_flush::kept_sign}, {"c", input_flush::addend}};
inline constexpr named_option<nan_answer> nan_answer_names[] = {{"quiet", nan_answer::quiet}, {"all-ones", nan_answer::all_ones}};
inline constexpr named_option<requantize_by> requantize_names[] = {{"nothing", requantize_by::nothing},
                                                                   {"scale", requantize_by::scale},
                                                                   {"gemmlowp", requantize_by::gemmlowp},
                                                                   {"multiplier", requantize_by::multiplier}};
inline constexpr named_option<requantize_rounding> requantize_rounding_names[] = {
    {"usual", requantize_rounding::usual}, {"down", requantize_rounding::down}, {"toward-zero", requantize_rounding::toward_zero}};
inline constexpr named_option<floating> register_names[] = {{"fp32", fp32}, {"tf32", tf32},   {"fp16", fp16},
                                                            {"bf16", bf16}, {"e8m13", e8m13}, {"fp64", fp64}};

namespace detail {
inline namespace QK_ISA {

inline fixed_text<15> register_text(floating f) {
    if (const std::string_view name = option_name(f, register_names); !name.empty()) return name;
    if (f.specials != specials::ieee) {
        for (const named_format& entry : catalogue) {
            if (entry.format == format(f)) return entry.name;
        }
    }
    fixed_text<15> t("e");
    t.append(f.exponent_bits).append("m").append(f.mantissa_bits);
    return t.append(f.specials == specials::ieee   ? ""
                    : f.specials == specials::fn   ? "fn"
                    : f.specials == specials::fnuz ? "fnuz"
                                                   : "finite");
}
inline parsed<floating> parse_register(std::string_view key, std::string_view word) {
    for (const auto& entry : register_names) {
        if (entry.name == word) return {entry.value, {}};
    }
    if (const named_format* entry = find_format(word); entry != nullptr) {
        if (const auto* f = std::get_if<floating>(&entry->format)) return {*f, {}};
    }
    std::string_view rest = word;
    int e = 0, m = 0;
    if (!rest.empty() && rest[0] == 'e') {
        rest.remove_prefix(1);
        qk::specials kind = specials::ieee;
        constexpr std::pair<std::string_view, qk::specials> kinds[] = {
            {"fnuz", specials::fnuz}, {"finite", specials::none}, {"fn", specials::fn}};
        for (const auto& [suffix, meant] : kinds) {
            if (kind != specials::ieee || !rest.ends_with(suffix)) continue;
            kind = meant;
            rest.remove_suffix(suffix.size());
        }
        const std::string_view exponent = take_until(rest, 'm');
        if (parse_number(exponent, e) && parse_number(rest, m) && e >= 1 && e <= 8 && m >= 0 && m <= 23) {
            const floating f{e, m, (1 << (e - 1)) - int{kind != specials::fnuz}, kind};
            if (is_register(f) || is_narrow_result(f)) return {f, {}};
        }
    }
    return {
        {},
        message("unknown register '")
            .append(word.substr(0, 40))
            .append("' for ")
            .append(key)
            .append("; say fp32, tf32, fp16, bf16, e8m13, fp64 or eXmY, for instance e6m9; a result may be of 3 to 8 bits, as fp8_e4m3fn")};
}

/// One key: a function that reads its value, and one that prints it (an empty text where the value is the default).
struct accumulator_key {
    std::string_view name;
    message (*read)(accumulator&, std::string_view name, std::string_view value);
    fixed_text<47> (*print)(const accumulator&);
    bool alone = false;           ///< its value 1 is not printed: `saturate` says saturate=1
    std::string_view other = {};  ///< a value that is not the default: where it changes nothing, the key means nothing
};

template <auto Member>
message read_number(accumulator& a, std::string_view name, std::string_view value) {
    if (parse_number(value, a.*Member)) return {};
    return message("key '").append(name).append("' needs a whole number, not '").append(value.substr(0, 40)).append("'");
}
template <auto Member>
fixed_text<47> print_number(const accumulator& a) {
    return a.*Member == accumulator{}.*Member ? fixed_text<47>() : fixed_text<47>().append(a.*Member);
}
inline message parse_flag(bool& to, std::string_view name, std::string_view value) {
    to = value.empty() || value == "1";
    if (value.empty() || value == "0" || value == "1") return {};
    return message("key '").append(name).append("' is 0 or 1, not '").append(value.substr(0, 40)).append("'");
}
template <auto Member>
message read_flag(accumulator& a, std::string_view name, std::string_view value) {
    return parse_flag(a.*Member, name, value);
}
template <auto Member>
fixed_text<47> print_flag(const accumulator& a) {
    return a.*Member == accumulator{}.*Member ? "" : a.*Member ? "1" : "0";
}
template <auto Member, const auto& Names>
message read_word(accumulator& a, std::string_view name, std::string_view value) {
    const auto p = parse_option(name, value, Names);
    a.*Member = p.value;
    return p.error;
}
template <auto Member, const auto& Names>
fixed_text<47> print_word(const accumulator& a) {
    return a.*Member == accumulator{}.*Member ? std::string_view() : option_name(a.*Member, Names);
}
template <auto Member>
message read_register(accumulator& a, std::string_view name, std::string_view value) {
    const auto p = parse_register(name, value);
    a.*Member = p.value;
    return p.error;
}
inline fixed_text<47> print_register(floating f, floating usual) {
    return f == usual ? fixed_text<47>() : fixed_text<47>(register_text(f).view());
}
inline fixed_text<47> print_rounding(rounding r, rounding usual) { return r == usual ? std::string_view() : to_text(r); }

// Keys of the requantization.

/// Reads a whole number of 32 bits. (std::from_chars would be a function that all instruction sets share.)
constexpr bool parse_word(std::string_view text, int& n) {
    const bool negative = text.starts_with('-');
    const std::string_view digits = text.substr(negative ? 1 : 0);
    if (digits.empty() || digits.size() > 10) return false;
    std::int64_t sum = 0;
    for (const char c : digits) {
        if (c < '0' || c > '9') return false;
        sum = 10 * sum + (c - '0');
    }
    sum = negative ? -sum : sum;
    if (sum < std::numeric_limits<int>::min() || sum > std::numeric_limits<int>::max()) return false;
    n = static_cast<int>(sum);
    return true;
}

template <auto Member>
message read_requantized(accumulator& a, std::string_view name, std::string_view value) {
    int n = 0;
    if (!parse_word(value, n))
        return message("key '").append(name).append("' needs a whole number, not '").append(value.substr(0, 40)).append("'");
    a.requantize.*Member = n;
    return {};
}
template <auto Member>
fixed_text<47> print_requantized(const accumulator& a) {
    return a.requantize.*Member == requantization{}.*Member ? fixed_text<47>() : fixed_text<47>().append(a.requantize.*Member);
}
template <auto Member>
message read_requantized_flag(accumulator& a, std::string_view name, std::string_view value) {
    return parse_flag(a.requantize.*Member, name, value);
}
template <auto Member>
fixed_text<47> print_requantized_flag(const accumulator& a) {
    return a.requantize.*Member ? "1" : "";
}
inline message read_scale(accumulator& a, std::string_view, std::string_view value) {
    float scale = 0;
    if (!parse_float(value, scale)) return message("key 'scale' needs a number, not '").append(value.substr(0, 40)).append("'");
    a.requantize.scale_bits = std::bit_cast<std::uint32_t>(scale);
    return check_scale(scale);
}
inline fixed_text<47> print_scale(const accumulator& a) {
    if (a.requantize.scale_bits == requantization{}.scale_bits) return {};
    char digits[32];
    const auto r = std::to_chars(digits, digits + sizeof digits, std::bit_cast<float>(a.requantize.scale_bits));
    return std::string_view(digits, static_cast<std::size_t>(r.ptr - digits));
}
inline message read_output(accumulator& a, std::string_view, std::string_view value) {
    const named_format* entry = find_format(value);
    if (entry == nullptr || !is_integer_format(entry->format))
        return message("output is an integer format's name, for instance uint8, not '").append(value.substr(0, 40)).append("'");
    a.requantize.output = std::get<integer>(entry->format);
    return {};
}
inline fixed_text<47> print_output(const accumulator& a) {
    return a.requantize.output == int8 ? fixed_text<47>() : fixed_text<47>(to_text(format(a.requantize.output)).view());
}
inline message read_by(accumulator& a, std::string_view name, std::string_view value) {
    const auto p = parse_option(name, value, requantize_names);
    a.requantize.by = p.value;
    return p.error;
}

inline constexpr accumulator_key accumulator_keys[] = {
    {"sum", read_word<&accumulator::sum, summation_names>,
     [](const accumulator& a) { return fixed_text<47>(option_name(a.sum, summation_names)); }},
    {"groups", read_number<&accumulator::groups>, print_number<&accumulator::groups>, false, "2"},
    {"lanes", read_number<&accumulator::lanes>, print_number<&accumulator::lanes>, false, "2"},
    {"chunked", read_flag<&accumulator::chunked>, print_flag<&accumulator::chunked>, true, "1"},
    {"bundle", read_number<&accumulator::bundle>, print_number<&accumulator::bundle>, false, "2"},
    {"place", read_word<&accumulator::place, place_names>, print_word<&accumulator::place, place_names>},
    {"align", read_number<&accumulator::align>, print_number<&accumulator::align>, false, "9"},
    {"cut", read_word<&accumulator::cut, rounding_names>, print_word<&accumulator::cut, rounding_names>, false, "down"},
    {"lost-is-zero", read_flag<&accumulator::lost_is_zero>, print_flag<&accumulator::lost_is_zero>, true, "1"},
    {"join", read_number<&accumulator::join>, print_number<&accumulator::join>, false, "9"},
    {"join-addend", read_number<&accumulator::join_addend>, print_number<&accumulator::join_addend>, false, "9"},
    {"join-drop", read_number<&accumulator::join_drop>, print_number<&accumulator::join_drop>, false, "9"},
    {"join-cut", read_word<&accumulator::join_cut, rounding_names>, print_word<&accumulator::join_cut, rounding_names>, false, "to-odd"},
    {"fused", read_flag<&accumulator::fused>, print_flag<&accumulator::fused>, false, "0"},
    {"c", read_register<&accumulator::addend>,
     [](const accumulator& a) { return print_register(a.addend, a.result == fp64 ? fp64 : fp32); }},
    {"partial", read_register<&accumulator::partial>,
     [](const accumulator& a) { return print_register(a.partial, usual_partial(a.result)); }},
    {"result", read_register<&accumulator::result>, [](const accumulator& a) { return print_register(a.result, fp32); }},
    {"partial-round", read_word<&accumulator::partial_round, rounding_names>,
     [](const accumulator& a) { return print_rounding(a.partial_round, a.round); }},
    {"round", read_word<&accumulator::round, rounding_names>, print_word<&accumulator::round, rounding_names>},
    {"operands", read_number<&accumulator::operand_bits>, print_number<&accumulator::operand_bits>},
    {"reverse", read_flag<&accumulator::reverse>, print_flag<&accumulator::reverse>, true, "1"},
    {"flush-inputs", read_word<&accumulator::flush_inputs, input_flush_names>, print_word<&accumulator::flush_inputs, input_flush_names>},
    {"flush-partials", read_flag<&accumulator::flush_partials>, print_flag<&accumulator::flush_partials>, true},
    {"flush-tiny", read_flag<&accumulator::flush_tiny>, print_flag<&accumulator::flush_tiny>, true},
    {"product-overflow", read_flag<&accumulator::product_overflow>, print_flag<&accumulator::product_overflow>, true, "1"},
    {"product-range", read_flag<&accumulator::product_range>, print_flag<&accumulator::product_range>, true, "1"},
    {"overflow", read_word<&accumulator::overflow, too_large_names>, print_word<&accumulator::overflow, too_large_names>},
    {"zero", read_word<&accumulator::zero, zero_rule_names>, print_word<&accumulator::zero, zero_rule_names>},
    {"nan", read_word<&accumulator::nan, nan_answer_names>, print_word<&accumulator::nan, nan_answer_names>, false, "all-ones"},
    {"width", read_number<&accumulator::width>, print_number<&accumulator::width>},
    {"saturate", read_flag<&accumulator::saturate>, print_flag<&accumulator::saturate>, true},
    {"requantize", read_by,
     [](const accumulator& a) {
         return a.requantize.by == requantize_by::nothing ? fixed_text<47>()
                                                          : fixed_text<47>(option_name(a.requantize.by, requantize_names));
     }},
    {"scale", read_scale, print_scale, false, "2"},
    {"multiplier", read_requantized<&requantization::multiplier>, print_requantized<&requantization::multiplier>, false, "7"},
    {"shift", read_requantized<&requantization::shift>, print_requantized<&requantization::shift>, false, "3"},
    {"zero-point", read_requantized<&requantization::zero_point>, print_requantized<&requantization::zero_point>, false, "3"},
    {"output", read_output, print_output, false, "uint8"},
    {"requantize-round",
     [](accumulator& a, std::string_view name, std::string_view value) -> message {
         const auto p = parse_option(name, value, requantize_rounding_names);
         a.requantize.round = p.value;
         return p.error;
     },
     [](const accumulator& a) {
         return a.requantize.round == requantize_rounding::usual
                    ? fixed_text<47>()
                    : fixed_text<47>(option_name(a.requantize.round, requantize_rounding_names));
     },
     false, "down"},
    {"relu", read_requantized_flag<&requantization::relu>, print_requantized_flag<&requantization::relu>, true, "1"},
    {"symmetric", read_requantized_flag<&requantization::symmetric>, print_requantized_flag<&requantization::symmetric>, true, "1"},
};

inline message unknown_key(std::string_view name) {
    message m("unknown key '");
    m.append(name.substr(0, 60)).append("' for an accumulator");
    if (const auto* near = nearest_name(accumulator_keys, name)) return m.append("; did you mean ").append(near->name).append("?");
    m.append("; the keys are");
    const char* separator = " ";
    for (const accumulator_key& k : accumulator_keys) {
        m.append(separator).append(k.name);
        separator = ", ";
    }
    return m;
}

}  // namespace QK_ISA
}  // namespace detail

/// The keys of an accumulator's text, in its order: each reads its value and prints it.
using detail::accumulator_key, detail::accumulator_keys;
/// register_text(f): "fp32", "e8m13", "fp8_e4m3fn", as an accumulator's text says it.
using detail::register_text;

inline namespace QK_ISA {

inline parsed<accumulator> parse_accumulator(std::string_view text) {
    if (text.empty()) return {{}, "the accumulator is empty; say for instance groups=16,align=25,round=toward-zero, or a device's name"};
    if (const device* d = find_device(text)) return {d->accumulator, {}};
    if (text.find('=') == std::string_view::npos && text.find('.') != std::string_view::npos) return {{}, unknown_device(text)};
    bool seen[std::size(detail::accumulator_keys)] = {};
    accumulator a;
    const auto place_of = [](std::string_view name) {
        std::size_t i = 0;
        while (i < std::size(detail::accumulator_keys) && detail::accumulator_keys[i].name != name) ++i;
        return i;
    };
    const auto was_said = [&](std::string_view name) { return seen[place_of(name)]; };
    while (!text.empty()) {
        std::string_view value = detail::take_until(text, ',');
        const std::string_view name = detail::take_until(value, '=');
        const std::size_t i = place_of(name);
        if (i == std::size(detail::accumulator_keys)) return {{}, detail::unknown_key(name)};
        if (seen[i]) return {{}, message("key '").append(name).append("' stands twice")};
        seen[i] = true;
        if (const message error = detail::accumulator_keys[i].read(a, name, value); !error.empty()) return {{}, error};
    }
    if (!was_said("partial")) a.partial = detail::usual_partial(a.result);
    if (!was_said("partial-round")) a.partial_round = a.round;
    if (!was_said("c") && a.result == fp64) a.addend = fp64;
    if (!was_said("sum")) {
        if (was_said("align")) a.sum = summation::aligned;
        if (was_said("width") || was_said("saturate") || was_said("requantize")) a.sum = summation::integer;
    }
    // A key is an error where its field means nothing, though it says the default.
    const bool wholes = a.sum == summation::integer;
    for (const std::string_view key : {"width", "saturate", "requantize"}) {
        if (was_said(key) && !wholes) return {{}, message(key).append(" needs sum=integer")};
    }
    for (const std::string_view key : {"c", "partial", "result", "round", "partial-round", "operands", "flush-inputs", "flush-partials",
                                       "overflow", "zero", "nan", "fused", "align", "cut", "reverse"}) {
        if (was_said(key) && wholes) return {{}, message(key).append(" is of floating sums, and this one is of integers")};
    }
    if (const message error = check(a); !error.empty()) return {a, error};
    for (std::size_t i = 0; i < std::size(detail::accumulator_keys); ++i) {
        const detail::accumulator_key& key = detail::accumulator_keys[i];
        if (!seen[i] || key.other.empty()) continue;
        accumulator b = a;
        key.read(b, key.name, key.other);
        if (!(b == a) && detail::meaningful(b) == a) return {{}, detail::check_meaning(b)};
    }
    return {a, {}};
}

inline accumulator_text to_text(const accumulator& a) {
    accumulator_text t;
    for (const detail::accumulator_key& k : detail::accumulator_keys) {
        const auto value = k.print(a);
        if (value.empty()) continue;
        if (!t.empty()) t.append(",");
        t.append(k.name);
        if (!k.alone || value.view() != "1") t.append("=").append(value);
    }
    return t;
}

}  // namespace QK_ISA

}  // namespace qk
