// SPDX-License-Identifier: Apache-2.0
// What the vector-Jacobian products of LSTM, GRU and RNN share: slopes of activations, a sample's walk through time, and the gradients of
// X, W, R, B and the first state.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "graph/gradient/product.hpp"
#include "graph/ops/recurrent.hpp"

namespace qk::graph::gradient {

/// Returns f'(x) of an activation that clips x first (clip 0: it does not); the slope beyond the clip is 0.
template <class T>
T activation_slope(const ops::recurrent_activation& f, T x, float clip) {
    using kind = ops::recurrent_activation::kind;
    if (clip > 0 && std::fabs(x) > static_cast<T>(clip)) return 0;
    const T a = static_cast<T>(f.alpha), b = static_cast<T>(f.beta);
    const auto sigmoid = [](T v) { return 1 / (1 + std::exp(-v)); };
    switch (f.function) {
        case kind::relu: return x > 0 ? T{1} : T{0};
        case kind::tanh: return 1 - std::tanh(x) * std::tanh(x);
        case kind::sigmoid: return sigmoid(x) * (1 - sigmoid(x));
        case kind::affine: return a;
        case kind::leaky_relu: return x >= 0 ? T{1} : a;
        case kind::thresholded_relu: return x >= a ? T{1} : T{0};
        case kind::scaled_tanh: return a * b * (1 - std::tanh(b * x) * std::tanh(b * x));
        case kind::hard_sigmoid: return a * x + b > 0 && a * x + b < 1 ? a : T{0};
        case kind::elu: return x >= 0 ? T{1} : a * std::exp(x);
        case kind::softsign: return 1 / ((1 + std::fabs(x)) * (1 + std::fabs(x)));
        case kind::softplus: return sigmoid(x);
    }
    return 0;
}

/// Rows of a sample's walk through time: row s is what a cell kept of step s.
template <class T>
struct step_rows {
    std::size_t width;
    std::vector<T> values;
    step_rows(std::size_t steps, std::size_t row) : width(row), values(steps * row, T{0}) {}
    T* operator[](std::size_t s) { return values.data() + s * width; }
};

/// One sample in one direction. A cell reads `before` and writes by_input, by_state and last_state.
template <class T>
struct recurrent_walk {
    std::size_t direction, sample, steps;
    step_rows<T> before;      ///< the state before each step
    step_rows<T> by_input;    ///< gradients of W x, [steps, gates * hidden]
    step_rows<T> by_state;    ///< gradients of R h
    step_rows<T> last_state;  ///< what R's rows of the last gate multiply, if that is not the state
};

/// Walks through time and collects the gradients of the sequence, the weights, the biases and the first state, in the layout of the node.
template <class T>
class recurrent_backward {
  public:
    recurrent_backward(product_call& p, std::size_t gate_count) : product(&p), context(p.context()), c(context, gate_count, 5) {
        dx = zeros<T>(c.x.shape());
        dw = zeros<T>(c.w.shape());
        dr = zeros<T>(c.r.shape());
        if (!c.b.empty()) db = zeros<T>(c.b.shape());
        dh = zeros<T>(c.hidden_state.shape());
    }

    /// Runs a cell: gates_with_recurrent_bias (as project() takes it), separate_last, start(walk), forward(walk, s, state), backward(walk,
    /// s, g), end(walk). backward() turns g, the gradient of the state after step s, into that of the state before.
    template <class Cell>
    void run(Cell& cell) {
        const std::size_t h = c.hidden, rows = c.gates * h;
        for (std::size_t d = 0; d < c.directions; ++d) {
            c.project(d, cell.gates_with_recurrent_bias);
            for (std::size_t n = 0; n < c.batch; ++n) {
                const std::size_t steps = c.lengths[n];
                recurrent_walk<T> walk{d, n, steps, {steps, h}, {steps, rows}, {steps, rows}, {cell.separate_last ? steps : 0, h}};
                cell.start(walk);
                T* state = c.state(c.hidden_state, d, n);
                for (std::size_t s = 0; s < steps; ++s) {
                    std::copy_n(state, h, walk.before[s]);
                    cell.forward(walk, s, state);
                }
                T* g = dh.as<T>().data() + (d * c.batch + n) * h;
                add_gradient(1, state_position(d, n), g);
                for (std::size_t s = steps; s-- > 0;) {
                    add_gradient(0, output_position(c.time(d, n, s), d, n), g);
                    cell.backward(walk, s, g);
                }
                cell.end(walk);
                take(walk, cell.separate_last);
            }
        }
        product->give(0, dx);
        product->give(1, dw);
        product->give(2, dr);
        if (!db.empty()) product->give(3, db);
        give_state(5, dh);
    }

