// SPDX-License-Identifier: Apache-2.0
// The planner: resolved requests and ranges become quantizers. The file is long because every kind of value (weight, activation, bias,
// mask, empty cache) gets its scale here, and each asks the others' tables.
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "graph/model/element_source.hpp"
#include "graph/ops/elements.hpp"
#include "graph/ops/widened.hpp"
#include "graph/plan/operand_tables.hpp"
#include "graph/quantize/bias_codes.hpp"
#include "graph/quantize/collect_requests.hpp"
#include "graph/quantize/plan_remarks.hpp"
#include "graph/quantize/softmax_masks.hpp"
#include "qk/graph/base/format_text.hpp"
#include "qk/graph/base/names.hpp"
#include "qk/graph/base/tensor.hpp"
#include "qk/graph/calibrate/scales.hpp"
#include "qk/graph/calibrate/statistics.hpp"
#include "qk/graph/model/attribute.hpp"
#include "qk/graph/model/model.hpp"
#include "qk/graph/plan/layers.hpp"
#include "qk/graph/quantize/planner.hpp"

namespace qk::graph {
namespace detail {

// Finds tensors of which calibration saw no value although it ran the model: empty caches, and results of nodes that read nothing else.

inline bool is_never_filled(const layer_view& layers, const calibration& seen, const std::string& tensor, int depth = 0) {
    const model& m = layers.source();
    if (seen.tensors.contains(layers.root(tensor)) || seen.tensors.contains(tensor) || !layers.is_float(tensor) || depth > 8) return false;
    if (std::ranges::any_of(m.inputs(), [&](const value_info& i) { return i.name == tensor; })) return true;
    const int p = m.producer(tensor);
    if (p < 0) return false;
    const auto& inputs = m.graph().node(p).input();
    const auto is_data = [&](const std::string& i) { return layers.is_float(i); };
    return std::ranges::any_of(inputs, is_data) &&
           std::ranges::all_of(inputs, [&](const std::string& i) { return !is_data(i) || is_never_filled(layers, seen, i, depth + 1); });
}

// Finds tensors that hold a mask: values near the lowest of their type, which no scale can hold together with others.

/// Is true when a range reaches a mask's values. Exporters mask with the lowest float32 (-3.4e38) or float16 (-65504), with half of it, or
/// with 1e30 and more.
inline bool holds_mask(const value_range& r, data_type type) {
    const double largest = std::max(std::fabs(static_cast<double>(r.lo)), std::fabs(static_cast<double>(r.hi)));
    return largest >= (type == data_type::float16 ? 32752.0 : 1e30);
}

/// Is true when an activation holds such values, or Inf or NaN, beside finite ones.
inline bool holds_mask(const tensor_statistics& s, data_type type) {
    return s.count > s.not_finite && (s.not_finite > 0 || holds_mask(s.range, type));
}
inline bool holds_mask(std::span<const float> constant, data_type type) {
    return holds_mask(range_of(constant), type) || std::ranges::any_of(constant, [](float v) { return !std::isfinite(v); });
}

/// Says why a tensor that holds a mask is left alone. `seen` is null for a weight, or where calibration saw no sample; `softmax` is the
/// mask's range where a Softmax tells that it is one.
inline std::string mask_sentence(const tensor_statistics* seen, const value_range* softmax) {
    constexpr const char* why = ", which no scale can hold together with other values: left as it is";
    if (seen != nullptr && seen->nan > 0)
        return "calibration saw NaN in " + std::to_string(seen->nan) + " of its " + std::to_string(seen->count) +
               " values, first in sample " + std::to_string(seen->nan_sample) + " (from 0): left as it is";
    const bool finite = seen == nullptr || seen->not_finite == 0;
    if (softmax != nullptr && finite) {
        const double lowest = static_cast<double>(std::fabs(softmax->lo) > std::fabs(softmax->hi) ? softmax->lo : softmax->hi);
        return formatted("holds a mask (values down to %.6g, which Softmax makes 0)%s", lowest, why);
    }
    if (seen == nullptr) return std::string("holds a mask (a constant that is infinite or the lowest of its type goes into it)") + why;
    return formatted("holds a mask (%svalues from %.3g to %.3g)%s", finite ? "" : "Inf beside ", static_cast<double>(seen->range.lo),
                     static_cast<double>(seen->range.hi), why);
}

/// Tensors that hold a mask as the graph alone tells: results of a constant mask, as long as operators pass its values on.
class masks_of_constants {
  public:
    bool contains(const model& m, const std::string& tensor) {
        if (!found_) find(m);
        return found_->contains(tensor);
    }

