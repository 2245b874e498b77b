// SPDX-License-Identifier: Apache-2.0
// Implements If, Loop and Scan, which run a graph attribute, and the operators of optionals.
#pragma once

#include <onnx/onnx_pb.h>

#include "graph/model/operator_name.hpp"
#include "graph/ops/strided.hpp"
#include "graph/ops/types.hpp"

namespace qk::graph::ops {

inline bool truth(op_context& call, const tensor& condition) { return scalar_value<bool>(call, condition); }

inline void if_else(op_context& call) {
    const bool condition = truth(call, call.input(0));
    const auto results = call.run_subgraph(call.node().get_graph(condition ? "then_branch" : "else_branch"), {});
    if (results.size() < call.output_count()) call.fail("the branch has too few outputs");
    for (std::size_t i = 0; i < call.output_count(); ++i) call.set_output(i, results[i]);
}

/// Returns element `at` of x along an axis, without that axis.
inline tensor take_along(op_context& call, const tensor& x, std::size_t axis, std::size_t at) {
    dims shape = x.shape();
    shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(axis));
    tensor y = call.scratch(x.type(), shape);
    const axis_split s = split_at(x.shape(), axis);
    const auto inner = static_cast<std::ptrdiff_t>(s.inner), length = static_cast<std::ptrdiff_t>(s.length);
    if (y.size() != 0)
        strided_copy(call, x, static_cast<std::ptrdiff_t>(at) * inner, y, 0, {{s.outer, length * inner, inner}, {s.inner, 1, 1}});
    return y;
}

/// Stacks tensors of one shape along a new axis.
inline tensor stack(op_context& call, const std::vector<tensor>& parts, std::size_t axis) {
    dims shape = parts.at(0).shape();
    const axis_split s = split_at(shape, axis);  // valid if `axis` is an axis of the parts
    const std::size_t outer = product(shape, 0, axis), inner = axis == shape.size() ? 1 : s.length * s.inner;
    shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis), static_cast<std::int64_t>(parts.size()));
    tensor y = call.scratch(parts[0].type(), shape);
    const auto run = static_cast<std::ptrdiff_t>(inner), row = static_cast<std::ptrdiff_t>(parts.size()) * run;
    for (std::size_t k = 0; k < parts.size(); ++k) {
        if (parts[k].shape() != parts[0].shape() || parts[k].type() != y.type())
            call.fail("a scan output changes its shape or type between iterations");
        if (y.size() != 0) strided_copy(call, parts[k], 0, y, static_cast<std::ptrdiff_t>(k) * run, {{outer, run, row}, {inner, 1, 1}});
    }
    return y;
}

/// Returns a scan output after no iteration: it has no elements; its other dimensions are those that the body declares (unknown: 0).
inline tensor nothing_scanned(op_context& call, const onnx::GraphProto& body, std::size_t output) {
    const auto& type = body.output(static_cast<int>(output)).type().tensor_type();
    dims shape{0};
    for (const auto& d : type.shape().dim()) shape.push_back(d.has_dim_value() ? d.dim_value() : 0);
    const auto element = static_cast<data_type>(type.elem_type());
    return call.scratch(element == data_type::undefined ? data_type::float32 : element, shape);
}

/// The body maps (iteration, condition, carried...) to (condition, carried..., scanned...).
inline void loop(op_context& call) {
    const onnx::GraphProto& body = call.node().get_graph("body");
    const std::int64_t limit =
        call.has_input(0) ? scalar_value<std::int64_t>(call, call.input(0)) : std::numeric_limits<std::int64_t>::max();
    bool going = call.has_input(1) ? truth(call, call.input(1)) : true;
    if (call.input_count() < 2 && !call.has_input(0)) call.fail("there is neither a trip count nor a condition");
    std::vector<tensor> carried;
    for (std::size_t i = 2; i < call.input_count(); ++i) carried.push_back(call.input(i));
    const std::size_t outputs = static_cast<std::size_t>(body.output_size());
    if (outputs < 1 + carried.size()) call.fail("the body has too few outputs");
    std::vector<std::vector<tensor>> scanned(outputs - 1 - carried.size());
    for (std::int64_t i = 0; i < limit && going; ++i) {
        std::vector<tensor> inputs{make_tensor<std::int64_t>({}, std::array{i}), make_tensor<bool>({}, std::array{going})};
        inputs.insert(inputs.end(), carried.begin(), carried.end());
        auto results = call.run_subgraph(body, inputs);
        if (results.size() != outputs) call.fail("the body gave too few outputs");
        going = truth(call, results[0]);
        for (std::size_t k = 0; k < carried.size(); ++k) carried[k] = std::move(results[1 + k]);
        for (std::size_t k = 0; k < scanned.size(); ++k) scanned[k].push_back(std::move(results[1 + carried.size() + k]));
    }
    for (std::size_t k = 0; k < carried.size(); ++k) call.set_output(k, carried[k]);
    for (std::size_t k = 0; k < scanned.size(); ++k)
        call.set_output(carried.size() + k,
                        scanned[k].empty() ? nothing_scanned(call, body, 1 + carried.size() + k) : stack(call, scanned[k], 0));
}

