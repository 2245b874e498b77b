// SPDX-License-Identifier: Apache-2.0
// Defines node_view (attributes of a node by name, with errors that name the node) and the outputs of op_context.
#include <onnx/onnx_pb.h>

#include "graph/ops/op.hpp"
#include "qk/graph/model/model.hpp"

namespace qk::graph {

std::string_view node_view::op_type() const { return proto_->op_type(); }
std::string_view node_view::name() const { return proto_->name(); }

void node_view::fail(const std::string& what) const { throw error("node '" + proto_->name() + "' (" + proto_->op_type() + "): " + what); }

const onnx::AttributeProto* node_view::find(std::string_view attribute) const {
    for (const onnx::AttributeProto& a : proto_->attribute())
        if (a.name() == attribute) return &a;
    return nullptr;
}

namespace detail {

// Files of ONNX IR version 1 may omit an attribute's type; then whichever field is set is used.
inline bool has_attribute_type(const onnx::AttributeProto& a, onnx::AttributeProto::AttributeType wanted) {
    return a.type() == wanted || a.type() == onnx::AttributeProto::UNDEFINED;
}

}  // namespace detail

bool node_view::has(std::string_view attribute) const { return find(attribute) != nullptr; }

std::int64_t node_view::get_int(std::string_view attribute, std::int64_t otherwise) const {
    const auto* a = find(attribute);
    if (a == nullptr) return otherwise;
    if (!detail::has_attribute_type(*a, onnx::AttributeProto::INT)) fail("attribute '" + a->name() + "' is not an integer");
    return a->i();
}

float node_view::get_float(std::string_view attribute, float otherwise) const {
    const auto* a = find(attribute);
    if (a == nullptr) return otherwise;
    if (!detail::has_attribute_type(*a, onnx::AttributeProto::FLOAT)) fail("attribute '" + a->name() + "' is not a float");
    return a->f();
}

std::string node_view::get_string(std::string_view attribute, std::string_view otherwise) const {
    const auto* a = find(attribute);
    if (a == nullptr) return std::string(otherwise);
    if (!detail::has_attribute_type(*a, onnx::AttributeProto::STRING)) fail("attribute '" + a->name() + "' is not a string");
    return a->s();
}

std::vector<std::int64_t> node_view::get_ints(std::string_view attribute, std::vector<std::int64_t> otherwise) const {
    const auto* a = find(attribute);
    if (a == nullptr) return otherwise;
    if (!detail::has_attribute_type(*a, onnx::AttributeProto::INTS)) fail("attribute '" + a->name() + "' is not a list of integers");
    return {a->ints().begin(), a->ints().end()};
}

std::vector<float> node_view::get_floats(std::string_view attribute, std::vector<float> otherwise) const {
    const auto* a = find(attribute);
    if (a == nullptr) return otherwise;
    if (!detail::has_attribute_type(*a, onnx::AttributeProto::FLOATS)) fail("attribute '" + a->name() + "' is not a list of floats");
    return {a->floats().begin(), a->floats().end()};
}

std::vector<std::string> node_view::get_strings(std::string_view attribute) const {
    const auto* a = find(attribute);
    if (a == nullptr) return {};
    if (!detail::has_attribute_type(*a, onnx::AttributeProto::STRINGS)) fail("attribute '" + a->name() + "' is not a list of strings");
    return {a->strings().begin(), a->strings().end()};
}

tensor node_view::get_tensor(std::string_view attribute) const {
    const auto* a = find(attribute);
    if (a == nullptr || !a->has_t()) fail("attribute '" + std::string(attribute) + "' (a tensor) is missing");
    return to_tensor(a->t());
}

const onnx::GraphProto& node_view::get_graph(std::string_view attribute) const {
    const auto* a = find(attribute);
    if (a == nullptr || !a->has_g()) fail("attribute '" + std::string(attribute) + "' (a graph) is missing");
    return a->g();
}

void op_context::fail_without_input(std::size_t i) const { fail("input " + std::to_string(i) + " is missing"); }

tensor& op_context::output(std::size_t i, data_type type, dims shape) {
    const std::size_t bytes = element_count(shape) * size_of(type);
    return set_output(i, tensor(type, std::move(shape), memory_->allocate(bytes)));
}

tensor& op_context::set_output(std::size_t i, tensor value) {
    tensor& place = wants(i) ? outputs_[i] : discarded_;
    place = std::move(value);
    return place;
}

tensor op_context::scratch(data_type type, dims shape) {
    const std::size_t bytes = element_count(shape) * size_of(type);
    return tensor(type, std::move(shape), memory_->allocate(bytes));
}

}  // namespace qk::graph
