// SPDX-License-Identifier: Apache-2.0
#include "graph/pipeline/forced.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>

#include "graph/model/code_types.hpp"
#include "graph/ops/elements.hpp"
#include "graph/ops/op.hpp"
#include "qk/graph/model/attribute.hpp"
#include "qk/graph/ops/tensor_values.hpp"
#include "qk/graph/plan/layers.hpp"

namespace qk::graph::pipeline {
namespace {

using detail::one_of;

bool is_sum(const onnx::NodeProto& n) { return facts_of(n).has(ops::layer); }
/// Returns whether every runtime gives the same.
bool is_exact(const onnx::NodeProto& n) { return kind_of(n) == layer_kind::mover || facts_of(n).has(ops::exact); }
bool makes_codes(const onnx::NodeProto& n) { return facts_of(n).has(ops::makes_codes); }

/// Returns the value as `type`; the same where it has that type.
std::optional<tensor> as_type(const tensor& value, data_type type) {
    if (value.type() == type) return value;
    const std::optional<std::vector<double>> wide = double_values(value);
    if (!wide) return std::nullopt;
    tensor made(type, value.shape());
    if (!ops::write_elements(std::span<const double>(*wide), type, made.bytes())) return std::nullopt;
    return made;
}

/// Returns for every element of a shape the parameter that it has: one for all, one along an axis, or one for each run along it.
std::vector<double> spread(const std::vector<double>& values, const dims& parameter_shape, const dims& shape, std::size_t axis,
                           std::size_t block) {
    const std::size_t count = element_count(shape);
    if (values.size() == 1) return std::vector<double>(count, values.front());
    std::vector<double> all;
    if (axis >= shape.size()) return all;
    std::size_t inner = 1;
    for (std::size_t k = axis + 1; k < shape.size(); ++k) inner *= static_cast<std::size_t>(shape[k]);
    const auto length = static_cast<std::size_t>(shape[axis]);
    const std::size_t blocks = block == 0 ? length : (length + block - 1) / block;
    if (block == 0 ? values.size() != length : parameter_shape.size() != shape.size() || values.size() != count / length * blocks)
        return all;
    all.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t at = i / inner % length;
        all[i] = block == 0 ? values[at] : values[(i / (inner * length) * blocks + at / block) * inner + i % inner];
    }
    return all;
}

}  // namespace

std::vector<double> numbers_of(const tensor& t) { return double_values(t).value_or(std::vector<double>()); }

forced_network::forced_network(const model& m, const precision_plan& plan, const std::vector<traced_tensor>& tensors,
                               const std::map<std::string, tensor>& ours, const std::map<std::string, tensor>& theirs, int threads)
    : m_(m), given_plan_(plan), shapes_(ours), all_(m, plan), threads_(threads) {
    for (const traced_tensor& t : tensors) {
        const auto own = ours.find(t.name), other = theirs.find(t.name);
        if (own == ours.end() || other == theirs.end() || own->second.shape() != other->second.shape()) continue;
        tensors_.push_back(t);
        if (t.name == t.tensor && !t.node.empty() && as_type(other->second, own->second.type())) fed_.insert(t.tensor);
    }
    feed();
    for (const traced_tensor& t : tensors_) tap(t);
}

bool forced_network::is_given(const std::string& t) const { return t.empty() || fed_.contains(t) || m_.producer(t) < 0; }

/// Lets every node read what the other side has of its inputs.
void forced_network::feed() {
    onnx::GraphProto& g = all_.graph();
    g.clear_output();
    std::erase_if(all_.plan().edges, [&](const auto& e) { return e.first.consumer.empty() || fed_.contains(e.first.tensor); });
    for (const traced_tensor& t : tensors_) {
        if (t.name != t.tensor || !fed_.contains(t.tensor)) continue;
        const std::string name = feeds_[t.tensor] = "qk_theirs_" + std::to_string(feeds_.size());
        onnx::ValueInfoProto& v = *g.add_input();
        v.set_name(name);
        v.mutable_type()->mutable_tensor_type()->set_elem_type(static_cast<int>(shapes_.at(t.name).type()));
        for (const model::use& u : m_.uses(t.tensor)) {
            if (u.node < 0 || u.input < 0) continue;
            const std::string& reader = m_.graph().node(u.node).name();
            g.mutable_node(u.node)->set_input(u.input, name);
            if (const quantizer* how = given_plan_.find({t.tensor, reader, u.input}); how != nullptr && t.mixed)
                all_.plan().edges[{name, reader, u.input}] = *how;
        }
    }
}

