// SPDX-License-Identifier: Apache-2.0
// Builds programs.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "graph/evaluate/execute/cache.hpp"
#include "graph/evaluate/execute/dequantized.hpp"
#include "graph/evaluate/execute/late_constants.hpp"
#include "graph/evaluate/execute/node_call.hpp"
#include "graph/evaluate/execute/program.hpp"
#include "graph/evaluate/execute/quantize_value.hpp"
#include "graph/evaluate/execute/row_unit.hpp"
#include "graph/evaluate/execute/step_key.hpp"
#include "graph/evaluate/execute/sum_unit.hpp"
#include "graph/model/operator_name.hpp"

namespace qk::graph::execute {
namespace detail {

// Folds a BatchNormalization behind a convolution of floats into the convolution's weights and bias.
// Before: Conv -> BatchNormalization. After: Conv. Conditions: all but x constant; the value in between has no other reader and no
// quantizer.

inline bool is_inference_norm(const net_node& n) {
    return operator_of(n.view) == "BatchNormalization" && n.view.version() >= 9 && n.inputs.size() == 5 && n.outputs.size() == 1 &&
           n.view.get_int("training_mode", 0) == 0;
}

/// Returns the slots of weights and bias that convolve and normalize. `in` are the slots of scale, shift, mean and variance. Returns
/// nullopt if these, or the bias, are not float32 constants with one value for each channel.
inline std::optional<std::pair<slot, slot>> with_norm(cache& c, const net_node& norm, const std::vector<slot>& in, slot weights,
                                                      slot bias) {
    const dims shape = c.shape_of(weights);
    for (const slot s : in)
        if (s >= no_slot || c.type_of(s) != data_type::float32 || c.shape_of(s) != dims{shape[0]}) return std::nullopt;
    if (bias < no_slot && c.shape_of(bias) != dims{shape[0]}) return std::nullopt;
    const auto [at, is_new] = c.folded.try_emplace({c.node_number(norm), weights, bias, in[0], in[1], in[2], in[3]});
    if (is_new) {
        const tensor given[] = {c.constant(in[0]), c.constant(in[1]), c.constant(in[2]), c.constant(in[3])};
        const auto of = [&](int k, std::size_t i) { return static_cast<double>(given[k].as<float>()[i]); };
        const double epsilon = static_cast<double>(norm.view.get_float("epsilon", 1e-5f));
        const tensor own = bias < no_slot ? c.constant(bias) : tensor();
        std::vector<double> factor;
        tensor shift(data_type::float32, {shape[0]});
        for (std::size_t i = 0; i < shift.size(); ++i) {
            factor.push_back(of(0, i) / std::sqrt(of(3, i) + epsilon));
            const double before = own.empty() ? 0.0 : static_cast<double>(own.as<float>()[i]);
            shift.as<float>()[i] = static_cast<float>((before - of(2, i)) * factor[i] + of(1, i));
        }
        const slot scaled = c.add_late_constant(data_type::float32, shape, [shared = &c, weights, factor] {
            const tensor w = shared->constant(weights);
            tensor y(data_type::float32, w.shape());
            const std::size_t each = w.size() / factor.size();
            for (std::size_t i = 0; i < w.size(); ++i)
                y.as<float>()[i] = static_cast<float>(static_cast<double>(w.as<float>()[i]) * factor[i / each]);
            return y;
        });
        at->second = {scaled, c.add_constant(std::move(shift))};
    }
    return std::pair(at->second[0], at->second[1]);
}

class program_builder {
  public:
    program_builder(const network& net, cache& shared, bool whole)
        : net_(net), cache_(shared), whole_(whole), program_(std::make_unique<program>()) {
        for (const net_node& n : net.nodes)
            for (const net_input& i : n.inputs)
                if (i.value >= 0 && net.values[static_cast<std::size_t>(i.value)].uses == 1) readers_[i.value] = {&n, &i};
        program_->net = &net;
        program_->shared = &shared;
        for (std::size_t i = 0; i < net.inputs.size(); ++i) program_->input_slots.push_back(program_->slot_count++);
    }

