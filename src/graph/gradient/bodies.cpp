// SPDX-License-Identifier: Apache-2.0
// Definitions of bodies.hpp.
#include "graph/gradient/bodies.hpp"

#include <cstring>
#include <map>

#include "graph/gradient/backward.hpp"
#include "graph/model/operator_name.hpp"
#include "graph/ops/control.hpp"

namespace qk::graph::gradient {
namespace {

std::size_t at(int v) { return static_cast<std::size_t>(v); }

/// How an operator's inputs and outputs map to those of its body. Outputs [0, states) of the node, and as many inputs after its first
/// `before`, are carried from run to run; in the body they come after `inner_before` inputs and `inner_outputs` outputs.
struct body_shape {
    std::size_t before = 0, states = 0, inner_before = 0, inner_outputs = 0;
    std::size_t sequences = 0;  ///< inputs that are scanned
    bool loops = false, batched = false;
};

body_shape shape_of(const execute::net_node& node) {
    const operator_name op = operator_of(node.view);
    body_shape s;
    if (op == "Loop") {
        s.before = s.inner_before = 2, s.inner_outputs = 1, s.loops = true;
        s.states = node.inputs.size() > 2 ? node.inputs.size() - 2 : 0;
    } else if (op == "Scan") {
        s.batched = node.op->since < 9;
        s.before = s.batched ? 1 : 0;
        s.sequences = static_cast<std::size_t>(node.view.get_int("num_scan_inputs", 0));
        s.states = node.inputs.size() - s.before - s.sequences;
        s.loops = true;
    }
    return s;
}

/// Copies between a tensor along an axis and one slice of it.
template <bool ToSlice>
void copy_slice(tensor& all, std::size_t axis, std::size_t index, tensor& slice) {
    const ops::axis_split s = ops::split_at(all.shape(), axis);
    const std::size_t run = s.inner * size_of(all.type());
    for (std::size_t o = 0; run != 0 && o < s.outer; ++o) {
        std::byte *whole = all.bytes() + (o * s.length + index) * run, *part = slice.bytes() + o * run;
        if (ToSlice) std::memcpy(part, whole, run);
        else std::memcpy(whole, part, run);
    }
}
tensor slice_of(const tensor& all, std::size_t axis, std::size_t index) {
    dims shape = all.shape();
    shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(axis));
    tensor slice(all.type(), shape), from = all;
    copy_slice<true>(from, axis, index, slice);
    return slice;
}

std::size_t axis_of(std::int64_t axis, std::size_t rank) {
    return at(static_cast<int>(axis < 0 ? axis + static_cast<std::int64_t>(rank) : axis));
}

/// The axes and directions of a Scan's sequences.
struct scan_layout {
    std::vector<std::int64_t> in_axes, in_reversed, out_axes, out_reversed;
    scan_layout(const node_view& node, bool batched) {
        if (batched) {
            in_reversed = node.get_ints("directions");
            return;
        }
        in_axes = node.get_ints("scan_input_axes"), in_reversed = node.get_ints("scan_input_directions");
        out_axes = node.get_ints("scan_output_axes"), out_reversed = node.get_ints("scan_output_directions");
    }
    static std::int64_t entry(const std::vector<std::int64_t>& v, std::size_t k) { return k < v.size() ? v[k] : 0; }
};

/// Walks back over the runs of one sequence.
class runs_walk {
  public:
    runs_walk(const execute::net_node& node, const tape::body& taken, std::vector<tensor>& gradients, edge_visitor* visitor)
        : shape(shape_of(node)), body(taken.graph->body.get()), taken_(&taken), gradients_(&gradients), visitor_(visitor) {}

