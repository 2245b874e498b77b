// SPDX-License-Identifier: Apache-2.0
#include "blocks.hpp"

#include <algorithm>
#include <cmath>

#include "convert.hpp"
#include "qk/reference.hpp"
#include "qk/reference/codes.hpp"

namespace qk::emit {
namespace {

/// Adds a word to the exponent of a number.
unpacked raised(unpacked x, const word& by, int offset) {
    const int width = width_of(x.exponent.largest() + by.largest());
    x.exponent = extend(x.exponent, std::max(width, std::max(x.exponent.width(), by.width()))) +
                 extend(by, std::max(width, std::max(x.exponent.width(), by.width())));
    x.offset += offset;
    return x;
}

/// The largest magnitude of a block: 1.fraction * 2^(exponent - offset), unless it is zero or no number.
struct largest_magnitude_of_block {
    word is_special, is_zero, exponent, fraction;
    int offset = 0;
};
largest_magnitude_of_block largest_of(function& f, const converter& what, bool normal) {
    const int m = what.input.mantissa_bits;
    const word magnitude = f.input("max_bits", m + what.input.exponent_bits);
    const word none = constant(0, 1);
    const unpacked x = unpack(f, what.input, f.let("word", join(none, magnitude)), normal, what.how.flush_inputs);
    const bool small_is_zero = !normal || what.how.flush_inputs;  // what has the exponent field 0 counts as zero
    const word field = bits(magnitude, m, what.input.exponent_bits);
    return {f.let("special", field == ones(what.input.exponent_bits)),
            f.let("zero", small_is_zero && what.input.bias == 127 ? field == 0 : magnitude == 0), x.exponent,
            m == 0 ? none : bits(x.digits, 0, m), what.input.bias + (x.offset - what.input.bias - m)};
}

/// Returns value + k, for a k that may be below 0, held between 0 and `most`.
word moved(function& f, const word& value, int k, std::uint64_t most) {
    const int width = width_of(std::max<std::uint64_t>(
        {value.largest() + static_cast<std::uint64_t>(std::max(k, 0)), static_cast<std::uint64_t>(std::abs(k)), most}));
    const word wide = f.let("wide", extend(value, std::max(width, value.width()))),
               size = number(static_cast<std::uint64_t>(std::abs(k)), wide);
    const word sum = f.let("moved", k >= 0 ? wide + size : choose(wide < size, number(0, wide), lessened(wide, size)));
    return f.let("held", sum.largest() <= most ? sum : choose(sum > most, number(most, sum), sum));
}

/// Returns the significand beyond which a largest value takes the next scale, as a fraction of m bits; 2^m where none does.
std::uint64_t limit_of(const microscaling& f, const semantics& how, int m) {
    const double one = power_of_two(m);
    const auto fraction = [&](double significand) { return static_cast<std::uint64_t>(std::floor((significand - 1) * one)); };
    const double largest = reference::element_max(f), top = power_of_two(reference::exponent_of(largest));
    const int mantissa = reference::element_mantissa_bits(f);
    switch (how.scale_rule) {
        case scale_rule::floor: return ones(m);
        case scale_rule::ceil: return 0;
        case scale_rule::rceil: return fraction(largest / top);
        case scale_rule::ceil_7_25: return fraction((largest + 0.625 * top * power_of_two(-mantissa)) / top);
        case scale_rule::even: {  // at least 2 - 2^-(mantissa + 1) rounds up to 2
            const double least = std::ceil((1 - power_of_two(-mantissa - 1)) * one);
            return least >= one ? ones(m) : static_cast<std::uint64_t>(least) - 1;
        }
        case scale_rule::four_over_six:
        case scale_rule::search: break;
    }
    refuse("a searched scale compares errors of whole blocks; give --scale-rule floor, ceil, rceil, even or ceil_7_25");
}

function scale_of(const converter& what, const microscaling& g) {
    function f =
        named(what, "scale", "Returns the code of the scale of a block, whose largest word without its sign is max_bits; NaN is 255.");
    const int m = what.input.mantissa_bits, top = element_max_exponent(g);
    const largest_magnitude_of_block x = largest_of(f, what, what.input.bias != 127 || top <= 0);
    const std::uint64_t limit = limit_of(g, what.how, m);
    const word up = f.let("up", x.fraction > limit, "the largest element does not reach that far");
    const int width = x.exponent.width() + 1;
    const word exponent = f.let("sum", extend(x.exponent, width) + extend(up, width));
    const word held = moved(f, exponent, 127 - x.offset - top, 254);
    f.result =
        choose(x.is_special, constant(255, 8), choose(x.is_zero, constant(0, 8), held.width() >= 8 ? bits(held, 0, 8) : extend(held, 8)));
    return f;
}

/// Rounds to a whole number of units and stops at a limit.
word held_steps(function& f, const unpacked& x, int whole, const word& step, int step_offset, const word& limit, const semantics& how,
                const word& random) {
    const fixed r = round_fixed(f, x, whole, step, step_offset, how, random);
    return f.let("element", choose((r.beyond & (!x.is_zero)) | (r.magnitude > limit), limit, r.magnitude),
                 "stops at the ends of the codes");
}

function element_of(const converter& what, const microscaling& g) {
    function f = named(what, "element", "Returns the code of an element, whose word x is a number of the block, under the scale's code.");
    const word x = f.input("x", bits(what.input)), scale = f.input("scale", 8), random = random_input(f, what.how);
    const unpacked n = unpack(f, what.input, x, true, what.how.flush_inputs);
    if (has_integer_elements(g)) {
        const int width = g.integer_bits;
        const std::uint64_t highest = ones(width - 1);
        const word limit = choose(n.negative, constant(highest + (what.how.mxint_uses_lowest ? 1 : 0), width), constant(highest, width));
        const word steps = held_steps(f, n, width - 1, scale, 127 + width - 2, limit, what.how, random);
        f.result = choose(scale == 255, constant(0, width), choose(n.negative, constant(0, width) - steps, steps));
        return f;
    }
    // The quotient's exponent is that of x, plus 255 - scale, minus 128.
    unpacked quotient = raised(n, f.let("less", lessened(constant(255, 8), scale)), 128);
    if (what.input.bias != 127)  // the exponent of such a zero is one of ordinary numbers under the smallest scales
        quotient.exponent = f.let("quotient_exponent", choose(n.is_zero, number(0, quotient.exponent), quotient.exponent));
    const word code = pack(f, quotient, g.element, reference::element_semantics(what.how), random);
    f.result = choose(scale == 255, constant(0, bits(g.element)), code);
    return f;
}

function decode_of(const converter& what, const microscaling& g) {
    function f =
        named(what, "decode", "Returns the number of an element's code under the scale's code as a word of float32; NaN is 7fc00000.");
    const int width = element_bits(g);
    const word code = f.input("code", width), scale = f.input("scale", 8);
    unpacked x;
    if (has_integer_elements(g)) {
        const word negative = f.let("negative", bits(code, width - 1, 1));
        x = raised(unpack_whole(f, negative, f.let("magnitude", choose(negative, constant(0, width) - code, code)), 2 - width), scale, 127);
    } else {
        x = raised(unpack(f, g.element, code, true, false), scale, 127);
    }
    f.result = choose(scale == 255, constant(0x7fc00000, 32), pack(f, x, fp32, exact_to_float32(), constant(0, 1)));
    return f;
}

/// Returns the exponent field of a block's largest value as a float32, in 8 bits; 255 where it is no number.
word field_of_largest(function& f, const converter& what) {
    const largest_magnitude_of_block x = largest_of(f, what, what.input.bias != 127);
    const word held = moved(f, x.exponent, 127 - x.offset, 254);
    return f.let("largest_field", choose(x.is_special, constant(255, 8),
                                         choose(x.is_zero, constant(0, 8), held.width() >= 8 ? bits(held, 0, 8) : extend(held, 8))));
}

/// Returns a sign and magnitude as a float32.
word from_sign_magnitude(function& f, const word& code, const word& exponent, int exponent_offset, const word& is_nan) {
    const int m = code.width() - 1;
    const unpacked x = raised(unpack_whole(f, f.let("negative", bits(code, m, 1)), bits(code, 0, m), 0), exponent, exponent_offset);
    return choose(is_nan, constant(0x7fc00000, 32), pack(f, x, fp32, exact_to_float32(), constant(0, 1)));
}

}  // namespace

std::vector<function> functions_of(const converter& what, const microscaling& g) {
    if (what.decode) return {decode_of(what, g)};
    if (!what.how.clamp_mx_scale || what.how.mx_specials != block_specials::block_nan || !encodable(g, what.how))
        refuse("this semantics keeps special values that blocks have no codes for; give --semantics ocp or nvidia");
    return {scale_of(what, g), element_of(what, g)};
}

std::vector<function> functions_of(const converter& what, const block_float& g) {
    const int m = g.mantissa_bits, bias = reference::exponent_bias(g), top = reference::largest_exponent_code(g);
    if (g.bump) refuse("a block that bumps its exponent rounds every value first; give bump=0");
    if (what.how.bfp_specials != block_specials::block_nan)
        refuse("this semantics keeps special values that blocks have no codes for; give --semantics ocp");
    if (what.decode) {
        function f = named(what, "decode",
                           "Returns the number of an element's code under the block's exponent as a word of float32; NaN is 7fc00000.");
        const word code = f.input("code", m + 1), scale = f.input("scale", g.exponent_bits);
        f.result = from_sign_magnitude(f, code, scale, bias + m - 1, scale > static_cast<std::uint64_t>(top));
        return {f};
    }
    function s = named(what, "scale", "Returns the code of the exponent of a block, whose largest word without its sign is max_bits.");
    const word field = field_of_largest(s, what);
    const word held = moved(s, field, bias - 127, static_cast<std::uint64_t>(top));
    const int width = g.exponent_bits;
    s.result = choose(field == 255, constant(ones(width), width), held.width() >= width ? bits(held, 0, width) : extend(held, width));
    function f =
        named(what, "element", "Returns the code of an element, whose word x is a number of the block, under the block's exponent.");
    const word x = f.input("x", bits(what.input)), scale = f.input("scale", width), random = random_input(f, what.how);
    const unpacked n = unpack(f, what.input, x, true, what.how.flush_inputs);
    const word steps = held_steps(f, n, m, scale, bias + m - 1, constant(ones(m), m + 1), what.how, random);
    f.result = choose(scale > static_cast<std::uint64_t>(top), constant(0, m + 1), join(n.negative, bits(steps, 0, m)));
    return {s, f};
}

std::vector<function> functions_of(const converter& what, const microexponent& g) {
    const int m = g.mantissa_bits;
    const std::uint64_t top = ones(g.shift_bits);
    const auto step_of = [&](function& f, const word& scale, const word& shift) {  // the exponent of a step, and 127 + m - 1 + top more
        const word rest = lessened(constant(top, g.shift_bits), shift);
        return f.let("unit", extend(scale, 9) + extend(rest, 9));
    };
    const int offset = 127 + m - 1 + static_cast<int>(top);
    if (what.decode) {
        function f = named(what, "decode",
                           "Returns the number of an element's code under the block's exponent and the pair's shift as a word of float32.");
        const word code = f.input("code", m + 1), scale = f.input("scale", 8), shift = f.input("shift", g.shift_bits);
        f.result = from_sign_magnitude(f, code, step_of(f, scale, shift), offset, scale == 255);
        return {f};
    }
    function s = named(what, "scale", "Returns the exponent of a block, whose largest word without its sign is max_bits.");
    s.result = field_of_largest(s, what);
    function h = named(what, "shift",
                       "Returns the shift of a sub-block, whose largest word without its sign is max_bits, under the block's exponent.");
    const word field = field_of_largest(h, what), block = h.input("scale", 8);
    const word below = h.let("below", choose((block == 255) | (block < field), constant(0, 8), lessened(block, field)));
    h.result = choose(below > top, constant(top, g.shift_bits), bits(below, 0, g.shift_bits));
    function f =
        named(what, "element", "Returns the code of an element, whose word x is a number of the block, under its exponent and shift.");
    const word x = f.input("x", bits(what.input)), scale = f.input("scale", 8), shift = f.input("shift", g.shift_bits),
               random = random_input(f, what.how);
    const unpacked n = unpack(f, what.input, x, true, true);  // subnormals are zero
    const word steps = held_steps(f, n, m, step_of(f, scale, shift), offset, constant(ones(m), m + 1), what.how, random);
    f.result = choose(scale == 255, constant(0, m + 1), join(n.negative, bits(steps, 0, m)));
    return {s, h, f};
}

}  // namespace qk::emit
