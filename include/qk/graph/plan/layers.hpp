// SPDX-License-Identifier: Apache-2.0
// What precision needs to know of a node: which inputs are activations, weights and bias, where blocks and channels run, and whether it
// only moves data.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "qk/graph/model/attribute.hpp"
#include "qk/graph/model/model.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph {

/// How a node takes part in precision.
enum class layer_kind : std::uint8_t {
    compute,     ///< multiplies weights or activations: Conv, ConvTranspose, Gemm, MatMul. A default request means these
    neighbour,   ///< has an integer kernel in runtimes: Add, AveragePool, GlobalAveragePool, Concat of activations
    mover,       ///< output elements are input elements: Reshape, Transpose, MaxPool, ... Formats propagate through it
    activation,  ///< Relu, Clip: fused into the node before it, so nothing is quantized between the two
    other,       ///< everything else; quantized only when a request names it
};
layer_kind kind_of(const onnx::NodeProto& node);

/// Axes of one operand, with the meaning that they have in plan.hpp's quantizer.
struct operand_axes {
    int block = -1;        ///< blocks run along it (the reduction axis)
    bool flatten = false;  ///< grouped Conv weights: blocks over all axes but the first
    int channel = 0;       ///< output channels: the axis of per-channel scales
};
/// Returns the axes of input `index` of a node. `shape` is empty when it is not known (activations); negative axes count from the end.
/// One-dimensional tensors run along axis 0 (resolve_axis sees to that, where the rank is known).
operand_axes axes_of(const onnx::NodeProto& node, int index, const dims& shape);

/// Returns the scale at which a layer of integers adds its bias: that of its products of codes, s_x * s_w, and of alpha in a Gemm (where
/// alpha is above 0; others are not computed in integers).
double bias_scale(const onnx::NodeProto& layer, float input_scale, float weight_scale);

/// Returns an axis counted from 0; tensors of rank 0 and 1 have axis 0.
inline std::size_t resolve_axis(int axis, std::size_t rank) {
    if (rank <= 1) return 0;
    const int r = static_cast<int>(rank);
    const int a = axis < 0 ? axis + r : axis;
    return static_cast<std::size_t>(a < 0 ? 0 : a >= r ? r - 1 : a);
}

/// A model read for planning: the roles of every input, element types, and which tensor a moved tensor comes from. It is read once: other
/// views of the same model share what was found.
class layer_view {
  public:
    explicit layer_view(const model& m) : model_(&m), found_(m.found<reading>()) {}

    enum class part : std::uint8_t { none, input, weight, bias };  ///< none: shapes, indices, omitted inputs, non-float data
    struct node_info {
        layer_kind kind = layer_kind::other;
        std::vector<part> parts;  ///< for each input
        bool biased = false;      ///< compute node with a constant bias input
    };

    const model& source() const { return *model_; }
    const std::vector<node_info>& nodes() const { return found_->nodes; }
    /// Returns whether the tensor holds float32, float16 or bfloat16, so that a format can be requested for it.
    bool is_float(const std::string& tensor) const { return found_->floats.contains(tensor); }
    /// Returns float32, float16 or bfloat16; undefined for every other tensor.
    data_type float_type(const std::string& tensor) const {
        const auto found = found_->floats.find(tensor);
        return found == found_->floats.end() ? data_type::undefined : found->second;
    }
    /// Returns the node that alone reads `tensor` if it is a Relu or Clip, otherwise -1. Nothing is quantized between it and the producer.
    int fused_activation(const std::string& tensor) const;
    /// Returns the tensor that a moved tensor's values come from, back through data-moving operators.
    const std::string& root(const std::string& tensor) const { return found_->root(tensor); }
    /// Returns whether a Conv, a pooling or a picture-shaped input made it, with shape-keeping operators between: channels are on axis 1.
    bool has_channels_second(const std::string& tensor) const { return found_->pictures.contains(tensor); }
    /// Returns whether the node is a Gather from a constant table by indices from a model input, with rows as long as a layer's reduction
    /// axis.
    bool is_embedding(int node) const;
    /// Returns the tensors that hold keys or values of a decoder: what is appended to a cache that is a model input.
    std::vector<std::string> cached_tensors() const;
    /// Returns the compute nodes in graph order: the layers of a search and of tables.
    std::vector<int> compute_layers() const;

  private:
    struct reading {
        explicit reading(const model& m);
        const std::string& root(const std::string& tensor) const;
        std::vector<node_info> nodes;
        std::unordered_map<std::string, data_type> floats;
        std::unordered_set<std::string> pictures;
        std::map<std::string, std::string, std::less<>> roots;
    };
    const model* model_;
    std::shared_ptr<const reading> found_;
};

}  // namespace qk::graph
