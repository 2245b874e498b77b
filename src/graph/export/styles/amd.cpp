// SPDX-License-Identifier: Apache-2.0
// Style amd: com.amd.quark operators for block formats, 16-bit floats and wide integers; standard Q/DQ pairs for what ONNX holds.
#include <algorithm>

#include "graph/export/marks.hpp"
#include "graph/export/qdq.hpp"
#include "graph/export/style.hpp"
#include "graph/model/operator_name.hpp"
#include "qk/graph/model/attribute.hpp"

namespace qk::graph::detail {

/// The values of element_dtype.
constexpr std::pair<floating, const char*> mx_elements[] = {
    {fp8_e4m3fn, "fp8_e4m3"}, {fp8_e5m2, "fp8_e5m2"}, {fp6_e3m2, "fp6_e3m2"}, {fp6_e2m3, "fp6_e2m3"}, {fp4_e2m1, "fp4_e2m1"}};

/// Constants stay float32 before BFPQuantizeDequantize, MXQuantizeDequantize and 16-bit floats, as AMD's own tools write them, and they
/// stay unrounded except for filters of grouped convolutions.
/// The operators treat NaN, Inf and -0 as semantics::quark does; a plan with other semantics is written all the same, with a note.
class amd_writer : public qdq_writer {
  public:
    using qdq_writer::qdq_writer;

    std::string activation(const quantized_value& v) override {
        if (is_block_format(v.how.format)) return blocks(v);
        if (const auto type = extended_type(v.how.format)) return extended(v, *type);
        return qdq_writer::activation(v);
    }

    std::string weight(const quantized_value& v, const tensor& value) override {
        if (is_block_format(v.how.format)) return blocks(v.how.flatten ? along_channels(v, value) : v, value.size() == 1);
        const auto type = extended_type(v.how.format);
        // The codes of an int32 bias are read by the standard DequantizeLinear.
        if (!type || *type == data_type::int32) return qdq_writer::weight(v, value);
        if (!is_integer_format(v.how.format)) return extended(v, *type);
        check_extended(v, true);
        const quantizer_inputs p = inputs_of(v, *type);
        const std::string y = g_.fresh(v.name + "_DequantizeLinear_Output");
        set_channel(amd_node("ExtendedDequantizeLinear",
                             {g_.constant(v.name + marks::quantized, integer_codes(v.how, value, *type)), p.scale, p.zero_point}, y),
                    v);
        return y;
    }

    void finish() override {
        if (other_answers_ > 0)
            notes_.push_back("AMD's operators treat NaN, Inf, the sign of zero and scales below 2^-127 as semantics 'quark' does, and " +
                             std::to_string(other_answers_) +
                             " quantizers of the plan were made with others: finite values of ordinary size come out the same");
        if (clipping_ > 0)
            notes_.push_back("ExtendedQuantizeLinear clips fp16 to 65504 where the plan has Inf (" + std::to_string(clipping_) +
                             " tensors)");
        if (along_channels_ > 0)
            notes_.push_back(std::to_string(along_channels_) +
                             " weights of grouped convolutions have blocks along axis 1, as AMD's tools have them; the plan's are "
                             "flattened for each output channel");
        if (single_ > 0)
            notes_.push_back(std::to_string(single_) + " constants of one element pass through AMD's block operators unchanged");
    }

  private:
    struct quantizer_inputs {
        std::string scale, zero_point;
    };

    onnx::NodeProto& amd_node(const std::string& op, const std::vector<std::string>& inputs, const std::string& output) {
        g_.import("com.amd.quark", 1000);  // what AMD's exporter writes
        return g_.node(op, inputs, {output}, "com.amd.quark");
    }

    [[noreturn]] void no_operator(const quantized_value& v, const std::string& why) const {
        cannot_hold(v, why + "; give the tensor another format, or use --export portable");
    }

    static std::optional<data_type> extended_type(const qk::format& f) {
        if (const floating* x = std::get_if<floating>(&f)) return onnx_float16(*x);
        const integer* i = std::get_if<integer>(&f);
        if (i == nullptr || i->bits <= 8) return std::nullopt;
        if (i->bits <= 16) return i->is_signed ? data_type::int16 : data_type::uint16;
        return i->is_signed ? data_type::int32 : data_type::uint32;
    }

    void count_other_answers(const quantizer& q) {
        qk::semantics same = semantics::quark;
        same.rounding = q.semantics.rounding, same.seed = q.semantics.seed, same.first_index = q.semantics.first_index;
        other_answers_ += !(q.semantics == same);
    }

