// SPDX-License-Identifier: Apache-2.0
// Definitions of qmoe.hpp: rows of outputs, codes along the inputs.
#include "graph/export/qmoe.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cstring>

#include "graph/export/codes.hpp"
#include "graph/export/description.hpp"
#include "graph/export/marks.hpp"
#include "graph/export/packed_rows.hpp"
#include "graph/export/portable/packed.hpp"
#include "graph/ops/widened.hpp"
#include "qk/graph/model/attribute.hpp"

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

bool write_qmoe(graph_writer& g, const planned_experts& e, const std::array<tensor, 2>& values, data_type own) {
    const onnx::NodeProto before = g.graph().node(e.node);
    const expert_form form = experts_form(e.how[0]->format);
    const bool integers = form == expert_form::integers, half = ops::is_half(own);
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
    if (half) set_attribute(g.node("Cast", {y}, {before.output(0)}), "to", static_cast<std::int64_t>(own));
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

}  // namespace qk::graph::detail
