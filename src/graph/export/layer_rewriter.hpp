// SPDX-License-Identifier: Apache-2.0
// An exported graph seen as layers between DequantizeLinear and QuantizeLinear, for styles that replace whole layers by integer operators.
#pragma once

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_map>
#include <vector>

#include "graph/export/graph_writer.hpp"
#include "graph/model/edit.hpp"
#include "graph/model/operator_name.hpp"
#include "graph/model/subgraphs.hpp"
#include "graph/model/tensor_proto.hpp"
#include "graph/ops/clamp.hpp"

namespace qk::graph::detail {

/// Codes with the scale and zero point that turn them into values.
struct coded {
    std::string codes, scale, zero_point;  ///< zero_point is "" for 0
    data_type type = data_type::undefined;
    std::vector<float> scales;
    std::int64_t axis = 1;
    bool constant = false;    ///< the codes are an initializer
    std::string description;  ///< a DequantizeLinear's doc_string, which describes the format

    bool single() const { return scales.size() == 1; }
};

/// Rewrites nodes in place. Look-ups see the graph as it was at first; rewriting one layer never changes what another layer's match reads,
/// so that the order of rewrites does not matter. Call drop_dead() at the end.
class layer_rewriter {
  public:
    explicit layer_rewriter(graph_writer& g) : g_(g), gone_(static_cast<std::size_t>(g.graph().node_size()), false) {
        const onnx::GraphProto& p = g_.graph();
        for (const auto& t : p.initializer()) constants_.emplace(t.name(), &t);
        for (int i = 0; i < p.node_size(); ++i) {
            for (const std::string& o : p.node(i).output()) makers_[o] = i;
            for (const std::string& in : p.node(i).input())
                if (!in.empty()) readers_[in].push_back(i);
            std::unordered_set<std::string_view> inner;
            for_each_subgraph(p.node(i), [&](const onnx::GraphProto& body) { collect_outer(body, inner); });
            for (const std::string_view name : inner) readers_[std::string(name)].push_back(outside);
        }
        for (const auto& o : p.output()) readers_[o.name()].push_back(outside);
    }

    onnx::NodeProto& node(int i) { return *g_.graph().mutable_node(i); }
    int count() const { return static_cast<int>(gone_.size()); }
    bool is(int i, operator_word op) { return node(i).domain().empty() && operator_of(node(i)) == op; }

    std::optional<tensor> constant(const std::string& name) const {
        const auto found = constants_.find(name);
        if (found == constants_.end()) return std::nullopt;
        return to_tensor(*found->second, g_.target().folder());
    }
    /// Returns the value of a constant that holds one float32, otherwise nullopt.
    std::optional<float> number(const std::string& name) const {
        const auto t = constant(name);
        if (!t || t->size() != 1 || t->type() != data_type::float32) return std::nullopt;
        return t->as<float>()[0];
    }

