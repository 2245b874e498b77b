// SPDX-License-Identifier: Apache-2.0
// Computes a Conv, Gemm or MatMul as a device's matrix unit does: operands become codes, products are added by its accumulator, and an
// epilogue in float32 multiplies by the operands' scales and adds the bias. Conv sums in the order channel, row, column of the kernel. If
// an operand has blocks, the order is row, column, channel, and the channels of each tap are padded to whole blocks with zeros.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "graph/evaluate/execute/network.hpp"
#include "hardware/devices/device_columns.hpp"
#include "qk/graph/plan/device_layer.hpp"

namespace qk::graph::execute {

inline bool convolves(const node_view& v) { return product_axes_of(v.proto())->windows; }
/// Is true where operands are one matrix each, as in a Gemm: their axes count from the front.
inline bool of_matrices(const product_axes& axes) { return !axes.windows && axes.sums >= 0; }
/// Is true where such an operand is transposed.
inline bool lies_turned(const product_axes& axes, bool weights) { return weights ? axes.in == 1 : axes.sums == 0; }

/// A matrix of one operand, packed by encode with blocks along the sum.
struct packed_operand {
    qk::format format = fp32;
    std::int64_t zero_point = 0;
    along_axis axis;
    std::vector<std::byte> bytes;
    packed_matrix view() const { return {planes_of(layout_of(format, axis), std::span<const std::byte>(bytes)), zero_point}; }
};

class unit_layer final : public device_layer {
  public:
    /// The arguments are those of device_functions::make.
    unit_layer(const net_node& node, const std::string& accumulator, const quantizer* x, const quantizer* w, const tensor& weights);

    tensor run(const tensor& x, const tensor& w, const tensor& bias, allocator& memory) const override;

  private:
    using multiply_function = std::function<void(std::int64_t first, std::int64_t second, const product_shape& shape, float* d)>;

    const qk::format& format_of(bool weights) const;
    bool has_blocks() const;
    /// Returns how `t` becomes codes. Throws an error if its blocks do not run along the sum.
    operand_codes codes_of(const tensor& t, bool weights) const;
    unit_operand prepare(const tensor& t, bool weights) const;
    /// Computes d [m][n] = rows [m][k] times columns [k][n], as values of the result's register, in the general form.
    void multiply_general(const packed_operand& rows, const packed_operand& columns, product_shape s, float* d) const;
    /// Computes one element of that product.
    float general_sum(const packed_operand& rows, const packed_operand& columns, std::size_t row, std::size_t column) const;

    /// Computes a Conv; `multiply` computes d [output channel][place] of one sample (first) and group (second).
    tensor convolution(const dims& x, const dims& w, const operand_codes& x_codes, const operand_codes& w_codes, const tensor& bias,
                       allocator& memory, const multiply_function& multiply) const;
    /// Computes a Gemm or MatMul; `multiply` computes d [row][column] of matrix `first` of x and matrix `second` of w.
    tensor product_of_matrices(const dims& x, const dims& w, const operand_codes& x_codes, const operand_codes& w_codes, const tensor& bias,
                               allocator& memory, const multiply_function& multiply) const;
    tensor run_elements(const tensor& x, const tensor& w, const tensor& bias, allocator& memory) const;

    // device_blocks.cpp: operands with blocks.
    tensor run_blocks(const tensor& x, const tensor& w, const tensor& bias, allocator& memory) const;
    void check_blocks(const quantizer& q, const tensor& t, bool weights) const;
    packed_operand pack(std::span<const float> values, const operand_codes& how, along_axis sum, std::span<const float> scale,
                        along_axis channels) const;
    /// Packs the weights: one matrix for each group of a Conv, otherwise one for each matrix of the tensor.
    std::vector<packed_operand> pack_weights(const tensor& w, const operand_codes& how) const;
    std::int64_t padded_channels(std::int64_t channels) const;
    /// Split a packed matrix into the arrays that multiply_columns reads: `lines` of k values, which are rows or, if `columns`, columns
    /// side by side.
    unit_operand take_weights(const packed_operand& packed) const;
    unit_operand take_blocks(const packed_operand& packed, std::size_t lines, std::size_t k, bool columns) const;
    [[noreturn]] void fail(const std::string& sentence) const;

    const net_node* node_;
    std::string name_;
    accumulator how_;
    std::optional<qk::format> a_, b_;  ///< a device's formats
    std::optional<quantizer> x_, w_;
    std::optional<unit_operand> weights_;
    std::vector<packed_operand> packed_weights_;  ///< constant weights with blocks
    std::vector<unit_operand> taken_weights_;     ///< the same, split for multiply_columns
};

}  // namespace qk::graph::execute
