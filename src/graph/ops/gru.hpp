// SPDX-License-Identifier: Apache-2.0
// Implements GRU (gates in the order z, r, h; the linear map before or after the reset gate) and the simple RNN.
#pragma once

#include <vector>

#include "graph/ops/recurrent.hpp"
#include "graph/ops/walk/rules.hpp"

namespace qk::graph::ops {

inline void run_gru(op_context& call) {
    with_working_type(call.input(0).type(), [&]<class T>(T) {
        recurrent_call<T> c(call, 3, 5);
        const auto activations = recurrent_activations(call, {"Sigmoid", "Tanh"}, c.directions);
        const bool linear_first = call.node().get_int("linear_before_reset", 0) != 0;
        const std::size_t h = c.hidden;
        std::vector<T> z(3 * h), reset(h);
        for (std::size_t d = 0; d < c.directions; ++d) {
            c.project(d, linear_first ? 2 : 3);
            const auto &f = activations[d * 2], &g = activations[d * 2 + 1];
            T *update = z.data(), *candidate = update + 2 * h;
            for (std::size_t n = 0; n < c.batch; ++n) {
                T* state = c.state(c.hidden_state, d, n);
                for (std::size_t s = 0; s < c.lengths[n]; ++s) {
                    const T* projected = c.projected_at(c.time(d, n, s), n);
                    c.recur(d, 0, (linear_first ? 3 : 2) * h, state, z.data());
                    for (std::size_t j = 0; j < 2 * h; ++j) z[j] += projected[j];
                    c.activate(f, z.data(), 2 * h);
                    const T* r = update + h;
                    if (linear_first) {
                        for (std::size_t j = 0; j < h; ++j) candidate[j] = r[j] * (candidate[j] + c.bias(d, true, 2 * h + j));
                    } else {
                        for (std::size_t j = 0; j < h; ++j) reset[j] = r[j] * state[j];
                        c.recur(d, 2 * h, h, reset.data(), candidate);
                    }
                    for (std::size_t j = 0; j < h; ++j) candidate[j] += projected[2 * h + j];
                    c.activate(g, candidate, h);
                    for (std::size_t j = 0; j < h; ++j) state[j] = (1 - update[j]) * candidate[j] + update[j] * state[j];
                    std::copy_n(state, h, c.output_at(c.time(d, n, s), d, n));
                }
            }
        }
        c.finish();
    });
}

inline void run_rnn(op_context& call) {
    with_working_type(call.input(0).type(), [&]<class T>(T) {
        recurrent_call<T> c(call, 1, 5);
        const auto activations = recurrent_activations(call, {"Tanh"}, c.directions);
        const std::size_t h = c.hidden;
        std::vector<T> next(h);
        for (std::size_t d = 0; d < c.directions; ++d) {
            c.project(d, 1);
            for (std::size_t n = 0; n < c.batch; ++n) {
                T* state = c.state(c.hidden_state, d, n);
                for (std::size_t s = 0; s < c.lengths[n]; ++s) {
                    const T* projected = c.projected_at(c.time(d, n, s), n);
                    c.recur(d, 0, h, state, next.data());
                    for (std::size_t j = 0; j < h; ++j) state[j] = projected[j] + next[j];
                    c.activate(activations[d], state, h);
                    std::copy_n(state, h, c.output_at(c.time(d, n, s), d, n));
                }
            }
        }
        c.finish();
    });
}

inline constexpr op_entry gru_ops[] = {{"", "GRU", 1, run_gru, nullptr, {follow_recurrent}, {recurrent}},
                                       {"", "RNN", 1, run_rnn, nullptr, {follow_recurrent}, {recurrent}}};

}  // namespace qk::graph::ops
