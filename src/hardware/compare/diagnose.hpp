// SPDX-License-Identifier: Apache-2.0
// Searches for the mistakes that reproduce a device's values: up to four together, each made everywhere or in a region of its own.
#pragma once

#include "qk/compare/compare.hpp"
#include "regions.hpp"

namespace qk::compare {

/// Returns a code as "0x1f".
std::string hexadecimal(std::uint32_t code);
/// Returns what c makes of x with another rounding.
std::vector<float> rounded(const conversion& c, rounding r, std::span<const float> x);
/// Returns the values on which the device differs.
value_set differing(const problem& p);

/// Returns a report that has classes and coverage alone. `down` and `up` are the numbers of the format on both sides of the input.
report classified(const problem& p, std::span<const float> down, std::span<const float> up, std::span<const float> unit);

/// Returns a region as a location, with how many of its values are in `differ`.
location location_of(const properties& all, const region& r, const value_set& differ);
/// Describes the differences by up to three places; each describes what those before it leave.
std::vector<location> describe(const properties& all, const value_set& differ);

/// A mistake, and the words of the properties that hold where it is made; none: everywhere.
struct hypothesis {
    int mistake;
    std::vector<std::string> where;
};

/// Sets where, causes, unexplained, alternatives and nearest of `r`; returns the mistakes that are its causes.
std::vector<hypothesis> diagnose(const problem& p, const properties& all, report& r);

/// Returns what a converter with these mistakes gives for the values of `p`. A mistake that is made in a region is left out if no value of
/// `p` lies there.
std::vector<float> predicted(const problem& p, const properties& all, const std::vector<hypothesis>& hypotheses);

}  // namespace qk::compare
