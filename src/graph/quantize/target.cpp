// SPDX-License-Identifier: Apache-2.0
// The rules of target profiles, and the built-in ones. docs/reference/targets.md names the public source of each.
#include "qk/graph/quantize/target.hpp"

#include <algorithm>

#include "qk/formats/catalogue.hpp"
#include "qk/graph/base/format_text.hpp"
#include "qk/graph/base/names.hpp"
#include "qk/graph/plan/plan.hpp"
#include "qk/graph/quantize/plan_file.hpp"

namespace qk::graph {
namespace detail {

using form = target_profile::file_form;

inline bool same_storage(const qk::format& a, const qk::format& b) {
    const integer *i = std::get_if<integer>(&a), *j = std::get_if<integer>(&b);
    if (i && j) return i->bits == j->bits && i->is_signed == j->is_signed;
    return a == b;
}
inline int bits_of_integer(const qk::format& f) {
    const integer* i = std::get_if<integer>(&f);
    return i == nullptr ? 0 : i->bits;
}
/// Returns the format as lists of formats have it: float32 is any identity.
inline qk::format as_listed(const qk::format& f) { return is_identity(f) ? qk::format(fp32) : f; }

inline bool is_paired(const target_profile& t, const qk::format& activation, const qk::format& weight) {
    return t.pairs.empty() || (is_identity(activation) && is_identity(weight)) || std::ranges::any_of(t.pairs, [&](const auto& p) {
               return same_storage(p.first, as_listed(activation)) && same_storage(p.second, as_listed(weight));
           });
}
inline bool has_shifted_zero(const precision& p) {
    return is_integer_format(p.format) &&
           (p.symmetric == false || std::ranges::any_of(p.zero_point, [](std::int64_t z) { return z != 0; }));
}

/// Returns what the profile's rules for blocks say against those of a weight; empty: nothing.
inline std::string block_obstacle(const target_profile& t, const precision& weight, const qk::format* activation) {
    const int bits = bits_of_integer(weight.format), block = weight.block_size.value_or(0);
    if (t.blocks.empty() || bits == 0 || block == 0) return {};
    const auto rule = std::ranges::find_if(t.blocks, [&](const auto& r) { return r.bits == bits; });
    const std::string weights = "weights of " + std::to_string(bits) + " bits";
    if (rule == t.blocks.end()) return "has no blocks in " + weights;
    if (!rule->sizes.empty() && std::ranges::find(rule->sizes, block) == rule->sizes.end()) {
        std::vector<std::string> sizes;
        for (const int n : rule->sizes) sizes.push_back(std::to_string(n));
        return "has blocks of " + comma_separated(sizes) + " in " + weights + ", not of " + std::to_string(block);
    }
    if (block % rule->multiple != 0)
        return "has blocks of multiples of " + std::to_string(rule->multiple) + " in " + weights + ", not of " + std::to_string(block);
    if (rule->activation_bits > 0 && (activation == nullptr || bits_of_integer(*activation) < rule->activation_bits))
        return "has blocks in " + weights + " beside activations of " + std::to_string(rule->activation_bits) + " bits alone";
    return {};
}

/// Formats for which onnxruntime's QDQ fusion has integer kernels (qdq_selectors.cc), and the float conversions that it runs.
inline target_profile onnxruntime_target() {
    const std::vector<qk::format> eight{int8, uint8}, data{int8, uint8, int16, uint16, fp16, bf16, fp8_e4m3fn, fp8_e5m2};
    const std::vector<qk::format> product{int8, uint8, fp16}, packed{int8, uint8, int4, uint4, fp16};
    return {.name = "onnxruntime",
            .operators = {{"Conv", {product, product}},
                          {"ConvTranspose", {{fp16}, product}},
                          {"Gemm", {product, product}},
                          {"MatMul", {product, packed}},
                          {"Add", {eight, {}}},
                          {"Mul", {eight, {}}},
                          {"AveragePool", {eight, {}}},
                          {"GlobalAveragePool", {eight, {}}},
                          {"Concat", {eight, {}}},
                          {"*", {data, {}}}},
            .activation = "int8",
            .weight = "int8"};
}

/// OpenVINO runs every format, by what the file is written with. Its products of uint8 and int8 saturate without VNNI, too, but add other
/// pairs than those that pair-safe weights are made for; codes in uint8 are exact. Its recurrent operators want constants for weights, and
/// it keeps integers with their scales.
inline target_profile openvino_target() {
    target_profile::formats recurrent;
    for (const named_format& entry : catalogue)
        if (!is_integer_format(entry.format)) recurrent.weight.push_back(entry.format);
    const std::set<std::string_view> read{form::functions, form::integer_operators, "com.microsoft"};
    return {.name = "openvino",
            .operators = {{"LSTM", recurrent}, {"GRU", recurrent}, {"RNN", recurrent}, {"*", {}}},
            .unsigned_int8 = true,
            .activation = "int8",
            .weight = "int8",
            .file = {.style = "qdq", .reads = read, .inlined = true, .wide_pairs = false}};
}

/// Qualcomm's HTP by its version. Float layers run in float16, and none has one operand in float16 and one in fixed point.
inline target_profile qnn_target(const std::string& name, int version) {
    const bool wide = version >= 73;  // weights of 16 bits, and float16
    std::vector<qk::format> activation{int8, uint8, int16, uint16}, weight{int4, int8};
    std::vector<std::pair<qk::format, qk::format>> pairs;
    for (const qk::format& a : std::vector<qk::format>{int8, uint8, int16, uint16}) {
        for (const qk::format& w : std::vector<qk::format>{int4, int8, uint8}) pairs.emplace_back(a, w);
        for (const qk::format& w : std::vector<qk::format>{int16, uint16})
            if (wide && bits_of_integer(a) == 16) pairs.emplace_back(a, w);
    }
    if (wide) activation.push_back(fp16), weight.push_back(int16), weight.push_back(fp16), pairs.emplace_back(fp16, fp16);
    std::set<std::string> by_channel;
    if (version >= 68) by_channel = {"Conv", "ConvTranspose"};
    if (version >= 69) by_channel.insert({"Gemm", "MatMul"});
    return {.name = name,
            .operators = {{"*", {activation, weight}}},
            .signed_int8 = true,
            .pairs = pairs,
            .symmetric_weights = true,
            .one_static_scale = true,
            .per_channel = by_channel,
            .blocks = {{.bits = 4, .multiple = 8, .activation_bits = 16}, {.bits = 8, .multiple = 4, .activation_bits = 16}},
            .where = placement::all,
            .activation = "int8",
            .weight = "int8",
            .file = {.style = "qdq", .reads = {{form::functions}}, .guards = false}};
}

inline target_profile tensorrt_target() {
    const std::vector<qk::format> data{int8, fp8_e4m3fn, fp16, bf16};
    const std::vector<qk::format> operand{int8, fp8_e4m3fn, nvfp4, mxfp8_e4m3, fp16, bf16};
    std::vector<qk::format> matrix = operand;
    matrix.push_back(int4);
    std::vector<std::pair<qk::format, qk::format>> pairs{{fp32, int4}, {fp16, int4}, {bf16, int4}};
    for (const qk::format& f : operand) pairs.emplace_back(f, f);
    const std::set<std::string_view> nothing;
    return {.name = "tensorrt",
            .operators = {{"MatMul", {operand, matrix}}, {"Gemm", {operand, matrix}}, {"*", {data, data}}},
            .signed_int8 = true,
            .pairs = pairs,
            .symmetric_activations = true,
            .symmetric_weights = true,
            .one_static_scale = true,
            .fused_outputs = true,
            .blocks = {{.bits = 4, .sizes = {64, 128}, .needed = true}},
            .scale_rule = qk::scale_rule::rceil,
            .activation = "int8",
            .weight = "int8",
            .file = {.style = "qdq", .reads = nothing, .guards = false, .dynamic_quantize = true, .signed_activations = true}};
}

inline target_profile vitis_ai_target() {
    const std::vector<qk::format> activation{int8, int16, bf16, bfp16}, weight{int8, bf16, bfp16};
    return {.name = "vitis_ai",
            .operators = {{"*", {activation, weight}}},
            .signed_int8 = true,
            .pairs = {{int8, int8}, {int16, int8}, {bf16, bf16}, {bfp16, bfp16}, {bf16, bfp16}},
            .symmetric_activations = true,
            .symmetric_weights = true,
            .power_of_two = true,
            .one_static_scale = true,
            .per_channel = std::set<std::string>{},
            .where = placement::all,
            .activation = "int8",
            .weight = "int8",
            .bias = "int8",
            .file = {.style = "amd", .reads = {{form::functions, "com.amd.quark"}}, .guards = false, .signed_activations = true}};
}

/// Versions of HTP for which AIMET has a configuration. The name without a version is version 73.
inline constexpr int htp_versions[] = {66, 68, 69, 73, 75, 79, 81, 85};

}  // namespace detail

bool target_profile::allows(const std::string& op_type, const qk::format* activation_format, const qk::format* weight_format) const {
    auto found = operators.find(op_type);
    if (found == operators.end()) found = operators.find("*");
    if (found == operators.end()) return false;
    const auto in = [](const std::vector<qk::format>& list, const qk::format* f) {
        return f == nullptr || is_identity(*f) || list.empty() ||
               std::ranges::any_of(list, [&](const qk::format& g) { return detail::same_storage(*f, g); });
    };
    return in(found->second.activation, activation_format) && in(found->second.weight, weight_format);
}

void target_profile::complete(precision& what, const std::string& op_type, bool is_weight) const {
    if (!what.scale_rule && !what.semantics && std::holds_alternative<microscaling>(what.format)) what.scale_rule = scale_rule;
    integer* f = std::get_if<integer>(&what.format);
    if (f == nullptr || f->bits > 16) return;
    if ((is_weight ? symmetric_weights : symmetric_activations) && !what.symmetric) what.symmetric = true;
    if (power_of_two && f->bits == 8 && what.scale.empty()) {
        f->pow2 = true;
        if (!what.pow2) what.pow2 = pow2_rule::min_mse;
    }
    if (!is_weight || op_type.empty()) return;
    if (per_channel && !per_channel->contains(op_type) && !what.per_channel) what.per_channel = false;
    for (const block_rule& r : blocks)
        if (r.needed && r.bits == f->bits && !what.block_size && what.scale.empty()) what.block_size = r.sizes.back();
}

std::string target_profile::obstacle(const std::string& op_type, const std::vector<precision>& activations, const precision* weights,
                                     bool dynamic) const {
    const qk::format *a = nullptr, *w = weights != nullptr ? &weights->format : nullptr;
    for (const precision& p : activations)
        if (a == nullptr || bits_per_value(p.format) > bits_per_value(*a)) a = &p.format;
    const auto text = [](const qk::format* f) { return f != nullptr ? to_string(*f) : "fp32"; };
    const std::string absent =
        "has no " + op_type + " with activation " + text(a) + " and weight " + text(w != nullptr && !is_identity(*w) ? w : nullptr);
    if (!allows(op_type, a, w)) return absent;
    if (w != nullptr && !detail::is_paired(*this, a != nullptr ? *a : qk::format(fp32), *w)) return absent;
    for (const precision& p : activations) {
        if (!allows(op_type, &p.format, nullptr) || (!detail::same_storage(p.format, *a) && !detail::is_paired(*this, *a, p.format)))
            return "has no " + op_type + " of " + to_string(*a) + " with " + to_string(p.format);
        if (symmetric_activations && detail::has_shifted_zero(p)) return "has activations without zero points alone";
        if (!one_static_scale || !is_integer_format(p.format)) continue;
        if (dynamic || p.dynamic) return "has activations of " + to_string(p.format) + " with scales that are known beforehand alone";
        if (p.scale.size() > 1) return "has one scale for an activation, not " + std::to_string(p.scale.size());
    }
    if (weights == nullptr || is_identity(weights->format)) return {};
    if (symmetric_weights && detail::has_shifted_zero(*weights)) return "has weights without zero points alone";
    const bool by_channel = weights->per_channel.value_or(false) || (weights->scale.size() > 1 && !weights->block_size);
    if (is_integer_format(weights->format) && by_channel && per_channel && !per_channel->contains(op_type))
        return "has one scale for the weights of " + op_type + ", not one for each channel";
    return detail::block_obstacle(*this, *weights, a);
}

std::vector<std::string> builtin_target_names() {
    std::vector<std::string> names{"onnxruntime", "openvino", "qnn", "tensorrt", "vitis_ai"};
    for (const int v : detail::htp_versions) names.push_back("qnn_v" + std::to_string(v));
    return names;
}

std::optional<target_profile> builtin_target(std::string_view name) {
    if (name == "onnxruntime") return detail::onnxruntime_target();
    if (name == "openvino") return detail::openvino_target();
    if (name == "tensorrt") return detail::tensorrt_target();
    if (name == "vitis_ai") return detail::vitis_ai_target();
    if (name == "qnn") return detail::qnn_target("qnn", 73);
    for (const int v : detail::htp_versions)
        if (const std::string own = "qnn_v" + std::to_string(v); name == own) return detail::qnn_target(own, v);
    return std::nullopt;
}

}  // namespace qk::graph