    void add(const precision_plan& plan) {
        slots_.assign(net_.values.size(), no_slot);
        pending_.clear();
        pending_dense_.clear();
        in_attention_.clear();
        for (std::size_t i = 0; i < net_.inputs.size(); ++i) slots_[static_cast<std::size_t>(net_.inputs[i])] = program_->input_slots[i];
        program::candidate c;
        for (const net_node& n : net_.nodes) add_node(n, plan, c);
        for (const net_input& o : net_.outputs) c.outputs.push_back(use(o, plan));
        c.after = static_cast<int>(program_->steps.size()) - 1;
        program_->candidates.push_back(std::move(c));
    }

    std::unique_ptr<program> finish() {
        if (!whole_ && !cache_.plain_kernels) join_sums(*program_), join_rows(*program_);
        release_values(*program_);
        return std::move(program_);
    }

  private:
    slot value_slot(int value) {
        const net_value& v = net_.values[static_cast<std::size_t>(value)];
        return v.is_constant() ? cache_.value_constant(v) : slots_[static_cast<std::size_t>(value)];
    }

    /// Returns the slot that a use reads: the value after the quantizers of its edges.
    slot use(const net_input& i, const precision_plan& plan) {
        if (i.value < 0) return no_slot;
        slot s = value_slot(i.value);
        for (const edge& e : i.edges)
            if (const quantizer* q = plan.find(e); q != nullptr && s != no_slot) s = quantized(s, cache_.intern(*q));
        return s;
    }

    slot quantized(slot s, int q) {
        if (s < no_slot) return cache_.quantized_constant(s, q);
        const auto [at, is_new] = known_.try_emplace({step_key::kind::quantizer, {q, s}});
        if (is_new) {
            step& t = program_->steps.emplace_back();
            t.quantizer = q;
            t.in = {s};
            t.out = {program_->slot_count++};
            at->second = t.out;
            quantizer_of_[t.out[0]] = q;
        }
        return at->second[0];
    }

    /// Returns the quantizer that makes a slot's value; -1 or null if there is none.
    int quantizer_number(slot s) const {
        const auto found = quantizer_of_.find(s);
        return found == quantizer_of_.end() ? -1 : found->second;
    }
    const quantizer* quantizer_of(slot s) const { return quantizer_number(s) < 0 ? nullptr : &cache_.quantizer_at(quantizer_number(s)); }

    void add_node(const net_node& n, const precision_plan& plan, program::candidate& c) {
        if (!plan.accumulators.empty() && add_to_device(n, plan, c)) return;
        if (add_to_attention(n, plan, c)) return;
        if (have_conv_units && !cache_.plain_kernels && (add_to_unit(n, plan, c) || add_to_dense(n, plan, c))) return;
        std::vector<int> key{cache_.node_number(n)};
        bool constant = n.bodies.empty() && !is_random(n);
        for (const net_input& i : n.inputs) {
            const slot s = use(i, plan);
            key.push_back(s);
            constant = constant && s <= no_slot;
        }
        const std::vector<slot> in(key.begin() + 1, key.end());
        bool own = false;  // the plan has quantizers in a subgraph: not shared with other plans
        for (const subnetwork& b : n.bodies) {
            for (const int v : b.captured) key.push_back(value_slot(v));
            own = own || touches(plan, *b.body);
        }
        std::vector<slot> outputs;
        if (constant) {
            outputs = folded(cache_, n, key, in);
        } else {
            c.layers += is_layer(n);
            const auto [at, is_new] =
                known_.try_emplace({step_key::kind::node, key, own ? static_cast<int>(program_->candidates.size()) : -1});
            if (is_new) at->second = add_step(n, key, in, plan);
            outputs = at->second;
        }
        for (std::size_t i = 0; i < outputs.size(); ++i)
            if (n.outputs[i] >= 0) slots_[static_cast<std::size_t>(n.outputs[i])] = outputs[i];
    }

