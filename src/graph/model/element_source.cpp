// SPDX-License-Identifier: Apache-2.0
#include "graph/model/element_source.hpp"

#include <onnx/onnx_pb.h>

#include <atomic>
#include <random>
#include <unordered_map>

#include "graph/model/tensor_proto.hpp"

namespace qk::graph {
namespace {

/// Returns what names in messages of this process begin with: two random numbers, which a file cannot know.
const std::string& prefix() {
    static const std::string text = [] {
        std::random_device random;
        return "\x01qk " + std::to_string(random()) + std::to_string(random()) + " ";
    }();
    return text;
}

struct registry {
    std::mutex mutex;
    std::unordered_map<std::string, std::weak_ptr<const element_source>> known;
};
registry& sources() {
    static registry* r = new registry;  // outlives every static model
    return *r;
}

std::string new_name() {
    static std::atomic<std::uint64_t> number = 0;
    return prefix() + std::to_string(++number);
}

}  // namespace

element_source::element_source(tensor held) : type_(held.type()), shape_(held.shape()), name_(new_name()), held_(held.buffer()) {}

element_source::element_source(data_type type, dims shape, std::function<tensor()> make, part_reader part)
    : type_(type), shape_(std::move(shape)), name_(new_name()), make_(std::move(make)), part_(std::move(part)) {}

element_source::~element_source() {
    const std::lock_guard lock(sources().mutex);
    sources().known.erase(name_);
}

std::size_t element_source::raw_bytes() const { return (element_count(shape_) * detail::packed_bits(type_) + 7) / 8; }

tensor element_source::read() const {
    const std::lock_guard lock(mutex_);
    if (held_) return tensor(type_, shape_, held_);
    if (auto alive = last_.lock()) return tensor(type_, shape_, std::move(alive));
    tensor made = make_();
    if (made.type() != type_ || made.size() != element_count(shape_)) throw error("a constant was computed again and is another");
    last_ = made.buffer();
    return made.reshaped(shape_);
}

void refer_to(const source_pointer& source, onnx::TensorProto& out) {
    {
        registry& r = sources();
        const std::lock_guard lock(r.mutex);
        r.known[source->name()] = source;
    }
    onnx::TensorProto made;
    made.set_name(out.name());
    if (out.has_doc_string()) made.set_doc_string(out.doc_string());
    made.set_data_type(static_cast<int>(source->type()));
    for (const std::int64_t d : source->shape()) made.add_dims(d);
    made.set_data_location(onnx::TensorProto::EXTERNAL);
    auto* e = made.add_external_data();
    e->set_key("location");
    e->set_value(source->name());
    out.Swap(&made);
}

source_pointer source_of(const onnx::TensorProto& p) {
    if (p.data_location() != onnx::TensorProto::EXTERNAL || p.external_data_size() != 1) return nullptr;
    const std::string& name = p.external_data(0).value();
    if (!name.starts_with(prefix())) return nullptr;
    registry& r = sources();
    const std::lock_guard lock(r.mutex);
    const auto found = r.known.find(name);
    source_pointer s = found == r.known.end() ? nullptr : found->second.lock();
    if (s == nullptr) throw error(detail::quoted_name(p) + ": the model that held its elements is gone");
    return s;
}

held_sources take_out(onnx::GraphProto& g) {
    held_sources all;
    for (auto& t : *g.mutable_initializer()) {
        source_pointer s = source_of(t);
        const auto type = static_cast<data_type>(t.data_type());
        if (s == nullptr && t.raw_data().size() >= smallest_outside && detail::is_known(type) && detail::packed_bits(type) >= 8 &&
            type != data_type::boolean) {
            s = std::make_shared<element_source>(to_tensor(t));
            refer_to(s, t);
        }
        if (s != nullptr) all.emplace(s->name(), s);
    }
    return all;
}

std::size_t bytes_outside(const onnx::GraphProto& g) {
    std::size_t sum = 0;
    for (const auto& t : g.initializer())
        if (const source_pointer s = source_of(t)) sum += s->raw_bytes();
    return sum;
}

}  // namespace qk::graph
