// SPDX-License-Identifier: Apache-2.0
// Which accumulator does a device that multiplies and adds use? The search asks questions that tell accumulators apart, as MMA-Sim does
// (Xie et al., arXiv 2511.10909), and varies the fields of qk::accumulator.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "qk/dot.hpp"
#include "qk/dot/accumulator.hpp"

namespace qk::compare {

/// A [m][k], B [k][n] and C [m][n] as codes, row by row. Each element of D is a question. Block scales are codes, too.
struct dot_case {
    product_shape shape;
    std::vector<std::uint64_t> a, b, c, scale_a, scale_b;  ///< scale_a [m][k / block], scale_b [k / block][n]; empty without blocks
};

/// The operands and the limits of a search.
struct dot_task {
    qk::format a, b;         ///< floating, integer, block float, NVFP4, or MX with floating elements
    std::size_t k = 64;      ///< number of terms of a sum
    floating c = fp32;       ///< the format of C; where integers are summed: two's complement of 32 bits
    bool has_c = true;       ///< no: C is -0 in every question, which leaves a bare multiplier's product as it is
    bool float_sum = false;  ///< the products of integers are added as floats, to a C that is one
    int d_bits = 32;         ///< bits of a stored result: 8, 16 or 32
    std::size_t most_questions = 10000;
    std::uint64_t seed = 0;
    std::optional<accumulator> expected = std::nullopt;  ///< what the device should be: answers are compared with it, too
    /// Are the sum and C integers?
    bool sums_integers() const { return is_integer_format(a) && !float_sum; }
    int c_bits() const { return sums_integers() ? 32 : bits(c); }
};

/// Returns the device's D for a case, as codes [m][n]. It may throw.
using black_box = std::function<std::vector<std::uint64_t>(const dot_case&)>;

/// A question that an accumulator and the device answer differently.
struct unmet_question {
    dot_case asked;  ///< one row, one column
    std::uint64_t computed = 0, given = 0;
};

struct found_accumulator {
    accumulator best;                    ///< the device's accumulator, in the simplest form that gives the same answers
    std::size_t questions = 0, met = 0;  ///< questions asked; those that the device answers as `best` does
    dot_counts counts;                   ///< how often `best` overflows, ... over the questions: what the device's own counters should show
    bool complete() const { return met == questions; }
    /// A mistake with which `best` gives every answer, where no accumulator alone does; else empty.
    std::string mistake;
    std::size_t expected_met = 0;       ///< questions that the device answers as task.expected does
    std::vector<unmet_question> unmet;  ///< the first four that task.expected, or else `best` without the mistake, answers differently
    std::vector<std::string> same;      ///< devices of the catalogue whose accumulator gives every answer
};

/// Returns the code of the scale 1 of a block format.
std::uint64_t unit_scale(const qk::format& f);
/// Returns the code of C that adds nothing: -0, or the integer 0.
std::uint64_t no_addend(const dot_task& task);

/// Returns a sentence that says why the task cannot be searched, or an empty one if it can.
std::string check(const dot_task& task);
found_accumulator find_accumulator(const dot_task& task, const black_box& device);
/// Searches with answers that the device gave already.
found_accumulator fit_accumulator(const dot_task& task, const dot_case& asked, std::span<const std::uint64_t> d);
/// Searches with several cases, whose answers follow one another in `d`. The search begins at `expected`, and fields that make no
/// difference take its values.
found_accumulator fit_accumulator(const dot_task& task, std::span<const dot_case> asked, std::span<const std::uint64_t> d,
                                  const accumulator& expected);

/// Returns the fields in which the two differ: "align=24 where 25 is expected, cut=down where toward-zero is expected".
std::string difference_between(const accumulator& device, const accumulator& expected);

}  // namespace qk::compare
