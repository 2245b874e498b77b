// SPDX-License-Identifier: Apache-2.0
// First half of resolve(): matches requests with a model's names. The result is a placed_request for each place (an input, weight or bias
// of a node, a tensor, or an output of the model) that a request asks a precision of.
#pragma once

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "graph/ops/op.hpp"
#include "qk/graph/base/format_text.hpp"
#include "qk/graph/base/names.hpp"
#include "qk/graph/model/torch_names.hpp"
#include "qk/graph/plan/layers.hpp"
#include "qk/graph/plan/requests.hpp"
#include "qk/graph/quantize/resolve.hpp"

namespace qk::graph::detail {

/// The precision that a place was asked to have, and the request that asked. The sequence is the request's position; -1: the default.
struct placed_request {
    const precision* what = nullptr;
    int sequence = -1;
    const request* who = nullptr;
    std::string why{};
    bool asked() const { return sequence >= 0; }
};

/// All wishes by place, with the notes about them.
struct wishes {
    const precision* default_input = nullptr;
    const precision* default_weight = nullptr;
    const precision* default_bias = nullptr;
    std::vector<placed_request> inputs, weights, biases;  ///< by node
    std::map<std::string, placed_request> tensors;        ///< asked of the tensor itself
    std::map<std::string, placed_request> weak;           ///< by output of a layer whose activations were asked for (rule 3)
    std::map<int, placed_request> outputs;                ///< by number of the model's output
    std::vector<plan_note> notes;
    std::set<int> settled;                    ///< need no further note: one tells what became of them, or a later request won
    std::map<int, std::vector<int>> matched;  ///< by request: the nodes that it names
};

/// Returns the node that stands for a tensor in network order: its producer; the first reader of a constant; -1 for neither.
inline int place_of(const model& m, const std::string& tensor) {
    if (const int p = m.producer(tensor); p >= 0 || !m.is_constant(tensor)) return p;
    const auto& uses = m.uses(tensor);
    return uses.empty() ? -1 : uses.front().node;
}

/// Turns requests into wishes in their order; later ones win (rule 1).
class request_collector {
  public:
    request_collector(const layer_view& layers, placement where) : layers_(layers), model_(layers.source()), where_(where) {
        for (auto* list : {&all_.inputs, &all_.weights, &all_.biases}) list->resize(layers.nodes().size());
    }

    wishes collect(const std::vector<request>& requests) {
        for (std::size_t r = 0; r < requests.size(); ++r) sequence_ = static_cast<int>(r), enter(requests[r]);
        return std::move(all_);
    }

  private:
    using kind = plan_note::kind;
    using part = layer_view::part;
    const onnx::NodeProto& node(int n) const { return model_.graph().node(n); }
    const layer_view::node_info& info(int n) const { return layers_.nodes()[static_cast<std::size_t>(n)]; }
    /// Adds a note about the request that is being entered.
    void note(kind what, std::string subject, std::string text, const std::string& origin, int place = -1) {
        all_.notes.push_back({what, std::move(subject), std::move(text), origin, place});
        if (what == kind::unmatched || what == kind::unrealised) all_.settled.insert(sequence_);
    }
    int tensor_place(const std::string& tensor) const { return place_of(model_, tensor); }

    /// Makes the placed_request of the request that is being entered.
    placed_request placed(const request& r) const { return {&r.what, sequence_, &r, describe(r)}; }

    void enter(const request& r) {
        switch (r.scope) {
            case scope::everything:
                if (has(r.role, role::input) || has(r.role, role::output)) all_.default_input = &r.what;
                if (has(r.role, role::weight)) all_.default_weight = &r.what;
                if (has(r.role, role::bias)) all_.default_bias = &r.what;
                return;
            case scope::model_input:
            case scope::model_output: {
                const bool in = r.scope == scope::model_input;
                const auto& list = in ? model_.inputs() : model_.outputs();
                const int index = r.index < 0 ? r.index + static_cast<int>(list.size()) : r.index;  // from the end
                if (index < 0 || static_cast<std::size_t>(index) >= list.size())
                    return note(kind::unmatched, describe(r),
                                "the model has " + std::to_string(list.size()) + (in ? " inputs" : " outputs") +
                                    ", counted from 0, or from the last by -1",
                                r.origin);
                const std::string& name = list[static_cast<std::size_t>(index)].name;
                if (in) want(all_.tensors[name], placed(r), "tensor '" + name + "'", -1);
                else want(all_.outputs[index], placed(r), "model output '" + name + "'", tensor_place(name));
                return;
            }
            case scope::tensor: return enter_tensor(r);
            case scope::kv_cache: return enter_cache(r);
            default: break;
        }
        const std::vector<int> found = matches(r);
        if (found.empty()) return;
        all_.matched[sequence_] = found;
        // A request for several layers (a group, a sub-graph, a pattern) means only those nodes of them that are layers, or neighbours with
        // integer formats; a single name or a type means exactly the nodes that it names.
        const bool loose =
            r.scope == scope::group || r.scope == scope::subgraph || (r.scope == scope::layer && (is_glob(r.name) || found.size() > 1));
        const bool exclusion = is_identity(r.what.format);
        for (const int n : found) {
            const layer_kind k = info(n).kind;
            if (loose && !exclusion && k != layer_kind::compute && (k != layer_kind::neighbour || !is_integer_format(r.what.format)))
                continue;
            enter_node(r, n);
        }
    }

