// SPDX-License-Identifier: Apache-2.0
// Style nbits: products with weights of 2, 4 or 8 bits become com.microsoft's MatMulNBits, and tables of such codes become
// GatherBlockQuantized; the rest is style portable. https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
//
// Before: MatMul|Gemm(x, W)  or  Gather(W, ids).  After: one node of codes and scales.  Conditions: integers, scales by blocks of a power
// of two from 16 on (a scale for the tensor, for each channel or for other multiples of 16 is repeated), blocks along the inputs of a
// product, or along the rows of a table.
// Experts of com.microsoft's MoE become QMoE (qmoe.hpp).
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cstring>

#include "graph/export/codes.hpp"
#include "graph/export/description.hpp"
#include "graph/export/graph_writer.hpp"
#include "graph/export/marks.hpp"
#include "graph/export/packed.hpp"
#include "graph/export/packed_rows.hpp"
#include "graph/export/portable.hpp"
#include "graph/export/qdq.hpp"
#include "graph/export/style.hpp"
#include "graph/export/styles/qmoe.hpp"
#include "graph/model/code_types.hpp"
#include "graph/model/operator_name.hpp"
#include "graph/ops/widened.hpp"
#include "qk/graph/model/attribute.hpp"
#include "qk/reference/codes.hpp"