struct scan_axes {
    std::vector<std::int64_t> input, input_reversed, output, output_reversed;
};

/// Runs a scan over one sequence. `states` become the final states; the scan outputs are returned, stacked in the order of iterations.
inline std::vector<tensor> scan_once(op_context& call, const onnx::GraphProto& body, std::vector<tensor>& states,
                                     const std::vector<tensor>& sequences, const scan_axes& axes, std::int64_t limit) {
    const auto at = [](const std::vector<std::int64_t>& v, std::size_t i) { return i < v.size() ? v[i] : 0; };
    std::int64_t length = limit;
    std::vector<std::size_t> axis;
    for (std::size_t k = 0; k < sequences.size(); ++k) {
        axis.push_back(normal_axis(call, at(axes.input, k), sequences[k].rank()));
        const std::int64_t n = sequences[k].dim(axis[k]);
        if (limit < 0 && k > 0 && n != length) call.fail("the scan inputs differ in length");
        if (limit < 0) length = n;
        else if (limit > n) call.fail("a sequence length is larger than its input");
    }
    const std::size_t outputs = static_cast<std::size_t>(body.output_size());
    if (outputs < states.size()) call.fail("the body has too few outputs");
    std::vector<std::vector<tensor>> scanned(outputs - states.size());
    for (std::int64_t i = 0; i < length; ++i) {
        std::vector<tensor> inputs = states;
        for (std::size_t k = 0; k < sequences.size(); ++k)
            inputs.push_back(
                take_along(call, sequences[k], axis[k], static_cast<std::size_t>(at(axes.input_reversed, k) ? length - 1 - i : i)));
        auto results = call.run_subgraph(body, inputs);
        if (results.size() != outputs) call.fail("the body gave too few outputs");
        for (std::size_t k = 0; k < states.size(); ++k) states[k] = std::move(results[k]);
        for (std::size_t k = 0; k < scanned.size(); ++k) scanned[k].push_back(std::move(results[states.size() + k]));
    }
    std::vector<tensor> stacked;
    for (std::size_t k = 0; k < scanned.size(); ++k) {
        if (scanned[k].empty()) {
            stacked.push_back(nothing_scanned(call, body, states.size() + k));
            continue;
        }
        if (at(axes.output_reversed, k)) std::reverse(scanned[k].begin(), scanned[k].end());
        stacked.push_back(stack(call, scanned[k], normal_axis(call, at(axes.output, k), scanned[k][0].rank() + 1)));
    }
    return stacked;
}

inline void scan(op_context& call) {
    const onnx::GraphProto& body = call.node().get_graph("body");
    const std::int64_t given = call.node().get_int("num_scan_inputs", 0);
    if (given < 0 || static_cast<std::size_t>(given) > call.input_count()) call.fail("num_scan_inputs does not fit the inputs");
    const std::size_t sequences = static_cast<std::size_t>(given), states = call.input_count() - sequences;
    const scan_axes axes{call.node().get_ints("scan_input_axes"), call.node().get_ints("scan_input_directions"),
                         call.node().get_ints("scan_output_axes"), call.node().get_ints("scan_output_directions")};
    std::vector<tensor> state, sequence;
    for (std::size_t i = 0; i < states; ++i) state.push_back(call.input(i));
    for (std::size_t i = 0; i < sequences; ++i) sequence.push_back(call.input(states + i));
    const auto stacked = scan_once(call, body, state, sequence, axes, -1);
    for (std::size_t k = 0; k < states; ++k) call.set_output(k, state[k]);
    for (std::size_t k = 0; k < stacked.size(); ++k) call.set_output(states + k, stacked[k]);
}