    std::vector<slot> add_step(const net_node& n, const std::vector<int>& key, const std::vector<slot>& in, const precision_plan& plan) {
        step t;
        t.node = &n;
        t.in.assign(key.begin() + 1, key.begin() + 1 + static_cast<std::ptrdiff_t>(in.size()));
        for (const subnetwork& b : n.bodies) {
            for (const int v : b.captured) t.in.push_back(value_slot(v));
            const precision_plan* p = &plan;
            t.bodies.push_back(make_program(*b.body, cache_, {&p, 1}, whole_));
        }
        t.is_layer = is_layer(n);
        t.layout = layout_rule_of(n.view, n.op == nullptr ? op_facts{} : n.op->is);
        program_->layers += t.is_layer;
        t.prepared = prepared_for(cache_, n, in);
        t.rows = rows_in_file(cache_, n, in);
        if (is_op(n, "MatMul") && !cache_.plain_kernels) t.products = &cache_.products;
        for (const int o : n.outputs) t.out.push_back(o < 0 ? no_slot : program_->slot_count++);
        if (const auto q = dequantized_by(cache_, n, in)) quantizer_of_[t.out[0]] = t.quantizer = *q;
        program_->steps.push_back(std::move(t));
        return program_->steps.back().out;
    }

    /// Returns what a matrix unit reads: a value, and the quantizer that makes its codes (its edges' last, or the one that made the value).
    std::pair<slot, const quantizer*> operand(const net_input& i, const precision_plan& plan) {
        slot s = value_slot(i.value);
        int last = -1;
        for (const edge& e : i.edges) {
            const quantizer* q = plan.find(e);
            if (q == nullptr) continue;
            if (last >= 0) s = quantized(s, last);
            last = cache_.intern(*q);
        }
        if (last >= 0) return {s, &cache_.quantizer_at(last)};
        return {s, s < no_slot ? cache_.quantizer_of_constant(s) : quantizer_of(s)};
    }

    /// Makes `value` the result of the step of that key, which counts as `layers` layers; fill() completes a new step.
    template <class Fill>
    void put_layer(const step_key& key, int value, std::size_t layers, program::candidate& c, const Fill& fill) {
        c.layers += layers;
        const auto [at, is_new] = known_.try_emplace(key);
        if (is_new) {
            step t;
            fill(t);
            t.is_layer = true;
            t.out = {program_->slot_count++};
            program_->layers += layers;
            at->second = t.out;
            program_->steps.push_back(std::move(t));
        }
        slots_[static_cast<std::size_t>(value)] = at->second[0];
    }

    /// Adds a layer that a device's matrix unit multiplies. Returns false for an ordinary node.
    bool add_to_device(const net_node& n, const precision_plan& plan, program::candidate& c) {
        const auto unit = plan.accumulators.find(std::string(n.view.name()));
        if (unit == plan.accumulators.end() || n.inputs.size() < 2 || n.outputs[0] < 0) return false;
        const auto [x, by_x] = operand(n.inputs[0], plan);
        const auto [w, by_w] = operand(n.inputs[1], plan);
        const slot bias = n.inputs.size() > 2 && n.inputs[2].value >= 0 ? use(n.inputs[2], plan) : no_slot;
        const int number = units_.try_emplace(unit->second, static_cast<int>(units_.size())).first->second;
        const std::vector<int> key{
            cache_.node_number(n), x, w, bias, by_x ? cache_.intern(*by_x) : -1, by_w ? cache_.intern(*by_w) : -1, number};
        put_layer({step_key::kind::device, key}, n.outputs[0], 1, c, [&, x = x, w = w, by_x = by_x, by_w = by_w](step& t) {
            t.node = &n, t.in = {x, w, bias};
            t.device = device_component.functions_for("a plan's accumulator " + unit->second)
                           .make(n, unit->second, by_x, by_w, w < no_slot ? cache_.constant(w) : tensor());
        });
        return true;
    }

