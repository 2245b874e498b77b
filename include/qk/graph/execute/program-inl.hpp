// SPDX-License-Identifier: Apache-2.0
// Building and running programs.
#pragma once

#include <algorithm>
#include <new>
#include <stdexcept>
#include <string_view>

#include "qk/graph/execute/program.hpp"
#include "qk/graph/execute/quantize_value.hpp"

namespace qk::graph::execute {
namespace detail {

inline std::size_t hash_quantizer(const quantizer& q) {
    std::size_t h = q.format.index() * 131 + static_cast<std::size_t>(q.axis + 7) * 17 + q.scale.size() + (q.dynamic ? 3 : 0);
    h = h * 31 + static_cast<std::size_t>(bits_per_value(q.format) * 16);
    for (const float s : q.scale) h = (h ^ std::bit_cast<std::uint32_t>(s)) * 0x9e3779b97f4a7c15u;
    return h;
}

inline bool is_layer(const net_node& n) {
    const std::string_view op = n.view.op_type();
    return op == "Conv" || op == "ConvTranspose" || op == "Gemm" || op == "MatMul";
}

/// Calls a node's function; whatever goes wrong names the node.
inline void call_node(const net_node& node, const prepared_op* prepared, std::span<const tensor> in, std::span<tensor> out, allocator& memory,
                      const op_context::subgraph_runner& subgraphs) {
    try {
        op_context call(node.view, in, out, memory, subgraphs);
        if (prepared != nullptr) prepared->run(call);
        else node.op->run(call);
    } catch (const error& e) {
        if (std::string_view(e.what()).find("node '") != std::string_view::npos) throw;
        node.view.fail(e.what());
    } catch (const std::bad_alloc&) {
        node.view.fail("not enough memory for its result");
    } catch (const std::length_error&) {
        node.view.fail("a size is out of range");
    }
}

/// A plan has something to say about a graph that hangs below a node.
inline bool touches(const precision_plan& plan, const network& net) {
    for (const net_node& n : net.nodes) {
        for (const net_input& i : n.inputs)
            for (const edge& e : i.edges)
                if (plan.find(e) != nullptr) return true;
        for (const subnetwork& s : n.bodies)
            if (touches(plan, *s.body)) return true;
    }
    return false;
}

class program_builder {
  public:
    program_builder(const network& net, cache& shared) : net_(net), cache_(shared), program_(std::make_unique<program>()) {
        program_->net = &net;
        program_->shared = &shared;
        for (std::size_t i = 0; i < net.inputs.size(); ++i) program_->input_slots.push_back(program_->slot_count++);
    }

    void add(const precision_plan& plan) {
        slots_.assign(net_.values.size(), no_slot);
        for (std::size_t i = 0; i < net_.inputs.size(); ++i) slots_[static_cast<std::size_t>(net_.inputs[i])] = program_->input_slots[i];
        program::candidate c;
        for (const net_node& n : net_.nodes) add_node(n, plan, c);
        for (const net_input& o : net_.outputs) c.outputs.push_back(use(o, plan));
        c.after = static_cast<int>(program_->steps.size()) - 1;
        program_->candidates.push_back(std::move(c));
    }

    std::unique_ptr<program> finish() {
        auto& steps = program_->steps;
        std::vector<int> last(static_cast<std::size_t>(program_->slot_count), -1);
        for (std::size_t i = 0; i < steps.size(); ++i)
            for (const slot s : steps[i].in)
                if (s >= 0) last[static_cast<std::size_t>(s)] = static_cast<int>(i);
        for (const auto& c : program_->candidates)
            for (const slot s : c.outputs)
                if (s >= 0) last[static_cast<std::size_t>(s)] = std::max(last[static_cast<std::size_t>(s)], c.after);
        for (std::size_t i = 0; i < steps.size(); ++i)  // results that nobody reads go at once
            for (const slot s : steps[i].out)
                if (s >= 0 && last[static_cast<std::size_t>(s)] < 0) last[static_cast<std::size_t>(s)] = static_cast<int>(i);
        for (std::size_t s = 0; s < last.size(); ++s)
            if (last[s] >= 0) steps[static_cast<std::size_t>(last[s])].release.push_back(static_cast<slot>(s));
        return std::move(program_);
    }

  private:
    slot value_slot(int value) {
        const net_value& v = net_.values[static_cast<std::size_t>(value)];
        return v.constant.empty() ? slots_[static_cast<std::size_t>(value)] : cache_.value_constant(v);
    }