  private:
    /// Is true when a result holds the values of this input. A constant among those that are chosen from is a bound, or a table.
    static bool passes(const op_facts& is, int input, bool constant) { return is.passes(input) && !(constant && is.has(ops::chooses)); }
    static bool is_mask(const model& m, const std::string& name) {
        const data_type type = m.constant_type(name);
        const bool real = type == data_type::float32 || type == data_type::float16 || type == data_type::bfloat16;
        if (!real || element_count(m.constant_shape(name)) > std::size_t{1} << 22) return false;
        const tensor t = m.constant(name);
        std::vector<float> values(t.size());
        return ops::read_elements(t.type(), t.bytes(), std::span<float>(values)) && holds_mask(std::span<const float>(values), type);
    }
    void find(const model& m) {
        found_.emplace();
        for (const onnx::NodeProto& n : m.graph().node()) {  // in network order
            if (!n.domain().empty() && n.domain() != "ai.onnx") continue;
            bool holds = false;
            if (const onnx::AttributeProto* filled = find_attribute(n, "value"); filled != nullptr && filled->has_t()) {
                const tensor one = node_view(n, 9).get_tensor("value");  // of a ConstantOfShape
                holds = one.type() == data_type::float32 && holds_mask(one.as<float>(), one.type());
            }
            for (int k = 0; k < n.input_size() && !holds; ++k) {
                const bool constant = m.is_constant(n.input(k));
                holds = passes(facts_of(n), k, constant) && (constant ? is_mask(m, n.input(k)) : found_->contains(n.input(k)));
            }
            if (holds) found_->insert(n.output().begin(), n.output().end());
        }
    }
    std::optional<std::set<std::string>> found_;
};

inline std::string destroyed_sentence(const edge_report& line) {
    return to_string(line.how.format) +
           formatted(" leaves little of it (%.1f dB; its values lie between %.3g and %.3g): most become 0 or clip", line.sqnr,
                     static_cast<double>(line.range.lo), static_cast<double>(line.range.hi));
}

/// Returns whether a bias is asked for as int32 without a scale. Rules for choosing scales, such as powers of two, say nothing there: s_x
/// * s_w follows from scales that obeyed them.
inline bool is_free_int32(const precision& p) {
    const integer* f = std::get_if<integer>(&p.format);
    return f != nullptr && f->bits == 32 && f->is_signed && p.scale.empty();
}

inline bool needs_range(const precision& p) {
    if (p.dynamic || p.range || !p.scale.empty()) return false;
    if (is_integer_format(p.format) || is_table_format(p.format)) return true;
    const floating* f = std::get_if<floating>(&p.format);
    return f != nullptr && is_scaled(*f);
}

/// Maps inputs of a Concat that nobody else reads to its result, whose scale they take: rounding once to that scale loses less than
/// rounding to a finer one and then again, and runtimes copy bytes instead of converting them.
inline std::map<std::string, std::string> joined_tensors(const layer_view& layers, const std::map<edge, edge_precision>& edges) {
    std::map<std::string, std::string> joined;
    const model& m = layers.source();
    const auto asked = [&](const std::string& tensor, const model::use& u) -> const precision* {
        const auto found = edges.find({tensor, u.node < 0 ? std::string() : m.graph().node(u.node).name(), u.input});
        return found == edges.end() ? nullptr : found->second.what;
    };
    for (const auto& node : m.graph().node()) {
        if (!facts_of(node).has(ops::joins) || m.uses(node.output(0)).empty()) continue;
        const precision* result = asked(node.output(0), m.uses(node.output(0))[0]);
        if (result == nullptr || !is_integer_format(result->format) || !needs_range(*result)) continue;
        for (const std::string& in : node.input()) {
            if (m.is_constant(in) || m.uses(in).size() != 1 || layers.root(in) != in) continue;
            const precision* own = asked(in, m.uses(in)[0]);
            if (own != nullptr && *own == *result) joined[in] = node.output(0);
        }
    }
    return joined;
}
/// Returns the magnitude from which values round to no finite number; nullopt for formats whose scale follows the values.
inline std::optional<double> overflow_from(const precision& what) {
    const floating* f = std::get_if<floating>(&what.format);
    if (f == nullptr || is_identity(what.format) || is_scaled(*f) || !what.scale.empty() || what.range) return std::nullopt;
    return max_value(*f) + 0.5 * power_of_two(max_exponent(*f) - f->mantissa_bits);
}
/// Says what becomes of such values.
inline std::string overflow_sentence(const precision& what, const value_range& seen) {
    const floating f = std::get<floating>(what.format);
    const overflow_rule rule = semantics_of(what).overflow;
    const bool cut = rule == overflow_rule::saturate || (rule == overflow_rule::by_width && bits(f) <= 8) || !has_nan(f);
    return formatted("values from %.6g to %.6g, and %s ends at %.6g: what lies beyond becomes %s", static_cast<double>(seen.lo),
                     static_cast<double>(seen.hi), to_string(what.format).c_str(), max_value(f),
                     cut               ? "that"
                     : has_infinity(f) ? "Inf"
                                       : "NaN");
}
inline double largest_of(const value_range& r) {
    return std::max(std::fabs(static_cast<double>(r.lo)), std::fabs(static_cast<double>(r.hi)));
}

/// Is true when values as low as a mask's ruin a format: one scale, or a block's, is for all, or they overflow.
inline bool cannot_hold(const precision& what, const value_range& mask) {
    const floating* f = std::get_if<floating>(&what.format);
    if (is_identity(what.format) || what.range || !what.scale.empty()) return false;  // a given range cuts the mask, as asked
    if (f == nullptr || is_scaled(*f)) return true;
    const auto limit = overflow_from(what);
    return limit && largest_of(mask) >= *limit;
}
/// Is true for values so small that the scale for them would be no normal float32 and is 1 instead.
inline bool below_any_scale(const quantizer& q, const value_range& r) {
    const bool ones = !q.scale.empty() && std::ranges::all_of(q.scale, [](float s) { return s == 1.0f; });
    return ones && largest_of(r) > 0 && largest_of(r) < 1e-30;
}
inline bool made_of_constants(const model& m, const std::string& tensor) {
    const int i = m.producer(tensor);
    return i >= 0 && std::ranges::all_of(m.graph().node(i).input(), [&](const std::string& in) { return in.empty() || m.is_constant(in); });
}
}  // namespace detail

precision completed(precision what, const quantize_options& options, bool weight, const std::string& op_type) {
    if (options.target) options.target->complete(what, op_type, weight);
    if (!what.scale_rule && !what.semantics) what.scale_rule = options.scale_rule;
    if (!what.scale_objective && !what.semantics) what.scale_objective = options.scale_objective;
    if (!what.semantics) what.semantics = options.semantics;
    if (!weight) return what;
    if (!what.per_channel) what.per_channel = options.per_channel && is_integer_format(what.format);
    if (!what.method) what.method = options.weight_method;
    if (const integer* f = std::get_if<integer>(&what.format); options.unshifted && f != nullptr && f->is_signed && !what.symmetric)
        what.symmetric = true;
    return what;
}

precision_plan gather(std::map<edge, quantizer> chosen, const model& m) {
    precision_plan plan;
    for (auto i = chosen.begin(); i != chosen.end();) {
        auto end = i;
        std::size_t count = 0;
        bool same = true;
        for (; end != chosen.end() && end->first.tensor == i->first.tensor; ++end, ++count) same = same && end->second == i->second;
        if (same && count == m.uses(i->first.tensor).size()) {
            plan.tensors[i->first.tensor] = std::move(i->second);
            i = chosen.erase(i, end);
        } else {
            while (i != end) plan.edges.insert(plan.edges.end(), chosen.extract(i++));
        }
    }
    return plan;
}

planner::planner(const model& m, const calibration* seen, const calibration* reported)
    : model_(&m), seen_(seen), reported_(reported != nullptr ? reported : seen), layers_(m) {}

tensor planner::constant(const std::string& name) {
    if (const auto found = values_.find(name); found != values_.end()) return found->second;
    if (largest_.first == name) return largest_.second;
    if (4 * element_count(model_->constant_shape(name)) < smallest_outside) return values_[name] = ops::widened(model_->constant(name));
    largest_ = {};  // frees the last one: all large constants together are the model
    largest_ = {name, ops::widened(model_->constant(name))};
    return largest_.second;
}

quantizer& planner::constant_quantizer(const std::string& name, const precision& what, const operand_axes& axes) {
    auto& entries = constants_[name];
    for (constant_entry& e : entries)
        if (e.what == what && e.axes.block == axes.block && e.axes.channel == axes.channel && e.axes.flatten == axes.flatten) return e.how;
    entries.push_back({what, axes, weight_quantizer(constant(name), what, axes)});
    return entries.back().how;
}

const planner::constant_facts& planner::facts_of(const std::string& name) {
    const auto [at, is_new] = facts_.try_emplace(name);
    if (!is_new) return at->second;
    const tensor value = constant(name);
    const std::span<const float> x = value.as<float>();
    constant_facts& facts = at->second;
    facts.range = range_of(x), facts.size = x.size();
    for (const float v : x) facts.nan += std::isnan(v), facts.infinite += std::isinf(v);
    return facts;
}

const value_range* planner::mask_before_softmax(const std::string& tensor) {
    if (!softmax_masks_) softmax_masks_ = masks_before_softmax(layers_, seen_);
    const auto found = softmax_masks_->find(tensor);
    return found == softmax_masks_->end() ? nullptr : &found->second;
}

const tensor_statistics* planner::statistics_of(const std::string& tensor) const {
    if (seen_ == nullptr) return nullptr;
    for (const std::string* name : {&layers_.root(tensor), &tensor})  // moved values share the range of their source
        if (const auto found = seen_->tensors.find(*name); found != seen_->tensors.end()) return &found->second;
    return nullptr;
}

value_range planner::range_for(const std::string& tensor, const precision& what, const quantize_options& options) {
    if (what.range) return {what.range->first, what.range->second};
    const tensor_statistics* s = statistics_of(tensor);
    if (s == nullptr) {
        if (model_->is_constant(tensor)) return range_of(constant(tensor).as<float>());
        throw error("tensor '" + tensor + "' has no calibrated range, which the format " + to_string(what.format) +
                    " needs: give --calibration data, or use a dynamic or block format");
    }
    range_options o{.method = what.method.value_or(options.method),
                    .percentile = what.percentile.value_or(options.percentile),
                    .format = what.format,
                    .symmetric = is_symmetric(what, false)};
    auto& known = ranges_[layers_.root(tensor)];
    for (const auto& [k, r] : known)
        if (k.method == o.method && k.percentile == o.percentile && k.format == o.format && k.symmetric == o.symmetric) return r;
    const value_range r = choose_range(*s, o, tensor);
    known.emplace_back(o, r);
    return r;
}

/// Turns resolved requests into quantizers, layer by layer: weights and activations first, then the bias from their scales.
class planner::call {
  public:
    call(planner& own, const std::vector<request>& requests, const quantize_options& options)
        : own_(own),
          requests_(requests),
          options_(options),
          found_(resolve(own.layers_, requests, options.resolving())),
          joined_(detail::joined_tensors(own.layers_, found_.edges)),
          notes_(result_.report.notes) {
        notes_ = std::move(found_.notes);
    }