/// Implements opset 8: axis 0 of every input is a batch, axis 1 the sequence. Scan outputs of shorter sequences are padded with zeros.
inline void scan_batched(op_context& call) {
    const onnx::GraphProto& body = call.node().get_graph("body");
    const std::int64_t given = call.node().get_int("num_scan_inputs", 0);
    if (given < 1 || static_cast<std::size_t>(given) + 1 > call.input_count()) call.fail("num_scan_inputs does not fit the inputs");
    const std::size_t sequences = static_cast<std::size_t>(given), states = call.input_count() - 1 - sequences;
    std::vector<std::int64_t> lengths;
    if (call.has_input(0)) lengths = int_values(call, call.input(0));
    const tensor& first = call.input(1 + states);
    if (first.rank() < 2) call.fail("a scan input has no batch and sequence axes");
    if (first.dim(0) == 0) call.fail("a batch of 0 sequences is not supported");
    const scan_axes axes{{}, call.node().get_ints("directions"), {}, {}};
    std::vector<std::vector<tensor>> results;
    for (std::int64_t b = 0; b < first.dim(0); ++b) {
        const auto sample = static_cast<std::size_t>(b);
        std::vector<tensor> state, sequence;
        for (std::size_t i = 0; i < call.input_count() - 1; ++i) {
            const tensor& x = call.input(1 + i);
            if (x.rank() < 1 || x.dim(0) != first.dim(0)) call.fail("the inputs differ in batch size");
            (i < states ? state : sequence).push_back(take_along(call, x, 0, sample));
        }
        const std::int64_t length = sample < lengths.size() ? lengths[sample] : first.dim(1);
        auto stacked = scan_once(call, body, state, sequence, axes, length);
        for (tensor& t : stacked) {
            if (t.dim(0) == first.dim(1)) continue;
            dims shape = t.shape();
            shape[0] = first.dim(1);
            tensor full = call.scratch(t.type(), shape);
            std::memset(full.bytes(), 0, full.size_bytes());
            if (t.size() != 0) std::memcpy(full.bytes(), t.bytes(), t.size_bytes());
            t = full;
        }
        state.insert(state.end(), stacked.begin(), stacked.end());
        results.resize(state.size());
        for (std::size_t k = 0; k < state.size(); ++k) results[k].push_back(state[k]);
    }
    for (std::size_t k = 0; k < results.size(); ++k) call.set_output(k, stack(call, results[k], 0));
}

// A present tensor is an optional that holds it; a missing tensor is an empty optional.
inline void optional_has_element(op_context& call) { call.output(0, data_type::boolean, {}).as<bool>()[0] = call.has_input(0); }
inline void optional_get_element(op_context& call) { call.set_output(0, call.input(0)); }

/// What the body's graph states of its outputs; the first output of a Loop's body is its condition.
inline type_source types_of_body(const onnx::NodeProto& n, int output) {
    const onnx::AttributeProto* body = graph::detail::find_attribute(n, operator_of(n) == "If" ? "then_branch" : "body");
    const int at = operator_of(n) == "Loop" ? output + 1 : output;
    const bool stated = body != nullptr && at < body->g().output_size();
    return {-1, stated ? static_cast<data_type>(body->g().output(at).type().tensor_type().elem_type()) : data_type::undefined};
}

inline constexpr op_entry control_ops[] = {
    {"", "OptionalHasElement", 15, optional_has_element, nullptr, {}, {.types = gives_booleans, .inputs = 0}},
    {"", "OptionalGetElement", 15, optional_get_element},
    {"", "If", 1, if_else, nullptr, {}, {.types = types_of_body}},
    {"", "Loop", 1, loop, nullptr, {}, {.types = types_of_body, .inputs = 0}},
    {"", "Scan", 8, scan_batched, nullptr, {}, {.types = types_of_body}},
    {"", "Scan", 9, scan, nullptr, {}, {.types = types_of_body}},
};

}  // namespace qk::graph::ops
