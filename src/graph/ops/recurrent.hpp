// SPDX-License-Identifier: Apache-2.0
// Holds what LSTM, GRU and RNN share: activations by name, layouts, directions, sequence lengths, and the products with the weights.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "graph/ops/matrix.hpp"
#include "graph/ops/op.hpp"
#include "graph/ops/vector_math.hpp"
#include "graph/ops/working_type.hpp"

namespace qk::graph::ops {

/// An activation of a recurrent operator, with its parameters.
struct recurrent_activation {
    enum class kind : std::uint8_t {
        relu,
        tanh,
        sigmoid,
        affine,
        leaky_relu,
        thresholded_relu,
        scaled_tanh,
        hard_sigmoid,
        elu,
        softsign,
        softplus
    } function = kind::tanh;
    float alpha = 0, beta = 0;

    template <class T>
    T operator()(T x) const {
        const T a = static_cast<T>(alpha), b = static_cast<T>(beta);
        switch (function) {
            case kind::relu: return std::max(x, T{0});
            case kind::tanh: return std::tanh(x);
            case kind::sigmoid: return 1 / (1 + std::exp(-x));
            case kind::affine: return a * x + b;
            case kind::leaky_relu: return x >= 0 ? x : a * x;
            case kind::thresholded_relu: return x >= a ? x : T{0};
            case kind::scaled_tanh: return a * std::tanh(b * x);
            case kind::hard_sigmoid: return std::min(std::max(a * x + b, T{0}), T{1});
            case kind::elu: return x >= 0 ? x : a * (std::exp(x) - 1);
            case kind::softsign: return x / (1 + std::fabs(x));
            case kind::softplus: return std::log1p(std::exp(-std::fabs(x))) + std::max(x, T{0});
        }
        return x;
    }

