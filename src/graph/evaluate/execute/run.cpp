// SPDX-License-Identifier: Apache-2.0
// Runs a program: steps in order, values in the layout in which they were made, converted where a reader needs the other one.
#include <utility>
#include <vector>

#include "graph/evaluate/execute/late_constants.hpp"
#include "graph/evaluate/execute/later_value.hpp"
#include "graph/evaluate/execute/layout.hpp"
#include "graph/evaluate/execute/node_call.hpp"
#include "graph/evaluate/execute/program.hpp"
#include "graph/evaluate/execute/quantize_value.hpp"
#include "graph/evaluate/execute/row_unit.hpp"
#include "graph/evaluate/execute/sum_unit.hpp"

namespace qk::graph::execute {
namespace detail {

// The values of one run of a program. Each is in the layout and form in which it was made, and also in others once a reader needed them.

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
        deferred_codes source;
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
        const deferred_codes from = std::exchange(h.source, {});
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

class program_run : run_values {
  public:
    program_run(const program& p, std::span<const tensor> inputs, allocator& memory, const deliver& out, const observe_value& observe,
                std::uint64_t* body_steps)
        : run_values(p, inputs, memory),
          out_(out),
          observe_(observe),
          inside_(body_steps != nullptr),
          body_steps_(inside_ ? body_steps : &own_steps_) {}

    void run() {
        if (observe_.see)
            for (std::size_t i = 0; i < p_.net->inputs.size(); ++i) observe_.see(name_of_value(p_.net->inputs[i]), slots_[i].main.t);
        deliver_until(-1);
        for (std::size_t i = 0; i < p_.steps.size(); ++i) {
            if (inside_) count_step();
            if (const std::size_t last = i + steps_behind(i); last != i) {
                for (; i < last; ++i) {
                    release(p_.steps[i]);
                    if (inside_) count_step();
                }
                deliver_until(static_cast<int>(i));
                release(p_.steps[i]);
                continue;
            }
            const step& t = p_.steps[i];
            if (makes_later(t)) continue_later(t);
            else if (t.node == nullptr) run_quantizer(t);
            else if (t.unit) run_unit(t);
            else if (t.dense) run_dense(t);
            else if (t.rows) run_rows(t);
            else if (t.attention) put(t.out[0], t.attention->run(all_plain(t), p_.shared->products, memory_), false);
            else if (t.is_sum) run_sum(t);
            else if (t.device) put(t.out[0], t.device->run(plain(t.in[0]), plain(t.in[1]), plain(t.in[2]), memory_), false);
            else if (t.layout == layout_rule::plain || !run_channels_last(t)) run_node(t);
            if (observe_.see && t.node != nullptr) observe_outputs(t);
            deliver_until(static_cast<int>(i));
            release(t);
        }
    }

  private:
    /// Runs this step together with those of its row_unit, if possible. Returns the number of steps behind this one that ran; 0 if none
    /// ran.
    std::size_t steps_behind(std::size_t i) {
        const step& t = p_.steps[i];
        if (t.together == nullptr) return 0;
        const row_unit& unit = *t.together;
        if (t.dense && t.dense->form_for(outline(t.in[0])) != nullptr) return 0;
        std::vector<tensor> in;
        for (const slot s : unit.inputs()) {
            if (t.dense && s == t.out[0]) in.push_back(outline_of(t.dense->shape_for(outline(t.in[0]).shape())));
            else if (is_last(s)) return 0;
            else in.push_back(raw(s));
        }
        const row_unit::call call(unit, std::move(in));
        if (!call.possible() || (t.dense && !call.follows_product())) return 0;
        tensor y(data_type::float32, call.shape(), memory_.allocate(element_count(call.shape()) * sizeof(float)));
        const auto rows = [&](const float* product, std::size_t first, std::size_t count) {
            call.run(first, count, product, y.as<float>().data(), memory_);
        };
        if (!t.dense)
            for_each_range(call.rows(), call.work_of_row(), [&](std::size_t first, std::size_t end) { rows(nullptr, first, end - first); });
        else if (!t.dense->run_by_rows(plain(t.in[0]), memory_, rows)) return 0;
        const std::size_t behind = unit.members() - (t.dense ? 0 : 1);
        put(p_.steps[i + behind].out[0], std::move(y), false);
        return behind;
    }

