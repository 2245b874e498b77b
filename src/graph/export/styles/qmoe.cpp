// SPDX-License-Identifier: Apache-2.0
// Definitions of qmoe.hpp: rows of outputs, codes along the inputs.
#include "graph/export/styles/qmoe.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "graph/export/codes.hpp"
#include "graph/export/description.hpp"
#include "graph/export/marks.hpp"
#include "graph/export/packed.hpp"
#include "graph/export/packed_rows.hpp"
#include "graph/model/edit.hpp"
#include "graph/model/operator_name.hpp"
#include "graph/ops/expert_codes.hpp"
#include "graph/ops/widened.hpp"
#include "qk/graph/model/attribute.hpp"
#include "qk/reference/codes.hpp"

namespace qk::graph::detail {
namespace {

enum class expert_form : std::uint8_t { none, integers, mxfp4, nvfp4 };

expert_form experts_form(const qk::format& f) {
    if (const integer* i = std::get_if<integer>(&f))
        return i->bits == 2 || i->bits == 4 || i->bits == 8 ? expert_form::integers : expert_form::none;
    if (f == qk::format(qk::mxfp4)) return expert_form::mxfp4;
    return f == qk::format(qk::nvfp4) ? expert_form::nvfp4 : expert_form::none;
}

/// Returns whether every row of outputs has one scale.
bool has_row_scales(const quantizer& q, const tensor& value) { return q.block_size == 0 || q.block_size >= value.dim(2); }

/// Returns the block size of integers: 0 where all rows have one scale, else a power of two of at most 256 that divides the blocks of both
/// layers and their inputs; -1 if there is none from 16 on.
std::int64_t common_block(const std::array<const quantizer*, 2>& how, const std::array<tensor, 2>& values) {
    if (has_row_scales(*how[0], values[0]) && has_row_scales(*how[1], values[1])) return 0;
    std::int64_t block = 256;
    const auto divide = [&](std::int64_t n) { block = std::min(block, n & -n); };
    for (std::size_t i = 0; i < 2; ++i) {
        divide(values[i].dim(2));
        if (!has_row_scales(*how[i], values[i])) divide(how[i]->block_size);
    }
    return block >= 16 ? block : -1;
}

/// The names of a layer's inputs; those that it has not are empty.
struct expert_constants {
    std::string codes, scales, zeros, whole;
};

/// Writes integer codes, with a scale for each row (block 0) or each block of it.
expert_constants hold_integers(graph_writer& g, const std::string& name, const quantizer& q, const tensor& value, std::int64_t block) {
    const integer f = std::get<integer>(q.format);
    const std::int64_t experts = value.dim(0), out = value.dim(1), in = value.dim(2), rows = experts * out;
    const std::int64_t length = block > 0 ? block : in, blocks = in / length;
    const std::int64_t middle = std::int64_t{1} << (f.bits - 1), shift = f.is_signed ? middle : 0;
    packed_codes codes(rows, in, f.bits), zeros(block > 0 ? rows : experts, block > 0 ? blocks : out, f.bits);
    std::vector<float> scales;
    bool all_in_the_middle = true;
    const scale_places places(q, value.shape());
    const integer_coder coder(q, places.one());
    for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t b = 0; b < blocks; ++b) {
            const auto first = static_cast<std::size_t>(row * in + b * length);
            const scale_place s = places.at(first);
            const std::int64_t zero = s.zero_point + shift;
            scales.push_back(s.scale);
            all_in_the_middle = all_in_the_middle && zero == middle;
            if (block > 0) zeros.put(row, b, zero);
            else zeros.put(row / out, row % out, zero);
            for (std::int64_t k = 0; k < length; ++k) {
                const std::size_t i = first + static_cast<std::size_t>(k);
                codes.put(row, b * length + k, shift + coder.code(i, value.as<float>()[i], s));
            }
        }
    expert_constants c;
    c.codes = g.constant(name + marks::quantized, codes.shaped({experts, out, codes.row_bytes()}));
    c.scales = g.constant(name + "_scale", make_tensor<float>(block > 0 ? dims{experts, out, blocks} : dims{experts, out}, scales));
    if (!all_in_the_middle)
        c.zeros = g.constant(name + "_zero_point",
                             zeros.shaped(block > 0 ? dims{experts, out, zeros.row_bytes()} : dims{experts, zeros.row_bytes()}));
    return c;
}

/// Writes FP4 codes, two a byte. NVFP4's have the logical shape [experts, inputs, outputs / 2] with bytes in the order of rows, as
/// weights_prepacked 1 has it.
expert_constants hold_fp4(graph_writer& g, const std::string& name, const quantizer& q, const tensor& value) {
    const packed_constant p = *packed(q, value);
    const bool nv = experts_form(q.format) == expert_form::nvfp4;
    const std::int64_t experts = value.dim(0), out = value.dim(1), in = value.dim(2);
    tensor scales(nv ? data_type::float8e4m3fn : data_type::float8e8m0, {experts, out, in / block_size(q.format)});
    std::memcpy(scales.bytes(), p.scales.front().bytes(), scales.size_bytes());
    const std::vector<float> whole(static_cast<std::size_t>(experts), nv ? p.tensor_scale : 1.0f);
    expert_constants c;
    c.codes =
        g.constant(name + marks::quantized, p.elements.front().reshaped(nv ? dims{experts, in, out / 2} : dims{experts, out, in / 2}));
    c.scales = g.constant(name + "_scale", scales);
    c.whole = g.constant(name + "_global_scale", make_tensor<float>({experts}, whole));
    return c;
}

/// Reads the constants of one node.
class experts_reader {
  public:
    experts_reader(const model& m, const onnx::NodeProto& n) : m_(m), n_(n) {
        const std::string& text = n.doc_string();
        const std::size_t line = text.find('\n');
        told_[0] = described(text.substr(0, line));
        if (line != std::string::npos) told_[1] = described(text.substr(line + 1));
    }