    /// Computes x[i] = f(x[i]).
    template <class T>
    void apply(T* x, std::size_t n) const {
        if constexpr (std::is_same_v<T, float>) {
            if (function == kind::sigmoid) return map_vectors(x, x, n, vsigmoid);
            if (function == kind::tanh) return map_vectors(x, x, n, vtanh);
        }
        for (std::size_t i = 0; i < n; ++i) x[i] = (*this)(x[i]);
    }
};

/// Returns the node's activations, or `defaults` for each direction. Parameters go, in order, to the activations that take them.
inline std::vector<recurrent_activation> recurrent_activations(const op_context& call, std::vector<std::string> defaults,
                                                               std::size_t directions) {
    using kind = recurrent_activation::kind;
    struct entry {
        std::string_view name;
        kind function;
        bool has_alpha, has_beta;
        float alpha, beta;
    };
    static constexpr entry known[] = {{"relu", kind::relu, false, false, 0, 0},
                                      {"tanh", kind::tanh, false, false, 0, 0},
                                      {"sigmoid", kind::sigmoid, false, false, 0, 0},
                                      {"affine", kind::affine, true, true, 1, 0},
                                      {"leakyrelu", kind::leaky_relu, true, false, 0.01f, 0},
                                      {"thresholdedrelu", kind::thresholded_relu, true, false, 1, 0},
                                      {"scaledtanh", kind::scaled_tanh, true, true, 1, 1},
                                      {"hardsigmoid", kind::hard_sigmoid, true, true, 0.2f, 0.5f},
                                      {"elu", kind::elu, true, false, 1, 0},
                                      {"softsign", kind::softsign, false, false, 0, 0},
                                      {"softplus", kind::softplus, false, false, 0, 0}};
    const std::size_t each = defaults.size();
    std::vector<std::string> names = call.node().get_strings("activations");
    if (names.empty()) names = defaults;
    if (names.size() < each)
        call.fail("the attribute activations names " + std::to_string(names.size()) + " of " + std::to_string(each) + " functions");
    while (names.size() < each * directions) names.push_back(names[names.size() - each]);  // repeats them for the second direction
    const auto alphas = call.node().get_floats("activation_alpha"), betas = call.node().get_floats("activation_beta");
    std::size_t next_alpha = 0, next_beta = 0;
    std::vector<recurrent_activation> all;
    for (const std::string& name : names) {
        std::string lower = name;
        std::transform(lower.begin(), lower.end(), lower.begin(),
                       [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
        const auto* found = std::find_if(std::begin(known), std::end(known), [&](const entry& e) { return e.name == lower; });
        if (found == std::end(known)) call.fail("activation '" + name + "' is not one of the standard's");
        recurrent_activation a{found->function, found->alpha, found->beta};
        if (found->has_alpha && next_alpha < alphas.size()) a.alpha = alphas[next_alpha++];
        if (found->has_beta && next_beta < betas.size()) a.beta = betas[next_beta++];
        all.push_back(a);
    }
    return all;
}

/// Sizes, inputs and states of one call, in T. States and outputs have the shapes below whatever `layout` says; x keeps its layout.
template <class T>
struct recurrent_call {
    op_context& call;
    data_type type;
    bool batch_first;
    std::size_t length, batch, width, hidden, directions, gates;
    std::vector<bool> reversed;  ///< by direction
    tensor x, w, r, b;
    std::vector<std::size_t> lengths;
    float clip;
    tensor hidden_state;  ///< [directions, batch, hidden]
    tensor y;             ///< [length, directions, batch, hidden], zeros after the end of a sequence
    tensor projected;     ///< [length, batch, gates * hidden]: W x + biases of the current direction

    recurrent_call(op_context& c, std::size_t gate_count, std::size_t h_input)
        : recurrent_call(c, gate_count, h_input, input_as<T>(c, 0), input_as<T>(c, 1), input_as<T>(c, 2)) {}

    recurrent_call(op_context& c, std::size_t gate_count, std::size_t h_input, tensor values, tensor weights, tensor recurrence_weights)
        : call(c),
          type(c.input(0).type()),
          batch_first(c.node().get_int("layout", 0) != 0),
          gates(gate_count),
          x(std::move(values)),
          w(std::move(weights)),
          r(std::move(recurrence_weights)),
          clip(c.node().get_float("clip", 0)) {
        b = optional_as<T>(call, 3);
        if (x.rank() != 3 || w.rank() != 3 || r.rank() != 3) call.fail("X, W and R must have rank 3");
        length = static_cast<std::size_t>(x.dim(batch_first ? 1 : 0));
        batch = static_cast<std::size_t>(x.dim(batch_first ? 0 : 1));
        width = static_cast<std::size_t>(x.dim(2));
        hidden = static_cast<std::size_t>(r.dim(2));
        const std::string direction = call.node().get_string("direction", "forward");
        if (direction == "forward") reversed = {false};
        else if (direction == "reverse") reversed = {true};
        else if (direction == "bidirectional") reversed = {false, true};
        else call.fail("direction '" + direction + "' is none of forward, reverse, bidirectional");
        directions = reversed.size();
        const auto d = static_cast<std::int64_t>(directions), g = static_cast<std::int64_t>(gates * hidden);
        if (w.shape() != dims{d, g, x.dim(2)})
            call.fail("W has shape " + to_string(w.shape()) + ", not " + to_string(dims{d, g, x.dim(2)}));
        if (r.shape() != dims{d, g, r.dim(2)})
            call.fail("R has shape " + to_string(r.shape()) + ", not " + to_string(dims{d, g, r.dim(2)}));
        if (!b.empty() && b.size() != directions * 2 * gates * hidden) call.fail("B has shape " + to_string(b.shape()));
        hidden_state = initial_state(h_input);
        expect_room(call, {static_cast<std::int64_t>(batch)}, data_type::int64);
        lengths.assign(batch, length);
        if (call.has_input(4)) {
            const auto given = integers(call, 4);
            if (given.size() != batch) call.fail("sequence_lens needs one value for each sample");
            for (std::size_t i = 0; i < batch; ++i) {
                if (given[i] < 0 || given[i] > static_cast<std::int64_t>(length))
                    call.fail("sequence_lens holds " + std::to_string(given[i]));
                lengths[i] = static_cast<std::size_t>(given[i]);
            }
        }
        y = call.scratch(type_of<T>,
                         {static_cast<std::int64_t>(length), d, static_cast<std::int64_t>(batch), static_cast<std::int64_t>(hidden)});
        std::fill(y.as<T>().begin(), y.as<T>().end(), T{0});
        projected = call.scratch(type_of<T>, {static_cast<std::int64_t>(length), static_cast<std::int64_t>(batch), g});
    }

    /// Returns a copy of optional input i as [directions, batch, hidden], or zeros if it is absent.
    tensor initial_state(std::size_t i) {
        tensor state = call.scratch(
            type_of<T>, {static_cast<std::int64_t>(directions), static_cast<std::int64_t>(batch), static_cast<std::int64_t>(hidden)});
        const tensor given = optional_as<T>(call, i);
        if (!given.empty() && given.size() != state.size())
            call.fail("input " + std::to_string(i) + " of shape " + to_string(given.shape()) + " does not fit " + to_string(state.shape()));
        for (std::size_t d = 0; d < directions; ++d)
            for (std::size_t n = 0; n < batch; ++n)
                for (std::size_t j = 0; j < hidden; ++j) {
                    const std::size_t from = batch_first ? (n * directions + d) * hidden + j : (d * batch + n) * hidden + j;
                    state.as<T>()[(d * batch + n) * hidden + j] = given.empty() ? T{0} : given.as<T>()[from];
                }
        return state;
    }

    const T* input_at(std::size_t t, std::size_t n) const {
        return x.as<T>().data() + (batch_first ? n * length + t : t * batch + n) * width;
    }
    const T* recurrence(std::size_t d) const { return r.as<T>().data() + d * gates * hidden * hidden; }
    T* state(tensor& s, std::size_t d, std::size_t n) const { return s.as<T>().data() + (d * batch + n) * hidden; }
    T* output_at(std::size_t t, std::size_t d, std::size_t n) { return y.as<T>().data() + ((t * directions + d) * batch + n) * hidden; }
    const T* projected_at(std::size_t t, std::size_t n) const { return projected.as<T>().data() + (t * batch + n) * gates * hidden; }
    /// Returns the time index that step s of sample n processes.
    std::size_t time(std::size_t d, std::size_t n, std::size_t s) const { return reversed[d] ? lengths[n] - 1 - s : s; }
    T bias(std::size_t d, bool recurrent, std::size_t row) const {
        return b.empty() ? T{0} : b.as<T>()[(d * 2 + std::size_t{recurrent}) * gates * hidden + row];
    }
    /// Computes values[i] = f(values[i]), where values are first clamped to [-clip, clip] if clip > 0.
    void activate(const recurrent_activation& f, T* values, std::size_t n) const {
        if (clip > 0) {
            const T c = static_cast<T>(clip);
            for (std::size_t i = 0; i < n; ++i) values[i] = std::min(std::max(values[i], -c), c);
        }
        f.apply(values, n);
    }

    // Products are computed sample by sample, so that a sample's bits do not depend on its neighbours.

    /// Computes projected = W x + input bias, plus the recurrent bias for gates before `gates_with_recurrent_bias`.
    void project(std::size_t d, std::size_t gates_with_recurrent_bias) {
        const std::size_t rows = gates * hidden;
        std::vector<T> add(rows);
        for (std::size_t row = 0; row < rows; ++row)
            add[row] = bias(d, false, row) + (row < gates_with_recurrent_bias * hidden ? bias(d, true, row) : T{0});
        const auto l = static_cast<std::int64_t>(length), all_rows = static_cast<std::int64_t>(rows), in = static_cast<std::int64_t>(width),
                   samples = static_cast<std::int64_t>(batch);
        for (std::size_t n = 0; n < batch; ++n) {
            T* out = projected.as<T>().data() + n * rows;
            multiply<T>({input_at(0, n), batch_first ? in : samples * in}, {w.as<T>().data() + d * rows * width, in, true}, out,
                        samples * all_rows, l, all_rows, in);
            for (std::size_t t = 0; t < length; ++t)
                for (std::size_t row = 0; row < rows; ++row) out[t * batch * rows + row] += add[row];
        }
    }

    /// Computes to[i] = R[first + i] . state for `count` rows of direction d's R.
    void recur(std::size_t d, std::size_t first, std::size_t count, const T* state, T* to) const {
        multiply(state, false, recurrence(d) + first * hidden, true, to, 1, static_cast<std::int64_t>(count),
                 static_cast<std::int64_t>(hidden));
    }

    /// Writes outputs Y and Y_h, and `extra` (the cell state) as output 2, in the node's layout and type.
    void finish(const tensor* extra = nullptr) {
        const auto l = static_cast<std::int64_t>(length), d = static_cast<std::int64_t>(directions), n = static_cast<std::int64_t>(batch),
                   h = static_cast<std::int64_t>(hidden);
        if (call.wants(0)) {
            working_output<T> out(call, 0, type, batch_first ? dims{n, l, d, h} : dims{l, d, n, h});
            for (std::size_t t = 0; t < length; ++t)
                for (std::size_t k = 0; k < directions; ++k)
                    for (std::size_t i = 0; i < batch; ++i)
                        std::copy_n(
                            output_at(t, k, i), hidden,
                            out.data() + (batch_first ? (i * length + t) * directions + k : (t * directions + k) * batch + i) * hidden);
            out.store();
        }
        const auto give = [&](std::size_t output, const tensor& s) {
            if (!call.wants(output)) return;
            working_output<T> out(call, output, type, batch_first ? dims{n, d, h} : dims{d, n, h});
            for (std::size_t k = 0; k < directions; ++k)
                for (std::size_t i = 0; i < batch; ++i)
                    std::copy_n(s.as<T>().data() + (k * batch + i) * hidden, hidden,
                                out.data() + (batch_first ? i * directions + k : k * batch + i) * hidden);
            out.store();
        };
        give(1, hidden_state);
        if (extra != nullptr) give(2, *extra);
    }
};

}  // namespace qk::graph::ops
