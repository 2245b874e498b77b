// SPDX-License-Identifier: Apache-2.0
// Tests the formats of IEEE P3109 against its definitions, written here a second time: codes by counting them in order of value, and
// projections (rounding, then saturation, then code) by looking for neighbours in the list of all numbers.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "qk/formats/codes/code.hpp"
#include "qk/formats/parse.hpp"
#include "qk/option_names.hpp"
#include "qk/reference/codes.hpp"

using namespace qk;

namespace {

/// Calls call(width, precision, is_signed, extended) for every format of P3109 from `least` to `most` bits.
template <class Call>
void each_format(int least, int most, const Call& call) {
    for (int width = least; width <= most; ++width)
        for (int precision = 1; precision <= width; ++precision)
            for (const bool is_signed : {true, false})
                for (const bool extended : {true, false})
                    if (precision < width || !is_signed) call(width, precision, is_signed, extended);
}

/// A format as the draft has it: the numbers from 0 on, which are codes 0, 1, 2 ... of every format, and the codes that are no numbers.
struct drafted {
    std::vector<double> numbers;
    bool is_signed, extended;
    std::uint32_t nan, infinity, sign, per_binade;

    drafted(int width, int precision, bool with_sign, bool with_infinity) : is_signed(with_sign), extended(with_infinity) {
        const int exponents = width - precision + (with_sign ? 0 : 1), bias = 1 << (exponents - 1);
        const std::uint32_t magnitudes = 1u << (with_sign ? width - 1 : width);
        per_binade = 1u << (precision - 1);
        sign = with_sign ? magnitudes : 0;
        nan = with_sign ? magnitudes : magnitudes - 1;
        infinity = with_sign ? magnitudes - 1 : magnitudes - 2;
        const std::uint32_t count = magnitudes - (with_sign ? 0 : 1) - (with_infinity ? 1 : 0);
        const int each = 1 << (precision - 1);
        for (std::uint32_t code = 0; code < count; ++code) {
            const auto binade = static_cast<int>(code) / each, place = static_cast<int>(code) % each;
            const int leading = binade == 0 ? 0 : each;
            numbers.push_back(std::ldexp(leading + place, (binade == 0 ? 1 : binade) - bias - (precision - 1)));
        }
    }

    std::uint32_t project(double x, rounding how, overflow_rule saturation, int bits, std::uint32_t word) const {
        if (std::isnan(x)) return nan;
        const bool negative = x < 0;
        if (!is_signed && negative) return 0;  // the least number is 0
        const double magnitude = std::fabs(x);
        const auto top = static_cast<std::uint32_t>(numbers.size() - 1);
        const std::uint32_t minus = negative ? sign : 0, beyond = extended ? infinity | minus : nan;
        if (std::isinf(x)) {
            if (saturation == overflow_rule::saturate) return top | minus;
            if (saturation == overflow_rule::propagate) return extended ? infinity | minus : top | minus;
            return beyond;
        }
        const auto above = static_cast<std::uint32_t>(std::upper_bound(numbers.begin(), numbers.end(), magnitude) - numbers.begin());
        std::uint32_t code = above - 1;
        // Behind the largest number the grid goes on: its next number decides what is beyond.
        const double low = numbers[code];
        const double high = above <= top ? numbers[above] : low + step_behind(low);
        const double part = magnitude - low, step = high - low;
        if (part == 0) return code == 0 ? 0 : code | minus;
        bool away = above > top && part >= step;  // more than a step beyond: beyond in every rounding that may leave the range
        const bool odd = code % 2 != 0;
        if (!away) {
            const double fraction = part / step * std::ldexp(1.0, bits);
            double count = std::floor(fraction);
            const double rest = fraction - count;
            switch (how) {
                case rounding::half_even: away = 2 * part > step || (2 * part == step && odd); break;
                case rounding::half_away: away = 2 * part >= step; break;
                case rounding::half_up: away = negative ? 2 * part > step : 2 * part >= step; break;
                case rounding::toward_zero: break;
                case rounding::up: away = !negative; break;
                case rounding::down: away = negative; break;
                case rounding::to_odd: away = !odd; break;
                case rounding::stochastic_c: count += rest > 0.5 || (rest == 0.5 && std::fmod(count, 2) != 0) ? 1 : 0; [[fallthrough]];
                case rounding::stochastic_b: count += how == rounding::stochastic_b && rest >= 0.5 ? 1 : 0; [[fallthrough]];
                case rounding::stochastic: away = count + (word >> (32 - bits)) >= std::ldexp(1.0, bits); break;
            }
        }
        const bool stays = how == rounding::toward_zero || (how == rounding::up && negative) || (how == rounding::down && !negative) ||
                           (how == rounding::to_odd && odd);
        if (above > top) {
            if (!away || stays || saturation != overflow_rule::ieee) return top | minus;
            return beyond;
        }
        if (away) ++code;
        return code == 0 ? 0 : code | minus;
    }

    /// The distance from the largest number to the one that the next code would be.
    double step_behind(double largest) const {
        const std::uint32_t binade = per_binade;
        const auto code = static_cast<std::uint32_t>(numbers.size() - 1);
        if (binade == 1) return largest;                   // powers of two
        const std::uint32_t first = code - code % binade;  // of the largest number's binade
        return first == 0 ? numbers[1] : numbers[first] / binade;
    }
};

}  // namespace

