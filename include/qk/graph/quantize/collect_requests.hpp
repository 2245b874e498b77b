// SPDX-License-Identifier: Apache-2.0
// First half of resolve: requests against a model's names become wishes on its places.
#pragma once

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "qk/graph/base/format_text.hpp"
#include "qk/graph/base/names.hpp"
#include "qk/graph/plan/layers.hpp"
#include "qk/graph/plan/requests.hpp"
#include "qk/graph/quantize/resolve.hpp"

namespace qk::graph::detail {

/// What a place was asked to be, and by whom. sequence -1: by the default.
struct wish {
    const precision* what = nullptr;
    int sequence = -1;
    const request* who = nullptr;
    std::string why{};
    bool asked() const { return sequence >= 0; }
};

/// Everything that was asked, place by place, and what there is to say of it.
struct wishes {
    const precision* default_input = nullptr;
    const precision* default_weight = nullptr;
    const precision* default_bias = nullptr;
    std::vector<wish> inputs, weights, biases;  ///< by node
    std::map<std::string, wish> tensors;        ///< asked of the tensor itself
    std::map<std::string, wish> weak;           ///< asked of a layer's activations, for what it makes
    std::map<int, wish> outputs;                ///< of the model
    std::vector<plan_note> notes;
};

/// Enters requests in their order; later ones win (rule 1).
class wish_collector {
  public:
    explicit wish_collector(const layer_view& layers) : layers_(layers), model_(layers.source()) {
        for (auto* list : {&all_.inputs, &all_.weights, &all_.biases}) list->resize(layers.nodes().size());
    }

    wishes collect(const std::vector<request>& requests) {
        for (std::size_t r = 0; r < requests.size(); ++r) enter(requests[r], static_cast<int>(r));
        return std::move(all_);
    }

  private:
    using kind = plan_note::kind;
    using part = layer_view::part;
    const onnx::NodeProto& node(int n) const { return model_.graph().node(n); }
    const layer_view::node_info& info(int n) const { return layers_.nodes()[static_cast<std::size_t>(n)]; }
    void note(kind what, std::string subject, std::string text, std::string origin = {}) {
        all_.notes.push_back({what, std::move(subject), std::move(text), std::move(origin)});
    }

    void enter(const request& r, int sequence) {
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
                if (r.index < 0 || static_cast<std::size_t>(r.index) >= list.size())
                    return note(kind::unmatched, describe(r), "the model has " + std::to_string(list.size()) + (in ? " inputs" : " outputs") +
                                ", counted from 0", r.origin);
                const std::string& name = list[static_cast<std::size_t>(r.index)].name;
                if (in) want(all_.tensors[name], {&r.what, sequence, &r, describe(r)}, "tensor '" + name + "'");
                else want(all_.outputs[r.index], {&r.what, sequence, &r, describe(r)}, "model output '" + name + "'");
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
            want(all_.tensors[name], {&r.what, sequence, &r, describe(r)}, "tensor '" + name + "'");
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
                if (node(n).output_size() > 0) want(all_.tensors[node(n).output(0)], w, "tensor '" + node(n).output(0) + "'");
                note(kind::moved, subject, "quantized behind the " + node(n).op_type() + ", which is fused with the node before it", r.origin);
            } else {
                want(all_.inputs[at], w, subject + " input");
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
                if (has(r.role, role::input)) all_.weak[target] = w;
                else want(all_.tensors[target], w, "tensor '" + target + "'");
            }
        }
        if (has(r.role, role::weight)) {
            if (has_part(part::weight)) realised = true, want(all_.weights[at], w, subject + " weight");
        }
        if (has(r.role, role::bias)) {
            if (has_part(part::bias)) realised = true, want(all_.biases[at], w, subject + " bias");
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

    const layer_view& layers_;
    const model& model_;
    wishes all_;
};

}  // namespace qk::graph::detail
