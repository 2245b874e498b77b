// SPDX-License-Identifier: Apache-2.0
// Which accumulator is in a device that multiplies and adds? Found by questions that tell accumulators apart, as MMA-Sim does it
// (Xie et al., arXiv 2511.10909), and a search over the fields of qk::accumulator.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "qk/dot.hpp"
#include "qk/dot/accumulator.hpp"

namespace qk::compare {

/// A [m][k], B [k][n] and C [m][n] as codes, row by row; D's elements are so many questions. Scales of blocks as their codes.
struct dot_case {
    product_shape shape;
    std::vector<std::uint64_t> a, b, c, scale_a, scale_b;  ///< scale_a [m][k / block], scale_b [k / block][n]; empty without blocks
};

/// What the device is asked with.
struct dot_task {
    qk::format a, b;     ///< floating, integer, block float, NVFP4, or MX with floating elements
    std::size_t k = 64;  ///< terms of a sum
    floating c = fp32;   ///< the format of C; integers: two's complement of 32 bits
    int d_bits = 32;     ///< of a stored result: 16 or 32; of integers 8 too
    std::size_t most_questions = 10000;
    std::uint64_t seed = 0;
};

/// Gives D for a case, as codes [m][n]. It may throw.
using black_box = std::function<std::vector<std::uint64_t>(const dot_case&)>;

struct found_accumulator {
    accumulator best;                    ///< of the device, in the simplest form that gives the same answers
    std::size_t questions = 0, met = 0;  ///< asked, and answered as `best` answers
    dot_counts counts;                   ///< how often `best` overflows, ... over the questions: what the device's own counters should show
    bool complete() const { return met == questions; }
    std::vector<std::string> same;  ///< devices of the catalogue whose accumulator gives every answer
};

/// The code of the scale 1 of a block format.
std::uint64_t unit_scale(const qk::format& f);

/// A sentence where the task cannot be searched, or empty.
std::string check(const dot_task& task);
found_accumulator find_accumulator(const dot_task& task, const black_box& device);
/// From answers that were given already.
found_accumulator fit_accumulator(const dot_task& task, const dot_case& asked, std::span<const std::uint64_t> d);
/// The same from several cases, d one after the other; the search begins at `expected`, and where fields make no difference it takes its.
found_accumulator fit_accumulator(const dot_task& task, std::span<const dot_case> asked, std::span<const std::uint64_t> d,
                                  const accumulator& expected);

/// "align=24 where align=25 is expected, cut=down where toward-zero is expected": fields in which the two differ.
std::string difference_between(const accumulator& device, const accumulator& expected);

}  // namespace qk::compare