    void enter_tensor(const request& r) {
        std::vector<std::string> found;
        const auto add = [&](const std::string& name) {
            if (std::find(found.begin(), found.end(), name) == found.end()) found.push_back(name);
        };
        const std::vector<std::string> all = tensor_names(model_);
        std::vector<std::string> folded;
        for (const std::string& name : all) {
            if (name != r.name && !(is_glob(r.name) && glob_match(r.name, name))) continue;
            if (has_tensor(model_, name)) add(name);
            for (const successor& s : successors_of_tensor(model_, name)) {
                if (is_glob(r.name) && s.how == bond::part) continue;  // "*.weight" means weights, not a normalization's parameters
                add(s.name);
                folded.push_back(name);
                if (!is_glob(r.name))
                    note(kind::renamed, "tensor '" + name + "'",
                         (s.how == bond::part ? "went into '" : "is '") + s.name + "' now: " + s.why, r.origin, tensor_place(s.name));
            }
        }
        if (found.empty()) return note(kind::unmatched, describe(r), no_tensor(r.name, all), r.origin);
        if (is_glob(r.name) && !folded.empty())
            note(kind::renamed, describe(r),
                 listed(folded) + " of its names were folded and lead to what they became (`qk inspect --tensors` lists them)", r.origin);
        for (const std::string& name : found) {
            if (!layers_.is_float(name)) {
                if (!is_glob(r.name)) note(kind::unrealised, describe(r), "the tensor does not hold floats", r.origin, tensor_place(name));
                continue;
            }
            const std::string place = behind_activation(name);
            if (place != name && !is_glob(r.name))
                note(kind::moved, "tensor '" + name + "'",
                     "only a Relu or Clip reads it: its format stands behind that, on '" + place + "'", r.origin, tensor_place(name));
            want(all_.tensors[place], placed(r), "tensor '" + place + "'", tensor_place(place));
        }
    }

    void enter_cache(const request& r) {
        const std::vector<std::string> caches = layers_.cached_tensors();
        if (caches.empty())
            return note(kind::unmatched, describe(r),
                        "the model keeps no keys or values: no input goes into a Concat or an attention whose result is an output",
                        r.origin);
        for (const std::string& name : caches) {
            want(all_.tensors[name], placed(r), "tensor '" + name + "'", tensor_place(name));
            note(kind::cache, "tensor '" + name + "'", "keys or values of a cache: " + to_string(r.what.format), r.origin,
                 tensor_place(name));
        }
    }

    /// Returns the output of the Relu or Clip that alone reads `tensor`, else `tensor`: no quantizer stands between a node and the Relu or
    /// Clip behind it, except with placement::every.
    std::string behind_activation(const std::string& tensor) const {
        const int relu = where_ == placement::every || model_.producer(tensor) < 0 ? -1 : layers_.fused_activation(tensor);
        return relu >= 0 && node(relu).output_size() > 0 ? node(relu).output(0) : tensor;
    }

    /// Explains why no tensor has the name, and suggests the nearest names.
    std::string no_tensor(const std::string& name, const std::vector<std::string>& all) const {
        if (model_.history().tensors().contains(name))
            return "the tensor is gone: nothing reads what it was folded into." + did_you_mean(name, all);
        if (model_.node_index(name) >= 0)
            return "no tensor has that name, but a layer has: say \"layer\" instead of \"tensor\"." + did_you_mean(name, all);
        return "no tensor has that name." + did_you_mean(name, all);
    }

