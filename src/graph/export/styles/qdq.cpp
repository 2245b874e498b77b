// SPDX-License-Identifier: Apache-2.0
// Style qdq: pairs, and block formats in ONNX's own operators: constants as DequantizeLinear with block_size, activations as functions.
// docs/reference/export_styles.md.
#include <cmath>
#include <cstring>
#include <optional>

#include "graph/export/packed.hpp"
#include "graph/export/portable.hpp"
#include "graph/export/qdq.hpp"
#include "graph/export/style.hpp"

namespace qk::graph::detail {

/// A constant as DequantizeLinear with blocks takes it. Every block is whole: the last one is filled with codes of 0.
struct standard_blocks {
    data_type type = data_type::undefined;  ///< of the codes
    int axis = 0;
    std::int64_t block = 0;
    dims rows;  ///< the shape that is left of the codes' once the last block is cut: the constant's own, or [first axis, all others]
    tensor codes, scales;
    tensor zero_points;   ///< empty where all are 0
    tensor tensor_scale;  ///< of scales that are codes of FP8 themselves; empty for other scales

    bool fills_rows() const { return codes.shape() == rows; }
};

/// Turns a quantizer's codes of a constant into those of the narrowest container that has all of the format's values.
class block_coder {
  public:
    block_coder(const quantizer& q, const tensor& value, const packed_constant& p, bool two_bits)
        : q_(q), value_(value), p_(p), two_bits_(two_bits) {}

    /// Returns nullopt where no container of ONNX's holds the elements, or the result would have another value than the quantizer's.
    std::optional<standard_blocks> run() {
        const integer* i = std::get_if<integer>(&q_.format);
        block_ = static_cast<std::size_t>(i != nullptr ? q_.block_size : block_size(q_.format));
        if (p_.element_bits > 16 || !choose_container()) return std::nullopt;
        place();
        code_elements();
        code_scales();
        if (!same_values()) return std::nullopt;
        return std::move(made_);
    }

  private:
    /// Returns the value of an element's code, in units of its block's scale.
    float element(std::uint32_t c) const { return p_.element_bits <= 8 ? table_[c] : element_of(q_.format, p_.element_bits, c); }

    /// Returns whether multiples of a power of two, of at most `bits` bits with their sign, are all elements; sets the unit.
    bool are_multiples(int bits) {
        const microexponent* m = std::get_if<microexponent>(&q_.format);
        const int shifts = m != nullptr && !by_parts_ ? (1 << m->shift_bits) - 1 : 0;
        const double largest = power_of_two(bits - 1) - 1;
        float most = 0;
        int lowest = 64;  // the exponent of the smallest bit that an element has
        for (std::uint32_t c = 0; c < 1u << p_.element_bits; ++c) {
            const float v = element(c);
            if (!std::isfinite(v)) continue;
            most = std::max(most, std::fabs(v));
            int e = 0;
            if (float f = std::frexp(v, &e); f != 0) {
                while (f != std::trunc(f)) f *= 2, --e;
                lowest = std::min(lowest, e);
            }
        }
        unit_ = power_of_two(lowest - shifts);
        const bool two_complement = most / unit_ == largest + 1;  // elements with one more negative number
        return most / unit_ <= largest || (two_complement && shifts == 0);
    }

    bool choose_container() {
        if (p_.element_bits <= 8) table_ = element_table(q_.format, p_.element_bits);
        if (const integer* i = std::get_if<integer>(&q_.format)) {
            made_.type = container_of(*i, two_bits_).type, unit_ = 1;
            return i->bits <= 16;
        }
        const bool floats =
            !std::holds_alternative<block_float>(q_.format) && !std::holds_alternative<microexponent>(q_.format) && p_.element_bits <= 8;
        const auto held = [&](floating f) {
            return std::ranges::all_of(table_, [&](float v) {
                if (v != v) return has_nan(f);
                const float again = reference::value_of(f, reference::code_of(f, v));
                return again == v && std::signbit(again) == std::signbit(v);
            });
        };
        const auto floating_type = [&](data_type t, floating f) {
            if (!floats || !held(f)) return false;
            made_.type = t, of_floats_ = f, unit_ = 1;
            return true;
        };
        const auto whole = [&](data_type t, int bits) {
            if (!are_multiples(bits)) return false;
            made_.type = t;
            return true;
        };
        const bool integers = std::holds_alternative<microscaling>(q_.format) && has_integer_elements(std::get<microscaling>(q_.format));
        if (integers && (whole(data_type::int4, 4) || whole(data_type::int8, 8))) return true;
        if (floating_type(data_type::float4e2m1, fp4_e2m1) || whole(data_type::int4, 4)) return true;
        if (floating_type(data_type::float8e4m3fn, fp8_e4m3fn) || floating_type(data_type::float8e5m2, fp8_e5m2) ||
            floating_type(data_type::float8e4m3fnuz, fp8_e4m3fnuz) || floating_type(data_type::float8e5m2fnuz, fp8_e5m2fnuz) ||
            whole(data_type::int8, 8))
            return true;
        if (const microexponent* m = std::get_if<microexponent>(&q_.format); m != nullptr && m->block_size % m->sub_block_size == 0) {
            by_parts_ = true;  // a scale for each sub-block leaves the elements their own width
            if (whole(data_type::int8, 8)) {
                block_ = static_cast<std::size_t>(m->sub_block_size);
                return true;
            }
            by_parts_ = false;
        }
        return whole(data_type::int16, 16);
    }

