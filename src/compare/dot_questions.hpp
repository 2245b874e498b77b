// SPDX-License-Identifier: Apache-2.0
// Questions to a unit that multiplies and adds: rows and columns of many kinds, and what an accumulator answers.
#pragma once

#include "qk/compare/dot.hpp"

namespace qk::compare {

/// Words that follow from a seed.
struct random_source {
    std::uint64_t state;
    std::uint32_t word();
    std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>((std::uint64_t{word()} * n) >> 32); }
};

/// A batch whose rows, columns and addends mix: ordinary values, two terms apart by any distance, cancelling pairs among small terms, few
/// large ones, subnormal numbers, the ends of the range, zeros of both signs, Inf and NaN.
dot_case make_questions(const dot_task& task, std::size_t m, std::size_t n, random_source& random);

/// A case with its rows and columns packed, one question after the other.
class questions {
  public:
    questions(const dot_task& task, const dot_case& asked);
    std::size_t size() const { return c_.size(); }
    /// D's code at question q.
    std::uint64_t answer(const accumulator& acc, std::size_t q, dot_counts* counts = nullptr) const;

  private:
    const dot_task& task_;
    std::size_t n_, k_;
    std::vector<std::vector<std::byte>> rows_, columns_;
    std::vector<std::uint64_t> c_;
};

/// NaN equals NaN; else bit for bit.
bool same_answer(const dot_task& task, const accumulator& acc, std::uint64_t computed, std::uint64_t given);

}  // namespace qk::compare