    /// Enters a layer request for one node. Adds a note when a single named node has none of the values that the request asks for.
    void enter_node(const request& r, int n) {
        const std::size_t at = static_cast<std::size_t>(n);
        const std::string subject = "layer '" + node(n).name() + "'";
        const auto has_part = [&](part p) { return std::find(info(n).parts.begin(), info(n).parts.end(), p) != info(n).parts.end(); };
        const placed_request w = placed(r);
        bool realised = false;
        if (has(r.role, role::input) && has_part(part::input)) {
            realised = true;
            // The input of a Relu or Clip is not a place of its own: the format stands on its output.
            if (info(n).kind == layer_kind::activation && !is_identity(r.what.format)) {
                if (node(n).output_size() > 0) want(all_.tensors[node(n).output(0)], w, "tensor '" + node(n).output(0) + "'", n);
                note(kind::moved, subject, "quantized behind the " + node(n).op_type() + ", which is fused with the node before it",
                     r.origin, n);
            } else {
                want(all_.inputs[at], w, subject + " input", n);
            }
        }
        if (has(r.role, role::output)) {
            for (const std::string& o : node(n).output()) {
                if (o.empty() || !layers_.is_float(o)) continue;
                realised = true;
                std::string target = o;
                if (const int relu = layers_.fused_activation(o); relu >= 0 && node(relu).output_size() > 0) {
                    target = node(relu).output(0);
                    if (r.role == role::output)
                        note(kind::moved, "tensor '" + o + "'",
                             "its format stands behind the " + node(relu).op_type() + ", on '" + target + "'", r.origin, n);
                }
                if (has(r.role, role::input)) all_.weak[target] = w;
                else want(all_.tensors[target], w, "tensor '" + target + "'", tensor_place(target));
            }
        }
        if (has(r.role, role::weight) && has_part(part::weight)) realised = true, want(all_.weights[at], w, subject + " weight", n);
        if (has(r.role, role::bias) && has_part(part::bias)) realised = true, want(all_.biases[at], w, subject + " bias", n);
        if (!realised && !is_identity(r.what.format) && r.scope == scope::layer && !is_glob(r.name))
            note(kind::unrealised, subject, "the " + node(n).op_type() + " has no " + name_of(r.role) + " that holds floats", r.origin, n);
    }

    void want(placed_request& place, placed_request w, const std::string& subject, int at) {
        if (place.asked() && place.who != w.who)
            all_.settled.insert(place.sequence);    // a later request asks for the same, or the note below tells
        constexpr std::size_t most_noted = 20'000;  // there are as many as requests times places, and nobody reads more
        if (place.asked() && place.who != w.who && !(*place.what == *w.what) && ++overridden_ <= most_noted) {
            const request &a = *place.who, &b = *w.who;
            const bool same = a.scope == b.scope && a.name == b.name && a.end == b.end && a.index == b.index && a.position == b.position;
            all_.notes.push_back({same ? kind::contradictory : kind::overridden, subject,
                                  "asked to be " + to_string(a.what.format) + " (" + a.origin + ": " + describe(a) + ") and later " +
                                      to_string(b.what.format) + " (" + b.origin + ": " + describe(b) + "): the later one counts",
                                  a.origin, at});
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
            if (found.empty()) found = of_torch_type(r);
            if (found.empty()) note_no_type(r, names);
            return found;
        }
        if (r.position) {
            const std::vector<int> all = layers_.compute_layers();
            const int at = *r.position < 0 ? *r.position + static_cast<int>(all.size()) : *r.position;
            if (at >= 0 && static_cast<std::size_t>(at) < all.size()) return {all[static_cast<std::size_t>(at)]};
            note(kind::unmatched, describe(r),
                 "the model has " + std::to_string(all.size()) + " layers, counted from 0, or from the last by -1", r.origin);
            return {};
        }
        for (int n = 0; n < count; ++n) names.push_back(node(n).name());
        if (r.scope == scope::subgraph) {
            const int start = node_or_successor(r, r.name), end = node_or_successor(r, r.end);
            for (const auto& [name, index] : {std::pair{&r.name, start}, std::pair{&r.end, end}})
                if (index < 0) note(kind::unmatched, describe(r), no_layer(*name, "no layer '" + *name + "'."), r.origin);
            if (start < 0 || end < 0) return {};
            found = between(start, end);
            if (found.empty()) note(kind::unmatched, describe(r), "'" + r.end + "' does not depend on '" + r.name + "'", r.origin);
            return found;
        }
        const auto in_group = [&](const std::string& name) {
            return name == r.name ||
                   (name.size() > r.name.size() && name.starts_with(r.name) &&
                    (std::string_view("/._:").find(name[r.name.size()]) != std::string_view::npos || r.name.ends_with('/')));
        };
        for (int n = 0; n < count && r.scope == scope::layer; ++n)
            if (node(n).name() == r.name || (is_glob(r.name) && glob_match(r.name, node(n).name()))) found.push_back(n);
        if (found.empty() && r.scope == scope::layer && !r.name.empty())
            for (int n = 0; n < count; ++n)
                if (module_of(n) == r.name || (is_glob(r.name) && glob_match(r.name, module_of(n)))) found.push_back(n);
        if (found.empty() && !is_glob(r.name))  // "layer1" may name a group in a request for a layer
            for (int n = 0; n < count; ++n)
                if (in_group(node(n).name()) || is_in_module(module_of(n), r.name)) found.push_back(n);
        if (found.empty() && !is_glob(r.name))
            if (const int n = node_or_successor(r, r.name); n >= 0) found.push_back(n);
        if (found.empty()) note(kind::unmatched, describe(r), no_layer(r.name, "no layer has that name."), r.origin);
        return found;
    }

