// SPDX-License-Identifier: Apache-2.0
// Implements LSTM: gates in the order i, o, f, c; peepholes; coupled forget gate.
#pragma once

#include <vector>

#include "graph/ops/recurrent.hpp"
#include "graph/ops/walk/rules.hpp"

namespace qk::graph::ops {

/// Runs all cells of a call. `read_state` maps a state of `hidden` values to the values that R is multiplied by.
template <class T, class ReadState>
void run_lstm_cells(recurrent_call<T>& c, const ReadState& read_state) {
    const auto activations = recurrent_activations(c.call, {"Sigmoid", "Tanh", "Tanh"}, c.directions);
    const bool coupled = c.call.node().get_int("input_forget", 0) != 0;
    tensor cell = c.initial_state(6);
    const tensor peepholes = optional_as<T>(c.call, 7);
    const std::size_t h = c.hidden;
    if (!peepholes.empty() && peepholes.size() != c.directions * 3 * h) c.call.fail("P has shape " + to_string(peepholes.shape()));
    std::vector<T> z(4 * h), squashed(h);
    for (std::size_t d = 0; d < c.directions; ++d) {
        c.project(d, 4);
        const auto &f = activations[d * 3], &g = activations[d * 3 + 1], &out = activations[d * 3 + 2];
        const T* p = peepholes.empty() ? nullptr : peepholes.as<T>().data() + d * 3 * h;
        T *input = z.data(), *output = input + h, *forget = output + h, *candidate = forget + h;
        const auto peep = [&](T* gate, std::size_t which, const T* memory) {
            for (std::size_t j = 0; p != nullptr && j < h; ++j) gate[j] += p[which * h + j] * memory[j];
        };
        for (std::size_t n = 0; n < c.batch; ++n) {
            T* memory = c.state(cell, d, n);
            T* state = c.state(c.hidden_state, d, n);
            for (std::size_t s = 0; s < c.lengths[n]; ++s) {
                c.recur(d, 0, 4 * h, read_state(state), z.data());
                const T* projected = c.projected_at(c.time(d, n, s), n);
                for (std::size_t j = 0; j < 4 * h; ++j) z[j] += projected[j];
                peep(input, 0, memory);
                peep(forget, 2, memory);
                c.activate(f, input, h);
                c.activate(g, candidate, h);
                if (coupled)
                    for (std::size_t j = 0; j < h; ++j) forget[j] = 1 - input[j];
                else c.activate(f, forget, h);
                for (std::size_t j = 0; j < h; ++j) squashed[j] = memory[j] = forget[j] * memory[j] + input[j] * candidate[j];
                peep(output, 1, memory);
                c.activate(f, output, h);
                c.activate(out, squashed.data(), h);
                for (std::size_t j = 0; j < h; ++j) state[j] = output[j] * squashed[j];
                std::copy_n(state, h, c.output_at(c.time(d, n, s), d, n));
            }
        }
    }
    c.finish(&cell);
}

inline void run_lstm(op_context& call) {
    with_working_type(call.input(0).type(), [&]<class T>(T) {
        recurrent_call<T> c(call, 4, 5);
        run_lstm_cells(c, [](const T* state) { return state; });
    });
}

inline constexpr op_entry lstm_ops[] = {{"", "LSTM", 1, run_lstm, nullptr, {follow_recurrent}, {recurrent}}};

}  // namespace qk::graph::ops
