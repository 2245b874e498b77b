// SPDX-License-Identifier: Apache-2.0
#include "elements.hpp"

#include <algorithm>

#include "blocks.hpp"
#include "convert.hpp"
#include "qk/formats/parse.hpp"
#include "qk/reference.hpp"
#include "qk/reference/codes.hpp"

namespace qk::emit {
namespace {

std::string text_of(const floating& in) { return in == fp32 ? "float32" : in == fp16 ? "float16" : in == bf16 ? "bfloat16" : "these"; }

/// Returns the bits of an element's code.
int code_width(const format& f) {
    if (const floating* g = number_float(f)) return bits(*g);
    if (const table* t = std::get_if<table>(&f)) return bits(*t);
    return static_cast<int>(bits_per_value(f));
}

// Single values.

function encode(const converter& what, const floating& out) {
    const semantics& how = what.how;
    if (!out.subnormals && out.mantissa_bits > 0)
        refuse("formats with a mantissa and without subnormals have no circuit; give subnormals=1");
    function f = named(what, "encode", "Returns the code of a number, whose word x is that of " + text_of(what.input) + ".");
    const word x = f.input("x", bits(what.input)), random = out == fp32 ? constant(0, 1) : random_input(f, how);
    if (out == fp32 && what.input == fp32) {  // the identity
        word y = x;
        if (how.flush_inputs || how.flush_outputs) y = choose(bits(x, 23, 8) == 0, join(bits(x, 31, 1), constant(0, 31)), x);
        f.result = y;
        return f;
    }
    semantics rule = how;
    if (out == fp32) rule = exact_to_float32(), rule.flush_outputs = how.flush_outputs;
    f.result = pack(f, unpack(f, what.input, x, needs_normal(what.input, out, 0), how.flush_inputs), out, rule, random);
    return f;
}

function decode(const converter& what, const floating& in) {
    function f = named(what, "decode", "Returns the number of a code as a word of float32; NaN is 7fc00000.");
    const word code = f.input("code", bits(in));
    if (in == fp32) {
        f.result = code;
        return f;
    }
    f.result = pack(f, unpack(f, in, code, needs_normal(in, fp32, 0), false), fp32, exact_to_float32(), constant(0, 1));
    return f;
}

function encode(const converter& what, const integer& out) {
    const semantics& how = what.how;
    const std::int64_t zero = what.zero_point;
    if (how.zero_point_before && zero != 0)
        refuse("a zero point that is added before rounding needs a float32 sum; leave --zero-point-before or --zero-point out");
    function f = named(what, "encode", "Returns the code of a number, whose word x is that of " + text_of(what.input) + ".");
    const word x = f.input("x", bits(what.input)), random = random_input(f, how);
    const unpacked n = unpack(f, what.input, x, false, how.flush_inputs);
    const int width = out.bits;
    // The unit is 2^scale_exponent: `unit_offset` makes it the exponent 0 of a constant.
    const int unit = what.scale_exponent;
    if (width - 1 + what.input.bias - unit * -1 < 1)
        refuse("--scale 2^" + std::to_string(unit) + " is so small that every number of this input is beyond the codes; give a larger one");
    const int places = (is_stochastic(how.rounding) ? how.stochastic_bits + (how.rounding == rounding::stochastic ? 0 : 1) : 0);
    if (width + places > 63)
        refuse("codes of " + std::to_string(width) + " bits with " + std::to_string(how.stochastic_bits) +
               " random bits need words of more than 64; give --random-bits " + std::to_string(62 - width));
    const fixed r = round_fixed(f, n, width, constant(0, 1), -unit, how, random);
    const auto low_limit = static_cast<std::uint64_t>(zero - qmin(out)), high_limit = static_cast<std::uint64_t>(qmax(out) - zero);
    const std::uint64_t mask = ones(width);
    const word limit = choose(n.negative, constant(low_limit, width + 1), constant(high_limit, width + 1));
    const word held = f.let("held", choose(r.beyond | (r.magnitude > limit), limit, r.magnitude), "stops at the ends of the codes");
    const word magnitude = bits(held, 0, width), z = constant(static_cast<std::uint64_t>(zero) & mask, width);
    word code = choose(n.negative, z - magnitude, z + magnitude);
    const auto special = [&](integer_special rule) {
        return constant(static_cast<std::uint64_t>(reference::special_code(out, rule, zero)) & mask, width);
    };
    code = choose(n.is_infinite, choose(n.negative, special(integer_special::lowest), special(how.integer_infinity)), code);
    f.result = choose(n.is_nan, special(how.integer_nan), code);
    return f;
}

function decode(const converter& what, const integer& in) {
    function f = named(what, "decode", "Returns the number of a code as a word of float32.");
    const int width = in.bits;
    const word code = f.input("code", width);
    const word sign = in.is_signed ? bits(code, width - 1, 1) : constant(0, 1);
    const word wide = join(sign, code);  // code - zero point lies within width + 1 bits
    const word n = f.let("n", wide - constant(static_cast<std::uint64_t>(what.zero_point) & ones(width + 1), width + 1));
    const word negative = f.let("negative", in.is_signed || what.zero_point != 0 ? bits(n, width, 1) : constant(0, 1));
    const word magnitude = f.let("magnitude", choose(negative, constant(0, width + 1) - n, n));
    f.result = pack(f, unpack_whole(f, negative, magnitude, what.scale_exponent), fp32, exact_to_float32(), constant(0, 1));
    return f;
}

/// Words in the order of their numbers: negative ones upside down, below the others.
std::uint32_t key_of(std::uint32_t x, int width) {
    const std::uint32_t top = std::uint32_t{1} << (width - 1);
    return (x & top) != 0 ? ~x & static_cast<std::uint32_t>(ones(width)) : x | top;
}
std::uint32_t word_of(std::uint32_t key, int width) {
    const std::uint32_t top = std::uint32_t{1} << (width - 1);
    return (key & top) != 0 ? key & ~top : ~key & static_cast<std::uint32_t>(ones(width));
}

function encode(const converter& what, const table& out) {
    const semantics& how = what.how;
    if (is_stochastic(how.rounding))
        refuse("the steps of a table are no powers of two, so that its chances need a division; give another --rounding");
    function f = named(what, "encode", "Returns the code of a number, whose word x is that of " + text_of(what.input) + ".");
    const int width = bits(what.input);
    const word x = f.input("x", width);
    const auto code_at = [&](std::uint32_t key) {
        return reference::code_of(out, reference::value_of(what.input, word_of(key, width)), how, 0);
    };
    // Where the code changes: between -Inf and Inf the oracle's code goes up with the number.
    const auto infinity = static_cast<std::uint32_t>(infinity_magnitude(what.input));
    std::uint32_t at = key_of(infinity | std::uint32_t{1} << (width - 1), width);
    const std::uint32_t end = key_of(infinity, width);
    table_of_words begins{what.name + "_begins", 32, {}}, codes{what.name + "_codes", bits(out), {}};
    for (codes.words.push_back(static_cast<std::uint64_t>(code_at(at))); code_at(at) != code_at(end);) {
        std::uint32_t low = at, high = end;
        while (high - low > 1) {
            const std::uint32_t middle = low + (high - low) / 2;
            (code_at(middle) == code_at(at) ? low : high) = middle;
        }
        at = high;
        begins.words.push_back(at);
        codes.words.push_back(static_cast<std::uint64_t>(code_at(at)));
    }
    int index_bits = 1;
    while ((std::size_t{1} << index_bits) <= begins.words.size()) ++index_bits;
    begins.words.resize((std::size_t{1} << index_bits) - 1, ones(width));
    codes.words.resize(std::size_t{1} << index_bits, codes.words.back());
    f.tables = {begins, codes};
    const word negative = f.let("negative", bits(x, width - 1, 1)), rest = bits(x, 0, width - 1);
    word digits =
        how.flush_inputs && what.input != fp16
            ? f.let("kept", choose(bits(x, what.input.mantissa_bits, what.input.exponent_bits) == 0, constant(0, width - 1), rest))
            : rest;
    const word key = f.let("key", extend(join(!negative, choose(negative, !digits, digits)), 32), "in the order of the numbers");
    word at_index = constant(0, index_bits);
    for (int step = 1 << (index_bits - 1); step >= 1; step /= 2) {  // how many intervals begin at or below the key
        const word probe = at_index + static_cast<std::uint64_t>(step - 1);
        const std::string n = std::to_string(step);
        at_index = f.let("at_" + n, choose(key >= f.let("begin_" + n, f.lookup(begins.name, probe)),
                                           at_index + static_cast<std::uint64_t>(step), at_index));
    }
    const float nan = reference::quiet_nan;
    const int nan_code = reference::code_of(out, nan, how, 0);
    if (nan_code < 0) refuse("this table has no code for NaN; give a --semantics that says what it becomes");
    f.result = choose(f.let("is_nan", rest > static_cast<std::uint64_t>(infinity)),
                      constant(static_cast<std::uint64_t>(nan_code), bits(out)), f.lookup(codes.name, at_index));
    return f;
}

function decode(const converter& what, const table& in) {
    function f = named(what, "decode", "Returns the number of a code as a word of float32; NaN is 7fc00000.");
    table_of_words values{what.name + "_numbers", 32, {}};
    for (std::uint32_t code = 0; code < 1u << bits(in); ++code) {
        const float v = value_of(in, code);
        values.words.push_back(std::isnan(v) ? 0x7fc00000u : std::bit_cast<std::uint32_t>(v));
    }
    f.tables = {values};
    f.result = f.lookup(values.name, f.input("code", bits(in)));
    return f;
}

}  // namespace

std::vector<function> functions_of(const converter& what) {
    std::vector<function> all;
    std::visit(
        [&](const auto& g) {
            if constexpr (requires { decode(what, g); }) all.push_back(what.decode ? decode(what, g) : encode(what, g));
            else if constexpr (requires { functions_of(what, g); }) all = functions_of(what, g);
            else
                refuse(
                    "a quotient by a scale that is no power of two needs a division; divide before, and emit the format of its elements, "
                    "as fp4_e2m1");
        },
        what.format);
    for (function& f : all) drop_unused(f);
    return all;
}

function is_nan_of(const converter& what) {
    if (is_block_format(what.format) && !what.decode) {
        function t = named(what, "is_nan", "Is every number of a block with this scale NaN?");
        const block_float* b = std::get_if<block_float>(&what.format);
        const word y = t.input("scale", b != nullptr ? b->exponent_bits : 8);
        t.result = b != nullptr ? y > static_cast<std::uint64_t>(reference::largest_exponent_code(*b)) : y == 255;
        return t;
    }
    const floating* f = what.decode ? &fp32 : number_float(what.format);
    function t = named(what, "is_nan", "Is a result NaN?");
    if (f != nullptr) {
        t.result = unpack(t, *f, t.input("y", bits(*f)), false, false).is_nan;
    } else {
        const word y = t.input("y", code_width(what.format));
        word nan = constant(0, 1);
        if (const table* g = std::get_if<table>(&what.format)) {
            for (std::uint32_t code = 0; code < static_cast<std::uint32_t>(g->size()); ++code)
                if (std::isnan(value_of(*g, code))) nan = nan | (y == code);
        }
        t.result = nan;
    }
    drop_unused(t);
    return t;
}

}  // namespace qk::emit