    void count_step() {
        if (++*body_steps_ > p_.shared->body_steps)
            throw error("more than " + std::to_string(p_.shared->body_steps) + " steps inside subgraphs: a loop that does not end");
    }
    const std::string& name_of_value(int value) const { return p_.net->values[static_cast<std::size_t>(value)].name; }
    void deliver_until(int done) {
        for (; next_ < p_.candidates.size() && p_.candidates[next_].after <= done; ++next_) {
            std::vector<tensor> results;
            for (const slot s : p_.candidates[next_].outputs) results.push_back(plain(s));
            out_(next_, results);
        }
    }

    void observe_outputs(const step& t) {
        for (std::size_t k = 0; k < t.out.size(); ++k)
            if (t.out[k] >= 0 && !raw(t.out[k]).empty())
                observe_.see(name_of_value(t.node->outputs[k]), observe_.any_order ? raw(t.out[k]) : plain(t.out[k]));
    }

    void run_quantizer(const step& t) {
        const quantizer& q = p_.shared->quantizer_at(t.quantizer);
        const bool as_is = is_last(t.in[0]) && works_channels_last(q, raw(t.in[0]).shape());
        put(t.out[0], quantized(q, as_is ? raw(t.in[0]) : plain(t.in[0]), as_is, memory_), as_is);
    }

    void run_unit(const step& t) {
        const tensor x = outline(t.in[0]);
        if (x.rank() == 4 && x.type() == data_type::float32 && x.size() != 0) {
            const bool residual_fits = t.add == nullptr || (raw(t.in[3]).rank() == 4 && raw(t.in[3]).type() == data_type::float32);
            if (residual_fits) {
                const narrow_form* form = t.unit->form_at(x.shape());
                tensor y = t.unit->run(form != nullptr ? x : in_layout(t.in[0], true), in_form(t.in[0], true, form),
                                       t.add == nullptr ? nothing : in_layout(t.in[3], true), memory_);
                if (!y.empty()) return put(t.out[0], std::move(y), true);
            }
        }
        // One node after the other.
        tensor y = made_by(*t.node, {plain(t.in[0]), raw(t.in[1]), raw(t.in[2])});
        if (t.add != nullptr) y = made_by(*t.add, {y, plain(t.in[3])});
        if (t.relu != nullptr) y = made_by(*t.relu, {y});
        put(t.out[0], std::move(y), false);
    }

    /// Runs a node with one result and returns that.
    tensor made_by(const net_node& node, const std::vector<tensor>& in, const prepared_op* prepared = nullptr) {
        std::vector<tensor> out(1);
        call_node(node, prepared, in, out, memory_, no_subgraphs());
        return std::move(out[0]);
    }

    void run_dense(const step& t) {
        const tensor seen = outline(t.in[0]);
        const narrow_form* form = t.dense->form_for(seen);
        tensor y = t.dense->run(form != nullptr ? seen : plain(t.in[0]), in_form(t.in[0], false, form), memory_);
        if (y.empty()) {
            std::vector<tensor> in{plain(t.in[0]), raw(t.in[1])};
            if (t.add == nullptr && t.node->inputs.size() > 2) in.push_back(raw(t.in[2]));
            y = made_by(*t.node, in);
            if (t.add != nullptr) y = made_by(*t.add, {y, raw(t.in[2])});
        }
        put(t.out[0], std::move(y), false);
    }

    /// Runs a node on channels-last values if it can and an input is such a value. Returns false otherwise.
    bool run_channels_last(const step& t) {
        const bool any = std::any_of(t.in.begin(), t.in.end(), [&](slot s) { return is_last(s); });
        if (!any || t.out.empty() || t.out[0] < 0) return false;
        for (const auto& [rule, handler] : channels_last_handlers)
            if (rule == t.layout) return (this->*handler)(t);
        return false;
    }

    addend addend_at(slot s) {
        const held& h = slots_[static_cast<std::size_t>(s)];
        if (h.maker == nullptr || h.source.is_codes()) return {raw(s)};
        const bool has_words = !h.narrow.empty() && h.form.words && h.narrow_last == h.source.channels_last;
        return {h.source.t, &p_.shared->quantizer_at(h.maker->quantizer), has_words ? h.narrow : tensor(), h.form};
    }

