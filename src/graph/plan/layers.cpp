// SPDX-License-Identifier: Apache-2.0
// Definitions of layers.hpp. Block axes: docs/reference/numerics.md, "Where blocks run".
#include <onnx/onnx_pb.h>

#include <algorithm>

#include "graph/ops/op.hpp"
#include "qk/graph/model/attribute.hpp"
#include "qk/graph/ops/known_values.hpp"
#include "qk/graph/plan/layers.hpp"

namespace qk::graph {

namespace detail {
namespace {
bool is_onnx_domain(const onnx::NodeProto& node) { return node.domain().empty() || node.domain() == "ai.onnx"; }

/// Returns whether a node's result has channels where its input has them. A reduction that drops axes moves or removes them.
bool keeps_channels(const onnx::NodeProto& n) {
    const op_facts& is = facts_of(n);
    return !is.has(ops::moves_channels) && !(is.has(ops::reduces) && int_attribute(n, "keepdims", 1) == 0);
}

/// Returns whether a result is made of this node's inputs as numbers are reckoned with: a size that is asked of it is asked of them.
bool reckons(const onnx::NodeProto& n) { return is_onnx_domain(n) && facts_of(n).has(ops::reckons); }
/// Returns the tensors whose every way ends in a size, a count, an end, an axis or an index: scales of a Resize, limits of a Range.
std::unordered_set<std::string_view> sizes_of(const model& m) {
    std::unordered_set<std::string_view> found;
    const auto as_size = [&](const model::use& u) {
        if (u.node < 0 || u.input < 0) return false;
        const onnx::NodeProto& n = m.graph().node(u.node);
        if (facts_of(n).is_place(u.input)) return true;
        return reckons(n) && std::ranges::all_of(n.output(), [&](const std::string& o) { return o.empty() || found.contains(o); });
    };
    const auto add = [&](const std::string& tensor) {
        const auto& uses = m.uses(tensor);
        if (!uses.empty() && std::ranges::all_of(uses, as_size)) found.insert(tensor);
    };
    for (int i = m.graph().node_size(); i-- > 0;)  // readers come behind what they read
        for (const std::string& o : m.graph().node(i).output()) add(o);
    return found;
}

/// Returns single numbers that follow from lengths of axes alone, such as the root of a head's width: they are no data.
std::unordered_set<std::string_view> numbers_of_lengths(const model& m, const known_values& known) {
    std::unordered_set<std::string_view> lengths, found;
    for (const onnx::NodeProto& n : m.graph().node()) {
        const bool measures = facts_of(n).has(ops::measures);
        bool all = n.input_size() > 0, any = false;
        for (const std::string& i : n.input()) {
            any = any || lengths.contains(i);
            all = all && (i.empty() || lengths.contains(i) || m.is_constant(i));
        }
        if (!measures && !(any && all)) continue;
        for (const std::string& o : n.output()) {
            lengths.insert(o);
            const dims* d = known.shape(o);
            if (d != nullptr && std::ranges::all_of(*d, [](std::int64_t v) { return v == 1; })) found.insert(o);
        }
    }
    return found;
}
/// Returns the tensors that a convolution or a pooling reads, also through operators that leave channels where they are. The rank does not
/// tell: a cache of keys has four axes, too, and so has a mask.
std::unordered_set<std::string_view> reach_convolutions(const model& m) {
    std::unordered_set<std::string_view> found;
    for (int i = m.graph().node_size(); i-- > 0;) {
        const onnx::NodeProto& n = m.graph().node(i);
        if (facts_of(n).has(ops::of_pictures)) found.insert(n.input(0));
        else if (keeps_channels(n) && std::ranges::any_of(n.output(), [&](const std::string& o) { return found.contains(o); }))
            found.insert(n.input().begin(), n.input().end());
    }
    return found;
}
}  // namespace
}  // namespace detail

layer_kind kind_of(const onnx::NodeProto& node) {
    const op_facts& is = facts_of(node);
    if (is.has(ops::layer)) return layer_kind::compute;
    if (is.has(ops::neighbour)) return layer_kind::neighbour;
    if (is.has(ops::clamps)) return layer_kind::activation;
    return is.has(ops::mover) || (is.moves != nullptr && is.moves(node)) ? layer_kind::mover : layer_kind::other;
}

double bias_scale(const onnx::NodeProto& layer, float input_scale, float weight_scale) {
    const double product = static_cast<double>(input_scale) * static_cast<double>(weight_scale);
    const float alpha = detail::float_attribute(layer, "alpha", 1);
    return alpha > 0 ? product * static_cast<double>(alpha) : product;
}

operand_axes axes_of(const onnx::NodeProto& node, int index, const dims& shape) {
    if (shape.size() == 1) return {.block = 0, .flatten = false, .channel = 0};
    if (const auto product = product_axes_of(node)) {
        const product_axes& p = *product;
        if (index > 1) return p.windows ? operand_axes{} : operand_axes{-1, false, -1};
        // A depthwise filter has one channel on axis 1: its blocks would have one element, so they run over the flattened filter.
        if (index == 1) return {.block = p.in, .flatten = p.groups > 1 && !p.transposed, .channel = p.out};
        const int beside = p.sums < 0 ? -3 - p.sums : 1 - p.sums;  // the other axis of a matrix
        return {.block = p.sums, .flatten = false, .channel = p.windows ? p.sums : beside};
    }
    const op_facts& is = facts_of(node);
    if (is.has(ops::recurrent)) return {-1, false, -2};
    if (is.has(ops::picks_rows) && index == 0 && shape.size() == 2) return {-1, false, 0};
    // Image-shaped tensors keep their channels on axis 1; everything else is read along its rows.
    if (is.has(ops::channels_second))
        return index == 0 ? operand_axes{1, false, 1} : operand_axes{};  // bounds, paddings, a number for each channel
    return shape.size() == 4 || shape.size() == 5 ? operand_axes{1, false, 1} : operand_axes{-1, false, -1};
}

layer_view::reading::reading(const model& m) {
    const auto is_float = [](data_type t) { return t == data_type::float32 || t == data_type::float16 || t == data_type::bfloat16; };
    std::unordered_set<std::string_view> sparse;  // no format is stored in them
    for (const auto& i : m.graph().sparse_initializer()) sparse.insert(i.values().name());
    const auto walked = known_values_of(m);
    const known_values& known = *walked;
    const auto numbers = detail::numbers_of_lengths(m, known);
    const auto sizes = detail::sizes_of(m);
    const auto seen_as_pictures = detail::reach_convolutions(m);
    for (const value_info& i : m.inputs()) {
        if ((i.shape.size() == 4 || i.shape.size() == 5) && seen_as_pictures.contains(i.name)) pictures.insert(i.name);
    }

    nodes.reserve(static_cast<std::size_t>(m.graph().node_size()));
    for (const onnx::NodeProto& node : m.graph().node()) {
        node_info info{.kind = kind_of(node), .parts = {}};
        bool picture = facts_of(node).has(ops::of_pictures);
        for (const std::string& i : node.input()) picture = picture || (detail::keeps_channels(node) && pictures.contains(i));
        for (const std::string& o : node.output()) {
            const dims* shape = known.shape(o);
            if (picture && (shape == nullptr || shape->size() > 1)) pictures.insert(o);  // a number for each channel is no picture
        }
        const bool reckoned =
            detail::reckons(node) && std::ranges::all_of(node.output(), [&](const std::string& o) { return sizes.contains(o); });
        for (int i = 0; i < node.input_size(); ++i) {
            const std::string& name = node.input(i);
            part p = part::none;
            if (!name.empty() && is_float(known.type(name))) {
                const bool constant = m.is_constant(name);
                p = constant ? part::weight : part::input;
                if (constant && i == 2 && facts_of(node).has(ops::biased)) p = part::bias;
                if (constant && i == 3 && facts_of(node).has(ops::recurrent)) p = part::bias;
                if (numbers.contains(name) || sparse.contains(name)) p = part::none;
                // Bounds, sizes and paddings are not data, nor what they are made of, and a mover has one data input.
                if (reckoned || facts_of(node).is_place(i)) p = part::none;
                if (i > 0 && (info.kind == layer_kind::activation || info.kind == layer_kind::mover)) p = part::none;
            }
            info.biased = info.biased || (p == part::bias && info.kind == layer_kind::compute);
            info.parts.push_back(p);
        }
        // A node of integers (shape arithmetic) or of constants only is no layer.
        const bool data = std::find(info.parts.begin(), info.parts.end(), part::input) != info.parts.end();
        const bool constants = std::find(info.parts.begin(), info.parts.end(), part::weight) != info.parts.end();
        if (!data || (info.kind == layer_kind::neighbour && constants)) info.kind = layer_kind::other;  // Add of a constant is a bias
        if (info.kind == layer_kind::mover && node.output_size() > 0 && info.parts[0] == part::input)
            for (const std::string& o : node.output()) roots[o] = root(node.input(0));
        nodes.push_back(std::move(info));
    }
    for (const auto& [name, type] : known.types())
        if (is_float(type)) floats.emplace(name, type);
}

int layer_view::fused_activation(const std::string& tensor) const {
    const auto& uses = model_->uses(tensor);
    if (uses.size() != 1 || uses[0].node < 0) return -1;
    return found_->nodes[static_cast<std::size_t>(uses[0].node)].kind == layer_kind::activation ? uses[0].node : -1;
}

const std::string& layer_view::reading::root(const std::string& tensor) const {
    const auto found = roots.find(tensor);
    return found == roots.end() ? tensor : found->second;
}

namespace {
/// Returns the model input that a tensor of integers comes from through nodes that keep its values; nullptr if there is none.
const value_info* given_integers(const model& m, std::string_view tensor) {
    for (int steps = 0; steps < 32; ++steps) {
        for (const value_info& i : m.inputs())
            if (i.name == tensor) return &i;
        const int p = m.producer(tensor);
        if (p < 0) return nullptr;
        const onnx::NodeProto& n = m.graph().node(p);
        if (!facts_of(n).has(ops::keeps_all)) return nullptr;
        tensor = n.input(0);
    }
    return nullptr;
}
}  // namespace

bool layer_view::is_embedding(int index) const {
    const onnx::NodeProto& n = model_->graph().node(index);
    if (!facts_of(n).has(ops::picks_rows) || n.input_size() < 2 || !model_->is_constant(n.input(0)) || !is_float(n.input(0)) ||
        detail::int_attribute(n, "axis", 0) != 0)
        return false;
    const dims table = model_->constant_shape(n.input(0));
    if (table.size() != 2 || given_integers(*model_, n.input(1)) == nullptr) return false;
    return std::ranges::any_of(compute_layers(), [&](int l) {  // rotary tables are narrower
        const onnx::NodeProto& layer = model_->graph().node(l);
        if (layer.input_size() < 2 || !model_->is_constant(layer.input(1))) return false;
        const dims w = model_->constant_shape(layer.input(1));
        const auto axes = product_axes_of(layer);
        return axes && w.size() == 2 && w[resolve_axis(axes->in, 2)] == table[1];
    });
}

std::vector<std::string> layer_view::cached_tensors() const {
    std::vector<std::string> found;
    for (const value_info& i : model_->inputs()) {
        if (!is_float(i.name) || i.shape.size() < 3) continue;
        for (const auto& u : model_->uses(i.name)) {
            if (u.node < 0 || u.input < 0) continue;
            const onnx::NodeProto& n = model_->graph().node(u.node);
            const auto add = [&](int output) {
                if (output >= 0 && output < n.output_size() && !n.output(output).empty() &&
                    std::ranges::any_of(model_->uses(n.output(output)), [](const auto& reader) { return reader.node < 0; }))
                    found.push_back(n.output(output));
            };
            add(facts_of(n).continued_by(u.input));
        }
    }
    return found;
}

std::vector<int> layer_view::compute_layers() const {
    std::vector<int> found;
    for (std::size_t n = 0; n < nodes().size(); ++n)
        if (nodes()[n].kind == layer_kind::compute) found.push_back(static_cast<int>(n));
    return found;
}

}  // namespace qk::graph
