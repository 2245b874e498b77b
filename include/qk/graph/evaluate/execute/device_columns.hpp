// SPDX-License-Identifier: Apache-2.0
// A product of matrices under an accumulator, in lanes over columns: which accumulators have them, and operands as they read them.
#pragma once

#include <bit>
#include <functional>

#include "qk/dot.hpp"
#include "qk/dot/elements.hpp"
#include "qk/graph/base/tensor.hpp"
#include "qk/semantics.hpp"

namespace qk::graph::execute {

/// How an operand becomes codes; a value is scale * (the code's value).
struct operand_codes {
    qk::format format = fp32;
    semantics how = semantics::ocp;
    std::int64_t zero_point = 0;
    std::vector<float> scale{1.0f};  ///< 1, or one for each output channel
    float tensor_scale = 0;          ///< NVFP4's
};

/// One operand as a unit reads it.
struct unit_operand : operand_codes {
    dims shape;
    std::vector<std::uint32_t> codes;       ///< of elements, in the tensor's order; without blocks
    std::vector<std::int16_t> n, exponent;  ///< the same taken apart, where they fit; empty otherwise
    std::vector<float> value;               ///< or as float32, where the unit rounds every sum to that
    std::vector<float> special;             ///< where Inf or NaN is among them: those, and of all others the sign (their n is 0)
    std::int16_t zero_exponent = 0;         ///< of padding
    qk::detail::element_kind kind;
    std::int64_t block = 0;  ///< values under one scale
    float factor = 1;        ///< of the sum: NVFP4's tensor scale
};

/// A register's stored code as a value.
inline float stored_value(const accumulator& how, std::uint64_t code) {
    if (how.sum == summation::integer) return static_cast<float>(static_cast<std::int64_t>(code));
    const auto stored = static_cast<std::uint32_t>(code);
    return bits(how.result) <= 16 ? value_of(how.result, stored) : std::bit_cast<float>(stored);
}

/// Codes of an operand without blocks, taken apart in the way that lanes under `how` read them.
void take_apart(const accumulator& how, unit_operand& o);

enum class column_way { none, exact, stopping, aligned, bundled, joined, rounded };
/// The lanes that sums of k products have; none: they have to be done the general way.
column_way way_of(const accumulator& how, const unit_operand& rows, const unit_operand& columns, std::size_t k);

/// Columns that stand beside each other, [k][n]; null what is not there.
struct unit_columns {
    const std::int16_t *n = nullptr, *exponent = nullptr;
    const float *value = nullptr, *special = nullptr;
};

/// d [m][n] = rows [m][k], from `first_row` on, times columns [k][n], as values of the result's register. Sums that lanes leave (a register
/// overflows, Inf) are what `general` gives for (row, column) of d. `kind` says what the columns are of.
void multiply_columns(const accumulator& how, column_way way, const unit_operand& rows, std::size_t first_row, const unit_operand& kind,
                      const unit_columns& columns, product_shape s, float* d,
                      const std::function<float(std::size_t, std::size_t)>& general);

}  // namespace qk::graph::execute
