// SPDX-License-Identifier: Apache-2.0
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "graph/ops/op.hpp"
#include "graph/plan/operand_tables.hpp"
#include "graph/quantize/collect_requests.hpp"
#include "qk/graph/base/format_text.hpp"
#include "qk/graph/base/names.hpp"
#include "qk/graph/quantize/resolve.hpp"

namespace qk::graph {

const char* name_of(plan_note::kind k) {
    constexpr const char* names[] = {"unmatched",  "overridden", "contradictory", "boundary", "propagated", "moved",
                                     "unrealised", "adjusted",   "left_out",      "renamed",  "absent",     "unchanged",
                                     "tied",       "embedding",  "destroyed",     "cache",    "scaled",     "rotated",
                                     "together",   "unused",     "requantized",   "recurrent"};
    return names[static_cast<int>(k)];
}
bool is_violation(const plan_note& n) {
    using enum plan_note::kind;
    return n.what == unmatched || n.what == overridden || n.what == contradictory || n.what == unrealised || n.what == left_out ||
           (n.what == boundary && !n.origin.empty());
}

bool is_overridden(const plan_note& n) { return n.what == plan_note::kind::overridden || n.what == plan_note::kind::contradictory; }

namespace detail {

/// Second half of resolve(): turns the wishes for places into precisions of edges.
class resolver {
  public:
    resolver(const layer_view& layers, wishes asked, const resolve_options& options)
        : layers_(layers), model_(layers.source()), options_(options), asked_(std::move(asked)) {
        result_.notes = std::move(asked_.notes);
    }

    /// Returns the requests that need no further note, once run() is done.
    const std::set<int>& settled() const { return asked_.settled; }
    const std::map<int, std::vector<int>>& matched() const { return asked_.matched; }

    resolution run() {
        propagate_forward();
        const int count = model_.graph().node_size();
        for (int n = count - 1; n >= 0; --n) {
            for (const std::string& o : model_.graph().node(n).output())
                if (!o.empty()) finish_tensor(o);
            choose_inputs(n);
        }
        for (const value_info& i : model_.inputs()) finish_tensor(i.name);
        report_unrealised();
        return std::move(result_);
    }

  private:
    using kind = plan_note::kind;
    using part = layer_view::part;
    const onnx::NodeProto& node(int n) const { return model_.graph().node(n); }
    const layer_view::node_info& info(int n) const { return layers_.nodes()[static_cast<std::size_t>(n)]; }
    void note(kind what, std::string subject, std::string text, int place, std::string origin = {}) {
        result_.notes.push_back({what, std::move(subject), std::move(text), std::move(origin), place});
    }

    static bool moves(const precision& p) { return !is_block_format(p.format) && !p.dynamic && p.scale.size() <= 1; }

    /// Applies rule 4 to requests for a tensor: the tensors that its values are moved into take its precision, unless a later request names
    /// them.
    void propagate_forward() {
        for (int n = 0; n < model_.graph().node_size(); ++n) {
            if (info(n).kind != layer_kind::mover || node(n).input_size() == 0) continue;
            placed_request from;
            if (const auto t = asked_.tensors.find(node(n).input(0)); t != asked_.tensors.end()) from = t->second;
            if (asked_.inputs[static_cast<std::size_t>(n)].sequence > from.sequence) from = asked_.inputs[static_cast<std::size_t>(n)];
            if (!from.asked() || !moves(*from.what)) continue;
            for (const std::string& o : node(n).output()) {
                if (o.empty() || !layers_.is_float(o)) continue;
                placed_request& to = asked_.tensors[o];
                if (to.sequence > from.sequence || (to.asked() && *to.what == *from.what)) continue;
                if (to.asked()) {
                    note(kind::overridden, "tensor '" + o + "'",
                         to_string(to.what->format) + " (" + to.why + ") gives way to " + to_string(from.what->format) + " (" + from.why +
                             "), asked later, whose values move here",
                         n, to.who ? to.who->origin : "");
                    asked_.settled.insert(to.sequence);
                }
                to = from;
                to.why = from.why + ", through " + node(n).op_type() + " '" + node(n).name() + "'";
                note(kind::propagated, "tensor '" + o + "'",
                     "takes " + to_string(from.what->format) + " from '" + node(n).input(0) + "' through " + node(n).op_type() + " '" +
                         node(n).name() + "'",
                     n);
            }
        }
    }