    quantize_result run(bool detailed) {
        std::map<int, layer> layers;
        for (auto& [e, p] : found_.edges) layers[p.node].edges.emplace_back(&e, &p);
        for (auto& [n, l] : layers) {
            l.index = n, l.node = n < 0 ? nullptr : &source().graph().node(n);
            if (!target_allows(l)) continue;
            for (const auto& [e, p] : l.edges) {
                if (p->part == part::bias) l.bias = e, l.bias_precision = p;
                else if (p->part == part::weight) weight(l, *e, *p);
                else activation(l, *e, *p);
            }
            if (l.bias != nullptr) bias(l);
        }
        gather_plan();
        if (detailed) describe();
        return std::move(result_);
    }

  private:
    using part = layer_view::part;

    /// A node (or the model's outputs) with its edges and their quantizers.
    struct layer {
        int index = -1;
        const onnx::NodeProto* node = nullptr;  ///< null: the model's outputs
        std::vector<std::pair<const edge*, edge_precision*>> edges;
        const quantizer* activation = nullptr;
        quantizer* weight = nullptr;
        const edge* bias = nullptr;
        const edge_precision* bias_precision = nullptr;
    };

    const graph::model& source() const { return *own_.model_; }
    void note(plan_note::kind what, std::string subject, std::string text, std::string origin, int place = -1) {
        notes_.push_back({what, std::move(subject), std::move(text), std::move(origin), place});
    }