    /// Returns layer `i`, whose codes, scales and bias are inputs `at`, `at + 1` and `at + 2`.
    std::optional<node_on_floats::operand> layer(int i, int at) const {
        const auto codes = constant(at), scales = constant(at + 1);
        if (!codes || !scales) return std::nullopt;
        node_on_floats::operand l{.input = 2 + 2 * i, .name = n_.input(at)};
        if (const auto& told = told_[static_cast<std::size_t>(i)]) l.how = *told;
        l.how.axis = -1, l.how.flatten = false, l.how.dynamic = false, l.how.block_size = 0;
        l.how.scale.clear(), l.how.zero_point.clear();
        const std::string type = text_attribute(n_, "quant_type", "int");
        bool read = false;
        if (type == "int") read = integers(l, i, *codes, ops::widened(*scales), constant(11 + i), given(11 + i));
        else if (const auto whole = constant(15 + i); whole && i < 2 && (type == "fp4" || type == "nvfp4"))
            read = small_floats(l, i, *codes, *scales, *whole, type == "nvfp4");
        return read ? std::optional(std::move(l)) : std::nullopt;
    }

    bool given(int input) const { return input < n_.input_size() && !n_.input(input).empty(); }

  private:
    std::optional<tensor> constant(int input) const {
        if (!given(input) || !m_.is_constant(n_.input(input))) return std::nullopt;
        return m_.constant(n_.input(input));
    }