    /// Is true when some reader of the tensor, also behind a Relu or Clip, is quantized to an integer.
    bool read_as_integer(const std::string& tensor) const {
        for (const auto& u : model_.uses(tensor)) {
            if (u.node < 0) continue;
            const auto e = result_.edges.find({tensor, node(u.node).name(), u.input});
            if (e != result_.edges.end() && e->second.what && is_integer_format(e->second.what->format)) return true;
            if (info(u.node).kind == layer_kind::activation && u.input == 0 && node(u.node).output_size() > 0 &&
                read_as_integer(node(u.node).output(0)))
                return true;
        }
        return false;
    }

    /// Returns the default precision of a node's inputs, or nullptr if the default does not apply to them.
    const precision* default_of(int n) const {
        if (asked_.default_input == nullptr || options_.how == approach::weight_only || is_identity(asked_.default_input->format))
            return nullptr;
        const layer_kind k = info(n).kind;
        if (options_.where == placement::every) return asked_.default_input;
        if (options_.where == placement::all) {
            const bool fused =
                k == layer_kind::activation && model_.producer(node(n).input(0)) >= 0 && layers_.fused_activation(node(n).input(0)) == n;
            return fused ? nullptr : asked_.default_input;
        }
        if (k == layer_kind::compute) return asked_.default_input;
        if (k != layer_kind::neighbour || !is_integer_format(asked_.default_input->format) || options_.how == approach::dynamic)
            return nullptr;
        for (const std::string& o : node(n).output())
            if (!read_as_integer(o)) return nullptr;
        return asked_.default_input;
    }

    /// Chooses the precision of every input of a node. finish_tensor() later settles tensors that several nodes read.
    void choose_inputs(int n) {
        const std::size_t at = static_cast<std::size_t>(n);
        const auto& parts = info(n).parts;
        placed_request input = asked_.inputs[at];
        if (!input.asked())
            if (const precision* p = default_of(n)) input = {p, -1, nullptr, "default"};
        placed_request weight = asked_.weights[at];
        const std::vector<held_weight> held = asked_.default_weight != nullptr ? held_weights(layers_, n) : std::vector<held_weight>{};
        if (!weight.asked()) note_tables(n, held);
        const bool excluded = input.asked() && is_identity(input.what->format);
        if (!weight.asked() && info(n).kind == layer_kind::compute && asked_.default_weight != nullptr)
            weight = {asked_.default_weight, -1, nullptr, "default"};
        // A data-moving node takes the precision of its output (rule 4), so that integer kernels meet the same scale on both sides.
        if (info(n).kind == layer_kind::mover && !input.asked())
            if (const precision* p = widest_made(n)) input = {p, -1, nullptr, "moves its values on to readers of that format"};
        for (std::size_t i = 0; i < parts.size(); ++i) {
            const std::string& name = node(n).input(static_cast<int>(i));
            if (parts[i] == part::none) continue;
            placed_request w = parts[i] == part::weight ? weight : parts[i] == part::bias ? asked_.biases[at] : input;
            if (!w.asked() && runs_with_its_maker(n, static_cast<int>(i))) w = {};
            if (w.what == nullptr) w = default_beside(n, held, static_cast<int>(i));
            // Chosen experts were already rounded as part of their table.
            else if (parts[i] == part::input && !w.asked() && asked_.default_weight != nullptr && is_chosen_expert(layers_, name)) continue;
            const auto t = asked_.tensors.find(name);
            const bool fused_here = info(n).kind == layer_kind::activation && options_.where != placement::every;
            if (t != asked_.tensors.end() && t->second.asked() &&
                !(fused_here && layers_.fused_activation(name) == n && model_.producer(name) >= 0)) {
                if (w.asked() && !(*w.what == *t->second.what)) {
                    const bool later = t->second.sequence > w.sequence;
                    const placed_request &loser = later ? w : t->second, &winner = later ? t->second : w;
                    note(kind::overridden, "tensor '" + name + "' in layer '" + node(n).name() + "'",
                         to_string(loser.what->format) + " (" + loser.why + ") gives way to " + to_string(winner.what->format) + " (" +
                             winner.why + "), asked later",
                         n, loser.who ? loser.who->origin : "");
                }
                if (w.asked()) asked_.settled.insert(std::min(w.sequence, t->second.sequence));
                if (t->second.sequence > w.sequence) w = t->second;
            }
            const edge e{name, node(n).name(), static_cast<int>(i)};
            if (parts[i] == part::bias && !w.asked()) {
                if (asked_.default_bias != nullptr) w = {asked_.default_bias, -1, nullptr, "default"};
                else if (!excluded) {
                    result_.edges[e] = {nullptr, part::bias, n, -1, true, "follows its layer", {}};
                    continue;
                }
            }
            if (w.what == nullptr || is_identity(w.what->format)) continue;
            result_.edges[e] = {w.what, parts[i], n, w.sequence, false, w.why, w.who ? w.who->origin : ""};
        }
    }