    /// Returns the only reader of `value`, if no quantizer lies on its edge; else null.
    std::pair<const net_node*, const net_input*> only_reader(int value, const precision_plan& plan) const {
        const auto r = readers_.find(value);
        if (whole_ || r == readers_.end()) return {};
        for (const edge& e : r->second.input->edges)
            if (plan.find(e) != nullptr) return {};
        return {r->second.node, r->second.input};
    }

    /// Begins or ends an attention, or skips a node within one. Returns false for an ordinary node.
    bool add_to_attention(const net_node& n, const precision_plan& plan, program::candidate& c) {
        if (const auto known = in_attention_.find(&n); known != in_attention_.end()) {
            if (&known->second->context() == &n) emit_attention(known->second, plan, c);
            return true;
        }
        if (cache_.plain_kernels || !plan.accumulators.empty() || !is_op(n, "MatMul")) return false;
        if (use(n.inputs[0], plan) < 0 || use(n.inputs[1], plan) < 0) return false;
        const auto unit = attention_unit::find(n, [&](int value) { return only_reader(value, plan); });
        if (unit == nullptr) return false;
        for (const net_node* inside : unit->nodes()) in_attention_[inside] = unit;
        return true;
    }

    void emit_attention(const std::shared_ptr<const attention_unit>& unit, const precision_plan& plan, program::candidate& c) {
        std::vector<int> key{cache_.node_number(unit->scores())};
        std::vector<slot> in;
        for (const net_input* i : unit->inputs()) {
            if (const auto p = pending_.find(i->value); p != pending_.end()) emit(p->second, i->value, c);
            in.push_back(use(*i, plan));
        }
        key.insert(key.end(), in.begin(), in.end());
        put_layer({step_key::kind::attention, key}, unit->context().outputs[0], 2, c,
                  [&](step& t) { t.node = &unit->context(), t.attention = unit, t.in = in; });
    }

    /// Returns whether a unit could go on with the only reader of `value`, through an edge without a quantizer.
    bool goes_on(int value, const precision_plan& plan, bool add_allowed) const {
        const auto [reader, input] = only_reader(value, plan);
        if (reader == nullptr) return false;
        const net_node& next = *reader;
        if (next.outputs[0] < 0) return false;  // without a name: nobody reads it
        if (is_op(next, "Relu")) return true;
        if (add_allowed && is_op(next, "BatchNormalization") && is_inference_norm(next) && input == &next.inputs[0]) return true;
        return add_allowed && is_op(next, "Add") && next.view.version() >= 7 && next.inputs.size() == 2;
    }

    void emit(const unit_plan& u, int value, program::candidate& c) {
        std::vector<int> key{cache_.node_number(*u.conv), u.add ? cache_.node_number(*u.add) : -1,
                             u.relu ? cache_.node_number(*u.relu) : -1};
        std::vector<int> constants = key;
        constants.push_back(u.in[1]), constants.push_back(u.in[2]);
        key.insert(key.end(), u.in.begin(), u.in.end());
        put_layer({step_key::kind::convolution, key}, value, 1, c, [&](step& t) {
            t.node = u.conv, t.add = u.add, t.relu = u.relu, t.in = u.in;
            constants.push_back(quantizer_number(u.in[0]));
            auto& unit = cache_.units[constants];
            if (!unit)
                unit = std::make_shared<conv_unit>(*u.conv, u.add != nullptr, u.relu != nullptr, weights_at(cache_, u.in[1]),
                                                   u.in[2] < no_slot ? cache_.constant(u.in[2]) : tensor(), quantizer_of(u.in[0]),
                                                   cache_.quantizer_of_constant(u.in[1]));
            t.unit = unit;
        });
    }

