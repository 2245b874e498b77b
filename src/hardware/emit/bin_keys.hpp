// SPDX-License-Identifier: Apache-2.0
// Bins as words: a key, from which a program finds the bin's counter.
//
//     key   kind 5 bits | a | b | c | d 1 bit     the numbers of a compare::bin, in 27 bits together
#pragma once

#include "circuit.hpp"
#include "coverage.hpp"
#include "qk/compare/bins.hpp"

namespace qk::emit {

using compare::bin_kind;

/// Bits of a, b and c.
struct key_fields {
    int a = 17, b = 4, c = 5;
};
constexpr key_fields fields_of(bin_kind k) {
    const bool has_wide_b = k == bin_kind::code_at || k == bin_kind::shift_code || k == bin_kind::distance || k == bin_kind::operand_scale;
    return has_wide_b ? key_fields{13, 13, 0} : key_fields{};
}
/// Binades, and how far C lies above a product, are counted from here.
inline constexpr int least_binade = -512;

inline word truth(bool yes) { return constant(yes ? 1 : 0, 1); }
inline word none() { return constant(0xffffffff, 32); }
inline word small(std::uint64_t v) { return constant(v, 3); }

inline word key(bin_kind kind, const word& a, const word& b, const word& c, const word& d) {
    const key_fields bits = fields_of(kind);
    const auto at = [](const word& w, int place) { return extend(w, 32) << constant(static_cast<std::uint64_t>(place), 5); };
    const word of_kind = constant(static_cast<std::uint64_t>(kind) << 27, 32);
    return of_kind + at(a, bits.b + bits.c + 1) + at(b, bits.c + 1) + at(c, 1) + at(d, 0);
}
inline word key(bin_kind kind, const word& a, const word& d) { return key(kind, a, small(0), small(0), d); }
inline word where(const word& condition, const word& k) { return choose(condition, k, none()); }

/// A float32 and its parts.
struct parts {
    word all, negative, exponent, mantissa, magnitude, is_zero, is_finite, is_nan;
};
parts parts_of(function& f, const word& w, const std::string& of);
/// Returns an input as a float32 with the payload of its NaN.
word as_float32(function& f, const floating& input, const word& x);
/// Returns the key of an input: its class, or the kind of its NaN.
word input_key(function& f, const converter& what, const parts& x);

/// The numbers that rounding chooses from: with a fixed step of 1, or floats whose normal numbers begin at exponent `base` of float32.
struct grid {
    bool fixed = false;
    int mantissa = 0, base = 0, scale = 0;
    double largest = 0, lowest = 0;  ///< magnitudes
    /// Returns a magnitude of the grid in its order: a whole number, or a code.
    std::uint64_t order_of(double v) const;
};
/// What rounding sees of a number.
struct cut_number {
    word is_cut, shift, subnormal, kept, half, rest, sticky, guard, odd;
    word binades;  ///< of a float how many lie between it and the first normal ones, in 32 bits
};
/// Fills in the bits of a number whose shift is known.
void cut_digits(function& f, const parts& x, cut_number& c);
/// Appends the keys of rounding (compare's rounding_patterns.hpp), and of carries: into the exponent, to a normal number, to the largest
/// number, beyond it.
void add_rounding_keys(function& f, const grid& g, const word& negative, const cut_number& c, std::vector<word>& keys);

/// Return the keys of lines of several words.
key_functions keys_of(const multiplier& what);
key_functions keys_of_block(const converter& what);

}  // namespace qk::emit
