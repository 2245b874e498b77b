// SPDX-License-Identifier: Apache-2.0
#include "convert.hpp"

#include <algorithm>

#include "qk/dot/accumulator.hpp"
#include "qk/reference.hpp"
#include "qk/reference/codes.hpp"

namespace qk::emit {
namespace {

word no() { return constant(0, 1); }
bool is_half(rounding r) { return r == rounding::half_even || r == rounding::half_away || r == rounding::half_up; }

/// Splits a word whose low `places` bits are a fraction, and returns whether the rest rounds away from zero.
word goes_away(function& f, const word& shifted, int places, const word& lost, const word& odd, const word& negative, const semantics& how,
               const word& random) {
    if (places == 0) return no();
    const auto below = [&](int n) { return n <= 0 ? no() : bits(shifted, 0, n) != 0; };
    const word half = bits(shifted, places - 1, 1);
    switch (how.rounding) {
        case rounding::half_even: return half & f.let("beyond_half", below(places - 1) | odd);
        case rounding::half_away: return half;
        case rounding::half_up: return negative.is(0) ? half : half & ((!negative) | below(places - 1));
        case rounding::toward_zero: return no();
        case rounding::up: return (!negative) & below(places);
        case rounding::down: return negative & below(places);
        case rounding::to_odd: return (!odd) & below(places);
        case rounding::stochastic:
        case rounding::stochastic_b:
        case rounding::stochastic_c: break;
    }
    const int n = how.stochastic_bits;
    word fraction = extend(bits(shifted, places - n, n), n + 1);
    if (how.rounding != rounding::stochastic) {
        const word next = bits(shifted, places - n - 1, 1);
        const word last = bits(shifted, places - n, 1);
        const word up = how.rounding == rounding::stochastic_b ? next : next & (below(places - n - 1) | lost | last);
        fraction = f.let("fraction", fraction + extend(up, n + 1), "to as many bits as are random");
    }
    const word sum = f.let("sum", fraction + extend(random, n + 1));
    return bits(sum, n, 1);
}

/// Shifts digits that stand at the top of a word to the right, by at most `most`; the rounding needs `places` bits of fraction.
struct shifted_word {
    word all, lost;
};
shifted_word shift(function& f, const word& digits, int width, const word& by, bool watch) {
    const word wide = digits.width() == width ? digits : join(digits, constant(0, width - digits.width()));
    const word all = f.let("shifted", wide >> by, by.is(0) ? "" : "by the places that are cut off");
    return {all, watch && !by.is(0) ? f.let("lost", all << by) != wide : no()};
}

/// What a finite number beyond the largest becomes, and what Inf does: a code without the sign, and whether it is NaN instead.
struct beyond_codes {
    word finite, infinite;          ///< magnitudes
    word finite_nan, infinite_nan;  ///< one bit each
};
beyond_codes beyond(const floating& out, const semantics& how, const word& negative, std::uint64_t largest, at_the_end end) {
    const int width = out.exponent_bits + out.mantissa_bits;
    const word top = constant(largest, width), infinity = constant(has_infinity(out) ? infinity_magnitude(out) : 0, width);
    const bool odd = reference::largest_is_odd(out);
    const word stays = how.rounding == rounding::toward_zero || (how.rounding == rounding::to_odd && odd) ? constant(1, 1)
                       : how.rounding == rounding::up                                                     ? negative
                       : how.rounding == rounding::down                                                   ? !negative
                                                                                                          : no();
    const bool saturates = reference::saturates(out, how.overflow);
    const word held = end == at_the_end::passes ? no() : saturates || end == at_the_end::stays ? constant(1, 1) : stays;
    const bool passes = how.overflow == overflow_rule::propagate && has_infinity(out);
    const bool inf_held = saturates && !passes;
    return {choose(held, top, infinity), inf_held ? top : infinity, has_infinity(out) ? no() : !held,
            constant(has_infinity(out) || inf_held ? 0 : 1, 1)};
}

std::uint64_t largest_code(const floating& out) {  // of a number that float32 holds, or of a float64
    if (out == fp64) return (std::uint64_t{0x7ff} << 52) - 1;
    return (static_cast<std::uint64_t>(max_exponent(out) + out.bias) << out.mantissa_bits) | max_mantissa(out);
}

/// Returns the code of a rounded magnitude that may lie beyond the largest power of two; what is not above 0 and finite is NaN.
word power_of_two_code(const unpacked& x, const word& rounded, const word& low, const floating& out, const semantics& how) {
    const int width = bits(out);
    const std::uint64_t largest = largest_code(out), nan = reference::nan_code(out);
    const bool stays = how.rounding == rounding::toward_zero || how.rounding == rounding::down ||
                       (how.rounding == rounding::to_odd && reference::largest_is_odd(out));
    const std::uint64_t over = how.overflow == overflow_rule::ieee && !stays ? nan : largest;
    return choose(x.negative | x.is_nan | x.is_infinite | x.is_zero, constant(nan, width),
                  choose(low, constant(0, width), choose(rounded > largest, constant(over, width), bits(rounded, 0, width))));
}

/// Returns the code of a rounded magnitude that may lie beyond the largest number, with its sign, or of what is no number.
word code_of_rounded(function& f, const unpacked& x, const word& rounded, bool asks_zero, const floating& out, const semantics& how,
                     at_the_end end) {
    const int mb = out.mantissa_bits, width = bits(out), magnitude_bits = out.exponent_bits + mb;
    const word negative = out.is_signed ? x.negative : no();
    const std::uint64_t largest = largest_code(out);
    const beyond_codes b = beyond(out, how, negative, largest, end);
    const std::uint64_t nan = reference::nan_code(out), sign = reference::sign_bit(out);
    const auto with_sign = [&](const word& magnitude) { return out.is_signed ? join(negative, magnitude) : magnitude; };
    word magnitude = bits(rounded, 0, magnitude_bits);
    if (how.flush_outputs) {
        const std::uint64_t normal = static_cast<std::uint64_t>(std::max(-126, min_exponent(out)) + out.bias) << mb;
        magnitude = f.let("magnitude", choose(rounded < normal, constant(0, magnitude_bits), magnitude));
    }
    if (asks_zero) magnitude = choose(x.is_zero, constant(0, magnitude_bits), magnitude);
    if (magnitude.get()->what == gate::choose) magnitude = f.let("finite", magnitude);
    word result = with_sign(magnitude);
    if (out.is_signed && !has_negative_zero(out)) result = join(negative & (magnitude != 0), magnitude);
    const word too_large = f.let("too_large", rounded > largest);
    const word over = b.finite_nan.is(1)   ? constant(nan, width)
                      : b.finite_nan.is(0) ? with_sign(b.finite)
                                           : choose(b.finite_nan, constant(nan, width), with_sign(b.finite));
    result = choose(too_large, over, result);
    const word infinite = b.infinite_nan.is(1) ? constant(nan, width) : with_sign(b.infinite);
    result = choose(x.is_infinite, infinite, result);
    if (!out.is_signed) result = choose(x.negative, constant(0, width), result);
    const std::uint64_t nan_becomes = has_nan(out)                                                                ? nan
                                      : how.nan_without_code == nan_rule::negative_zero && has_negative_zero(out) ? sign
                                                                                                                  : 0;
    return choose(x.is_nan, constant(nan_becomes, width), result);
}

}  // namespace

void normalize(function& f, word& digits, word& exponent) {
    int step = 1;
    while (2 * step < digits.width()) step *= 2;
    for (; step >= 1; step /= 2) {
        const word low = f.let("low_" + std::to_string(step), bits(digits, digits.width() - step, step) == 0);
        const word moved = digits << constant(static_cast<std::uint64_t>(step), 10);
        digits = f.let("digits_" + std::to_string(step), choose(low, moved, digits), step == 1 ? "the highest bit is now 1" : "");
        exponent = f.let("exponent_" + std::to_string(step),
                         choose(low, lessened(exponent, number(static_cast<std::uint64_t>(step), exponent)), exponent));
    }
}

int steps_of(int width) {
    int step = 1, sum = 0;
    while (2 * step < width) step *= 2;
    for (; step >= 1; step /= 2) sum += step;
    return sum;
}

word clamped(function& f, const word& distance, std::uint64_t most) {
    const int width = width_of(std::min(distance.largest(), most));
    if (distance.largest() <= most) return width == distance.width() || distance.is_constant() ? distance : bits(distance, 0, width);
    return f.let("cut", bounded(choose(distance > most, constant(most, width), bits(distance, 0, width)), most));
}

bool needs_normal(const floating& in, const floating& out, int raised) { return in.subnormals && 1 - in.bias + raised > min_exponent(out); }

unpacked unpack(function& f, const floating& in, const word& code, bool normal, bool flush) {
    const int m = in.mantissa_bits, e = in.exponent_bits, width = bits(in);
    const word negative = in.is_signed ? f.let("negative", bits(code, width - 1, 1)) : no();
    const word field = f.let("field", bits(code, m, e));
    const word fraction = m > 0 ? bits(code, 0, m) : no();
    const word magnitude = bits(code, 0, e + m);
    const bool ieee = in.specials.high_nans == high_nans::mantissas;
    word is_nan = ieee                                      ? (field == ones(e)) & (fraction != 0)
                  : in.specials.high_nans == high_nans::one ? magnitude == top_magnitude(in)
                                                            : no();
    if (in.is_signed && !in.specials.negative_zero) is_nan = is_nan | (code == std::uint64_t{1} << (width - 1));
    const word is_infinite = has_infinity(in) ? magnitude == infinity_magnitude(in) : no();
    const word is_zero = has_zero(in) ? magnitude == 0 : no();
    const word hidden = in.subnormals ? field != 0 : has_zero(in) ? magnitude != 0 : constant(1, 1);
    word digits = m == 0 ? hidden : join(hidden, fraction);
    const bool flushes = flush && in.subnormals && 1 - in.bias == -126;
    if (flushes) digits = choose(field == 0, constant(0, m + 1), digits);
    digits = f.let("digits", digits);
    word exponent = in.subnormals ? f.let("exponent", choose(field == 0, number(1, field), field)) : field;
    unpacked x{negative, is_nan, is_infinite, flushes ? field == 0 : is_zero, exponent, digits, in.bias + m, in.subnormals ? 1 : 0};
    if (normal && in.subnormals) {
        const int moved = steps_of(m + 1);
        exponent = f.let("exponent_above", extend(exponent, width_of(exponent.largest() + static_cast<std::uint64_t>(moved))) +
                                               static_cast<std::uint64_t>(moved));
        if (m > 0) normalize(f, digits, exponent);
        x.exponent = exponent, x.digits = digits, x.offset += moved, x.least = moved - m + 1, x.is_normal = true;
    }
    return x;
}

unpacked unpack_whole(function& f, const word& negative, const word& magnitude, int exponent) {
    word digits = f.let("digits", magnitude), e = constant(static_cast<std::uint64_t>(steps_of(magnitude.width())), 7);
    const int offset = steps_of(magnitude.width()) - exponent;
    if (magnitude.width() > 1) normalize(f, digits, e);
    return {negative, no(), no(), magnitude == 0, e, digits, offset, 0, true};
}

word pack(function& f, const unpacked& x, const floating& out, const semantics& how, const word& random, at_the_end end) {
    const int mb = out.mantissa_bits, magnitude_bits = out.exponent_bits + mb;
    const bool power = !has_zero(out);  // powers of two alone
    semantics rule = how;
    if (power && is_half(how.rounding)) rule.rounding = rounding::half_away;
    const word negative = out.is_signed ? x.negative : no();

    // Where the step of `out` begins: exponent `normal_from` and above is a normal number.
    const int in_digits = x.digits.width(), m = std::max(in_digits - 1, mb);
    const int normal_from = min_exponent(out) + x.offset - (in_digits - 1);
    const auto largest_exponent = static_cast<std::int64_t>(x.exponent.largest());
    const bool some_low = normal_from > x.least, some_normal = largest_exponent > normal_from;
    const int exponent_bits = std::max(x.exponent.width(), width_of(static_cast<std::uint64_t>(std::max(normal_from, 1))));
    const word e = extend(x.exponent, exponent_bits), from = constant(static_cast<std::uint64_t>(std::max(normal_from, 0)), exponent_bits);
    const bool all_low = normal_from > largest_exponent;
    const word low = !some_low ? no() : all_low ? constant(1, 1) : f.let("low", e < from, "below the normal numbers");

    // The kept digits, and a fraction behind them.
    const bool chance = is_stochastic(rule.rounding), sticky = rule.rounding == rounding::stochastic_c;
    const int base = m - mb;
    int places = base;
    if (some_low && rule.rounding != rounding::toward_zero) places = m + 2;
    if (chance && (some_low || base > 0)) places = std::max(base, how.stochastic_bits + (rule.rounding == rounding::stochastic ? 0 : 1));
    if (mb + 1 + places == 32) ++places;  // a shift by all of C's places has no meaning
    const int all = mb + 1 + places;
    const auto most = static_cast<std::uint64_t>(chance || rule.rounding == rounding::toward_zero ? all : mb + 2);
    word by = some_low ? choose(low, lessened(from, e), number(0, e)) : constant(0, 1);
    if (some_low) by = bounded(by, from.largest() - static_cast<std::uint64_t>(std::max(x.least, 0)));
    by = clamped(f, f.let("distance", by), most);
    const shifted_word s = shift(f, x.digits, all, by, sticky);
    const word kept = places == 0 ? s.all : bits(s.all, places, mb + 1);

    // The carry of the rounding runs from the mantissa into the exponent.
    const int field_offset = min_exponent(out) + out.bias - 1;  // 0, but for formats without subnormals (-1) and those beyond float32
    const int lift = std::max(0, -normal_from);                 // every input lies above the first exponent of the normal numbers
    const std::uint64_t raised = some_normal ? static_cast<std::uint64_t>(largest_exponent - normal_from) : 0;
    const int code_bits = std::max(width_of(raised + static_cast<std::uint64_t>(std::max(field_offset, 0)) + 3) + mb, magnitude_bits + 1);
    const int step_bits = code_bits - mb;
    word step = constant(0, step_bits);
    if (some_normal) {
        const word above = some_low ? choose(low, number(0, e), lessened(e, from)) : lessened(e, from);
        step = above.width() <= step_bits ? extend(above, step_bits) : f.let("binade", bits(f.let("binades", above), 0, step_bits));
    }
    if (lift + std::max(field_offset, 0) > 0) step = step + static_cast<std::uint64_t>(lift + std::max(field_offset, 0));
    word code = mb == 0 ? step : join(step, constant(0, mb));
    code = extend(kept, code_bits) + code;
    if (field_offset < 0) code = lessened(code, constant(std::uint64_t{1} << mb, code_bits));
    code = f.let("below", code);
    const word odd = code.is_constant() ? no() : bits(code, 0, 1);
    const word away = goes_away(f, s.all, places, s.lost, odd, negative, rule, random);
    code = f.let("rounded", code + extend(f.let("away", away), code_bits), "a carry runs into the exponent");

    const bool asks_zero = !some_low || field_offset != 0 || x.is_normal;  // those of 0 are no code of 0
    return power ? power_of_two_code(x, code, low, out, rule) : code_of_rounded(f, x, code, asks_zero, out, how, end);
}

fixed round_fixed(function& f, const unpacked& x, int whole, const word& step, int step_offset, const semantics& how, const word& random) {
    // The highest bit of the digits has the weight 2^(exponent - offset + digits - 1); the steps', 2^(step - step_offset).
    const int digits = x.digits.width();
    const int top =
        whole - 1 + x.offset - (digits - 1) - step_offset;  // the exponent, less the step's, at which the digits fill the whole bits
    const std::uint64_t reach = std::max(x.exponent.largest(), step.largest() + static_cast<std::uint64_t>(std::max(top, 0))) +
                                static_cast<std::uint64_t>(std::max(-top, 0));
    const int width = width_of(reach);
    const word e = f.let("place", extend(x.exponent, width) + static_cast<std::uint64_t>(std::max(-top, 0)));
    const word full = f.let("full", extend(step, width) + static_cast<std::uint64_t>(std::max(top, 0)));
    const bool never = full.is_constant() && e.largest() <= full.largest();
    const word above = never ? no() : f.let("above", e > full);
    const bool chance = is_stochastic(how.rounding);
    int places = chance ? std::max(digits - whole, how.stochastic_bits + (how.rounding == rounding::stochastic ? 0 : 1))
                 : how.rounding == rounding::toward_zero ? std::max(0, digits - whole)
                                                         : std::max(digits + 1, digits - whole);
    if (whole + places == 32) ++places;
    const int all = whole + places;
    const auto most = static_cast<std::uint64_t>(chance || how.rounding == rounding::toward_zero ? all : whole + 1);
    const word by = clamped(f, f.let("distance", choose(above, number(0, e), lessened(full, e))), most);
    const shifted_word s = shift(f, x.digits, all, by, how.rounding == rounding::stochastic_c);
    const word kept = f.let("kept", bits(s.all, places, whole));
    const word away = goes_away(f, s.all, places, s.lost, bits(kept, 0, 1), x.negative, how, random);
    return {f.let("steps", extend(kept, whole + 1) + extend(f.let("away", away), whole + 1)), above | x.is_infinite};
}

}  // namespace qk::emit
