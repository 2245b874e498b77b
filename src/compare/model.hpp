// SPDX-License-Identifier: Apache-2.0
// A converter that makes mistakes: stages that a mistake may change, and how stages with several mistakes work together.
//
//     x  ->  input()  ->  scales of the blocks  ->  x / scale, rounded to the element's grid  ->  times scale  ->  result()
//             |                |                             |                                                     |
//      rounded too early   off by a binade             sticky bits lost                                     sign of zero lost
//
// Without a mistake in the middle stages the library's own kernels stand for them; with one, element_of does.
#pragma once

#include <optional>
#include <string>

#include "qk/compare/conversion.hpp"

namespace qk::compare {

struct problem {
    const conversion& asked;
    std::span<const std::int64_t> shape;
    std::span<const float> x, expected, device;
};

/// The numbers that an element may be, before its scale: `mantissa` bits behind the leading one from 2^least_exponent on, steps of the
/// last binade below it. Fixed: whole steps.
struct element_grid {
    bool fixed = false;
    int mantissa = 0, least_exponent = 0;
    double step = 1;  ///< fixed
    double largest = 0, lowest = 0;
    static std::optional<element_grid> of(const conversion& c);  ///< none for fp32 and e8m0
    double least_normal() const;                                 ///< 0 where there are no subnormals
    double step_at(double magnitude) const;
};

/// How elements are rounded, where that is not what was asked for.
struct element_rules {
    int guard_bits = 0;  ///< bits behind the mantissa that rounding looks at; 0: all
    enum { as_asked, toward_zero, to_odd } ties = as_asked;
    bool odd_truncated = false;                ///< rounds only where the mantissa that is kept is even
    bool lowest_bit_lost = false;              ///< the lowest mantissa bit is 0 after rounding
    enum { right, lost, held } carry = right;  ///< a round-up beyond the mantissa: its exponent lost, or the mantissa held at all ones
    double subnormal_factor = 1;               ///< by which results below the normal numbers are off before they are rounded
    bool denormalizing_loses = false;          ///< bits that the shift to a subnormal takes out of a 24-bit significand do not count
    bool away_from_zero = false;               ///< whatever lies behind the mantissa rounds up
    int subnormal_guard_bits = 0;              ///< the same as guard_bits, for results below the normal numbers
    bool subnormals_truncated = false;         ///< results below the normal numbers are not rounded
    bool wraps = false;                        ///< integers beyond the range wrap around
    enum { held_back, infinite, nan, nought } beyond = held_back;  ///< what lies beyond the largest number becomes
    /// The zero point that codes are made with; they are read with the right one.
    enum { given, left_out, negated, one_more, one_less } zero_point = given;
    int scale_of = 0, zero_point_of = 0;  ///< -1, 1: what values are converted with is that of the channel before, behind
    friend bool operator==(const element_rules&, const element_rules&) = default;
};

/// What result() may look at.
struct element_facts {
    float x, unit;
    const element_grid* grid;       ///< null where the format has none
    bool subnormal(float y) const;  ///< is y below the normal numbers, and not 0?
};

/// Subjects of which a converter makes one mistake at most.
enum class topic {
    semantics,
    input,
    double_rounding,
    rounding,
    sticky,
    carry,
    low_bit,
    subnormal,
    zero_sign,
    overflow,
    specials,
    integers,
    scale,
    blocks,
    bias,
    result
};

/// A hypothesis: what the device does wrong, in a sentence, and as a change of one stage.
struct mistake {
    topic about;
    const char* sentence;                       ///< '#' stands for what was asked for
    bool (*applies)(const problem&) = nullptr;  ///< null: to everything
    void (*settings)(conversion&, const problem&) = nullptr;
    float (*input)(float x) = nullptr;
    /// The factors of the elements, anew: `x` after input(), `unit` as they should be.
    void (*scales)(const problem&, const conversion&, std::span<const float> x, std::span<float> unit) = nullptr;
    void (*element)(element_rules&) = nullptr;
    float (*result)(float y, const element_facts&) = nullptr;
    std::string (*asked)(const problem&) = nullptr;
};

/// The known mistakes, the likelier first.
std::span<const mistake> known_mistakes();
std::string sentence_of(const mistake& m, const problem& p);

/// Numbers of mistakes in known_mistakes(), in ascending order.
using mistake_set = std::vector<int>;

/// What a converter with these mistakes gives at `at`.
class predictor {
  public:
    predictor(const problem& p, std::vector<std::size_t> at);
    const std::vector<std::size_t>& at() const { return at_; }
    /// `which`: positions in at(); the answer has one value for each.
    void predict(const mistake_set& set, std::span<const std::size_t> which, std::span<float> y);

  private:
    /// The stages before the elements, gathered at at().
    struct front {
        conversion c;
        std::vector<float> x, y, unit;
        std::vector<char> modelled;  ///< the element is finite, and so is what its block makes of it
        bool other_scales = false;
        std::optional<element_grid> grid;
    };
    const front& front_of(const mistake_set& set);
    const problem& p_;
    std::vector<std::size_t> at_;
    std::vector<std::pair<mistake_set, front>> fronts_;  ///< the last ones used
};

}  // namespace qk::compare
