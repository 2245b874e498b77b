// SPDX-License-Identifier: Apache-2.0
// Applies --op-types, --layers and --exclude to a model: which layers are searched, in graph order.
#pragma once

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <string>
#include <vector>

#include "graph/model/check.hpp"
#include "graph/ops/op.hpp"
#include "qk/graph/base/names.hpp"
#include "qk/graph/model/torch_names.hpp"
#include "qk/graph/plan/layers.hpp"
#include "qk/graph/search/search.hpp"

namespace qk::graph::detail {

class layer_selection {
  public:
    layer_selection(const layer_view& layers, const mix_options& options) : model_(layers.source()), options_(options) {
        const std::vector<torch_module> modules = torch_modules(model_);
        for (const int n : layers.compute_layers()) {
            modules_.push_back(modules[static_cast<std::size_t>(n)].path);
            all_.push_back(model_.graph().node(n).name());
            types_.push_back(model_.graph().node(n).op_type());
        }
    }

    /// Returns the searched layers. Throws for a name that matches nothing, with the nearest names, and where no layer is left.
    std::vector<std::string> choose(std::vector<std::string>& remarks) const {
        for (const std::string& t : options_.op_types) check_type(t, remarks);
        const std::vector<std::string> wanted = current(options_.layers, "--layers", remarks),
                                       kept = current(options_.exclude, "--exclude", remarks);
        std::vector<std::string> chosen;
        for (std::size_t l = 0; l < all_.size(); ++l) {
            const bool in = (options_.op_types.empty() || any(options_.op_types, types_[l])) && (wanted.empty() || any(wanted, all_[l]));
            if (in && !any(kept, all_[l])) chosen.push_back(all_[l]);
        }
        if (!chosen.empty()) return chosen;
        std::string why;
        for (const std::string& r : remarks) why += "; " + r;
        throw error("no layer is left to search: the model has " + std::to_string(all_.size()) + " of Conv, ConvTranspose, Gemm, MatMul" +
                    why);
    }

  private:
    static bool any(const std::vector<std::string>& patterns, const std::string& name) {
        return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& p) { return glob_match(p, name); });
    }

    /// Throws for a word that is no operator. A type that the model merely lacks only gives a remark.
    void check_type(const std::string& type, std::vector<std::string>& remarks) const {
        if (std::any_of(types_.begin(), types_.end(), [&](const std::string& t) { return glob_match(type, t); })) return;
        const std::vector<std::string> searched{"Conv", "ConvTranspose", "Gemm", "MatMul"};
        if (!is_glob(type) && find_op("", type, newest_opset) == nullptr && !any(searched, type))
            throw error("--op-types '" + type + "' matches no layer of the model." + did_you_mean(type, searched));
        const bool could = std::any_of(searched.begin(), searched.end(), [&](const std::string& t) { return glob_match(type, t); });
        remarks.push_back("--op-types " + type +
                          (could ? ": the model has no such layer"
                                 : ": such layers have no formats to search; Conv, ConvTranspose, Gemm and MatMul have"));
    }

    /// Returns the names, with layers that folding removed replaced by the layers that they became part of.
    std::vector<std::string> current(const std::vector<std::string>& names, const char* option, std::vector<std::string>& remarks) const {
        std::vector<std::string> now;
        for (const std::string& name : names) {
            if (std::any_of(all_.begin(), all_.end(), [&](const std::string& n) { return glob_match(name, n); })) {
                now.push_back(name);
                continue;
            }
            if (add_module(name, now)) continue;
            const auto became = successors_of_node(model_, name);
            const auto layer =
                std::find_if(became.begin(), became.end(), [&](const successor& s) { return s.is_node && any(all_, s.name); });
            if (layer == became.end()) throw error(std::string(option) + " '" + name + "' " + no_layer(name));
            remarks.push_back(std::string(option) + " '" + name + "' is part of '" + layer->name + "' now: " + layer->why);
            now.push_back(layer->name);
        }
        return now;
    }

    /// Adds the layers of a module of torch: those that the name or pattern means, else those that lie in that module.
    bool add_module(const std::string& name, std::vector<std::string>& now) const {
        const std::size_t before = now.size();
        for (std::size_t l = 0; l < all_.size(); ++l)
            if (!modules_[l].empty() && (is_glob(name) ? glob_match(name, modules_[l]) : is_in_module(modules_[l], name)))
                now.push_back(all_[l]);
        return now.size() > before;
    }

    std::string no_layer(const std::string& name) const {
        std::vector<std::string> others;
        for (const auto& n : model_.graph().node())
            if (glob_match(name, n.name())) others.push_back(n.name());
        std::vector<std::string> known = all_;
        for (const std::string& path : modules_)
            if (!path.empty()) known.push_back(path);
        const std::string near = did_you_mean(name, known);
        if (others.empty()) return "matches no layer of the model." + near;
        return "matches only what has no formats to search (" + listed(others) + "): Conv, ConvTranspose, Gemm and MatMul have." + near;
    }

    const model& model_;
    const mix_options& options_;
    std::vector<std::string> all_, types_, modules_;
};

}  // namespace qk::graph::detail
