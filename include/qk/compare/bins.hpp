// SPDX-License-Identifier: Apache-2.0
// Coverage: bins that stimuli of a device hit. The bins of a format are what its corners (cases.hpp) hit, so each can be hit, and each has
// a stimulus. `qk cover` prints them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "qk/compare/cases.hpp"

namespace qk::compare {

/// What a bin is about. The comment says what its numbers a, b, c, d are.
enum class bin_kind : std::uint8_t {
    input,        ///< a: 0 zero, 1 subnormal, 2 normal, 3 the largest float32, 4 Inf; d: sign
    nan_payload,  ///< a: 0 above the cut alone, 1 below it alone, 2 all ones, 3 the lowest bit alone, 4 the highest alone, 5 others; d:
                  ///< sign
    result,       ///< a: 0 zero of a zero, 1 zero of another number, 2 subnormal, 3 the largest, 4 Inf, 5 NaN; d: sign
    binade,       ///< a: exponent of the result's element; d: sign
    rounding,     ///< a: places cut off; b: pattern, 4 * pattern + 2 * subnormal + odd; c: the sticky bit; d: sign
    carry,    ///< a: 0 into the exponent, 1 from subnormal to normal, 2 to the largest number, 3 beyond it; b: below, at, above a tie; d:
              ///< sign
    between,  ///< a: number of a table below the input; b: below, at, above the middle
    largest_at,   ///< a: lane; d: sign
    nan_at,       ///< a: lane
    infinity_at,  ///< a: lane; d: sign
    zeros,        ///< every value of the block is zero
    scale,        ///< b: 1: the block's scale is 2^a; 0: it is number a of those that occur, ascending
    code,  ///< a: the element's code; of one with more than 16 bits, its bits above the mantissa; b: 0, or 1 and 2: the mantissa is 0, or
           ///< all ones
    code_at,     ///< a: lane; b: code, for blocks
    scale_code,  ///< a: code; b: the element is 0 other, 1 zero, 2 the largest magnitude's code
    shift_code,  ///< a: place; b: code
    pair,        ///< a, b: codes
    distance,    ///< a: place; b: how far the product lies below the largest one, in binades
    addend,      ///< a: how far C lies above the largest product, in binades, from below -b to above b
    cancels,     ///< a: by how many binades the sum lies below its largest term; b: 1 if it is zero
    carries,     ///< a: by how many binades the sum lies above its largest term
    sum_tie,     ///< a: 0 below, 1 at, 2 above a tie of the result; b: the number below is odd; d: sign
    sum,         ///< a: 0 zero, 1 subnormal, 2 normal, 3 beyond the largest number of the result; d: sign
    whole_sum,   ///< a: bits of the sum of integers; d: sign
    special,  ///< a: 0 NaN times zeros alone, 1 Inf times zeros alone, 2 Inf less Inf, 3 NaN, 4 Inf in C against one of products, 5 NaN in
              ///< C, 6 Inf; b: 0, 1 of a, 2 of b
    special_at,     ///< a: place; b: 0 NaN of a, 1 NaN of b, 2 Inf of a, 3 Inf of b
    ends,           ///< a: 0 all lowest, 1 all highest, 2 both; b: likewise of b
    subnormal,      ///< a: 1 of a, 2 of b, 3 of both, 4 of C
    operand_scale,  ///< a: 0 of a, 1 of b; b: the code
    count
};

inline constexpr int scale_as_exponent = 1;  ///< b of bin_kind::scale

struct bin {
    bin_kind kind;
    int a = 0, b = 0, c = 0, d = 0;
    std::size_t hits = 0;
    friend bool operator==(const bin&, const bin&) = default;
};
/// Returns "shift 21: a tie and sticky bit 7 alone, above an odd number, negative".
std::string name_of(const bin& b);
/// Returns what a kind is about, in a word or two: "rounding", "dot distances".
const char* name_of(bin_kind k);

/// Counts what hits which bin. Those that were there at `freeze` are the bins; what hits others counts nowhere.
class bin_table {
  public:
    /// Counts a hit; before freeze() it makes the bin, with `stimulus`, a number of a case.
    void hit(bin_kind kind, int a, int b = 0, int c = 0, int d = 0);
    void at_case(std::uint32_t number) { case_ = number; }
    void freeze();
    const std::vector<bin>& bins() const { return bins_; }
    std::uint32_t stimulus(std::size_t k) const { return stimuli_[k]; }

