// SPDX-License-Identifier: Apache-2.0
// Formats from text and back.
//
//   NAME                                         a name of the catalogue (mxfp4), or an element alone as papers write it (e2m1)
//   INTEGER[:symmetric][,pow2][,narrow][,reduce_range]        int8:symmetric,pow2
//   int:bits=N[,signed=0][,symmetric]...         integers of 1 to 32 bits
//   float:exponent=E,mantissa=M[,sign=0][,bias=B][,special=ieee|fn|fnuz|none|nan|inf][,subnormals=0]
//         [,infinity=0|1][,negative_zero=0|1][,high_nans=none|one|mantissas]      facts that no word of `special` means
//   binaryKpP{s,u}{e,f}                          IEEE P3109's formats (p3109.hpp)
//   bfp:block=N,exponent=E,mantissa=M[,bump]
//   microexponent:block=N,sub_block=N,mantissa=M[,shift=D]
//   mx:element=F,block=N                         F: a floating name, int8, intN or float:...
//   table:values=V/V/...[,ties=even-code|lower|upper|toward-zero|away]       2 to 256 numbers, or nan; code i is the i-th
//   nvfp:block=N[,element=F][,scale=F][,tensor=0]
//
// parse_format never throws or allocates: `if (auto f = parse_format(text)) use(*f); else show(f.error.view());`.
// A format that it returns has passed `check`; `*f` of a failure is an assertion in debug builds, and no_format where assertions are off.
// to_text gives the catalogue's name, or the form above with no default spelled out; parse_format(to_text(f)) == f for every valid f.
#pragma once

#include "qk/exact/begin.hpp"

#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <limits>
#include <span>

#include "qk/formats/catalogue.hpp"
#include "qk/formats/check.hpp"
#include "qk/formats/p3109.hpp"
#include "qk/text.hpp"

