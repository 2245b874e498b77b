// SPDX-License-Identifier: Apache-2.0
// What lies beside a weight: factors that its layer applies, tensors that say something else, and those that no rule explains. The last are
// named, because a factor that nobody knows is a weight that is read wrongly.
#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <unordered_map>

#include "parts.hpp"

namespace qk::checkpoint {
namespace {

/// Tensors beside a weight that do not change it: scales of activations and of the KV cache, shapes, orders that were read already. Behind
/// "weight_", or the name of a weight that has no module of its own, they mean the same.
constexpr std::string_view known[] = {"bias",
                                      "shape",
                                      "g_idx",
                                      "comfy_quant",
                                      "input_scale",
                                      "output_scale",
                                      "input_global_scale",
                                      "scale_input",
                                      "k_scale",
                                      "v_scale",
                                      "q_scale",
                                      "kv_scale",
                                      "prob_scale",
                                      "k_bias",
                                      "v_bias",
                                      "q_zero_point",
                                      "k_zero_point",
                                      "v_zero_point",
                                      "input_zero_point",
                                      "scale_2",
                                      "output_zero_point",
                                      "scale_shift_table",
                                      "qscale_act",
                                      "input_scale_ub",
                                      "activation_scale"};
/// What a tensor beside plain floats is called, if it might belong to codes.
constexpr std::string_view suspicious[] = {"scale",  "smooth",    "lora_a",      "lora_b",   "svdquant", "zero_point", "zeros",
                                           "absmax", "quant_map", "quant_state", "codebook", "hadamard", "rotation"};

class neighbour_finder {
  public:
    explicit neighbour_finder(checkpoint& c) : c_(c) {
        for (std::size_t i = 0; i < c.tensors.size(); ++i) by_name_.emplace(c.tensors[i].name, static_cast<int>(i));
        for (const weight& w : c.weights)
            if (w.quantized)
                for (const int part : {w.codes, w.scales, w.zeros, w.global, w.group_of}) parts_.insert(part);
            else parts_.insert(w.global);
    }

    void find() {
        std::unordered_map<std::string, std::size_t> weights;
        for (std::size_t k = 0; k < c_.weights.size(); ++k) weights.emplace(c_.weights[k].name, k);
        for (weight& w : c_.weights) take_factor(w);
        for (std::size_t i = 0; i < c_.tensors.size(); ++i) {
            if (parts_.contains(static_cast<int>(i))) continue;
            const std::string& name = c_.tensors[i].name;
            for (std::size_t at = name.size(); at-- > 1;) {
                if (name[at] != '.' && name[at] != '_') continue;
                // `M.leaf` beside `M.weight`; `M.experts.down_proj_leaf` and `M.weight.leaf` below a weight of just this name
                const bool module = name[at] == '.';
                auto found = module ? weights.find(name.substr(0, at) + ".weight") : weights.end();
                if (found == weights.end()) found = weights.find(name.substr(0, at));
                if (found != weights.end() && c_.weights[found->second].codes != static_cast<int>(i)) {
                    judge(c_.weights[found->second], c_.tensors[i], std::string_view(name).substr(at + 1));
                    break;
                }
                if (module) break;
            }
        }
    }

  private:
    /// ModelOpt's AWQ: the layer multiplies its input by a vector before it multiplies by the codes.
    void take_factor(weight& w) {
        const std::string base = w.name.ends_with(".weight") ? w.name.substr(0, w.name.size() - 6) : w.name + "_";
        const auto found = by_name_.find(base + "pre_quant_scale");
        if (found == by_name_.end() || w.shape.size() < 2) return;
        const stored_tensor& t = c_.tensors[static_cast<std::size_t>(found->second)];
        const std::uint64_t n = t.elements(), columns = w.shape.back(), inputs_first = w.shape[w.shape.size() - 2];
        const bool fits = n == columns || (w.shape.size() == 3 && n == inputs_first);
        if (!is_float_type(t.type) || !fits) {
            c_.findings.push_back({t.name, "wrong_shape",
                                   t.name + " is " + t.type + " " + text_of(t.shape) + "; a factor for each of the " +
                                       std::to_string(columns) + " columns of " + w.name + " is expected"});
            return;
        }
        w.input_factor = found->second;
        parts_.insert(found->second);
    }
    static bool all_zero(const stored_tensor& t) {
        return std::ranges::all_of(t.data, [](std::byte b) { return b == std::byte{0}; });
    }
    void judge(const weight& w, const stored_tensor& t, std::string_view leaf) {
        const std::string_view own = leaf.starts_with("weight_") ? leaf.substr(7) : leaf;
        if (leaf == "weight" || std::ranges::find(known, own) != std::end(known)) return;
        if (own == "zero_point" && all_zero(t)) return;  // symmetric codes, whose zero points a writer kept
        std::string lower(leaf);
        std::ranges::transform(lower, lower.begin(), [](unsigned char ch) { return static_cast<char>(std::tolower(ch)); });
        const bool suspected = std::ranges::any_of(suspicious, [&](std::string_view s) { return lower.find(s) != std::string::npos; });
        if (!suspected && !w.quantized) return;
        c_.findings.push_back({t.name, "unexplained",
                               t.name + " (" + t.type + " " + text_of(t.shape) + ") lies beside " + w.name +
                                   ", and no rule says what it does to it: it is passed over"});
    }

    checkpoint& c_;
    std::unordered_map<std::string, int> by_name_;
    std::set<int> parts_;
};

}  // namespace

void find_neighbours(checkpoint& c) { neighbour_finder(c).find(); }

std::vector<std::string> remarks_of(const checkpoint& c) {
    struct kind_of_finding {
        std::string first;
        std::size_t count = 0;
    };
    std::map<std::pair<std::string, std::string>, kind_of_finding> kinds;
    std::vector<std::pair<std::string, std::string>> order;
    for (const finding& f : c.findings) {
        const auto dot = f.tensor.rfind('.');
        const std::pair key(f.kind, dot == std::string::npos ? std::string() : f.tensor.substr(dot));
        kind_of_finding& k = kinds[key];
        if (k.count++ == 0) k.first = f.sentence, order.push_back(key);
    }
    std::vector<std::string> all;
    for (const auto& key : order) {
        const kind_of_finding& k = kinds[key];
        all.push_back(k.first + (k.count == 1 ? "" : " (and " + std::to_string(k.count - 1) + " more like it; qk lint names each)"));
    }
    return all;
}

}  // namespace qk::checkpoint