    /// Finds the shape that the codes have.
    void place() {
        const along_axis& view = p_.view;
        if (q_.flatten) made_.rows = {static_cast<std::int64_t>(view.outer), static_cast<std::int64_t>(view.length)}, made_.axis = 1;
        else made_.rows = value_.shape(), made_.axis = static_cast<int>(positive_axis(q_.axis, value_.rank()));
        if (view.length < block_) block_ = view.length;
        blocks_ = (view.length + block_ - 1) / block_;
        made_.block = static_cast<std::int64_t>(block_);
    }

    dims shape_of(std::size_t along) const {
        dims shape = made_.rows;
        shape[static_cast<std::size_t>(made_.axis)] = static_cast<std::int64_t>(along);
        return shape;
    }

    /// Returns the shift of the element at position k along the axis.
    std::size_t shift_index(std::size_t o, std::size_t k, std::size_t in) const {
        const microexponent& m = std::get<microexponent>(q_.format);
        const auto block = static_cast<std::size_t>(m.block_size), part = static_cast<std::size_t>(m.sub_block_size);
        const std::size_t parts = reference::sub_blocks(m), all = (p_.view.length + block - 1) / block * parts;
        return (o * all + k / block * parts + k % block / part) * p_.view.inner + in;
    }

    void code_elements() {
        const std::vector<std::uint32_t> codes = codes_of_planes(p_.elements, p_.element_bits, value_.size());
        if (p_.shift_bits > 0) shifts_ = codes_of_planes(p_.shifts, p_.shift_bits, p_.shift_count);
        const std::size_t length = p_.view.length, inner = p_.view.inner, filled = blocks_ * block_;
        made_.codes = tensor(made_.type, shape_of(filled));
        std::memset(made_.codes.bytes(), 0, made_.codes.size_bytes());
        const std::size_t width = size_of(made_.type);
        const microexponent* m = std::get_if<microexponent>(&q_.format);
        for (std::size_t o = 0; o < p_.view.outer; ++o)
            for (std::size_t k = 0; k < length; ++k)
                for (std::size_t in = 0; in < inner; ++in) {
                    float v = element(codes[(o * length + k) * inner + in]);
                    if (m != nullptr && !by_parts_ && p_.shift_bits > 0)
                        v *= static_cast<float>(power_of_two(-static_cast<int>(shifts_[shift_index(o, k, in)])));
                    const std::int64_t code = of_floats_ ? std::int64_t{reference::code_of(*of_floats_, v)} : whole_number(v);
                    std::memcpy(made_.codes.bytes() + ((o * filled + k) * inner + in) * width, &code, width);
                }
    }
    std::int64_t whole_number(float v) const { return v == v ? static_cast<std::int64_t>(static_cast<double>(v) / unit_) : 0; }