    /// Is true when a layer computes this tensor for this node alone.
    bool made_for(const std::string& tensor, int n) const {
        const int maker = model_.producer(tensor);
        const auto& uses = model_.uses(tensor);
        return maker >= 0 && info(maker).kind == layer_kind::compute && uses.size() == 1 && uses.front().node == n;
    }

    /// Applies rule 7 to an operand of an Add.
    bool runs_with_its_maker(int n, int input) const {
        if (!options_.fused_outputs || options_.where != placement::layers || !facts_of(node(n)).has(ops::adds)) return false;
        const std::string &own = node(n).input(input), &other = node(n).input(1 - input);
        return made_for(own, n) && (!made_for(other, n) || model_.producer(other) < model_.producer(own));
    }

    /// Returns the default for an input of a node that holds weights but is no layer (operand_tables.hpp); an empty placed_request for
    /// none.
    placed_request default_beside(int n, const std::vector<held_weight>& held, int input) const {
        for (const held_weight& h : held) {
            const bool table = h.what == held_weight::kind::embedding;
            if (h.input == input && (!table || options_.how == approach::weight_only))
                return {asked_.default_weight, -1, nullptr, table ? "a table of embeddings, in weight_only" : "default"};
            if (h.what == held_weight::kind::projection && input == 0 && info(n).parts[0] == part::input &&
                options_.how != approach::weight_only && asked_.default_input != nullptr)
                return {asked_.default_input, -1, nullptr, "default"};
        }
        return {};
    }

    void note_tables(int n, const std::vector<held_weight>& held) {
        if (held.empty() || is_identity(asked_.default_weight->format)) return;
        for (const held_weight& h : held)
            if (h.what == held_weight::kind::embedding && options_.how == approach::weight_only)
                note(kind::embedding, "layer '" + node(n).name() + "'",
                     "its table '" + node(n).input(h.input) + "' takes " + to_string(asked_.default_weight->format) +
                         " as weights do in weight_only (\"exclude\" the layer to keep it as it is)",
                     n);
        if (held.front().what == held_weight::kind::recurrent)
            note(kind::recurrent, "layer '" + node(n).name() + "'",
                 "the weights of this " + node(n).op_type() + " take " + to_string(asked_.default_weight->format) +
                     ", and what it reads and its state stay float32 (\"exclude\" the layer to keep it as it is)",
                 n);
    }

