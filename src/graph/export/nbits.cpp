// SPDX-License-Identifier: Apache-2.0
// Definitions of nbits.hpp: codes are packed by rows of outputs, blocks of inputs.
#include "qk/graph/export/nbits.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "qk/graph/export/description.hpp"
#include "qk/graph/export/marks.hpp"
#include "qk/graph/model/attribute.hpp"
#include "qk/graph/ops/widened.hpp"

namespace qk::graph::detail {
namespace {

std::int64_t number_of(const onnx::NodeProto& n, const char* name, std::int64_t otherwise) {
    const auto* a = find_attribute(n, name);
    return a == nullptr ? otherwise : a->i();
}

bool turned(const onnx::NodeProto& n) { return n.op_type() == "Gemm" && number_of(n, "transB", 0) != 0; }

/// The axis that blocks run along in such a node: the inputs of a product, the values of a row.
int block_axis(const onnx::NodeProto& n) { return n.op_type() == "Gather" || turned(n) ? 1 : 0; }

/// The block size of the node: the plan's, a power of two that divides it, or 32 where scales do not differ along the axis. 0: none.
std::int64_t size_of_blocks(const quantizer& q) {
    if (q.block_size == 0) return 32;
    const std::int64_t power = q.block_size & -q.block_size;
    return power >= 16 ? std::min<std::int64_t>(power, 256) : 0;
}

/// Scale and code of weight (row, k), the rows being outputs (or rows of a table).
struct rows_of_codes {
    std::int64_t rows = 0, length = 0;
    std::vector<std::uint8_t> codes, zeros;  ///< [rows][length]; a zero point for each element
    std::vector<float> scales;
};

rows_of_codes codes_by_row(const onnx::NodeProto& n, const quantizer& q, const tensor& value, int bits) {
    const integer f = std::get<integer>(q.format);
    const bool rows_first = block_axis(n) == 1;
    rows_of_codes r;
    r.rows = value.dim(rows_first ? 0 : 1), r.length = value.dim(rows_first ? 1 : 0);
    r.codes.resize(value.size()), r.zeros.resize(value.size()), r.scales.resize(value.size());
    const std::int64_t shift = f.is_signed ? std::int64_t{1} << (bits - 1) : 0;
    const auto columns = static_cast<std::size_t>(value.dim(1));
    for_each_scale(q, value.shape(), value.size(), [&](std::size_t i, float scale, std::int64_t zero_point, bool one) {
        const std::size_t at = rows_first ? i : i % columns * static_cast<std::size_t>(r.length) + i / columns;
        const std::int64_t code =
            reference::code_of(f, value.as<float>()[i], scale, zero_point, one, q.semantics, reference::random_word(q.semantics, i));
        r.codes[at] = static_cast<std::uint8_t>(code + shift), r.zeros[at] = static_cast<std::uint8_t>(zero_point + shift);
        r.scales[at] = scale;
    });
    return r;
}

/// Codes of `bits` one after the other from the lowest bit on, every run of `length` in whole bytes.
tensor packed_rows(const std::vector<std::uint8_t>& codes, std::size_t length, int bits, dims shape) {
    const std::size_t per_byte = static_cast<std::size_t>(8 / bits), bytes = (length + per_byte - 1) / per_byte;
    tensor t(data_type::uint8, std::move(shape));
    std::memset(t.bytes(), 0, t.size_bytes());
    for (std::size_t i = 0; i < codes.size(); ++i) {
        std::uint8_t& to = t.as<std::uint8_t>()[i / length * bytes + i % length / per_byte];
        to = static_cast<std::uint8_t>(to | codes[i] << (i % length % per_byte * static_cast<std::size_t>(bits)));
    }
    return t;
}

/// Inputs codes, scales and, where one is not the middle, zero points.
struct nbits_constants {
    std::string codes, scales, zeros;
    std::int64_t block = 0;
};

nbits_constants hold(graph_writer& g, const std::string& name, const rows_of_codes& r, int bits, std::int64_t block, bool table) {
    const std::int64_t blocks = (r.length + block - 1) / block, padded = table ? r.length : blocks * block;
    const auto rows = static_cast<std::size_t>(r.rows), length = static_cast<std::size_t>(r.length),
               each = static_cast<std::size_t>(padded);
    std::vector<std::uint8_t> codes(rows * each), zeros(rows * static_cast<std::size_t>(blocks));
    std::vector<float> scales(zeros.size());
    const std::uint8_t middle = static_cast<std::uint8_t>(1 << (bits - 1));
    for (std::size_t row = 0; row < rows; ++row)
        for (std::size_t k = 0; k < each; ++k) {
            const std::size_t from = row * length + std::min(k, length - 1),
                              b = row * static_cast<std::size_t>(blocks) + k / static_cast<std::size_t>(block);
            codes[row * each + k] = k < length ? r.codes[from] : r.zeros[from];
            scales[b] = r.scales[from], zeros[b] = r.zeros[from];
        }
    nbits_constants c;
    c.block = block;
    const std::int64_t per_byte = 8 / bits;
    c.codes =
        g.constant(name + marks::quantized, packed_rows(codes, table ? each : static_cast<std::size_t>(block), bits,
                                                        table ? dims{r.rows, padded / per_byte} : dims{r.rows, blocks, block / per_byte}));
    c.scales = g.constant(name + "_scale", make_tensor<float>(table ? dims{r.rows, blocks} : dims{r.rows * blocks}, scales));
    if (std::ranges::any_of(zeros, [&](std::uint8_t z) { return z != middle; })) {
        const std::int64_t bytes = (blocks + per_byte - 1) / per_byte;
        c.zeros = g.constant(name + "_zero_point", packed_rows(zeros, static_cast<std::size_t>(blocks), bits,
                                                               table ? dims{r.rows, bytes} : dims{r.rows * bytes}));
    }
    return c;
}

std::string cast(graph_writer& g, const std::string& x, const std::string& stem, data_type to) {
    const std::string y = g.fresh(stem);
    set_attribute(g.node("Cast", {x}, {y}), "to", static_cast<std::int64_t>(to));
    return y;
}

}  // namespace

bool fits_nbits(const onnx::NodeProto& n, int input, const quantizer& q, const tensor& value, std::string& why) {
    const integer* f = std::get_if<integer>(&q.format);
    const bool table = n.op_type() == "Gather" && n.domain().empty() && input == 0 && number_of(n, "axis", 0) == 0;
    const bool product = (n.op_type() == "MatMul" || n.op_type() == "Gemm") && n.domain().empty() && input == 1;
    if (!table && !product) return why = "a " + n.op_type() + " reads them", false;
    if (f == nullptr || (f->bits != 2 && f->bits != 4 && f->bits != 8)) return why = "the format is none of 2, 4 or 8 bits", false;
    if (table && f->bits == 2) return why = "tables have codes of 4 or 8 bits", false;
    if (q.dynamic || q.flatten || q.scale.empty()) return why = "they have no scales", false;
    if (value.rank() != 2 || value.size() == 0) return why = "they are no matrix", false;
    const std::int64_t axis = positive_axis(q.axis, 2);
    if (q.block_size > 0 && axis != block_axis(n)) return why = "their blocks run along the outputs", false;
    if (q.block_size == 0 && q.scale.size() > 1 && axis == block_axis(n)) return why = "their scales run along the inputs", false;
    if (size_of_blocks(q) == 0) return why = "blocks of " + std::to_string(q.block_size) + " have no power of two from 16 on", false;
    if (table && value.dim(1) * f->bits % 8 != 0) return why = "their rows do not fill bytes", false;
    if (n.op_type() == "Gemm") {
        const auto* alpha = find_attribute(n, "alpha");
        const auto* beta = find_attribute(n, "beta");
        if (number_of(n, "transA", 0) != 0 || (alpha != nullptr && alpha->f() != 1.0f) || (beta != nullptr && beta->f() != 1.0f))
            return why = "the Gemm transposes its input or multiplies", false;
    }
    return true;
}

void write_nbits(graph_writer& g, int index, const std::string& name, const quantizer& q, const tensor& value, data_type own) {
    const onnx::NodeProto before = g.graph().node(index);
    const int bits = std::get<integer>(q.format).bits;
    const bool table = before.op_type() == "Gather", half = ops::is_half(own);
    const rows_of_codes r = codes_by_row(before, q, value, bits);
    const nbits_constants c = hold(g, name, r, bits, size_of_blocks(q), table);
    g.import("com.microsoft", 1);
    const std::string x = half && !table ? cast(g, before.input(0), before.input(0) + marks::wide, data_type::float32) : before.input(0);
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
        set_attribute(n, "K", r.length);
        set_attribute(n, "N", r.rows);
    }
    if (!c.zeros.empty()) n.add_input(c.zeros);
    set_attribute(n, "bits", static_cast<std::int64_t>(bits));
    set_attribute(n, "block_size", c.block);
}

}  // namespace qk::graph::detail