    /// Writes the scales, as codes where the container is a float: E8M0, or those of FP8 under the tensor's scale.
    void code_scales() {
        const dims shape = shape_of(blocks_);
        if (std::holds_alternative<integer>(q_.format)) {
            made_.scales = make_tensor<float>(shape, q_.scale);
            if (!is_shifted(q_)) return;
            made_.zero_points = tensor(made_.type, shape);
            const std::size_t width = size_of(made_.type);
            for (std::size_t i = 0; i < made_.zero_points.size(); ++i) {
                const std::int64_t z = q_.zero_point[q_.zero_point.size() == 1 ? 0 : i];
                std::memcpy(made_.zero_points.bytes() + i * width, &z, width);
            }
            return;
        }
        const std::vector<std::uint32_t> codes = codes_of_planes(p_.scales, p_.scale_bits, p_.scale_count);
        const std::vector<float> table = scale_table(q_.format, p_.scale_bits);
        const floating* scale = scale_float(q_.format);
        if (of_floats_ && std::holds_alternative<microscaling>(q_.format)) {
            made_.scales = tensor(data_type::float8e8m0, shape);
            for (std::size_t i = 0; i < codes.size(); ++i) made_.scales.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(codes[i]);
            return;
        }
        if (const auto type = scale != nullptr ? onnx_float8(*scale) : std::nullopt) {
            made_.scales = tensor(*type, shape);
            for (std::size_t i = 0; i < codes.size(); ++i) made_.scales.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(codes[i]);
            made_.tensor_scale = make_tensor<float>({}, std::vector<float>{p_.tensor_scale * static_cast<float>(unit_)});
            return;
        }
        made_.scales = tensor(data_type::float32, shape);
        const auto out = made_.scales.as<float>();
        const std::size_t inner = p_.view.inner, wide = p_.scale_count / (p_.view.outer * inner);
        const std::size_t block = static_cast<std::size_t>(block_size(q_.format));
        for (std::size_t i = 0; i < out.size(); ++i) {
            const std::size_t in = i % inner, b = i / inner % blocks_, o = i / inner / blocks_;
            const std::size_t k = by_parts_ ? b * block_ / block : b;
            double s = static_cast<double>(table[codes[(o * wide + k) * inner + in]]);
            if (scale != nullptr) s = static_cast<double>(static_cast<float>(s) * p_.tensor_scale);
            if (by_parts_ && p_.shift_bits > 0) s *= power_of_two(-static_cast<int>(shifts_[shift_index(o, b * block_, in)]));
            out[i] = static_cast<float>(s * unit_);
        }
        if (by_parts_) narrow_scales();
    }

    /// Writes powers of two as E8M0: a float32 for each sub-block would take more bits than its elements.
    void narrow_scales() {
        tensor codes(data_type::float8e8m0, made_.scales.shape());
        for (std::size_t i = 0; i < codes.size(); ++i) {
            const float s = made_.scales.as<float>()[i];
            const std::uint32_t code = s == s ? static_cast<std::uint32_t>(std::ilogb(s) + 127) : 255u;
            if (code > 255 || !(reference::value_of(e8m0, code) == s || s != s)) return;
            codes.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(code);
        }
        made_.scales = std::move(codes);
    }

    float scale_at(std::size_t i) const {
        switch (made_.scales.type()) {
            case data_type::float32: return made_.scales.as<float>()[i];
            case data_type::float8e8m0: return reference::value_of(e8m0, made_.scales.as<std::uint8_t>()[i]);
            default:
                return reference::value_of(*scale_float(q_.format), made_.scales.as<std::uint8_t>()[i]) * made_.tensor_scale.as<float>()[0];
        }
    }

    /// Returns whether what DequantizeLinear makes of the codes is the value of the quantizer; 0 and -0 are the same number.
    bool same_values() const {
        tensor wanted(data_type::float32, value_.shape());
        execute::quantize_value(q_, value_.shape(), false, value_.as<float>(), wanted.as<float>());
        const std::size_t length = p_.view.length, inner = p_.view.inner, filled = blocks_ * block_;
        for (std::size_t o = 0; o < p_.view.outer; ++o)
            for (std::size_t k = 0; k < length; ++k)
                for (std::size_t in = 0; in < inner; ++in) {
                    const std::size_t at = (o * filled + k) * inner + in, s = (o * blocks_ + k / block_) * inner + in;
                    float v = 0;
                    if (of_floats_) {
                        v = reference::value_of(*of_floats_, made_.codes.as<std::uint8_t>()[at]);
                    } else {
                        const std::int64_t zero = made_.zero_points.empty() ? 0 : code_at(made_.zero_points, s);
                        v = static_cast<float>(code_at(made_.codes, at) - zero);
                    }
                    const float got = v * scale_at(s), want = wanted.as<float>()[(o * length + k) * inner + in];
                    if (!(got == want || (got != got && want != want))) return false;
                }
        return true;
    }