namespace qk::graph::detail {
namespace {

bool turned(const onnx::NodeProto& n) { return operator_of(n) == "Gemm" && int_attribute(n, "transB", 0) != 0; }

/// Returns the axis that blocks run along in such a node: the inputs of a product, the values of a row.
int block_axis(const onnx::NodeProto& n) { return operator_of(n) == "Gather" || turned(n) ? 1 : 0; }

/// Returns the block size of the node: a power of two of at most 256 that divides the plan's, or 32 where scales do not differ along the
/// axis; 0 if there is none.
std::int64_t size_of_blocks(const quantizer& q) {
    if (q.block_size == 0) return 32;
    const std::int64_t power = q.block_size & -q.block_size;
    return power >= 16 ? std::min<std::int64_t>(power, 256) : 0;
}

/// The names of the inputs: codes, scales and, where a zero point is not the middle, zero points.
struct nbits_constants {
    std::string codes, scales, zeros;
    std::int64_t rows = 0, length = 0, block = 0;  ///< block 0: a row is one block
};

/// Returns the type of a table's small floats; nullopt where the operator has none for the format.
std::optional<data_type> table_floats(const qk::format& f) {
    const floating* element = std::get_if<floating>(&f);
    if (const microscaling* m = std::get_if<microscaling>(&f); m != nullptr && !has_integer_elements(*m)) element = &m->element;
    if (const nvfloat* n = std::get_if<nvfloat>(&f)) element = &n->element;
    if (element == nullptr) return std::nullopt;
    return *element == fp4_e2m1 ? std::optional(data_type::float4e2m1) : onnx_float8(*element);
}

/// Returns the float32 scale of each block of a packed constant.
std::vector<float> scales_of_blocks(const qk::format& f, const packed_constant& p) {
    const floating* scale = scale_float(f);
    std::vector<float> values;
    for (const std::uint32_t c : codes_of_planes(p.scales, p.scale_bits, p.scale_count))
        values.push_back(scale == nullptr ? reference::value_of(e8m0, c) : reference::value_of(*scale, c) * p.tensor_scale);
    return values;
}

/// Writes a table of small floats, whose scales are float32 there: those of an MX or NVFP4 block are, too.
nbits_constants hold_floats(graph_writer& g, const std::string& name, const quantizer& q, const tensor& value) {
    const data_type type = *table_floats(q.format);
    nbits_constants c;
    c.rows = value.dim(0), c.length = value.dim(1);
    std::vector<float> scales = q.scale.empty() ? std::vector<float>{1.0f} : q.scale;
    dims shape{q.block_size == 0 ? static_cast<std::int64_t>(scales.size()) : c.rows, 1};
    tensor codes(type, value.shape());
    if (is_block_format(q.format)) {
        const packed_constant p = *packed(q, value);
        const std::vector<std::uint32_t> each = codes_of_planes(p.elements, p.element_bits, value.size());
        for (std::size_t i = 0; i < each.size(); ++i) codes.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(each[i]);
        scales = scales_of_blocks(q.format, p);
        c.block = block_size(q.format), shape = {c.rows, (c.length + c.block - 1) / c.block};
    } else {
        codes = floating_codes(q, value, type);
        if (q.block_size > 0) {
            c.block = size_of_blocks(q);
            const scale_places places(q, value.shape());
            scales.clear(), shape[1] = (c.length + c.block - 1) / c.block;
            for (std::int64_t r = 0; r < c.rows; ++r)
                for (std::int64_t b = 0; b < shape[1]; ++b)
                    scales.push_back(places.at(static_cast<std::size_t>(r * c.length + b * c.block)).scale);
        }
    }
    g.require_opset(type == data_type::float4e2m1 ? 23 : 19, std::string("a table of ") + graph::name_of(type));
    c.codes = g.constant(name + marks::quantized, codes);
    c.scales = g.constant(name + "_scale", make_tensor<float>(shape, scales));
    return c;
}

/// Writes the constants. The rows are outputs of a product, or those of a table. Works on blocks of some rows at a time, so that a matrix
/// that is read column by column is read, and its codes are written, a few pages at a time; only the codes are held in memory.
nbits_constants hold(graph_writer& g, const std::string& name, const onnx::NodeProto& n, const quantizer& q, const tensor& value,
                     bool table) {
    const integer f = std::get<integer>(q.format);
    const bool rows_first = block_axis(n) == 1;
    nbits_constants c;
    c.rows = value.dim(rows_first ? 0 : 1), c.length = value.dim(rows_first ? 1 : 0), c.block = size_of_blocks(q);
    const std::int64_t blocks = (c.length + c.block - 1) / c.block, padded = table ? c.length : blocks * c.block;
    const std::int64_t middle = std::int64_t{1} << (f.bits - 1), shift = f.is_signed ? middle : 0;
    packed_codes codes(c.rows, padded, f.bits), zeros(c.rows, blocks, f.bits);
    std::vector<float> scales(static_cast<std::size_t>(c.rows * blocks));
    bool all_in_the_middle = true;
    const scale_places places(q, value.shape());
    const integer_coder coder(q, places.one());
    const std::span<const float> values = value.as<float>();
    const auto at = [&](std::int64_t row, std::int64_t k) {
        return static_cast<std::size_t>(rows_first ? row * c.length + k : k * c.rows + row);
    };
    const std::int64_t together = rows_first ? 1 : 64;
    std::vector<scale_place> own(static_cast<std::size_t>(together));
    for (std::int64_t first = 0; first < c.rows; first += together)
        for (std::int64_t b = 0; b < blocks; ++b) {
            const std::int64_t last = std::min(first + together, c.rows), begin = b * c.block, end = std::min(begin + c.block, padded);
            for (std::int64_t row = first; row < last; ++row) {
                const scale_place& s = own[static_cast<std::size_t>(row - first)] = places.at(at(row, begin));
                scales[static_cast<std::size_t>(row * blocks + b)] = s.scale;
                zeros.put(row, b, s.zero_point + shift);
                all_in_the_middle = all_in_the_middle && s.zero_point + shift == middle;
            }
            for (std::int64_t k = begin; k < end; ++k)
                for (std::int64_t row = first; row < last; ++row) {
                    const scale_place& s = own[static_cast<std::size_t>(row - first)];
                    if (k >= c.length) {  // padding gets the code of zero
                        codes.put(row, k, s.zero_point + shift);
                        continue;
                    }
                    const std::size_t i = at(row, k);
                    codes.put(row, k, shift + coder.code(i, values[i], s));
                }
        }
    const std::int64_t per_byte = 8 / f.bits;
    c.codes = g.constant(name + marks::quantized,
                         codes.shaped(table ? dims{c.rows, codes.row_bytes()} : dims{c.rows, blocks, c.block / per_byte}));
    c.scales = g.constant(name + "_scale", make_tensor<float>(table ? dims{c.rows, blocks} : dims{c.rows * blocks}, scales));
    if (!all_in_the_middle)
        c.zeros =
            g.constant(name + "_zero_point", zeros.shaped(table ? dims{c.rows, zeros.row_bytes()} : dims{c.rows * zeros.row_bytes()}));
    return c;
}

/// Is true for a table of small floats; `why` says what else prevents it.
bool fits_table(const quantizer& q, const tensor& value, std::string& why) {
    if (!table_floats(q.format)) return why = "GatherBlockQuantized has no type for their format", false;
    if (q.dynamic || q.flatten) return why = "they have no scales", false;
    if (value.rank() != 2 || value.size() == 0) return why = "they are no matrix", false;
    const std::int64_t axis = positive_axis(q.axis, 2);
    const bool blocked = is_block_format(q.format);
    if ((blocked || q.block_size > 0) && axis != 1) return why = "their blocks do not run along the rows", false;
    if (!blocked && q.block_size == 0 && q.scale.size() > 1 && axis != 0) return why = "their scales run along the rows", false;
    const std::int64_t block = blocked ? block_size(q.format) : 0;
    if (blocked ? block < 16 || (block & (block - 1)) != 0 : size_of_blocks(q) == 0)
        return why = "their blocks have no power of two from 16 on", false;
    if (blocked && !packed(q, value)) return why = "some values have no code", false;
    return true;
}

/// Returns whether the reader of weights `value` can become such a node; `why` says what prevents it.
bool fits_nbits(const onnx::NodeProto& n, int input, const quantizer& q, const tensor& value, std::string& why) {
    const integer* f = std::get_if<integer>(&q.format);
    const bool table = operator_of(n) == "Gather" && n.domain().empty() && input == 0 && int_attribute(n, "axis", 0) == 0;
    const bool product = (operator_of(n) == "MatMul" || operator_of(n) == "Gemm") && n.domain().empty() && input == 1;
    if (!table && !product) return why = "a " + n.op_type() + " reads them", false;
    if (table && f == nullptr) return fits_table(q, value, why);
    if (f == nullptr || (f->bits != 2 && f->bits != 4 && f->bits != 8)) return why = "the format is none of 2, 4 or 8 bits", false;
    if (q.dynamic || q.flatten || q.scale.empty()) return why = "they have no scales", false;
    if (value.rank() != 2 || value.size() == 0) return why = "they are no matrix", false;
    const std::int64_t axis = positive_axis(q.axis, 2);
    if (q.block_size > 0 && axis != block_axis(n)) return why = "their blocks run along the outputs", false;
    if (q.block_size == 0 && q.scale.size() > 1 && axis == block_axis(n)) return why = "their scales run along the inputs", false;
    if (size_of_blocks(q) == 0) return why = "blocks of " + std::to_string(q.block_size) + " have no power of two from 16 on", false;
    if (table && value.dim(1) * f->bits % 8 != 0) return why = "their rows do not fill bytes", false;
    if (operator_of(n) == "Gemm") {
        if (int_attribute(n, "transA", 0) != 0 || float_attribute(n, "alpha", 1) != 1.0f || float_attribute(n, "beta", 1) != 1.0f)
            return why = "the Gemm transposes its input or multiplies", false;
    }
    return true;
}

/// Rewrites node `index` of the graph under export. `name` is the weights' name, `own` the model's float type: the node computes in
/// float32, and its input and output are cast where `own` is another type.
void write_nbits(graph_writer& g, int index, const std::string& name, const quantizer& q, const tensor& value, data_type own) {
    const onnx::NodeProto before = g.graph().node(index);
    const integer* f = std::get_if<integer>(&q.format);
    const bool table = operator_of(before) == "Gather", half = ops::is_half(own);
    const nbits_constants c = f == nullptr ? hold_floats(g, name, q, value) : hold(g, name, before, q, value, table);
    g.import("com.microsoft", 1);
    const std::string x = half && !table ? g.cast(before.input(0), before.input(0) + marks::wide, data_type::float32) : before.input(0);
    const bool biased = operator_of(before) == "Gemm" && before.input_size() > 2 && !before.input(2).empty();
    const std::string y = half || biased ? g.fresh(before.output(0) + "_product") : before.output(0);
    const std::string narrow = half && biased ? g.fresh(before.output(0) + marks::own) : before.output(0);
    if (half) set_attribute(g.node("Cast", {y}, {narrow}), "to", static_cast<std::int64_t>(own));
    if (biased) g.node("Add", {half ? narrow : y, before.input(2)}, {before.output(0)});
    onnx::NodeProto& n = *g.graph().mutable_node(index);
    n.clear_attribute();
    n.clear_input();
    n.set_domain("com.microsoft");
    n.set_output(0, y);
    n.set_doc_string(describe(q));
    if (table) {
        n.set_op_type("GatherBlockQuantized");
        for (const std::string& i : {c.codes, before.input(1), c.scales}) n.add_input(i);
        set_attribute(n, "gather_axis", std::int64_t{0});
        set_attribute(n, "quantize_axis", std::int64_t{1});
    } else {
        n.set_op_type("MatMulNBits");
        for (const std::string& i : {x, c.codes, c.scales}) n.add_input(i);
        set_attribute(n, "K", c.length);
        set_attribute(n, "N", c.rows);
    }
    if (!c.zeros.empty()) n.add_input(c.zeros);
    if (f != nullptr) set_attribute(n, "bits", std::int64_t{f->bits});
    set_attribute(n, "block_size", c.block);
}

/// Style portable, but for the readers that become nodes of com.microsoft's as a whole.
class nbits_writer : public quantizer_writer {
  public:
    nbits_writer(graph_writer& g, const export_options& options, std::vector<std::string>& notes)
        : quantizer_writer(g, options, notes), rest_(make_functions_writer(g, options, notes)) {}