    bool integers(node_on_floats::operand& l, int i, const tensor& codes, const tensor& scales, const std::optional<tensor>& zeros,
                  bool zeros_given) const {
        const std::string own = "fc" + std::to_string(i + 1) + "_expert_weight_bits";
        const std::int64_t bits = int_attribute(n_, own.c_str(), int_attribute(n_, "expert_weight_bits", 4)),
                           size = int_attribute(n_, "block_size", -1);
        if (codes.type() != data_type::uint8 || codes.rank() != 3 || scales.type() != data_type::float32 || (zeros_given && !zeros) ||
            (zeros && zeros->type() != data_type::uint8) || (bits != 2 && bits != 3 && bits != 4 && bits != 8) ||
            (bits == 3 && (size < 1 || scales.rank() != 3)))
            return false;
        const std::int64_t experts = codes.dim(0), out = codes.dim(1), in = bits == 3 ? scales.dim(2) * size : codes.dim(2) * (8 / bits);
        if (in < 1 || size > std::int64_t{1} << 24 || in > std::int64_t{1} << 24) return false;
        const std::int64_t block = size > 0 ? size : in, blocks = (in + block - 1) / block;
        const std::int64_t zero_bytes = ops::detail::bytes_of_codes(size > 0 ? blocks : out, bits);
        if (codes.dim(2) != ops::detail::bytes_of_codes(in, bits) || scales.size() != static_cast<std::size_t>(experts * out * blocks) ||
            (zeros && zeros->size() != static_cast<std::size_t>(experts * (size > 0 ? out : 1) * zero_bytes)))
            return false;
        const auto& told = told_[static_cast<std::size_t>(std::min(i, 1))];
        const integer* said = told && i < 2 ? std::get_if<integer>(&told->format) : nullptr;
        const bool known = said != nullptr && said->bits == bits;
        const integer f = known ? *said : integer{.bits = static_cast<int>(bits), .is_signed = !zeros};
        const std::int64_t middle = std::int64_t{1} << (bits - 1);
        l.how.format = f, l.how.block_size = static_cast<int>(block);
        l.value = tensor(data_type::float32, {experts, out, in});
        const auto values = l.value->as<float>();
        for (std::int64_t row = 0; row < experts * out; ++row)
            for (std::int64_t b = 0; b < blocks; ++b) {
                std::int64_t zero = middle;
                if (zeros)
                    zero = size > 0 ? ops::detail::code_in_row(*zeros, row, zero_bytes, bits, b)
                                    : ops::detail::code_in_row(*zeros, row / out, zero_bytes, bits, row % out);
                const float scale = scales.as<float>()[static_cast<std::size_t>(row * blocks + b)];
                l.how.scale.push_back(scale), l.how.zero_point.push_back(zero - (f.is_signed ? middle : 0));
                for (std::int64_t k = b * block; k < std::min((b + 1) * block, in); ++k)
                    values[static_cast<std::size_t>(row * in + k)] =
                        static_cast<float>(ops::detail::code_in_row(codes, row, codes.dim(2), bits, k) - zero) * scale;
            }
        if (!is_shifted(l.how)) l.how.zero_point.clear();
        return true;
    }

    bool small_floats(node_on_floats::operand& l, int i, const tensor& codes, const tensor& scales, const tensor& whole, bool nv) const {
        const std::int64_t block = nv ? 16 : 32;
        if (scales.rank() != 3 || scales.type() != (nv ? data_type::float8e4m3fn : data_type::float8e8m0) ||
            codes.type() != data_type::uint8 || whole.type() != data_type::float32 ||
            (nv && int_attribute(n_, "weights_prepacked", -1) != 1))
            return false;
        const std::int64_t experts = scales.dim(0), out = scales.dim(1), in = scales.dim(2) * block, all = experts * out * in;
        if (codes.size() != static_cast<std::size_t>(all / 2) || whole.size() != static_cast<std::size_t>(experts) || all == 0)
            return false;
        l.value = tensor(data_type::float32, {experts, out, in});
        const floating of_scales = nv ? fp8_e4m3fn : e8m0;
        for (std::int64_t k = 0; k < all; ++k) {
            const auto code = static_cast<std::uint32_t>(ops::detail::code_in_row(codes, 0, 0, 4, k));
            const float scale = reference::value_of(of_scales, scales.as<std::uint8_t>()[static_cast<std::size_t>(k / block)]);
            l.value->as<float>()[static_cast<std::size_t>(k)] =
                reference::value_of(fp4_e2m1, code) * (scale * whole.as<float>()[static_cast<std::size_t>(k / (out * in))]);
        }
        const auto w = whole.as<float>();
        const qk::format f = nv ? qk::format(nvfp4) : qk::format(mxfp4);
        const auto& told = told_[static_cast<std::size_t>(i)];
        if (!told || told->format != f) l.how = quantizer{}, l.how.axis = -1;
        l.how.format = f;
        if (nv) l.how.scale = {w[0]};
        // Blocks of MX find powers of two by themselves; a plan has one scale for all of NVFP4's experts.
        int exponent = 0;
        if (!std::ranges::all_of(w, [&](float s) { return nv ? s == w[0] : std::frexp(s, &exponent) == 0.5f; }))
            l.departs = "each expert has a scale of its own, and a plan has one for all";
        return true;
    }