    /// Walks back over runs [first, end). `states` are the gradients of what the last run carried on, and become those of what the first
    /// began with. `scanned(k, i)` returns the gradient of scan output k at run i; `give(k, i, g)` receives that of scan input k.
    template <class Scanned, class Give>
    void through(std::size_t first, std::size_t end, std::vector<tensor>& states, const Scanned& scanned, const Give& give) const {
        for (std::size_t r = end; r-- > first;) {
            std::vector<tensor> seeds(body->outputs.size());
            for (std::size_t k = 0; k < states.size(); ++k) seeds[shape.inner_outputs + k] = std::exchange(states[k], tensor());
            for (std::size_t k = shape.inner_outputs + shape.states; k < seeds.size(); ++k)
                seeds[k] = scanned(k - shape.inner_outputs - shape.states, r - first);
            const std::vector<tensor> inner = run_back(r, seeds);
            for (std::size_t k = 0; k < states.size(); ++k) states[k] = inner[at(body->inputs[shape.inner_before + k])];
            for (std::size_t k = 0; k < shape.sequences; ++k) {
                const tensor& g = inner[at(body->inputs[shape.states + k])];
                if (!g.empty()) give(k, r - first, g);
            }
        }
    }

    /// Walks back over one run. Returns the gradients by the body's values and adds those of what the body captured to the gradients around
    /// it.
    std::vector<tensor> run_back(std::size_t r, const std::vector<tensor>& seeds) const {
        std::vector<tensor> inner =
            std::move(walk_back(*body, *taken_->runs[r], std::span(&seeds, 1), visitor_ == nullptr ? nullptr : &inner_)[0]);
        const auto pass = [&](int from, int to) {
            const tensor& g = inner[at(from)];
            if (!g.empty()) accumulate((*gradients_)[at(to)], g);
        };
        const std::size_t own = body->inputs.size() - taken_->graph->captured.size();
        for (std::size_t i = 0; i < taken_->graph->captured.size(); ++i) pass(body->inputs[own + i], taken_->graph->captured[i]);
        for (const auto& [value, outer] : taken_->shared) {
            pass(value, outer);
            inner[at(value)] = tensor();
        }
        for (std::size_t v = 0; visitor_ != nullptr && visitor_->wants_bodies() && v < inner.size(); ++v)
            if (!inner[v].empty() && !body->values[v].constant.empty()) visitor_->in_body(*body, v, inner[v]);
        return inner;
    }

    body_shape shape;
    const execute::network* body;

  private:
    /// Forwards gradients by initializers alone: uses within a body are no edges of the model's own graph.
    struct inner_visitor final : edge_visitor {
        explicit inner_visitor(edge_visitor* o) : outer(o) {}
        edge_visitor* outer;
        bool wants_bodies() const override { return outer->wants_bodies(); }
        void in_body(const execute::network& n, std::size_t v, const tensor& g) override { outer->in_body(n, v, g); }
    };
    const tape::body* taken_;
    std::vector<tensor>* gradients_;
    edge_visitor* visitor_;
    mutable inner_visitor inner_{visitor_};
};

/// Gradients of a batched Scan: samples in order, each a sequence of its own.
class batched_scan {
  public:
    batched_scan(const runs_walk& walk, const execute::net_node& node, const tape& t, std::size_t number)
        : walk_(&walk), layout_(node.view, true), read_(&t.read[number]), given_(node.inputs.size()) {
        batch_ = at(static_cast<int>((*read_)[1 + walk.shape.states].dim(0)));
        lengths_.assign(batch_, at(static_cast<int>((*read_)[1 + walk.shape.states].dim(1))));
        if ((*read_)[0].empty()) return;
        const tensor lengths = as_real<double>((*read_)[0]);
        for (std::size_t b = 0; b < batch_; ++b) lengths_[b] = static_cast<std::size_t>(lengths.as<double>()[b]);
    }