    const quantizer& q_;
    const tensor& value_;
    const packed_constant& p_;
    standard_blocks made_;
    std::vector<float> table_;           ///< elements by their codes, where those have at most 8 bits
    std::optional<floating> of_floats_;  ///< the container's format; empty for integers
    std::vector<std::uint32_t> shifts_;
    double unit_ = 1;  ///< of integer codes
    std::size_t block_ = 1, blocks_ = 1;
    bool two_bits_;
    bool by_parts_ = false;  ///< microexponents with a scale for each sub-block
};

/// Returns a constant under a block format, or under a grid of integer scales, in standard operators; nullopt where it has none.
inline std::optional<standard_blocks> standard_blocks_of(const quantizer& q, const tensor& value, bool two_bits) {
    if (value.rank() == 0 || value.size() == 0) return std::nullopt;
    const std::optional<packed_constant> p = packed(q, value);
    return p ? block_coder(q, value, *p, two_bits).run() : std::nullopt;
}

/// Style qdq: what QuantizeLinear and DequantizeLinear hold, constants in blocks among it. Activations in block formats, which no
/// QuantizeLinear computes (it does not choose scales), are functions of style portable.
class pairs_writer : public quantizer_writer {
  public:
    pairs_writer(graph_writer& g, const export_options& options, std::vector<std::string>& notes)
        : quantizer_writer(g, options, notes), standard_(g, options, notes), functions_(make_functions_writer(g, options, notes)) {}

    std::string activation(const quantized_value& v) override {
        const bool blocked = is_block_format(v.how.format);
        if (blocked && options_.dynamic_quantize) return dynamic_quantize(v);
        if (!blocked && !functions_->is_called(v.how) && !has_no_pair(v.how, false)) {
            functions_->count_pair(v.how);
            return standard_.activation(v);
        }
        if (blocked) ++calls_;
        return functions_->activation(v);
    }

    std::string weight(const quantized_value& v, const tensor& value) override {
        if (has_no_pair(v.how, true)) return functions_->weight(v, value);
        if (!needs_blocks(v, value)) return standard_.weight(v, value);
        if (options_.weights != weight_storage::floats) {
            if (const auto b = standard_blocks_of(v.how, value, !options_.pairs_of_bytes_alone)) return blocks(v, *b);
            left_.push_back(v.name);
        }
        return g_.rounded_constant(v.name, rounded(v.how, value), describe(v.how, true));
    }

    bool dequantizes(const quantizer& weight) const override { return is_block_format(weight.format) || standard_.dequantizes(weight); }
    bool dequantizes_activation(const quantizer& q) const override {
        return !is_block_format(q.format) && !functions_->is_called(q) && !has_no_pair(q, false);
    }

    void finish() override {
        functions_->finish();
        if (calls_ > 0)
            notes_.push_back(
                std::to_string(calls_) + " activations in block formats are " +
                (options_.inlined ? "arithmetic of standard operators" : "functions of standard operators, as in style portable") +
                ": QuantizeLinear takes scales, it does not choose them");
        if (dynamic_ > 0)
            notes_.push_back(
                std::to_string(dynamic_) +
                " activations in blocks are TensorRT's dynamic quantizers (domain trt): onnxruntime and OpenVINO do not have them");
        if (!without_kernel_.empty() && options_.guards && !options_.pairs_of_bytes_alone)
            notes_.push_back(
                std::to_string(without_kernel_.size()) + " constants ('" + without_kernel_[0] + "'" +
                (without_kernel_.size() > 1 ? ", ..." : "") +
                ") have codes of FLOAT4E2M1 or scales of FLOAT8E8M0, for which onnxruntime 1.32 has no kernel on the CPU: a file of "
                "--export portable runs there");
        if (!left_.empty())
            notes_.push_back(std::to_string(left_.size()) + " constants ('" + left_[0] + "'" + (left_.size() > 1 ? ", ..." : "") +
                             ") stay float32, rounded: no type of ONNX's holds the codes of their format");
    }

  private:
    /// Returns whether a function takes this because no pair holds it: only for a runtime that the file is written for, since who asks for
    /// pairs should hear that there is none.
    bool has_no_pair(const quantizer& q, bool is_weight) const {
        return options_.pairs_of_bytes_alone && !is_block_format(q.format) && qdq_writer::obstacle_to(q, is_weight) != nullptr;
    }

