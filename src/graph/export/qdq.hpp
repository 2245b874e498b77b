// SPDX-License-Identifier: Apache-2.0
// Pairs, which all styles write for what these hold: QuantizeLinear and DequantizeLinear for integers and ONNX's FP8 types, pairs of Cast
// for fp16 and bf16.
#pragma once

#include <optional>
#include <span>

#include "graph/export/codes.hpp"
#include "graph/export/description.hpp"
#include "graph/export/marks.hpp"
#include "graph/model/code_types.hpp"

namespace qk::graph::detail {

/// ONNX's element type that holds the codes of a format, and the opset from which QuantizeLinear and DequantizeLinear know it.
struct container {
    data_type type;
    int opset;
};

/// Without `two_bits` codes of 2 bits are stored in 4: OpenVINO loads no others.
inline container container_of(integer f, bool two_bits = true) {
    if (f.bits <= 2 && two_bits) return {f.is_signed ? data_type::int2 : data_type::uint2, 25};
    if (f.bits <= 4) return {f.is_signed ? data_type::int4 : data_type::uint4, 21};
    if (f.bits <= 8) return {f.is_signed ? data_type::int8 : data_type::uint8, 10};
    if (f.bits <= 16) return {f.is_signed ? data_type::int16 : data_type::uint16, 21};
    return {f.is_signed ? data_type::int32 : data_type::undefined, 10};  // only DequantizeLinear takes it
}
/// Returns whether the format has every code of the container; a format with fewer needs a Clip.
inline bool fills(integer f, data_type t) {
    const int width = static_cast<int>(packed_bits(t));
    return f.bits == width && qmin(f) == qmin(integer{.bits = width, .is_signed = f.is_signed}) &&
           qmax(f) == qmax(integer{.bits = width, .is_signed = f.is_signed});
}
/// Is true for types of 2 bits: onnxruntime 1.31 does not saturate what is far out of their range, it wraps around. Types of 4 bits wrap
/// around beyond 2^31 times the scale, where there are many scales.
constexpr bool wraps(data_type t) { return t == data_type::int2 || t == data_type::uint2; }
inline std::optional<data_type> onnx_float8(floating f) {
    if (f == fp8_e4m3fn) return data_type::float8e4m3fn;
    if (f == fp8_e4m3fnuz) return data_type::float8e4m3fnuz;
    if (f == fp8_e5m2) return data_type::float8e5m2;
    if (f == fp8_e5m2fnuz) return data_type::float8e5m2fnuz;
    return std::nullopt;
}
inline std::optional<data_type> onnx_float16(floating f) {
    if (f == fp16) return data_type::float16;
    if (f == bf16) return data_type::bfloat16;
    return std::nullopt;
}
inline bool has_scale(const quantizer& q) { return !q.scale.empty() && !(q.scale.size() == 1 && q.scale[0] == 1.0f); }

/// A reason not to write an integer quantizer, and the end of the sentence that says so: "int8 has no scale in the plan".
struct obstacle {
    bool (*stands)(const quantizer& q, const integer& f);
    const char* why;
};
/// Returns the sentence of the first obstacle that stands, or null.
inline const char* first_of(std::span<const obstacle> table, const quantizer& q, const integer& f) {
    for (const obstacle& o : table)
        if (o.stands(q, f)) return o.why;
    return nullptr;
}

/// Returns whether DynamicQuantizeLinear computes this: uint8, asymmetric, one scale.
inline bool is_dynamic_linear(const quantizer& q, const integer& f) { return f == uint8 && q.block_size == 0; }

/// The obstacles to QuantizeLinear and DequantizeLinear of integers.
inline constexpr obstacle integer_obstacles[] = {
    {[](const quantizer& q, const integer& f) { return f.bits > 16 && is_shifted(q); }, "has no DequantizeLinear with a zero point"},
    {[](const quantizer& q, const integer&) { return q.flatten && q.block_size > 0; },
     "with blocks over a flattened filter has no DequantizeLinear form"},
    {[](const quantizer& q, const integer& f) { return q.dynamic && !is_dynamic_linear(q, f); },
     "with scales from each run's own values has no standard operator (uint8 has one, DynamicQuantizeLinear)"},
    {[](const quantizer& q, const integer&) { return !q.dynamic && q.scale.empty(); }, "has no scale in the plan"},
};
/// Those to integer activations, whose codes the runtime makes.
inline constexpr obstacle activation_obstacles[] = {
    {[](const quantizer& q, const integer&) { return q.semantics.integer_mode != integer_mode::division; },
     "in reciprocal mode is not what QuantizeLinear computes"},
    {[](const quantizer& q, const integer&) { return q.semantics.rounding != rounding::half_even; },
     "with another rounding than half-even is not what QuantizeLinear computes"},
    {[](const quantizer& q, const integer&) { return q.semantics.zero_point_before; },
     "with the zero point added before rounding is not what QuantizeLinear computes"},
    {[](const quantizer& q, const integer& f) {
         const data_type type = container_of(f).type;
         return q.scale.size() > 1 && (!fills(f, type) || wraps(type));
     },
     "with a scale per channel does not fill its container type"},
    {[](const quantizer& q, const integer&) { return q.semantics.flush_inputs || q.semantics.flush_outputs; },
     "with subnormals flushed is not what QuantizeLinear computes"},
    {[](const quantizer& q, const integer&) { return q.block_size > 0; },
     "with a grid of scales on an activation of unknown shape has no QuantizeLinear form"},
};

class qdq_writer : public quantizer_writer {
  public:
    using quantizer_writer::quantizer_writer;

