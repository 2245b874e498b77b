// SPDX-License-Identifier: Apache-2.0
// Definitions of fold.hpp.
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_map>

#include "graph/model/check.hpp"
#include "graph/model/edit.hpp"
#include "graph/model/element_source.hpp"
#include "graph/ops/op.hpp"
#include "graph/ops/run_node.hpp"
#include "qk/graph/evaluate/fold.hpp"
#include "qk/graph/model/model.hpp"
#include "qk/graph/plan/layers.hpp"

namespace qk::graph {
namespace detail {

/// Records a computed node of constants: its name, and the names of what it read, lead to what it made.
inline void remember_constant(name_history& history, const onnx::NodeProto& n) {
    const std::string why = n.op_type() + " '" + n.name() + "' was computed when the model was read";
    for (const std::string& o : n.output()) {
        if (o.empty()) continue;
        history.add_node(n.name(), n.op_type(), {.name = o, .is_node = false, .how = bond::place, .why = why});
        for (int k = 0; k < n.input_size(); ++k)
            if (!n.input(k).empty())
                history.add_tensor(n.input(k), {.name = o, .is_node = false, .how = k == 0 ? bond::place : bond::part, .why = why});
    }
}

/// Returns whether a node computes the same on every run if its inputs do, has no subgraph and makes no output of the graph.
inline bool may_fold(const model& m, const onnx::NodeProto& n) {
    if (n.output_size() == 0 || facts_of(n).has(ops::random) || operator_of(n) == "Dropout") return false;
    for (const std::string& o : n.output())
        for (const auto& u : m.uses(o))
            if (u.node == -1) return false;
    return std::none_of(n.attribute().begin(), n.attribute().end(), [](const auto& a) { return a.has_g() || a.graphs_size() > 0; });
}

/// Marks the nodes on the way from initializers to what a layer multiplies with, or to the table that a Gather reads.
inline std::vector<bool> makers_of_weights(const model& m) {
    const onnx::GraphProto& g = m.graph();
    const auto count = static_cast<std::size_t>(g.node_size());
    std::vector<bool> constant(count, false), wanted(count, false);
    for (int i = 0; i < g.node_size(); ++i)
        constant[static_cast<std::size_t>(i)] =
            may_fold(m, g.node(i)) && std::ranges::all_of(g.node(i).input(), [&](const std::string& in) {
                const int p = m.producer(in);
                return in.empty() || m.is_constant(in) || (p >= 0 && constant[static_cast<std::size_t>(p)]);
            });
    for (int i = g.node_size(); i-- > 0;) {
        const auto at = static_cast<std::size_t>(i);
        if (!constant[at]) continue;
        for (const std::string& o : g.node(i).output())
            for (const auto& u : m.uses(o)) {
                const onnx::NodeProto& reader = g.node(u.node);
                const bool multiplies = kind_of(reader) == layer_kind::compute || reader.domain() == "com.microsoft";
                const bool table = operator_of(reader) == "Gather" && u.input == 0;
                wanted[at] = wanted[at] ||
                             (constant[static_cast<std::size_t>(u.node)] ? wanted[static_cast<std::size_t>(u.node)] : multiplies || table);
            }
    }
    return wanted;
}

/// Frees the data of initializers that only folded nodes read, before the results take memory.
inline void release_sources(model& m, const std::vector<bool>& gone) {
    for (auto& t : *m.graph().mutable_initializer()) {
        const auto& uses = m.uses(t.name());
        if (uses.empty() ||
            !std::ranges::all_of(uses, [&](const auto& u) { return u.node >= 0 && gone[static_cast<std::size_t>(u.node)]; }))
            continue;
        const std::string name = t.name();
        const int type = t.data_type();
        t.Clear();
        t.set_name(name), t.set_data_type(type), t.add_dims(0);
    }
}

/// A result of folding: a value, or how to compute it again.
struct folded {
    tensor value;
    source_pointer late;
    tensor read() const { return late ? late->read() : value; }
};

/// The inputs of a node that is to be computed again, each a source or a small value.
class late_inputs {
  public:
    /// Returns false for a large value that is in memory anyway.
    bool add(const folded& f) {
        all_.push_back(f);
        return f.late != nullptr || f.value.size_bytes() < smallest_outside;
    }
    std::vector<tensor> read() const {
        std::vector<tensor> values;
        for (const folded& f : all_) values.push_back(f.read());
        return values;
    }