    /// Writes TensorRT's dynamic quantizers: codes and scales of blocks of the last two axes, computed in each run.
    std::string dynamic_quantize(const quantized_value& v) {
        const bool nv = v.how.format == qk::format(nvfp4);
        if (!nv && v.how.format != qk::format(mxfp8_e4m3))
            cannot_hold(v, "has no dynamic quantizer in TensorRT, which has those of nvfp4 and mxfp8_e4m3");
        if (nv && v.how.scale.size() != 1)
            cannot_hold(v, "has no scale for the tensor, which TensorRT wants to know beforehand: give --calibration data");
        const std::int64_t block = block_size(v.how.format), rank = static_cast<std::int64_t>(v.rank);
        const std::int64_t axis = v.rank == 0 ? v.how.axis : positive_axis(v.how.axis, v.rank) - rank;
        if (axis < -2 || axis > -1 || rank == 1)
            cannot_hold(v, "runs along axis " + std::to_string(v.how.axis) + ", and TensorRT's blocks run along one of the last two");
        if (v.length <= 0 || v.length % block != 0)
            cannot_hold(v, "has blocks of " + std::to_string(block) + ", and TensorRT wants a length that is known and a multiple of it: " +
                               (v.length <= 0 ? "it is not known" : "it is " + std::to_string(v.length)) +
                               "; leave the layers that read it out (\"exclude\")");
        g_.require_opset(nv ? 23 : 21, nv ? "DequantizeLinear of float4e2m1" : "TensorRT's dynamic quantizers");
        g_.import(marks::tensorrt_domain, 1);
        const std::string codes = g_.fresh(v.name + marks::quantized), scale_codes = g_.fresh(v.name + "_scale_codes"),
                          y = g_.fresh(v.name + "_dequantized");
        std::string scale = scale_codes;
        std::vector<std::string> inputs{v.name};
        if (nv) inputs.push_back(g_.constant(v.name + "_tensor_scale", make_tensor<float>({}, v.how.scale)));
        auto& q = g_.node(nv ? "TRT_FP4DynamicQuantize" : "TRT_MXFP8DynamicQuantize", inputs, {codes, scale_codes}, marks::tensorrt_domain);
        set_attribute(q, "axis", axis);
        set_attribute(q, "block_size", block);
        set_attribute(q, nv ? "scale_type" : "output_dtype", static_cast<std::int64_t>(data_type::float8e4m3fn));
        if (nv) {
            scale = g_.fresh(v.name + "_scale");
            g_.node("DequantizeLinear", {scale_codes, inputs[1]}, {scale});
        }
        auto& d = nv ? g_.node("DequantizeLinear", {codes, scale}, {y})
                     : g_.node("TRT_MXFP8DequantizeLinear", {codes, scale}, {y}, marks::tensorrt_domain);
        set_attribute(d, "axis", axis);
        set_attribute(d, "block_size", block);
        if (!nv) set_attribute(d, "output_dtype", static_cast<std::int64_t>(data_type::float32));
        d.set_doc_string(describe(v.how, true));
        ++dynamic_;
        return y;
    }

    /// Returns whether this needs more than a single DequantizeLinear of a constant in its own shape.
    static bool needs_blocks(const quantized_value& v, const tensor& value) {
        const quantizer& q = v.how;
        if (is_block_format(q.format)) return true;
        const integer* f = std::get_if<integer>(&q.format);
        if (f == nullptr || f->bits > 16 || v.as_unsigned || q.block_size == 0 || q.dynamic || q.scale.size() < 2 || value.rank() == 0)
            return false;  // one scale is the tensor's
        const along_axis view = view_along(value.shape(), q.axis, q.flatten);
        return q.flatten || view.length % static_cast<std::size_t>(q.block_size) != 0;
    }

    static int opset_of(const standard_blocks& b) {
        if (b.scales.type() == data_type::float8e8m0) return 24;
        if (b.type == data_type::int2 || b.type == data_type::uint2) return 25;
        return b.type == data_type::float4e2m1 ? 23 : 21;
    }

