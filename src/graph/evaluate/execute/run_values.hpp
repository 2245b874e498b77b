// SPDX-License-Identifier: Apache-2.0
// The values of one run of a program. Each is in the layout and form in which it was made, and also in others once a reader needed them.
#pragma once

#include <utility>
#include <vector>

#include "graph/evaluate/execute/later_value.hpp"
#include "graph/evaluate/execute/layout.hpp"
#include "graph/evaluate/execute/node_call.hpp"
#include "graph/evaluate/execute/program.hpp"
#include "graph/evaluate/execute/quantize_value.hpp"

namespace qk::graph::execute::detail {

class run_values {
  public:
    run_values(const program& p, std::span<const tensor> inputs, allocator& memory)
        : p_(p), memory_(memory), slots_(static_cast<std::size_t>(p.slot_count)) {
        for (std::size_t i = 0; i < inputs.size(); ++i) slots_[i].main = {inputs[i], false};
    }

  protected:
    void release(const step& t) {
        for (const slot s : t.release) slots_[static_cast<std::size_t>(s)] = {};
    }

    /// A value: `main` has the layout in which it was made, `other` the other one once a reader needed it.
    struct held {
        run_value main;
        tensor other;
        tensor narrow;                ///< in a form that its quantizer allows, once a reader needed it
        bool narrow_last = false;     ///< `narrow` is channels last
        narrow_form form{};           ///< of `narrow`
        const step* maker = nullptr;  ///< not null: `main` is not made yet, and this step makes it of `source`
        byte_source source;
    };

    /// Returns whether the step's floats are made only when a step reads them.
    bool makes_later(const step& t) {
        if (t.only_for_sums && raw(t.in[0]).type() == data_type::float32 && raw(t.in[0]).size() != 0) return true;
        const bool words = t.node == nullptr && word_convolution::is_quick();
        if (t.quantizer < 0 || t.out[0] < 0 || !has_whole_codes(p_.shared->quantizer_at(t.quantizer), words)) return false;
        const tensor& x = raw(t.in[0]);
        if (x.size() == 0) return false;
        if (t.node == nullptr) return x.type() == data_type::float32;
        const std::int64_t type = t.node->view.get_int("output_dtype", 0);
        return (type == 0 || type == static_cast<int>(data_type::float32)) &&
               x.type() == (qmin(std::get<integer>(p_.shared->quantizer_at(t.quantizer).format)) < 0 ? data_type::int8 : data_type::uint8);
    }
    void continue_later(const step& t) {
        held& h = slots_[static_cast<std::size_t>(t.out[0])];
        h.maker = &t;
        h.source = {raw(t.in[0]), is_last(t.in[0])};
    }
    /// Makes the floats of a value that is being read.
    void make_now(held& h) {
        const step& t = *std::exchange(h.maker, nullptr);
        const byte_source from = std::exchange(h.source, {});
        if (t.node == nullptr) {
            h.main = {quantized(p_.shared->quantizer_at(t.quantizer), from.t, from.channels_last, memory_), from.channels_last};
            return;
        }
        std::vector<tensor> in{from.t}, out(1);
        for (std::size_t k = 1; k < t.in.size(); ++k) in.push_back(raw(t.in[k]));
        call_node(*t.node, t.prepared.get(), in, out, memory_, no_subgraphs());
        h.main = {std::move(out[0]), from.channels_last};
    }
    /// Returns a tensor of which only type and shape may be read, without making floats.
    tensor outline(slot s) {
        if (s >= 0 && slots_[static_cast<std::size_t>(s)].maker != nullptr) return slots_[static_cast<std::size_t>(s)].source.outline();
        return raw(s);
    }

    void put(slot s, tensor t, bool channels_last) {
        if (s >= 0) slots_[static_cast<std::size_t>(s)].main = {std::move(t), channels_last};
    }
    bool is_last(slot s) const {
        if (s < 0) return false;
        const held& h = slots_[static_cast<std::size_t>(s)];
        return h.maker != nullptr ? h.source.channels_last : h.main.channels_last;
    }
    const tensor& raw(slot s) {
        if (s < 0) return s == no_slot ? nothing : p_.shared->kept_constant(s);
        held& h = slots_[static_cast<std::size_t>(s)];
        if (h.maker != nullptr) make_now(h);
        return h.main.t;
    }
    const tensor& in_layout(slot s, bool last) {
        const tensor& own = raw(s);
        if (s < 0 || is_last(s) == last) return own;
        held& h = slots_[static_cast<std::size_t>(s)];
        if (h.other.empty()) h.other = converted(h.main.t, last, memory_);
        return h.other;
    }
    const tensor& plain(slot s) { return in_layout(s, false); }
    /// Returns a value in the form that a unit multiplies; an empty tensor if `form` is null.
    const tensor& in_form(slot s, bool last, const narrow_form* form) {
        if (form == nullptr) return nothing;
        held& h = slots_[static_cast<std::size_t>(s)];
        if (!h.narrow.empty() && h.narrow_last == last && h.form == *form) return h.narrow;
        h.narrow = {}, h.narrow_last = last, h.form = *form;
        if (h.maker != nullptr) h.narrow = h.source.numbers(p_.shared->quantizer_at(h.maker->quantizer), *form, last, memory_);
        if (h.narrow.empty()) h.narrow = narrowed(*form, in_layout(s, last).as<float>(), memory_);
        return h.narrow;
    }
    /// Returns a value, or a constant, in channels-last layout.
    tensor last(slot s) { return s < no_slot ? converted(raw(s), true, memory_) : in_layout(s, true); }

    static inline const tensor nothing;
    const program& p_;
    allocator& memory_;
    std::vector<held> slots_;
};

}  // namespace qk::graph::execute::detail