    const precision* widest_made(int n) const {
        const precision* best = nullptr;
        for (const std::string& o : node(n).output())
            for (const auto& u : model_.uses(o)) {
                if (u.node < 0) continue;
                const auto e = result_.edges.find({o, node(u.node).name(), u.input});
                if (e == result_.edges.end() || !e->second.what || !is_integer_format(e->second.what->format) || !moves(*e->second.what))
                    continue;
                if (!best || bits_per_value(e->second.what->format) > bits_per_value(best->format)) best = e->second.what;
            }
        return best;
    }

    /// Applies rules 3, 5 and 6 to a tensor all of whose readers are known.
    void finish_tensor(const std::string& tensor) {
        if (!layers_.is_float(tensor)) return;
        std::vector<std::pair<edge, edge_precision*>> readers;
        for (const auto& u : model_.uses(tensor)) {
            const edge e{tensor, u.node < 0 ? std::string() : node(u.node).name(), u.input};
            if (u.node < 0) {
                placed_request w;
                if (const auto o = asked_.outputs.find(u.input); o != asked_.outputs.end()) w = o->second;
                if (const auto t = asked_.tensors.find(tensor); t != asked_.tensors.end() && t->second.sequence > w.sequence) w = t->second;
                if (!w.what && options_.where != placement::layers && options_.how == approach::static_ranges && asked_.default_input)
                    w = {asked_.default_input, -1, nullptr, "default"};
                if (w.what && !is_identity(w.what->format))
                    result_.edges[e] = {w.what, part::input, -1, w.sequence, false, w.why, w.who ? w.who->origin : ""};
                continue;
            }
            if (const auto found = result_.edges.find(e); found != result_.edges.end()) readers.emplace_back(e, &found->second);
        }
        if (readers.empty()) {
            give_weak(tensor);
            return follow_integer_conv(tensor, nullptr);
        }
        const auto widest = std::ranges::max_element(readers, {}, [](const auto& r) { return bits_per_value(r.second->what->format); });
        const edge_precision chosen = *widest->second;
        if (options_.dual) return;
        follow_integer_conv(tensor, chosen.what);
        for (auto& [e, p] : readers) {
            if (*p->what == *chosen.what) continue;
            auto& names = result_.widened[{to_string(chosen.what->format), to_string(p->what->format)}];
            if (names.empty() || names.back() != tensor) names.push_back(tensor);
            const std::string own = to_string(p->what->format), taken = to_string(chosen.what->format);
            note(kind::boundary, "tensor '" + tensor + "'",
                 "layer '" + e.consumer + "' asks for " + own + " and layer '" + widest->first.consumer + "' for " + taken +
                     (own == taken ? " with another range: one serves both" : ": the wider format serves both") + " (`dual` keeps the two)",
                 place_of(model_, tensor), p->origin);
            p->what = chosen.what;
            p->why = "shared with layer '" + widest->first.consumer + "', which needs the wider format";
        }
    }