    std::string blocks(const quantized_value& v, const standard_blocks& b) {
        const bool e8m0_scales = b.scales.type() == data_type::float8e8m0;
        const bool own = e8m0_scales && options_.dynamic_quantize;  // TensorRT has an operator of its own for such scales
        if (own && b.type != data_type::float8e4m3fn) cannot_hold(v, "has no codes in TensorRT, which has those of mxfp8_e4m3");
        g_.require_opset(own ? 21 : opset_of(b), e8m0_scales ? std::string("DequantizeLinear with scales of float8e8m0")
                                                             : std::string("DequantizeLinear by blocks of ") + graph::name_of(b.type));
        if (e8m0_scales || b.type == data_type::float4e2m1) without_kernel_.push_back(v.name);
        const bool whole = !v.how.flatten && b.fills_rows();
        const std::string stem = whole ? v.name : v.name + marks::whole;
        // A vector of one block has one scale: for onnxruntime, that of the tensor, beside which it refuses a block_size.
        // Scales and codes for which it has no kernel keep theirs: it tells a reader what they are.
        const bool one = !e8m0_scales && b.type != data_type::float4e2m1 && b.scales.rank() == 1 && b.scales.size() == 1;
        const auto by_block = [&](const tensor& t) { return one ? t.reshaped({}) : t; };
        std::vector<std::string> inputs{g_.constant(stem + marks::quantized, b.codes)};
        std::string scale =
            g_.constant(v.name + (b.tensor_scale.empty() ? "_scale" : "_scale_codes"), own ? as_bytes(b.scales) : by_block(b.scales));
        if (!b.tensor_scale.empty()) {
            const std::string codes = scale;
            scale = g_.fresh(v.name + "_scale");
            g_.node("DequantizeLinear", {codes, g_.constant(v.name + "_tensor_scale", b.tensor_scale)}, {scale});
        }
        inputs.push_back(scale);
        if (!b.zero_points.empty()) inputs.push_back(g_.constant(v.name + "_zero_point", by_block(b.zero_points)));
        std::string y = g_.fresh(whole ? v.name + "_dequantized" : v.name + marks::whole);
        if (own) g_.import(marks::tensorrt_domain, 1);
        auto& d =
            own ? g_.node("TRT_MXFP8DequantizeLinear", inputs, {y}, marks::tensorrt_domain) : g_.node("DequantizeLinear", inputs, {y});
        if (!one) {
            set_attribute(d, "axis", static_cast<std::int64_t>(b.axis));
            set_attribute(d, "block_size", b.block);
        }
        if (e8m0_scales) set_attribute(d, "output_dtype", std::int64_t{1});
        d.set_doc_string(describe(v.how, is_block_format(v.how.format)));
        if (!whole) y = in_own_shape(v, b, y);
        // onnxruntime would make MatMulNBits of integers and their product, which computes with 8-bit activations, and of 2 bits wrongly.
        const bool integers = is_block_format(v.how.format) && b.scales.type() == data_type::float32;
        return integers || v.guard || (v.nbits && (wraps(b.type) || v.fine_codes)) ? g_.kept_apart(y) : y;
    }

    /// Returns E8M0 codes as the uint8 that TensorRT's operators have them in.
    static tensor as_bytes(const tensor& codes) {
        tensor bytes(data_type::uint8, codes.shape());
        std::memcpy(bytes.bytes(), codes.bytes(), codes.size_bytes());
        return bytes;
    }

    /// Cuts off what fills the last block, and undoes the flattening.
    std::string in_own_shape(const quantized_value& v, const standard_blocks& b, std::string y) {
        const auto list = [&](const char* stem, const std::vector<std::int64_t>& values) {
            return g_.constant(v.name + stem, make_tensor<std::int64_t>({static_cast<std::int64_t>(values.size())}, values));
        };
        if (!b.fills_rows()) {
            const std::string cut = g_.fresh(v.name + (v.how.flatten ? marks::whole : "_dequantized"));
            g_.node("Slice", {y, list("_first", {0}), list("_length", {b.rows[static_cast<std::size_t>(b.axis)]}), list("_axis", {b.axis})},
                    {cut});
            y = cut;
        }
        if (!v.how.flatten) return y;
        const std::string own = g_.fresh(v.name + "_dequantized");
        g_.node("Reshape", {y, list("_shape", v.shape)}, {own});
        return own;
    }

    qdq_writer standard_;
    std::unique_ptr<functions_writer> functions_;
    int calls_ = 0;                            ///< activations in block formats
    int dynamic_ = 0;                          ///< activations with TensorRT's dynamic quantizers
    std::vector<std::string> without_kernel_;  ///< constants in types that onnxruntime does not run
    std::vector<std::string> left_;            ///< constants without a form
};

constinit const style_row qdq_style{.name = "qdq", .help = "standard pairs alone", .writer = make_writer<pairs_writer>};

}  // namespace qk::graph::detail
