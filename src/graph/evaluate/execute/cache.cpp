// SPDX-License-Identifier: Apache-2.0
// Definitions of cache.hpp.
#include "graph/evaluate/execute/cache.hpp"

#include <bit>

#include "graph/evaluate/execute/quantize_value.hpp"

namespace qk::graph::execute {
namespace {

std::size_t hash_quantizer(const quantizer& q) {
    std::size_t h = q.format.index() * 131 + static_cast<std::size_t>(q.axis + 7) * 17 + q.scale.size() + (q.dynamic ? 3 : 0);
    h = h * 31 + static_cast<std::size_t>(bits_per_value(q.format) * 16);
    for (const float s : q.scale) h = (h ^ std::bit_cast<std::uint32_t>(s)) * 0x9e3779b97f4a7c15u;
    return h;
}

}  // namespace

slot cache::add_constant(tensor t) {
    bytes_ += t.size_bytes();
    entry& e = constants_.emplace_back();
    e.type = t.type(), e.shape = t.shape(), e.value = std::move(t);
    return -1 - static_cast<slot>(constants_.size());
}

slot cache::add_late_constant(data_type type, dims shape, std::function<tensor()> make) {
    entry& e = constants_.emplace_back();
    e.type = type, e.shape = std::move(shape), e.make = std::move(make);
    return -1 - static_cast<slot>(constants_.size());
}

tensor cache::constant(slot s) const { return at(s).make ? at(s).make() : at(s).value; }

const tensor& cache::kept_constant(slot s) const {
    const entry& e = at(s);
    if (e.make) std::call_once(e.kept, [&] { e.value = e.make(); });
    return e.value;
}

slot cache::value_constant(const net_value& v) {
    const auto [at, is_new] = value_slots_.try_emplace(&v, no_slot);
    if (is_new && v.late == nullptr) at->second = add_constant(v.constant);
    if (is_new && v.late != nullptr) {
        at->second = add_late_constant(v.late->type(), v.late->shape(), [late = v.late] { return late->read(); });
        constants_.back().source = v.late;
    }
    return at->second;
}

int cache::intern(const quantizer& q) {
    const std::size_t h = hash_quantizer(q);
    const auto [first, last] = quantizer_ids_.equal_range(h);
    for (auto i = first; i != last; ++i)
        if (quantizer_at(i->second) == q) return i->second;
    quantizers_.push_back(q);
    const int id = static_cast<int>(quantizers_.size()) - 1;
    quantizer_ids_.emplace(h, id);
    return id;
}

slot cache::quantized_constant(slot s, int quantizer_id) {
    const auto found = quantized_.find({s, quantizer_id});
    if (found != quantized_.end()) return found->second;
    if (element_count(shape_of(s)) * size_of(type_of(s)) < smallest_outside) {
        hold(s, quantizer_id, constant(s));
        return quantized_.at({s, quantizer_id});
    }
    const slot made = add_late_constant(type_of(s), shape_of(s), [this, s, quantizer_id] {
        arena memory(budget);
        return quantized(quantizer_at(quantizer_id), constant(s), false, memory);
    });
    quantizer_of_constant_[made] = quantizer_id;
    return quantized_[{s, quantizer_id}] = made;
}

void cache::hold(slot s, int quantizer_id, const tensor& value) {
    arena memory(budget);
    const slot made = add_constant(quantized(quantizer_at(quantizer_id), value, false, memory));
    quantizer_of_constant_[made] = quantizer_id;
    quantized_[{s, quantizer_id}] = made;
}

const quantizer* cache::quantizer_of_constant(slot s) const {
    const auto found = quantizer_of_constant_.find(s);
    return found == quantizer_of_constant_.end() ? nullptr : &quantizer_at(found->second);
}

}  // namespace qk::graph::execute
