// SPDX-License-Identifier: Apache-2.0
// Implements com.microsoft's integer products with float scales: QGemm, DynamicQuantizeMatMul, MatMulIntegerToFloat; and MatMulNBits.
#pragma once

#include <onnx/onnx_pb.h>

#include <cmath>
#include <vector>

#include "graph/ops/matmul_integer.hpp"
#include "graph/ops/op.hpp"
#include "graph/ops/quantize_linear.hpp"
#include "graph/ops/types.hpp"
#include "graph/ops/walk/rules.hpp"
#include "graph/ops/widened.hpp"

namespace qk::graph::ops {

namespace detail {

/// Returns the transpose of a matrix of codes.
inline tensor transposed_codes(op_context& call, const tensor& x) {
    if (x.rank() != 2) call.fail("a matrix was expected, not shape " + to_string(x.shape()));
    tensor y = call.scratch(x.type(), {x.dim(1), x.dim(0)});
    const auto rows = static_cast<std::size_t>(x.dim(0)), columns = static_cast<std::size_t>(x.dim(1));
    if (size_of(x.type()) != 1) call.fail(std::string("type ") + name_of(x.type()) + " is not int8 or uint8");
    for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t j = 0; j < columns; ++j) y.bytes()[j * rows + i] = x.bytes()[i * columns + j];
    return y;
}

/// Computes sums * a_scale * b_scale + bias. b_scale is one value or one for each column; the bias is empty or one for each column.
inline tensor scaled_sums(op_context& call, const tensor& sums, float a_scale, const tensor& b_scale, const tensor& bias) {
    const auto n = sums.rank() == 0 ? 1 : static_cast<std::size_t>(sums.shape().back());
    if (b_scale.size() != 1 && b_scale.size() != n) call.fail("the scale of B must be one value, or one a column");
    if (!bias.empty() && bias.size() != n) call.fail("the bias needs one value a column");
    tensor y = call.scratch(data_type::float32, sums.shape());
    for (std::size_t i = 0; i < y.size(); ++i) {
        const std::size_t c = i % n;
        const float scale = a_scale * b_scale.as<float>()[b_scale.size() == 1 ? 0 : c];
        y.as<float>()[i] = static_cast<float>(sums.as<std::int32_t>()[i]) * scale + (bias.empty() ? 0.0f : bias.as<float>()[c]);
    }
    return y;
}

}  // namespace detail

/// Inputs: A, a_scale, a_zero, B, b_scale, b_zero, C, y_scale, y_zero. No y_scale: float output. C is int32 with alpha * a_scale * b_scale.
inline void run_qgemm(op_context& call) {
    const node_view& node = call.node();
    const tensor a = node.get_int("transA", 0) != 0 ? detail::transposed_codes(call, call.input(0)) : call.input(0);
    const tensor b = node.get_int("transB", 0) != 0 ? detail::transposed_codes(call, call.input(3)) : call.input(3);
    if (a.rank() != 2 || b.rank() != 2)
        call.fail("A of shape " + to_string(a.shape()) + " and B of shape " + to_string(b.shape()) + " must be matrices");
    const matmul_shapes s(call, a.shape(), b.shape());
    tensor sums = integer_matmul(call, a, zero_point_of<float>(call, 2, a.type()), b, zero_point_of<float>(call, 5, b.type()), s);
    const auto m = static_cast<std::size_t>(s.m), n = static_cast<std::size_t>(s.n);
    if (call.has_input(6)) {
        const tensor c = input_as<std::int64_t>(call, 6);
        const std::size_t rank = c.rank();
        const auto rows = static_cast<std::size_t>(rank > 1 ? c.dim(rank - 2) : 1),
                   columns = static_cast<std::size_t>(rank > 0 ? c.dim(rank - 1) : 1);
        if (rank > 2 || (rows != 1 && rows != m) || (columns != 1 && columns != n)) call.fail("C has shape " + to_string(c.shape()));
        for (std::size_t i = 0; i < m * n; ++i) {
            const std::int64_t add = c.as<std::int64_t>()[(rows == 1 ? 0 : i / n * columns) + (columns == 1 ? 0 : i % n)];
            std::int32_t& sum = sums.as<std::int32_t>()[i];
            sum = static_cast<std::int32_t>(static_cast<std::uint32_t>(sum) + static_cast<std::uint32_t>(add));
        }
    }
    const float a_scale = optional_scalar(call, 1) * node.get_float("alpha", 1);
    const tensor b_scale = input_as<float>(call, 4);
    if (!call.has_input(7)) {
        call.set_output(0, detail::scaled_sums(call, sums, a_scale, b_scale, {}));
        return;
    }
    if (b_scale.size() != 1 && b_scale.size() != n) call.fail("the scale of B must be one value, or one a column");
    const float y_scale = optional_scalar(call, 7);
    const auto zero = detail::to_int64(optional_scalar(call, 8));
    const data_type type = call.has_input(8) ? call.input(8).type() : call.input(0).type();
    tensor& y = call.output(0, type, sums.shape());
    with_byte_type(call, type, [&]<class T>(T) {
        for (std::size_t i = 0; i < m * n; ++i) {
            const float by = b_scale.as<float>()[b_scale.size() == 1 ? 0 : i % n];
            requantize(sums.as<std::int32_t>().data() + i, 1, a_scale * by / y_scale, zero, y.as<T>().data() + i);
        }
    });
}