    const std::string& module_of(int n) {
        if (modules_.empty()) modules_ = torch_modules(model_);
        return modules_[static_cast<std::size_t>(n)].path;
    }

    /// Returns the nodes of a type that torch has under that name, with a note on what they are here.
    std::vector<int> of_torch_type(const request& r) {
        const std::vector<int> found = nodes_of_torch_type(model_, torch_modules(model_), r.name);
        std::set<std::string> types;
        for (const int n : found) types.insert(node(n).op_type());
        if (!found.empty())
            note(kind::renamed, "op type '" + r.name + "'",
                 "is a type of torch; here it is " + comma_separated({types.begin(), types.end()}), r.origin, found.front());
        return found;
    }

    /// Returns the node of that name, or the node that it was folded into (with a note), or -1.
    int node_or_successor(const request& r, const std::string& name) {
        if (const int n = model_.node_index(name); n >= 0) return n;
        for (const successor& s : successors_of_node(model_, name)) {
            if (!s.is_node) continue;
            const int n = model_.node_index(s.name);
            note(kind::renamed, "layer '" + name + "'", "is part of '" + s.name + "' now: " + s.why, r.origin, n);
            return n;
        }
        return -1;
    }

    /// Explains why no layer has the name, and suggests the nearest names.
    std::string no_layer(const std::string& name, const std::string& sentence) const {
        for (const successor& s : successors_of_node(model_, name))
            if (!s.is_node) return "the layer is the constant '" + s.name + "' now: " + s.why + "; ask for that tensor";
        std::vector<std::string> gone;
        for (const auto& [old, n] : model_.history().nodes())
            if (is_glob(name) && glob_match(name, old) && model_.node_index(old) < 0) gone.push_back(old);
        if (!gone.empty())
            return "it names only what was folded into other layers (" + listed(gone) +
                   "): name those layers (`qk inspect --tensors` lists them)";
        std::vector<std::string> known = node_names(model_);
        for (const torch_module& t : torch_modules(model_))
            if (!t.path.empty() && std::find(known.begin(), known.end(), t.path) == known.end()) known.push_back(t.path);
        return sentence + did_you_mean(name, known);
    }

    /// Notes that the model has no node of a type. The note is harmless (`absent`) when the type is an operator and the model has another
    /// type of the request's list.
    void note_no_type(const request& r, const std::vector<std::string>& types) {
        const auto here = [&](const std::string& t) { return std::find(types.begin(), types.end(), t) != types.end(); };
        const bool is_operator = find_op("", r.name, std::max(model_.opset(""), 1)) != nullptr;
        if (is_operator && std::any_of(r.beside.begin(), r.beside.end(), here)) {
            all_.settled.insert(sequence_);
            const plan_note none{kind::absent, "op type '" + r.name + "'", "the model has none; the other types of the list stand",
                                 r.origin, -1};
            if (std::find(all_.notes.begin(), all_.notes.end(), none) == all_.notes.end()) all_.notes.push_back(none);  // one for all roles
            return;
        }
        std::size_t folded = 0;
        for (const auto& [name, n] : model_.history().nodes()) folded += n.op_type == r.name && model_.node_index(name) < 0;
        if (folded > 0)
            return note(kind::unmatched, describe(r),
                        "all " + std::to_string(folded) + " of that type were folded into others when the model was read", r.origin);
        note(kind::unmatched, describe(r), "the model has no operator of that type." + did_you_mean(r.name, types), r.origin);
    }

    /// Returns the nodes that depend on `start` and that `end` depends on, both included.
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

    const layer_view& layers_;
    const model& model_;
    placement where_;
    wishes all_;
    std::vector<torch_module> modules_;  ///< by node, once a request needs them
    std::size_t overridden_ = 0;
    int sequence_ = 0;  ///< position of the request that is being entered
};

}  // namespace qk::graph::detail