    /// Returns the tensor whose range a tensor takes: the result of the Concat that it goes into if joined_ has it, else itself.
    const std::string& ranged_as(const std::string& tensor) const {
        const std::string* name = &tensor;
        for (auto i = joined_.find(*name); i != joined_.end(); i = joined_.find(*name)) name = &i->second;
        return *name;
    }

    bool target_allows(const layer& l) {
        if (!options_.target) return true;
        const bool mover = l.node == nullptr || own_.layers_.nodes()[static_cast<std::size_t>(l.index)].kind == layer_kind::mover;
        std::vector<precision> activations;
        const precision* weight = nullptr;
        for (const auto& [e, p] : l.edges) {
            if (p->what == nullptr) continue;
            if (p->part == part::input && !is_identity(p->what->format)) activations.push_back(*p->what);
            if (p->part == part::weight) weight = p->what;
        }
        if (activations.empty() && weight == nullptr) return true;
        const bool dynamic = options_.how == approach::dynamic;
        // What moves data, and the model's outputs, have every format that the runtime has at all.
        if (mover)
            return !options_.target->operators.contains("*") || options_.target->obstacle("*", activations, nullptr, dynamic).empty();
        const precision plain;  // of weights that nobody asks to quantize
        if (weight == nullptr && kind_of(*l.node) == layer_kind::compute && l.node->input_size() > 1 &&
            source().is_constant(l.node->input(1)))
            weight = &plain;
        const std::string why = options_.target->obstacle(l.node->op_type(), activations, weight, dynamic);
        if (why.empty()) return true;
        note(plan_note::kind::left_out, "layer '" + l.node->name() + "'", options_.target->name + " " + why + ": left in float32",
             l.edges.front().second->origin, l.index);
        return false;
    }