  private:
    void grow();
    std::vector<bin> bins_;
    std::vector<std::uint32_t> stimuli_;
    std::vector<std::uint64_t> keys_;
    std::vector<std::uint32_t> slots_;
    std::uint32_t case_ = 0;
    bool frozen_ = false;
};

/// Bins of a converter: values in, of one case a block or one value.
class converter_bins {
  public:
    /// `c` is the conversion of one case; `input` is what the converter is given: fp32, fp16 or bf16.
    explicit converter_bins(const conversion& c, floating input = fp32);
    /// Counts cases, one after the other.
    void add(std::span<const float> x);
    const std::vector<bin>& bins() const { return table_.bins(); }
    /// Returns the values of a case that hits bin k.
    std::vector<float> stimulus(std::size_t k) const;

  private:
    void add_some(std::span<const float> x);
    void add_value(float x, float y, float unit);
    void add_rounding(float x, float unit, bool negative);
    void add_block(std::span<const float> x, float unit);
    conversion c_;
    floating input_;
    std::size_t size_;
    int cut_ = 0;  ///< lowest bit of a NaN's payload that the element's mantissa keeps
    bool has_grid_ = false, fixed_ = false;
    int mantissa_ = 0, least_exponent_ = 0, step_exponent_ = 0;
    double largest_ = 0, lowest_ = 0;
    std::vector<float> numbers_;  ///< of a table, ascending
    std::vector<float> scales_;   ///< those that are no powers of two, ascending
    std::vector<float> corners_;
    std::uint32_t cases_ = 0;
    bin_table table_;
};

/// Bins of a decoder: codes in.
class decoder_bins {
  public:
    explicit decoder_bins(const conversion& c);
    void add(const coded_values& codes);
    const std::vector<bin>& bins() const { return table_.bins(); }
    /// Returns the codes of a case that hits bin k.
    coded_values stimulus(std::size_t k) const;

  private:
    qk::format f_;
    std::size_t size_, scales_ = 0, shifts_ = 0;
    int width_ = 0, mantissa_ = 0;
    std::uint32_t zero_ = 0, largest_ = 0;
    coded_values corners_;
    std::uint32_t cases_ = 0;
    bin_table table_;
};

/// Bins of a unit that multiplies and adds: operands in. Distances are counted up to two binades beyond the accumulator's register.
class dot_bins {
  public:
    dot_bins(const dot_task& task, const accumulator& by);
    /// Counts every element of D as a case.
    void add(const dot_case& asked);
    const std::vector<bin>& bins() const { return table_.bins(); }
    /// Returns a case with one row and one column that hits bin k.
    dot_case stimulus(std::size_t k) const;
    struct question;

  private:
    void add_question(const question& q);
    dot_task task_;
    accumulator by_;
    int kept_;
    std::vector<dot_case> corners_;
    std::uint32_t cases_ = 0;
    bin_table table_;
};

/// Returns the fraction bits of the widest register that an accumulator keeps: what dot_corners is to look at.
inline int kept_bits(const accumulator& a) {
    if (a.sum == summation::integer) return a.width;
    const int registers = std::max(a.partial.mantissa_bits, a.result.mantissa_bits);
    return a.sum == summation::aligned ? std::max({a.align, a.join, a.join_addend, registers}) : registers;
}
/// Returns question q of a case, with its row and its column alone.
dot_case question_of(const dot_case& c, std::size_t q);

}  // namespace qk::compare