    /// Returns why this style alone cannot write a quantizer for an activation or a weight; null if it can.
    static const char* obstacle_to(const quantizer& q, bool is_weight) {
        if (const integer* f = std::get_if<integer>(&q.format)) {
            if (f->bits > 16 && !(is_weight && f->is_signed)) return "has no QuantizeLinear type";
            const char* why = first_of(integer_obstacles, q, *f);
            return why != nullptr || is_weight ? why : first_of(activation_obstacles, q, *f);
        }
        if (const floating* f = std::get_if<floating>(&q.format)) {
            const semantics& how = q.semantics;
            const bool as_ieee = how.rounding == rounding::half_even && !how.flush_inputs && !how.flush_outputs;
            if (onnx_float16(*f) && !has_scale(q) && (is_weight || (as_ieee && !reference::saturates(*f, how.overflow)))) return nullptr;
            if (onnx_float8(*f) && !q.dynamic && !(q.flatten && q.block_size > 0) && (is_weight || (as_ieee && q.block_size == 0)))
                return nullptr;
        }
        return "has no standard operator";
    }

    bool dequantizes(const quantizer& weight) const override {
        const floating* f = std::get_if<floating>(&weight.format);
        return (f == nullptr || bits(*f) <= 8) && obstacle_to(weight, true) == nullptr;
    }

    std::string activation(const quantized_value& v) override {
        if (const char* why = obstacle_to(v.how, false)) cannot_hold(v, std::string(why) + "; use --export portable");
        if (v.how.dynamic && is_integer_format(v.how.format)) return dynamic_linear(v);
        if (const floating* f = std::get_if<floating>(&v.how.format); f != nullptr && onnx_float16(*f))
            return cast_pair(v, *onnx_float16(*f));
        const quantize_type t = type_of_codes(v);
        std::string x = v.name;
        const integer* f = std::get_if<integer>(&v.how.format);
        const bool clipped = f != nullptr && (!fills(*f, t.codes.type) || wraps(t.codes.type));
        if (clipped) x = clip(v, *f);
        // onnxruntime drops a Relu before QuantizeLinear of FP8 and of 4 bits, whatever the zero point, and fuses what is behind them into
        // operators that have no such types. It takes a Clip before QuantizeLinear for a range of its own and, from opset 21 on, does not
        // load the model. It fuses pairs with a scale for each channel into operators that have one scale for an activation.
        const bool apart = t.is_float || packed_bits(t.codes.type) == 4 || clipped || v.how.scale.size() > 1;
        if (apart) x = g_.kept_apart(x);
        const parameters p = scales(v, {}, t);
        const std::string codes = g_.fresh(v.name + marks::quantized);
        auto& q = g_.node("QuantizeLinear", {x, p.scale, p.zero_point}, {codes});
        set_axis(q, v, p);
        if (t.is_float && !reference::saturates(std::get<floating>(v.how.format), v.how.semantics.overflow))
            set_attribute(q, "saturate", std::int64_t{0});
        const std::string y = g_.fresh(v.name + "_dequantized");
        auto& d = g_.node("DequantizeLinear", {codes, p.scale, p.zero_point}, {y});
        set_axis(d, v, p);
        remember(d, v.how, t.codes.type);
        return apart ? g_.kept_apart(y) : guarded(v, y);
    }