TEST_CASE("names of P3109's formats follow a rule, and each is its format") {
    int formats = 0;
    each_format(3, 15, [&](int width, int precision, bool is_signed, bool extended) {
        const std::string name =
            "binary" + std::to_string(width) + "p" + std::to_string(precision) + (is_signed ? "s" : "u") + (extended ? "e" : "f");
        const floating f = p3109(width, precision, is_signed, extended);
        CAPTURE(name);
        CHECK(p3109_name(f) == name);
        CHECK(*parse_format(name) == format(f));
        CHECK(check(f).empty());
        CHECK(bits(f) == width);
        CHECK(*parse_format(to_text(f)) == format(f));
        ++formats;
    });
    CHECK(formats == 442);
    for (const char* name : {"binary2p1se", "binary16p3se", "binary8p8se", "binary8p0se", "binary8p9ue", "binary8p3", "binary8p3sx",
                             "binary08p3se", "binary8p3seX"})
        CHECK(find_p3109(name) == no_format);
    CHECK(to_text(format(p3109(8, 3, true, false))) == "fp8_e5m2fnuz");  // the names of old formats stay
    CHECK(to_text(format(p3109(8, 3))) == "binary8p3se");
}

TEST_CASE("every code of P3109's formats of 3 to 15 bits is the number that the draft gives it") {
    each_format(3, 15, [&](int width, int precision, bool is_signed, bool extended) {
        const floating f = p3109(width, precision, is_signed, extended);
        CAPTURE(std::string(p3109_name(f).view()));
        const int exponents = width - precision + (is_signed ? 0 : 1), bias = 1 << (exponents - 1), per_binade = 1 << (precision - 1);
        const std::uint32_t magnitudes = 1u << (is_signed ? width - 1 : width);
        int wrong = 0;
        for (std::uint32_t code = 0; code < 1u << width; ++code) {
            const code_number n = number_of(f, code);
            const std::uint32_t magnitude = code % magnitudes;
            const bool negative = code >= magnitudes;
            const bool nan = is_signed ? code == magnitudes : code == magnitudes - 1;
            const bool infinite = extended && magnitude == magnitudes - (is_signed ? 1 : 2) && !nan;
            const auto binade = static_cast<int>(magnitude) / per_binade, place = static_cast<int>(magnitude) % per_binade;
            const auto digits = static_cast<std::uint32_t>(binade == 0 ? place : per_binade + place);
            const int exponent = (binade == 0 ? 1 : binade) - bias - (precision - 1);
            const bool right = nan        ? n.nan
                               : infinite ? n.infinite && n.negative == negative
                                          : !n.nan && !n.infinite && n.digits == digits && n.negative == negative &&
                                                (digits == 0 || n.exponent == exponent);
            wrong += right ? 0 : 1;
            const float value = value_of(f, code), again = reference::value_of(f, code);
            const float wanted = nan        ? std::nanf("")
                                 : infinite ? (negative ? -HUGE_VALF : HUGE_VALF)
                                            : static_cast<float>(std::ldexp(negative ? -static_cast<double>(digits) : digits, exponent));
            wrong += (value == wanted || (nan && std::isnan(value))) && (again == wanted || (nan && std::isnan(again))) ? 0 : 1;
            if (!exceeds_float32(f)) wrong += code_of(f, value) == code && reference::code_of(f, value) == code ? 0 : 1;
        }
        CHECK(wrong == 0);
    });
}

TEST_CASE("projections to P3109's formats of 3 to 8 bits: every rounding and saturation") {
    each_format(3, 8, [&](int width, int precision, bool is_signed, bool extended) {
        const floating f = p3109(width, precision, is_signed, extended);
        const drafted draft(width, precision, is_signed, extended);
        std::vector<float> x{0.0f, -0.0f, HUGE_VALF, -HUGE_VALF, std::nanf(""), 1e-45f, -1e-45f, 3e38f, -3e38f};
        for (std::size_t k = 0; k < draft.numbers.size(); ++k) {
            const double low = draft.numbers[k], high = k + 1 < draft.numbers.size() ? draft.numbers[k + 1] : low + draft.step_behind(low);
            for (const double part : {0.0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.9375, 1.0, 1.5}) {
                const auto v = static_cast<float>(low + part * (high - low));
                for (const float near : {v, std::nextafter(v, 0.0f), std::nextafter(v, HUGE_VALF)}) x.insert(x.end(), {near, -near});
            }
        }
        std::mt19937 random(width * 100 + precision);
        int wrong = 0;
        for (const auto& r : rounding_names) {
            for (const overflow_rule saturation : {overflow_rule::saturate, overflow_rule::propagate, overflow_rule::ieee}) {
                for (const int bits : {1, 3, 32}) {
                    if (bits != 32 && !is_stochastic(r.value)) continue;
                    const semantics how{.rounding = r.value, .overflow = saturation, .stochastic_bits = bits};
                    for (const float v : x) {
                        const auto word = static_cast<std::uint32_t>(random());
                        const std::uint32_t wanted = draft.project(static_cast<double>(v), r.value, saturation, bits, word);
                        const std::uint32_t got = reference::code_of(f, reference::quantize(f, v, how, word));
                        if (got == wanted) continue;
                        if (++wrong <= 3)
                            MESSAGE(std::string(p3109_name(f).view()) << " " << std::string(r.name) << " " << static_cast<int>(saturation)
                                                                      << " " << bits << ": " << v << " is " << got << ", not " << wanted);
                    }
                }
            }
        }
        CHECK(wrong == 0);
    });
}
