// SPDX-License-Identifier: Apache-2.0
// Multiplies values of a run, and runs attention as one step. Before: MatMul [-> Div or Mul by a number] [-> Add of a mask] -> Softmax ->
// MatMul. After: one step that, for some rows of a head at a time, computes the scores, scales, masks and normalizes them in cache, and
// computes the context, so that the matrix of all scores is never in memory. Conditions: float32, the softmax along the last axis, no other
// reader of the values in between. The operators' own arithmetic runs in the same order, so the values are the same.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "graph/evaluate/execute/network.hpp"
#include "graph/model/operator_name.hpp"

namespace qk::graph::execute {

/// Multiplies two float32 matrices that are both values of a run, with oneDNN where that is fast; its code is made once for each shape. May
/// be called from many threads.
class value_products {
  public:
    value_products();
    ~value_products();

    /// Returns the MatMul of a and b; its matrices, and parts of their rows, run side by side. Returns an empty tensor if the types or
    /// shapes are not supported.
    tensor run(const node_view& node, const tensor& a, const tensor& b, allocator& memory) const;
    /// Computes y[m,n] = a[m,k] * b[k,n].
    void multiply(const float* a, const float* b, float* y, std::int64_t m, std::int64_t n, std::int64_t k, allocator& memory) const;

  private:
    struct made;
    std::unique_ptr<made> made_;
};

class attention_unit {
  public:
    /// Returns the only reader of a value and its input; null if there are several or a quantizer lies between.
    using only_reader = std::function<std::pair<const net_node*, const net_input*>(int value)>;
    /// Returns the attention that begins with this MatMul, or null.
    static std::shared_ptr<const attention_unit> find(const net_node& scores, const only_reader& next);

    const net_node& scores() const { return *nodes_.front().node; }
    const net_node& context() const { return *nodes_.back().node; }
    /// Returns the inputs that run() takes: the two operands of the scores, then of each later node (except the softmax) the operand that
    /// does not come from the chain.
    std::vector<const net_input*> inputs() const;
    std::vector<const net_node*> nodes() const;

    /// Runs any types and shapes; where the conditions above do not hold, it runs the nodes one by one.
    tensor run(std::vector<tensor> in, const value_products& products, allocator& memory) const;

  private:
    struct link {
        const net_node* node;
        std::size_t own = 0;  ///< number of the operand that comes from the chain
    };
    struct layout;
    bool plan(const std::vector<tensor>& in, layout& l) const;
    tensor one_by_one(const std::vector<tensor>& in, const value_products& products, allocator& memory) const;
    bool has(operator_word op) const { return find_link(op) != 0; }
    std::size_t find_link(operator_word op) const;  ///< 0: there is none

    std::vector<link> nodes_;
};

}  // namespace qk::graph::execute
