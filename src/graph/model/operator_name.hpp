// SPDX-License-Identifier: Apache-2.0
// The name of an operator, which the places listed here alone can compare with a word: elsewhere such a comparison does not compile. An
// operator is one row (graph/ops/op.hpp), and all others ask the row.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include <onnx/onnx_pb.h>

namespace qk::graph {

/// Where operators are named, and why no row can be asked there.
struct operator_place {
    std::string_view sources, why;
};
inline constexpr operator_place operator_places[] = {
    {"src/graph/ops/", "rows"},
    {"src/graph/gradient/ops/", "slopes of rows"},
    {"src/graph/gradient/bodies.cpp", "slopes of Loop and Scan"},
    {"src/graph/model/torch_names.cpp", "what torch calls its modules"},
    {"src/graph/plan/operand_tables.cpp", "which inputs of com.microsoft's fused operators are weights"},
    {"src/graph/evaluate/execute/", "kernels for several nodes"},
    {"src/graph/evaluate/fold.cpp", "takes BatchNormalization into the layer before it"},
    {"src/graph/export/raise_opset.cpp", "what newer opsets changed"},
    {"src/graph/export/inline_functions.cpp", "Constant of an attribute"},
    {"src/graph/export/styles/", "nodes of other runtimes"},
    {"src/graph/export/layer_rewriter.hpp", "nodes of other runtimes"},
    {"src/graph/export/fusing.hpp", "what onnxruntime fuses"},
    {"src/graph/export/openvino.cpp", "what OpenVINO fuses"},
    {"src/graph/pipeline/accuracy_level.cpp", "an attribute of MatMulNBits"},
    {"src/graph/pipeline/forced.cpp", "what runtimes round in other places"},
    {"src/graph/recover/recover.cpp", "what exports wrote"},
    {"src/graph/quantize/expand_attention.cpp", "Attention as products"},
    {"src/graph/quantize/open_bodies.cpp", "opens If and Loop"},
    {"src/graph/quantize/divide_channels.cpp", "moves factors into the nodes before"},
    {"src/graph/quantize/softmax_masks.cpp", "arithmetic of intervals"},
    {"src/learn/rotate.cpp", "moves rotations"},
    {"src/learn/stream.cpp", "blocks of transformers"},
};

namespace detail {
void ask_the_row_of_the_operator_in_place_of_its_name();  // what a compiler says of a source that is not listed
}  // namespace detail

/// A word that a source of a listed place writes for an operator.
class operator_word {
  public:
    consteval operator_word(const char* text, const char* source = __builtin_FILE()) : text_(text) {
        const std::string_view file = source;
        if (!std::ranges::any_of(operator_places, [&](const operator_place& p) { return file.find(p.sources) != std::string_view::npos; }))
            detail::ask_the_row_of_the_operator_in_place_of_its_name();
    }
    constexpr std::string_view text() const { return text_; }

  private:
    std::string_view text_;
};

class operator_name {
  public:
    constexpr operator_name() = default;
    constexpr explicit operator_name(std::string_view text) : text_(text) {}
    constexpr operator_name(operator_word word) : text_(word.text()) {}

    friend constexpr bool operator==(operator_name name, operator_word word) { return name.text_ == word.text(); }
    constexpr bool starts_with(operator_word word) const { return text_.starts_with(word.text()); }
    constexpr bool ends_with(operator_word word) const { return text_.ends_with(word.text()); }
    constexpr bool contains(operator_word word) const { return text_.find(word.text()) != std::string_view::npos; }
    constexpr bool empty() const { return text_.empty(); }
    constexpr std::string_view text() const { return text_; }  ///< to be told, not to be compared

  private:
    std::string_view text_;
};

inline operator_name operator_of(const onnx::NodeProto& n) { return operator_name(n.op_type()); }

namespace detail {

inline constexpr bool one_of(operator_name name, std::initializer_list<operator_word> list) {
    return std::ranges::any_of(list, [name](operator_word word) { return name == word; });
}

}  // namespace detail
}  // namespace qk::graph