    void weight(layer& l, const edge& e, const edge_precision& p) {
        precision what = completed(*p.what, options_, true, l.node != nullptr ? l.node->op_type() : "");
        if (what.rounding && l.node != nullptr) result_.rounding[l.node->name()] = *what.rounding;
        what.rounding.reset();
        const bool product = own_.layers_.nodes()[static_cast<std::size_t>(l.index)].kind == layer_kind::compute;
        if (!product && leaves_mask(e.tensor, what, p.origin)) return;
        note_values(l, e, what, "weight", p.origin);
        l.weight = &(chosen_[e] = own_.constant_quantizer(e.tensor, what, weight_axes(own_.layers_, l.index, e.index)));
        note_tiny(*l.weight, own_.facts_of(e.tensor).range, "weight '" + e.tensor + "' of '" + e.consumer + "'", p.origin, l.index);
    }

    /// Leaves a constant as it is, with a note, if it holds a mask or NaN.
    bool leaves_mask(const std::string& constant, const precision& what, const std::string& origin) {
        if (is_identity(what.format)) return false;
        const constant_facts& facts = own_.facts_of(constant);
        const value_range* softmax = own_.mask_before_softmax(constant);
        const bool mask = detail::holds_mask(facts.range, own_.layers_.float_type(constant)) || facts.infinite > 0 ||
                          (softmax != nullptr && detail::cannot_hold(what, *softmax));
        if (facts.nan > 0 && without_range_.insert(constant).second)
            note(plan_note::kind::unrealised, "tensor '" + constant + "'", "holds NaN in " + counted(facts.nan, facts) + ": left as it is",
                 origin, detail::place_of(source(), constant));
        else if (mask && facts.nan == 0) note_mask(constant, nullptr, origin);
        return mask || facts.nan > 0;
    }
    static std::string counted(std::size_t some, const constant_facts& all) {
        return std::to_string(some) + " of its " + std::to_string(all.size) + " values";
    }
    /// Notes values of a weight or bias that its format has no code for.
    void note_values(const layer& l, const edge& e, const precision& what, const char* role, const std::string& origin) {
        if (is_identity(what.format)) return;
        const constant_facts& facts = own_.facts_of(e.tensor);
        const auto limit = detail::overflow_from(what);
        const auto say = [&](const std::string& text) {
            note(plan_note::kind::unrealised, std::string(role) + " '" + e.tensor + "' of '" + e.consumer + "'", text, origin, l.index);
        };
        if (facts.nan + facts.infinite > 0)
            say(counted(facts.nan + facts.infinite, facts) + " are NaN or Inf" +
                (is_integer_format(what.format) ? ", and the codes that stand for them are finite" : ""));
        if (limit && detail::largest_of(facts.range) >= *limit) say("it has " + detail::overflow_sentence(what, facts.range));
    }
    /// Notes that a quantizer's scale is 1 because the values are too small for any.
    void note_tiny(const quantizer& q, const value_range& r, const std::string& subject, const std::string& origin, int place) {
        if (detail::below_any_scale(q, r))
            note(plan_note::kind::unrealised, subject,
                 formatted(
                     "its values lie between %.3g and %.3g, which no scale of normal floats divides: it has scale 1, and they become 0",
                     static_cast<double>(r.lo), static_cast<double>(r.hi)),
                 origin, place);
    }

