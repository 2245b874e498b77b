// SPDX-License-Identifier: Apache-2.0
// Runs nodes that work element by element or along rows as one step, on a few rows at a time that stay in L1 cache. Before: Add and
// LayerNormalization, or what exporters make of Gelu, gates and normalizations; perhaps behind a product, whose rows they take as soon as
// they are computed. Conditions: float32 of one shape, rows along the last axis, no other reader of the values in between. The operators'
// own functions run in the same order, so the values are the same.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "graph/evaluate/execute/program.hpp"
#include "graph/model/operator_name.hpp"

namespace qk::graph::execute {

/// Some rows of an operand: the first, the distance between rows, and whether a row is one value that repeats.
struct some_rows {
    const float* first;
    std::size_t step;
    bool repeats;
};

class row_unit {
  public:
    /// How an operand is broadcast to rows of n values: not at all, from one value for each row, one row for all, or one value for all.
    enum class kind : std::uint8_t { full, column, row, one };

    /// Returns whether such a unit may hold this step.
    static bool takes(const step& t, const cache& shared);
    /// `members` are in order; the last one makes the unit's value. `product` is the slot of a product before them, or no_slot.
    row_unit(std::span<const step* const> members, const cache& shared, slot product);

    const std::vector<slot>& inputs() const { return inputs_; }
    std::size_t members() const { return members_; }
    /// Returns whether the unit saves a pass over memory even without a product before it.
    bool is_worth_it() const { return worth_it_; }

    /// One call: a unit, which must outlive it, and the inputs, which it holds.
    class call {
      public:
        /// Only type and shape of the product's value are read here.
        call(const row_unit& unit, std::vector<tensor> in);
        bool possible() const { return possible_; }
        /// Returns whether each row of the product makes one row of the result.
        bool follows_product() const {
            return unit_.product_ != left_out && kinds_[static_cast<std::size_t>(-1 - unit_.product_)] == kind::full;
        }
        const dims& shape() const { return shape_; }
        std::size_t rows() const { return rows_; }
        std::size_t work_of_row() const { return 4 * width_ * unit_.nodes_.size(); }  ///< as for_each_range counts
        /// Computes rows [first, first + count) of `y`, which is the whole result. `product` holds the same rows of the product; null if
        /// there is none.
        void run(std::size_t first, std::size_t count, const float* product, float* y, allocator& memory) const;

      private:
        some_rows operand(int which, std::size_t row, std::size_t first, const float* product, const float* space, bool in_column) const;

        const row_unit& unit_;
        std::vector<tensor> in_;
        std::vector<kind> kinds_, made_;  ///< of inputs, and of nodes' results
        dims shape_;
        std::size_t rows_ = 0, width_ = 0, together_ = 1;
        bool possible_ = false;
    };

  private:
    using of_elements = void (*)(const float* x, float* y, std::size_t n);
    using of_numbers = void (*)(const float* x, float* y, std::size_t n, float before, float after);
    using of_pairs = void (*)(some_rows a, some_rows b, float* y, std::size_t rows, std::size_t n, float by);
    struct node {
        operator_name op;
        of_elements elements = nullptr;
        of_numbers numbers = nullptr;  ///< replaces `elements`: with a number before and after the function
        of_pairs pairs = nullptr;
        bool mean = false;  ///< ReduceMean of a row
        bool norm = false;  ///< LayerNormalization
        float epsilon = 0;  ///< of `norm`
        std::int64_t axis = -1;
        float before = 0, after = 0;    ///< of `numbers`; `pairs` multiplies its first operand by `before`
        operator_name first;            ///< the operator that applies `before`; empty: none
        std::optional<float> constant;  ///< the second operand, if it is one number
        std::vector<slot> reads;
        slot makes = no_slot;
        int in[3] = {left_out, left_out, left_out};  ///< operands: node k is k, input k is -1 - k
        int space = -1;                              ///< buffer of its value; -1: the unit's result
    };
    static constexpr int left_out = -1000000;
    static bool find(const step& t, const cache& shared, node& n);
    void take_in_numbers();
    void number_operands(slot product);
    void place();

    std::size_t members_;
    std::vector<node> nodes_;
    std::vector<slot> inputs_;
    int product_ = left_out;  ///< the input (-1 - k) that is a product
    int spaces_ = 0;
    bool worth_it_ = false;
};

/// Finds the row units of a program and brings the steps of each together. Must run before release_values().
void join_rows(program& p);

}  // namespace qk::graph::execute
