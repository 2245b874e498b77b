// SPDX-License-Identifier: Apache-2.0
// Products of values, and attention as one step. Before: MatMul [-> Div or Mul by a number] [-> Add of a mask] -> Softmax -> MatMul.
// After: for some rows of a head at a time the scores, scaled, masked and normalized while they are in a cache, and the context, so that no
// matrix of all scores is ever in memory. Conditions: float32, the softmax along the last axis, nobody else reads what lies between. The
// operators' steps in their order: the values are theirs.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "qk/graph/evaluate/execute/network.hpp"

namespace qk::graph::execute {

/// Products of float32 matrices that are values of a run: oneDNN's where it is quick, each made once for a shape. From many threads.
class value_products {
  public:
    value_products();
    ~value_products();

    /// MatMul of a and b, its matrices and their rows side by side. An empty tensor: not of these types and ranks.
    tensor run(const node_view& node, const tensor& a, const tensor& b, allocator& memory) const;
    /// y[m,n] = a[m,k] * b[k,n]
    void multiply(const float* a, const float* b, float* y, std::int64_t m, std::int64_t n, std::int64_t k, allocator& memory) const;

  private:
    struct made;
    std::unique_ptr<made> made_;
};

class attention_unit {
  public:
    /// Goes on from a value to its only reader, if nothing lies between them.
    using only_reader = std::function<std::pair<const net_node*, const net_input*>(int value)>;
    /// Null: this MatMul does not begin one.
    static std::shared_ptr<const attention_unit> find(const net_node& scores, const only_reader& next);

    const net_node& scores() const { return *nodes_.front().node; }
    const net_node& context() const { return *nodes_.back().node; }
    /// What run() takes: the two operands of the scores, of each later node but the softmax the one that is not the chain's.
    std::vector<const net_input*> inputs() const;
    std::vector<const net_node*> nodes() const;

    /// Whatever the types and shapes are: where they are not those above, one node after the other.
    tensor run(std::vector<tensor> in, const value_products& products, allocator& memory) const;

  private:
    struct link {
        const net_node* node;
        std::size_t own = 0;  ///< the operand that is the chain's
    };
    struct layout;
    bool plan(const std::vector<tensor>& in, layout& l) const;
    tensor one_by_one(const std::vector<tensor>& in, const value_products& products, allocator& memory) const;
    bool has(const char* op) const { return find_link(op) != 0; }
    std::size_t find_link(const char* op) const;  ///< 0: there is none

    std::vector<link> nodes_;
};

}  // namespace qk::graph::execute
