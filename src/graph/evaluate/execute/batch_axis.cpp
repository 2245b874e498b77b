// SPDX-License-Identifier: Apache-2.0
// Walks a network with the samples along an axis: constants and shapes are computed, everything else follows a rule of its operator.
#include "graph/evaluate/execute/batch_axis.hpp"

#include <algorithm>
#include <cstring>

#include "graph/evaluate/execute/batch_call.hpp"
#include "graph/evaluate/run_node.hpp"

namespace qk::graph::execute {
namespace {

using state_kind = batch_value::kind;

constexpr std::size_t most_content = std::size_t{1} << 16;  ///< bytes of a value that is computed: shapes, axes, positions

bool same_content(const tensor& a, const tensor& b) {
    return a.type() == b.type() && a.shape() == b.shape() &&
           (a.size_bytes() == 0 || std::memcmp(a.bytes(), b.bytes(), a.size_bytes()) == 0);
}

/// Returns the value of a constant.
batch_value constant_state(const net_value& v) {
    batch_value s;
    s.ranked = true;
    s.shape = v.late ? v.late->shape() : v.constant.shape();
    if (v.late) return s;  // only large constants are read late
    if (v.constant.size_bytes() <= most_content && v.constant.type() != data_type::string)
        s.content.assign(std::tuple_size_v<batch_counts>, v.constant);
    return s;
}

/// Returns what a value is whose content was computed for each number of samples; nullopt if its shape depends on that.
std::optional<batch_value> computed_state(std::vector<tensor> content) {
    batch_value s;
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
batch_value merged(const batch_value& a, const batch_value& b) {
    if (a.lost()) return a;
    if (b.lost()) return b;
    const bool rows_alike =
        !a.is_rows() || !b.is_rows() ||
        (a.shape.size() == b.shape.size() && a.shape[static_cast<std::size_t>(a.axis)] == b.shape[static_cast<std::size_t>(b.axis)]);
    if (a.is != b.is || a.axis != b.axis || a.outer != b.outer || a.is == state_kind::counted || a.numbers != b.numbers || !rows_alike) {
        batch_value lost;
        lost.is = state_kind::undecided;
        lost.why = "has the samples now along one axis, now along another";
        return lost;
    }
    batch_value m = a;
    m.ranked = a.ranked && b.ranked && a.shape.size() == b.shape.size();
    for (std::size_t k = 0; m.ranked && k < m.shape.size(); ++k)
        if (m.shape[k] != b.shape[k]) m.shape[k] = -1;
    if (!m.ranked) m.shape.clear();
    if (a.content.empty() || b.content.empty() || !same_content(a.content.front(), b.content.front())) m.content.clear();
    return m;
}

bool same_state(const batch_value& a, const batch_value& b) {
    return a.is == b.is && a.axis == b.axis && a.outer == b.outer && a.ranked == b.ranked && a.shape == b.shape &&
           a.content.empty() == b.content.empty() && a.numbers == b.numbers;
}

const batch_rule* find_batch_rule(std::string_view domain, std::string_view op) {
    const std::string word = " " + std::string(op) + " ";
    for (const auto rules : {batch_rules_of_shapes(), batch_rules_of_operators(), batch_rules_of_layers()})
        for (const batch_rule& r : rules)
            if ((r.domain == domain || r.domain == "*") && r.operators.find(word) != r.operators.npos) return &r;
    return nullptr;
}

class batch_walk {
  public:
    explicit batch_walk(const batch_counts& counts) : counts_(counts) {}

    std::vector<batch_value> outputs(const network& net, std::vector<batch_value> inputs) {
        std::vector<batch_value> values(net.values.size());
        for (std::size_t i = 0; i < net.values.size(); ++i)
            if (net.values[i].is_constant()) values[i] = constant_state(net.values[i]);
        for (std::size_t i = 0; i < net.inputs.size() && i < inputs.size(); ++i)
            values[static_cast<std::size_t>(net.inputs[i])] = std::move(inputs[i]);
        for (const net_node& node : net.nodes) {
            std::vector<batch_value> made = follow(node, values);
            for (std::size_t k = 0; k < node.outputs.size() && k < made.size(); ++k)
                if (node.outputs[k] >= 0) values[static_cast<std::size_t>(node.outputs[k])] = std::move(made[k]);
        }
        std::vector<batch_value> result;
        for (const net_input& o : net.outputs) result.push_back(values[static_cast<std::size_t>(o.value)]);
        return result;
    }

  private:
    using states = std::vector<batch_value>;

    static states all(const net_node& node, state_kind is, const std::string& what) {
        batch_value v;
        v.is = is;
        v.why = "node '" + std::string(node.view.name()) + "' (" + std::string(node.view.op_type()) + ") " + what;
        return states(node.outputs.size(), v);
    }

    states follow(const net_node& node, const states& values) {
        if (++steps_ > most_steps) return all(node, state_kind::undecided, "is reached only after a million others");
        std::vector<const batch_value*> in;
        for (const net_input& i : node.inputs) in.push_back(i.value < 0 ? nullptr : &values[static_cast<std::size_t>(i.value)]);
        std::vector<const batch_value*> seen = in;
        for (const subnetwork& s : node.bodies)
            for (const int v : s.captured) seen.push_back(&values[static_cast<std::size_t>(v)]);
        for (const state_kind is : {state_kind::mixed, state_kind::undecided})
            for (const batch_value* v : seen)
                if (v != nullptr && v->is == is) return states(node.outputs.size(), *v);
        if (is_random(node)) return all(node, state_kind::mixed, "draws numbers in the order of the samples");
        if (states made; compute(node, in, made)) return made;
        const bool depends = std::ranges::any_of(seen, [](const batch_value* v) { return v != nullptr && v->is != state_kind::shared; });
        try {
            if (!node.bodies.empty()) return follow_bodies(node, in, values);
            return by_rule(node, std::move(in));
        } catch (const batch_end& end) {
            if (depends) return all(node, end.is, end.what);
        } catch (const error& e) {
            if (depends) return all(node, state_kind::undecided, std::string("has attributes that are wrong: ") + e.what());
        }
        return states(node.outputs.size());  // the same for all samples, of a shape that is not known
    }

    /// Runs a node whose inputs are known, for each number of samples.
    bool compute(const net_node& node, const std::vector<const batch_value*>& in, states& made) const {
        if (!node.bodies.empty() || node.op == nullptr || node.op->run == nullptr || node.outputs.empty()) return false;
        for (const batch_value* v : in)
            if (v != nullptr && v->content.empty()) return false;
        std::vector<std::vector<tensor>> content(node.outputs.size());
        const op_context::subgraph_runner none = [](const onnx::GraphProto&, std::span<const tensor>) -> std::vector<tensor> {
            throw error("subgraph");
        };
        try {
            graph::detail::bounded_heap heap(node.view.op_type() == "Constant" ? std::size_t{1} << 34 : most_content);
            const bool once = std::ranges::none_of(in, [](const batch_value* v) { return v != nullptr && v->is == state_kind::counted; });
            for (std::size_t at = 0; at < (once ? 1 : counts_.size()); ++at) {
                std::vector<tensor> inputs, outputs(node.outputs.size());
                for (const batch_value* v : in) inputs.push_back(v == nullptr ? tensor() : v->content[at]);
                op_context call(node.view, inputs, outputs, heap, none);
                node.op->run(call);
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

    states by_rule(const net_node& node, std::vector<const batch_value*> in) const {
        const batch_rule* rule = find_batch_rule(domain_of(node), node.view.op_type());
        if (rule == nullptr) throw batch_end{state_kind::undecided, "is an operator whose axes are not known here"};
        bool rows = false;
        for (std::size_t i = 0; i < in.size(); ++i) {
            if (in[i] == nullptr) continue;
            rows = rows || in[i]->is_rows();
            if (in[i]->is == state_kind::counted && (i >= 32 || (rule->sizes >> i & 1u) == 0))
                throw batch_end{state_kind::mixed, "computes with the number of samples"};
            if (in[i]->numbers != batch_value::numbering::none && (i >= 32 || (rule->numbers >> i & 1u) == 0))
                throw batch_end{state_kind::mixed, "computes with the number of each sample"};
        }
        batch_call call(node, std::move(in), counts_);
        rule->follow(call);
        return std::move(call.out);
    }

    static std::string_view domain_of(const net_node& node) { return node.op != nullptr ? node.op->domain : std::string_view("?"); }

    states run_body(const subnetwork& s, states own, const states& values) {
        for (const int v : s.captured) own.push_back(values[static_cast<std::size_t>(v)]);
        return outputs(*s.body, std::move(own));
    }

    states follow_bodies(const net_node& node, const std::vector<const batch_value*>& in, const states& values) {
        const std::string_view op = node.view.op_type();
        if (!domain_of(node).empty()) throw batch_end{state_kind::undecided, "is an operator whose axes are not known here"};
        if (op == "If") return follow_if(node, in, values);
        if (op == "Loop") return follow_loop(node, in, values);
        if (op == "Scan" && node.view.version() >= 9) return follow_scan(node, in, values);
        throw batch_end{state_kind::undecided, "is an operator whose axes are not known here"};
    }

    states follow_if(const net_node& node, const std::vector<const batch_value*>& in, const states& values) {
        if (in.empty() || in[0] == nullptr || in[0]->is != state_kind::shared)
            throw batch_end{state_kind::mixed, "takes a branch that depends on the samples"};
        const onnx::GraphProto* then = &node.view.get_graph("then_branch");
        const subnetwork* chosen = nullptr;
        if (!in[0]->content.empty() && in[0]->content[0].type() == data_type::boolean && in[0]->content[0].size() == 1) {
            const bool yes = in[0]->content[0].bytes()[0] != std::byte{0};
            for (const subnetwork& s : node.bodies)
                if ((s.graph == then) == yes) chosen = &s;
        }
        if (chosen != nullptr) return run_body(*chosen, {}, values);
        states made;
        for (const subnetwork& s : node.bodies) {
            states one = run_body(s, {}, values);
            if (made.empty()) made = std::move(one);
            else
                for (std::size_t k = 0; k < made.size() && k < one.size(); ++k) made[k] = merged(made[k], one[k]);
        }
        return named(node, std::move(made));
    }

    /// Lost values of merging name the node.
    static states named(const net_node& node, states made) {
        for (batch_value& v : made)
            if (v.lost() && !v.why.starts_with("node '"))
                v.why = "node '" + std::string(node.view.name()) + "' (" + std::string(node.view.op_type()) + ") " + v.why;
        return made;
    }

    /// Repeats a body until its states no longer change. `own` makes the body's inputs from the states; the body's outputs begin with
    /// `skip` others.
    template <class Own>
    states repeat(const net_node& node, states& carried, std::size_t skip, const states& values, const Own& own) {
        states made;
        for (int pass = 0; pass < 8; ++pass) {
            made = run_body(node.bodies.front(), own(carried), values);
            if (made.size() < skip + carried.size()) throw batch_end{state_kind::undecided, "has a body with too few outputs"};
            bool settled = true;
            for (std::size_t k = 0; k < carried.size(); ++k) {
                batch_value next = merged(carried[k], made[skip + k]);
                settled = settled && same_state(next, carried[k]);
                carried[k] = std::move(next);
            }
            if (settled) return made;
        }
        throw batch_end{state_kind::undecided, "changes the shape of its values each time"};
    }

    states follow_loop(const net_node& node, const std::vector<const batch_value*>& in, const states& values) {
        for (std::size_t i = 0; i < 2 && i < in.size(); ++i)
            if (in[i] != nullptr && in[i]->is != state_kind::shared)
                throw batch_end{state_kind::mixed, "repeats as often as the samples say"};
        states carried;
        for (std::size_t i = 2; i < in.size(); ++i) {
            if (in[i] == nullptr) throw batch_end{state_kind::undecided, "lacks an input"};
            carried.push_back(*in[i]);
        }
        batch_value scalar;
        scalar.ranked = true;
        states made = repeat(node, carried, 1, values, [&](const states& now) {
            states own{scalar, scalar};
            own.insert(own.end(), now.begin(), now.end());
            return own;
        });
        if (made[0].is != state_kind::shared) throw batch_end{state_kind::mixed, "repeats as often as the samples say"};
        states result = carried;
        for (std::size_t k = 1 + carried.size(); k < made.size(); ++k) result.push_back(stacked(made[k], 0, -1));
        return named(node, std::move(result));
    }

    static batch_value stacked(batch_value v, std::size_t axis, std::int64_t length) {
        v.content.clear();
        if (v.lost() || !v.ranked) return v;
        if (v.is == state_kind::counted || v.numbers != batch_value::numbering::none || axis > v.shape.size()) {
            v.is = state_kind::undecided;
            v.why = "stacks values that are not known";
            return v;
        }
        v.shape.insert(v.shape.begin() + static_cast<std::ptrdiff_t>(axis), length);
        if (v.is_rows() && static_cast<std::size_t>(v.axis) >= axis) ++v.axis;
        return v;
    }

    states follow_scan(const net_node& node, const std::vector<const batch_value*>& in, const states& values) {
        const std::int64_t scans = node.view.get_int("num_scan_inputs", 0);
        if (scans < 1 || static_cast<std::size_t>(scans) > in.size())
            throw batch_end{state_kind::undecided, "has a wrong number of inputs"};
        const std::size_t states_in = in.size() - static_cast<std::size_t>(scans);
        const auto axes = node.view.get_ints("scan_input_axes"), places = node.view.get_ints("scan_output_axes");
        states carried, parts;
        std::int64_t length = -1;
        for (std::size_t i = 0; i < in.size(); ++i) {
            if (in[i] == nullptr) throw batch_end{state_kind::undecided, "lacks an input"};
            if (i < states_in) {
                carried.push_back(*in[i]);
                continue;
            }
            batch_value v = *in[i];
            const auto rank = static_cast<std::int64_t>(v.shape.size());
            std::int64_t axis = i - states_in < axes.size() ? axes[i - states_in] : 0;
            axis += axis < 0 ? rank : 0;
            if (!v.ranked || axis < 0 || axis >= rank || v.is == state_kind::counted || v.numbers != batch_value::numbering::none)
                throw batch_end{state_kind::undecided, "scans a value that is not known"};
            if (v.is_rows() && v.axis == axis) throw batch_end{state_kind::mixed, "steps along the samples"};
            if (v.is_rows() && v.axis > axis) --v.axis;
            length = std::max(length, v.shape[static_cast<std::size_t>(axis)]);
            v.shape.erase(v.shape.begin() + static_cast<std::ptrdiff_t>(axis));
            v.content.clear();
            parts.push_back(std::move(v));
        }
        states made = repeat(node, carried, 0, values, [&](const states& now) {
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
        return named(node, std::move(result));
    }

    static constexpr std::size_t most_steps = 1 << 20;  ///< bodies are walked more than once, and those inside them more often
    const batch_counts& counts_;
    std::size_t steps_ = 0;
};

}  // namespace

dims shape_for(const batch_value& v, std::int64_t count) {
    dims shape = v.shape;
    if (v.is_rows() && shape[static_cast<std::size_t>(v.axis)] > 0) shape[static_cast<std::size_t>(v.axis)] *= count;
    return shape;
}

std::optional<dims> batch_call::integers(std::size_t i, std::size_t at) const {
    if (!has(i) || in(i).content.empty()) return std::nullopt;
    const tensor& t = in(i).content[at];
    dims values;
    if (t.type() == data_type::int64) values.assign(t.as<std::int64_t>().begin(), t.as<std::int64_t>().end());
    else if (t.type() == data_type::int32) values.assign(t.as<std::int32_t>().begin(), t.as<std::int32_t>().end());
    else return std::nullopt;
    return values;
}

std::optional<dims> batch_call::integers(std::size_t i) const {
    if (!has(i) || in(i).is != batch_value::kind::shared) return std::nullopt;
    return integers(i, 0);
}

batch_verdict follow_batch_axis(const network& net, const std::vector<batch_input>& inputs, std::int64_t count) {
    const batch_counts counts{1, std::max<std::int64_t>(count, 2), 1009, 2003};
    std::vector<batch_value> given;
    for (const batch_input& i : inputs) {
        batch_value v;
        v.is = i.axis < 0 ? state_kind::shared : state_kind::rows;
        v.axis = i.axis, v.ranked = i.ranked, v.shape = i.shape;
        if (i.axis >= 0 && (!i.ranked || static_cast<std::size_t>(i.axis) >= i.shape.size()))
            v.is = state_kind::undecided, v.why = "an input";
        given.push_back(std::move(v));
    }
    batch_verdict verdict;
    verdict.is = batch_verdict::kind::rows;
    const auto lose = [&](batch_verdict::kind is, std::string why) {
        if (verdict.is == batch_verdict::kind::mixed || (verdict.is == is)) return;
        verdict.is = is, verdict.why = std::move(why);
    };
    bool any = false;
    std::size_t number = 0;
    for (const batch_value& v : batch_walk(counts).outputs(net, std::move(given))) {
        const std::string name = net.outputs[number].edges.empty() ? std::string() : net.outputs[number].edges.back().tensor;
        ++number;
        const bool known = v.is == state_kind::shared || (v.is_rows() && v.outer == 1);
        verdict.output_axes.push_back(!known ? -2 : v.axis);
        any = any || v.is_rows();
        if (v.is == state_kind::mixed) lose(batch_verdict::kind::mixed, v.why);
        else if (v.is == state_kind::undecided) lose(batch_verdict::kind::undecided, v.why);
        else if (v.numbers != batch_value::numbering::none) lose(batch_verdict::kind::mixed, "output '" + name + "' numbers the samples");
        else if (v.is == state_kind::counted) lose(batch_verdict::kind::mixed, "output '" + name + "' is the number of samples");
        else if (!known) lose(batch_verdict::kind::mixed, "output '" + name + "' has the samples several times along an axis");
    }
    if (verdict.rows() && !any) lose(batch_verdict::kind::mixed, "no output depends on the samples");
    return verdict;
}

}  // namespace qk::graph::execute
