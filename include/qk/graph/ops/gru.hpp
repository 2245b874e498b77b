// SPDX-License-Identifier: Apache-2.0
// GRU (gates in the order z, r, h; the linear map before or after the reset gate) and the simple RNN.
#pragma once

#include <vector>

#include "qk/graph/ops/recurrent.hpp"

namespace qk::graph::ops {

inline void run_gru(op_context& call) {
    with_working_type(call.input(0).type(), [&]<class T>(T) {
        recurrent_call<T> c(call, 3, 5);
        const auto activations = recurrent_activations(call, {"Sigmoid", "Tanh"}, c.directions);
        const bool linear_first = call.node().get_int("linear_before_reset", 0) != 0;
        const std::size_t h = c.hidden;
        std::vector<T> z(c.batch * 3 * h), reset(c.batch * h);
        for (std::size_t d = 0; d < c.directions; ++d) {
            c.project(d, linear_first ? 2 : 3);
            const auto &f = activations[d * 2], &g = activations[d * 2 + 1];
            const T* r = c.recurrence(d);
            for (std::size_t s = 0; s < c.length; ++s) {
                const auto active = [&](std::size_t n) { return s < c.lengths[n]; };
                for (std::size_t row = 0; row < 2 * h; ++row)
                    for (std::size_t n = 0; n < c.batch; ++n)
                        if (active(n)) z[n * 3 * h + row] = f(c.clipped(c.projected_at(c.time(d, n, s), n)[row] + dot(r + row * h, c.state(c.hidden_state, d, n), h)));
                for (std::size_t n = 0; n < c.batch; ++n)
                    for (std::size_t j = 0; j < h; ++j) reset[n * h + j] = z[n * 3 * h + h + j] * c.state(c.hidden_state, d, n)[j];
                for (std::size_t row = 2 * h; row < 3 * h; ++row)
                    for (std::size_t n = 0; n < c.batch; ++n) {
                        if (!active(n)) continue;
                        T recurrent;
                        if (linear_first) recurrent = z[n * 3 * h + row - h] * (dot(r + row * h, c.state(c.hidden_state, d, n), h) + c.bias(d, true, row));
                        else recurrent = dot(r + row * h, reset.data() + n * h, h);
                        z[n * 3 * h + row] = g(c.clipped(c.projected_at(c.time(d, n, s), n)[row] + recurrent));
                    }
                for (std::size_t n = 0; n < c.batch; ++n) {
                    if (!active(n)) continue;
                    T* state = c.state(c.hidden_state, d, n);
                    const T* gate = z.data() + n * 3 * h;
                    for (std::size_t j = 0; j < h; ++j) state[j] = (1 - gate[j]) * gate[2 * h + j] + gate[j] * state[j];
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
        std::vector<T> next(c.batch * h);
        for (std::size_t d = 0; d < c.directions; ++d) {
            c.project(d, 1);
            for (std::size_t s = 0; s < c.length; ++s) {
                for (std::size_t row = 0; row < h; ++row)
                    for (std::size_t n = 0; n < c.batch; ++n)
                        if (s < c.lengths[n]) {
                            next[n * h + row] = activations[d](c.clipped(c.projected_at(c.time(d, n, s), n)[row] + dot(c.recurrence(d) + row * h, c.state(c.hidden_state, d, n), h)));
                        }
                for (std::size_t n = 0; n < c.batch; ++n) {
                    if (s >= c.lengths[n]) continue;
                    std::copy_n(next.data() + n * h, h, c.state(c.hidden_state, d, n));
                    std::copy_n(next.data() + n * h, h, c.output_at(c.time(d, n, s), d, n));
                }
            }
        }
        c.finish();
    });
}

inline constexpr op_entry gru_ops[] = {{"", "GRU", 1, run_gru}, {"", "RNN", 1, run_rnn}};

}  // namespace qk::graph::ops