/// Inputs: A, B, a_scale, b_scale, a_zero, b_zero, bias.
inline void run_matmul_integer_to_float(op_context& call) {
    const matmul_shapes s(call, call.input(0).shape(), call.input(1).shape());
    const tensor &a = call.input(0), &b = call.input(1);
    const tensor sums = integer_matmul(call, a, zero_point_of<float>(call, 4, a.type()), b, zero_point_of<float>(call, 5, b.type()), s);
    call.set_output(0, detail::scaled_sums(call, sums, optional_scalar(call, 2), input_as<float>(call, 3), optional_as<float>(call, 6)));
}

/// Inputs: A (float; it is quantized to uint8 here), B, b_scale, b_zero, bias.
inline void run_dynamic_quantize_matmul(op_context& call) {
    const tensor a = call.input(0);
    tensor quantized[3];
    op_context inner = call.with(std::span(&a, 1), quantized);
    run_dynamic_quantize_linear(inner);
    const matmul_shapes s(call, a.shape(), call.input(1).shape());
    const tensor sums = integer_matmul(call, quantized[0], convert_to<float>(call, quantized[2]), call.input(1),
                                       zero_point_of<float>(call, 3, call.input(1).type()), s);
    call.set_output(0, detail::scaled_sums(call, sums, quantized[1].as<float>()[0], input_as<float>(call, 2), optional_as<float>(call, 4)));
}