namespace qk {

inline constexpr std::size_t longest_format_text = 4159;  ///< that of a table of 256 values
using format_text = fixed_text<longest_format_text>;

parsed<format> parse_format(std::string_view text);
format_text to_text(const format& f);

namespace detail {

/// Elements as papers and data sheets name them, without their width. e4m3 is OCP's, so without Inf.
struct short_name {
    std::string_view name, catalogued;
};
inline constexpr short_name short_names[] = {
    {"e4m3", "fp8_e4m3fn"},       {"e4m3fn", "fp8_e4m3fn"}, {"e5m2", "fp8_e5m2"},           {"e3m4", "fp8_e3m4"},
    {"e3m2", "fp6_e3m2"},         {"e2m3", "fp6_e2m3"},     {"e2m1", "fp4_e2m1"},           {"e4m3fnuz", "fp8_e4m3fnuz"},
    {"e5m2fnuz", "fp8_e5m2fnuz"}, {"e3m0", "fp4_e3m0"},     {"e1m2", "fp4_e1m2"},           {"e5m3", "ue5m3"},
    {"fp8_ue5m3", "ue5m3"},       {"ue8m0", "e8m0"},        {"amdfp4_global", "nvfp4_e5m3"}};
/// Names that leave something open or belong to others, and what to say for them here.
inline constexpr short_name other_names[] = {{"fp8", "fp8_e4m3fn or fp8_e5m2"},
                                             {"float8", "fp8_e4m3fn or fp8_e5m2"},
                                             {"fp6", "fp6_e3m2 or fp6_e2m3"},
                                             {"fp4", "fp4_e2m1, or with scales mxfp4 or nvfp4"},
                                             {"float4", "fp4_e2m1, or with scales mxfp4 or nvfp4"},
                                             {"mxfp8", "mxfp8_e4m3 or mxfp8_e5m2"},
                                             {"mxfp6", "mxfp6_e3m2 or mxfp6_e2m3"},
                                             {"msfp12", "bfp:block=16,exponent=8,mantissa=3"},
                                             {"msfp16", "bfp:block=16,exponent=8,mantissa=7"},
                                             {"float32", "fp32"},
                                             {"float16", "fp16"},
                                             {"half", "fp16"},
                                             {"bfloat16", "bf16"}};

/// Returns the catalogue's entry of a name or a short name, or null.
constexpr const named_format* find_named(std::string_view name) {
    for (const short_name& s : short_names)
        if (s.name == name) return find_format(s.catalogued);
    return find_format(name);
}

/// Takes the text up to `separator` (or all of it) off the front.
constexpr std::string_view take_until(std::string_view& rest, char separator) {
    const std::size_t at = rest.find(separator);
    const std::string_view head = rest.substr(0, at);
    rest = at == std::string_view::npos ? std::string_view{} : rest.substr(at + 1);
    return head;
}

constexpr bool parse_number(std::string_view s, int& n) {
    const bool negative = !s.empty() && s.front() == '-';
    if (negative) s.remove_prefix(1);
    if (s.empty() || s.size() > 9) return false;
    int value = 0;
    for (char c : s) {
        if (c < '0' || c > '9') return false;
        value = value * 10 + (c - '0');
    }
    n = negative ? -value : value;
    return true;
}

/// Where the value of a key goes: a number, a switch (`key`, `key=1`, `key=0`), or words that the caller reads.
struct key {
    std::string_view name;
    int* number = nullptr;
    bool* flag = nullptr;
    std::string_view* words = nullptr;
    bool seen = false;
};

/// Reads "a=1,b,c=x" into `keys`. Returns a sentence that says which key is wrong and which there are, empty if all went well.
inline message parse_keys(std::string_view family, std::string_view rest, std::span<key> keys) {
    while (!rest.empty()) {
        const std::string_view whole = rest;
        std::string_view item = take_until(rest, ',');
        const bool has_value = item.find('=') != std::string_view::npos;
        const std::string_view name = take_until(item, '=');
        key* found = nullptr;
        for (key& k : keys) {
            if (k.name == name) found = &k;
        }
        if (found == nullptr) {
            message m("unknown key '");
            m.append(name).append("' for ").append(family).append("; the keys are");
            for (std::size_t i = 0; i < keys.size(); ++i) m.append(i == 0 ? " " : ", ").append(keys[i].name);
            return m;
        }
        if (found->seen) return message("key '").append(name).append("' stands twice");
        found->seen = true;
        int number = 0;
        if (found->words != nullptr) {
            if (item.empty()) return message("key '").append(name).append("' needs a value, as in ").append(name).append("=...");
            *found->words = item;
            if (item.substr(0, 6) == "float:") {  // its own keys follow, up to the next key of this family
                std::string_view value = whole.substr(name.size() + 1);
                for (const key& k : keys) {
                    const std::size_t at = value.find(fixed_text<32>(",").append(k.name).append("=").view());
                    value = value.substr(0, at);
                }
                *found->words = value;
                rest = whole.substr(name.size() + 1 + value.size());
                if (!rest.empty()) rest.remove_prefix(1);
            }
        } else if (found->flag != nullptr) {
            if (has_value && item != "0" && item != "1")
                return message("key '").append(name).append("' is 0 or 1, not '").append(item).append("'");
            *found->flag = !has_value || item == "1";
        } else if (parse_number(item, number)) {
            *found->number = number;
        } else {
            return message("key '").append(name).append("' needs a whole number, not '").append(item).append("'");
        }
    }
    return {};
}

inline message missing(std::string_view family, std::string_view name) {
    return message(family).append(" needs ").append(name).append("=N");
}

/// A word for special values, and what it means with and without a sign.
struct specials_word {
    std::string_view name;
    specials with_sign, without_sign;
};
inline constexpr specials_word specials_words[] = {
    {"ieee", specials::ieee, specials::unsigned_ieee}, {"fn", specials::fn, specials::unsigned_nan},
    {"fnuz", specials::fnuz, specials::unsigned_nan},  {"none", specials::none, specials::unsigned_none},
    {"nan", specials::fnuz, specials::unsigned_nan},   {"inf", specials::extended, specials::unsigned_extended}};

constexpr std::string_view nans_names[] = {"none", "one", "mantissas"};  // in the order of high_nans

/// Returns the word for the facts of a format: the first that means them, but `nan` in formats without a sign; empty if there is none.
constexpr std::string_view word_of(floating f) {
    if (!f.is_signed && f.specials == specials::unsigned_nan) return "nan";
    for (const specials_word& w : specials_words)
        if ((f.is_signed ? w.with_sign : w.without_sign) == f.specials) return w.name;
    return {};
}

/// Returns the bias that the usual formats of that shape have: half of the exponents where one code is NaN (fnuz, IEEE P3109), else one
/// less.
constexpr int default_bias(int exponent_bits, specials s) {
    const int middle = exponent_bits >= 1 && exponent_bits <= 16 ? 1 << (exponent_bits - 1) : 0;
    const bool lone_nan = s == specials::fnuz || s == specials::extended || s == specials::unsigned_nan || s == specials::unsigned_extended;
    return lone_nan ? middle : middle - 1;
}

/// Reads the keys of special values into `f`, whose sign is known.
inline message parse_specials(std::string_view word, std::string_view nans, bool infinity, bool infinity_seen, bool negative_zero,
                              bool negative_zero_seen, floating& f) {
    const specials_word* found = nullptr;
    for (const specials_word& w : specials_words)
        if (w.name == word) found = &w;
    if (found == nullptr) return message("special is ieee, fn, fnuz, none, nan or inf, not '").append(word).append("'");
    f.specials = f.is_signed ? found->with_sign : found->without_sign;
    if (infinity_seen) f.specials.infinity = infinity;
    if (negative_zero_seen) f.specials.negative_zero = negative_zero;
    if (nans.empty()) return {};
    int index = 0;
    while (index < 3 && nans_names[index] != nans) ++index;
    if (index == 3) return message("high_nans is none, one or mantissas, not '").append(nans).append("'");
    f.specials.high_nans = static_cast<high_nans>(index);
    return {};
}

inline parsed<floating> parse_split(std::string_view keys_text) {
    constexpr int unset = std::numeric_limits<int>::min();
    floating f{unset, unset, unset, specials::ieee};
    std::string_view special = "ieee", nans;
    bool infinity = true, negative_zero = true;
    key keys[] = {{.name = "exponent", .number = &f.exponent_bits},
                  {.name = "mantissa", .number = &f.mantissa_bits},
                  {.name = "bias", .number = &f.bias},
                  {.name = "special", .words = &special},
                  {.name = "sign", .flag = &f.is_signed},
                  {.name = "subnormals", .flag = &f.subnormals},
                  {.name = "infinity", .flag = &infinity},
                  {.name = "negative_zero", .flag = &negative_zero},
                  {.name = "high_nans", .words = &nans}};
    message error = parse_keys("float", keys_text, keys);
    if (!error.empty()) return {{}, error};
    if (f.exponent_bits == unset) return {{}, missing("float", "exponent")};
    if (f.mantissa_bits == unset) return {{}, missing("float", "mantissa")};
    error = parse_specials(special, nans, infinity, keys[6].seen, negative_zero, keys[7].seen, f);
    if (!error.empty()) return {{}, error};
    if (f.bias == unset) f.bias = default_bias(f.exponent_bits, f.specials);
    return {f, check(f)};
}

inline parsed<floating> parse_element(std::string_view text) {
    if (text.substr(0, 6) == "float:") return parse_split(text.substr(6));
    if (const floating f = find_p3109(text); f != no_format) return {f, {}};
    const named_format* entry = find_named(text);
    if (entry == nullptr || !std::holds_alternative<floating>(entry->format)) {
        return {{},
                message("'").append(text).append(
                    "' is not a floating element; say for instance fp6_e3m2 or float:exponent=3,mantissa=2,special=none")};
    }
    return {std::get<floating>(entry->format), {}};
}

inline parsed<format> parse_integer(integer f, std::string_view family, std::string_view keys_text, bool named) {
    key keys[] = {{.name = "symmetric", .flag = &f.symmetric}, {.name = "pow2", .flag = &f.pow2},
                  {.name = "narrow", .flag = &f.narrow},       {.name = "reduce_range", .flag = &f.reduce_range},
                  {.name = "bits", .number = &f.bits},         {.name = "signed", .flag = &f.is_signed}};
    message error = parse_keys(family, keys_text, std::span<key>(keys, named ? 4 : 6));
    if (error.empty() && !named && !keys[4].seen) error = missing(family, "bits");
    if (error.empty()) error = check(f);
    return {f, error};
}

inline parsed<format> parse_block_float(std::string_view keys_text) {
    block_float f;
    key keys[] = {{.name = "block", .number = &f.block_size},
                  {.name = "exponent", .number = &f.exponent_bits},
                  {.name = "mantissa", .number = &f.mantissa_bits},
                  {.name = "bump", .flag = &f.bump}};
    message error = parse_keys("bfp", keys_text, keys);
    if (error.empty()) error = check(f);
    return {f, error};
}

inline parsed<format> parse_microexponent(std::string_view keys_text) {
    microexponent f;
    key keys[] = {{.name = "block", .number = &f.block_size},
                  {.name = "sub_block", .number = &f.sub_block_size},
                  {.name = "mantissa", .number = &f.mantissa_bits},
                  {.name = "shift", .number = &f.shift_bits}};
    message error = parse_keys("microexponent", keys_text, keys);
    if (error.empty()) error = check(f);
    return {f, error};
}

inline parsed<format> parse_microscaling(std::string_view keys_text) {
    microscaling f;
    std::string_view element;
    key keys[] = {{.name = "element", .words = &element}, {.name = "block", .number = &f.block_size}};
    message error = parse_keys("mx", keys_text, keys);
    if (error.empty() && element.empty()) error = "mx needs element=F, for instance element=fp6_e3m2";
    int width = 0;
    if (error.empty() && element.substr(0, 3) == "int" && parse_number(element.substr(3), width)) {
        if (width < 2) error = "an MX integer element needs at least 2 bits";
        f.element = {};
        f.integer_bits = width;
    } else if (error.empty()) {
        const parsed<floating> e = parse_element(element);
        f.element = e.value;
        error = e.error;
    }
    if (error.empty()) error = check(f);
    return {f, error};
}

inline parsed<format> parse_nvfloat(std::string_view keys_text) {
    nvfloat f;
    std::string_view element = "fp4_e2m1";
    std::string_view scale = "fp8_e4m3fn";
    key keys[] = {{.name = "block", .number = &f.block_size},
                  {.name = "element", .words = &element},
                  {.name = "scale", .words = &scale},
                  {.name = "tensor", .flag = &f.tensor_scale}};
    message error = parse_keys("nvfp", keys_text, keys);
    if (error.empty()) {
        const parsed<floating> e = parse_element(element);
        const parsed<floating> s = parse_element(scale);
        f.element = e.value;
        f.scale = s.value;
        error = first_of({e.error, s.error, check(f)});
    }
    return {f, error};
}

/// Reads the nearest float32. Some libraries have no from_chars for floats.
inline bool parse_float(std::string_view word, float& value) {
#if defined(__cpp_lib_to_chars)
    const auto read = std::from_chars(word.data(), word.data() + word.size(), value);
    return read.ec == std::errc() && read.ptr == word.data() + word.size();
#else
    char digits[64];
    if (word.empty() || word.size() >= sizeof digits) return false;
    digits[word.copy(digits, sizeof digits - 1)] = 0;
    char* end = nullptr;
    value = std::strtof(digits, &end);
    return end == digits + word.size();
#endif
}

constexpr std::string_view ties_names[] = {"even-code", "lower", "upper", "toward-zero", "away"};  // in the order of table_ties

inline parsed<format> parse_table(std::string_view keys_text) {
    std::string_view values, ties = ties_names[0];
    key keys[] = {{.name = "values", .words = &values}, {.name = "ties", .words = &ties}};
    const message wrong = parse_keys("table", keys_text, keys);
    if (!wrong.empty()) return {{}, wrong};
    if (values.empty()) return {{}, "table needs values=V/V/..., as in table:values=-1/0/1"};
    int tie = 0;
    while (tie < 5 && ties_names[tie] != ties) ++tie;
    if (tie == 5)
        return {{}, message("ties is even-code, lower, upper, toward-zero or away, not '").append(ties.substr(0, 60)).append("'")};
    float v[256];
    std::size_t count = 0;
    while (!values.empty()) {
        const std::string_view word = take_until(values, '/');
        if (count == 256) return {{}, "a table has 256 values at most"};
        if (!parse_float(word, v[count]))
            return {{}, message("'").append(word.substr(0, 60)).append("' is no number of a table (nan is one)")};
        ++count;
    }
    const table t = table_of(std::span<const float>(v, count), static_cast<table_ties>(tie));
    return {t, check(t)};
}

inline message unknown_format(std::string_view name) {
    message m("unknown format '");
    m.append(name.substr(0, 60)).append("'");
    for (const short_name& other : other_names)
        if (other.name == name) return m.append("; say ").append(other.catalogued);
    const std::string_view width = name.substr(name.substr(0, 1) == "u" ? 1 : 0);
    int bits = 0;
    if (width.substr(0, 3) == "int" && parse_number(width.substr(3), bits) && bits >= 1 && bits <= 32)
        return m.append("; say int:bits=").append(bits).append(width.size() == name.size() ? "" : ",signed=0");
    constexpr std::string_view families[] = {"int", "float", "bfp", "microexponent", "mx", "nvfp", "table"};
    for (std::string_view family : families) {
        if (family == name)
            return m.append("; ").append(name).append(" is a family, say its keys as in bfp:block=16,exponent=8,mantissa=5");
    }
    const named_format* near = nearest_name(catalogue, name);
    if (near != nullptr) m.append("; did you mean ").append(near->name).append("?");
    return m.append(near != nullptr ? " " : "; ").append("`qk formats` lists the names");
}

// to_text by family: the form that parse_format reads, without default values.

inline void append_modifiers(format_text& t, integer f, char separator) {
    const struct {
        bool on;
        std::string_view name;
    } modifiers[] = {{f.symmetric, "symmetric"}, {f.pow2, "pow2"}, {f.narrow, "narrow"}, {f.reduce_range, "reduce_range"}};
    for (const auto& m : modifiers) {
        if (m.on) t.append(std::string_view(&separator, 1)).append(m.name);
        if (m.on) separator = ',';
    }
}
inline format_text text_of(floating f) {
    format_text t("float:exponent=");
    t.append(f.exponent_bits).append(",mantissa=").append(f.mantissa_bits);
    if (!f.is_signed) t.append(",sign=0");
    if (f.bias != default_bias(f.exponent_bits, f.specials)) t.append(",bias=").append(f.bias);
    const std::string_view word = word_of(f);
    if (!word.empty() && word != "ieee") t.append(",special=").append(word);
    if (word.empty()) {
        t.append(f.specials.infinity ? ",infinity" : ",infinity=0")
            .append(f.specials.negative_zero ? ",negative_zero" : ",negative_zero=0");
        t.append(",high_nans=").append(nans_names[static_cast<int>(f.specials.high_nans)]);
    }
    return f.subnormals ? t : t.append(",subnormals=0");
}
inline format_text text_of(integer f) {
    const integer plain{.bits = f.bits, .is_signed = f.is_signed};
    format_text t;
    if (const named_format* entry = find_format(format(plain))) {
        t.append(entry->name);
        append_modifiers(t, f, ':');
    } else {
        t.append("int:bits=").append(f.bits);
        if (!f.is_signed) t.append(",signed=0");
        append_modifiers(t, f, ',');
    }
    return t;
}
inline format_text text_of(const block_float& f) {
    format_text t("bfp:block=");
    t.append(f.block_size).append(",exponent=").append(f.exponent_bits).append(",mantissa=").append(f.mantissa_bits);
    return f.bump ? t.append(",bump") : t;
}
inline format_text text_of(const microexponent& f) {
    format_text t("microexponent:block=");
    t.append(f.block_size).append(",sub_block=").append(f.sub_block_size).append(",mantissa=").append(f.mantissa_bits);
    if (f.shift_bits != 1) t.append(",shift=").append(f.shift_bits);
    return t;
}
inline format_text text_of(const microscaling& f) {
    format_text t("mx:");
    if (has_integer_elements(f)) return t.append("element=int").append(f.integer_bits).append(",block=").append(f.block_size);
    return t.append("element=").append(to_text(format(f.element))).append(",block=").append(f.block_size);
}
inline format_text text_of(const nvfloat& f) {
    format_text t("nvfp:block=");
    t.append(f.block_size);
    if (f.element != nvfp4.element) t.append(",element=").append(to_text(format(f.element)));
    if (f.scale != nvfp4.scale) t.append(",scale=").append(to_text(format(f.scale)));
    return f.tensor_scale ? t : t.append(",tensor=0");
}

inline format_text text_of(const table& f) {
    format_text t("table:values=");
    for (std::size_t i = 0; i < static_cast<std::size_t>(f.size()); ++i) {
        char digits[32];
        if (i != 0) t.append("/");
        const float v = f.values->number[i];
        if (v != v) t.append("nan");
        else t.append(std::string_view(digits, static_cast<std::size_t>(std::to_chars(digits, digits + 32, v).ptr - digits)));
    }
    if (f.ties != table_ties::even_code) t.append(",ties=").append(ties_names[static_cast<int>(f.ties)]);
    return t;
}

}  // namespace detail

inline parsed<format> parse_format(std::string_view text) {
    if (text.empty()) return {no_format, "the format is empty; `qk formats` lists the names"};
    if (text.size() > (text.substr(0, 6) == "table:" ? longest_format_text : std::size_t{255}))
        return {no_format, message("the format '").append(text.substr(0, 60)).append("...' is too long")};
    if (const named_format* entry = detail::find_named(text)) return {entry->format, {}};
    if (const floating f = find_p3109(text); f != no_format) return {f, {}};
    std::string_view keys = text;
    const std::string_view head = detail::take_until(keys, ':');
    const named_format* entry = find_format(head);
    parsed<format> result;
    if (head.size() == text.size()) {
        return {no_format, detail::unknown_format(head)};
    }
    if (entry != nullptr && std::holds_alternative<integer>(entry->format))
        result = detail::parse_integer(std::get<integer>(entry->format), head, keys, true);
    else if (head == "int") result = detail::parse_integer({}, head, keys, false);
    else if (head == "float") {
        const parsed<floating> f = detail::parse_split(keys);
        result = {f.value, f.error};
    } else if (head == "bfp") result = detail::parse_block_float(keys);
    else if (head == "microexponent") result = detail::parse_microexponent(keys);
    else if (head == "mx") result = detail::parse_microscaling(keys);
    else if (head == "table") result = detail::parse_table(keys);
    else if (head == "nvfp") result = detail::parse_nvfloat(keys);
    else if (entry != nullptr) result.error = message(head).append(" takes no modifiers; only integers do, as in int8:symmetric");
    else result.error = detail::unknown_format(head);
    if (!result.error.empty() && result.error.view().substr(0, 7) != "unknown") {
        const message why = result.error;
        result.error = message("format '").append(text.substr(0, 160)).append("': ").append(why);
    }
    if (!result.error.empty()) result.value = no_format;
    return result;
}

inline format_text to_text(const format& f) {
    if (const named_format* entry = find_format(f)) return format_text(entry->name);
    if (f == format(no_format)) return "no format";
    if (const floating* g = std::get_if<floating>(&f); g != nullptr && !is_classic(*g) && is_p3109(*g)) return {p3109_name(*g).view()};
    return detail::with_family(f, [](const auto& g) { return detail::text_of(g); });
}

}  // namespace qk

#include "qk/exact/end.hpp"