/// Returns how many operators that round in their own way lie between a tensor and what is given.
std::size_t forced_network::inexact(const std::string& t) {
    if (const auto known = inexact_.find(t); known != inexact_.end()) return known->second;
    inexact_[t] = 0;
    const onnx::NodeProto& n = m_.graph().node(m_.producer(t));
    // Runtimes add what stands behind a product inside of it, before that is rounded.
    const bool within_sum = one_of(operator_of(n), {"Add", "Sub"}) && std::ranges::any_of(n.input(), [&](const std::string& r) {
                                return m_.producer(r) >= 0 && is_sum(m_.graph().node(m_.producer(r)));
                            });
    std::size_t count = is_exact(n) && !within_sum ? 0 : 1;
    for (const std::string& r : n.input())
        if (!is_given(r)) count += inexact(r);
    return inexact_[t] = std::min<std::size_t>(count, 1000);
}

bool forced_network::quantizes_within(const std::string& t) {
    const onnx::NodeProto& n = m_.graph().node(m_.producer(t));
    for (int k = 0; k < n.input_size(); ++k) {
        const std::string& r = n.input(k);
        if (is_given(r)) continue;
        const bool quantized = makes_codes(m_.graph().node(m_.producer(r))) || given_plan_.find({r, n.name(), k}) != nullptr;
        if ((quantized && inexact(r) > 0) || quantizes_within(r)) return true;
    }
    return false;
}

/// Returns the node that sums, where everything behind its sum up to `t` keeps each value by itself.
const onnx::NodeProto* forced_network::sum_behind(const std::string& t) const {
    std::string at = t;
    for (int steps = 0; steps < 8; ++steps) {
        if (m_.producer(at) < 0) return nullptr;
        const onnx::NodeProto& n = m_.graph().node(m_.producer(at));
        if (is_sum(n)) return &n;
        if (!one_of(operator_of(n), {"Relu", "Clip", "Add", "Identity"})) return nullptr;
        std::vector<std::string> open;
        for (const std::string& r : n.input())
            if (!is_given(r)) open.push_back(r);
        if (open.size() != 1) return nullptr;
        at = open.front();
    }
    return nullptr;
}

double forced_network::terms_of(const onnx::NodeProto& n) const {
    const auto shape = [&](const std::string& t) -> dims {
        if (m_.is_constant(t)) return m_.constant_shape(t);
        const auto found = shapes_.find(t);
        return found == shapes_.end() ? dims{} : found->second.shape();
    };
    const dims first = shape(n.input(0)), second = shape(n.input(1));
    const auto axes = product_axes_of(n);
    if (axes && !axes->windows && first.size() >= (axes->sums < 0 ? 1 : 2))
        return static_cast<double>(first[resolve_axis(axes->sums, first.size())]);
    if (second.size() >= 2) {
        double all = 1;
        for (const std::int64_t d : second) all *= static_cast<double>(d);
        return std::max(1.0, all / static_cast<double>(std::max<std::int64_t>(1, second[axes && axes->transposed ? 1 : 0])));
    }
    return 4096;
}

/// Returns how near a value has to be; where a sum makes it from exact operands, taps that sum over absolute values.
leeway forced_network::room_for(const std::string& t, std::string& bound_tap) {
    leeway room;
    if (is_given(t)) return room;
    room.inexact = inexact(t);
    room.quantized_within = quantizes_within(t);
    const onnx::NodeProto* sum = room.inexact == 1 ? sum_behind(t) : nullptr;
    if (sum == nullptr) return room;
    onnx::GraphProto& g = all_.graph();
    const onnx::NodeProto read = g.node(m_.node_index(sum->name()));  // with the inputs that it is fed
    onnx::NodeProto absolute = read;
    const std::string stem = "qk_absolute_" + std::to_string(g.node_size());
    for (int k = 0; k < read.input_size(); ++k) {
        if (read.input(k).empty()) continue;
        onnx::NodeProto& a = *g.add_node();
        a.set_op_type("Abs");
        a.set_name(stem + "_" + std::to_string(k));
        a.add_input(read.input(k));
        a.add_output(a.name());
        absolute.set_input(k, a.name());
    }
    for (auto& a : *absolute.mutable_attribute())
        if (a.name() == "alpha" || a.name() == "beta") a.set_f(std::fabs(a.f()));
    absolute.set_name(stem);
    absolute.set_output(0, stem);
    *g.add_node() = absolute;
    bound_tap = all_.tap(stem, nullptr);
    room.terms = terms_of(*sum);
    return room;
}

void forced_network::tap_parameters(const onnx::NodeProto& n, taps& at) {
    const onnx::NodeProto& read = all_.graph().node(m_.node_index(n.name()));
    const std::string scale = read.input_size() > 1 ? read.input(1) : "", zero = read.input_size() > 2 ? read.input(2) : "";
    if (!scale.empty()) at.scale = all_.tap(scale, nullptr);
    if (!zero.empty()) at.zero = all_.tap(zero, nullptr);
    at.block = static_cast<std::size_t>(std::max<std::int64_t>(0, detail::int_attribute(n, "block_size", 0)));
    const std::int64_t axis = detail::int_attribute(n, "axis", 1);
    const auto shape = shapes_.find(n.output(0));
    const auto rank = static_cast<std::int64_t>(shape == shapes_.end() ? 0 : shape->second.rank());
    at.axis = static_cast<std::size_t>(std::max<std::int64_t>(0, axis < 0 ? axis + rank : axis));
}