    std::size_t state_position(std::size_t d, std::size_t n) const {
        return (c.batch_first ? n * c.directions + d : d * c.batch + n) * c.hidden;
    }
    /// Adds to g the gradient of output k from `position` on.
    void add_gradient(std::size_t k, std::size_t position, T* g) const {
        if (!product->has_gradient(k)) return;
        const T* from = product->gradient(k).template as<T>().data() + position;
        for (std::size_t j = 0; j < c.hidden; ++j) g[j] += from[j];
    }
    void give_state(std::size_t input, const tensor& of) {
        if (!product->wants(input)) return;
        tensor given(type_of<T>, of.shape());
        for (std::size_t d = 0; d < c.directions; ++d)
            for (std::size_t n = 0; n < c.batch; ++n)
                std::copy_n(of.as<T>().data() + (d * c.batch + n) * c.hidden, c.hidden, given.as<T>().data() + state_position(d, n));
        product->give(input, given);
    }
    /// Multiplies g by the slope at `x`, for `count` values.
    void through(const ops::recurrent_activation& f, const T* x, std::size_t count, T* g) const {
        for (std::size_t j = 0; j < count; ++j) g[j] *= activation_slope(f, x[j], c.clip);
    }
    /// Adds R' g to `state`, with rows [first, first + count) of R in direction d.
    void add_recurrence(std::size_t d, std::size_t first, std::size_t count, const T* g, T* state) const {
        std::vector<T> part(c.hidden);
        ops::multiply(g, false, c.recurrence(d) + first * c.hidden, false, part.data(), 1, signed_size(c.hidden), signed_size(count));
        for (std::size_t j = 0; j < c.hidden; ++j) state[j] += part[j];
    }

    product_call* product;
    op_context context;
    ops::recurrent_call<T> c;

  private:
    static std::int64_t signed_size(std::size_t n) { return static_cast<std::int64_t>(n); }
    std::size_t output_position(std::size_t t, std::size_t d, std::size_t n) const {
        return (c.batch_first ? (n * c.length + t) * c.directions + d : (t * c.directions + d) * c.batch + n) * c.hidden;
    }

    /// Adds a sample's share of the gradients of X, W, R and B.
    void take(recurrent_walk<T>& walk, bool separate_last) {
        const std::size_t h = c.hidden, rows = c.gates * h, width = c.width, steps = walk.steps, d = walk.direction;
        if (steps == 0) return;
        std::vector<T> x(steps * width), part(steps * width);
        for (std::size_t s = 0; s < steps; ++s)
            std::copy_n(c.input_at(c.time(d, walk.sample, s), walk.sample), width, x.data() + s * width);
        const T *gx = walk.by_input.values.data(), *gr = walk.by_state.values.data();
        if (width != 0) {
            ops::multiply(gx, false, std::as_const(c.w).template as<T>().data() + d * rows * width, false, part.data(), signed_size(steps),
                          signed_size(width), signed_size(rows));
            for (std::size_t s = 0; s < steps; ++s) {
                T* to =
                    dx.as<T>().data() + (c.input_at(c.time(d, walk.sample, s), walk.sample) - std::as_const(c.x).template as<T>().data());
                for (std::size_t i = 0; i < width; ++i) to[i] += part[s * width + i];
            }
            part.resize(rows * width);
            ops::multiply(gx, true, x.data(), false, part.data(), signed_size(rows), signed_size(width), signed_size(steps));
            add_into(part.data(), part.size(), dw.as<T>().data() + d * rows * width);
        }
        part.resize(rows * h);
        ops::multiply(gr, true, walk.before.values.data(), false, part.data(), signed_size(rows), signed_size(h), signed_size(steps));
        if (separate_last) {
            std::vector<T> all(rows * h);
            ops::multiply(gr, true, walk.last_state.values.data(), false, all.data(), signed_size(rows), signed_size(h),
                          signed_size(steps));
            const auto last = static_cast<std::ptrdiff_t>((rows - h) * h);
            std::copy(all.begin() + last, all.end(), part.begin() + last);
        }
        add_into(part.data(), part.size(), dr.as<T>().data() + d * rows * h);
        for (std::size_t s = 0; !db.empty() && s < steps; ++s)
            for (std::size_t row = 0; row < rows; ++row) {
                db.as<T>()[(d * 2) * rows + row] += gx[s * rows + row];
                db.as<T>()[(d * 2 + 1) * rows + row] += gr[s * rows + row];
            }
    }

    tensor dx, dw, dr, db, dh;
};

}  // namespace qk::graph::gradient
