// SPDX-License-Identifier: Apache-2.0
// Keeps the constant matrix of a product as codes. Before: float32 values that a quantizer of a plan made. After: their codes, at the
// format's bits, which qk/product.hpp multiplies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "qk/graph/base/tensor.hpp"
#include "qk/graph/plan/plan.hpp"
#include "qk/memory/values.hpp"

namespace qk::graph::execute {

class packed_product {
  public:
    /// Packs [k,n] values, or [n,k] if `transposed`, that q made. Returns nullopt if the codes do not decode to the same bits (values that
    /// were rounded with a tensor scale of their own, dynamic scales), or if scales change within a column other than in blocks along k.
    static std::optional<packed_product> make(const tensor& values, bool transposed, const quantizer& q);

    /// Writes [rows,n], in the order of sums that product() has if nothing else is asked: the one of MatMulNBits. `bias` has n values or is
    /// null.
    void multiply(const float* x, std::size_t rows, const float* bias, float* y) const;

  private:
    qk::format format_;
    std::size_t n_ = 0, k_ = 0;
    std::vector<std::byte> codes_;
    std::vector<float> scale_;  ///< the tensor's, or none, or [n][blocks of a row] if `block_` is not 0
    std::vector<std::int64_t> zero_point_;
    std::size_t block_ = 0;

    codec_parameters parameters() const;
    /// Returns whether codes of `rows`, [n,k], decode to the same bits.
    bool encode(std::span<const float> rows, const semantics& how);
};

}  // namespace qk::graph::execute
