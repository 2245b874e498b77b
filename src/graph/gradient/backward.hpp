// SPDX-License-Identifier: Apache-2.0
// Vector-Jacobian products (in short: products): functions that turn the gradients of a node's outputs into those of its inputs. Here are
// the view of a node that such a function gets, and the entries of the table (src/graph/gradient/backward_table.cpp).
#pragma once

#include <algorithm>
#include <any>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/evaluate/execute/node_call.hpp"
#include "graph/ops/dispatch.hpp"
#include "graph/ops/op.hpp"
#include "qk/graph/base/tensor.hpp"

namespace qk::graph::gradient {

/// Allocates from the thread's memory, for operators that are called outside of a run.
class thread_allocator final : public allocator {
  public:
    std::shared_ptr<std::byte> allocate(std::size_t bytes) override { return thread_memory::allocate(bytes); }
    static thread_allocator& get() {
        static thread_allocator h;
        return h;
    }
};

constexpr bool is_real(data_type t) {
    return t == data_type::float32 || t == data_type::float64 || t == data_type::float16 || t == data_type::bfloat16;
}
/// Returns the type of a value's gradient: float64 for float64, float32 for all others.
constexpr data_type gradient_type(data_type t) { return t == data_type::float64 ? t : data_type::float32; }

/// Returns `value` with elements of type T: `value` itself if they already have it. Throws error for a type without a gradient.
template <class T>
tensor as_real(const tensor& value) {
    if (value.type() == type_of<T>) return value;
    tensor wide(type_of<T>, value.shape());
    if (!ops::read_elements<T>(value.type(), value.bytes(), wide.as<T>()))
        throw error(std::string("type ") + name_of(value.type()) + " has no gradient");
    return wide;
}

/// What a product reads and writes: a node's inputs and outputs as they were in the forward pass, the gradients of its outputs, and the
/// places for those of its inputs. A gradient whose buffer nobody else holds may be overwritten.
class backward_call {
  public:
    backward_call(const node_view& node, const op_entry& op, std::span<const tensor> inputs, std::span<const tensor> outputs,
                  std::span<const tensor> gradients, std::span<const char> wanted, std::span<tensor> given, std::any* kept = nullptr)
        : node_(&node),
          op_(&op),
          inputs_(inputs),
          outputs_(outputs),
          gradients_(gradients),
          wanted_(wanted),
          given_(given),
          kept_(kept != nullptr ? kept : &own_) {}
    backward_call(const backward_call&) = delete;
    backward_call& operator=(const backward_call&) = delete;

    const node_view& node() const { return *node_; }
    const op_entry& row() const { return *op_; }
    [[noreturn]] void fail(const std::string& what) const { node_->fail(what); }

    std::size_t input_count() const { return inputs_.size(); }
    bool has_input(std::size_t i) const { return i < inputs_.size() && !inputs_[i].empty(); }
    const tensor& input(std::size_t i) const {
        if (!has_input(i)) fail("input " + std::to_string(i) + " is missing");
        return inputs_[i];
    }
    std::span<const tensor> inputs() const { return inputs_; }
    const tensor& output(std::size_t k) const { return outputs_[k]; }
    std::size_t output_count() const { return outputs_.size(); }
    /// Return input i and output k with elements of type T: half precision is widened.
    template <class T>
    tensor real(std::size_t i) const {
        return as_real<T>(input(i));
    }
    template <class T>
    tensor result(std::size_t k) const {
        return as_real<T>(outputs_[k]);
    }

    /// Returns input i with elements of type T, or an empty tensor if the node lacks it.
    template <class T>
    tensor optional_real(std::size_t i) const {
        return has_input(i) ? real<T>(i) : tensor();
    }