    /// Returns the codes behind a tensor that a DequantizeLinear with constant scales makes.
    std::optional<coded> dequantized(const std::string& name) {
        const auto maker = makers_.find(name);
        if (maker == makers_.end() || !is(maker->second, "DequantizeLinear")) return std::nullopt;
        return coded_by(node(maker->second));
    }
    /// Returns the uint8 codes behind a tensor with scale and zero point from a DynamicQuantizeLinear; a guard (Max of one input) may
    /// follow.
    std::optional<coded> dynamic(const std::string& name) {
        auto maker = makers_.find(name);
        if (maker != makers_.end() && is_identity_max(node(maker->second))) maker = makers_.find(node(maker->second).input(0));
        if (maker == makers_.end() || !is(maker->second, "DequantizeLinear") || node(maker->second).input_size() < 3) return std::nullopt;
        const onnx::NodeProto& n = node(maker->second);
        const auto source = makers_.find(n.input(0));
        if (source == makers_.end() || !is(source->second, "DynamicQuantizeLinear")) return std::nullopt;
        coded c;
        c.codes = n.input(0), c.scale = n.input(1), c.zero_point = n.input(2), c.type = data_type::uint8;
        return c;
    }
    /// The QuantizeLinear that is a tensor's only reader, behind Relu and Clip nodes each of which is the only reader of the one before.
    struct quantized {
        coded to;
        std::vector<int> clamps;  ///< the Relu and Clip nodes before it
        int quantizer = -1;
    };
    std::optional<quantized> quantized_output(const std::string& name) {
        quantized found;
        const std::string* at = &name;
        for (;;) {
            const int reader = only_reader(*at);
            if (reader < 0) return std::nullopt;
            if (is(reader, "QuantizeLinear")) {
                auto c = coded_by(node(reader));
                if (!c || !c->single()) return std::nullopt;
                c->codes = node(reader).output(0);
                found.to = *c, found.quantizer = reader;
                return found;
            }
            if (!facts_of(node(reader)).has(ops::clamps)) return std::nullopt;
            found.clamps.push_back(reader);
            at = &node(reader).output(0);
        }
    }
    /// Returns the lowest and highest code that Relu and Clip nodes leave: quantization is monotonic, so clamping codes is clamping values.
    /// Returns nullopt where a bound or the zero point is not constant.
    std::optional<std::pair<std::int64_t, std::int64_t>> code_bounds(const quantized& q) {
        std::int64_t low = q.to.type == data_type::int8 ? -128 : 0, high = low + 255;
        const auto zero = zero_of(q.to);
        if (!zero) return std::nullopt;
        const std::int64_t lowest = low, highest = high;
        const auto code_of_value = [&](double v) {
            const double c = std::nearbyint(v / static_cast<double>(q.to.scales[0])) + static_cast<double>(*zero);
            return static_cast<std::int64_t>(
                std::min(std::max(static_cast<double>(lowest), c), static_cast<double>(highest)));  // NaN becomes the lowest
        };
        for (const int i : q.clamps) {
            const auto bounds = ops::clamp_bounds_of(node(i), [&](const std::string& name) { return number(name); });
            if (!bounds.known) return std::nullopt;
            const std::int64_t a = code_of_value(bounds.lo), b = code_of_value(bounds.hi);
            low = std::min(std::max(low, a), b), high = std::min(std::max(high, a), b);
        }
        return std::pair{low, high};
    }

    std::optional<std::int64_t> zero_of(const coded& c) const {
        if (c.zero_point.empty()) return 0;
        const auto t = constant(c.zero_point);
        if (!t || t->size() != 1) return std::nullopt;
        return c.type == data_type::int8 ? std::int64_t{t->as<std::int8_t>()[0]} : std::int64_t{t->as<std::uint8_t>()[0]};
    }
    /// Returns whether every zero point is the same (a runtime's condition on weights per channel).
    bool one_zero_point(const coded& c) const {
        if (c.zero_point.empty()) return true;
        const auto t = constant(c.zero_point);
        if (!t) return false;
        for (std::size_t i = 1; i < t->size_bytes(); ++i)
            if (t->bytes()[i] != t->bytes()[0]) return false;
        return true;
    }

    /// Returns the zero point as a scalar constant where every channel has the same; otherwise as it is.
    std::string scalar_zero_point(const coded& c) {
        const auto t = constant(c.zero_point);
        if (!t || t->rank() == 0 || t->size() == 0 || !one_zero_point(c)) return c.zero_point;
        tensor one(t->type(), {});
        std::memcpy(one.bytes(), t->bytes(), size_of(t->type()));
        return g_.constant(c.zero_point + "_of_all", one);
    }

    /// Returns a uint8 constant as int8, 128 lower: applied to codes and zero point together, it keeps the values.
    std::string moved_down(const std::string& name) {
        const auto made = moved_down_.find(name);
        if (made != moved_down_.end()) return made->second;
        const tensor from = *constant(name);
        tensor to(data_type::int8, from.shape());
        for (std::size_t i = 0; i < from.size(); ++i) to.as<std::int8_t>()[i] = static_cast<std::int8_t>(from.as<std::uint8_t>()[i] - 128);
        return moved_down_[name] = g_.constant(name + "_signed", to);
    }

    bool zero_everywhere(const coded& c) const {
        if (c.zero_point.empty()) return true;
        const auto t = constant(c.zero_point);
        return t && std::all_of(t->bytes(), t->bytes() + t->size_bytes(), [](std::byte b) { return b == std::byte{0}; });
    }