namespace detail {

/// Rounds each block of a row of A to int8 under a scale of its own, max|a| / 127, as accuracy level 4 demands. The result is float.
inline tensor in_bytes(op_context& call, const tensor& a, std::int64_t k, std::int64_t block) {
    tensor y = call.scratch(data_type::float32, a.shape());
    const auto x = a.as<float>();
    const auto length = static_cast<std::size_t>(k), run = static_cast<std::size_t>(block);
    for (std::size_t row = 0; row < x.size(); row += length)
        for (std::size_t first = 0; first < length; first += run) {
            const std::size_t last = std::min(first + run, length);
            float largest = 0;
            for (std::size_t i = first; i < last; ++i) largest = std::max(largest, std::fabs(x[row + i]));
            const float scale = largest / 127.0f, inverse = scale == 0 ? 0.0f : 1.0f / scale;
            for (std::size_t i = first; i < last; ++i) y.as<float>()[row + i] = std::nearbyint(x[row + i] * inverse) * scale;
        }
    return y;
}

/// The attributes of MatMulNBits.
struct nbits_shape {
    std::int64_t k, n, bits, block, blocks = 0, bytes = 0;  ///< blocks: per row; bytes: per block
    explicit nbits_shape(const node_view& node)
        : k(node.get_int("K", 0)), n(node.get_int("N", 0)), bits(node.get_int("bits", 4)), block(node.get_int("block_size", 32)) {
        constexpr std::int64_t most = std::int64_t{1} << 32;
        if (k < 1 || n < 1 || block < 1 || (bits != 2 && bits != 4 && bits != 8) || k > most || n > most || block > most)
            node.fail("K, N, block_size must be positive and bits 2, 4 or 8");
        blocks = (k + block - 1) / block, bytes = (block * bits + 7) / 8;
        static_cast<void>(element_count(dims{n, blocks, bytes}));  // throws on overflow: products of them are taken
    }
};

/// B of MatMulNBits with what belongs to it, checked. The zero points and groups may be empty tensors.
struct nbits_weights {
    nbits_shape shape;
    tensor packed, scale;              ///< codes; float32, one for each block
    tensor zero_codes;                 ///< zero points packed as the codes are, or empty
    tensor zeros;                      ///< or as float32, or empty
    std::vector<std::int64_t> groups;  ///< the block whose scale each of the K inputs has; empty: its own

    nbits_weights(const node_view& node, const tensor& codes, const tensor& scales, const tensor& zeros_given, const tensor& groups_given)
        : shape(node), packed(codes), scale(ops::widened(scales)), groups(groups_given.size()) {
        const nbits_shape& s = shape;
        const auto all = static_cast<std::size_t>(s.n * s.blocks);
        if (packed.type() != data_type::uint8 || packed.size() != static_cast<std::size_t>(s.n * s.blocks * s.bytes))
            node.fail("B of shape " + to_string(packed.shape()) + " does not hold " + std::to_string(all) + " blocks");
        if (scale.type() != data_type::float32 || scale.size() != all) node.fail("the scales do not fit K and N");
        if (zeros_given.type() == data_type::uint8) {
            zero_codes = zeros_given;
            if (zeros_given.size() != static_cast<std::size_t>(s.n * zero_bytes())) node.fail("the zero points do not fit");
        } else {
            zeros = ops::widened(zeros_given);
            if (!zeros.empty() && (zeros.type() != data_type::float32 || zeros.size() != scale.size()))
                node.fail("the zero points do not fit");
        }
        if (!groups.empty()) read_elements(groups_given.type(), groups_given.bytes(), std::span<std::int64_t>(groups));
        if (!groups.empty() && (groups.size() < static_cast<std::size_t>(s.k) ||
                                std::ranges::any_of(groups, [&](std::int64_t g) { return g < 0 || g >= s.blocks; })))
            node.fail("g_idx needs a block's number for each of the K inputs");
    }
    std::int64_t zero_bytes() const { return (shape.blocks * shape.bits + 7) / 8; }  ///< of a row
    /// Returns code i of those that begin at this byte.
    std::int64_t code(const tensor& t, std::int64_t byte, std::int64_t i) const {
        const auto per_byte = 8 / shape.bits, mask = (std::int64_t{1} << shape.bits) - 1;
        return std::to_integer<std::int64_t>(t.bytes()[byte + i / per_byte]) >> (i % per_byte * shape.bits) & mask;
    }
};

/// Decodes B of MatMulNBits to float32 [N, K].
inline tensor unpacked_nbits(const nbits_weights& w) {
    const nbits_shape& s = w.shape;
    const bool packed_zeros = !w.zero_codes.empty();
    tensor weights(data_type::float32, {s.n, s.k});
    float* to = weights.as<float>().data();
    std::vector<float> zero(static_cast<std::size_t>(s.blocks), static_cast<float>(std::int64_t{1} << (s.bits - 1)));
    for (std::int64_t r = 0; r < s.n; ++r) {
        for (std::int64_t b = 0; b < s.blocks && (packed_zeros || !w.zeros.empty()); ++b)
            zero[static_cast<std::size_t>(b)] = packed_zeros ? static_cast<float>(w.code(w.zero_codes, r * w.zero_bytes(), b))
                                                             : w.zeros.as<float>()[static_cast<std::size_t>(r * s.blocks + b)];
        const float* own = w.scale.as<float>().data() + r * s.blocks;
        for (std::int64_t i = 0; i < s.k; ++i) {
            const std::int64_t b = w.groups.empty() ? i / s.block : w.groups[static_cast<std::size_t>(i)];
            *to++ = (static_cast<float>(w.code(w.packed, (r * s.blocks + i / s.block) * s.bytes, i % s.block)) -
                     zero[static_cast<std::size_t>(b)]) *
                    own[b];
        }
    }
    return weights;
}

/// Decodes B of MatMulNBits to float32 [N, K]. The zero points and groups may be empty tensors.
inline tensor unpacked_nbits(const node_view& node, const tensor& packed, const tensor& scales, const tensor& zeros, const tensor& groups) {
    return unpacked_nbits(nbits_weights(node, packed, scales, zeros, groups));
}

/// The weights of MatMulNBits for any number of runs. They stay packed (qk/product.hpp), so their sums have that header's order: the same
/// bits on every processor, and for a row alone or among others. Zero points that are floats, groups that g_idx names and blocks that end
/// within a byte are decoded to float32.
class prepared_matmul_nbits : public prepared_op {
  public:
    explicit prepared_matmul_nbits(const nbits_weights& w);
    void run(op_context& call) const override;

