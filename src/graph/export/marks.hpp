// SPDX-License-Identifier: Apache-2.0
// The names that export writes and recover reads. Models written earlier keep them: a mark may be added, but never changed.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace qk::graph::marks {

// Endings of the names of tensors that a quantizer adds: conv1.weight becomes conv1.weight_quantized.
inline constexpr const char* quantized = "_quantized";  ///< codes
inline constexpr const char* rounded = "_rounded";      ///< float32 values of a format
inline constexpr const char* narrow = "_narrow";        ///< float16 or bfloat16
inline constexpr const char* clipped = "_clipped";      ///< behind the Clip of a type that has more codes than the format
inline constexpr const char* whole = "_whole";          ///< whole blocks, before the Slice or Reshape to the tensor's own shape
inline constexpr const char* guarded = "_guarded";      ///< behind a guard: a Max of one input or with -Inf, or a Flatten of a matrix
inline constexpr const char* wide = "_wide";            ///< float32 copy of a 16-bit tensor, before its quantizer
inline constexpr const char* own = "_own";              ///< cast back to the 16-bit type of the model
inline constexpr const char* as_float = "_float";       ///< float32, of a tensor whose own name another type took

/// Input of a function that decodes: zero points of blocks, packed like the codes (models of before have floats, `zero_point`).
inline constexpr const char* zero_codes = "zero_codes";
/// Domain of the functions of style portable.
inline constexpr const char* function_domain = "qk";
/// Domain of TensorRT's own operators.
inline constexpr const char* tensorrt_domain = "trt";
/// Returns whether a domain is that of AMD's operators, under its older name, too.
inline bool is_amd(std::string_view domain) { return domain == "com.amd.quark" || domain == "com.vai.quantize"; }
/// Key of what a node says that makes the result of a call whose nodes stand in its place.
inline constexpr const char* inlined = "call";
/// Returns whether a node's doc_string says so.
inline bool tells_of_call(std::string_view doc_string) { return doc_string.starts_with(std::string("{\"") + inlined + "\":"); }
/// Key of a model's metadata: the names of int8 tensors that are stored as uint8, a line each.
inline constexpr const char* int8_property = "qk.int8_as_uint8";

inline bool has(std::string_view name, std::string_view mark) { return name.size() > mark.size() && name.ends_with(mark); }

/// Returns `name` without the first of these marks that it has.
inline std::string without(const std::string& name, std::initializer_list<const char*> marks) {
    for (const char* mark : marks)
        if (has(name, mark)) return name.substr(0, name.size() - std::string_view(mark).size());
    return name;
}

}  // namespace qk::graph::marks