    /// Writes node i anew: operator, domain, inputs. Its output becomes the codes of `q`, clamped where `bounds` are narrower than the
    /// type.
    void replace(int i, const std::string& op, const std::string& domain, const std::vector<std::string>& inputs, const quantized& q,
                 std::pair<std::int64_t, std::int64_t> bounds) {
        rewrite(i, op, domain, inputs);
        const std::int64_t lowest = q.to.type == data_type::int8 ? -128 : 0;
        std::string made = q.to.codes;
        if (bounds.first > lowest || bounds.second < lowest + 255) {
            g_.require_opset(12, "Clip of codes");
            made = g_.fresh(q.to.codes + "_unclamped");
            g_.node("Clip", {made, code_constant(q.to, bounds.first, "_lowest_code"), code_constant(q.to, bounds.second, "_highest_code")},
                    {q.to.codes});
        }
        node(i).set_output(0, made);
        gone_[static_cast<std::size_t>(q.quantizer)] = true;
        for (const int c : q.clamps) gone_[static_cast<std::size_t>(c)] = true;
    }
    void rewrite(int i, const std::string& op, const std::string& domain, const std::vector<std::string>& inputs) {
        onnx::NodeProto& n = node(i);
        n.set_op_type(op);
        n.set_domain(domain);
        n.clear_input();
        for (const std::string& in : inputs) n.add_input(in);
        if (!domain.empty()) g_.import(domain, 1);
    }

    /// Removes replaced nodes, then dequantizers (and the guards behind them) that nobody reads any more.
    void drop_dead() {
        onnx::GraphProto& p = g_.graph();
        gone_.resize(static_cast<std::size_t>(p.node_size()), false);
        mark_unread(p, gone_, [&](int i) { return operator_of(p.node(i)) == "DequantizeLinear" || is_identity_max(p.node(i)); });
        remove_nodes(p, gone_);
    }

  private:
    static bool is_identity_max(const onnx::NodeProto& n) { return n.domain().empty() && operator_of(n) == "Max" && n.input_size() == 1; }

    static constexpr int outside = -1;  ///< a graph output, or read inside a subgraph

    int only_reader(const std::string& name) const {
        const auto found = readers_.find(name);
        return found == readers_.end() || found->second.size() != 1 ? -1 : found->second[0];
    }

    /// Returns codes, scale and zero point of a QuantizeLinear or DequantizeLinear whose parameters are constants.
    std::optional<coded> coded_by(const onnx::NodeProto& n) const {
        if (int_attribute(n, "block_size", 0) != 0) return std::nullopt;
        coded c;
        c.codes = n.input(0), c.scale = n.input(1);
        if (n.input_size() > 2) c.zero_point = n.input(2);
        const auto scale = constant(c.scale);
        if (!scale || scale->type() != data_type::float32 || scale->rank() > 1) return std::nullopt;
        c.scales.assign(scale->as<float>().begin(), scale->as<float>().end());
        c.axis = int_attribute(n, "axis", c.axis), c.description = n.doc_string();
        const auto held = constants_.find(c.codes);
        c.constant = held != constants_.end();
        const auto zero = constants_.find(c.zero_point);
        if (zero != constants_.end()) c.type = static_cast<data_type>(zero->second->data_type());
        else if (operator_of(n) == "DequantizeLinear" && c.constant) c.type = static_cast<data_type>(held->second->data_type());
        else return std::nullopt;
        return c;
    }

    std::string code_constant(const coded& c, std::int64_t code, const char* stem) {
        tensor t(c.type, {});
        std::memcpy(t.bytes(), &code, 1);
        return g_.constant(c.codes + stem, t);
    }

    graph_writer& g_;
    std::vector<bool> gone_;
    std::unordered_map<std::string, const onnx::TensorProto*> constants_;
    std::unordered_map<std::string, std::string> moved_down_;
    std::unordered_map<std::string, int> makers_;
    std::unordered_map<std::string, std::vector<int>> readers_;
};

inline bool is_byte(data_type t) { return t == data_type::int8 || t == data_type::uint8; }

}  // namespace qk::graph::detail
