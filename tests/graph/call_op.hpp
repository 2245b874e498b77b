// SPDX-License-Identifier: Apache-2.0
// One operator called without a model around it, for tests.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstring>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "graph/ops/op.hpp"

namespace qk_test {

using attribute_value =
    std::variant<std::int64_t, float, std::string, std::vector<std::int64_t>, std::vector<float>, std::vector<std::string>>;
using attributes = std::vector<std::pair<std::string, attribute_value>>;

class heap_allocator final : public qk::graph::allocator {
  public:
    /// Fills the memory with 0xCD bytes, so that elements which an operator leaves unwritten are seen.
    std::shared_ptr<std::byte> allocate(std::size_t bytes) override {
        auto p = qk::graph::thread_memory::of_heap(bytes);
        std::memset(p.get(), 0xCD, bytes);
        return p;
    }
};

/// Makes a node called "node_under_test" of the operator "domain:name" (or "name"), without inputs and outputs.
inline onnx::NodeProto make_node(const std::string& full_name, const attributes& given) {
    onnx::NodeProto node;
    const auto colon = full_name.find(':');
    if (colon != std::string::npos) node.set_domain(full_name.substr(0, colon));
    node.set_op_type(colon == std::string::npos ? full_name : full_name.substr(colon + 1));
    node.set_name("node_under_test");
    for (const auto& [name, value] : given) {
        auto* a = node.add_attribute();
        a->set_name(name);
        if (const auto* i = std::get_if<std::int64_t>(&value)) a->set_type(onnx::AttributeProto::INT), a->set_i(*i);
        if (const auto* f = std::get_if<float>(&value)) a->set_type(onnx::AttributeProto::FLOAT), a->set_f(*f);
        if (const auto* s = std::get_if<std::string>(&value)) a->set_type(onnx::AttributeProto::STRING), a->set_s(*s);
        if (const auto* v = std::get_if<std::vector<std::int64_t>>(&value)) {
            a->set_type(onnx::AttributeProto::INTS);
            for (const std::int64_t i : *v) a->add_ints(i);
        }
        if (const auto* v = std::get_if<std::vector<float>>(&value)) {
            a->set_type(onnx::AttributeProto::FLOATS);
            for (const float f : *v) a->add_floats(f);
        }
        if (const auto* v = std::get_if<std::vector<std::string>>(&value)) {
            a->set_type(onnx::AttributeProto::STRINGS);
            for (const std::string& s : *v) a->add_strings(s);
        }
    }
    return node;
}

/// Runs the operator "domain:name" (or "name") of an opset version. An operator that can prepare constants runs a second time with all
/// inputs as constants; throws if that changes a bit. Throws as well where a result has another element type than the operator's row says.
inline std::vector<qk::graph::tensor> call_op(const std::string& full_name, int version, const std::vector<qk::graph::tensor>& inputs,
                                              const attributes& given = {}, std::size_t outputs = 1) {
    onnx::NodeProto node = make_node(full_name, given);
    for (std::size_t i = 0; i < inputs.size(); ++i) node.add_input(inputs[i].empty() ? std::string{} : "input" + std::to_string(i));
    for (std::size_t i = 0; i < outputs; ++i) node.add_output("output" + std::to_string(i));
    const qk::graph::op_entry* entry = qk::graph::find_op(node.domain(), node.op_type(), version);
    if (entry == nullptr) throw std::runtime_error(full_name + " is not in the table");
    heap_allocator memory;
    const qk::graph::node_view view(node, version);
    const qk::graph::op_context::subgraph_runner none;
    std::vector<qk::graph::tensor> results(outputs);
    qk::graph::op_context call(view, inputs, results, memory, none);
    entry->run(call);
    for (std::size_t o = 0; o < outputs; ++o) {  // the row says what type an output has
        const qk::graph::type_source from = qk::graph::type_source_of(node, static_cast<int>(o)).value();
        const bool known = from.like < static_cast<int>(inputs.size());
        qk::graph::data_type said = from.like < 0 ? from.type
                                    : known       ? inputs[static_cast<std::size_t>(from.like)].type()
                                                  : results[o].type();
        if (from.turned != nullptr) said = from.turned(said);
        if (!results[o].empty() && said != qk::graph::data_type::undefined && said != results[o].type())
            throw std::runtime_error(full_name + ": output " + std::to_string(o) + " is " + name_of(results[o].type()) +
                                     ", and the row of the operator says " + name_of(said));
    }
    if (entry->prepare == nullptr) return results;
    if (const auto prepared = entry->prepare({view, inputs})) {
        std::vector<qk::graph::tensor> again(outputs);
        qk::graph::op_context second(view, inputs, again, memory, none);
        prepared->run(second);
        for (std::size_t i = 0; i < outputs; ++i)
            if (again[i].shape() != results[i].shape() || std::memcmp(again[i].bytes(), results[i].bytes(), results[i].size_bytes()) != 0)
                throw std::runtime_error(full_name + " gives other bits when its constants are prepared");
    }
    return results;
}

template <class T>
qk::graph::tensor values(qk::graph::dims shape, const std::vector<T>& v) {
    return qk::graph::make_tensor<T>(std::move(shape), std::span<const T>(v));
}
template <class T>
qk::graph::tensor scalar(T v) {
    return qk::graph::make_tensor<T>({}, std::span<const T>(&v, 1));
}

/// Makes a tensor (by default a scalar) whose bytes are all 0, for types without a C++ type.
inline qk::graph::tensor zero_of(qk::graph::data_type type, qk::graph::dims shape = {}) {
    qk::graph::tensor t(type, std::move(shape));
    std::memset(t.bytes(), 0, t.size_bytes());
    return t;
}

}  // namespace qk_test
