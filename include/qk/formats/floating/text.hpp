// SPDX-License-Identifier: Apache-2.0
// Floating formats from text and back: float:exponent=E,mantissa=M..., and elements of blocks by their names.
#pragma once

#include "qk/exact/begin.hpp"

#include <limits>

#include "qk/formats/keys.hpp"
#include "qk/isa.hpp"

namespace qk::detail {
inline namespace QK_ISA {

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

}  // namespace QK_ISA
}  // namespace qk::detail

#include "qk/exact/end.hpp"
