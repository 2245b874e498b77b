// SPDX-License-Identifier: Apache-2.0
// Vector-Jacobian products of LSTM, GRU and RNN: backwards through time, sample by sample, with states that are computed again.
#pragma once

#include <algorithm>
#include <vector>

#include "graph/gradient/ops/recurrent_backward.hpp"
#include "graph/gradient/product.hpp"

namespace qk::graph::gradient {

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

    lstm_cell(recurrent_backward<T>& walk, product_call& call)
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

    gru_cell(recurrent_backward<T>& walk, product_call& call)
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

    rnn_cell(recurrent_backward<T>& walk, product_call&)
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

inline void lstm_product(product_call& call) {
    with_gradient_type(call, [&]<class T>(T) {
        recurrent_backward<T> walk(call, 4);
        lstm_cell<T> cell(walk, call);
        walk.run(cell);
        walk.give_state(6, cell.dcell);
        if (!cell.dpeepholes.empty()) call.give(7, cell.dpeepholes);
    });
}
inline void gru_product(product_call& call) {
    with_gradient_type(call, [&]<class T>(T) {
        recurrent_backward<T> walk(call, 3);
        gru_cell<T> cell(walk, call);
        walk.run(cell);
    });
}
inline void rnn_product(product_call& call) {
    with_gradient_type(call, [&]<class T>(T) {
        recurrent_backward<T> walk(call, 1);
        rnn_cell<T> cell(walk, call);
        walk.run(cell);
    });
}

inline constexpr product_entry recurrent_products[] = {
    {"", "LSTM", 1, lstm_product},
    {"", "GRU", 1, gru_product},
    {"", "RNN", 1, rnn_product},
};

}  // namespace qk::graph::gradient
