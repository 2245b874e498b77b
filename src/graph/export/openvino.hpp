// SPDX-License-Identifier: Apache-2.0
// Finds what OpenVINO computes otherwise than a plan says. Files for it get guards there; other files get a note. Every rule was found, and
// is held, by tests/graph/runtime_matrix.py in OpenVINO 2026.4.
#pragma once

#include <onnx/onnx_pb.h>

#include <set>
#include <string>

#include "graph/export/fusing.hpp"
#include "graph/export/writer.hpp"
#include "qk/graph/model/model.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph::detail {

class openvino_rules {
  public:
    /// The arguments must outlive the rules.
    openvino_rules(const model& m, const fusing_rules& fusing, const quantizer_writer& writer, int8_codes codes);

    /// Takes note of signed weights that are stored as unsigned codes.
    void stored_unsigned(const std::string& weights) { unsigned_.insert(weights); }

    /// Returns whether a layer's weights need a guard behind them, which makes it a layer of floats. Who asks for int8 codes gets
    /// OpenVINO's integer products as they are on the processor at hand, so only codes that have zero points or blocks all the same:
    ///  - ConvTranspose loses the zero points of its weights, and its products saturate without VNNI;
    ///  - MatMul and Gemm round their activations once more, to int8 in groups of 32, where weights have zero points or blocks;
    ///  - a Conv of one tap whose input a Reshape makes becomes a MatMul, and the Reshape is taken for a Transpose from channels that stand
    ///    last: the file is not loaded, or its output has another shape. A pair of integers before the Conv keeps it from that.
    bool misreads_weights(const quantizer& weights, model::use u) const;

    /// Returns whether the pair of this activation needs a guard before it:
    ///  - where shapes are fixed, OpenVINO fuses it into the MatMul or Gemm that makes the activation, in which products of integers
    ///    without a bias, and some of floats, come out as garbage;
    ///  - where a dimension is open, it fuses the bias of a Conv into it, and, where a Reshape and a Concat with what an Expand makes
    ///    follow, takes the bias of the first channel for all. A ViT's tokens are made so.
    bool fuses_pair(const std::string& activation) const;

    /// Returns whether a node needs a guard before it because OpenVINO would give scales of a layer's channels to others. It moves them
    /// from a layer without a bias through what follows: wrongly through a Transpose behind a Reshape where a dimension is open, and
    /// through a reduction of what a Conv along one axis, or a product, makes.
    bool misplaces_scales(int node) const;

    /// Returns a note on products whose activations OpenVINO rounds where a plan leaves them float; empty if there are none.
    std::string note_on_rounding() const;
    /// Returns a note on what OpenVINO computes otherwise of a file that has none of these guards; empty if it is nothing.
    std::string note() const;

  private:
    const onnx::NodeProto& at(int node) const { return model_.graph().node(node); }
    bool has_pair_before(const onnx::NodeProto& n) const;
    const quantizer* integer_weights(const onnx::NodeProto& n) const;
    bool has_scales_of_channels(int node) const;
    bool is_decoded(const std::string& name, const quantizer& w) const;
    bool is_joined(const std::string& tensor, bool reshaped, bool expanded) const;
    bool is_of_biased_conv(const std::string& tensor) const;
    bool is_quantized_behind(const std::string& tensor) const;
    bool has_wide_pair(const onnx::NodeProto& n) const;
    const char* departure(int node) const;

    const model& model_;
    const fusing_rules& fusing_;
    const quantizer_writer& writer_;
    std::set<std::string> unsigned_;
    bool signed_;
    bool open_ = false;  ///< an input leaves a dimension open
};

}  // namespace qk::graph::detail