    void emit_dense(const net_node& n, const net_node* add, const std::vector<slot>& in, bool transposed, int value,
                    program::candidate& c) {
        std::vector<int> key{cache_.node_number(n), add != nullptr ? cache_.node_number(*add) : -1, in[1], in[2], quantizer_number(in[0])};
        auto& unit = cache_.dense[key];
        if (!unit) {
            auto [weights, turned] = matrix_at(cache_, in[1], transposed);
            unit = std::make_shared<dense_unit>(weights, turned, in[2] < no_slot ? cache_.constant(in[2]) : tensor(), quantizer_of(in[0]),
                                                cache_.quantizer_of_constant(in[1]), cache_.packed_weights);
        }
        key.push_back(in[0]);
        put_layer({step_key::kind::dense, key}, value, 1, c, [&](step& t) { t.node = &n, t.add = add, t.in = in, t.dense = unit; });
    }

    /// Adds a MatMul with constant weights, the Add of its bias, or a Gemm. Returns false for an ordinary node.
    bool add_to_dense(const net_node& n, const precision_plan& plan, program::candidate& c) {
        if (is_op(n, "MatMul") && n.inputs.size() >= 2 && n.outputs[0] >= 0) {
            const std::vector<slot> in{use(n.inputs[0], plan), use(n.inputs[1], plan), no_slot};
            if (in[0] < 0 || !is_matrix(cache_, in[1])) return false;
            const auto [next, input] = only_reader(n.outputs[0], plan);
            bool wait = next != nullptr && is_op(*next, "Add") && next->view.version() >= 7 && next->outputs[0] >= 0;
            if (wait) {
                const net_node& add = *next;
                if (add.inputs.size() != 2) return false;
                const net_input& other = add.inputs[&add.inputs[0] == input ? 1 : 0];
                wait = wait && other.value >= 0 && is_bias(cache_, value_slot(other.value), cache_.shape_of(in[1])[1]);
            }
            if (wait) pending_dense_[n.outputs[0]] = {&n, in};
            else emit_dense(n, nullptr, in, false, n.outputs[0], c);
            return true;
        }
        if (is_op(n, "Gemm") && n.inputs.size() >= 2 && n.outputs[0] >= 0) {
            const node_view& v = n.view;
            const bool transposed = v.get_int("transB", 0) != 0;
            if (v.get_int("transA", 0) != 0 || v.get_float("alpha", 1) != 1.0f || v.get_float("beta", 1) != 1.0f) return false;
            const std::vector<slot> in{use(n.inputs[0], plan), use(n.inputs[1], plan),
                                       n.inputs.size() > 2 ? use(n.inputs[2], plan) : no_slot};
            if (in[0] < 0 || !is_matrix(cache_, in[1]) ||
                (in[2] != no_slot && !is_bias(cache_, in[2], cache_.shape_of(in[1])[transposed ? 0 : 1])))
                return false;
            emit_dense(n, nullptr, in, transposed, n.outputs[0], c);
            return true;
        }
        if (!is_op(n, "Add") || n.inputs.size() != 2) return false;
        for (std::size_t k = 0; k < 2; ++k)
            if (const auto p = pending_dense_.find(n.inputs[k].value); p != pending_dense_.end()) {
                std::vector<slot> in = p->second.second;
                in[2] = use(n.inputs[1 - k], plan);
                emit_dense(*p->second.first, &n, in, false, n.outputs[0], c);
                return true;
            }
        return false;
    }

    /// Folds this BatchNormalization into the Conv before it, if that multiplies floats. Returns false for an ordinary node.
    bool add_norm(const net_node& n, const precision_plan& plan, program::candidate& c) {
        const auto p = pending_.find(n.inputs[0].value);
        if (p == pending_.end()) return false;
        unit_plan u = p->second;
        const std::vector<slot> by{use(n.inputs[1], plan), use(n.inputs[2], plan), use(n.inputs[3], plan), use(n.inputs[4], plan)};
        const bool floats = u.add == nullptr && quantizer_of(u.in[0]) == nullptr && cache_.quantizer_of_constant(u.in[1]) == nullptr;
        const auto both = floats ? with_norm(cache_, n, by, u.in[1], u.in[2]) : std::nullopt;
        if (!both) return emit(u, n.inputs[0].value, c), false;
        u.in[1] = both->first, u.in[2] = both->second;
        goes_on(n.outputs[0], plan, true) ? void(pending_[n.outputs[0]] = u) : emit(u, n.outputs[0], c);
        return true;
    }

