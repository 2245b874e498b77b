// SPDX-License-Identifier: Apache-2.0
// Definitions of quantize.hpp.
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "qk/graph/base/format_text.hpp"
#include "qk/graph/quantize/collect_requests.hpp"
#include "qk/graph/quantize/planner.hpp"
#include "qk/graph/model/subgraphs.hpp"

namespace qk::graph {

namespace detail {
/// Largest magnitude of a bias code that survives rounding in float32: the last float below 2^31.
inline constexpr double largest_bias_code = 2147483520.0;

inline bool same_storage(const qk::format& a, const qk::format& b) {
    const integer *i = std::get_if<integer>(&a), *j = std::get_if<integer>(&b);
    if (i && j) return i->bits == j->bits && i->is_signed == j->is_signed;
    return a == b;
}

inline bool needs_range(const precision& p) {
    if (p.dynamic || p.range || !p.scale.empty()) return false;
    if (is_integer_format(p.format)) return true;
    const floating* f = std::get_if<floating>(&p.format);
    return f != nullptr && is_scaled(*f);
}

/// What a Concat joins takes the scale of the result, if nobody else reads it: rounding once to that scale loses less than rounding to a
/// finer one and again, and runtimes copy bytes instead of converting them. Maps such tensors to the result.
inline std::map<std::string, std::string> joined_tensors(const layer_view& layers, const std::map<edge, edge_precision>& edges) {
    std::map<std::string, std::string> joined;
    const model& m = layers.source();
    const auto asked = [&](const std::string& tensor, const model::use& u) -> const precision* {
        const auto found = edges.find({tensor, u.node < 0 ? std::string() : m.graph().node(u.node).name(), u.input});
        return found == edges.end() ? nullptr : found->second.what;
    };
    for (const auto& node : m.graph().node()) {
        if (node.op_type() != "Concat" || !node.domain().empty() || m.uses(node.output(0)).empty()) continue;
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
inline bool made_of_constants(const model& m, const std::string& tensor) {
    const int i = m.producer(tensor);
    return i >= 0 && std::ranges::all_of(m.graph().node(i).input(), [&](const std::string& in) { return in.empty() || m.is_constant(in); });
}

inline std::string unchanged_sentence(const std::vector<request>& requests) {
    const bool asked = std::ranges::any_of(requests, [](const request& r) { return !is_identity(r.what.format); });
    return std::string("the plan changes nothing: every value stays float32") + (asked ? "" : ", because no request asks for another format");
}

/// Remarks where a request for everything met nothing: no layer, or only layers in the bodies of If, Loop and Scan, which are left alone.
inline void note_what_stayed(const model& m, const std::vector<request>& requests, bool nothing, std::vector<plan_note>& notes) {
    const auto general = std::ranges::find_if(requests, [](const request& r) { return r.scope == scope::everything && !is_identity(r.what.format); });
    if (general == requests.end()) {
        if (nothing) notes.push_back({plan_note::kind::unchanged, m.label(), unchanged_sentence(requests), {}});
        return;
    }
    std::size_t inner = 0;
    const auto count = [&](const auto& self, const onnx::NodeProto& n) -> void {
        for_each_subgraph(n, [&](const onnx::GraphProto& g) {
            for (const auto& i : g.node()) inner += kind_of(i) == layer_kind::compute, self(self, i);
        });
    };
    for (const auto& n : m.graph().node()) count(count, n);
    if (inner > 0)
        notes.push_back({plan_note::kind::unrealised, m.label(), std::to_string(inner) + " layers in the bodies of If, Loop or Scan: left in float32", general->origin});
    if (nothing) notes.push_back({plan_note::kind::unrealised, m.label(), "nothing was quantized: no layer has float32 values that the requests mean", general->origin});
}
}  // namespace detail

bool target_profile::allows(const std::string& op_type, const qk::format* activation, const qk::format* weight) const {
    auto found = operators.find(op_type);
    if (found == operators.end()) found = operators.find("*");
    if (found == operators.end()) return false;
    const auto in = [](const std::vector<qk::format>& list, const qk::format* f) {
        return f == nullptr || is_identity(*f) || list.empty() ||
               std::any_of(list.begin(), list.end(), [&](const qk::format& g) { return detail::same_storage(*f, g); });
    };
    return in(found->second.activation, activation) && in(found->second.weight, weight);
}

precision_plan gather(const std::map<edge, quantizer>& chosen, const model& m) {
    precision_plan plan;
    for (auto i = chosen.begin(); i != chosen.end();) {
        auto end = i;
        std::size_t count = 0;
        bool same = true;
        for (; end != chosen.end() && end->first.tensor == i->first.tensor; ++end, ++count) same = same && end->second == i->second;
        if (same && count == m.uses(i->first.tensor).size()) plan.tensors[i->first.tensor] = i->second;
        else plan.edges.insert(i, end);
        i = end;
    }
    return plan;
}

planner::planner(const model& m, const calibration* seen) : model_(&m), seen_(seen), layers_(m) {}

const tensor& planner::constant(const std::string& name) {
    const auto found = values_.find(name);
    return found != values_.end() ? found->second : values_.emplace(name, model_->constant(name)).first->second;
}

quantizer& planner::constant_quantizer(const std::string& name, const precision& what, const operand_axes& axes) {
    auto& entries = constants_[name];
    for (constant_entry& e : entries)
        if (e.what == what && e.axes.block == axes.block && e.axes.channel == axes.channel && e.axes.flatten == axes.flatten) return e.how;
    entries.push_back({what, axes, weight_quantizer(constant(name), what, axes)});
    return entries.back().how;
}

const tensor_statistics* planner::statistics_of(const std::string& tensor) const {
    if (seen_ == nullptr) return nullptr;
    for (const std::string* name : {&layers_.root(tensor), &tensor})  // moved values share the range of where they come from
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
    range_options o{.method = what.method.value_or(options.method), .percentile = what.percentile.value_or(options.percentile),
                    .format = what.format, .symmetric = is_symmetric(what, false)};
    auto& known = ranges_[layers_.root(tensor)];
    for (const auto& [k, r] : known)
        if (k.method == o.method && k.percentile == o.percentile && k.format == o.format && k.symmetric == o.symmetric) return r;
    const value_range r = choose_range(*s, o, tensor);
    known.emplace_back(o, r);
    return r;
}

quantize_result planner::plan(const std::vector<request>& requests, const quantize_options& options, bool detailed) {
    using part = layer_view::part;
    resolution found = resolve(layers_, requests, {.where = options.where, .how = options.how, .dual = options.dual});
    quantize_result result;
    std::vector<plan_note>& notes = result.report.notes;
    notes = std::move(found.notes);

    // Edges of one layer, so that target, weights and bias see each other.
    std::map<int, std::vector<std::pair<const edge*, edge_precision*>>> layers;
    for (auto& [e, p] : found.edges) layers[p.node].emplace_back(&e, &p);

    const std::map<std::string, std::string> joined = detail::joined_tensors(layers_, found.edges);
    const auto ranged_as = [&](const std::string& tensor) -> const std::string& {
        const std::string* name = &tensor;
        for (auto i = joined.find(*name); i != joined.end(); i = joined.find(*name)) name = &i->second;
        return *name;
    };

    std::map<edge, quantizer> chosen;
    std::set<std::string> without_range;
    for (auto& [n, edges] : layers) {
        const onnx::NodeProto* node = n < 0 ? nullptr : &model_->graph().node(n);
        if (options.target && node != nullptr) {
            const qk::format *a = nullptr, *w = nullptr;
            for (const auto& [e, p] : edges) {
                if (p->what == nullptr) continue;
                if (p->part == part::input && (a == nullptr || bits_per_value(p->what->format) > bits_per_value(*a))) a = &p->what->format;
                if (p->part == part::weight) w = &p->what->format;
            }
            if ((a != nullptr || w != nullptr) && layers_.nodes()[static_cast<std::size_t>(n)].kind != layer_kind::mover &&
                !options.target->allows(node->op_type(), a, w)) {
                notes.push_back({plan_note::kind::left_out, "layer '" + node->name() + "'",
                                 options.target->name + " has no " + node->op_type() + " with activation " + (a ? to_string(*a) : "fp32") + " and weight " +
                                     (w ? to_string(*w) : "fp32") + ": left in float32", edges.front().second->origin, n});
                continue;
            }
        }
        const quantizer* activation = nullptr;
        quantizer* weight = nullptr;
        const edge* bias = nullptr;
        const edge_precision* bias_precision = nullptr;
        for (const auto& [e, p] : edges) {
            if (p->part == part::bias) {
                bias = e, bias_precision = p;
                continue;
            }
            const operand_axes fallback{};
            if (p->part == part::weight) {
                precision what = *p->what;
                if (!what.per_channel) what.per_channel = options.per_channel && is_integer_format(what.format);
                const tensor& value = constant(e->tensor);
                weight = &(chosen[*e] = constant_quantizer(e->tensor, what, axes_of(*node, e->index, value.shape())));
                continue;
            }
            precision what = *p->what;
            if (options.how == approach::dynamic && p->sequence < 0) what.dynamic = true;
            const bool constant_input = model_->is_constant(e->tensor);
            if (node == nullptr && seen_ != nullptr && statistics_of(e->tensor) == nullptr && detail::made_of_constants(*model_, e->tensor)) {
                notes.push_back({plan_note::kind::unrealised, "output '" + e->tensor + "'", "depends on no input of the model: left in float32", p->origin});
                continue;
            }
            dims shape;
            if (seen_ != nullptr)
                if (const auto s = seen_->tensors.find(e->tensor); s != seen_->tensors.end()) shape = s->second.shape;
            operand_axes axes = node ? axes_of(*node, e->index, shape) : shape.size() == 4 ? operand_axes{1, false, 1} : fallback;
            // Readers that multiply nothing take blocks as the layers around them do: one tensor, one format, one axis.
            if ((node == nullptr || kind_of(*node) != layer_kind::compute) && layers_.has_channels_second(e->tensor)) axes = {1, false, 1};
            const bool nv = std::holds_alternative<nvfloat>(what.format) && seen_ != nullptr && seen_->tensors.contains(layers_.root(e->tensor));
            const value_range r = detail::needs_range(what) || nv || constant_input ? range_for(ranged_as(e->tensor), what, options) : value_range{};
            if (const tensor_statistics* s = detail::needs_range(what) ? statistics_of(e->tensor) : nullptr; s != nullptr && s->count > 0 && s->count == s->not_finite && without_range.insert(e->tensor).second)
                notes.push_back({plan_note::kind::unrealised, "tensor '" + e->tensor + "'", "calibration saw no finite value of it: it has scale 1", p->origin, detail::place_of(*model_, e->tensor)});
            quantizer q = activation_quantizer(what, r, axes);
            const integer* whole = std::get_if<integer>(&what.format);
            if (whole && whole->pow2 && what.pow2 == pow2_rule::min_mse && !what.dynamic && what.scale.empty() && seen_ != nullptr) {
                if (const auto s = seen_->tensors.find(layers_.root(ranged_as(e->tensor))); s != seen_->tensors.end() && !s->second.histogram.empty()) {
                    const histogram_points points = points_of(s->second);
                    const scale_pair best = best_pow2(*whole, r, is_symmetric(what, false), points.values, points.weights);
                    q.scale = {best.scale};
                    q.zero_point.clear();
                    if (best.zero_point != 0) q.zero_point = {best.zero_point};
                }
            }
            const auto placed = chosen.emplace(*e, std::move(q)).first;
            if (e->index == 0) activation = &placed->second;
        }
        if (bias == nullptr) continue;
        const tensor& value = constant(bias->tensor);
        if (!bias_precision->automatic_bias) {
            const bool accumulator = bias_precision->what->format == qk::format(int32) && bias_precision->what->scale.empty() && activation && weight &&
                                     is_integer_format(activation->format) && is_integer_format(weight->format);
            if (!accumulator) {
                chosen[*bias] = constant_quantizer(bias->tensor, *bias_precision->what, axes_of(*node, bias->index, value.shape()));
                continue;
            }
        }
        // A scale for each channel needs a bias with a value for each: Gemm's may have any shape that broadcasts.
        const bool by_channel = weight && (weight->scale.size() == 1 || (value.rank() == 1 && !weight->scale.empty() && value.size() % weight->scale.size() == 0));
        const bool integers = activation && weight && is_integer_format(activation->format) && is_integer_format(weight->format) && !activation->dynamic &&
                              activation->scale.size() == 1 && weight->block_size == 0 && !weight->scale.empty() && by_channel;
        if (!integers) {
            if (!bias_precision->automatic_bias)
                notes.push_back({plan_note::kind::unrealised, "bias '" + bias->tensor + "' of '" + node->name() + "'",
                                 "int32 codes need calibrated activations, weights without blocks and a value for each of their scales: left in float32", bias_precision->origin, n});
            // 16-bit floats convert the whole layer; `all` and `every` treat a bias as a weight. Otherwise biases stay float32.
            const floating* f = weight ? std::get_if<floating>(&weight->format) : nullptr;
            const bool half = f != nullptr && bits(*f) == 16;
            const bool as_weight = weight && options.where != placement::layers && !is_integer_format(weight->format);
            if (half || as_weight) chosen[*bias] = constant_quantizer(bias->tensor, {.format = weight->format, .semantics = weight->semantics}, axes_of(*node, bias->index, value.shape()));
            continue;
        }
        // Beyond 24 bits together, products leave too little of an int32: most biases would not fit, and weights would pay for them.
        if (bias_precision->automatic_bias && std::get<integer>(activation->format).bits + std::get<integer>(weight->format).bits > 24) continue;
        // scale = s_x * s_w; a weight scale grows where the bias would not fit 32 bits, or where the product is too small to be a scale.
        const std::span<const float> b = value.as<float>();
        const double sx = static_cast<double>(activation->scale[0]);
        const std::size_t channels = weight->scale.size();
        std::size_t grown = 0;
        const integer& wf = std::get<integer>(weight->format);
        for (std::size_t i = 0; i < b.size(); ++i) {
            float& sw = weight->scale[i % channels];
            double least = std::fabs(static_cast<double>(b[i])) / (sx * detail::largest_bias_code);
            least = std::max(least, static_cast<double>(std::numeric_limits<float>::min()) / sx);
            if (static_cast<double>(sw) >= least) continue;
            double wanted = least * (1 + 1e-6);  // room for rounding the product to float32
            if (wf.pow2) wanted = pow2_at_least(wanted);
            sw = static_cast<float>(wanted);
            ++grown;
        }
        if (grown > 0)
            notes.push_back({plan_note::kind::adjusted, "layer '" + node->name() + "'",
                             "the int32 bias would overflow at scale s_x * s_w: " + std::to_string(std::min(grown, channels)) + " of " + std::to_string(channels) +
                                 " weight scales enlarged", {}, n});
        quantizer q{.format = int32, .axis = 0, .scale = {}, .zero_point = {}};
        const bool single = channels == 1;
        for (std::size_t i = 0; i < (single ? 1 : b.size()); ++i)
            q.scale.push_back(static_cast<float>(sx * static_cast<double>(weight->scale[i % channels])));
        q.semantics = weight->semantics;
        chosen[*bias] = std::move(q);
    }

    // One scale has no axis: what is equal should compare equal.
    for (auto& [e, q] : chosen)
        if (!is_block_format(q.format) && q.block_size == 0 && q.scale.size() <= 1) q.axis = quantizer{}.axis, q.flatten = false;
    result.plan = gather(chosen, *model_);
    detail::note_what_stayed(*model_, requests, chosen.empty(), notes);
    std::stable_sort(notes.begin(), notes.end(), [](const plan_note& a, const plan_note& b) { return a.place < b.place; });
    result.report.widened = std::move(found.widened);

    throw_violations(result.report, options.strict);

    if (!detailed) return result;
    for (const edge& e : quantized_edges(result.plan, *model_)) {
        const edge_precision& p = found.edges.at(e);
        edge_report line = describe_edge(layers_, e, p.part, chosen.at(e), seen_, model_->is_constant(e.tensor) ? &constant(e.tensor) : nullptr);
        if (seen_ != nullptr && !model_->is_constant(e.tensor) && seen_->tensors.contains(e.tensor) && p.what && detail::needs_range(*p.what))
            line.range = range_for(ranged_as(e.tensor), *p.what, options);
        line.why = p.why, line.origin = p.origin;
        result.report.add(std::move(line));
    }
    return result;
}

}  // namespace qk::graph