    /// Is true if output k has a gradient; it has none if the output does not lead to what is differentiated.
    bool has_gradient(std::size_t k = 0) const { return k < gradients_.size() && !gradients_[k].empty(); }
    const tensor& gradient(std::size_t k = 0) const { return gradients_[k]; }
    /// Returns a tensor of gradient k's type and shape for a result that is written in order. It is the gradient itself if nobody else
    /// holds its buffer: read element i before writing it.
    tensor over_gradient(std::size_t k = 0) const {
        const tensor& g = gradient(k);
        return g.buffer().use_count() == 1 ? g : tensor(g.type(), g.shape());
    }
    /// Is true if the gradient of input i is wanted.
    bool wants(std::size_t i) const { return i < wanted_.size() && wanted_[i] != 0; }
    /// Sets the gradient of input i if it is wanted. It has as many elements as the input and may share its buffer with an output's
    /// gradient.
    void give(std::size_t i, tensor gradient) {
        if (!wants(i)) return;
        if (gradient.size() != input(i).size())
            fail("the gradient of input " + std::to_string(i) + " has shape " + to_string(gradient.shape()) + " for " +
                 to_string(input(i).shape()));
        given_[i] = gradient.reshaped(input(i).shape());
    }

    /// Returns what make() returns, which must not depend on the gradients: the first of several passes calls it, the others reuse the
    /// result.
    template <class Kept, class Make>
    const Kept& once(Make&& make) {
        if (!kept_->has_value()) kept_->emplace<Kept>(make());
        return std::any_cast<const Kept&>(*kept_);
    }

    /// Runs the operator itself on other inputs.
    std::vector<tensor> forward(std::span<const tensor> inputs, std::size_t outputs = 1) const {
        std::vector<tensor> made(outputs);
        op_context call(*node_, inputs, made, thread_allocator::get(), execute::detail::no_subgraphs());
        op_->run(call);
        return made;
    }
    /// Returns the context for helpers that the operator shares with its product.
    op_context context() const { return {*node_, inputs_, {}, thread_allocator::get(), execute::detail::no_subgraphs()}; }

  private:
    const node_view* node_;
    const op_entry* op_;
    std::span<const tensor> inputs_, outputs_, gradients_;
    std::span<const char> wanted_;
    std::span<tensor> given_;
    std::any* kept_;
    std::any own_;
};

/// Calls f with a float or a double, the element type of the node's gradients; does nothing if there are none.
template <class F>
void with_gradient_type(const backward_call& call, F&& f) {
    for (std::size_t k = 0; k < call.output_count(); ++k)
        if (call.has_gradient(k)) return call.gradient(k).type() == data_type::float64 ? f(double{}) : f(float{});
}

/// Writes to[i] = f(i) for i in [0, n), block by block: f(i) may read to[i], and the loop vectorises all the same.
template <class T, class F>
void write_over(std::size_t n, T* to, F f) {
    std::array<T, 256> made;
    for (std::size_t from = 0; from < n; from += made.size()) {
        const std::size_t count = std::min(made.size(), n - from);
        for (std::size_t i = 0; i < count; ++i) made[i] = f(from + i);
        std::copy_n(made.data(), count, to + from);
    }
}

template <class T>
tensor zeros(const dims& shape) {
    tensor t(type_of<T>, shape);
    std::fill(t.as<T>().begin(), t.as<T>().end(), T{0});
    return t;
}

/// Returns sums that were taken in double, rounded to T.
template <class T>
tensor rounded_sums(const std::vector<double>& sums, const dims& shape) {
    tensor t(type_of<T>, shape);
    for (std::size_t i = 0; i < sums.size(); ++i) t.as<T>()[i] = static_cast<T>(sums[i]);
    return t;
}

/// to[i] += from[i]
template <class T>
void add_into(const T* from, std::size_t n, T* to) {
    for (std::size_t i = 0; i < n; ++i) to[i] += from[i];
}

/// An entry of the table; `since` as in op_entry.
struct backward_entry {
    std::string_view domain, name;
    int since;
    void (*run)(backward_call&);
};

/// The product of a composite whose body says what it computes (graph/ops/body.hpp): that of the body, node by node.
void through_body(backward_call& call);

using product_function = void (*)(backward_call&);
/// Returns the product of an operator: by hand, or that of its body; nullptr if it has none.
product_function find_backward(std::string_view domain, std::string_view name, int version);
/// Returns every operator that has a product by hand, for tests and documentation.
std::span<const backward_entry> all_backward();

}  // namespace qk::graph::gradient