    std::string activation(const quantized_value& v) override { return rest_->activation(v); }
    std::string weight(const quantized_value& v, const tensor& value) override { return rest_->weight(v, value); }
    bool dequantizes(const quantizer& weight) const override { return rest_->dequantizes(weight); }
    bool dequantizes_activation(const quantizer& q) const override { return rest_->dequantizes_activation(q); }
    bool wants_constants_first() const override { return rest_->wants_constants_first(); }

    /// Finds the nodes of experts that are rewritten as a whole, or adds a note that says why one is not.
    void begin(const model& source, const precision_plan& plan) override {
        source_ = &source;
        rest_->begin(source, plan);
        for (int i = 0; i < source.graph().node_size(); ++i) {
            const onnx::NodeProto& n = source.graph().node(i);
            if (n.domain() != "com.microsoft" || operator_of(n) != "MoE") continue;
            planned_experts e{.node = i};
            std::array<tensor, 2> values;
            bool constant = true;
            for (const int k : {0, 1}) {
                const auto at = static_cast<std::size_t>(k);
                e.names[at] = n.input(2 + 2 * k);
                constant = constant && source.is_constant(e.names[at]);
                if (!constant) break;
                e.how[at] = plan.find({e.names[at], n.name(), 2 + 2 * k}), values[at] = weights_of(e.names[at]);
            }
            if (!constant || (e.how[0] == nullptr && e.how[1] == nullptr)) continue;
            std::string why;
            if (fits_qmoe(n, e.how, values, why)) experts_.push_back(e);
            else notes_.push_back("the experts of '" + n.name() + "' stay as in style portable: " + why);
        }
    }