    void activation(layer& l, const edge& e, const edge_precision& p) {
        precision what = completed(*p.what, options_, false);
        if (options_.how == approach::dynamic && p.sequence < 0) what.dynamic = true;
        if (l.node == nullptr && own_.seen_ != nullptr && own_.statistics_of(e.tensor) == nullptr &&
            detail::made_of_constants(source(), e.tensor))
            return note(plan_note::kind::unrealised, "output '" + e.tensor + "'", "depends on no input of the model: left in float32",
                        p.origin);
        if (detail::needs_range(what) && own_.seen_ != nullptr && detail::is_never_filled(own_.layers_, *own_.seen_, e.tensor) &&
            ranged_as(e.tensor) == e.tensor) {
            if (without_range_.insert(e.tensor).second)
                note(plan_note::kind::unrealised, "tensor '" + e.tensor + "'",
                     "calibration saw no value of this input (an empty cache?): left as it is", p.origin);
            return;
        }
        const bool nv =
            has_floating_scales(what.format) && own_.seen_ != nullptr && own_.seen_->tensors.contains(own_.layers_.root(e.tensor));
        const bool ranged = detail::needs_range(what) || nv || source().is_constant(e.tensor);
        const value_range r = ranged ? own_.range_for(ranged_as(e.tensor), what, options_) : value_range{};
        if (const tensor_statistics* s = detail::needs_range(what) ? own_.statistics_of(e.tensor) : nullptr;
            s != nullptr && s->count > 0 && s->count == s->not_finite && without_range_.insert(e.tensor).second)
            note(plan_note::kind::unrealised, "tensor '" + e.tensor + "'", "calibration saw no finite value of it: it has scale 1",
                 p.origin, detail::place_of(source(), e.tensor));
        const tensor_statistics* values = own_.statistics_of(e.tensor);
        const bool in_blocks = is_block_format(what.format) || what.dynamic;  // a mask value would set the scale of its neighbours
        const value_range* softmax = own_.mask_before_softmax(e.tensor);
        if ((softmax != nullptr && detail::cannot_hold(what, *softmax)) ||
            (values == nullptr
                 ? in_blocks && masks_.contains(source(), e.tensor)
                 : (in_blocks || detail::needs_range(what)) && detail::holds_mask(*values, own_.layers_.float_type(e.tensor))))
            return note_mask(e.tensor, values, p.origin);
        quantizer q = activation_quantizer(what, r, axes_of_activation(l, e));
        take_best_pow2(q, what, r, e.tensor);
        note_range(e.tensor, what, r, q, p.origin);
        const auto placed = chosen_.emplace(e, std::move(q)).first;
        if (e.index == 0) l.activation = &placed->second;
    }

    /// Notes what calibration shows of an activation that its format cannot hold: only zeros, values below any scale, values beyond it.
    void note_range(const std::string& tensor, const precision& what, const value_range& r, const quantizer& q, const std::string& origin) {
        const std::string subject = "tensor '" + tensor + "'";
        const int place = detail::place_of(source(), tensor);
        const tensor_statistics* s = own_.statistics_of(tensor);
        if (detail::needs_range(what) && s != nullptr && s->count > s->not_finite &&
            (r == value_range{} || detail::below_any_scale(q, r)) && without_range_.insert(tensor).second) {
            if (r == value_range{})
                note(plan_note::kind::unrealised, subject, "calibration saw only zeros of it: it has scale 1", origin, place);
            else note_tiny(q, r, subject, origin, place);
        }
        const auto limit = detail::overflow_from(what);
        if (!limit || own_.reported_ == nullptr) return;
        const auto seen = own_.reported_->tensors.find(own_.layers_.root(tensor));
        if (seen != own_.reported_->tensors.end() && detail::largest_of(seen->second.range) >= *limit &&
            without_range_.insert(tensor).second)
            note(plan_note::kind::unrealised, subject, "calibration saw " + detail::overflow_sentence(what, seen->second.range), origin,
                 place);
    }

    void note_mask(const std::string& tensor, const tensor_statistics* seen, const std::string& origin) {
        if (without_range_.insert(tensor).second)
            note(plan_note::kind::unrealised, "tensor '" + tensor + "'", detail::mask_sentence(seen, own_.mask_before_softmax(tensor)),
                 origin, detail::place_of(source(), tensor));
    }

    operand_axes axes_of_activation(const layer& l, const edge& e) const {
        // Readers that are no compute layers use the block axis of the layers around them, so that a tensor has one axis whatever
        // calibration saw.
        if ((l.node == nullptr || kind_of(*l.node) != layer_kind::compute) && own_.layers_.has_channels_second(e.tensor))
            return {1, false, 1};
        return l.node ? axes_of(*l.node, e.index, {}) : operand_axes{};
    }