void forced_network::tap(const traced_tensor& t) {
    taps at;
    at.value = all_.tap(t.tensor, t.how ? &*t.how : nullptr);
    const int producer = m_.producer(t.tensor);
    if (t.how) {
        at.before = all_.tap(t.tensor, nullptr);
        if (producer >= 0) {
            // The value before its own quantizer is computed here whatever is fed to those behind it.
            at.room_before.inexact = inexact(t.tensor);
            std::string bound;
            fed_.erase(t.tensor);
            at.room_before = room_for(t.tensor, bound);
            if (feeds_.contains(t.tensor)) fed_.insert(t.tensor);
            at.bound = bound;
        }
    } else if (producer >= 0) {
        const onnx::NodeProto n = m_.graph().node(producer);
        if (operator_of(n) == "QuantizeLinear") {
            at.codes = true;
            const std::string read = all_.graph().node(producer).input(0);
            at.before = all_.tap(read, nullptr);
            at.room_before = room_for(n.input(0), at.bound);
            tap_parameters(n, at);
        } else {
            if (operator_of(n) == "DequantizeLinear") tap_parameters(n, at);
            fed_.erase(t.tensor);
            at.room = room_for(t.tensor, at.bound);
            if (feeds_.contains(t.tensor)) fed_.insert(t.tensor);
        }
    }
    taps_[t.name] = at;
}

void forced_network::judge_units(judged_tensor& j, const taps& at, const named_tensors& out) const {
    if (!at.scale.empty()) {
        const tensor& scale = out.at(at.scale);
        j.unit = spread(numbers_of(scale), scale.shape(), j.ours.shape(), at.axis, at.block);
        if (!at.zero.empty()) {
            const tensor& zero = out.at(at.zero);
            j.zero = spread(numbers_of(zero), zero.shape(), j.ours.shape(), at.axis, at.block);
        }
        const auto format = detail::format_of_codes(j.ours.type());
        if (!at.codes || !format || !std::holds_alternative<integer>(*format)) return;
        quantizer how;
        how.format = *format;
        how.axis = static_cast<int>(at.axis);
        how.block_size = static_cast<int>(at.block);
        for (const double s : numbers_of(scale)) how.scale.push_back(static_cast<float>(s));
        if (!at.zero.empty())
            for (const double z : numbers_of(out.at(at.zero))) how.zero_point.push_back(static_cast<std::int64_t>(z));
        if (at.block == 0 || how.scale.size() > 1) j.how = how;
    } else if (j.how && !j.how->scale.empty() && !is_block_format(j.how->format) && std::holds_alternative<integer>(j.how->format)) {
        std::vector<double> scales(j.how->scale.begin(), j.how->scale.end());
        const int axis = j.how->axis < 0 ? j.how->axis + static_cast<int>(j.ours.rank()) : j.how->axis;
        if (j.how->block_size == 0 && !j.how->flatten)
            j.unit = spread(scales, {}, j.ours.shape(), static_cast<std::size_t>(std::max(0, axis)), 0);
    }
}

std::map<std::string, judged_tensor> forced_network::run(const named_tensors& inputs, const std::map<std::string, tensor>& theirs) {
    named_tensors given = inputs;
    for (const auto& [name, feed] : feeds_) {
        const auto value = theirs.find(name);
        if (value == theirs.end()) throw error("the other side gave no tensor '" + name + "' for one of the samples, though for others");
        given[feed] = *as_type(value->second, shapes_.at(name).type());
    }
    const named_tensors out = all_.run(given, threads_);
    std::map<std::string, judged_tensor> all;
    for (const traced_tensor& t : tensors_) {
        const auto other = theirs.find(t.name);
        if (other == theirs.end()) continue;
        const taps& at = taps_.at(t.name);
        judged_tensor& j = all[t.name];
        j.ours = out.at(at.value);
        j.theirs = other->second;
        j.room = at.room;
        j.room_before = at.room_before;
        j.how = t.how;
        if (!at.before.empty()) j.before = out.at(at.before);
        if (!at.bound.empty()) {
            std::vector<double> bound = numbers_of(out.at(at.bound));
            if (bound.size() == j.ours.size()) (at.before.empty() ? j.room : j.room_before).bound = std::move(bound);
        }
        judge_units(j, at, out);
    }
    return all;
}

}  // namespace qk::graph::pipeline