    /// Starts, continues or ends a unit with this node. Returns false for an ordinary node.
    bool add_to_unit(const net_node& n, const precision_plan& plan, program::candidate& c) {
        if (is_op(n, "Conv") && n.inputs.size() >= 2 && n.outputs[0] >= 0) {
            unit_plan u{&n,
                        nullptr,
                        nullptr,
                        {use(n.inputs[0], plan), use(n.inputs[1], plan), n.inputs.size() > 2 ? use(n.inputs[2], plan) : no_slot}};
            if (u.in[0] < 0 || u.in[1] >= no_slot || u.in[2] >= 0) return false;
            const dims& w = cache_.shape_of(u.in[1]);
            if (cache_.type_of(u.in[1]) != data_type::float32 || w.size() != 4 || element_count(w) == 0) return false;
            if (u.in[2] < no_slot && cache_.type_of(u.in[2]) != data_type::float32) return false;
            if (goes_on(n.outputs[0], plan, true)) pending_[n.outputs[0]] = std::move(u);
            else emit(u, n.outputs[0], c);
            return true;
        }
        if (is_op(n, "BatchNormalization")) return add_norm(n, plan, c);
        if (is_op(n, "Relu")) {
            const auto p = pending_.find(n.inputs[0].value);
            if (p == pending_.end()) return false;
            p->second.relu = &n;
            emit(p->second, n.outputs[0], c);
            return true;
        }
        if (!is_op(n, "Add") || n.inputs.size() != 2) return false;
        auto a = pending_.find(n.inputs[0].value), b = pending_.find(n.inputs[1].value);
        if (a == pending_.end() && b == pending_.end()) return false;
        const bool first = a != pending_.end();
        if (first && b != pending_.end()) emit(b->second, b->first, c);
        const int own = first ? a->first : b->first;
        unit_plan u = first ? a->second : b->second;
        const slot residual = use(n.inputs[first ? 1 : 0], plan);
        if (residual < 0 || u.add != nullptr) {  // a constant, or a second Add: an ordinary Add
            emit(u, own, c);
            return false;
        }
        u.add = &n;
        u.in.push_back(residual);
        if (goes_on(n.outputs[0], plan, false)) pending_[n.outputs[0]] = std::move(u);
        else emit(u, n.outputs[0], c);
        return true;
    }

    const network& net_;
    cache& cache_;
    bool whole_;
    std::unordered_map<int, reader> readers_;  ///< of values that have only one
    std::unordered_map<int, std::pair<const net_node*, std::vector<slot>>> pending_dense_;
    std::unordered_map<const net_node*, std::shared_ptr<const attention_unit>> in_attention_;
    std::unordered_map<int, unit_plan> pending_;  ///< by the value that is not computed yet
    std::unique_ptr<program> program_;
    std::vector<slot> slots_;  ///< of the network's values, under the plan being added
    std::unordered_map<step_key, std::vector<slot>, step_key_hash> known_;
    std::unordered_map<slot, int> quantizer_of_;  ///< by slot that a quantizer made
    std::map<std::string, int> units_;            ///< a number for each accumulator of a plan
};

}  // namespace detail

std::unique_ptr<program> make_program(const network& net, cache& shared, std::span<const precision_plan* const> plans, bool whole) {
    detail::program_builder b(net, shared, whole);
    for (const precision_plan* p : plans) b.add(*p);
    return b.finish();
}

}  // namespace qk::graph::execute