    /// The operators' blocks run along axis 1, of which a depthwise filter has one element. Where the operators leave the values of the
    /// plan's flattened blocks unchanged, returns these values as the constant; otherwise returns `v`.
    quantized_value along_channels(const quantized_value& v, const tensor& value) {
        quantized_value theirs = v;
        theirs.how.flatten = false, theirs.how.axis = 1;
        const tensor planned = rounded(v.how, value);
        if (!std::ranges::equal(planned.as<float>(), rounded(theirs.how, planned).as<float>(),
                                [](float a, float b) { return a == b || a != a; }))
            return v;
        theirs.name = g_.constant(v.name + marks::rounded, planned);
        return theirs;
    }

    /// Writes BFPQuantizeDequantize and MXQuantizeDequantize, with every attribute spelled out.
    std::string blocks(const quantized_value& v, bool single = false) {
        const quantizer& q = v.how;
        const block_float* bfp = std::get_if<block_float>(&q.format);
        const microexponent* micro = std::get_if<microexponent>(&q.format);
        const microscaling* mx = std::get_if<microscaling>(&q.format);
        if (!bfp && !micro && !mx) no_operator(v, "has no AMD operator");
        if (q.semantics.scale_rule != scale_rule::floor && mx) no_operator(v, "with a scale rule other than floor has no AMD operator");
        const std::int64_t axis = v.rank == 1 ? 0 : q.flatten ? 1 : positive_axis(q.axis, v.rank);
        const std::string y = g_.fresh(v.name + "_DequantizeLinear_Output");
        if (mx) {
            const std::string element = element_of(v, *mx);
            const std::int64_t mode = has_integer_elements(*mx) ? rounding_mode(v) : half_even_only(v);
            auto& n = amd_node("MXQuantizeDequantize", {v.name}, y);
            set_attribute(n, "element_dtype", element);
            set_attribute(n, "axis", axis);
            set_attribute(n, "block_size", static_cast<std::int64_t>(mx->block_size));
            set_attribute(n, "rounding_mode", mode);
        } else {
            if ((bfp ? bfp->exponent_bits : micro->exponent_bits) != 8)
                no_operator(v, "has a shared exponent of other than 8 bits, which no AMD operator has");
            if (bfp && bfp->bump) no_operator(v, "with bump has no AMD operator");
            const std::int64_t mode = rounding_mode(v);
            auto& n = amd_node("BFPQuantizeDequantize", {v.name}, y);
            set_attribute(n, "bfp_method", std::string(bfp ? "to_bfp" : "to_bfp_prime"));
            set_attribute(n, "axis", axis);
            set_attribute(n, "bit_width", std::int64_t{bfp ? bfp->mantissa_bits : micro->mantissa_bits} + 9);
            set_attribute(n, "block_size", std::int64_t{bfp ? bfp->block_size : micro->block_size});
            set_attribute(n, "rounding_mode", mode);
            set_attribute(n, "sub_block_size", std::int64_t{micro ? micro->sub_block_size : 2});
            set_attribute(n, "sub_block_shift_bits", std::int64_t{micro ? micro->shift_bits : 1});
            set_attribute(n, "convert_to_bfloat_before_bfp", std::int64_t{0});
        }
        count_other_answers(q);
        along_channels_ += q.flatten;
        single_ += single;
        return y;
    }

    std::string element_of(const quantized_value& v, const microscaling& f) const {
        if (has_integer_elements(f)) {
            if (f.integer_bits != 8) no_operator(v, "has elements that no AMD operator has");
            return "int8";
        }
        for (const auto& [element, name] : mx_elements)
            if (f.element == element) return name;
        no_operator(v, "has elements that no AMD operator has");
    }

    std::int64_t rounding_mode(const quantized_value& v) const {
        switch (v.how.semantics.rounding) {
            case rounding::half_away: return 0;
            case rounding::half_up: return 1;
            case rounding::half_even: return 2;
            default: no_operator(v, "rounded otherwise than half-even, half-away or half-up has no AMD operator");
        }
    }
    std::int64_t half_even_only(const quantized_value& v) const {
        if (v.how.semantics.rounding != rounding::half_even) no_operator(v, "with floating elements rounds half-even in AMD's operator");
        return 2;
    }

    void check_extended(const quantized_value& v, bool is_weight) const {
        const quantizer& q = v.how;
        if (const integer* f = std::get_if<integer>(&q.format)) {
            if (!fills(*f, *extended_type(q.format))) no_operator(v, "does not fill its container type, and no AMD operator clips it");
            if (q.dynamic) no_operator(v, "with scales from each run's own values has no AMD operator");
            if (q.scale.empty()) no_operator(v, "has no scale in the plan");
            if (q.block_size > 0) no_operator(v, "with a grid of scales has no AMD operator");
            if (is_weight) return;
            if (q.semantics.integer_mode != integer_mode::division || q.semantics.zero_point_before)
                no_operator(v, "in another mode than division, zero point added after, has no AMD operator");
        } else if (has_scale(q)) {
            no_operator(v, "with a scale has no AMD operator");
        }
        if (q.semantics.rounding != rounding::half_even) no_operator(v, "rounded otherwise than half-even has no AMD operator");
    }