    void run_sum(const step& t) {
        const bool alike = is_last(t.in[0]) == is_last(t.in[1]);
        tensor y = alike ? sum_of(addend_at(t.in[0]), addend_at(t.in[1]), t.relu != nullptr, memory_) : tensor();
        if (!y.empty()) return put(t.out[0], std::move(y), is_last(t.in[0]));
        if (!run_channels_last(t)) run_node(t);
        if (t.relu != nullptr) put(t.out[0], made_by(*t.relu, {raw(t.out[0])}), is_last(t.out[0]));
    }

    bool is_picture(slot s) { return raw(s).rank() == 4 && raw(s).type() == data_type::float32 && raw(s).size() != 0; }
    bool run_scaled(const step& t) { return t.in.size() >= 2 && raw(t.in[1]).size() == 1 && run_unary(t); }

    bool run_unary(const step& t) {
        if (!is_last(t.in[0])) return false;
        std::vector<tensor> in;
        for (const slot s : t.in) in.push_back(raw(s));
        return call(t, in);
    }

    bool run_blocks(const step& t) {
        const tensor& x = raw(t.in[0]);
        const std::int64_t block = t.node->view.get_int("block_size", 0);
        if (!is_last(t.in[0]) || t.in.size() != 1 || block < 1 || (x.dim(1) % block != 0 && (x.dim(1) > block || x.dim(1) % 8 != 0)))
            return false;
        return call_on_rows(t, x);
    }

    bool run_by_channel(const step& t) { return is_last(t.in[0]) && call_on_rows(t, raw(t.in[0])); }

    /// Calls the node with x as a matrix that has a row for each place and a column for each channel.
    bool call_on_rows(const step& t, const tensor& x) {
        const dims shape = x.shape();
        std::vector<tensor> in{x.reshaped({shape[0] * shape[2] * shape[3], shape[1]})};
        for (std::size_t k = 1; k < t.in.size(); ++k) in.push_back(plain(t.in[k]));
        put(t.out[0], made_by(*t.node, in, t.prepared.get()).reshaped(shape), true);
        return true;
    }

    bool run_binary(const step& t) {
        const tensor &x = raw(t.in[0]), &y = raw(t.in[1]);
        if (x.shape() == y.shape() && is_picture(t.in[0]) && is_picture(t.in[1])) return call(t, {last(t.in[0]), last(t.in[1])});
        const bool beside_scalar =
            (is_last(t.in[0]) && y.size() == 1 && y.rank() <= 4) || (is_last(t.in[1]) && x.size() == 1 && x.rank() <= 4);
        return beside_scalar && call(t, {x, y});
    }

    bool run_concat(const step& t) {
        std::vector<tensor> parts;
        for (const slot s : t.in) {
            if (!is_picture(s) || !same_places(raw(s), raw(t.in[0]))) return false;
            parts.push_back(last(s));
        }
        put(t.out[0], joined_channels(parts, memory_), true);
        return true;
    }

    bool run_pool(const step& t) {
        if (!is_picture(t.in[0])) return false;
        put(t.out[0], pooled(t.node->view, raw(t.in[0]), t.layout == layout_rule::average_pool, memory_), true);
        return true;
    }

    bool run_global_average(const step& t) {
        if (!is_picture(t.in[0])) return false;
        put(t.out[0], global_mean(raw(t.in[0]), memory_), false);  // one place: both layouts are the same
        return true;
    }

    /// Runs Slice or Pad on a channels-last value, with its axes renumbered.
    bool run_with_axes(const step& t) {
        if (!is_last(t.in[0]) || t.in.size() < 2) return false;
        std::vector<tensor> in;
        for (const slot s : t.in) in.push_back(s == t.in[0] ? raw(s) : plain(s));
        in = with_last_axes(std::move(in), t.layout == layout_rule::pad ? raw(t.in[0]).rank() : raw(t.in[1]).size());
        if (in.empty()) return false;
        const tensor y = made_by(*t.node, in);
        put(t.out[0], y.reshaped(plain_shape(y.shape())), true);
        return true;
    }

