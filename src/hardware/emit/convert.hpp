// SPDX-License-Identifier: Apache-2.0
// Conversions between formats as circuits: the equations of docs/reference/numerics.md over the words of a number's code. What a format
// needs follows from its facts; the circuits leave the rest out.
#pragma once

#include <stdexcept>
#include <string>

#include "circuit.hpp"
#include "qk/emit/emit.hpp"
#include "qk/formats/format.hpp"
#include "qk/semantics.hpp"

namespace qk::emit {

/// Says why something has no circuit, and the way out.
[[noreturn]] inline void refuse(const std::string& why) { throw std::invalid_argument(why); }

/// Begins a function, NAME_verb.
inline function named(const converter& what, const std::string& verb, const std::string& comment) {
    function f;
    f.name = what.name + "_" + verb;
    f.comment = comment;
    return f;
}
/// Returns the input of random bits where a rounding has one, else 0.
inline word random_input(function& f, const semantics& how) {
    return is_stochastic(how.rounding) ? f.input("random", how.stochastic_bits) : constant(0, 1);
}
/// The semantics of a conversion to float32 that loses nothing.
inline semantics exact_to_float32() {
    semantics s;
    s.overflow = overflow_rule::ieee;
    return s;
}

/// A number as words: (-1)^negative * digits * 2^(exponent - offset). The digits' highest bit may be 0.
struct unpacked {
    word negative, is_nan, is_infinite, is_zero;
    word exponent, digits;
    int offset = 0;
    int least = 0;           ///< no exponent of a number other than 0 is below it
    bool is_normal = false;  ///< the digits' highest bit is 1, but for 0
};

/// Returns the number of a code. Where `normal`, the highest bit of the digits of a number other than 0 is 1.
unpacked unpack(function& f, const floating& in, const word& code, bool normal, bool flush);
/// Moves the highest 1 of the digits to the top, in steps that halve; the exponent follows. It goes down by at most steps_of(width).
void normalize(function& f, word& digits, word& exponent);
int steps_of(int width);
/// Returns a distance that stops at `most`, in as many bits as that needs.
word clamped(function& f, const word& distance, std::uint64_t most);
/// Returns a whole number, of digits and a sign, with its highest bit at the top.
unpacked unpack_whole(function& f, const word& negative, const word& magnitude, int exponent);

/// What a number beyond the largest one becomes: what rounding and overflow say, or always the largest one, or never.
enum class at_the_end : std::uint8_t { by_rule, stays, passes };

/// Returns the code in `out` of a number. Needs `normal` digits where numbers below those lie among the normal ones of `out`.
word pack(function& f, const unpacked& x, const floating& out, const semantics& how, const word& random,
          at_the_end end = at_the_end::by_rule);
/// Is true where pack needs `normal` digits of an input whose exponents are moved up by at most `raised`.
bool needs_normal(const floating& in, const floating& out, int raised);

/// Returns the magnitude of a number rounded to a multiple of 2^step_exponent, which is exponent - offset of the step; `bits` bits and one
/// above for the carry. What is larger has all bits set.
struct fixed {
    word magnitude;
    word beyond;  ///< the number is at least 2^bits units
};
fixed round_fixed(function& f, const unpacked& x, int bits, const word& step, int step_offset, const semantics& how, const word& random);

}  // namespace qk::emit