    /// The zero point's type selects the format.
    quantizer_inputs inputs_of(const quantized_value& v, data_type type) {
        const bool integers = is_integer_format(v.how.format);
        const std::vector<float> scale = integers ? v.how.scale : std::vector<float>{1.0f};
        const dims shape = scale.size() > 1 ? dims{static_cast<std::int64_t>(scale.size())} : dims{};
        tensor zero(type, shape);
        std::memset(zero.bytes(), 0, zero.size_bytes());
        for (std::size_t i = 0; integers && i < zero.size() && !v.how.zero_point.empty(); ++i) {
            const std::int64_t z = v.how.zero_point[v.how.zero_point.size() == 1 ? 0 : i];
            std::memcpy(zero.bytes() + i * size_of(type), &z, size_of(type));
        }
        return {g_.constant(v.name + "_scale", make_tensor<float>(shape, scale)), g_.constant(v.name + "_zero_point", zero)};
    }
    void set_channel(onnx::NodeProto& n, const quantized_value& v) const {
        if (v.how.scale.size() > 1) set_attribute(n, "axis", positive_axis(v.how.axis, v.rank));
    }

    std::string extended(const quantized_value& v, data_type type) {
        check_extended(v, false);
        const quantizer_inputs p = inputs_of(v, type);
        const std::string codes = g_.fresh(v.name + "_QuantizeLinear_Output"), y = g_.fresh(v.name + "_DequantizeLinear_Output");
        set_channel(amd_node("ExtendedQuantizeLinear", {v.name, p.scale, p.zero_point}, codes), v);
        set_channel(amd_node("ExtendedDequantizeLinear", {codes, p.scale, p.zero_point}, y), v);
        if (is_integer_format(v.how.format)) count_other_answers(v.how);
        clipping_ += type == data_type::float16;
        return y;
    }

    int other_answers_ = 0, clipping_ = 0, along_channels_ = 0, single_ = 0;
};

namespace {
/// Reads the quantizer of BFPQuantizeDequantize or MXQuantizeDequantize, under their older names, too.
read_back read_amd(const model& m, int node) {
    const onnx::NodeProto& n = m.graph().node(node);
    if (!marks::is_amd(n.domain())) return {};
    const auto number = [&](const char* name, int otherwise) { return static_cast<int>(int_attribute(n, name, otherwise)); };
    quantizer q;
    q.axis = number("axis", 1), q.semantics = semantics::quark;
    constexpr rounding modes[] = {rounding::half_away, rounding::half_up, rounding::half_even};
    const bool mx = operator_of(n) == "MXQuantizeDequantize" || operator_of(n) == "MXFixNeuron";
    const int mode = number("rounding_mode", mx ? 2 : 0);
    if (mode < 0 || mode > 2) return {};
    q.semantics.rounding = modes[mode];
    if (mx) {
        microscaling f = mxint8;
        f.block_size = number("block_size", 32);
        const std::string element = text_attribute(n, "element_dtype", "int8");
        for (const auto& [e, name] : mx_elements)
            if (element == name) f.element = e, f.integer_bits = 0, q.semantics.rounding = rounding::half_even;
        q.format = f;
    } else if (operator_of(n) == "BFPQuantizeDequantize" || operator_of(n) == "BFPFixNeuron") {
        const int mantissa = number("bit_width", 16) - 9, block = number("block_size", 8);
        if (text_attribute(n, "bfp_method", "to_bfp") == "to_bfp")
            q.format = block_float{.block_size = block, .exponent_bits = 8, .mantissa_bits = mantissa};
        else
            q.format = microexponent{.block_size = block,
                                     .sub_block_size = number("sub_block_size", 2),
                                     .exponent_bits = 8,
                                     .shift_bits = number("sub_block_shift_bits", 1),
                                     .mantissa_bits = mantissa};
    } else {
        return {};
    }
    return q;
}

}  // namespace

constinit const style_row amd_style{.name = "amd",
                                    .help = "com.amd.quark operators",
                                    .writer = make_writer<amd_writer>,
                                    .writes = {"com.amd.quark"},
                                    .read = read_amd,
                                    .for_onnxruntime = false,
                                    .signed_activations = true,
                                    .floor_scales = true};

}  // namespace qk::graph::detail
