// SPDX-License-Identifier: Apache-2.0
// What a call of a portable function means, read from its attributes, and how its tensor is cut into parts that run apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "onnxruntime/api.hpp"
#include "qk/formats/format.hpp"
#include "qk/parameters.hpp"
#include "qk/portable/function.hpp"
#include "qk/semantics.hpp"

namespace qk::onnxruntime {

struct call_meaning {
    qk::format format = fp32;
    qk::semantics semantics;
    portable::scale_source scales = portable::scale_source::none;
    std::int64_t axis = -1;
    std::size_t block = 0;  ///< values along the axis that share a scale; 0: no blocks
    bool flatten = false;
    std::vector<std::int64_t> shape;  ///< decoders: of the result; products: of the matrix, [outputs, inputs]; of a table
    bool bias = false;                ///< products: the second input is one
    portable::sums sums = portable::sums::floats;
};

/// What the functions of a name do, as far as the name says it.
struct function_kind {
    portable::result_shape result = portable::result_shape::input;
    ONNXTensorElementDataType type =
        ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;  ///< of the result, and of the first input of quantizers and products
};
function_kind kind_of(std::string_view function);

/// Reads the attributes of a node. Throws refusal where one is missing, or says what this library does not know.
call_meaning read_meaning(const OrtApi& api, const OrtKernelInfo* info, portable::result_shape kind);

/// Returns an attribute of a node; nullopt where it has none of that name and type.
std::optional<std::string> text_attribute(const OrtApi& api, const OrtKernelInfo* info, const char* name);

/// Returns the name of a node, for sentences.
std::string node_name(const OrtApi& api, const OrtKernelInfo* info);

/// Returns a shape as [outer][length][inner] around the axis of blocks or channels; throws refusal where the rank does not have that axis.
/// A scalar is one value, and a list has but one axis.
along_axis seen_along(const call_meaning& m, std::span<const std::int64_t> shape);

/// A part of a tensor that is contiguous in memory: rows [outer, outer + axis.outer), positions [along, along + axis.length).
struct part {
    std::size_t outer = 0, along = 0, offset = 0;
    along_axis axis;
    std::size_t size() const { return axis.outer * axis.length * axis.inner; }
};

/// Cuts a tensor into parts of some ten thousand values, by shapes alone, so that results do not depend on threads. Rows are kept whole in
/// groups of a multiple of `rows`, or one row is cut at multiples of `step`; `step` 0 keeps rows whole.
class parts {
  public:
    parts(along_axis whole, std::size_t rows, std::size_t step);
    std::size_t count() const { return groups_ * pieces_; }
    part operator[](std::size_t i) const;

  private:
    along_axis whole_;
    std::size_t rows_ = 1, length_ = 0;    ///< of a part
    std::size_t groups_ = 0, pieces_ = 1;  ///< of rows; of each row
};

}  // namespace qk::onnxruntime
