// SPDX-License-Identifier: Apache-2.0
// LSTM: gates in the order i, o, f, c; peepholes, coupled forget gate.
#pragma once

#include <vector>

#include "qk/graph/ops/recurrent.hpp"

namespace qk::graph::ops {

inline void run_lstm(op_context& call) {
    with_working_type(call.input(0).type(), [&]<class T>(T) {
        recurrent_call<T> c(call, 4, 5);
        const auto activations = recurrent_activations(call, {"Sigmoid", "Tanh", "Tanh"}, c.directions);
        const bool coupled = call.node().get_int("input_forget", 0) != 0;
        tensor cell = c.initial_state(6);
        const tensor peepholes = optional_as<T>(call, 7);
        const std::size_t h = c.hidden;
        if (!peepholes.empty() && peepholes.size() != c.directions * 3 * h) call.fail("P has shape " + to_string(peepholes.shape()));
        std::vector<T> z(c.batch * 4 * h);
        for (std::size_t d = 0; d < c.directions; ++d) {
            c.project(d, 4);
            const auto &f = activations[d * 3], &g = activations[d * 3 + 1], &out = activations[d * 3 + 2];
            const T* p = peepholes.empty() ? nullptr : peepholes.as<T>().data() + d * 3 * h;
            for (std::size_t s = 0; s < c.length; ++s) {
                for (std::size_t row = 0; row < 4 * h; ++row)
                    for (std::size_t n = 0; n < c.batch; ++n) {
                        if (s >= c.lengths[n]) continue;
                        z[n * 4 * h + row] = c.projected_at(c.time(d, n, s), n)[row] + dot(c.recurrence(d) + row * h, c.state(c.hidden_state, d, n), h);
                    }
                for (std::size_t n = 0; n < c.batch; ++n) {
                    if (s >= c.lengths[n]) continue;
                    const T* gate = z.data() + n * 4 * h;
                    T* memory = c.state(cell, d, n);
                    T* state = c.state(c.hidden_state, d, n);
                    for (std::size_t j = 0; j < h; ++j) {
                        const T before = memory[j];
                        const T i = f(c.clipped(gate[j] + (p ? p[j] * before : T{0})));
                        const T forget = coupled ? 1 - i : f(c.clipped(gate[2 * h + j] + (p ? p[2 * h + j] * before : T{0})));
                        const T candidate = g(c.clipped(gate[3 * h + j]));
                        memory[j] = forget * before + i * candidate;
                        const T o = f(c.clipped(gate[h + j] + (p ? p[h + j] * memory[j] : T{0})));
                        state[j] = o * out(c.clipped(memory[j]));
                    }
                    std::copy_n(state, h, c.output_at(c.time(d, n, s), d, n));
                }
            }
        }
        c.finish(&cell);
    });
}

inline constexpr op_entry lstm_ops[] = {{"", "LSTM", 1, run_lstm}};

}  // namespace qk::graph::ops
