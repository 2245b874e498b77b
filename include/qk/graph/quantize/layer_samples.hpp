// SPDX-License-Identifier: Apache-2.0
// What a layer reads and what it should make, as rows of two matrices: a row is one place of one sample's output.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <vector>

#include "qk/graph/quantize/side_by_side.hpp"
#include "qk/graph/quantize/weight_rows.hpp"

namespace qk::graph::detail {

using float_rows = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// Of one group of channels: x [places, columns], y [places, rows].
struct layer_samples {
    float_rows x, y;
};

/// A place of a layer's output: run, and number within it (pictures times places of a Conv, rows of a product).
struct place {
    std::size_t run = 0, at = 0;
};

/// At most `limit` places of a Conv, ConvTranspose, Gemm or MatMul, evenly over the runs, in an order that only `seed` decides.
std::vector<place> choose_places(const side_by_side::visit& here, const weight_rows& rows, std::size_t limit, std::uint64_t seed);

/// Rows for these places. `weight`: its shape.
layer_samples gather_samples(const side_by_side::visit& here, const weight_rows& rows, const dims& weight, std::size_t group,
                             const std::vector<place>& places, execute::workers& pool);

/// Channel of element i of a layer's output of this shape.
struct channel_of {
    channel_of(const weight_rows& rows, const dims& output, bool convolution);
    std::size_t operator()(std::size_t i) const { return i / inner % channels; }
    std::size_t channels = 1, inner = 1;
};

}  // namespace qk::graph::detail