    /// The slot that a use reads: the value's, behind the quantizers of its edges.
    slot use(const net_input& i, const precision_plan& plan) {
        if (i.value < 0) return no_slot;
        slot s = value_slot(i.value);
        for (const edge& e : i.edges)
            if (const quantizer* q = plan.find(e); q != nullptr && s != no_slot) s = quantized(s, cache_.intern(*q));
        return s;
    }

    slot quantized(slot s, int q) {
        if (s < no_slot) return cache_.quantized_constant(s, q);
        const auto [at, is_new] = known_.try_emplace({-1, q, s});
        if (is_new) {
            step& t = program_->steps.emplace_back();
            t.quantizer = q;
            t.in = {s};
            t.out = {program_->slot_count++};
            at->second = t.out;
        }
        return at->second[0];
    }

    void add_node(const net_node& n, const precision_plan& plan, program::candidate& c) {
        std::vector<int> key{cache_.node_number(n)};
        bool constant = n.bodies.empty() && !is_random(n);
        for (const net_input& i : n.inputs) {
            const slot s = use(i, plan);
            key.push_back(s);
            constant = constant && s <= no_slot;
        }
        const std::vector<slot> in(key.begin() + 1, key.end());
        bool own = false;  // the plan reaches into a subgraph: not shared with other plans
        for (const subnetwork& b : n.bodies) {
            for (const int v : b.captured) key.push_back(value_slot(v));
            own = own || touches(plan, *b.body);
        }
        if (own) key.push_back(-1000 - static_cast<int>(program_->candidates.size()));
        std::vector<slot> outputs;
        if (constant) {
            outputs = fold(n, key, in);
        } else {
            c.layers += is_layer(n);
            const auto [at, is_new] = known_.try_emplace(key);
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
            t.bodies.push_back(make_program(*b.body, cache_, {&p, 1}));
        }
        t.is_layer = is_layer(n);
        program_->layers += t.is_layer;
        t.prepared = prepare(n, in);
        for (const int o : n.outputs) t.out.push_back(o < 0 ? no_slot : program_->slot_count++);
        program_->steps.push_back(std::move(t));
        return program_->steps.back().out;
    }

    std::shared_ptr<const prepared_op> prepare(const net_node& n, const std::vector<slot>& in) {
        if (n.op->prepare == nullptr) return nullptr;
        std::vector<int> key{cache_.node_number(n)};
        for (const slot s : in) key.push_back(std::min(s, 0));  // all runtime slots alike
        const auto [at, is_new] = cache_.prepared.try_emplace(key);
        if (is_new) {
            std::vector<tensor> constants;
            for (const slot s : in) constants.push_back(s < no_slot ? cache_.constant(s) : tensor());
            at->second = n.op->prepare({n.view, constants});
        }
        return at->second;
    }

    /// A node of constants is computed now, once for all programs.
    const std::vector<slot>& fold(const net_node& n, const std::vector<int>& key, const std::vector<slot>& in) {
        const auto [at, is_new] = cache_.folded.try_emplace(key);
        if (!is_new) return at->second;
        arena memory;
        std::vector<tensor> inputs, outputs(n.outputs.size());
        for (const slot s : in) inputs.push_back(s < no_slot ? cache_.constant(s) : tensor());
        call_node(n, prepare(n, in).get(), inputs, outputs, memory, no_subgraphs());
        std::vector<slot> made;
        for (std::size_t i = 0; i < outputs.size(); ++i)
            made.push_back(n.outputs[i] < 0 || outputs[i].empty() ? no_slot : cache_.add_constant(std::move(outputs[i])));
        return at->second = made;
    }

    static const op_context::subgraph_runner& no_subgraphs() {
        static const op_context::subgraph_runner none = [](const onnx::GraphProto&, std::span<const tensor>) -> std::vector<tensor> {
            throw error("this node has no subgraph");
        };
        return none;
    }

