// SPDX-License-Identifier: Apache-2.0
// A converter that makes mistakes: stages that a mistake may change, and how stages with several mistakes work together.
//
//     x  ->  input()  ->  scales of the blocks  ->  x / scale, rounded to the element's grid  ->  times scale  ->  result()
//             |                |                             |                                                     |
//      rounded too early   off by a binade             sticky bits lost                                     sign of zero lost
//
// Without a mistake in the middle stages the library's own kernels compute them; with one, element_of does.
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

/// The numbers that an element may be, before its scale: `mantissa` bits behind the leading one from 2^least_exponent on, and below it the
/// steps of that last binade. A fixed grid has steps of `step`.
struct element_grid {
    bool fixed = false;
    int mantissa = 0, least_exponent = 0;
    double step = 1;  ///< of a fixed grid
    double largest = 0, lowest = 0;
    static std::optional<element_grid> of(const conversion& c);  ///< nullopt for fp32 and what has no such grid
    double least_normal() const;                                 ///< 0 where there are no subnormals
    double step_at(double magnitude) const;
};

/// How a converter with mistakes rounds elements; the defaults are what was asked for.
struct element_rules {
    std::optional<qk::rounding> rounding;  ///< nullopt: as asked for
    int guard_bits = 0;                    ///< bits behind the mantissa that rounding looks at; 0: all
    enum { as_asked, toward_zero, to_odd } ties = as_asked;
    bool odd_truncated = false;                ///< rounds only where the mantissa that is kept is even
    bool lowest_bit_lost = false;              ///< the lowest mantissa bit is 0 after rounding
    enum { right, lost, held } carry = right;  ///< a round-up that overflows the mantissa: the carry is lost, or all ones are kept
    double subnormal_factor = 1;               ///< factor on results below the normal numbers before they are rounded
    bool denormalizing_loses = false;          ///< rounding ignores bits that the shift to a subnormal takes out of a 24-bit significand
    bool away_from_zero = false;               ///< any bit behind the mantissa rounds the magnitude up
    int subnormal_guard_bits = 0;              ///< guard_bits of results below the normal numbers
    bool subnormals_truncated = false;         ///< results below the normal numbers are truncated
    bool flushes_before = false;               ///< what is below the normal numbers before it is rounded becomes 0
    int first_bits = 0;        ///< rounds half-even to so many bits behind the mantissa first, then to the mantissa; 0: once
    int significand_bits = 0;  ///< bits behind the mantissa that are kept before a subnormal's shift; 0: all
    int field_bits = 0;        ///< bits of the float32 mantissa behind the element's that are kept; 0: all
    bool wraps = false;        ///< integers beyond the range wrap around
    /// What numbers beyond the largest become; `next` is the number below the largest, `below` one step beyond it if they are negative.
    enum { held_back, infinite, nan, nought, next, below } beyond = held_back;
    bool largest_unused = false;  ///< the largest number becomes the one below it
    /// The zero point that codes are encoded with; they are decoded with the right one.
    enum { given, left_out, negated, one_more, one_less } zero_point = given;
    bool own_mantissa_first = false;  ///< results below the normal numbers are rounded to the mantissa's length first, then to their steps
    int shift_wraps = 0;              ///< a shift to a subnormal, or below a block's exponent, counts modulo this; 0: it does not wrap
    bool whole_shift = false;         ///< the places behind the mantissa of a float32 count for shift_wraps, too
    int lost_sticky_bit = 0;  ///< this bit behind the mantissa is not looked at; 0: all are; -1: the one that the device's values show
    int reciprocal_bits = 0;  ///< the quotient is a product with a reciprocal of so many significant bits; 0: as asked
    int divisor_bits = 0;     ///< the scale that values are divided by has so many significant bits; 0: all
    enum {
        clamped_after,
        before_then_clamped,
        before_then_wrapped
    } range = clamped_after;              ///< integers: clamped before the zero point is added
    int scale_of = 0, zero_point_of = 0;  ///< -1 or 1: the channel before or behind, whose scale or zero point is used; 0: its own
    friend bool operator==(const element_rules&, const element_rules&) = default;
};

/// What mistake::result may look at.
struct element_facts {
    float x, unit;
    const element_grid* grid;  ///< null where the format has none
    const conversion* c;
    const problem* all;
    std::size_t at;                 ///< the position in the array
    bool subnormal(float y) const;  ///< is y below the normal numbers, and not 0?
};

/// Subjects of mistakes: a converter is taken to make one mistake at most of each.
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
    stuck,
    lanes,
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
    /// Changes `unit`, the right factors of the elements; `x` is the input after input().
    void (*scales)(const problem&, const conversion&, std::span<const float> x, std::span<float> unit) = nullptr;
    /// Sets source[i] to the position of the value that is converted in the place of value i; `nowhere` for a zero.
    void (*arrange)(const problem&, std::span<std::size_t> source) = nullptr;
    float (*path)(float x) = nullptr;  ///< changes what elements are made of, not what the scale is taken from
    void (*element)(element_rules&) = nullptr;
    float (*result)(float y, const element_facts&) = nullptr;
    std::string (*asked)(const problem&) = nullptr;
};

inline constexpr std::size_t nowhere = static_cast<std::size_t>(-1);

/// Returns which bit behind the mantissa is alone below the guard where the device rounds a value wrongly, most often; 0: none is.
int lost_sticky_bit_of(const problem& p);

/// Returns the known mistakes, the likelier first.
std::span<const mistake> known_mistakes();
std::string sentence_of(const mistake& m, const problem& p);

/// Indices into known_mistakes(), in ascending order.
using mistake_set = std::vector<int>;

/// Predicts what a converter with a set of mistakes gives for the values at positions `at`.
class predictor {
  public:
    predictor(const problem& p, std::vector<std::size_t> at);
    const std::vector<std::size_t>& at() const { return at_; }
    /// Writes to y one value for each of `which`, indices into at().
    void predict(const mistake_set& set, std::span<const std::size_t> which, std::span<float> y);

  private:
    /// What the stages before the elements give, for the values at at().
    struct front {
        conversion c;
        std::vector<float> x, y, unit;
        std::vector<char> modelled;  ///< element_of applies: the value and, in block formats, the result are finite
        bool other_scales = false;   ///< or other elements: the kernels' answers do not hold
        std::optional<element_grid> grid;
    };
    const front& front_of(const mistake_set& set);
    const problem& p_;
    std::vector<std::size_t> at_;
    int lost_sticky_bit_ = 0;
    std::vector<std::pair<mistake_set, front>> fronts_;  ///< a cache, by mistakes in these stages
};

}  // namespace qk::compare
