// SPDX-License-Identifier: Apache-2.0
#include "graph/ops/walk/walk.hpp"
#include "graph/model/operator_name.hpp"

#include <algorithm>
#include <cstring>

#include "graph/ops/body.hpp"
#include "graph/ops/run_node.hpp"
#include "graph/ops/walk/call.hpp"

namespace qk::graph::ops {
namespace {

using state_kind = walked::kind;

constexpr std::size_t most_content = std::size_t{1} << 16;  ///< bytes of a value that is computed: shapes, axes, positions

bool same_content(const tensor& a, const tensor& b) {
    return a.type() == b.type() && a.shape() == b.shape() &&
           (a.size_bytes() == 0 || std::memcmp(a.bytes(), b.bytes(), a.size_bytes()) == 0);
}

/// Returns what a value is whose content was computed for each number of samples; nullopt if its shape depends on that.
std::optional<walked> computed_state(std::vector<tensor> content) {
    walked s;
    s.ranked = true;
    s.shape = content.front().shape();
    bool alike = true;
    for (const tensor& t : content) {
        if (t.shape() != s.shape) return std::nullopt;
        alike = alike && same_content(t, content.front());
    }
    if (!alike) s.is = state_kind::counted;
    if (content.front().size_bytes() <= most_content) s.content = std::move(content);
    else if (!alike) return std::nullopt;
    return s;
}

/// Returns what holds for both values; a lost one if they differ in where the samples are.
walked merged(const walked& a, const walked& b) {
    if (a.lost()) return a;
    if (b.lost()) return b;
    const bool rows_alike =
        !a.is_rows() || !b.is_rows() ||
        (a.shape.size() == b.shape.size() && a.shape[static_cast<std::size_t>(a.axis)] == b.shape[static_cast<std::size_t>(b.axis)]);
    if (a.is != b.is || a.axis != b.axis || a.outer != b.outer || a.is == state_kind::counted || a.numbers != b.numbers || !rows_alike) {
        walked lost;
        lost.is = state_kind::undecided;
        lost.why = "has the samples now along one axis, now along another";
        return lost;
    }
    walked m = a;
    m.ranked = a.ranked && b.ranked && a.shape.size() == b.shape.size();
    for (std::size_t k = 0; m.ranked && k < m.shape.size(); ++k)
        if (m.shape[k] != b.shape[k]) m.shape[k] = -1;
    if (!m.ranked) m.shape.clear();
    if (a.content.empty() || b.content.empty() || !same_content(a.content.front(), b.content.front())) m.content.clear();
    return m;
}

bool same_state(const walked& a, const walked& b) {
    return a.is == b.is && a.axis == b.axis && a.outer == b.outer && a.ranked == b.ranked && a.shape == b.shape &&
           a.content.empty() == b.content.empty() && a.numbers == b.numbers;
}

class walker {
    using node = walk_graph::node;

  public:
    walker(const walk_counts& counts, const std::function<std::int64_t()>& open) : counts_(counts), open_(open) {}

    std::vector<walked> values(const walk_graph& graph, std::vector<walked> inputs) {
        std::vector<walked> known(graph.values);
        for (const auto& [value, constant] : graph.constants) known[static_cast<std::size_t>(value)] = constant;
        for (std::size_t i = 0; i < graph.inputs.size() && i < inputs.size(); ++i)
            known[static_cast<std::size_t>(graph.inputs[i])] = std::move(inputs[i]);
        for (const node& n : graph.nodes) {
            std::vector<walked> made = follow(n, known);
            for (std::size_t k = 0; k < n.outputs.size() && k < made.size(); ++k)
                if (n.outputs[k] >= 0) known[static_cast<std::size_t>(n.outputs[k])] = std::move(made[k]);
            for (const int o : n.outputs)
                if (o >= 0 && open_) close(known[static_cast<std::size_t>(o)], graph.stated[static_cast<std::size_t>(o)]);
        }
        return known;
    }

  private:
    using states = std::vector<walked>;

    /// Adds what the model states of a value, and puts numbers for lengths that are not known.
    void close(walked& v, const std::optional<dims>& stated) const {
        if (stated && (!v.ranked || (v.shape.size() != stated->size() && !stated->empty()))) v = walked_constant(*stated);
        for (std::size_t k = 0; k < v.shape.size(); ++k) {
            if (stated && k < stated->size() && (*stated)[k] >= 0) v.shape[k] = (*stated)[k];
            if (v.shape[k] < 0) v.shape[k] = open_();
        }
    }

    static states all(const node& n, state_kind is, const std::string& what) {
        walked v;
        v.is = is;
        v.why = "node '" + std::string(n.view->name()) + "' (" + std::string(n.view->op_type()) + ") " + what;
        return states(n.outputs.size(), v);
    }