    /// Replaces a power-of-two scale by the one with the least squared error over the histogram, if min_mse is asked for and a histogram
    /// exists.
    void take_best_pow2(quantizer& q, const precision& what, const value_range& r, const std::string& tensor) const {
        const integer* whole = std::get_if<integer>(&what.format);
        if (!whole || !whole->pow2 || what.pow2 != pow2_rule::min_mse || what.dynamic || !what.scale.empty() || own_.seen_ == nullptr)
            return;
        const auto s = own_.seen_->tensors.find(own_.layers_.root(ranged_as(tensor)));
        if (s == own_.seen_->tensors.end() || s->second.histogram.empty()) return;
        const histogram_points points = points_of(s->second);
        const scale_pair best = best_pow2(*whole, r, is_symmetric(what, false), points.values, points.weights);
        q.scale = {best.scale};
        q.zero_point.clear();
        if (best.zero_point != 0) q.zero_point = {best.zero_point};
    }

    void bias(layer& l) {
        const tensor value = own_.constant(l.bias->tensor);
        const bool automatic = l.bias_precision->automatic_bias;
        const operand_axes axes = axes_of(*l.node, l.bias->index, value.shape());
        const bool integers = l.activation && l.weight && is_integer_format(l.activation->format) && is_integer_format(l.weight->format);
        const precision* asked = l.bias_precision->what;
        if (!automatic && !(integers && detail::is_free_int32(*asked))) {
            note_values(l, *l.bias, *asked, "bias", l.bias_precision->origin);
            precision own = completed(*asked, options_, true);
            // A grid finer than float32 gains nothing from values that it clips.
            if (const integer* f = std::get_if<integer>(&own.format); f != nullptr && f->bits > 24) own.pow2 = pow2_rule::non_overflow;
            chosen_[*l.bias] = own_.constant_quantizer(l.bias->tensor, own, axes);
            return;
        }
        // Scales by channel need a bias with a value for each channel; Gemm's bias may have any shape that broadcasts.
        const bool by_channel = integers && (l.weight->scale.size() == 1 ||
                                             (value.rank() == 1 && !l.weight->scale.empty() && value.size() % l.weight->scale.size() == 0));
        const bool in_codes = by_channel && !l.activation->dynamic && l.activation->scale.size() == 1 && l.weight->block_size == 0 &&
                              !l.weight->scale.empty();
        if (!in_codes) {
            if (!automatic)
                note(
                    plan_note::kind::unrealised, "bias '" + l.bias->tensor + "' of '" + l.node->name() + "'",
                    "int32 codes need calibrated activations, weights without blocks and a value for each of their scales: left in float32",
                    l.bias_precision->origin, l.index);
            // 16-bit floats convert the whole layer; `all` and `every` treat a bias as a weight. Otherwise biases stay float32.
            const floating* f = l.weight ? std::get_if<floating>(&l.weight->format) : nullptr;
            const bool half = f != nullptr && bits(*f) == 16;
            const bool as_weight = l.weight && options_.where != placement::layers && !is_integer_format(l.weight->format);
            const precision as_the_weight{.format = l.weight ? l.weight->format : fp32,
                                          .semantics = l.weight ? l.weight->semantics : qk::semantics{}};
            if (half || as_weight) {
                if (automatic) note_values(l, *l.bias, as_the_weight, "bias", l.bias_precision->origin);
                chosen_[*l.bias] = own_.constant_quantizer(l.bias->tensor, as_the_weight, axes);
            }
            return;
        }
        // If both formats have more than 24 bits together, the product's scale is so small that most biases overflow an int32, and enlarged
        // weight scales would pay for them.
        if (automatic && std::get<integer>(l.activation->format).bits + std::get<integer>(l.weight->format).bits > 24) return;
        if (const constant_facts& facts = own_.facts_of(l.bias->tensor); facts.nan + facts.infinite > 0)
            return note(plan_note::kind::unrealised, "bias '" + l.bias->tensor + "' of '" + l.node->name() + "'",
                        counted(facts.nan + facts.infinite, facts) + " are NaN or Inf: left in float32", l.bias_precision->origin, l.index);
        bias_in_codes(l, value.as<float>());
    }