    const model& m_;
    const onnx::NodeProto& n_;
    std::array<std::optional<quantizer>, 2> told_;
};

}  // namespace

bool fits_qmoe(const onnx::NodeProto& n, const std::array<const quantizer*, 2>& how, const std::array<tensor, 2>& values,
               std::string& why) {
    const std::string activation = text_attribute(n, "activation_type", "relu");
    const std::int64_t fusion = int_attribute(n, "swiglu_fusion", 0);
    if (n.input_size() > 6 && !n.input(6).empty()) return why = "onnxruntime's QMoE has no third layer on the CPU", false;
    if (how[0] == nullptr || how[1] == nullptr) return why = "only one of the two layers of the experts is quantized", false;
    const expert_form form = experts_form(how[0]->format);
    if (form == expert_form::none || experts_form(how[1]->format) == expert_form::none)
        return why = "the format is none of integers of 2, 4 or 8 bits, mxfp4 and nvfp4", false;
    if (form != experts_form(how[1]->format) ||
        (form == expert_form::integers && std::get<integer>(how[0]->format).bits != std::get<integer>(how[1]->format).bits))
        return why = "its two layers have different formats", false;
    if (!one_of(activation, {"relu", "gelu", "silu", "identity", "swiglu"}) || (activation == "swiglu" && fusion != 1))
        return why = "onnxruntime's QMoE has swiglu with swiglu_fusion 1, relu, gelu, silu and identity on the CPU", false;
    if (form != expert_form::integers && activation != "swiglu")
        return why = "onnxruntime's QMoE of FP4 has swiglu alone on the CPU", false;
    if (int_attribute(n, "use_sparse_mixer", 0) != 0 || int_attribute(n, "swiglu_limit_after_activation", 0) != 0)
        return why = "its router or its limit is not that of onnxruntime's CPU", false;
    for (std::size_t i = 0; i < 2; ++i) {
        const quantizer& q = *how[i];
        if (values[i].rank() != 3 || values[i].size() == 0) return why = "the experts' weights are not of rank 3", false;
        const std::int64_t axis = positive_axis(q.axis, 3), in = values[i].dim(2);
        if (q.dynamic || q.flatten) return why = "they have no scales", false;
        if (form != expert_form::integers) {
            if (axis != 2) return why = "their blocks do not run along the inputs", false;
            if (in % 32 != 0) return why = "QMoE of FP4 takes layers of multiples of 32 inputs, not of " + std::to_string(in), false;
            if (!packed(q, values[i])) return why = "some values have no code", false;
            continue;
        }
        if (q.scale.empty()) return why = "they have no scales", false;
        if (q.block_size > 0 ? axis != 2 : q.scale.size() > 1 && axis != 1) return why = "their scales run along another axis", false;
        if (in * std::get<integer>(q.format).bits % 8 != 0) return why = "their rows do not fill bytes", false;
    }
    if (form == expert_form::integers && common_block(how, values) < 0)
        return why = "no power of two from 16 on divides the blocks and the inputs of both layers", false;
    return true;
}