    states follow(const node& n, const states& known) {
        if (++steps_ > most_steps) return all(n, state_kind::undecided, "is reached only after a million others");
        std::vector<const walked*> in;
        for (const int i : n.inputs) in.push_back(i < 0 ? nullptr : &known[static_cast<std::size_t>(i)]);
        std::vector<const walked*> seen = in;
        for (const walk_graph::body& s : n.bodies)
            for (const int v : s.captured) seen.push_back(&known[static_cast<std::size_t>(v)]);
        for (const state_kind is : {state_kind::mixed, state_kind::undecided})
            for (const walked* v : seen)
                if (v != nullptr && v->is == is) return states(n.outputs.size(), *v);
        if (!open_ && n.op != nullptr && n.op->is.has(random))
            return all(n, state_kind::mixed, "draws numbers in the order of the samples");
        if (states made; compute(n, in, made)) return made;
        const bool depends = std::ranges::any_of(seen, [](const walked* v) { return v != nullptr && v->is != state_kind::shared; });
        try {
            if (!n.bodies.empty()) return follow_bodies(n, in, known);
            if (n.op != nullptr && n.op->body != nullptr && n.op->walk.follow == nullptr) return through_body(n, in);
            return by_rule(n, std::move(in));
        } catch (const walk_end& end) {
            if (depends) return all(n, end.is, end.what);
        } catch (const error& e) {
            if (depends) return all(n, state_kind::undecided, std::string("has attributes that are wrong: ") + e.what());
        }
        return states(n.outputs.size());  // the same for all samples, of a shape that is not known
    }

    /// Runs a node whose inputs are known, for each number of samples.
    bool compute(const node& n, const std::vector<const walked*>& in, states& made) const {
        if (!n.bodies.empty() || n.op == nullptr || n.op->run == nullptr || n.outputs.empty()) return false;
        for (const walked* v : in)
            if (v != nullptr && v->content.empty()) return false;
        std::vector<std::vector<tensor>> content(n.outputs.size());
        const op_context::subgraph_runner none = [](const onnx::GraphProto&, std::span<const tensor>) -> std::vector<tensor> {
            throw error("subgraph");
        };
        try {
            graph::detail::bounded_heap heap(operator_of(*n.view) == "Constant" ? std::size_t{1} << 34 : most_content);
            const bool once = std::ranges::none_of(in, [](const walked* v) { return v != nullptr && v->is == state_kind::counted; });
            for (std::size_t at = 0; at < (once ? 1 : counts_.size()); ++at) {
                std::vector<tensor> inputs, outputs(n.outputs.size());
                for (const walked* v : in) inputs.push_back(v == nullptr ? tensor() : v->content[at]);
                op_context call(*n.view, inputs, outputs, heap, none);
                n.op->run(call);
                for (std::size_t k = 0; k < outputs.size(); ++k) {
                    if (outputs[k].empty() || outputs[k].type() == data_type::string) return false;
                    content[k].push_back(std::move(outputs[k]));
                    if (once) content[k].resize(counts_.size(), content[k].front());
                }
            }
        } catch (const error&) {
            return false;
        } catch (const std::bad_alloc&) {
            return false;
        } catch (const std::length_error&) {
            return false;
        }
        for (std::vector<tensor>& c : content) {
            auto state = computed_state(std::move(c));
            if (!state) return false;
            made.push_back(std::move(*state));
        }
        return true;
    }

    states by_rule(const node& n, std::vector<const walked*> in) const {
        const walk_rule* rule = n.op == nullptr ? nullptr : &n.op->walk;
        if (rule == nullptr || rule->follow == nullptr)
            throw walk_end{state_kind::undecided, "is an operator whose axes are not known here"};
        bool rows = false;
        for (std::size_t i = 0; i < in.size(); ++i) {
            if (in[i] == nullptr) continue;
            rows = rows || in[i]->is_rows();
            if (in[i]->is == state_kind::counted && (i >= 32 || (rule->sizes >> i & 1u) == 0))
                throw walk_end{state_kind::mixed, "computes with the number of samples"};
            if (in[i]->numbers != walked::numbering::none && (i >= 32 || (rule->numbers >> i & 1u) == 0))
                throw walk_end{state_kind::mixed, "computes with the number of each sample"};
        }
        walk_call call(*n.view, n.outputs.size(), std::move(in), counts_);
        rule->follow(call);
        return std::move(call.out);
    }

