// SPDX-License-Identifier: Apache-2.0
#include "graph/export/openvino.hpp"

#include <algorithm>
#include <map>
#include <vector>

#include "graph/ops/op.hpp"
#include "graph/ops/widened.hpp"
#include "qk/graph/base/names.hpp"

namespace qk::graph::detail {
namespace {

bool is_product(operator_name op) { return op == "MatMul" || op == "Gemm"; }
bool is_layer(operator_name op) { return is_product(op) || op == "Conv" || op == "ConvTranspose"; }
bool is_reduction(operator_name op) { return op.starts_with("Reduce") || (op.starts_with("Global") && op.ends_with("Pool")); }

bool is_clamp(operator_name op) { return op == "Relu" || op == "Clip" || op == "LeakyRelu"; }
bool has_bias(const onnx::NodeProto& n) { return n.input_size() > 2 && !n.input(2).empty(); }

/// Returns whether a filter has one tap.
bool has_one_tap(const dims& shape) {
    return std::all_of(shape.begin() + std::min<std::ptrdiff_t>(2, std::ssize(shape)), shape.end(), [](auto d) { return d == 1; });
}

}  // namespace

openvino_rules::openvino_rules(const model& m, const fusing_rules& fusing, const quantizer_writer& writer, int8_codes codes)
    : model_(m), fusing_(fusing), writer_(writer), signed_(codes == int8_codes::as_signed) {
    for (const value_info& v : m.inputs())
        for (const dimension& d : v.shape) open_ = open_ || d.value < 0;
}

bool openvino_rules::misreads_weights(const quantizer& weights, model::use u) const {
    if (u.node < 0 || u.input != 1 || !writer_.dequantizes(weights)) return false;
    const onnx::NodeProto& n = at(u.node);
    if (!n.domain().empty()) return false;
    const bool integers = is_integer_format(weights.format) && (!signed_ || is_decoded(n.input(1), weights));
    if (is_product(operator_of(n))) return integers && fusing_.planned(n, 0) != nullptr;
    if (operator_of(n) == "ConvTranspose") return integers && has_pair_before(n);
    return operator_of(n) == "Conv" && has_one_tap(model_.constant_shape(n.input(1))) && !has_pair_before(n);
}

bool openvino_rules::fuses_pair(const std::string& activation) const {
    if (open_ && is_of_biased_conv(activation) && is_joined(activation, false, false)) return true;
    std::vector<std::string> open{activation};
    std::set<int> seen;
    while (!open.empty()) {
        const int maker = model_.producer(open.back());
        open.pop_back();
        if (maker < 0 || !seen.insert(maker).second) continue;
        const operator_name op = operator_of(at(maker));
        if (at(maker).domain().empty() && is_product(op)) return true;
        if (is_layer(op)) continue;
        for (int k = 0; k < at(maker).input_size(); ++k)
            if (fusing_.planned(at(maker), k) == nullptr) open.push_back(at(maker).input(k));
    }
    return false;
}

bool openvino_rules::misplaces_scales(int node) const {
    const bool turns = operator_of(at(node)) == "Transpose", reduces = is_reduction(operator_of(at(node)));
    if (!at(node).domain().empty() || (!turns && !reduces) || (turns && !open_)) return false;
    bool reshaped = false;
    for (int reader = node; fusing_.planned(at(reader), 0) == nullptr;) {
        const int maker = at(reader).input_size() > 0 ? model_.producer(at(reader).input(0)) : -1;
        if (maker < 0 || !at(maker).domain().empty()) return false;
        const operator_name op = operator_of(at(maker));
        if (is_layer(op)) return has_scales_of_channels(maker) && (turns ? reshaped : model_.constant_shape(at(maker).input(1)).size() < 4);
        if (turns && facts_of(at(maker)).has(ops::reshapes)) reshaped = true;
        else if (!one_of(op, {"Relu", "Clip", "LeakyRelu", "PRelu", "MaxPool", "Identity", "Dropout"}) && (!turns || op != "Transpose"))
            return false;
        reader = maker;
    }
    return false;
}

std::string openvino_rules::note_on_rounding() const {
    std::vector<std::string> names;
    for (const onnx::NodeProto& n : model_.graph().node())
        if (n.domain().empty() && is_product(operator_of(n)) && integer_weights(n) != nullptr && fusing_.planned(n, 0) == nullptr)
            names.push_back(n.name());
    if (names.empty()) return {};
    return "OpenVINO rounds what " + std::to_string(names.size()) + " products with weights in integers read (" + listed(names, 3) +
           ") to int8 in groups of 32, which costs some dB beside 8 bits, unless DYNAMIC_QUANTIZATION_GROUP_SIZE is 0";
}

std::string openvino_rules::note() const {
    std::map<std::string, std::vector<std::string>> found;
    for (int i = 0; i < model_.graph().node_size(); ++i)
        if (const char* what = departure(i)) found[what].push_back(at(i).name());
    std::string text;
    for (const auto& [what, names] : found)
        text += (text.empty() ? "" : "; ") + what + " (" + std::to_string(names.size()) + ": " + listed(names, 3) + ")";
    if (text.empty()) return text;
    return "OpenVINO computes this file otherwise than qk: " + text + "; --target openvino writes one that is right there";
}

bool openvino_rules::has_pair_before(const onnx::NodeProto& n) const {
    const quantizer* beside = fusing_.planned(n, 0);
    return beside != nullptr && is_integer_format(beside->format) && writer_.dequantizes_activation(*beside);
}

/// Returns the quantizer of a node's constant weights where they are stored as integers.
const quantizer* openvino_rules::integer_weights(const onnx::NodeProto& n) const {
    const quantizer* w = n.input_size() > 1 && model_.is_constant(n.input(1)) ? fusing_.planned(n, 1) : nullptr;
    return w != nullptr && is_integer_format(w->format) && writer_.dequantizes(*w) ? w : nullptr;
}

/// Returns whether a layer has a scale for each channel and no bias but zeros.
bool openvino_rules::has_scales_of_channels(int node) const {
    const onnx::NodeProto& n = at(node);
    const quantizer* w = integer_weights(n);
    if (w == nullptr || w->scale.size() < 2 || w->block_size > 0 || !has_pair_before(n)) return false;
    if (!has_bias(n)) return true;
    if (!model_.is_constant(n.input(2))) return false;
    const tensor bias = ops::widened(model_.constant(n.input(2)));
    return bias.type() == data_type::float32 && std::ranges::all_of(bias.as<float>(), [](float b) { return b == 0; });
}

/// Returns whether weights have zero points, blocks or fewer than 8 bits: OpenVINO decodes those for products of floats.
bool openvino_rules::is_decoded(const std::string& name, const quantizer& w) const {
    const integer& f = std::get<integer>(w.format);
    return !f.is_signed || f.bits < 8 || w.block_size > 0 || unsigned_.contains(name) ||
           std::ranges::any_of(w.zero_point, [](auto z) { return z != 0; });
}

bool openvino_rules::has_wide_pair(const onnx::NodeProto& n) const {
    for (int k = 0; k < n.input_size(); ++k) {
        const quantizer* q = n.input(k).empty() || model_.is_constant(n.input(k)) ? nullptr : fusing_.planned(n, k);
        const integer* i = q == nullptr ? nullptr : std::get_if<integer>(&q->format);
        if (q != nullptr && (i == nullptr ? !is_block_format(q->format) : i->bits > 8) && writer_.dequantizes_activation(*q)) return true;
    }
    return false;
}

/// Returns whether a Concat joins a tensor that a Reshape turned; `expanded`: with what an Expand makes.
bool openvino_rules::is_joined(const std::string& tensor, bool reshaped, bool expanded) const {
    return std::ranges::any_of(model_.uses(tensor), [&](const model::use& u) {
        if (u.node < 0) return false;
        const onnx::NodeProto& reader = at(u.node);
        if (operator_of(reader) == "Concat")
            return reshaped && (!expanded || std::ranges::any_of(reader.input(), [&](const std::string& other) {
                       const int maker = model_.producer(other);
                       return maker >= 0 && one_of(operator_of(at(maker)), {"Expand", "Tile", "ConstantOfShape"});
                   }));
        const bool reshapes = facts_of(reader).has(ops::reshapes);
        return u.input == 0 && (reshapes || is_clamp(operator_of(reader)) || operator_of(reader) == "Transpose") &&
               is_joined(reader.output(0), reshaped || reshapes, expanded);
    });
}

/// Returns whether a Conv with a bias makes a tensor, also behind its Relu or Clip.
bool openvino_rules::is_of_biased_conv(const std::string& tensor) const {
    const int maker = model_.producer(tensor);
    if (maker < 0 || !at(maker).domain().empty()) return false;
    if (is_clamp(operator_of(at(maker)))) return is_of_biased_conv(at(maker).input(0));
    return operator_of(at(maker)) == "Conv" && has_bias(at(maker));
}

/// Returns whether a pair stands behind a tensor, or behind the Relu or Clip that reads it.
bool openvino_rules::is_quantized_behind(const std::string& tensor) const {
    return std::ranges::any_of(model_.uses(tensor), [&](const model::use& u) {
        if (u.node < 0 || u.input < 0) return false;  // an output, or read in the body of an If
        const onnx::NodeProto& reader = at(u.node);
        if (fusing_.planned(reader, u.input) != nullptr) return true;
        return is_clamp(operator_of(reader)) && u.input == 0 && is_quantized_behind(reader.output(0));
    });
}

/// Returns what OpenVINO does otherwise with a node, or null.
const char* openvino_rules::departure(int node) const {
    const onnx::NodeProto& n = at(node);
    if (!n.domain().empty()) return nullptr;
    const quantizer* w = integer_weights(n);
    if (operator_of(n) == "Conv" && open_ && has_bias(n) && is_quantized_behind(n.output(0)) && is_joined(n.output(0), false, true))
        return "with an open batch it takes one channel's bias for all where a Reshape and a Concat follow";
    if (facts_of(n).has(ops::recurrent) && w != nullptr) return "it loads no LSTM, GRU and RNN with weights in integers";
    if (has_wide_pair(n)) return "it drops activations of 16 bits, and rounds those of FP8";
    if (misplaces_scales(node)) return "it gives scales of channels to others behind a Reshape and a Transpose, or a reduction";
    if (operator_of(n) == "ConvTranspose" && w != nullptr && has_pair_before(n) && is_decoded(n.input(1), *w))
        return "it loses zero points of weights of a ConvTranspose";
    if (!is_product(operator_of(n))) return nullptr;
    if (w != nullptr && is_decoded(n.input(1), *w))
        return "it rounds what a product with such weights reads to int8, unless DYNAMIC_QUANTIZATION_GROUP_SIZE is 0";
    if (w != nullptr && has_pair_before(n) && !has_bias(n) && is_quantized_behind(n.output(0)))
        return "with a fixed batch it makes garbage of products without a bias behind which a pair stands";
    return nullptr;
}

}  // namespace qk::graph::detail