    std::vector<tensor> back(std::span<const tensor> outputs) {
        const body_shape& s = walk_->shape;
        std::size_t first = 0;
        for (std::size_t b = 0; b < batch_; first += lengths_[b++]) {
            std::vector<tensor> states(s.states);
            for (std::size_t k = 0; k < s.states; ++k)
                if (!outputs[k].empty()) states[k] = slice_of(outputs[k], 0, b);
            walk_->through(
                first, first + lengths_[b], states,
                [&](std::size_t k, std::size_t i) {
                    const tensor& g = outputs[s.states + k];
                    return g.empty() ? tensor() : slice_of(slice_of(g, 0, b), 0, i);
                },
                [&](std::size_t k, std::size_t i, const tensor& g) {
                    const std::size_t to = scan_layout::entry(layout_.in_reversed, k) != 0 ? lengths_[b] - 1 - i : i;
                    tensor row = slice_of(place(1 + s.states + k, g), 0, b), part = g;
                    copy_slice<false>(row, 0, to, part);
                    copy_slice<false>(given_[1 + s.states + k], 0, b, row);
                });
            for (std::size_t k = 0; k < s.states; ++k)
                if (!states[k].empty()) copy_slice<false>(place(1 + k, states[k]), 0, b, states[k]);
        }
        return std::move(given_);
    }

  private:
    /// Returns the place for the gradient of input i, filled with zeros before the first part comes.
    tensor& place(std::size_t i, const tensor& part) {
        if (!given_[i].empty()) return given_[i];
        given_[i] = part.type() == data_type::float64 ? zeros<double>((*read_)[i].shape()) : zeros<float>((*read_)[i].shape());
        return given_[i];
    }
    const runs_walk* walk_;
    scan_layout layout_;
    const std::vector<tensor>* read_;
    std::vector<tensor> given_;
    std::size_t batch_ = 0;
    std::vector<std::size_t> lengths_;
};

/// Returns the constants of a body that are constants around it, by name, as (inner, outer) values: training may have replaced the outer
/// ones.
std::vector<std::pair<int, int>> shared_constants(const execute::network& outer, const execute::network& body, const tape& t) {
    std::map<std::string_view, int> names;
    for (std::size_t o = 0; o < outer.values.size(); ++o)
        if (!t.values[o].empty() && !outer.values[o].constant.empty()) names[outer.values[o].name] = static_cast<int>(o);
    std::vector<std::pair<int, int>> shared;
    for (std::size_t v = 0; v < body.values.size(); ++v) {
        if (body.values[v].constant.empty()) continue;
        const auto found = names.find(body.values[v].name);
        if (found == names.end()) continue;
        const tensor& there = t.values[at(found->second)];
        if (there.type() == body.values[v].constant.type() && there.shape() == body.values[v].constant.shape())
            shared.emplace_back(static_cast<int>(v), found->second);
    }
    return shared;
}

}  // namespace

void run_bodies(const execute::network& net, std::size_t number, tape& t, bool own_constants, std::span<const tensor> in,
                std::span<tensor> out) {
    const execute::net_node& node = net.nodes[number];
    const body_shape shape = shape_of(node);
    tape::body& taken = t.bodies[number] = {};
    std::vector<char> states;  // by carried value: whether it is active
    for (std::size_t k = 0; k < shape.states; ++k) {
        const int v = node.inputs[shape.before + k].value;
        states.push_back(v >= 0 && t.active[at(v)] != 0);
    }
    std::vector<char> roots;
    std::vector<std::pair<int, tensor>> constants;
    const op_context::subgraph_runner run = [&](const onnx::GraphProto& graph, std::span<const tensor> given) {
        if (taken.graph == nullptr || taken.graph->graph != &graph) {
            for (const execute::subnetwork& s : node.bodies)
                if (s.graph == &graph) taken.graph = &s;
            if (taken.graph == nullptr) throw error("a subgraph that the node does not have");
            const execute::network& body = *taken.graph->body;
            taken.shared = shared_constants(net, body, t);
            roots.assign(body.values.size(), 0);
            for (std::size_t v = 0; own_constants && v < roots.size(); ++v) roots[v] = is_real(body.values[v].constant.type());
            for (const auto& [v, outer] : taken.shared) {
                roots[at(v)] = t.active[at(outer)];
                constants.emplace_back(v, t.values[at(outer)]);
            }
            for (std::size_t k = 0; k < shape.sequences; ++k) {
                const int v = node.inputs[shape.before + shape.states + k].value;
                roots[at(body.inputs[shape.states + k])] = v >= 0 && t.active[at(v)] != 0;
            }
        }
        const execute::network& body = *taken.graph->body;
        std::vector<tensor> inputs(given.begin(), given.end());
        for (std::size_t k = 0; k < shape.states; ++k)
            roots[at(body.inputs[shape.inner_before + k])] = states[k] != 0 && is_real(inputs[shape.inner_before + k].type());
        for (std::size_t i = 0; i < taken.graph->captured.size(); ++i) {
            const std::size_t outer = at(taken.graph->captured[i]);
            roots[at(body.inputs[given.size() + i])] = t.active[outer];
            inputs.push_back(t.values[outer]);
        }
        taken.runs.push_back(std::make_shared<tape>(record_graph(body, inputs, roots, nullptr, no_limit, own_constants, constants)));
        const tape& record = *taken.runs.back();
        std::vector<tensor> results;
        for (const execute::net_input& o : body.outputs) results.push_back(record.values[at(o.value)]);
        for (std::size_t k = 0; k < shape.states; ++k) states[k] = record.active[at(body.outputs[shape.inner_outputs + k].value)];
        return results;
    };
    execute::detail::call_node(node, nullptr, in, out, thread_allocator::get(), run);
}

