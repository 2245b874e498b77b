// SPDX-License-Identifier: Apache-2.0
// Makes questions for a unit that multiplies and adds, from rows and columns of many kinds, and computes an accumulator's answers.
#pragma once

#include "qk/compare/dot.hpp"

namespace qk::compare {

/// Pseudorandom words that follow from a seed.
struct random_source {
    std::uint64_t state;
    std::uint32_t word();
    std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>((std::uint64_t{word()} * n) >> 32); }
};

/// Returns a batch whose rows, columns and addends mix ordinary values, two terms apart by any distance, cancelling pairs among small
/// terms, few large ones, subnormal numbers, the ends of the range, zeros of both signs, Inf and NaN.
dot_case make_questions(const dot_task& task, std::size_t m, std::size_t n, random_source& random);

/// Returns a batch about the last bits that a sum keeps: one large product, alone or with its opposite, beside small ones of both signs at
/// any distance, so that what is cut from those decides a result. The operands are no integers.
dot_case make_border_questions(const dot_task& task, std::size_t m, std::size_t n, random_source& random);

/// A case with packed rows and columns. Question q is element q of D.
class questions {
  public:
    questions(const dot_task& task, const dot_case& asked);
    std::size_t size() const { return c_.size(); }
    /// Returns the code that an accumulator gives at question q, and adds to `counts` unless that is null.
    std::uint64_t answer(const accumulator& acc, std::size_t q, dot_counts* counts = nullptr) const;

  private:
    const dot_task& task_;
    std::size_t n_, k_;
    std::vector<std::vector<std::byte>> rows_, columns_;
    std::vector<std::uint64_t> c_;
};

/// Is true for equal answers, d_bits bit for bit; NaN equals NaN.
bool same_answer(const dot_task& task, const accumulator& acc, std::uint64_t computed, std::uint64_t given);

}  // namespace qk::compare