    bool takes(const quantized_value& v, const tensor& value, data_type own, model::use reader) override {
        if (reader.node < 0) return false;
        for (planned_experts& e : experts_)
            if (e.node == reader.node && (reader.input == 2 || reader.input == 4)) {
                if (reader.input == 2) e.own = own;
                return true;
            }
        std::string why;
        const onnx::NodeProto& n = g_.graph().node(reader.node);
        if (fits_nbits(n, reader.input, v.how, value, why)) {
            products_.push_back({reader.node, v.name, v.how, own});
            return true;
        }
        if (rest_->takes(v, value, own, reader)) return true;
        if (is_integer_format(v.how.format) && value.rank() == 2)
            notes_.push_back("weights '" + v.name + "' of '" + n.name() + "' stay as in style portable: " + why);
        return false;
    }

    /// A node is rewritten when its other inputs, a bias among them, have what the plan makes of them.
    void finish() override {
        for (const planned_product& p : products_) write_nbits(g_, p.node, p.name, p.how, weights_of(p.name), p.own);
        std::size_t in_integers = 0;
        for (const planned_experts& e : experts_) in_integers += write_qmoe(g_, e, {weights_of(e.names[0]), weights_of(e.names[1])});
        if (in_integers > 0)
            notes_.push_back(std::to_string(in_integers) +
                             " nodes of QMoE have codes for which onnxruntime rounds activations to int8 on the CPU (FP4, and 2 "
                             "and 8 bits in blocks): expect some 35 to 60 dB beside the plan there");
        rest_->finish();
    }

  private:
    tensor weights_of(const std::string& name) const { return ops::widened(source_->constant(name)); }

