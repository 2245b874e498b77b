// SPDX-License-Identifier: Apache-2.0
// Is a device's rounding stochastic, though its random words are not known? Every value between two numbers says whether its word was above
// or below a threshold; that tells fixed rounding, bias, short words, shared and repeated words apart, each with the probability of an
// error.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "qk/compare/conversion.hpp"

namespace qk::compare {

struct random_suspicion {
    std::string sentence;
    double error = 0;  ///< probability that right stochastic rounding would look so, or worse, in any of the tests made
};
struct random_report {
    std::size_t values = 0, between = 0;  ///< values; those that lie between two numbers of the format
    std::size_t elsewhere = 0;            ///< results that are neither of the two, or not the number that the value is
    std::size_t away = 0;                 ///< results of values between two numbers that lie further from zero
    double expected_away = 0;             ///< how many would, on average
    std::vector<random_suspicion> found;  ///< empty: nothing tells the device's rounding from stochastic rounding
};

/// Examines `device`, a device's output for `x`. The rounding of c is stochastic; its words and its seed do not matter.
random_report examine_randomness(const conversion& c, std::span<const float> x, std::span<const float> device);

/// Returns lines that say what was found.
std::string to_text(const random_report& r);

}  // namespace qk::compare
