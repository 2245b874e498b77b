// SPDX-License-Identifier: Apache-2.0
// What a layer reads and what it should make, as rows of two matrices. A row belongs to one place (position) of one sample's output.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <vector>

#include "graph/quantize/float_and_quantized_run.hpp"
#include "graph/quantize/weight_rows.hpp"

namespace qk::graph::detail {

using float_rows = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// Inputs x [places, columns] and outputs y [places, rows] of one group of channels.
struct layer_samples {
    float_rows x, y;
};

/// A place of a layer's output: the run, and the number within it. It counts the spatial positions of all images for a Conv, rows for a
/// product.
struct place {
    std::size_t run = 0, at = 0;
};

/// Chooses at most `limit` places of a Conv, ConvTranspose, Gemm or MatMul, evenly over the runs, in a random order. The choice depends on
/// `seed` and the number of the node alone, not on threads.
std::vector<place> choose_places(const side_by_side::visit& here, const weight_rows& rows, std::size_t limit, std::uint64_t seed);

/// Gathers the rows of one group for these places. `weight` is the shape of the layer's weights.
layer_samples gather_samples(const side_by_side::visit& here, const weight_rows& rows, const dims& weight, std::size_t group,
                             const std::vector<place>& places, execute::workers& pool);

/// Maps an element's index in a layer's output to its channel.
struct channel_of {
    channel_of(const weight_rows& rows, const dims& output, bool convolution);
    std::size_t operator()(std::size_t i) const { return i / inner % channels; }
    std::size_t channels = 1, inner = 1;
};

}  // namespace qk::graph::detail
