// SPDX-License-Identifier: Apache-2.0
// A Conv, Gemm or MatMul as a unit computes it: operands become codes, products are added by its accumulator, and an epilogue in float32
// multiplies by the operands' scales and adds the bias. Conv sums in the order channel, row, column of the kernel.
#pragma once

#include <optional>
#include <string>

#include "qk/dot.hpp"
#include "qk/dot/elements.hpp"
#include "qk/graph/evaluate/execute/network.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph::execute {

/// One operand as a unit reads it: a value is scale * (the code's value).
struct unit_operand {
    qk::format format = fp32;
    std::int64_t zero_point = 0;
    std::vector<float> scale;  ///< 1, or one for each output channel
    dims shape;
    std::vector<std::uint32_t> codes;       ///< of elements, in the tensor's order
    std::vector<std::int16_t> n, exponent;  ///< the same taken apart, where they fit; empty otherwise
    std::int16_t zero_exponent = 0;         ///< of padding
    qk::detail::element_kind kind;
};

class device_layer {
  public:
    /// `accumulator` is a device's name or text; `x` and `w` the quantizers of the operands, null where they have none: these become what
    /// the device multiplies, or float32. A constant `weights` is prepared here; it may be empty.
    device_layer(const net_node& node, const std::string& accumulator, const quantizer* x, const quantizer* w, const tensor& weights);

    tensor run(const tensor& x, const tensor& w, const tensor& bias, allocator& memory) const;

  private:
    unit_operand prepare(const tensor& t, const quantizer* q, const qk::format& own, bool weights) const;
    void take_apart(unit_operand& o) const;
    bool goes_by_columns(const unit_operand& a, const unit_operand& b, std::size_t k) const;
    /// d [m][n] = rows [m][k] times columns [k][n], as values of the result's register. False: it has to be done the general way.
    bool multiply_columns(const unit_operand& rows, std::size_t first_row, const unit_operand& columns, const std::int16_t* n,
                          const std::int16_t* exponent, product_shape s, float* d) const;
    void multiply_general(const unit_operand& rows, std::size_t first_row, const unit_operand& columns, const std::uint32_t* codes,
                          product_shape s, float* d) const;

    tensor convolution(const unit_operand& x, const unit_operand& w, const tensor& bias, allocator& memory) const;
    tensor product_of_matrices(const unit_operand& x, const unit_operand& w, const tensor& bias, allocator& memory) const;
    [[noreturn]] void fail(const std::string& sentence) const;
    float epilogue(float sum, const unit_operand& x, const unit_operand& w, std::size_t channel) const;

    const net_node* node_;
    std::string name_;
    accumulator how_;
    std::optional<qk::format> a_, b_;  ///< of a device
    std::optional<quantizer> x_, w_;
    std::optional<unit_operand> weights_;
};

}  // namespace qk::graph::execute
