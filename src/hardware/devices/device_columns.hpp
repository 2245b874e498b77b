// SPDX-License-Identifier: Apache-2.0
// Multiplies matrices under an accumulator with one column in each lane: finds the accumulators that allow it, and prepares their operands.
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
    std::vector<float> scale{1.0f};  ///< one, or one for each output channel
    float tensor_scale = 0;          ///< of NVFP4
};

/// One operand as a device's matrix unit reads it.
struct unit_operand : operand_codes {
    dims shape;
    std::vector<std::uint32_t> codes;       ///< of elements, in the tensor's order; empty for formats with blocks
    std::vector<std::int16_t> n, exponent;  ///< codes split into whole number and exponent; empty if these do not fit
    std::vector<float> value;               ///< values in float32, if the unit rounds every sum to float32
    std::vector<float> special;             ///< if there is an Inf or NaN: special values (their n is 0), and the sign of all others
    std::int16_t zero_exponent = 0;         ///< of padding
    device_sums::element_kind kind;
    std::int64_t block = 0;  ///< values under one scale
    float factor = 1;        ///< multiplies the sum: NVFP4's tensor scale
};

/// Returns the value of a register's stored code.
inline float stored_value(const accumulator& how, std::uint64_t code) {
    if (how.sum == summation::integer) return static_cast<float>(static_cast<std::int64_t>(code));
    const auto stored = static_cast<std::uint32_t>(code);
    return bits(how.result) <= 16 ? value_of(how.result, stored) : std::bit_cast<float>(stored);
}

/// Splits the codes of an operand without blocks into the arrays that lanes under `how` read.
void take_apart(const accumulator& how, unit_operand& o);

enum class column_way { none, exact, stopping, aligned, bundled, joined, rounded };
/// Returns how lanes compute sums of k products; `none` if only the general form can.
column_way way_of(const accumulator& how, const unit_operand& rows, const unit_operand& columns, std::size_t k);

/// Columns side by side, [k][n], split as in unit_operand; null for an array that is absent.
struct unit_columns {
    const std::int16_t *n = nullptr, *exponent = nullptr;
    const float *value = nullptr, *special = nullptr;
};

/// Computes d [m][n] = rows [m][k], from `first_row` on, times columns [k][n], as values of the result's register. Sums that lanes cannot
/// compute (a register overflows, Inf) come from general(row, column) of d. `kind` is the operand that the columns belong to.
void multiply_columns(const accumulator& how, column_way way, const unit_operand& rows, std::size_t first_row, const unit_operand& kind,
                      const unit_columns& columns, product_shape s, float* d,
                      const std::function<float(std::size_t, std::size_t)>& general);

}  // namespace qk::graph::execute
