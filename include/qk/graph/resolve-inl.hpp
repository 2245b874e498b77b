// SPDX-License-Identifier: Apache-2.0
// Definitions of resolve.hpp.
#pragma once

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <optional>
#include <set>

#include "qk/graph/format_text.hpp"
#include "qk/graph/resolve.hpp"

namespace qk::graph {

QK_GRAPH_INLINE const char* name_of(plan_note::kind k) {
    constexpr const char* names[] = {"unmatched", "overridden", "contradictory", "boundary", "propagated", "moved", "unrealised", "adjusted", "left_out"};
    return names[static_cast<int>(k)];
}
QK_GRAPH_INLINE bool is_violation(const plan_note& n) {
    using enum plan_note::kind;
    return n.what == unmatched || n.what == overridden || n.what == contradictory || n.what == unrealised || n.what == left_out ||
           (n.what == boundary && !n.origin.empty());
}

namespace detail {

/// What a place was asked to be, and by whom. sequence -1: by the default.
struct wish {
    const precision* what = nullptr;
    int sequence = -1;
    const request* who = nullptr;
    std::string why{};
    bool asked() const { return sequence >= 0; }
};

class resolver {
  public:
    resolver(const layer_view& layers, const std::vector<request>& requests, const resolve_options& options)
        : layers_(layers), model_(layers.source()), requests_(requests), options_(options),
          inputs_(layers.nodes().size()), weights_(layers.nodes().size()), biases_(layers.nodes().size()) {}