    /// A composite without a rule does to the samples what its body does.
    states through_body(const node& n, const std::vector<const walked*>& in) {
        const op_body body(*n.view, *n.op);
        walk_graph graph;
        graph.values = static_cast<std::size_t>(body.values());
        graph.stated.resize(graph.values);
        states own;
        for (std::size_t i = 0; i < in.size(); ++i) {
            if (in[i] == nullptr) continue;
            graph.inputs.push_back(static_cast<int>(i));
            own.push_back(*in[i]);
        }
        for (const op_body::node& b : body.nodes()) graph.nodes.push_back({&b.view, b.op, b.inputs, b.outputs});
        const states known_inside = values(graph, std::move(own));
        states made = all(n, state_kind::undecided, "has a body that does not make this output");
        for (std::size_t k = 0; k < made.size(); ++k)
            if (const int v = body.output(k); v >= 0) made[k] = known_inside[static_cast<std::size_t>(v)];
        return made;
    }

    static std::string_view domain_of(const node& n) { return n.op != nullptr ? n.op->domain : std::string_view("?"); }

    states run_body(const walk_graph::body& s, states own, const states& around) {
        for (const int v : s.captured) own.push_back(around[static_cast<std::size_t>(v)]);
        const states known = values(*s.graph, std::move(own));
        states made;
        for (const int o : s.graph->outputs) made.push_back(known[static_cast<std::size_t>(o)]);
        return made;
    }

    states follow_bodies(const node& n, const std::vector<const walked*>& in, const states& known) {
        const operator_name op = operator_of(*n.view);
        if (!domain_of(n).empty()) throw walk_end{state_kind::undecided, "is an operator whose axes are not known here"};
        if (op == "If") return follow_if(n, in, known);
        if (op == "Loop") return follow_loop(n, in, known);
        if (op == "Scan" && n.view->version() >= 9) return follow_scan(n, in, known);
        throw walk_end{state_kind::undecided, "is an operator whose axes are not known here"};
    }

    states follow_if(const node& n, const std::vector<const walked*>& in, const states& known) {
        if (in.empty() || in[0] == nullptr || in[0]->is != state_kind::shared)
            throw walk_end{state_kind::mixed, "takes a branch that depends on the samples"};
        const onnx::GraphProto* then = &n.view->get_graph("then_branch");
        const walk_graph::body* chosen = nullptr;
        if (!in[0]->content.empty() && in[0]->content[0].type() == data_type::boolean && in[0]->content[0].size() == 1) {
            const bool yes = in[0]->content[0].bytes()[0] != std::byte{0};
            for (const walk_graph::body& s : n.bodies)
                if ((s.proto == then) == yes) chosen = &s;
        }
        if (chosen != nullptr) return run_body(*chosen, {}, known);
        states made;
        for (const walk_graph::body& s : n.bodies) {
            states one = run_body(s, {}, known);
            if (made.empty()) made = std::move(one);
            else
                for (std::size_t k = 0; k < made.size() && k < one.size(); ++k) made[k] = merged(made[k], one[k]);
        }
        return named(n, std::move(made));
    }

    /// Lost values of merging name the n.
    static states named(const node& n, states made) {
        for (walked& v : made)
            if (v.lost() && !v.why.starts_with("node '"))
                v.why = "node '" + std::string(n.view->name()) + "' (" + std::string(n.view->op_type()) + ") " + v.why;
        return made;
    }

    /// Repeats a body until its states no longer change. `own` makes the body's inputs from the states; the body's outputs begin with
    /// `skip` others.
    template <class Own>
    states repeat(const node& n, states& carried, std::size_t skip, const states& known, const Own& own) {
        states made;
        for (int pass = 0; pass < 8; ++pass) {
            made = run_body(n.bodies.front(), own(carried), known);
            if (made.size() < skip + carried.size()) throw walk_end{state_kind::undecided, "has a body with too few outputs"};
            bool settled = true;
            for (std::size_t k = 0; k < carried.size(); ++k) {
                walked next = merged(carried[k], made[skip + k]);
                settled = settled && same_state(next, carried[k]);
                carried[k] = std::move(next);
            }
            if (settled) return made;
        }
        throw walk_end{state_kind::undecided, "changes the shape of its values each time"};
    }

    states follow_loop(const node& n, const std::vector<const walked*>& in, const states& known) {
        for (std::size_t i = 0; i < 2 && i < in.size(); ++i)
            if (in[i] != nullptr && in[i]->is != state_kind::shared)
                throw walk_end{state_kind::mixed, "repeats as often as the samples say"};
        states carried;
        for (std::size_t i = 2; i < in.size(); ++i) {
            if (in[i] == nullptr) throw walk_end{state_kind::undecided, "lacks an input"};
            carried.push_back(*in[i]);
        }
        walked scalar;
        scalar.ranked = true;
        states made = repeat(n, carried, 1, known, [&](const states& now) {
            states own{scalar, scalar};
            own.insert(own.end(), now.begin(), now.end());
            return own;
        });
        if (made[0].is != state_kind::shared) throw walk_end{state_kind::mixed, "repeats as often as the samples say"};
        states result = carried;
        for (std::size_t k = 1 + carried.size(); k < made.size(); ++k) result.push_back(stacked(made[k], 0, -1));
        return named(n, std::move(result));
    }

