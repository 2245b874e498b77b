// SPDX-License-Identifier: Apache-2.0
#include "graph/recover/nbits.hpp"

#include "graph/export/description.hpp"
#include "graph/ops/widened.hpp"
#include "qk/graph/model/attribute.hpp"

namespace qk::graph::detail {

std::optional<unpacked_weights> unpack_nbits(const model& m, const onnx::NodeProto& n) {
    const bool table = n.op_type() == "GatherBlockQuantized";
    if (n.domain() != "com.microsoft" || (!table && n.op_type() != "MatMulNBits") || n.input_size() < 3) return std::nullopt;
    for (int k = 4; k < n.input_size(); ++k)
        if (!n.input(k).empty()) return std::nullopt;
    unpacked_weights w{
        .op_type = table ? "Gather" : "MatMul", .input = table ? 0 : 1, .codes = n.input(table ? 0 : 1), .value = {}, .how = {}};
    const std::string zero_name = n.input_size() > 3 ? n.input(3) : "";
    if (!m.is_constant(w.codes) || !m.is_constant(n.input(2)) || (!zero_name.empty() && !m.is_constant(zero_name))) return std::nullopt;
    const tensor codes = m.constant(w.codes), scales = ops::widened(m.constant(n.input(2)));
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
    w.integers = int_attribute(n, "accuracy_level", 0) == 4;
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

void make_plain(onnx::NodeProto& n, const unpacked_weights& w, const std::string& weights) {
    const std::string other = n.input(w.input == 0 ? 1 : 0);
    n.set_op_type(w.op_type);
    n.clear_domain(), n.clear_attribute(), n.clear_doc_string(), n.clear_input();
    n.add_input(w.input == 0 ? weights : other), n.add_input(w.input == 0 ? other : weights);
}

}  // namespace qk::graph::detail
