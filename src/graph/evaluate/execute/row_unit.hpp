// SPDX-License-Identifier: Apache-2.0
// Nodes that work element by element or along rows as one step, each on a few rows at a time that stay in the first cache. Before: Add and
// LayerNormalization, or what exporters make of Gelu, gates and normalizations; perhaps behind a product, whose rows they take as soon as
// these are there. Conditions: float32 of one shape, rows along the last axis, nobody else reads what lies between. The operators'
// functions in their order: the values are theirs.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "qk/graph/evaluate/execute/program.hpp"

namespace qk::graph::execute {

/// Some rows of an operand: their first, how far apart they are, and whether each is one value, which stands for a row of them.
struct some_rows {
    const float* first;
    std::size_t step;
    bool repeats;
};

class row_unit {
  public:
    /// How an operand lies beside rows of n values: like them, one value for each, one row for all, or one value for all.
    enum class kind : std::uint8_t { full, column, row, one };

    /// Is this a step that such a unit may hold?
    static bool takes(const step& t, const cache& shared);
    /// Members in their order; the last one's value is the unit's. `product`: the slot of a product before them, or no_slot.
    row_unit(std::span<const step* const> members, const cache& shared, slot product);

    const std::vector<slot>& inputs() const { return inputs_; }
    std::size_t members() const { return members_; }
    /// It spares a pass even where no product comes before it.
    bool is_worth_it() const { return worth_it_; }

    /// The unit with its inputs. They hold until it is gone.
    class call {
      public:
        /// Of the product's value type and shape alone are looked at.
        call(const row_unit& unit, std::vector<tensor> in);
        bool possible() const { return possible_; }
        /// Each row of the product makes one of the result.
        bool follows_product() const {
            return unit_.product_ != left_out && kinds_[static_cast<std::size_t>(-1 - unit_.product_)] == kind::full;
        }
        const dims& shape() const { return shape_; }
        std::size_t rows() const { return rows_; }
        std::size_t work_of_row() const { return 4 * width_ * unit_.nodes_.size(); }  ///< as for_each_range counts
        /// Rows [first, first + count) of `y`, which is the whole result; `product`: the same rows of the product, if there is one.
        void run(std::size_t first, std::size_t count, const float* product, float* y, allocator& memory) const;

      private:
        some_rows operand(int which, std::size_t row, std::size_t first, const float* product, const float* space, bool in_column) const;

        const row_unit& unit_;
        std::vector<tensor> in_;
        std::vector<kind> kinds_, made_;  ///< of inputs, and of what nodes make
        dims shape_;
        std::size_t rows_ = 0, width_ = 0, together_ = 1;
        bool possible_ = false;
    };

  private:
    using of_elements = void (*)(const float* x, float* y, std::size_t n);
    using of_numbers = void (*)(const float* x, float* y, std::size_t n, float before, float after);
    using of_pairs = void (*)(some_rows a, some_rows b, float* y, std::size_t rows, std::size_t n, float by);
    struct node {
        std::string_view op;
        of_elements elements = nullptr;
        of_numbers numbers = nullptr;  ///< in its place: a number on either side of the function
        of_pairs pairs = nullptr;
        bool mean = false;  ///< of a row
        bool norm = false;  ///< LayerNormalization
        float epsilon = 0;  ///< its
        std::int64_t axis = -1;
        float before = 0, after = 0;    ///< of `numbers`; of `pairs` the first operand is multiplied by `before`
        std::string_view first;         ///< the operator with `before`, if there is one
        std::optional<float> constant;  ///< of an operator that has a number for its second operand
        std::vector<slot> reads;
        slot makes = no_slot;
        int in[3] = {left_out, left_out, left_out};  ///< numbers of nodes, or -1 less those of inputs
        int space = -1;                              ///< where its value is; -1: in the unit's
    };
    static constexpr int left_out = -1000000;
    static bool find(const step& t, const cache& shared, node& n);
    void take_in_numbers();
    void number_operands(slot product);
    void place();

    std::size_t members_;
    std::vector<node> nodes_;
    std::vector<slot> inputs_;
    int product_ = left_out;  ///< the input that is one
    int spaces_ = 0;
    bool worth_it_ = false;
};

/// Finds them, and brings the steps of each together. Before release_values().
void join_rows(program& p);

}  // namespace qk::graph::execute