    resolution run() {
        for (std::size_t r = 0; r < requests_.size(); ++r) enter(requests_[r], static_cast<int>(r));
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
    void note(kind what, std::string subject, std::string text, std::string origin = {}) {
        result_.notes.push_back({what, std::move(subject), std::move(text), std::move(origin)});
    }

    // Entering requests -----------------------------------------------------------------------------------------------------

    void enter(const request& r, int sequence) {
        switch (r.scope) {
            case scope::everything:
                if (has(r.role, role::input) || has(r.role, role::output)) default_input_ = &r.what;
                if (has(r.role, role::weight)) default_weight_ = &r.what;
                if (has(r.role, role::bias)) default_bias_ = &r.what;
                return;
            case scope::model_input:
            case scope::model_output: {
                const bool in = r.scope == scope::model_input;
                const auto& list = in ? model_.inputs() : model_.outputs();
                if (r.index < 0 || static_cast<std::size_t>(r.index) >= list.size())
                    return note(kind::unmatched, describe(r), "the model has " + std::to_string(list.size()) + (in ? " inputs" : " outputs") +
                                ", counted from 0", r.origin);
                const std::string& name = list[static_cast<std::size_t>(r.index)].name;
                if (in) want(tensors_[name], {&r.what, sequence, &r, describe(r)}, "tensor '" + name + "'");
                else want(outputs_[r.index], {&r.what, sequence, &r, describe(r)}, "model output '" + name + "'");
                return;
            }
            case scope::tensor: return enter_tensor(r, sequence);
            default: break;
        }
        const std::vector<int> found = matches(r);
        if (found.empty()) return;
        // A list of layers means its layers; one name or one type means exactly that.
        const bool loose = r.scope == scope::group || r.scope == scope::subgraph || (r.scope == scope::layer && (is_glob(r.name) || found.size() > 1));
        const bool exclusion = is_identity(r.what.format);
        for (const int n : found) {
            const layer_kind k = info(n).kind;
            if (loose && !exclusion && k != layer_kind::compute && (k != layer_kind::neighbour || !is_integer_format(r.what.format))) continue;
            enter_node(r, sequence, n);
        }
    }

    void enter_tensor(const request& r, int sequence) {
        std::vector<std::string> found, all;
        for (const value_info& i : model_.inputs()) all.push_back(i.name);
        for (const auto& i : model_.graph().initializer()) all.push_back(i.name());
        for (const auto& n : model_.graph().node())
            for (const std::string& o : n.output())
                if (!o.empty()) all.push_back(o);
        for (const std::string& name : all)
            if (name == r.name || (is_glob(r.name) && glob_match(r.name, name))) found.push_back(name);
        if (found.empty()) return note(kind::unmatched, describe(r), "no tensor has that name." + did_you_mean(r.name, all), r.origin);
        for (const std::string& name : found) {
            if (!layers_.is_float(name)) {
                if (!is_glob(r.name)) note(kind::unrealised, describe(r), "the tensor does not hold float32", r.origin);
                continue;
            }
            want(tensors_[name], {&r.what, sequence, &r, describe(r)}, "tensor '" + name + "'");
        }
    }

    /// One node's share of a layer request; remembers whether anything of it could be asked.
    void enter_node(const request& r, int sequence, int n) {
        const std::size_t at = static_cast<std::size_t>(n);
        const std::string subject = "layer '" + node(n).name() + "'";
        const auto has_part = [&](part p) { return std::find(info(n).parts.begin(), info(n).parts.end(), p) != info(n).parts.end(); };
        const wish w{&r.what, sequence, &r, describe(r)};
        bool realised = false;
        if (has(r.role, role::input) && has_part(part::input)) {
            realised = true;
            // What a Relu or Clip reads is not a place of its own: the format stands behind it.
            if (info(n).kind == layer_kind::activation && !is_identity(r.what.format)) {
                if (node(n).output_size() > 0) want(tensors_[node(n).output(0)], w, "tensor '" + node(n).output(0) + "'");
                note(kind::moved, subject, "quantized behind the " + node(n).op_type() + ", which is fused with the node before it", r.origin);
            } else {
                want(inputs_[at], w, subject + " input");
            }
        }
        if (has(r.role, role::output)) {
            for (const std::string& o : node(n).output()) {
                if (o.empty() || !layers_.is_float(o)) continue;
                realised = true;
                std::string target = o;
                if (const int relu = layers_.fused_activation(o); relu >= 0 && node(relu).output_size() > 0) {
                    target = node(relu).output(0);
                    if (r.role == role::output) note(kind::moved, "tensor '" + o + "'", "its format stands behind the " + node(relu).op_type() + ", on '" + target + "'", r.origin);
                }
                if (has(r.role, role::input)) weak_[target] = w;
                else want(tensors_[target], w, "tensor '" + target + "'");
            }
        }
        if (has(r.role, role::weight)) {
            if (has_part(part::weight)) realised = true, want(weights_[at], w, subject + " weight");
        }
        if (has(r.role, role::bias)) {
            if (has_part(part::bias)) realised = true, want(biases_[at], w, subject + " bias");
        }
        if (!realised && !is_identity(r.what.format) && r.scope == scope::layer && !is_glob(r.name))
            note(kind::unrealised, subject, "the " + node(n).op_type() + " has no " + name_of(r.role) + " that holds float32", r.origin);
    }

    void want(wish& place, wish w, const std::string& subject) {
        if (place.asked() && place.who != w.who && !(*place.what == *w.what)) {
            const request &a = *place.who, &b = *w.who;
            const bool same = a.scope == b.scope && a.name == b.name && a.end == b.end && a.index == b.index;
            note(same ? kind::contradictory : kind::overridden, subject,
                 "asked to be " + to_string(a.what.format) + " (" + a.origin + ": " + describe(a) + ") and later " + to_string(b.what.format) + " (" +
                     b.origin + ": " + describe(b) + "): the later one counts", a.origin);
        }
        if (w.sequence >= place.sequence) place = std::move(w);
    }

    std::vector<int> matches(const request& r) {
        std::vector<int> found;
        std::vector<std::string> names;
        const int count = model_.graph().node_size();
        if (r.scope == scope::op_type) {
            for (int n = 0; n < count; ++n) {
                if (node(n).op_type() == r.name) found.push_back(n);
                names.push_back(node(n).op_type());
            }
            if (found.empty()) note(kind::unmatched, describe(r), "the model has no operator of that type." + did_you_mean(r.name, names), r.origin);
            return found;
        }
        for (int n = 0; n < count; ++n) names.push_back(node(n).name());
        if (r.scope == scope::subgraph) {
            for (const std::string* end : {&r.name, &r.end})
                if (model_.node_index(*end) < 0) note(kind::unmatched, describe(r), "no layer '" + *end + "'." + did_you_mean(*end, names), r.origin);
            const int start = model_.node_index(r.name), end = model_.node_index(r.end);
            if (start < 0 || end < 0) return {};
            found = between(start, end);
            if (found.empty()) note(kind::unmatched, describe(r), "'" + r.end + "' does not depend on '" + r.name + "'", r.origin);
            return found;
        }
        const auto in_group = [&](const std::string& name) {
            return name == r.name || (name.size() > r.name.size() && name.starts_with(r.name) &&
                                      (std::string_view("/._:").find(name[r.name.size()]) != std::string_view::npos || r.name.ends_with('/')));
        };
        if (r.scope == scope::layer) {
            for (int n = 0; n < count; ++n)
                if (node(n).name() == r.name || (is_glob(r.name) && glob_match(r.name, node(n).name()))) found.push_back(n);
        }
        if (found.empty() && !is_glob(r.name))  // "layer1" may be a group without having been called one
            for (int n = 0; n < count; ++n)
                if (in_group(node(n).name())) found.push_back(n);
        if (found.empty()) note(kind::unmatched, describe(r), "no layer has that name." + did_you_mean(r.name, names), r.origin);
        return found;
    }

    /// Nodes that depend on `start` and that `end` depends on, both included.
    std::vector<int> between(int start, int end) const {
        std::set<int> after{start};
        for (int n = start; n < model_.graph().node_size(); ++n)
            if (after.contains(n))
                for (const std::string& o : node(n).output())
                    for (const auto& u : model_.uses(o))
                        if (u.node >= 0) after.insert(u.node);
        std::set<int> before{end};
        for (int n = end; n >= 0; --n)
            if (before.contains(n))
                for (const std::string& i : node(n).input())
                    if (const int p = model_.producer(i); p >= 0) before.insert(p);
        std::vector<int> both;
        std::set_intersection(after.begin(), after.end(), before.begin(), before.end(), std::back_inserter(both));
        return both;
    }

    // From places to edges ---------------------------------------------------------------------------------------------------

    static bool moves(const precision& p) { return !is_block_format(p.format) && !p.dynamic && p.scale.size() <= 1; }

    /// Rule 4 for what was asked of a tensor: the tensors that its values move into follow, unless they were asked something later.
    void propagate_forward() {
        for (int n = 0; n < model_.graph().node_size(); ++n) {
            if (info(n).kind != layer_kind::mover || node(n).input_size() == 0) continue;
            wish from;
            if (const auto t = tensors_.find(node(n).input(0)); t != tensors_.end()) from = t->second;
            if (inputs_[static_cast<std::size_t>(n)].sequence > from.sequence) from = inputs_[static_cast<std::size_t>(n)];
            if (!from.asked() || !moves(*from.what)) continue;
            for (const std::string& o : node(n).output()) {
                if (o.empty() || !layers_.is_float(o)) continue;
                wish& to = tensors_[o];
                if (to.sequence > from.sequence) continue;
                to = from;
                to.why = from.why + ", through " + node(n).op_type() + " '" + node(n).name() + "'";
                note(kind::propagated, "tensor '" + o + "'", "takes " + to_string(from.what->format) + " from '" + node(n).input(0) + "' through " +
                     node(n).op_type() + " '" + node(n).name() + "'");
            }
        }
    }

    /// Some reader of the tensor, past a Relu or Clip, is quantized to an integer.
    bool read_as_integer(const std::string& tensor) const {
        for (const auto& u : model_.uses(tensor)) {
            if (u.node < 0) continue;
            const auto e = result_.edges.find({tensor, node(u.node).name(), u.input});
            if (e != result_.edges.end() && e->second.what && is_integer_format(e->second.what->format)) return true;
            if (info(u.node).kind == layer_kind::activation && u.input == 0 && node(u.node).output_size() > 0 && read_as_integer(node(u.node).output(0)))
                return true;
        }
        return false;
    }

    /// What the default says of a node's inputs; nullptr: nothing.
    const precision* default_of(int n) const {
        if (default_input_ == nullptr || options_.how == approach::weight_only || is_identity(default_input_->format)) return nullptr;
        const layer_kind k = info(n).kind;
        if (options_.where == placement::every) return default_input_;
        if (options_.where == placement::all) {
            const bool fused = k == layer_kind::activation && model_.producer(node(n).input(0)) >= 0 && layers_.fused_activation(node(n).input(0)) == n;
            return fused ? nullptr : default_input_;
        }
        if (k == layer_kind::compute) return default_input_;
        if (k != layer_kind::neighbour || !is_integer_format(default_input_->format) || options_.how == approach::dynamic) return nullptr;
        for (const std::string& o : node(n).output())
            if (!read_as_integer(o)) return nullptr;
        return default_input_;
    }

    /// The precision of every input of a node, before shared tensors are settled.
    void choose_inputs(int n) {
        const std::size_t at = static_cast<std::size_t>(n);
        const auto& parts = info(n).parts;
        wish input = inputs_[at];
        if (!input.asked())
            if (const precision* p = default_of(n)) input = {p, -1, nullptr, "default"};
        wish weight = weights_[at];
        const bool excluded = input.asked() && is_identity(input.what->format);
        if (!weight.asked() && info(n).kind == layer_kind::compute && default_weight_ != nullptr) weight = {default_weight_, -1, nullptr, "default"};
        // A mover follows what it makes (rule 4), so that integer kernels meet the same scale on both sides.
        if (info(n).kind == layer_kind::mover && !input.asked())
            if (const precision* p = widest_made(n)) input = {p, -1, nullptr, "moves its values on to readers of that format"};
        for (std::size_t i = 0; i < parts.size(); ++i) {
            const std::string& name = node(n).input(static_cast<int>(i));
            if (parts[i] == part::none) continue;
            wish w = parts[i] == part::weight ? weight : parts[i] == part::bias ? biases_[at] : input;
            const auto t = tensors_.find(name);
            const bool fused_here = info(n).kind == layer_kind::activation;
            if (t != tensors_.end() && t->second.asked() && !(fused_here && layers_.fused_activation(name) == n && model_.producer(name) >= 0)) {
                if (w.asked() && !(*w.what == *t->second.what)) {
                    const bool later = t->second.sequence > w.sequence;
                    const wish &loser = later ? w : t->second, &winner = later ? t->second : w;
                    note(kind::overridden, "tensor '" + name + "' in layer '" + node(n).name() + "'",
                         to_string(loser.what->format) + " (" + loser.why + ") gives way to " + to_string(winner.what->format) + " (" + winner.why + "), asked later",
                         loser.who ? loser.who->origin : "");
                }
                if (t->second.sequence > w.sequence) w = t->second;
            }
            const edge e{name, node(n).name(), static_cast<int>(i)};
            if (parts[i] == part::bias && !w.asked()) {
                if (default_bias_ != nullptr) w = {default_bias_, -1, nullptr, "default"};
                else if (!excluded) {
                    result_.edges[e] = {nullptr, part::bias, n, -1, true, "follows its layer", {}};
                    continue;
                }
            }
            if (w.what == nullptr || is_identity(w.what->format)) continue;
            result_.edges[e] = {w.what, parts[i], n, w.sequence, false, w.why, w.who ? w.who->origin : ""};
        }
    }

    const precision* widest_made(int n) const {
        const precision* best = nullptr;
        for (const std::string& o : node(n).output())
            for (const auto& u : model_.uses(o)) {
                if (u.node < 0) continue;
                const auto e = result_.edges.find({o, node(u.node).name(), u.input});
                if (e == result_.edges.end() || !e->second.what || !is_integer_format(e->second.what->format) || !moves(*e->second.what)) continue;
                if (!best || bits_per_value(e->second.what->format) > bits_per_value(best->format)) best = e->second.what;
            }
        return best;
    }

    /// Rules 3 and 5: all readers of the tensor are known now.
    void finish_tensor(const std::string& tensor) {
        if (!layers_.is_float(tensor)) return;
        std::vector<std::pair<edge, edge_precision*>> readers;
        for (const auto& u : model_.uses(tensor)) {
            const edge e{tensor, u.node < 0 ? std::string() : node(u.node).name(), u.input};
            if (u.node < 0) {
                wish w;
                if (const auto o = outputs_.find(u.input); o != outputs_.end()) w = o->second;
                if (const auto t = tensors_.find(tensor); t != tensors_.end() && t->second.sequence > w.sequence) w = t->second;
                if (!w.what && options_.where != placement::layers && options_.how == approach::static_ranges && default_input_)
                    w = {default_input_, -1, nullptr, "default"};
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
        const auto widest = std::max_element(readers.begin(), readers.end(), [](const auto& a, const auto& b) {
            return bits_per_value(a.second->what->format) < bits_per_value(b.second->what->format);
        });
        const edge_precision chosen = *widest->second;
        if (options_.dual) return;
        follow_integer_conv(tensor, chosen.what);
        for (auto& [e, p] : readers) {
            if (*p->what == *chosen.what) continue;
            note(kind::boundary, "tensor '" + tensor + "'",
                 "layer '" + e.consumer + "' asks for " + to_string(p->what->format) + " and layer '" + widest->first.consumer + "' for " +
                     to_string(chosen.what->format) + ": the wider format serves both (`dual` keeps the two)", p->origin);
            p->what = chosen.what;
            p->why = "shared with layer '" + widest->first.consumer + "', which needs the wider format";
        }
    }

    /// Rule 6: what an 8-bit Conv makes (past its Relu or Clip) is quantized for every reader, because integer kernels write integers;
    /// a reader that was asked to be float32 keeps the tensor out of it. `shared`: what readers have already agreed on.
    void follow_integer_conv(const std::string& tensor, const precision* shared) {
        if (options_.where != placement::layers || options_.how != approach::static_ranges || layers_.fused_activation(tensor) >= 0) return;
        int p = model_.producer(tensor);
        if (p >= 0 && info(p).kind == layer_kind::activation) {
            if (layers_.fused_activation(node(p).input(0)) != p) return;
            p = model_.producer(node(p).input(0));
        }
        if (p < 0 || node(p).op_type() != "Conv" || info(p).kind != layer_kind::compute || tensors_.contains(tensor)) return;
        const wish& own = inputs_[static_cast<std::size_t>(p)];
        const wish& weight = weights_[static_cast<std::size_t>(p)];
        const auto small = [](const precision* f) {
            const integer* i = f == nullptr ? nullptr : std::get_if<integer>(&f->format);
            return i != nullptr && i->bits <= 8 && !f->dynamic;
        };
        const precision* in = own.asked() ? own.what : default_of(p);
        if (!small(in) || !small(weight.asked() ? weight.what : default_weight_)) return;
        if (shared == nullptr) shared = in;
        if (!small(shared)) return;
        std::vector<std::pair<edge, int>> missing;
        for (const auto& u : model_.uses(tensor)) {
            if (u.node < 0 || inputs_[static_cast<std::size_t>(u.node)].asked()) return;  // asked for something of its own
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
        const auto w = weak_.find(tensor);
        if (w == weak_.end() || is_identity(w->second.what->format)) return;
        for (const auto& u : model_.uses(tensor)) {
            const edge e{tensor, u.node < 0 ? std::string() : node(u.node).name(), u.input};
            if (result_.edges.contains(e)) continue;
            if (u.node >= 0) {  // only what holds data
                const auto& parts = info(u.node).parts;
                const auto i = static_cast<std::size_t>(u.input);
                if (i >= parts.size() || parts[i] != part::input) continue;
                if (inputs_[static_cast<std::size_t>(u.node)].asked()) continue;  // its reader was asked to be float32
            }
            result_.edges[e] = {w->second.what, part::input, u.node, w->second.sequence, false, w->second.why, w->second.who->origin};
        }
    }

    /// Tensor requests that no edge took: the tensor has no reader that could be quantized.
    void report_unrealised() {
        for (const auto& [name, w] : tensors_) {
            if (!w.asked() || is_identity(w.what->format)) continue;
            const bool used = std::any_of(result_.edges.lower_bound({name, "", 0}), result_.edges.end(),
                                          [&name = name](const auto& e) { return e.first.tensor == name; });
            if (!used) note(kind::unrealised, "tensor '" + name + "'", "no reader of it takes " + to_string(w.what->format), w.who->origin);
        }
    }

    const layer_view& layers_;
    const model& model_;
    const std::vector<request>& requests_;
    resolve_options options_;
    const precision* default_input_ = nullptr;
    const precision* default_weight_ = nullptr;
    const precision* default_bias_ = nullptr;
    std::vector<wish> inputs_, weights_, biases_;  // by node
    std::map<std::string, wish> tensors_;          // asked of the tensor itself
    std::map<std::string, wish> weak_;             // asked of a layer's activations, for what it makes
    std::map<int, wish> outputs_;                  // of the model
    resolution result_;
};

}  // namespace detail

QK_GRAPH_INLINE resolution resolve(const layer_view& layers, const std::vector<request>& requests, const resolve_options& options) {
    return detail::resolver(layers, requests, options).run();
}

}  // namespace qk::graph