    /// Applies rule 6: the output of an 8-bit Conv (behind its Relu or Clip) is quantized for every reader, because integer kernels write
    /// integers. A reader with a request of its own prevents that. `shared` is the precision that the readers have, or nullptr.
    void follow_integer_conv(const std::string& tensor, const precision* shared) {
        if (options_.fused_outputs || options_.where != placement::layers || options_.how != approach::static_ranges) return;
        if (layers_.fused_activation(tensor) >= 0) return;
        int p = model_.producer(tensor);
        if (p >= 0 && info(p).kind == layer_kind::activation) {
            if (layers_.fused_activation(node(p).input(0)) != p) return;
            p = model_.producer(node(p).input(0));
        }
        const auto axes = p < 0 ? std::nullopt : product_axes_of(node(p));
        if (!axes || !axes->windows || axes->transposed || info(p).kind != layer_kind::compute || asked_.tensors.contains(tensor)) return;
        const placed_request& own = asked_.inputs[static_cast<std::size_t>(p)];
        const placed_request& weight = asked_.weights[static_cast<std::size_t>(p)];
        const auto small = [](const precision* f) {
            const integer* i = f == nullptr ? nullptr : std::get_if<integer>(&f->format);
            return i != nullptr && i->bits <= 8 && !f->dynamic;
        };
        const precision* in = own.asked() ? own.what : default_of(p);
        if (!small(in) || !small(weight.asked() ? weight.what : asked_.default_weight)) return;
        if (shared == nullptr) shared = in;
        if (!small(shared)) return;
        std::vector<std::pair<edge, int>> missing;
        for (const auto& u : model_.uses(tensor)) {
            if (u.node < 0 || asked_.inputs[static_cast<std::size_t>(u.node)].asked()) return;  // has a request of its own
            const auto& parts = info(u.node).parts;
            const auto i = static_cast<std::size_t>(u.input);
            if (i >= parts.size() || parts[i] != part::input) continue;
            const edge e{tensor, node(u.node).name(), u.input};
            if (!result_.edges.contains(e)) missing.emplace_back(e, u.node);
        }
        for (const auto& [e, n] : missing)
            result_.edges[e] = {shared, part::input, n, -1, false, "written by the integer Conv '" + node(p).name() + "'", {}};
    }

    void give_weak(const std::string& tensor) {
        const auto w = asked_.weak.find(tensor);
        if (w == asked_.weak.end() || is_identity(w->second.what->format)) return;
        for (const auto& u : model_.uses(tensor)) {
            const edge e{tensor, u.node < 0 ? std::string() : node(u.node).name(), u.input};
            if (result_.edges.contains(e)) continue;
            if (u.node >= 0) {  // only inputs that hold data
                const auto& parts = info(u.node).parts;
                const auto i = static_cast<std::size_t>(u.input);
                if (i >= parts.size() || parts[i] != part::input) continue;
                if (asked_.inputs[static_cast<std::size_t>(u.node)].asked()) continue;  // its reader was asked to be float32
            }
            result_.edges[e] = {w->second.what, part::input, u.node, w->second.sequence, false, w->second.why, w->second.who->origin};
        }
    }

    /// Notes requests for a tensor that no edge took: the tensor has no reader that could be quantized. Patterns are left out here.
    void report_unrealised() {
        for (const auto& [name, w] : asked_.tensors) {
            if (!w.asked() || is_identity(w.what->format) || is_glob(w.who->name)) continue;
            const bool used = std::any_of(result_.edges.lower_bound({name, "", 0}), result_.edges.end(),
                                          [&name = name](const auto& e) { return e.first.tensor == name; });
            if (used) continue;
            note(kind::unrealised, "tensor '" + name + "'", "no reader of it takes " + to_string(w.what->format), place_of(model_, name),
                 w.who->origin);
            asked_.settled.insert(w.sequence);
        }
    }

    const layer_view& layers_;
    const model& model_;
    resolve_options options_;
    wishes asked_;
    resolution result_;
};

/// Runs the two halves of resolve() without the notes about requests that had no effect.
inline std::map<edge, edge_precision> resolved_edges(const layer_view& layers, const std::vector<request>& requests,
                                                     const resolve_options& options) {
    return resolver(layers, request_collector(layers, options.where).collect(requests), options).run().edges;
}

// Notes about requests that end up without an effect.

inline bool same_formats(const std::map<edge, edge_precision>& a, const std::map<edge, edge_precision>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
        const precision *p = x.second.what, *q = y.second.what;
        return x.first == y.first && x.second.automatic_bias == y.second.automatic_bias &&
               (p == q || (p != nullptr && q != nullptr && *p == *q));
    });
}

/// Is true when the edges differ without the exclusion `which`; an exclusion leaves no edge of its own that would show its effect.
inline bool excludes_something(const layer_view& layers, std::vector<request> requests, std::size_t which, const resolve_options& options,
                               const std::map<edge, edge_precision>& with) {
    requests.erase(requests.begin() + static_cast<std::ptrdiff_t>(which));
    return !same_formats(with, resolved_edges(layers, requests, options));
}

