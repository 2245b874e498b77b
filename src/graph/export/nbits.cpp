// SPDX-License-Identifier: Apache-2.0
// Definitions of nbits.hpp: codes are packed by rows of outputs, blocks of inputs.
#include "graph/export/nbits.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cstring>

#include "graph/export/description.hpp"
#include "graph/export/marks.hpp"
#include "graph/export/packed_rows.hpp"
#include "graph/export/portable/packed.hpp"
#include "graph/export/qdq.hpp"
#include "graph/ops/widened.hpp"
#include "qk/graph/model/attribute.hpp"

namespace qk::graph::detail {
namespace {

bool turned(const onnx::NodeProto& n) { return n.op_type() == "Gemm" && int_attribute(n, "transB", 0) != 0; }

/// Returns the axis that blocks run along in such a node: the inputs of a product, the values of a row.
int block_axis(const onnx::NodeProto& n) { return n.op_type() == "Gather" || turned(n) ? 1 : 0; }

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

}  // namespace

bool fits_nbits(const onnx::NodeProto& n, int input, const quantizer& q, const tensor& value, std::string& why) {
    const integer* f = std::get_if<integer>(&q.format);
    const bool table = n.op_type() == "Gather" && n.domain().empty() && input == 0 && int_attribute(n, "axis", 0) == 0;
    const bool product = (n.op_type() == "MatMul" || n.op_type() == "Gemm") && n.domain().empty() && input == 1;
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
    if (n.op_type() == "Gemm") {
        if (int_attribute(n, "transA", 0) != 0 || float_attribute(n, "alpha", 1) != 1.0f || float_attribute(n, "beta", 1) != 1.0f)
            return why = "the Gemm transposes its input or multiplies", false;
    }
    return true;
}

void write_nbits(graph_writer& g, int index, const std::string& name, const quantizer& q, const tensor& value, data_type own) {
    const onnx::NodeProto before = g.graph().node(index);
    const integer* f = std::get_if<integer>(&q.format);
    const bool table = before.op_type() == "Gather", half = ops::is_half(own);
    const nbits_constants c = f == nullptr ? hold_floats(g, name, q, value) : hold(g, name, before, q, value, table);
    g.import("com.microsoft", 1);
    const std::string x = half && !table ? g.cast(before.input(0), before.input(0) + marks::wide, data_type::float32) : before.input(0);
    const bool biased = before.op_type() == "Gemm" && before.input_size() > 2 && !before.input(2).empty();
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

}  // namespace qk::graph::detail