bool write_qmoe(graph_writer& g, const planned_experts& e, const std::array<tensor, 2>& values) {
    const onnx::NodeProto before = g.graph().node(e.node);
    const expert_form form = experts_form(e.how[0]->format);
    const bool integers = form == expert_form::integers, half = ops::is_half(e.own);
    const std::int64_t block = integers ? common_block(e.how, values) : form == expert_form::mxfp4 ? 32 : 16;
    const auto layer = [&](std::size_t i) {
        return integers ? hold_integers(g, e.names[i], *e.how[i], values[i], block) : hold_fp4(g, e.names[i], *e.how[i], values[i]);
    };
    const expert_constants first = layer(0), second = layer(1);
    const auto wide = [&](int input) {
        const std::string name = before.input_size() > input ? before.input(input) : std::string();
        return !half || name.empty() ? name : g.cast(name, name + marks::wide, data_type::float32);
    };
    std::vector<std::string> inputs{wide(0), wide(1), first.codes, first.scales, wide(3), second.codes, second.scales, wide(5),     "",
                                    "",      "",      first.zeros, second.zeros, "",      "",           first.whole,   second.whole};
    while (inputs.back().empty()) inputs.pop_back();
    g.import("com.microsoft", 1);
    if (!integers) g.require_opset(form == expert_form::mxfp4 ? 24 : 19, "scales of QMoE in 8 bits");
    const std::string y = half ? g.fresh(before.output(0) + "_experts") : before.output(0);
    if (half) set_attribute(g.node("Cast", {y}, {before.output(0)}), "to", static_cast<std::int64_t>(e.own));
    onnx::NodeProto& n = *g.graph().mutable_node(e.node);
    n.set_op_type("QMoE");
    n.set_output(0, y);
    n.clear_input();
    for (const std::string& i : inputs) n.add_input(i);
    n.set_doc_string(describe(*e.how[0]) + "\n" + describe(*e.how[1]));
    set_attribute(n, "quant_type", std::string(integers ? "int" : form == expert_form::mxfp4 ? "fp4" : "nvfp4"));
    if (block > 0) set_attribute(n, "block_size", block);
    if (!integers) set_attribute(n, "weights_prepacked", std::int64_t{1});
    const std::int64_t bits = integers ? std::get<integer>(e.how[0]->format).bits : 4;
    set_attribute(n, "expert_weight_bits", bits);
    return !integers || (bits == 8 && block > 0) || (bits == 2 && block >= 32);
}

read_back read_qmoe(const model& m, const onnx::NodeProto& n) {
    if (n.domain() != "com.microsoft" || operator_of(n) != "QMoE" || n.input_size() < 7 || n.output_size() != 1) return {};
    const experts_reader reader(m, n);
    if (reader.given(14)) return {};
    for (int k = 17; k < n.input_size(); ++k)
        if (reader.given(k)) return {};
    node_on_floats plain{.node = n, .rounds_activations = int_attribute(n, "accuracy_level", 0) == 4};
    const auto input = [&](int k) { return k < n.input_size() ? n.input(k) : std::string(); };
    std::vector<std::string> inputs{input(0), input(1)};
    for (const int i : {0, 1, 2}) {
        if (i == 2 && !reader.given(8)) continue;
        auto l = reader.layer(i, 2 + 3 * i);
        if (!l) return {};
        inputs.push_back(l->name), inputs.push_back(input(4 + 3 * i));
        plain.operands.push_back(std::move(*l));
    }
    while (inputs.back().empty()) inputs.pop_back();
    plain.node.set_op_type("MoE");
    plain.node.clear_doc_string(), plain.node.clear_input();
    for (const std::string& i : inputs) plain.node.add_input(i);
    for (const char* a : {"quant_type", "block_size", "weights_prepacked", "accuracy_level", "expert_weight_bits", "fc1_expert_weight_bits",
                          "fc2_expert_weight_bits", "fc3_expert_weight_bits"})
        remove_attribute(plain.node, a);
    return plain;
}

}  // namespace qk::graph::detail