    const network& net_;
    cache& cache_;
    std::unique_ptr<program> program_;
    std::vector<slot> slots_;  ///< of the network's values, under the plan being added
    std::unordered_map<std::vector<int>, std::vector<slot>, slots_hash> known_;
};

}  // namespace detail

QK_GRAPH_INLINE slot cache::add_constant(tensor t) {
    bytes_ += t.size_bytes();
    constants_.push_back(std::move(t));
    return -1 - static_cast<slot>(constants_.size());
}

QK_GRAPH_INLINE slot cache::value_constant(const net_value& v) {
    const auto [at, is_new] = value_slots_.try_emplace(&v, no_slot);
    if (is_new) at->second = add_constant(v.constant);
    return at->second;
}

QK_GRAPH_INLINE int cache::intern(const quantizer& q) {
    const std::size_t h = detail::hash_quantizer(q);
    const auto [first, last] = quantizer_ids_.equal_range(h);
    for (auto i = first; i != last; ++i)
        if (quantizer_at(i->second) == q) return i->second;
    quantizers_.push_back(q);
    const int id = static_cast<int>(quantizers_.size()) - 1;
    quantizer_ids_.emplace(h, id);
    return id;
}

QK_GRAPH_INLINE slot cache::quantized_constant(slot s, int quantizer_id) {
    const auto [at, is_new] = quantized_.try_emplace({s, quantizer_id}, no_slot);
    if (is_new) {
        arena memory;
        at->second = add_constant(quantized(quantizer_at(quantizer_id), constant(s), false, memory));
    }
    return at->second;
}

QK_GRAPH_INLINE std::unique_ptr<program> make_program(const network& net, cache& shared, std::span<const precision_plan* const> plans, bool) {
    detail::program_builder b(net, shared);
    for (const precision_plan* p : plans) b.add(*p);
    return b.finish();
}

QK_GRAPH_INLINE void run_program(const program& p, std::span<const tensor> inputs, allocator& memory, const deliver& out, const observe_value& observe) {
    std::vector<tensor> slots(static_cast<std::size_t>(p.slot_count));
    std::copy(inputs.begin(), inputs.end(), slots.begin());
    const auto read = [&](slot s) -> const tensor& {
        static const tensor left_out;
        return s >= 0 ? slots[static_cast<std::size_t>(s)] : s == no_slot ? left_out : p.shared->constant(s);
    };
    std::size_t next = 0;
    std::vector<tensor> results, in, made;
    const auto deliver_until = [&](int done) {
        for (; next < p.candidates.size() && p.candidates[next].after <= done; ++next) {
            results.clear();
            for (const slot s : p.candidates[next].outputs) results.push_back(read(s));
            out(next, results);
        }
    };
    if (observe)
        for (std::size_t i = 0; i < p.net->inputs.size(); ++i) observe(p.net->values[static_cast<std::size_t>(p.net->inputs[i])].name, slots[i]);
    deliver_until(-1);
    for (std::size_t i = 0; i < p.steps.size(); ++i) {
        const step& t = p.steps[i];
        if (t.node == nullptr) {
            slots[static_cast<std::size_t>(t.out[0])] = quantized(p.shared->quantizer_at(t.quantizer), read(t.in[0]), false, memory);
        } else {
            const std::size_t arguments = t.node->inputs.size();
            in.clear();
            for (std::size_t k = 0; k < arguments; ++k) in.push_back(read(t.in[k]));
            made.assign(t.out.size(), tensor());
            const op_context::subgraph_runner subgraphs = [&](const onnx::GraphProto& graph, std::span<const tensor> given) {
                std::size_t captured_at = arguments;
                for (std::size_t b = 0; b < t.bodies.size(); ++b) {
                    const subnetwork& sub = t.node->bodies[b];
                    if (sub.graph == &graph) {
                        const std::size_t own = sub.body->inputs.size() - sub.captured.size();
                        if (given.size() != own) t.node->view.fail("its subgraph takes " + std::to_string(own) + " inputs and is given " + std::to_string(given.size()));
                        std::vector<tensor> all(given.begin(), given.end());
                        for (std::size_t k = 0; k < sub.captured.size(); ++k) all.push_back(read(t.in[captured_at + k]));
                        std::vector<tensor> outputs;
                        run_program(*t.bodies[b], all, memory, [&](std::size_t, std::span<const tensor> o) { outputs.assign(o.begin(), o.end()); }, observe);
                        return outputs;
                    }
                    captured_at += sub.captured.size();
                }
                t.node->view.fail("it has no such subgraph");
            };
            detail::call_node(*t.node, t.prepared.get(), in, made, memory, subgraphs);
            for (std::size_t k = 0; k < made.size(); ++k)
                if (t.out[k] >= 0) {
                    if (observe && !made[k].empty()) observe(p.net->values[static_cast<std::size_t>(t.node->outputs[k])].name, made[k]);
                    slots[static_cast<std::size_t>(t.out[k])] = std::move(made[k]);
                }
            in.clear();
        }
        deliver_until(static_cast<int>(i));
        for (const slot s : t.release) slots[static_cast<std::size_t>(s)] = tensor();
    }
}

}  // namespace qk::graph::execute