/// Suggests names that a request could have meant: tensors of similar spelling for a tensor, else the layers nearest in the network to the
/// nodes that it matched, or layers of similar spelling if it matched none.
inline std::string nearest_of(const layer_view& layers, const request& r, const std::vector<int>& matched) {
    const model& m = layers.source();
    if (r.scope == scope::tensor) {
        std::vector<std::string> tensors;
        for (int n = 0; n < m.graph().node_size(); ++n) {
            const auto& info = layers.nodes()[static_cast<std::size_t>(n)];
            for (std::size_t i = 0; i < info.parts.size(); ++i)
                if (info.parts[i] != layer_view::part::none && info.kind != layer_kind::activation)
                    tensors.push_back(m.graph().node(n).input(static_cast<int>(i)));
        }
        return did_you_mean(r.name, tensors);
    }
    std::vector<std::string> near;
    const std::vector<int> compute = layers.compute_layers();
    for (const int n : matched) {
        const auto closest = std::ranges::min_element(compute, {}, [n](int layer) { return std::abs(layer - n); });
        if (closest == compute.end() || near.size() == 3) break;
        const std::string& name = m.graph().node(*closest).name();
        if (std::find(near.begin(), near.end(), name) == near.end()) near.push_back(name);
    }
    if (!near.empty()) return " The nearest layers that can be: " + listed(near) + ".";
    std::vector<std::string> names;
    for (const int n : compute) names.push_back(m.graph().node(n).name());
    return did_you_mean(r.name, names);
}

inline std::string without_effect(const layer_view& layers, const request& r, const std::vector<int>& matched) {
    std::vector<std::string> names;
    std::set<std::string> types;
    for (const int n : matched) {
        names.push_back(layers.source().graph().node(n).name());
        types.insert(layers.source().graph().node(n).op_type());
    }
    std::string text = is_identity(r.what.format) ? "has no effect: nothing that it names would have been quantized without it"
                                                  : "has no effect: nothing that it names can be quantized as asked";
    if (!names.empty() && types.size() <= 3) text += " (" + comma_separated({types.begin(), types.end()}) + ": " + listed(names) + ")";
    return text + "." + nearest_of(layers, r, matched);
}

/// Adds a note for each request that no edge comes from and that is not `settled`.
inline void note_without_effect(const layer_view& layers, const std::vector<request>& requests, const resolve_options& options,
                                const std::set<int>& settled, const std::map<int, std::vector<int>>& matched, resolution& result) {
    std::set<int> used;
    for (const auto& [e, p] : result.edges) used.insert(p.sequence);
    for (std::size_t i = 0; i < requests.size(); ++i) {
        const request& r = requests[i];
        const int sequence = static_cast<int>(i);
        if (r.scope == scope::everything || r.quiet || used.contains(sequence) || settled.contains(sequence)) continue;
        if (is_identity(r.what.format) && excludes_something(layers, requests, i, options, result.edges)) continue;
        const auto nodes = matched.find(sequence);
        const std::vector<int> none, &of = nodes == matched.end() ? none : nodes->second;
        result.notes.push_back(
            {plan_note::kind::unrealised, describe(r), without_effect(layers, r, of), r.origin, of.empty() ? -1 : of.front()});
    }
}

}  // namespace detail

resolution resolve(const layer_view& layers, const std::vector<request>& requests, const resolve_options& options) {
    detail::resolver second(layers, detail::request_collector(layers, options.where).collect(requests), options);
    resolution result = second.run();
    detail::note_without_effect(layers, requests, options, second.settled(), second.matched(), result);
    // Tensors were settled from the outputs to the inputs; notes are read the other way.
    std::ranges::stable_sort(result.notes, [](const plan_note& a, const plan_note& b) { return a.place < b.place; });
    for (auto& [formats, names] : result.widened) std::reverse(names.begin(), names.end());
    return result;
}

}  // namespace qk::graph
