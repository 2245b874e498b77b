// SPDX-License-Identifier: Apache-2.0
// Checks that every model passes when it is loaded: names resolve, tensors fit their shapes, nodes stand in an order that can run.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "qk/graph/model/model.hpp"

namespace onnx {
class FunctionProto;
class AttributeProto;
class NodeProto;
}  // namespace onnx

namespace qk::graph {

/// Hash for look-ups in maps of strings without making a string.
struct string_hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
};
template <class T>
using string_map = std::unordered_map<std::string, T, string_hash, std::equal_to<>>;
using string_set = std::unordered_set<std::string, string_hash, std::equal_to<>>;

/// Oldest and newest version of the standard operators that qk reads.
inline constexpr int oldest_opset = 1, newest_opset = 28;

/// Sorts the nodes of the graph, its subgraphs and the model's functions, names them, and writes the domain "ai.onnx" as "".
/// Throws error (without the file's name) for: no graph, opsets out of range, duplicate or missing tensors, cycles, data that does not
/// fit its shape, functions that call themselves, are there twice, or would grow far beyond the file.
void check_and_sort(onnx::ModelProto& m);

/// Returns how many inputs a node must have: those that planning, export and fusion read by position. The table of operators knows
/// (src/graph/ops/table.cpp).
int least_inputs(const onnx::NodeProto& n);
int least_outputs(const onnx::NodeProto& n);

/// What a model may become when its functions and loops are expanded: a function of a layer is called for each layer, and what it calls for
/// each head or expert; a small file that goes far beyond that was made to take memory.
struct expanded_limits {
    std::size_t nodes = 0, bytes = 0;
};
expanded_limits limits_of_expansion(const onnx::ModelProto& m);

/// These return fields that ONNX has added since the oldest library that qk builds with; older libraries have them as unknown fields.
std::string overload_of(const onnx::NodeProto& n);
std::string overload_of(const onnx::FunctionProto& f);
/// Returns the attributes of a function that have defaults (`attribute_proto`).
std::vector<onnx::AttributeProto> default_attributes(const onnx::FunctionProto& f);

/// Returns the model's own function that a node calls, or nullptr.
const onnx::FunctionProto* find_function(const onnx::ModelProto& m, const onnx::NodeProto& n);

}  // namespace qk::graph