    std::string weight(const quantized_value& v, const tensor& value) override {
        if (const char* why = obstacle_to(v.how, true)) cannot_hold(v, std::string(why) + "; use --export portable");
        const floating* f = std::get_if<floating>(&v.how.format);
        if (f != nullptr && onnx_float16(*f)) return half_constant(v, value, *onnx_float16(*f));
        const quantize_type t = type_of_codes(v);
        const parameters p = scales(v, value.shape(), t);
        std::string codes;
        // No QuantizeLinear makes the 32 bits of a bias; its codes are stored in either case.
        if (options_.weights != weight_storage::floats || t.codes.type == data_type::int32) {
            codes = g_.constant(v.name + marks::quantized, t.is_float ? floating_codes(v.how, value, t.codes.type)
                                                                      : integer_codes(v.how, value, t.codes.type, t.shift));
        } else {
            codes = g_.fresh(v.name + marks::quantized);
            set_axis(
                g_.node("QuantizeLinear", {g_.constant(v.name + marks::rounded, rounded(v.how, value)), p.scale, p.zero_point}, {codes}), v,
                p);
        }
        const std::string y = g_.fresh(v.name + "_dequantized");
        std::vector<std::string> inputs{codes, p.scale};
        if (!p.zero_point.empty()) inputs.push_back(p.zero_point);
        auto& d = g_.node("DequantizeLinear", inputs, {y});
        set_axis(d, v, p);
        remember(d, v.how, t.codes.type);
        // MatMulNBits of 2 bits gives other numbers in each run. With weights of 8 bits its 8-bit activations lose 3 to 5 dB.
        return v.nbits && (wraps(t.codes.type) || v.fine_codes) ? g_.kept_apart(y) : guarded(v, y);
    }

  private:
    struct quantize_type {
        container codes;
        bool is_float;
        std::int64_t shift = 0;  ///< added to codes and zero points
    };
    struct parameters {
        std::string scale, zero_point;
        bool many = false;
    };

    std::string dynamic_linear(const quantized_value& v) {
        g_.require_opset(11, "DynamicQuantizeLinear");
        const std::string codes = g_.fresh(v.name + marks::quantized), scale = g_.fresh(v.name + "_scale"),
                          zero = g_.fresh(v.name + "_zero_point");
        g_.node("DynamicQuantizeLinear", {v.name}, {codes, scale, zero});
        const std::string y = g_.fresh(v.name + "_dequantized");
        remember(g_.node("DequantizeLinear", {codes, scale, zero}, {y}), v.how, data_type::uint8);
        return guarded(v, y);
    }

    /// Writes for recover_plan what the type of codes does not say of a quantizer: semantics, and how scales were chosen.
    static void remember(onnx::NodeProto& n, const quantizer& how, data_type codes) {
        if (!(how.semantics == qk::semantics::ocp) || !(format_of_codes(codes) == how.format)) n.set_doc_string(describe(how));
    }

    quantize_type type_of_codes(const quantized_value& v) {
        const integer* i = std::get_if<integer>(&v.how.format);
        quantize_type t = i ? quantize_type{container_of(*i, !options_.pairs_of_bytes_alone), false}
                            : quantize_type{{*onnx_float8(std::get<floating>(v.how.format)), 19}, true};
        if (v.as_unsigned) t.codes.type = data_type::uint8, t.shift = 128;
        g_.require_opset(t.codes.opset, std::string("QuantizeLinear of ") + graph::name_of(t.codes.type));
        return t;
    }