    /// Quantizes the bias to int32 at scale s_x * s_w (bias_scale()). Enlarges a weight scale where the bias would not fit 32 bits, or
    /// where the product would be below the smallest normal float32.
    void bias_in_codes(layer& l, std::span<const float> b) {
        const double sx = bias_scale(*l.node, l.activation->scale[0], 1.0f);
        const std::size_t channels = l.weight->scale.size();
        std::size_t grown = 0;
        for (std::size_t i = 0; i < b.size(); ++i) {
            float& sw = l.weight->scale[i % channels];
            double least = std::fabs(static_cast<double>(b[i])) / (sx * detail::largest_bias_code);
            least = std::max(least, static_cast<double>(std::numeric_limits<float>::min()) / sx);
            if (static_cast<double>(sw) >= least) continue;
            double wanted = least * (1 + 1e-6);  // room for rounding the product to float32
            if (std::get<integer>(l.weight->format).pow2) wanted = pow2_at_least(wanted);
            sw = static_cast<float>(wanted);
            ++grown;
        }
        if (grown > 0)
            note(plan_note::kind::adjusted, "layer '" + l.node->name() + "'",
                 "the int32 bias would overflow at scale s_x * s_w: " + std::to_string(std::min(grown, channels)) + " of " +
                     std::to_string(channels) + " weight scales enlarged",
                 {}, l.index);
        quantizer q{.format = int32, .axis = 0, .scale = {}, .zero_point = {}};
        for (std::size_t i = 0; i < (channels == 1 ? 1 : b.size()); ++i)
            q.scale.push_back(static_cast<float>(sx * static_cast<double>(l.weight->scale[i % channels])));
        q.semantics = l.weight->semantics;
        chosen_[*l.bias] = std::move(q);
    }

    /// Returns the edges that only an exclusion keeps in float32, where the model has recurrent nodes.
    std::set<edge> excluded_recurrent() const {
        std::vector<request> kept;
        for (const request& r : requests_)
            if (!is_identity(r.what.format)) kept.push_back(r);
        std::set<edge> excluded;
        if (kept.size() == requests_.size() || std::ranges::none_of(source().graph().node(), is_recurrent)) return excluded;
        for (const auto& [e, p] : resolve(own_.layers_, kept, options_.resolving()).edges)
            if (!found_.edges.contains(e)) excluded.insert(e);
        return excluded;
    }

    void gather_plan() {
        note_tied_weights(source(), chosen_, found_.edges, notes_);
        // A single scale has no axis; resetting it makes equal quantizers compare equal.
        for (auto& [e, q] : chosen_)
            if (!is_block_format(q.format) && q.block_size == 0 && q.scale.size() <= 1) q.axis = quantizer{}.axis, q.flatten = false;
        note_what_stayed(source(), requests_, chosen_, excluded_recurrent(), notes_);
        result_.plan = gather(std::move(chosen_), source());
        std::ranges::stable_sort(notes_, [](const plan_note& a, const plan_note& b) { return a.place < b.place; });
        std::vector<plan_note> once;  // drops notes that are equal
        for (plan_note& n : notes_)
            if (std::find(once.rbegin(), once.rend(), n) == once.rend()) once.push_back(std::move(n));
        notes_ = std::move(once);
        result_.report.widened = std::move(found_.widened);
        throw_violations(result_.report, options_);
    }

    void describe() {
        for (const edge& e : quantized_edges(result_.plan, source())) {
            const edge_precision& p = found_.edges.at(e);
            const bool constant = source().is_constant(e.tensor);
            const tensor value = constant ? own_.constant(e.tensor) : tensor();
            edge_report line = describe_edge(own_.layers_, e, p.part, *result_.plan.find(e), own_.reported_, constant ? &value : nullptr);
            if (own_.seen_ != nullptr && !constant && own_.seen_->tensors.contains(e.tensor) && p.what && detail::needs_range(*p.what))
                line.range = own_.range_for(ranged_as(e.tensor), *p.what, options_);
            line.why = p.why, line.origin = p.origin;
            if (line.sqnr < 3 && told_destroyed_.insert(e.tensor).second)
                note(plan_note::kind::destroyed, "tensor '" + e.tensor + "'", detail::destroyed_sentence(line), p.origin, p.node);
            result_.report.add(std::move(line));
        }
        name_modules(result_.report, source());
    }

    planner& own_;
    const std::vector<request>& requests_;
    const quantize_options& options_;
    resolution found_;
    std::map<std::string, std::string> joined_;
    quantize_result result_;
    std::vector<plan_note>& notes_;
    std::map<edge, quantizer> chosen_;
    std::set<std::string> without_range_, told_destroyed_;
    detail::masks_of_constants masks_;
};

quantize_result planner::plan(const std::vector<request>& requests, const quantize_options& options, bool detailed) {
    return call(*this, requests, options).run(detailed);
}

}  // namespace qk::graph