  private:
    std::vector<folded> all_;
};

/// Replaces the large results of a node whose inputs need no memory by sources, which compute them again when they are read.
inline void keep_recipes(const model& m, const onnx::NodeProto& n, const late_inputs& inputs, std::size_t limit,
                         std::vector<folded>& results) {
    for (std::size_t k = 0; k < results.size(); ++k) {
        tensor& value = results[k].value;
        if (value.size_bytes() < smallest_outside) continue;
        const auto make = [n, opset = m.opset(n.domain()), inputs, k, limit] { return run_alone(n, opset, inputs.read(), limit).at(k); };
        results[k] = {{}, std::make_shared<element_source>(value.type(), value.shape(), make)};
    }
}

/// Removes nodes that were folded away, and what only they read.
inline void drop_folded(model& m, const std::vector<bool>& gone) {
    remove_nodes(m.graph(), gone);
    allow_free_initializers(m.proto());
    m.reindex();
    drop_unused_initializers(m);
}

/// Turns the results that a remaining node reads into initializers, in the order of the nodes, so that the file is the same on every run.
inline void keep_results(model& m, const std::vector<bool>& gone, std::unordered_map<std::string, folded>& known) {
    onnx::GraphProto& g = m.graph();
    for (int i = 0; i < g.node_size(); ++i) {
        if (!gone[static_cast<std::size_t>(i)]) continue;
        remember_constant(m.history(), g.node(i));
        for (const std::string& o : g.node(i).output()) {
            const auto found = known.find(o);
            if (found == known.end()) continue;
            const bool read = std::ranges::any_of(m.uses(o), [&](const auto& u) { return !gone[static_cast<std::size_t>(u.node)]; });
            if (read && found->second.late) {
                onnx::TensorProto& t = *g.add_initializer();
                t.set_name(o);
                refer_to(found->second.late, t);
            } else if (read) {
                to_proto(found->second.value, o, *g.add_initializer());
            }
            known.erase(found);
        }
    }
}

}  // namespace detail

void fold_constants(model& m, std::size_t limit) {
    onnx::GraphProto& g = m.graph();
    std::unordered_map<std::string, detail::folded> known;  // results of this pass
    held_sources alive;                                     // the results' sources, until the model refers to them
    std::vector<bool> gone(static_cast<std::size_t>(g.node_size()), false);
    const std::vector<bool> weight = detail::makers_of_weights(m);
    std::size_t total = 0;    // bytes of results: the model may grow by a few times the limit, not by the limit for each node
    std::size_t weights = 0;  // bytes left for weights: they may not grow beyond what a file of codes could hold
    std::unordered_map<std::string_view, source_pointer> outside;
    for (const auto& t : g.initializer()) {
        const source_pointer s = outside[t.name()] = source_of(t);
        weights += 16 * (s ? s->raw_bytes() : t.raw_data().size());
    }
    for (int i = 0; i < g.node_size(); ++i) {
        const onnx::NodeProto& n = g.node(i);
        if (!detail::may_fold(m, n) ||
            !std::ranges::all_of(n.input(), [&](const std::string& in) { return in.empty() || m.is_constant(in) || known.count(in) > 0; }))
            continue;
        std::vector<detail::folded> results;
        if (operator_of(n) == "Constant" && n.domain().empty()) {
            try {
                if (auto value = detail::constant_value(n)) results.push_back({std::move(*value), nullptr});
            } catch (const error& e) {
                throw error(m.label() + ": node '" + n.name() + "' (Constant): " + e.what());
            }
        } else if (total < 4 * limit || weight[static_cast<std::size_t>(i)]) {
            std::vector<tensor> inputs;
            detail::late_inputs again;
            bool may_go = true;
            for (const std::string& in : n.input()) {
                detail::folded f;
                if (const auto own = outside.find(in); !in.empty() && known.count(in) > 0) f = known.at(in);
                else if (own != outside.end() && own->second) f.late = own->second;
                else if (!in.empty()) f.value = m.constant(in);
                inputs.push_back(f.read());
                may_go = again.add(f) && may_go;
            }
            std::size_t largest = limit;
            if (weight[static_cast<std::size_t>(i)])
                for (const tensor& t : inputs) largest = std::max(largest, std::min(weights, 8 * t.size_bytes()));
            for (tensor& t : detail::try_run(m, n, inputs, largest)) {
                if (t.size_bytes() <= limit) total += t.size_bytes();
                else weights -= std::min(weights, t.size_bytes());
                results.push_back({std::move(t), nullptr});
            }
            if (may_go && results.size() == static_cast<std::size_t>(n.output_size())) detail::keep_recipes(m, n, again, largest, results);
        }
        if (results.size() != static_cast<std::size_t>(n.output_size())) continue;
        for (int k = 0; k < n.output_size(); ++k)
            if (!n.output(k).empty()) {
                known[n.output(k)] = results[static_cast<std::size_t>(k)];
                if (const auto& late = results[static_cast<std::size_t>(k)].late) alive.emplace(late->name(), late);
            }
        gone[static_cast<std::size_t>(i)] = true;
    }
    if (known.empty()) return;
    detail::release_sources(m, gone);
    detail::keep_results(m, gone, known);
    detail::drop_folded(m, gone);
}

namespace detail {

/// y = a * x + b per channel, as doubles: what an inference BatchNormalization computes.
struct channel_line {
    std::vector<double> a, b;
};

inline std::optional<channel_line> batch_normalization_line(const model& m, const onnx::NodeProto& n) {
    if (operator_of(n) != "BatchNormalization" || !n.domain().empty() || n.input_size() < 5) return std::nullopt;
    const node_view view(n, m.opset(""));
    if (view.get_int("training_mode", 0) != 0 || view.get_int("spatial", 1) == 0) return std::nullopt;
    if (view.version() < 7 && view.get_int("is_test", 0) == 0) return std::nullopt;
    for (int k = 1; k < n.output_size(); ++k)
        if (!n.output(k).empty()) return std::nullopt;
    std::vector<tensor> p;
    for (int k = 1; k < 5; ++k) {
        if (!m.is_constant(n.input(k))) return std::nullopt;
        p.push_back(m.constant(n.input(k)));
        if (p.back().type() != data_type::float32 || p.back().size() != p.front().size()) return std::nullopt;
    }
    const double epsilon = static_cast<double>(view.get_float("epsilon", 1e-5f));
    channel_line line;
    for (std::size_t c = 0; c < p[0].size(); ++c) {
        const auto at = [&](std::size_t k) { return static_cast<double>(p[k].as<float>()[c]); };
        line.a.push_back(at(0) / std::sqrt(at(3) + epsilon));
        line.b.push_back(at(1) - at(2) * line.a.back());
    }
    return line;
}

/// Returns the weights of `n` with output channel c times a[c]; nullopt if their shape does not have these channels.
inline std::optional<tensor> scaled_weights(const onnx::NodeProto& n, const tensor& w, const std::vector<double>& a) {
    const product_axes axes = *product_axes_of(n);
    if (w.size() == 0 || (axes.windows ? w.rank() < 3 : w.rank() != 2)) return std::nullopt;
    const auto stride = [&](std::size_t axis) {
        std::size_t s = 1;
        for (std::size_t k = axis + 1; k < w.rank(); ++k) s *= static_cast<std::size_t>(w.dim(k));
        return s;
    };
    const std::size_t in = resolve_axis(axes.in, w.rank()), out = resolve_axis(axes.out, w.rank());
    const std::size_t ins = static_cast<std::size_t>(w.dim(in)), outs = static_cast<std::size_t>(w.dim(out));
    const std::size_t groups = axes.transposed ? static_cast<std::size_t>(axes.groups) : 1;  // whose outputs share an axis otherwise
    if (ins % groups != 0 || outs * groups != a.size()) return std::nullopt;
    const std::size_t in_stride = stride(in), out_stride = stride(out);
    tensor r(data_type::float32, w.shape());
    for (std::size_t i = 0; i < w.size(); ++i) {
        const std::size_t group = i / in_stride % ins / (ins / groups);
        r.as<float>()[i] = static_cast<float>(static_cast<double>(w.as<float>()[i]) * a[group * outs + i / out_stride % outs]);
    }
    return r;
}

/// Records the names of a BatchNormalization that went into the layer before it, and of that layer's tensors. Both nodes are passed as they
/// were before.
inline void remember_batch_normalization(name_history& history, const onnx::NodeProto& layer, const onnx::NodeProto& norm,
                                         const std::vector<double>& factor) {
    const std::string why = "BatchNormalization '" + norm.name() + "' was folded into " + layer.op_type() + " '" + layer.name() + "'";
    const std::string weight = layer.name() + "_folded_weight", bias = layer.name() + "_folded_bias";
    history.add_node(norm.name(), norm.op_type(), {.name = layer.name(), .is_node = true, .how = bond::part, .why = why});
    history.add_tensor(layer.output(0), {.name = norm.output(0), .is_node = false, .how = bond::place, .why = why});
    history.add_tensor(layer.input(1), {.name = weight, .is_node = false, .how = bond::place, .why = why, .factor = factor});
    if (layer.input_size() > 2 && !layer.input(2).empty())
        history.add_tensor(layer.input(2), {.name = bias,
                                            .is_node = false,
                                            .how = bond::place,
                                            .why = why,
                                            .factor = product_axes_of(layer)->windows ? factor : std::vector<double>{}});  // Gemm's beta
    for (int k = 1; k < 5; ++k)  // scale and variance multiply, bias and mean are added
        history.add_tensor(norm.input(k), {.name = k == 1 || k == 4 ? weight : bias, .is_node = false, .how = bond::part, .why = why});
}

}  // namespace detail

void fold_batch_normalization(model& m) {
    onnx::GraphProto& g = m.graph();
    std::vector<bool> gone(static_cast<std::size_t>(g.node_size()), false);
    bool changed = false;
    for (int i = 0; i < g.node_size(); ++i) {
        const auto line = detail::batch_normalization_line(m, g.node(i));
        if (!line) continue;
        const std::string x = g.node(i).input(0), y = g.node(i).output(0);
        const int p = m.producer(x);
        if (p < 0 || m.uses(x).size() != 1 || gone[static_cast<std::size_t>(p)]) continue;
        onnx::NodeProto& n = *g.mutable_node(p);
        if (!facts_of(n).has(ops::biased) || !product_axes_of(n) || n.input_size() < 2) continue;
        if (!m.is_constant(n.input(1))) continue;
        const tensor w = m.constant(n.input(1));
        if (w.type() != data_type::float32) continue;
        const auto weights = detail::scaled_weights(n, w, line->a);
        if (!weights) continue;

        tensor bias(data_type::float32, {static_cast<std::int64_t>(line->b.size())});
        std::vector<double> old(line->b.size(), 0.0);
        if (n.input_size() > 2 && !n.input(2).empty()) {
            if (!m.is_constant(n.input(2))) continue;
            const tensor b = m.constant(n.input(2));
            if (b.type() != data_type::float32 || (b.size() != old.size() && b.size() != 1) || b.rank() > 2) continue;
            if (b.rank() == 2 && b.dim(0) != 1) continue;  // Gemm's C with a value for each row, not for each channel
            const auto beta = static_cast<double>(node_view(n, m.opset("")).get_float("beta", 1.0f));
            for (std::size_t c = 0; c < old.size(); ++c) old[c] = beta * static_cast<double>(b.as<float>()[b.size() == 1 ? 0 : c]);
        }
        for (std::size_t c = 0; c < old.size(); ++c) bias.as<float>()[c] = static_cast<float>(old[c] * line->a[c] + line->b[c]);

        detail::remember_batch_normalization(m.history(), n, g.node(i), line->a);
        // Uses new names, because other nodes may share the old tensors.
        const std::string stem = n.name() + "_folded";
        to_proto(*weights, stem + "_weight", *g.add_initializer());
        to_proto(bias, stem + "_bias", *g.add_initializer());
        n.set_input(1, stem + "_weight");
        if (n.input_size() < 3) n.add_input();
        n.set_input(2, stem + "_bias");
        for (auto& a : *n.mutable_attribute())
            if (a.name() == "beta") a.set_f(1.0f);
        n.set_output(0, y);
        gone[static_cast<std::size_t>(i)] = true;
        changed = true;
    }
    if (changed) detail::drop_folded(m, gone);
}

}  // namespace qk::graph