    using layout_handler = bool (program_run::*)(const step&);
    static constexpr std::pair<layout_rule, layout_handler> channels_last_handlers[] = {
        {layout_rule::unary, &program_run::run_unary},
        {layout_rule::scaled, &program_run::run_scaled},
        {layout_rule::block_axis, &program_run::run_blocks},
        {layout_rule::by_channel, &program_run::run_by_channel},
        {layout_rule::binary, &program_run::run_binary},
        {layout_rule::concat, &program_run::run_concat},
        {layout_rule::max_pool, &program_run::run_pool},
        {layout_rule::average_pool, &program_run::run_pool},
        {layout_rule::global_average, &program_run::run_global_average},
        {layout_rule::slice, &program_run::run_with_axes},
        {layout_rule::pad, &program_run::run_with_axes},
    };

    bool call(const step& t, const std::vector<tensor>& in) {
        std::vector<tensor> out(t.out.size());
        call_node(*t.node, t.prepared.get(), in, out, memory_, no_subgraphs());
        put(t.out[0], std::move(out[0]), true);
        return true;
    }

    void run_rows(const step& t) {
        tensor y = read_rows(*t.rows, plain(t.in[1]), memory_);
        if (y.empty()) return run_node(t);
        put(t.out[0], std::move(y), false);
    }

    std::vector<tensor> all_plain(const step& t) {
        std::vector<tensor> in;
        for (const slot s : t.in) in.push_back(plain(s));
        return in;
    }

    void run_node(const step& t) {
        if (t.products != nullptr)
            if (tensor y = t.products->run(t.node->view, plain(t.in[0]), plain(t.in[1]), memory_); !y.empty())
                return put(t.out[0], std::move(y), false);
        const std::size_t arguments = t.node->inputs.size();
        in_.clear();
        for (std::size_t k = 0; k < arguments; ++k) in_.push_back(plain(t.in[k]));
        made_.assign(t.out.size(), tensor());
        op_context::subgraph_runner subgraphs;
        if (!t.bodies.empty())
            subgraphs = [&](const onnx::GraphProto& graph, std::span<const tensor> given) { return run_body(t, graph, given); };
        call_node(*t.node, t.prepared.get(), in_, made_, memory_, t.bodies.empty() ? no_subgraphs() : subgraphs);
        for (std::size_t k = 0; k < made_.size(); ++k) put(t.out[k], std::move(made_[k]), false);
        in_.clear();
    }

    std::vector<tensor> run_body(const step& t, const onnx::GraphProto& graph, std::span<const tensor> given) {
        count_step();  // counts a body without nodes, too
        std::size_t captured_at = t.node->inputs.size();
        for (std::size_t b = 0; b < t.bodies.size(); ++b) {
            const subnetwork& sub = t.node->bodies[b];
            if (sub.graph == &graph) {
                const std::size_t own = sub.body->inputs.size() - sub.captured.size();
                if (given.size() != own)
                    t.node->view.fail("its subgraph takes " + std::to_string(own) + " inputs and is given " + std::to_string(given.size()));
                std::vector<tensor> all(given.begin(), given.end()), outputs;
                for (std::size_t k = 0; k < sub.captured.size(); ++k) all.push_back(plain(t.in[captured_at + k]));
                run_program(
                    *t.bodies[b], all, memory_, [&](std::size_t, std::span<const tensor> o) { outputs.assign(o.begin(), o.end()); },
                    observe_, body_steps_);
                return outputs;
            }
            captured_at += sub.captured.size();
        }
        t.node->view.fail("it has no such subgraph");
    }

    const deliver& out_;
    const observe_value& observe_;
    std::vector<tensor> in_, made_;
    std::size_t next_ = 0;
    bool inside_;  ///< a subgraph's run
    std::uint64_t own_steps_ = 0;
    std::uint64_t* body_steps_;
};

}  // namespace detail

void run_program(const program& p, std::span<const tensor> inputs, allocator& memory, const deliver& out, const observe_value& observe,
                 std::uint64_t* body_steps) {
    [[maybe_unused]] const one_thread alone;
    detail::program_run(p, inputs, memory, out, observe, body_steps).run();
}

}  // namespace qk::graph::execute