    parameters scales(const quantized_value& v, const dims& shape, const quantize_type& t) {
        const quantizer& q = v.how;
        const std::vector<float> values = q.scale.empty() ? std::vector<float>{1.0f} : q.scale;
        parameters p;
        p.many = values.size() > 1;  // a single block is the whole tensor
        dims scale_shape;
        if (p.many) {
            g_.require_opset(q.block_size > 0 ? 21 : 13, q.block_size > 0 ? "blocked QuantizeLinear" : "QuantizeLinear per channel");
            scale_shape = {static_cast<std::int64_t>(values.size())};
            if (q.block_size > 0) {
                scale_shape = shape;
                auto& d = scale_shape.at(static_cast<std::size_t>(positive_axis(q.axis, shape.size())));
                d = (d + q.block_size - 1) / q.block_size;
            }
        }
        p.scale = g_.constant(v.name + "_scale", make_tensor<float>(scale_shape, values));
        if (t.codes.type == data_type::int32) return p;  // its zero point is 0 and left out
        tensor zero(t.codes.type, scale_shape);
        for (std::size_t i = 0; i < zero.size(); ++i) {
            const std::int64_t z = t.shift + (q.zero_point.empty() ? 0 : q.zero_point[q.zero_point.size() == 1 ? 0 : i]);
            std::memcpy(zero.bytes() + i * size_of(zero.type()), &z, size_of(zero.type()));
        }
        p.zero_point = g_.constant(v.name + "_zero_point", zero);
        return p;
    }

    void set_axis(onnx::NodeProto& n, const quantized_value& v, const parameters& p) const {
        if (!p.many) return;
        set_attribute(n, "axis", positive_axis(v.how.axis, v.rank));
        if (v.how.block_size > 0) set_attribute(n, "block_size", static_cast<std::int64_t>(v.how.block_size));
    }

    /// Clamps x to where its codes are the format's: (q - zero point) * scale divides back to within an ulp of q, so rounding gives q.
    std::string clip(const quantized_value& v, integer f) {
        const quantizer& q = v.how;
        g_.require_opset(11, "Clip of codes");
        const std::int64_t z = q.zero_point.empty() ? 0 : q.zero_point[0];
        const auto bound = [&](std::int64_t code, const char* stem) {
            return g_.constant(v.name + stem, make_tensor<float>({}, std::vector<float>{static_cast<float>(code - z) * q.scale[0]}));
        };
        const std::string y = g_.fresh(v.name + marks::clipped);
        g_.node("Clip", {v.name, bound(qmin(f), "_lowest"), bound(qmax(f), "_highest")}, {y});
        return y;
    }

    std::string cast_pair(const quantized_value& v, data_type type) {
        g_.require_opset(type == data_type::bfloat16 ? 13 : 9, "Cast");
        const std::string narrow = g_.fresh(v.name + marks::narrow), y = g_.fresh(v.name + marks::rounded);
        set_attribute(g_.node("Cast", {v.name}, {narrow}), "to", static_cast<std::int64_t>(type));
        auto& wide = g_.node("Cast", {narrow}, {y});
        set_attribute(wide, "to", std::int64_t{1});
        remember(wide, v.how, type);
        return y;
    }

    std::string half_constant(const quantized_value& v, const tensor& value, data_type type) {
        const tensor r = rounded(v.how, value);
        if (options_.weights == weight_storage::floats) return g_.rounded_constant(v.name, r, describe(v.how, true));
        g_.require_opset(type == data_type::bfloat16 ? 13 : 9, "Cast");
        tensor codes(type, value.shape());
        for (std::size_t i = 0; i < r.size(); ++i)
            codes.as<half>()[i].bits = static_cast<std::uint16_t>(code_of(std::get<floating>(v.how.format), r.as<float>()[i]));
        const std::string y = g_.fresh(v.name + marks::rounded);
        auto& wide = g_.node("Cast", {g_.constant(v.name + marks::narrow, codes)}, {y});
        set_attribute(wide, "to", std::int64_t{1});
        remember(wide, v.how, type);
        return y;
    }

    /// Adds a guard where the value needs one. onnxruntime quantizes float weights and biases of Conv, ConvTranspose and Gemm by itself
    /// when DequantizeLinear feeds them (WeightBiasQuantization), so that what runs would not be what was planned.
    std::string guarded(const quantized_value& v, const std::string& dequantized) {
        return v.guard ? g_.kept_apart(dequantized) : dequantized;
    }
};

}  // namespace qk::graph::detail
