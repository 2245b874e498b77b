// SPDX-License-Identifier: Apache-2.0
// Turns a model and a precision plan into a model that other runtimes run. docs/reference/export_styles.md has the operators of each style.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "qk/graph/model/model.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph {

namespace detail {
struct style_row;
}

/// How a plan is written into a model: one of export_styles(), of which those below have names in C++, too.
class export_style {
  public:
    static const export_style portable, qdq, qoperator, qinteger, amd, nbits;

    constexpr explicit export_style(const detail::style_row& row) : row_(&row) {}
    const detail::style_row& row() const { return *row_; }
    const char* name() const;
    const char* help() const;  ///< what it is for, in a line
    friend bool operator==(export_style, export_style) = default;

  private:
    const detail::style_row* row_;
};

/// Returns all styles. The first is the one that `qk quantize` takes where none is named.
std::span<const export_style> export_styles();

enum class weight_storage : std::uint8_t {
    packed,   ///< codes and scales: the file shrinks as the format promises
    floats,   ///< float32, already rounded where the runtime leaves them alone
    product,  ///< packed, and each MatMul or Gemm with them is one function (styles portable and nbits)
};

/// How int8 weights of layers are stored beside activations of 8 bits. The values are the same; style amd always has signed codes.
enum class int8_codes : std::uint8_t {
    where_safe,   ///< int8 where the weights are pair-safe (quantize/pair_safe.hpp), which is right everywhere and fast; else as_unsigned
    as_unsigned,  ///< uint8, zero point + 128: right on every processor
    as_signed,    ///< int8: onnxruntime's kernels of uint8 by int8 saturate on x86-64 without VNNI, and are the fastest with it
};

struct export_options {
    export_style style = export_style::qdq;
    weight_storage weights = weight_storage::packed;
    int8_codes int8_weights = int8_codes::where_safe;
    bool integer_sums = false;  ///< products round x to int8 by block of 32, where the format's elements are whole numbers
    bool inlined = false;       ///< the file has no functions: their nodes stand in the place of each call
    /// Styles qdq and portable write activations of 16-bit integers, fp16 and FP8 as functions, and qdq all that it has no pairs for:
    /// OpenVINO drops pairs of more than 8 bits, and rounds those of FP8 otherwise.
    bool pairs_of_bytes_alone = false;
    bool guards = true;  ///< layers are kept apart from pairs that onnxruntime's optimizer would fuse into what the plan does not say
    /// Style qdq writes activations of nvfp4 and mxfp8_e4m3 as TensorRT's dynamic quantizers (domain trt), and what those need beside them.
    bool dynamic_quantize = false;
};

struct export_result {
    model exported;
    std::vector<std::string> notes;  ///< what was done beyond placing quantizers, a sentence each: opset raised, inputs dropped, ...
    int opset_before = 0;
    int opset_after = 0;
};

/// Returns a copy of the model with the plan written into it: a runtime computes with it what the evaluator computes under the plan.
/// Throws error naming the tensor when a style cannot write a format, or when the plan names what the model does not have.
export_result export_model(const model& m, const precision_plan& plan, const export_options& options = {});

/// Rewrites the standard operators for a newer opset, in the graph, in bodies inside it and in the model's functions, and the imports with
/// them: the model computes what it computed (docs/reference/opset_changes.md). Throws error naming node, operator and opset where an
/// operator changed in a way that cannot be rewritten; the model is then as it was. Does nothing when it has this opset or a newer one.
void raise_opset(model& m, int version);

/// These parse "qdq", "packed" and so on; they throw error listing the names for anything else.
export_style export_style_from(const std::string& name);
inline const char* name_of(export_style s) { return s.name(); }
weight_storage weight_storage_from(const std::string& name);

}  // namespace qk::graph
