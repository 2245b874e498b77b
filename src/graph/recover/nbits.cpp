// SPDX-License-Identifier: Apache-2.0
#include "graph/recover/nbits.hpp"

#include "graph/export/description.hpp"
#include "graph/model/code_types.hpp"
#include "graph/ops/widened.hpp"
#include "qk/graph/model/attribute.hpp"
#include "qk/reference/codes.hpp"

namespace qk::graph::detail {

namespace {

/// Reads a table of small floats, or of codes of int4 or uint4 in their own types.
std::optional<unpacked_weights> unpack_table(const model& m, const onnx::NodeProto& n) {
    unpacked_weights w{.op_type = "Gather", .input = 0, .codes = n.input(0), .value = {}, .how = {}};
    const tensor codes = m.constant(w.codes), scales = ops::widened(m.constant(n.input(2)));
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

}  // namespace

std::optional<unpacked_weights> unpack_nbits(const model& m, const onnx::NodeProto& n) {
    const bool table = n.op_type() == "GatherBlockQuantized";
    if (n.domain() != "com.microsoft" || (!table && n.op_type() != "MatMulNBits") || n.input_size() < 3) return std::nullopt;
    for (int k = 4; k < n.input_size(); ++k)
        if (!n.input(k).empty()) return std::nullopt;
    unpacked_weights w{
        .op_type = table ? "Gather" : "MatMul", .input = table ? 0 : 1, .codes = n.input(table ? 0 : 1), .value = {}, .how = {}};
    const std::string zero_name = n.input_size() > 3 ? n.input(3) : "";
    if (!m.is_constant(w.codes) || !m.is_constant(n.input(2)) || (!zero_name.empty() && !m.is_constant(zero_name))) return std::nullopt;
    const auto type = m.constant(w.codes).type();
    if (table && type != data_type::uint8) return unpack_table(m, n);
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
