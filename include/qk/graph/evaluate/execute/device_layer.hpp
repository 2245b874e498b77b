// SPDX-License-Identifier: Apache-2.0
// A Conv, Gemm or MatMul as a unit computes it: operands become codes, products are added by its accumulator, and an epilogue in float32
// multiplies by the operands' scales and adds the bias. Conv sums in the order channel, row, column of the kernel; where an operand has
// blocks, in the order row, column, channel, the channels of each place of the kernel filled up to whole blocks with zeros.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "qk/graph/evaluate/execute/device_columns.hpp"
#include "qk/graph/evaluate/execute/network.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph::execute {

/// A matrix of one operand as encode writes it, blocks along the sum.
struct packed_operand {
    qk::format format = fp32;
    std::int64_t zero_point = 0;
    along_axis axis;
    std::vector<std::byte> bytes;
    packed_matrix view() const { return {planes_of(layout_of(format, axis), std::span<const std::byte>(bytes)), zero_point}; }
};

class device_layer {
  public:
    /// `accumulator` is a device's name or text; `x` and `w` the quantizers of the operands, null where they have none: these become what
    /// the device multiplies, or float32. A constant `weights` is prepared here; it may be empty.
    device_layer(const net_node& node, const std::string& accumulator, const quantizer* x, const quantizer* w, const tensor& weights);

    tensor run(const tensor& x, const tensor& w, const tensor& bias, allocator& memory) const;

  private:
    using multiply_function = std::function<void(std::int64_t first, std::int64_t second, const product_shape& shape, float* d)>;

    const qk::format& format_of(bool weights) const;
    bool has_blocks() const;
    /// How `t` becomes codes; of blocks only where they run along the sum.
    operand_codes codes_of(const tensor& t, bool weights) const;
    unit_operand prepare(const tensor& t, bool weights) const;
    /// d [m][n] = rows [m][k] times columns [k][n], as values of the result's register.
    void multiply_general(const packed_operand& rows, const packed_operand& columns, product_shape s, float* d) const;
    /// One of them.
    float general_sum(const packed_operand& rows, const packed_operand& columns, std::size_t row, std::size_t column) const;

    /// `multiply` gives d [output channel][place] of one sample (first) and group (second).
    tensor convolution(const dims& x, const dims& w, const operand_codes& x_codes, const operand_codes& w_codes, const tensor& bias,
                       allocator& memory, const multiply_function& multiply) const;
    /// `multiply` gives d [row][column] of matrix `first` of x and matrix `second` of w.
    tensor product_of_matrices(const dims& x, const dims& w, const operand_codes& x_codes, const operand_codes& w_codes, const tensor& bias,
                               allocator& memory, const multiply_function& multiply) const;
    tensor run_elements(const tensor& x, const tensor& w, const tensor& bias, allocator& memory) const;

    // device_blocks.cpp: operands with blocks.
    tensor run_blocks(const tensor& x, const tensor& w, const tensor& bias, allocator& memory) const;
    void check_blocks(const quantizer& q, const tensor& t, bool weights) const;
    packed_operand pack(std::span<const float> values, const operand_codes& how, along_axis sum, std::span<const float> scale,
                        along_axis channels) const;
    /// The weights' matrices: for Conv one a group, else one for each of the tensor's.
    std::vector<packed_operand> pack_weights(const tensor& w, const operand_codes& how) const;
    std::int64_t padded_channels(std::int64_t channels) const;
    /// The matrix taken apart as multiply_columns reads it, `lines` of k values: rows, or columns that stand beside each other.
    unit_operand take_weights(const packed_operand& packed) const;
    unit_operand take_blocks(const packed_operand& packed, std::size_t lines, std::size_t k, bool columns) const;
    [[noreturn]] void fail(const std::string& sentence) const;

    const net_node* node_;
    std::string name_;
    accumulator how_;
    std::optional<qk::format> a_, b_;  ///< of a device
    std::optional<quantizer> x_, w_;
    std::optional<unit_operand> weights_;
    std::vector<packed_operand> packed_weights_;  ///< likewise, with blocks
    std::vector<unit_operand> taken_weights_;     ///< the same taken apart
};

}  // namespace qk::graph::execute