    std::unique_ptr<functions_writer> rest_;
    const model* source_ = nullptr;
    struct planned_product {
        int node = 0;
        std::string name;  ///< of the weights
        quantizer how;
        data_type own = data_type::float32;
    };
    std::vector<planned_product> products_;  ///< what becomes MatMulNBits or GatherBlockQuantized
    std::vector<planned_experts> experts_;   ///< what becomes QMoE
};

/// The float weights behind codes, and the quantizer that made them.
struct unpacked_weights {
    tensor value;  ///< [K, N] of a product, [rows, values] of a table
    quantizer how;
};

/// Reads a table of small floats, or of codes of int4 or uint4 in their own types.
std::optional<unpacked_weights> unpack_table(const model& m, const onnx::NodeProto& n) {
    unpacked_weights w;
    const tensor codes = m.constant(n.input(0)), scales = ops::widened(m.constant(n.input(2)));
    const auto format = format_of_codes(codes.type());
    const std::string zero_name = n.input_size() > 3 ? n.input(3) : "";
    const tensor zeros = zero_name.empty() ? tensor() : m.constant(zero_name);
    if (!format || codes.rank() != 2 || scales.type() != data_type::float32 || scales.rank() != 2) return std::nullopt;
    const bool integers = is_integer_format(*format);
    const std::int64_t rows = codes.dim(0), length = codes.dim(1), given = int_attribute(n, "block_size", 128),
                       block = given == 0 && !integers ? length : given;
    if (block < 1 || block > std::int64_t{1} << 24 || codes.size() == 0) return std::nullopt;
    const std::int64_t blocks = (length + block - 1) / block;
    const bool one_row = !integers && scales.dim(0) == 1;
    if (scales.dim(1) != blocks || (!one_row && scales.dim(0) != rows) ||
        (!zeros.empty() && (!integers || zeros.type() != codes.type() || zeros.size() != scales.size())))
        return std::nullopt;
    const auto told = described(n.doc_string());
    const bool known = told && is_block_format(told->format);
    if (known) w.how = *told;
    else if (told && told->format == *format) w.how = *told, w.how.scale.clear(), w.how.zero_point.clear();
    if (!known) {
        w.how.format = *format, w.how.axis = 1, w.how.flatten = false, w.how.block_size = static_cast<int>(block);
        for (std::int64_t r = 0; r < rows; ++r)
            for (std::int64_t b = 0; b < blocks; ++b)
                w.how.scale.push_back(scales.as<float>()[static_cast<std::size_t>((one_row ? 0 : r) * blocks + b)]);
        for (std::size_t i = 0; i < zeros.size(); ++i) w.how.zero_point.push_back(code_at(zeros, i));
        if (!is_shifted(w.how)) w.how.zero_point.clear();
    }
    w.value = tensor(data_type::float32, codes.shape());
    const floating* element = std::get_if<floating>(&*format);
    if (!integers && element == nullptr) return std::nullopt;
    for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t k = 0; k < length; ++k) {
            const auto i = static_cast<std::size_t>(r * length + k);
            const auto s = static_cast<std::size_t>((one_row ? 0 : r) * blocks + k / block);
            const float code = integers ? static_cast<float>(code_at(codes, i) - (zeros.empty() ? 0 : code_at(zeros, s)))
                                        : reference::value_of(*element, codes.as<std::uint8_t>()[i]);
            w.value.as<float>()[i] = code * scales.as<float>()[s];
        }
    return w;
}

/// Reads MatMulNBits and GatherBlockQuantized; nullopt for another operator, inputs that are no constants, and what a plain node lacks:
/// group indices, a bias.
std::optional<unpacked_weights> unpack_nbits(const model& m, const onnx::NodeProto& n) {
    const bool table = operator_of(n) == "GatherBlockQuantized";
    if (n.domain() != "com.microsoft" || (!table && operator_of(n) != "MatMulNBits") || n.input_size() < 3) return std::nullopt;
    for (int k = 4; k < n.input_size(); ++k)
        if (!n.input(k).empty()) return std::nullopt;
    unpacked_weights w;
    const std::string& code_name = n.input(table ? 0 : 1);
    const std::string zero_name = n.input_size() > 3 ? n.input(3) : "";
    if (!m.is_constant(code_name) || !m.is_constant(n.input(2)) || (!zero_name.empty() && !m.is_constant(zero_name))) return std::nullopt;
    const auto type = m.constant(code_name).type();
    if (table && type != data_type::uint8) return unpack_table(m, n);
    const tensor codes = m.constant(code_name), scales = ops::widened(m.constant(n.input(2)));
    const tensor zeros = zero_name.empty() ? tensor() : m.constant(zero_name);
    const std::int64_t bits = int_attribute(n, "bits", 4), block = int_attribute(n, "block_size", table ? 128 : 32);
    if (codes.type() != data_type::uint8 || scales.type() != data_type::float32 || (!zeros.empty() && zeros.type() != data_type::uint8) ||
        (bits != 2 && bits != 4 && bits != 8) || block < 1)
        return std::nullopt;
    const std::int64_t per_byte = 8 / bits, rows = table ? codes.dim(0) : int_attribute(n, "N", 0),
                       length = table ? codes.dim(1) * per_byte : int_attribute(n, "K", 0),
                       blocks = block > 0 ? (length + block - 1) / block : 0;
    const std::int64_t row_bytes = table ? codes.dim(1) : blocks * (block / per_byte), zero_bytes = (blocks + per_byte - 1) / per_byte;
    const auto count = [](std::int64_t a, std::int64_t b) { return static_cast<std::size_t>(a * b); };
    if (rows < 1 || length < 1 || codes.size() != count(rows, row_bytes) || scales.size() != count(rows, blocks) ||
        (!zeros.empty() && zeros.size() != count(rows, zero_bytes)))
        return std::nullopt;
    const auto code = [&](const tensor& t, std::int64_t row, std::int64_t each, std::int64_t i) {
        return t.as<std::uint8_t>()[static_cast<std::size_t>(row * each + i / per_byte)] >> (i % per_byte * bits) & ((1 << bits) - 1);
    };
    const auto told = described(n.doc_string());
    const integer* said = told ? std::get_if<integer>(&told->format) : nullptr;
    const bool is_signed = said != nullptr && said->bits == bits ? said->is_signed : zeros.empty();
    w.how = told.value_or(quantizer{});
    w.how.format = said != nullptr && said->bits == bits ? *said : integer{.bits = static_cast<int>(bits), .is_signed = is_signed};
    w.how.axis = table ? 1 : 0, w.how.flatten = false, w.how.block_size = static_cast<int>(block);
    w.how.scale.assign(scales.size(), 1.0f);
    w.how.zero_point.assign(scales.size(), 0);
    w.value = tensor(data_type::float32, table ? dims{rows, length} : dims{length, rows});
    const std::int64_t middle = std::int64_t{1} << (bits - 1);
    bool shifted = false;
    for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t i = 0; i < length; ++i) {
            const std::int64_t b = i / block, zero = zeros.empty() ? middle : code(zeros, r, zero_bytes, b);
            const auto grid = static_cast<std::size_t>(table ? r * blocks + b : b * rows + r);
            const float scale = scales.as<float>()[static_cast<std::size_t>(r * blocks + b)];
            w.how.scale[grid] = scale, w.how.zero_point[grid] = zero - (is_signed ? middle : 0);
            shifted = shifted || w.how.zero_point[grid] != 0;
            w.value.as<float>()[static_cast<std::size_t>(table ? r * length + i : i * rows + r)] =
                static_cast<float>(code(codes, r, row_bytes, i) - zero) * scale;
        }
    if (!shifted) w.how.zero_point.clear();
    return w;
}

read_back read_nbits(const model& m, int node) {
    const onnx::NodeProto& n = m.graph().node(node);
    if (read_back experts = read_qmoe(m, n); experts.index() != 0) return experts;
    auto w = unpack_nbits(m, n);
    if (!w) return {};
    const int weights = operator_of(n) == "MatMulNBits" ? 1 : 0;
    node_on_floats plain{.node = n, .rounds_activations = int_attribute(n, "accuracy_level", 0) == 4};
    plain.node.set_op_type(weights == 1 ? "MatMul" : "Gather");
    plain.node.clear_domain(), plain.node.clear_attribute(), plain.node.clear_doc_string();
    plain.node.mutable_input()->DeleteSubrange(2, n.input_size() - 2);
    plain.operands.push_back({.input = weights, .name = n.input(weights), .how = std::move(w->how), .value = std::move(w->value)});
    return plain;
}

}  // namespace

constinit const style_row nbits_style{.name = "nbits",
                                      .help = "com.microsoft's MatMulNBits and QMoE for weights of 2, 4 and 8 bits",
                                      .writer = make_writer<nbits_writer>,
                                      .writes = {target_profile::file_form::functions, "com.microsoft"},
                                      .read = read_nbits};

}  // namespace qk::graph::detail
