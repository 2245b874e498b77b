// SPDX-License-Identifier: Apache-2.0
// Vector-Jacobian products of LSTM, GRU and RNN: backwards through time, sample by sample, with states that are computed again.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "graph/gradient/backward.hpp"
#include "graph/ops/recurrent.hpp"

namespace qk::graph::gradient {

// What the vector-Jacobian products of LSTM, GRU and RNN share: slopes of activations, a sample's walk through time, and the gradients of
// X, W, R, B and the first state.

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
    recurrent_backward(backward_call& p, std::size_t gate_count) : product(&p), context(p.context()), c(context, gate_count, 5) {
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

    backward_call* product;
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

/// Gates are in the order i, o, f, c, peepholes in the order i, o, f.
template <class T>
struct lstm_cell {
    static constexpr std::size_t gates_with_recurrent_bias = 4;
    static constexpr bool separate_last = false;
    recurrent_backward<T>* all;
    std::vector<ops::recurrent_activation> activations;
    bool coupled;
    tensor cell, peepholes, dcell, dpeepholes;
    std::size_t h;
    step_rows<T> linear{0, 0}, gate{0, 0}, memory{0, 0},
        squashed{0, 0};  ///< gates before and after the activation; the cell state, memory[s + 1] after step s, and its activation
    std::vector<T> dmemory;

    lstm_cell(recurrent_backward<T>& walk, backward_call& call)
        : all(&walk),
          activations(ops::recurrent_activations(walk.context, {"Sigmoid", "Tanh", "Tanh"}, walk.c.directions)),
          coupled(call.node().get_int("input_forget", 0) != 0),
          cell(walk.c.initial_state(6)),
          peepholes(call.optional_real<T>(7)),
          dcell(zeros<T>(cell.shape())),
          h(walk.c.hidden) {
        if (!peepholes.empty()) dpeepholes = zeros<T>(peepholes.shape());
    }
    const ops::recurrent_activation& function(std::size_t d, std::size_t which) const { return activations[d * 3 + which]; }
    const T* peephole(std::size_t d, std::size_t which) const {
        return peepholes.empty() ? nullptr : peepholes.as<T>().data() + (d * 3 + which) * h;
    }
    void peep(std::size_t d, std::size_t which, const T* from, T* to) const {
        const T* p = peephole(d, which);
        for (std::size_t j = 0; p != nullptr && j < h; ++j) to[j] += p[j] * from[j];
    }

    void start(const recurrent_walk<T>& walk) {
        linear = gate = {walk.steps, 4 * h};
        memory = {walk.steps + 1, h};
        squashed = {walk.steps, h};
        std::copy_n(all->c.state(cell, walk.direction, walk.sample), h, memory[0]);
    }
    void forward(const recurrent_walk<T>& walk, std::size_t s, T* state) {
        const std::size_t d = walk.direction;
        T *z = linear[s], *a = gate[s], *next = memory[s + 1];
        all->c.recur(d, 0, 4 * h, state, z);
        const T* projected = all->c.projected_at(all->c.time(d, walk.sample, s), walk.sample);
        for (std::size_t j = 0; j < 4 * h; ++j) z[j] += projected[j];
        peep(d, 0, memory[s], z);
        if (!coupled) peep(d, 2, memory[s], z + 2 * h);
        std::copy_n(z, 4 * h, a);
        all->c.activate(function(d, 0), a, h);
        all->c.activate(function(d, 1), a + 3 * h, h);
        if (!coupled) all->c.activate(function(d, 0), a + 2 * h, h);
        for (std::size_t j = 0; j < h; ++j) {
            if (coupled) a[2 * h + j] = 1 - a[j];
            next[j] = a[2 * h + j] * memory[s][j] + a[j] * a[3 * h + j];
        }
        peep(d, 1, next, z + h);
        std::copy_n(z + h, h, a + h);
        all->c.activate(function(d, 0), a + h, h);
        std::copy_n(next, h, squashed[s]);
        all->c.activate(function(d, 2), squashed[s], h);
        for (std::size_t j = 0; j < h; ++j) state[j] = a[h + j] * squashed[s][j];
        if (s + 1 == walk.steps) dmemory.clear();
    }
    void backward(recurrent_walk<T>& walk, std::size_t s, T* g) {
        const std::size_t d = walk.direction;
        if (dmemory.empty()) first_gradient(walk);
        T *dz = walk.by_input[s], *a = gate[s], *input = dz, *output = dz + h, *forget = dz + 2 * h, *candidate = dz + 3 * h;
        std::vector<T> through_squash(h);
        for (std::size_t j = 0; j < h; ++j) {
            output[j] = g[j] * squashed[s][j];
            through_squash[j] = g[j] * a[h + j];
        }
        all->through(function(d, 2), memory[s + 1], h, through_squash.data());
        all->through(function(d, 0), linear[s] + h, h, output);
        for (std::size_t j = 0; j < h; ++j) dmemory[j] += through_squash[j];
        peep(d, 1, output, dmemory.data());
        for (std::size_t j = 0; j < h; ++j) {
            input[j] = dmemory[j] * a[3 * h + j];
            candidate[j] = dmemory[j] * a[j];
            forget[j] = dmemory[j] * memory[s][j];
            if (coupled) input[j] -= forget[j], forget[j] = 0;
            dmemory[j] *= a[2 * h + j];
        }
        all->through(function(d, 0), linear[s], h, input);
        all->through(function(d, 0), linear[s] + 2 * h, h, forget);
        all->through(function(d, 1), linear[s] + 3 * h, h, candidate);
        peep(d, 0, input, dmemory.data());
        peep(d, 2, forget, dmemory.data());
        for (std::size_t j = 0; !peepholes.empty() && j < h; ++j) {
            T* p = dpeepholes.as<T>().data() + d * 3 * h + j;
            p[0] += input[j] * memory[s][j];
            p[h] += output[j] * memory[s + 1][j];
            p[2 * h] += forget[j] * memory[s][j];
        }
        std::copy_n(dz, 4 * h, walk.by_state[s]);
        std::fill_n(g, h, T{0});
        all->add_recurrence(d, 0, 4 * h, dz, g);
    }
    void end(const recurrent_walk<T>& walk) {
        if (walk.steps == 0 || dmemory.empty()) first_gradient(walk);
        std::copy_n(dmemory.data(), h, dcell.as<T>().data() + (walk.direction * all->c.batch + walk.sample) * h);
        dmemory.clear();
    }
    void first_gradient(const recurrent_walk<T>& walk) {
        dmemory.assign(h, T{0});
        all->add_gradient(2, all->state_position(walk.direction, walk.sample), dmemory.data());
    }
};

/// Gates are in the order z, r, h.
template <class T>
struct gru_cell {
    std::size_t gates_with_recurrent_bias;
    bool separate_last;  ///< the reset gate is applied before the last gate's product with R
    recurrent_backward<T>* all;
    std::vector<ops::recurrent_activation> activations;
    std::size_t h;
    step_rows<T> linear{0, 0}, gate{0, 0}, mapped{0, 0};  ///< mapped: R h + bias of the last gate, if the reset gate is applied to it

    gru_cell(recurrent_backward<T>& walk, backward_call& call)
        : gates_with_recurrent_bias(call.node().get_int("linear_before_reset", 0) != 0 ? 2 : 3),
          separate_last(gates_with_recurrent_bias == 3),
          all(&walk),
          activations(ops::recurrent_activations(walk.context, {"Sigmoid", "Tanh"}, walk.c.directions)),
          h(walk.c.hidden) {}

    void start(const recurrent_walk<T>& walk) {
        linear = gate = {walk.steps, 3 * h};
        mapped = {walk.steps, h};
    }
    void forward(recurrent_walk<T>& walk, std::size_t s, T* state) {
        const std::size_t d = walk.direction;
        T *z = linear[s], *a = gate[s], *candidate = z + 2 * h;
        const T* projected = all->c.projected_at(all->c.time(d, walk.sample, s), walk.sample);
        all->c.recur(d, 0, (separate_last ? 2 : 3) * h, state, z);
        for (std::size_t j = 0; j < 2 * h; ++j) a[j] = z[j] += projected[j];
        all->c.activate(activations[d * 2], a, 2 * h);
        const T* reset = a + h;
        if (separate_last) {
            for (std::size_t j = 0; j < h; ++j) walk.last_state[s][j] = reset[j] * state[j];
            all->c.recur(d, 2 * h, h, walk.last_state[s], candidate);
        } else {
            for (std::size_t j = 0; j < h; ++j) {
                mapped[s][j] = candidate[j] + all->c.bias(d, true, 2 * h + j);
                candidate[j] = reset[j] * mapped[s][j];
            }
        }
        for (std::size_t j = 0; j < h; ++j) a[2 * h + j] = candidate[j] += projected[2 * h + j];
        all->c.activate(activations[d * 2 + 1], a + 2 * h, h);
        for (std::size_t j = 0; j < h; ++j) state[j] = (1 - a[j]) * a[2 * h + j] + a[j] * state[j];
    }
    void backward(recurrent_walk<T>& walk, std::size_t s, T* g) {
        const std::size_t d = walk.direction;
        T *dz = walk.by_input[s], *a = gate[s], *before = walk.before[s], *update = dz, *reset = dz + h, *candidate = dz + 2 * h;
        for (std::size_t j = 0; j < h; ++j) {
            update[j] = g[j] * (before[j] - a[2 * h + j]);
            candidate[j] = g[j] * (1 - a[j]);
            g[j] *= a[j];
        }
        all->through(activations[d * 2 + 1], linear[s] + 2 * h, h, candidate);
        T* last = walk.by_state[s] + 2 * h;
        if (separate_last) {
            std::copy_n(candidate, h, last);
            std::vector<T> by_reset(h, T{0});
            all->add_recurrence(d, 2 * h, h, last, by_reset.data());
            for (std::size_t j = 0; j < h; ++j) {
                reset[j] = by_reset[j] * before[j];
                g[j] += by_reset[j] * a[h + j];
            }
        } else {
            for (std::size_t j = 0; j < h; ++j) {
                reset[j] = candidate[j] * mapped[s][j];
                last[j] = candidate[j] * a[h + j];
            }
            all->add_recurrence(d, 2 * h, h, last, g);
        }
        all->through(activations[d * 2], linear[s], 2 * h, dz);
        std::copy_n(dz, 2 * h, walk.by_state[s]);
        all->add_recurrence(d, 0, 2 * h, dz, g);
    }
    void end(const recurrent_walk<T>&) {}
};

template <class T>
struct rnn_cell {
    static constexpr std::size_t gates_with_recurrent_bias = 1;
    static constexpr bool separate_last = false;
    recurrent_backward<T>* all;
    std::vector<ops::recurrent_activation> activations;
    std::size_t h;
    step_rows<T> linear{0, 0};

    rnn_cell(recurrent_backward<T>& walk, backward_call&)
        : all(&walk), activations(ops::recurrent_activations(walk.context, {"Tanh"}, walk.c.directions)), h(walk.c.hidden) {}

    void start(const recurrent_walk<T>& walk) { linear = {walk.steps, h}; }
    void forward(const recurrent_walk<T>& walk, std::size_t s, T* state) {
        const T* projected = all->c.projected_at(all->c.time(walk.direction, walk.sample, s), walk.sample);
        all->c.recur(walk.direction, 0, h, state, linear[s]);
        for (std::size_t j = 0; j < h; ++j) state[j] = linear[s][j] += projected[j];
        all->c.activate(activations[walk.direction], state, h);
    }
    void backward(recurrent_walk<T>& walk, std::size_t s, T* g) {
        all->through(activations[walk.direction], linear[s], h, g);
        std::copy_n(g, h, walk.by_input[s]);
        std::copy_n(g, h, walk.by_state[s]);
        std::fill_n(g, h, T{0});
        all->add_recurrence(walk.direction, 0, h, walk.by_input[s], g);
    }
    void end(const recurrent_walk<T>&) {}
};

inline void lstm_backward(backward_call& call) {
    with_gradient_type(call, [&]<class T>(T) {
        recurrent_backward<T> walk(call, 4);
        lstm_cell<T> cell(walk, call);
        walk.run(cell);
        walk.give_state(6, cell.dcell);
        if (!cell.dpeepholes.empty()) call.give(7, cell.dpeepholes);
    });
}
inline void gru_backward(backward_call& call) {
    with_gradient_type(call, [&]<class T>(T) {
        recurrent_backward<T> walk(call, 3);
        gru_cell<T> cell(walk, call);
        walk.run(cell);
    });
}
inline void rnn_backward(backward_call& call) {
    with_gradient_type(call, [&]<class T>(T) {
        recurrent_backward<T> walk(call, 1);
        rnn_cell<T> cell(walk, call);
        walk.run(cell);
    });
}

inline constexpr backward_entry recurrent_backward_rows[] = {
    {"", "LSTM", 1, lstm_backward},
    {"", "GRU", 1, gru_backward},
    {"", "RNN", 1, rnn_backward},
};

}  // namespace qk::graph::gradient