    static walked stacked(walked v, std::size_t axis, std::int64_t length) {
        v.content.clear();
        if (v.lost() || !v.ranked) return v;
        if (v.is == state_kind::counted || v.numbers != walked::numbering::none || axis > v.shape.size()) {
            v.is = state_kind::undecided;
            v.why = "stacks values that are not known";
            return v;
        }
        v.shape.insert(v.shape.begin() + static_cast<std::ptrdiff_t>(axis), length);
        if (v.is_rows() && static_cast<std::size_t>(v.axis) >= axis) ++v.axis;
        return v;
    }

    states follow_scan(const node& n, const std::vector<const walked*>& in, const states& known) {
        const std::int64_t scans = n.view->get_int("num_scan_inputs", 0);
        if (scans < 1 || static_cast<std::size_t>(scans) > in.size()) throw walk_end{state_kind::undecided, "has a wrong number of inputs"};
        const std::size_t states_in = in.size() - static_cast<std::size_t>(scans);
        const auto axes = n.view->get_ints("scan_input_axes"), places = n.view->get_ints("scan_output_axes");
        states carried, parts;
        std::int64_t length = -1;
        for (std::size_t i = 0; i < in.size(); ++i) {
            if (in[i] == nullptr) throw walk_end{state_kind::undecided, "lacks an input"};
            if (i < states_in) {
                carried.push_back(*in[i]);
                continue;
            }
            walked v = *in[i];
            const auto rank = static_cast<std::int64_t>(v.shape.size());
            std::int64_t axis = i - states_in < axes.size() ? axes[i - states_in] : 0;
            axis += axis < 0 ? rank : 0;
            if (!v.ranked || axis < 0 || axis >= rank || v.is == state_kind::counted || v.numbers != walked::numbering::none)
                throw walk_end{state_kind::undecided, "scans a value that is not known"};
            if (v.is_rows() && v.axis == axis) throw walk_end{state_kind::mixed, "steps along the samples"};
            if (v.is_rows() && v.axis > axis) --v.axis;
            length = std::max(length, v.shape[static_cast<std::size_t>(axis)]);
            v.shape.erase(v.shape.begin() + static_cast<std::ptrdiff_t>(axis));
            v.content.clear();
            parts.push_back(std::move(v));
        }
        states made = repeat(n, carried, 0, known, [&](const states& now) {
            states own = now;
            own.insert(own.end(), parts.begin(), parts.end());
            return own;
        });
        states result = carried;
        for (std::size_t k = carried.size(); k < made.size(); ++k) {
            std::int64_t axis = k - carried.size() < places.size() ? places[k - carried.size()] : 0;
            if (axis < 0) axis += static_cast<std::int64_t>(made[k].shape.size()) + 1;
            result.push_back(stacked(made[k], static_cast<std::size_t>(std::max<std::int64_t>(axis, 0)), length));
        }
        return named(n, std::move(result));
    }

    static constexpr std::size_t most_steps = 1 << 20;  ///< bodies are walked more than once, and those inside them more often
    const walk_counts& counts_;
    const std::function<std::int64_t()>& open_;
    std::size_t steps_ = 0;
};

}  // namespace

dims shape_for(const walked& v, std::int64_t count) {
    dims shape = v.shape;
    if (v.is_rows() && shape[static_cast<std::size_t>(v.axis)] > 0) shape[static_cast<std::size_t>(v.axis)] *= count;
    return shape;
}

std::optional<dims> walk_call::integers(std::size_t i, std::size_t at) const {
    if (!has(i) || in(i).content.empty()) return std::nullopt;
    const tensor& t = in(i).content[at];
    dims values;
    if (t.type() == data_type::int64) values.assign(t.as<std::int64_t>().begin(), t.as<std::int64_t>().end());
    else if (t.type() == data_type::int32) values.assign(t.as<std::int32_t>().begin(), t.as<std::int32_t>().end());
    else return std::nullopt;
    return values;
}

std::optional<dims> walk_call::integers(std::size_t i) const {
    if (!has(i) || in(i).is != walked::kind::shared) return std::nullopt;
    return integers(i, 0);
}

walked walked_constant(dims shape) {
    walked v;
    v.ranked = true;
    v.shape = std::move(shape);
    return v;
}
walked walked_constant(const tensor& value) {
    walked v = walked_constant(value.shape());
    if (value.size_bytes() <= most_content && value.type() != data_type::string) v.content.assign(std::tuple_size_v<walk_counts>, value);
    return v;
}

std::vector<walked> walk(const walk_graph& graph, std::vector<walked> inputs, const walk_counts& counts,
                         const std::function<std::int64_t()>& open) {
    return walker(counts, open).values(graph, std::move(inputs));
}

}  // namespace qk::graph::ops