  private:
    nbits_shape shape_;
    tensor packed_, scale_;
    std::vector<std::int64_t> zeros_;  ///< of each block; empty: the codes are signed
    tensor floats_;                    ///< [N, K] where weights do not stay packed; else empty
    void multiply_packed(const float* a, std::size_t rows, const tensor& bias, float* y) const;
};

}  // namespace detail

/// Multiplies A by the transpose of B. The rows of B, K values each, consist of blocks of packed codes with one scale each.
inline void run_matmul_nbits(op_context& call) {
    const detail::nbits_weights w(call.node(), call.input(1), call.input(2), optional_input(call, 3), optional_input(call, 4));
    detail::prepared_matmul_nbits(w).run(call);
}

inline std::unique_ptr<prepared_op> prepare_matmul_nbits(const prepare_context& context) {
    std::vector<tensor> held(5);
    const auto& inputs = context.node.proto().input();
    for (int i = 1; i < 5 && i < inputs.size(); ++i) {
        const auto at = static_cast<std::size_t>(i);
        if (inputs[i].empty()) continue;
        if (at >= context.constants.size() || context.constants[at].empty()) return nullptr;
        held[at] = context.constants[at];
    }
    if (held[1].empty() || held[2].empty()) return nullptr;
    return std::make_unique<detail::prepared_matmul_nbits>(detail::nbits_weights(context.node, held[1], held[2], held[3], held[4]));
}

inline type_source qgemm_types(const onnx::NodeProto& n, int output) {
    return has_input(n, 7) ? like_zero_point<8>(n, output) : type_source{-1, data_type::float32};  // without a scale of Y it is no code
}

// clang-format off
inline constexpr op_entry qgemm_ops[] = {
    {"com.microsoft", "QGemm", 1, run_qgemm, nullptr, {follow_qgemm}, {.traits = makes_codes | on_codes, .types = qgemm_types}},
    {"com.microsoft", "MatMulIntegerToFloat", 1, run_matmul_integer_to_float, nullptr,
     {follow_matmul_integer}, {.traits = on_codes, .types = gives<data_type::float32>}},
    {"com.microsoft", "DynamicQuantizeMatMul", 1, run_dynamic_quantize_matmul, nullptr, {follow_all_samples}, {on_codes}},
    {"com.microsoft", "MatMulNBits", 1, run_matmul_nbits, prepare_matmul_nbits, {follow_matmul_bits}, {on_codes}},
};
// clang-format on

}  // namespace qk::graph::ops
