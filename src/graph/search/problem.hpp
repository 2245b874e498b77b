// SPDX-License-Identifier: Apache-2.0
// Makes a problem from options: which layers are searched, the plan of each option, the cost of each choice.
#pragma once

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "graph/model/check.hpp"
#include "graph/ops/op.hpp"
#include "graph/search/cache.hpp"
#include "graph/search/latency.hpp"
#include "graph/search/options.hpp"
#include "qk/graph/base/names.hpp"
#include "qk/graph/model/torch_names.hpp"
#include "qk/graph/plan/layers.hpp"
#include "qk/graph/quantize/remarks.hpp"
#include "qk/graph/search/choose_method.hpp"
#include "qk/graph/search/search.hpp"

namespace qk::graph {
namespace detail {

// Applies --op-types, --layers and --exclude to a model: which layers are searched, in graph order.

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

/// Requests every searched layer at `at` and the others at `wide`; the fixed requests override both.
inline std::vector<request> uniform_requests(const layer_view& layers, const std::vector<std::string>& searched, const format_pair& at,
                                             const format_pair& wide, const mix_options& options) {
    precision_requests requests;
    requests.set_default(at.activation, at.weight);
    const std::set<std::string> in(searched.begin(), searched.end());
    for (const int n : layers.compute_layers()) {
        const std::string& name = layers.source().graph().node(n).name();
        if (in.contains(name)) continue;
        for (const auto& [r, what] : {std::pair{role::input, wide.activation}, std::pair{role::weight, wide.weight}}) {
            requests.add({.scope = scope::layer, .role = r, .name = name, .what = what, .origin = "not searched", .quiet = true});
        }
    }
    for (const request& r : options.fixed) requests.add(r);
    return requests.list();
}

}  // namespace detail

inline const char* name_of(cost_kind k) {
    constexpr const char* names[] = {"auto", "size", "bit_operations", "latency"};
    return names[static_cast<int>(k)];
}

inline mix_problem::mix_problem(const model& m, const named_tensors& inputs, const calibration& seen, const mix_options& options)
    : model_(&m), plans_(m, &seen), rounded_(options.rounded ? options.rounded : std::make_shared<rounded_weights>()) {
    const layer_view& layers = plans_.layers();
    remarks_ = options.remarks;
    searched_ = detail::layer_selection(layers, options).choose(remarks_);
    const option_list all = list_options(options);
    scorer_.emplace(m, inputs, options.scoring);

    quantize_options how = options.quantize;
    how.per_channel = options.per_channel;
    how.dual = true;  // each layer may read a tensor in its own format
    if (how.best_method && !seen.empty()) settle_method(all, options, how);
    std::vector<precision_plan> uniform;
    std::vector<std::vector<plan_note>> of_options;
    for (const format_pair& pair : all.pairs) {
        quantize_result made = plan_for(pair, all, options, how);
        of_options.push_back(std::move(made.report.notes));
        if (pair.rounding != weight_rounding::nearest || options.pair_safe) round_weights(made.plan, pair.rounding, inputs, options);
        uniform.push_back(std::move(made.plan));
    }
    remember_fixed(options, of_options);
    rounded_->hand_to(*scorer_);
    mix_.emplace(layers, std::move(uniform), searched_);
    if (mix_->layers().empty()) throw error("wide and narrow formats give every searched layer the same precision: nothing to search");
    space_.layers = mix_->layers();
    space_.options = all.texts;
    if (!options.choices.empty()) space_.offered = offered_options(all, layers, space_.layers, options.choices, remarks_);
    measure_costs(layers, seen, options);
    if (options.baseline_wide) scorer_->set_reference(mix_->plan(space_.all(0)));
}

/// Makes the plan with every searched layer at one option; fixed quantizers and accumulators replace its own.
inline quantize_result mix_problem::plan_for(const format_pair& pair, const option_list& all, const mix_options& options,
                                             const quantize_options& how) {
    quantize_options lenient = how;
    lenient.strict = lenient.strict_all = false;  // remember_fixed() knows what counts under all options together
    quantize_result made =
        plans_.plan(detail::uniform_requests(plans_.layers(), searched_, pair, all.pairs.front(), options), lenient, false);
    for (const auto& [name, q] : options.fixed_plan.tensors) made.plan.tensors[name] = q;
    for (const auto& [where, q] : options.fixed_plan.edges) made.plan.edges[where] = q;
    made.plan.accumulators = options.fixed_plan.accumulators;
    return made;
}

/// Settles --calibration-method best: takes the method under which the model, narrow everywhere, scores best by the search's metric.
inline void mix_problem::settle_method(const option_list& all, const mix_options& options, quantize_options& how) {
    how.best_method = false;
    const std::size_t narrow = all.general.empty() ? 1 : all.general.front();
    const method_choice choice = choose_method(
        [&](range_method method) {
            how.method = method;
            return plan_for(all.pairs[narrow], all, options, how).plan;
        },
        *plans_.seen(), *scorer_);
    how.method = choice.method();
    std::string tried;
    for (const method_choice::trial& t : choice.tried) {
        char value[40];
        std::snprintf(value, sizeof value, " %.6g", t.metric);
        tried += (tried.empty() ? "" : ", ") + std::string(name_of(t.method)) + value;
    }
    remarks_.push_back("calibration method " + std::string(name_of(choice.method())) + ", by " + choice.metric + " with " +
                       all.texts[narrow] + " everywhere: " + tried);
}

/// Rounds the weights of the searched layers as `how` says, and makes int8 pair-safe. Quantizers of a saved plan stay as they are.
inline void mix_problem::round_weights(precision_plan& plan, weight_rounding how, const named_tensors& inputs, const mix_options& options) {
    const named_tensors& samples = options.rounding_samples.empty() ? inputs : options.rounding_samples;
    std::vector<std::string> free;
    for (const std::string& layer : searched_) {
        const onnx::NodeProto& n = model_->graph().node(model_->node_index(layer));
        if (n.input_size() < 2 || options.fixed_plan.find({n.input(1), layer, 1}) == nullptr) free.push_back(layer);
    }
    const named_tensors& of_pairs = options.pair_samples.empty() ? samples : options.pair_samples;
    rounded_->round(*model_, plan, free, how, options.pair_safe, samples, of_pairs, {.threads = options.scoring.session.threads});
}

/// Adds remarks on the user's own requests that were not met or whose names changed. A request that has no effect under one option (an
/// exclusion where everything is float32 anyway) may have one under another, so only what no option does counts; with `strict` that is an
/// error.
inline void mix_problem::remember_fixed(const mix_options& options, const std::vector<std::vector<plan_note>>& of_options) {
    std::set<std::string> said;
    for (std::size_t o = 0; o < of_options.size(); ++o)
        for (const plan_note& n : of_options[o]) {
            const bool theirs =
                !n.origin.empty() && std::ranges::any_of(options.fixed, [&](const request& r) { return r.origin == n.origin; });
            const auto same = [&](const plan_note& m) { return m.what == n.what && m.origin == n.origin && m.subject == n.subject; };
            const bool in_all = std::ranges::all_of(of_options, [&](const auto& notes) { return std::ranges::any_of(notes, same); });
            if (theirs && n.what == plan_note::kind::unrealised && !in_all) continue;
            quantize_report alone;
            alone.notes = {n};
            throw_violations(alone, options.quantize);
            if (!theirs || o > 0 || !(is_violation(n) || n.what == plan_note::kind::renamed || n.what == plan_note::kind::absent)) continue;
            if (std::string line = remark_line(n); said.insert(line).second) remarks_.push_back(std::move(line));
        }
}

/// Is true when an option stores weights in other widths than wide does; scales and zero points alone do not count.
inline bool mix_problem::weights_differ() const {
    for (const std::string& layer : space_.layers) {
        const onnx::NodeProto& node = model_->graph().node(model_->node_index(layer));
        for (int i = 0; i < node.input_size(); ++i) {
            if (!model_->is_constant(node.input(i))) continue;
            const auto bits_at = [&](std::size_t o) {
                const quantizer* q = mix_->uniform(o).find({node.input(i), layer, i});
                return q ? bits_per_value(q->format) : 32.0;
            };
            for (std::size_t o = 1; o < space_.options.size(); ++o)
                if (bits_at(o) != bits_at(0)) return true;
        }
    }
    return false;
}

inline void mix_problem::measure_costs(const layer_view& layers, const calibration& seen, const mix_options& options) {
    const model& m = *model_;
    const std::size_t n_options = space_.options.size();
    std::vector<std::vector<double>> bits(space_.size(), std::vector<double>(n_options)), operations = bits;
    std::vector<double> float_bits(space_.size()), macs(space_.size());
    std::set<std::string> in_searched;
    const std::vector<torch_module> modules = torch_modules(m);
    for (std::size_t l = 0; l < space_.size(); ++l) {
        const int index = m.node_index(space_.layers[l]);
        const onnx::NodeProto& node = m.graph().node(index);
        op_types_.push_back(node.op_type());
        if (const std::string& path = modules[static_cast<std::size_t>(index)].path; !path.empty() && path != node.name())
            modules_[node.name()] = path;
        macs[l] = multiply_accumulates(layers, index, &seen);
        for (int i = 0; i < node.input_size(); ++i) {
            if (!m.is_constant(node.input(i))) continue;
            const bool first_use = in_searched.insert(node.input(i)).second;  // a shared weight is stored once
            const std::size_t elements = element_count(m.constant_shape(node.input(i)));
            const data_type type = layers.float_type(node.input(i));
            const double width = type == data_type::undefined ? 32.0 : 8.0 * double(size_of(type));
            if (first_use) float_bits[l] += width * double(elements);
            for (std::size_t o = 0; o < n_options && first_use; ++o) {
                const quantizer* q = mix_->uniform(o).find({node.input(i), node.name(), i});
                bits[l][o] += q ? qk::graph::stored_bits(*q, elements) : width * double(elements);
            }
        }
        for (std::size_t o = 0; o < n_options; ++o) {
            operations[l][o] = macs[l];
            for (int i = 0; i < 2 && i < node.input_size(); ++i) {
                const quantizer* q = mix_->uniform(o).find({node.input(i), node.name(), i});
                operations[l][o] *= q ? bits_per_value(q->format) : 32.0;
            }
        }
    }
    cost_kind kind = options.cost;
    if (!options.latency_table.empty()) kind = cost_kind::latency;
    if (kind == cost_kind::automatic) {
        kind = weights_differ() ? cost_kind::size : cost_kind::bit_operations;
    }
    space_.cost.assign(space_.size(), std::vector<double>(n_options));
    if (kind == cost_kind::size) {
        cost_unit_ = "bytes";
        const auto bytes_of = [&](const std::string& constant) {
            return double(element_count(m.constant_shape(constant)) * size_of(m.constant_type(constant)));
        };
        for (const auto& init : m.graph().initializer()) {
            if (!in_searched.contains(init.name())) space_.fixed_cost += bytes_of(init.name());
        }
        // Layers that are not searched: their planned weights cost what the plan stores.
        for (const int n : layers.compute_layers()) {
            const onnx::NodeProto& node = m.graph().node(n);
            for (int i = 0; i < node.input_size(); ++i) {
                const quantizer* q = m.is_constant(node.input(i)) ? mix_->uniform(0).find({node.input(i), node.name(), i}) : nullptr;
                if (!q || in_searched.contains(node.input(i))) continue;
                const std::size_t elements = element_count(m.constant_shape(node.input(i)));
                space_.fixed_cost += qk::graph::stored_bits(*q, elements) / 8 - bytes_of(node.input(i));
            }
        }
    } else if (kind == cost_kind::bit_operations) {
        cost_unit_ = "bit operations";
    }
    const latency_table table = kind == cost_kind::latency ? latency_table::load(options.latency_table) : latency_table{};
    if (kind == cost_kind::latency) {
        cost_unit_ = table.unit();
        for (const std::string& name : table.without_layer(space_.layers)) remarks_.push_back(name);
    }
    float_cost_ = kind == cost_kind::latency ? 0 : space_.fixed_cost;
    for (std::size_t l = 0; l < space_.size(); ++l) {
        for (std::size_t o = 0; o < n_options; ++o) {
            space_.cost[l][o] = kind == cost_kind::size ? bits[l][o] / 8
                                : kind == cost_kind::bit_operations
                                    ? operations[l][o]
                                    : table.cost(space_.layers[l], op_types_[l], macs[l], space_.options[o]);
        }
        if (kind == cost_kind::size) float_cost_ += float_bits[l] / 8;
        if (kind == cost_kind::bit_operations) float_cost_ += macs[l] * 32 * 32;
    }
}

namespace detail {

/// Orders candidates so that few values must be held for later ones: groups that branch off at an early layer come first, small groups
/// before large, so values that the rest share are computed when needed and freed when they branch. All agree on the layers before `layer`.
inline void order_by_branches(std::span<const assignment> candidates, std::span<std::size_t> which, std::size_t layer) {
    if (which.size() < 3) return;
    for (; layer < candidates[which[0]].size(); ++layer) {
        std::map<std::uint8_t, std::vector<std::size_t>> by_option;
        for (const std::size_t i : which) by_option[candidates[i][layer]].push_back(i);
        if (by_option.size() == 1) continue;
        std::vector<std::vector<std::size_t>> groups;
        for (auto& [option, group] : by_option) groups.push_back(std::move(group));
        std::stable_sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
        std::size_t begin = 0;
        for (const auto& group : groups) {
            const auto part = which.subspan(begin, group.size());
            std::copy(group.begin(), group.end(), part.begin());
            order_by_branches(candidates, part, layer + 1);
            begin += group.size();
        }
        return;
    }
}

}  // namespace detail

inline std::vector<score> mix_problem::evaluate(std::span<const assignment> candidates) {
    std::vector<std::size_t> order(candidates.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    detail::order_by_branches(candidates, order, 0);
    std::vector<precision_plan> plans;
    for (const std::size_t i : order) plans.push_back(mix_->plan(candidates[i]));
    const auto scores = (*scorer_)(plans);
    auto result = scores;
    const std::span<const metric_terms> terms = scorer_->last_terms();
    const std::size_t n = terms.size() / std::max<std::size_t>(order.size(), 1);
    for (std::size_t i = 0; i < order.size(); ++i) {
        result[order[i]] = scores[i];
        if (n > 0 && (terms_.size() + 1) * n * sizeof(metric_terms) <= std::size_t{64} << 20)
            terms_[candidates[order[i]]].assign(terms.begin() + static_cast<std::ptrdiff_t>(i * n),
                                                terms.begin() + static_cast<std::ptrdiff_t>((i + 1) * n));
    }
    return result;
}

inline std::optional<measured_difference> mix_problem::compare(const assignment& before, const assignment& after) {
    const auto b = terms_.find(before), a = terms_.find(after);
    if (b != terms_.end() && a != terms_.end()) return difference_of(scorer_->measure(), b->second, a->second);
    return scorer_->compare(mix_->plan(before), mix_->plan(after));
}

}  // namespace qk::graph