bool body_output_active(const execute::net_node& node, std::size_t number, const tape& t, std::size_t k) {
    const body_shape shape = shape_of(node);
    const tape::body& taken = t.bodies[number];
    if (k < shape.states) {
        const int v = node.inputs[shape.before + k].value;
        if (v >= 0 && t.active[at(v)] != 0) return true;
    }
    for (const auto& run : taken.runs)
        if (run->active[at(taken.graph->body->outputs[shape.inner_outputs + k].value)] != 0) return true;
    return false;
}

std::vector<tensor> through_bodies(const execute::network& net, std::size_t number, const tape& t, std::span<const tensor> outputs,
                                   std::vector<tensor>& gradients, edge_visitor* visitor) {
    const execute::net_node& node = net.nodes[number];
    const tape::body& taken = t.bodies[number];
    std::vector<tensor> given(node.inputs.size());
    const body_shape shape = shape_of(node);
    if (taken.graph == nullptr) {  // no run at all: carried values come out as they went in
        for (std::size_t k = 0; k < shape.states && !shape.batched; ++k) given[shape.before + k] = outputs[k];
        return given;
    }
    const runs_walk walk(node, taken, gradients, visitor);
    if (!shape.loops) {
        static_cast<void>(walk.run_back(0, std::vector<tensor>(outputs.begin(), outputs.end())));
        return given;
    }
    if (shape.batched) return batched_scan(walk, node, t, number).back(outputs);
    const std::size_t runs = taken.runs.size();
    const scan_layout layout(node.view, false);
    std::vector<tensor> states(outputs.begin(), outputs.begin() + static_cast<std::ptrdiff_t>(std::min(shape.states, outputs.size())));
    states.resize(shape.states);
    walk.through(
        0, runs, states,
        [&](std::size_t k, std::size_t i) {
            if (shape.states + k >= outputs.size() || outputs[shape.states + k].empty()) return tensor();
            const tensor& g = outputs[shape.states + k];
            const std::size_t from = scan_layout::entry(layout.out_reversed, k) != 0 ? runs - 1 - i : i;
            return slice_of(g, axis_of(scan_layout::entry(layout.out_axes, k), g.rank()), from);
        },
        [&](std::size_t k, std::size_t i, const tensor& g) {
            const std::size_t input = shape.states + k, to = scan_layout::entry(layout.in_reversed, k) != 0 ? runs - 1 - i : i;
            const dims& all = t.read[number][input].shape();
            if (given[input].empty()) given[input] = g.type() == data_type::float64 ? zeros<double>(all) : zeros<float>(all);
            tensor part = g;
            copy_slice<false>(given[input], axis_of(scan_layout::entry(layout.in_axes, k), all.size()), to, part);
        });
    for (std::size_t k = 0; k < shape.states; ++k) given[shape.before + k] = states[k];
    return given;
}

}  // namespace qk::graph::gradient
