// SPDX-License-Identifier: Apache-2.0
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <limits>

#include "graph/model/operator_name.hpp"
#include "graph/ops/widened.hpp"
#include "learn/stream.hpp"
#include "qk/graph/model/attribute.hpp"
#include "qk/graph/plan/layers.hpp"

namespace qk::graph::detail {
namespace {

std::string named(const onnx::NodeProto& n) { return "'" + n.name() + "' (" + n.op_type() + ")"; }

/// Returns the numbers of an int64 constant; empty for anything else.
std::vector<std::int64_t> integers(const model& m, const std::string& name) {
    if (name.empty() || !m.is_constant(name) || m.constant_type(name) != data_type::int64) return {};
    const tensor t = m.constant(name);
    return {t.as<std::int64_t>().begin(), t.as<std::int64_t>().end()};
}

/// Returns the axes of a node from its attribute, or from its input `index`.
std::vector<std::int64_t> axes_given(const model& m, const onnx::NodeProto& n, int index) {
    if (const auto* a = find_attribute(n, "axes")) return {a->ints().begin(), a->ints().end()};
    return index < n.input_size() ? integers(m, n.input(index)) : std::vector<std::int64_t>{};
}

/// Returns the first element of floats or int64; NaN for other types.
double number(const tensor& given) {
    const tensor t = ops::widened(given);
    if (t.type() == data_type::float32) return static_cast<double>(t.as<float>()[0]);
    if (t.type() == data_type::int64) return static_cast<double>(t.as<std::int64_t>()[0]);
    return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

stream::stream(const model& m, const std::string& start) : model_(&m), known_(known_values_of(m)) {
    become(start, state::streamed, true);
    while (!open_.empty() || !later_.empty()) {
        while (!open_.empty()) {
            const auto [tensor, back] = open_.front();
            open_.pop_front();
            if (back) look_back(tensor);
            look_ahead(tensor);
        }
        const auto waiting = std::exchange(later_, {});
        for (const auto& [node, input] : waiting)
            if (!read_factor(node, input, false)) later_.emplace(node, input);
        if (open_.empty() && later_.size() == waiting.size())
            for (const auto& [node, input] : std::exchange(later_, {})) read_factor(node, input, true);
    }
    if (refused.empty() && (read.empty() || written.empty())) refuse("no weights read it or none write it");
}

void stream::refuse(const std::string& why) {
    if (refused.empty()) refused = why;
}

bool stream::fits(std::int64_t count, const onnx::NodeProto& n) {
    if (channels == 0 && count > 1) channels = static_cast<std::size_t>(count);
    if (count > 0 && static_cast<std::size_t>(count) == channels) return true;
    per_head = per_head || (count > 0 && count % static_cast<std::int64_t>(std::max<std::size_t>(channels, 1)) == 0);
    refuse(named(n) + " has " + std::to_string(count) + " channels, not " + std::to_string(channels));
    return false;
}

bool stream::is_state(const std::string& tensor, state s) const {
    const auto found = state_.find(tensor);
    return found != state_.end() && found->second == s;
}

bool stream::is_float_constant(const std::string& name) const {
    if (name.empty() || !model_->is_constant(name)) return false;
    const data_type t = model_->constant_type(name);
    return t == data_type::float32 || ops::is_half(t);
}

bool stream::is_scalar(const std::string& name) const {
    return !name.empty() && model_->is_constant(name) && element_count(model_->constant_shape(name)) == 1;
}

void stream::become(const std::string& tensor, state s, bool look_back, const std::vector<float>& gain) {
    const auto [at, fresh] = state_.emplace(tensor, s);
    if (!fresh) {
        if (at->second != s) refuse("tensor '" + tensor + "' is read before and behind a gain");
        return;
    }
    if (s == state::streamed || s == state::gained) tensors.insert(tensor);
    if (s == state::gained) gain_[tensor] = gain;
    open_.emplace_back(tensor, look_back);
}

int stream::rank_of(const std::string& tensor) const {
    if (model_->is_constant(tensor)) return static_cast<int>(model_->constant_shape(tensor).size());
    const dims* shape = known_->shape(tensor);
    return shape == nullptr ? 0 : static_cast<int>(shape->size());
}

bool stream::is_last(std::int64_t axis, const std::string& tensor) const {
    const int rank = rank_of(tensor);
    return axis == -1 || (axis >= 0 && (rank == 0 || axis == rank - 1));
}

// Backwards: the nodes that write the stream.

void stream::look_back(const std::string& tensor) {
    const int p = model_->producer(tensor);
    if (p < 0) return refuse("'" + tensor + "' is an input of the model");
    const onnx::NodeProto& n = model_->graph().node(p);
    if (one_of(operator_of(n), {"Add", "Sub"})) return operand(p, 0), operand(p, 1);
    if (one_of(operator_of(n), {"MatMul", "Gemm"})) return back_through_product(p, n);
    if (operator_of(n) == "Gather" && is_float_constant(n.input(0)) && int_attribute(n, "axis", 0) == 0 &&
        model_->constant_shape(n.input(0)).size() == 2) {
        if (fits(model_->constant_shape(n.input(0))[1], n)) written.insert({p, 0});
        return;
    }
    if (one_of(operator_of(n), {"Mul", "Div"})) {
        for (const int k : {0, 1}) {
            const bool number = is_scalar(n.input(1 - k)) || is_state(n.input(1 - k), state::row);
            if (number && !(operator_of(n) == "Div" && k == 1)) return become(n.input(k), state::streamed, true);
        }
    }
    if (operator_of(n) == "SkipSimplifiedLayerNormalization" && n.output_size() > 3 && n.output(3) == tensor)
        return operand(p, 0), operand(p, 1);
    if (moves(n, 0)) return become(n.input(0), state::streamed, true);
    per_head = per_head || one_of(operator_of(n), {"Reshape", "Transpose", "Split", "Squeeze", "Unsqueeze", "Slice"});
    refuse(named(n) + " makes it");
}

void stream::back_through_product(int node, const onnx::NodeProto& n) {
    const bool gemm = operator_of(n) == "Gemm";
    if (!is_float_constant(n.input(1))) return refuse(named(n) + " makes it of two activations");
    const dims w = model_->constant_shape(n.input(1));
    if (w.size() < 2) return refuse(named(n) + " makes it of a vector");
    const bool transposed = gemm && int_attribute(n, "transB", 0) != 0;
    if (!fits(transposed ? w[0] : w.back(), n)) return;
    written.insert({node, 1});
    if (gemm && n.input_size() > 2 && !n.input(2).empty()) operand(node, 2);
}

/// Enters an operand of a sum: a constant takes Q, anything else belongs to the stream as well.
void stream::operand(int node, int input) {
    const onnx::NodeProto& n = model_->graph().node(node);
    const std::string& name = n.input(input);
    if (!model_->is_constant(name)) return become(name, state::streamed, true);
    const dims shape = model_->constant_shape(name);
    if (!is_float_constant(name) || shape.empty()) return refuse(named(n) + " adds a number to every channel");
    if (fits(shape.back(), n)) written.insert({node, input});
}

// Forwards: the nodes that read the stream.

void stream::look_ahead(const std::string& tensor) {
    const state s = state_.at(tensor);
    const std::vector<float> gain = s == state::gained ? gain_.at(tensor) : std::vector<float>{};
    for (const auto& u : model_->uses(tensor)) {
        if (s == state::row) {
            if (u.node >= 0 && u.input >= 0 && keeps_row(model_->graph().node(u.node)))
                become(model_->graph().node(u.node).output(0), s, false);
            continue;
        }
        if (u.node < 0) {
            refuse("'" + tensor + "' is an output of the model");
            continue;
        }
        const onnx::NodeProto& n = model_->graph().node(u.node);
        if (u.input < 0) refuse("a subgraph of " + named(n) + " reads it");
        else if (s == state::squared) {
            if (averages_rows(n)) become(n.output(0), state::row, false);
            else refuse(named(n) + " reads its squares");
        } else if (operator_of(n) == "Shape") continue;
        else if (moves(n, u.input)) become(n.output(0), s, false, gain);
        else if (s == state::streamed) read_stream(u.node, u.input);
        else if (one_of(operator_of(n), {"Mul", "Div"}) && u.input == 0 && is_scalar(n.input(1))) become(n.output(0), s, false, gain);
        else if (!read_product(u.node, u.input, gain))
            refuse(named(n) + " reads it behind a gain, which only products with constants can take");
    }
}

void stream::read_stream(int node, int input) {
    const onnx::NodeProto& n = model_->graph().node(node);
    if (one_of(operator_of(n), {"Add", "Sub"})) return operand(node, 1 - input), become(n.output(0), state::streamed, false);
    if (read_product(node, input, {}) || read_normalization(node, input)) return;
    const bool power = operator_of(n) == "Pow" && input == 0 && is_scalar(n.input(1)) && number(model_->constant(n.input(1))) == 2;
    if (power || (operator_of(n) == "Mul" && n.input(0) == n.input(1))) return become(n.output(0), state::squared, false);
    if (operator_of(n) == "ReduceL2" && averages_rows(n)) return become(n.output(0), state::row, false);
    if (one_of(operator_of(n), {"Mul", "Div"})) {
        later_.emplace(node, input);
        return;
    }
    if (one_of(operator_of(n), {"LayerNormalization", "SkipLayerNormalization", "EmbedLayerNormalization", "ReduceMean"}))
        return refuse(named(n) + " subtracts the mean of the channels; only root mean squares keep under a rotation");
    refuse(named(n) + " reads it");
}

/// Enters a normalization that is one node; its gain goes into the readers of its output. Returns false for nodes that it cannot enter.
bool stream::read_normalization(int node, int input) {
    const onnx::NodeProto& n = model_->graph().node(node);
    const bool skip = operator_of(n) == "SkipSimplifiedLayerNormalization";
    if (!skip && (!one_of(operator_of(n), {"RMSNormalization", "SimplifiedLayerNormalization"}) || input != 0)) return false;
    if (skip ? input > 1 : !is_last(int_attribute(n, "axis", -1), n.input(0))) return false;
    const int gain = skip ? 2 : 1;
    if (!is_float_constant(n.input(gain)) || !fits(model_->constant_shape(n.input(gain)).back(), n)) return false;
    if (skip) {
        operand(node, 1 - input);
        if (n.input_size() > 3 && !n.input(3).empty()) operand(node, 3);
        if (n.output_size() > 3 && !n.output(3).empty()) become(n.output(3), state::streamed, false);
    }
    const tensor g = ops::widened(model_->constant(n.input(gain)));
    gains.insert({node, gain});
    become(n.output(0), state::gained, false, {g.as<float>().begin(), g.as<float>().end()});
    return true;
}

/// Enters a Mul or Div of the stream by a number, by one number for each row, or by a gain. Returns false while the other operand may still
/// become known.
bool stream::read_factor(int node, int input, bool last_chance) {
    const onnx::NodeProto& n = model_->graph().node(node);
    const std::string& other = n.input(1 - input);
    const bool divides = operator_of(n) == "Div";
    if (!(divides && input == 1) && (is_scalar(other) || is_state(other, state::row)))
        return become(n.output(0), state::streamed, false), true;
    if (!divides && is_float_constant(other)) {
        const dims shape = model_->constant_shape(other);
        const tensor g = ops::widened(model_->constant(other));
        if (g.size() != static_cast<std::size_t>(shape.back())) return refuse(named(n) + " scales rows and channels at once"), true;
        if (!fits(shape.back(), n)) return true;
        gain_nodes.insert(node);
        return become(n.output(0), state::gained, false, {g.as<float>().begin(), g.as<float>().end()}), true;
    }
    if (last_chance) refuse(named(n) + " multiplies it by an activation");
    return last_chance;
}

bool stream::read_product(int node, int input, const std::vector<float>& gain) {
    const onnx::NodeProto& n = model_->graph().node(node);
    if (input != 0 || !one_of(operator_of(n), {"MatMul", "Gemm"}) || !n.domain().empty() || !is_float_constant(n.input(1))) return false;
    const bool gemm = operator_of(n) == "Gemm";
    const dims w = model_->constant_shape(n.input(1));
    if (w.size() < 2 || (gemm && int_attribute(n, "transA", 0) != 0)) return false;
    if (!fits(gemm && int_attribute(n, "transB", 0) != 0 ? w[1] : w[w.size() - 2], n)) return true;
    read[{node, 1}] = gain;
    return true;
}

// What nodes do to rows.

bool stream::moves(const onnx::NodeProto& n, int input) const {
    if (input != 0 || !n.domain().empty()) return false;
    if (one_of(operator_of(n), {"Identity", "Dropout"})) return true;
    if (operator_of(n) == "Cast") {
        const auto to = static_cast<data_type>(int_attribute(n, "to", 0));
        return to == data_type::float32 || ops::is_half(to);
    }
    if (operator_of(n) == "Reshape") {
        const dims* shape = known_->shape(n.output(0));
        return shape != nullptr && !shape->empty() && shape->back() > 1 && static_cast<std::size_t>(shape->back()) == channels;
    }
    if (operator_of(n) == "Transpose") {
        const auto* perm = find_attribute(n, "perm");
        return perm != nullptr && perm->ints_size() > 0 && perm->ints(perm->ints_size() - 1) == perm->ints_size() - 1;
    }
    if (operator_of(n) == "Gather") return !is_last(int_attribute(n, "axis", 0), n.input(0));
    if (one_of(operator_of(n), {"Slice", "Squeeze", "Unsqueeze"})) {
        const auto axes = axes_given(*model_, n, operator_of(n) == "Slice" ? 3 : 1);
        const std::string& shaped = operator_of(n) == "Unsqueeze" ? n.output(0) : n.input(0);
        return !axes.empty() && std::ranges::none_of(axes, [&](std::int64_t a) { return is_last(a, shaped); });
    }
    return false;
}

/// Is true when a node makes one number for each row out of such numbers.
bool stream::keeps_row(const onnx::NodeProto& n) const {
    if (one_of(operator_of(n), {"Sqrt", "Reciprocal", "Cast", "Identity"})) return true;
    if (!one_of(operator_of(n), {"Add", "Mul", "Div", "Pow", "Max", "Clip"})) return false;
    return std::ranges::all_of(n.input(), [&](const std::string& i) { return i.empty() || is_scalar(i) || is_state(i, state::row); });
}

bool stream::averages_rows(const onnx::NodeProto& n) const {
    if (!one_of(operator_of(n), {"ReduceMean", "ReduceSum", "ReduceL2"}) || int_attribute(n, "keepdims", 1) == 0) return false;
    const auto axes = axes_given(*model_, n, 1);
    const int rank = rank_of(n.input(0));
    return axes.size() == 1 && (axes[0] == -1 || (rank > 0 && axes[0] == rank - 1));
}

}  // namespace qk::graph::detail
