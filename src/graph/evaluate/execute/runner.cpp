// SPDX-License-Identifier: Apache-2.0
// Cuts data into runs, and joins their outputs.
#include <cmath>
#include <cstring>
#include <string_view>

#include "graph/evaluate/execute/runner.hpp"
#include "qk/graph/plan/layers.hpp"

namespace qk::graph::execute {
namespace detail {

/// Returns a result of a run as a tensor that outlives the arena.
inline tensor out_of(arena& memory, const tensor& t) {
    if (t.size_bytes() != 0 && memory.give_away(t.bytes(), t.size_bytes())) return t;
    tensor copy(t.type(), t.shape());
    if (t.size_bytes() != 0) std::memcpy(copy.bytes(), t.bytes(), t.size_bytes());
    return copy;
}

}  // namespace detail

batch_verdict follow_samples(const network& net, const sample_set& data, const std::vector<int>& axes) {
    std::vector<batch_input> inputs;
    for (std::size_t i = 0; i < data.inputs.size(); ++i) {
        batch_input in{axes[i], data.inputs[i].shape()};
        if (in.axis >= 0) in.shape[static_cast<std::size_t>(in.axis)] /= static_cast<std::int64_t>(data.count);
        inputs.push_back(std::move(in));
    }
    return follow_batch_axis(net, inputs, static_cast<std::int64_t>(data.count));
}

/// Returns whether a plan has a quantizer of an activation for which `joins` is true.
template <class Joins>
static bool any_of_activations(const model& m, const precision_plan& plan, const Joins& joins) {
    return std::ranges::any_of(plan.tensors, [&](const auto& t) { return !m.is_constant(t.first) && joins(t.first, t.second); }) ||
           std::ranges::any_of(plan.edges,
                               [&](const auto& e) { return !m.is_constant(e.first.tensor) && joins(e.first.tensor, e.second); });
}

/// Returns whether a quantizer takes its scale from the values of a whole run.
static bool takes_whole(const std::string&, const quantizer& q) { return q.dynamic || (has_floating_scales(q.format) && q.scale.empty()); }

/// Returns whether a plan has blocks or scales along the axis that the samples stand along.
static bool lies_along_samples(const model& m, const precision_plan& plan, const batch_verdict& verdict) {
    return any_of_activations(m, plan, [&](const std::string& tensor, const quantizer& q) {
        const auto at = verdict.places.find(tensor);
        const bool along = is_block_format(q.format) || q.block_size > 0 || q.scale.size() > 1;
        return along && at != verdict.places.end() && static_cast<int>(resolve_axis(q.axis, at->second.rank)) == at->second.axis;
    });
}

/// Returns why rows run together.
static std::string why_whole(const batch_verdict& verdict) {
    const bool mixed = verdict.is == batch_verdict::kind::mixed;
    return (mixed ? "rows along axis 0 are no samples by themselves: " : "whether rows along axis 0 are samples cannot be decided: ") +
           verdict.why + "; they run together (--batch-axis 0 cuts them apart" +
           (mixed ? ")" : ", --batch-axis none says that they are one sample)");
}

runner::cut runner::decide(sample_set& data, int batch, const precision_plan* plan) const {
    if (data.ragged) {
        cut c = alone(data);
        c.ragged = true;
        return c;
    }
    if (data.count == 1 || (!data.symbolic && data.asked == 0)) {
        cut c = alone(data);
        if (!data.uncut.empty()) c.whole = data.uncut + ": the data runs as a whole";
        return c;
    }
    const auto joined = [&] {
        cut c = together(data, batch);
        c.whole =
            "the plan takes scales of activations from the values of a whole run, or has them along the samples: rows run together "
            "(--batch-axis 0 cuts them apart)";
        return c;
    };
    if (data.symbolic && plan != nullptr && any_of_activations(source, *plan, takes_whole)) return joined();
    batch_verdict verdict = follow_samples(*net, data, data.axes);
    if (data.symbolic && !verdict.rows() && !data.wider.empty())
        if (batch_verdict wider = follow_samples(*net, data, data.wider); wider.rows()) {
            verdict = std::move(wider);
            data.axes = data.wider;
        }
    if (data.symbolic && plan != nullptr && lies_along_samples(source, *plan, verdict)) return joined();
    if (verdict.rows() || !data.symbolic) {
        cut c = alone(data);
        c.axes = verdict.output_axes, c.asked = data.asked;
        return c;
    }
    cut c = together(data, batch);
    c.whole = why_whole(verdict);
    return c;
}

runner::cut runner::together(const sample_set& data, int batch) {
    cut c;
    c.samples = data.count;
    c.samples_per_run = batch > 0 ? std::min(static_cast<std::size_t>(batch), data.count) : data.count;
    c.runs = (data.count + c.samples_per_run - 1) / c.samples_per_run;
    c.join = c.runs > 1;
    return c;
}

runner::cut runner::alone(const sample_set& data) {
    cut c;
    c.samples = c.runs = data.count;
    c.join = data.count > 1;
    c.one_by_one = true;
    return c;
}

joined_outputs::joined_outputs(const model& m, const runner::cut& c, std::span<const tensor> first) : model_(&m), cut_(c) {
    if (c.ragged) {
        each_.resize(c.runs);
        return;
    }
    const auto in_run = static_cast<std::int64_t>(std::min(c.samples_per_run, c.samples));
    for (std::size_t i = 0; i < first.size(); ++i) {
        if (!c.join) {
            all_.emplace_back();
            rows_.push_back(0), axes_.push_back(0);
            continue;
        }
        dims shape = first[i].shape();
        int axis = c.axes.empty() ? 0 : c.axes[i];
        if (axis < -1)
            axis = shape.size() > static_cast<std::size_t>(c.asked) && shape[static_cast<std::size_t>(c.asked)] == 1 ? c.asked : 0;
        axes_.push_back(axis);
        if (axis < 0) {
            all_.emplace_back(first[i].type(), std::move(shape));
            rows_.push_back(0);
            continue;
        }
        if (shape.empty()) shape = {in_run};  // a scalar for each run
        std::int64_t& extent = shape[static_cast<std::size_t>(axis)];
        if (extent % in_run != 0)
            throw error("output '" + m.outputs()[i].name + "' of shape " + to_string(shape) + " cannot be cut into " +
                        std::to_string(in_run) + " samples");
        rows_.push_back(extent / in_run);
        extent = rows_.back() * static_cast<std::int64_t>(c.samples);
        all_.emplace_back(first[i].type(), std::move(shape));
    }
}

void joined_outputs::place(std::size_t run, std::span<const tensor> outputs, arena& memory) {
    if (cut_.ragged) {
        for (const tensor& t : outputs) {  // copied out of the thread's arena
            tensor copy(t.type(), t.rank() == 0 ? dims{1} : t.shape());
            if (t.size_bytes() != 0) std::memcpy(copy.bytes(), t.bytes(), t.size_bytes());
            each_[run].push_back(std::move(copy));
        }
        return;
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) {
        const tensor& t = outputs[i];
        if (!cut_.join) {
            all_[i] = detail::out_of(memory, t);
            continue;
        }
        if (axes_[i] < 0) {  // the same in each run
            if (run == 0 && t.size_bytes() != 0) std::memcpy(all_[i].bytes(), t.bytes(), t.size_bytes());
            continue;
        }
        const auto axis = static_cast<std::size_t>(axes_[i]);
        const std::size_t first = run * cut_.samples_per_run, n = std::min(cut_.samples_per_run, cut_.samples - first);
        dims expected = all_[i].shape();
        expected[axis] = rows_[i] * static_cast<std::int64_t>(n);
        if (t.type() != all_[i].type() || (t.shape() != expected && !(t.rank() == 0 && expected == dims{1})))
            throw error("output '" + model_->outputs()[i].name + "' is " + name_of(t.type()) + " " + to_string(t.shape()) + " for sample " +
                        std::to_string(first) + " and cannot be joined with others that are " + name_of(all_[i].type()) + " " +
                        to_string(expected) + "; run such samples one by one");
        if (t.size_bytes() != 0)
            put_rows(all_[i], axes_[i], first * static_cast<std::size_t>(rows_[i]), t.rank() == 0 ? t.reshaped({1}) : t);
    }
}

/// Returns ragged outputs, each sample padded to the longest.
named_tensors joined_outputs::take_ragged() {
    named_tensors result;
    for (std::size_t i = 0; i < model_->outputs().size(); ++i) {
        const std::string& name = model_->outputs()[i].name;
        dims longest = each_.front()[i].shape();
        std::vector<dims>& own = result.ragged[name];
        for (const auto& outputs : each_) {
            const dims& shape = outputs[i].shape();
            if (shape.size() != longest.size() || outputs[i].type() != each_.front()[i].type())
                throw error("output '" + name + "' is " + to_string(shape) + " for one sample and " + to_string(longest) +
                            " for another: samples of different lengths can be joined only where their outputs have one rank");
            for (std::size_t k = 0; k < shape.size(); ++k) longest[k] = std::max(longest[k], shape[k]);
            own.push_back(shape);
        }
        std::vector<tensor> parts;
        for (auto& outputs : each_) parts.push_back(std::move(outputs[i]));
        result[name] = join_padded(std::move(parts), longest);
    }
    return result;
}

named_tensors joined_outputs::take() {
    if (cut_.ragged) return take_ragged();
    named_tensors result;
    for (std::size_t i = 0; i < all_.size(); ++i) {
        const std::string& name = model_->outputs()[i].name;
        if (axes_[i] != 0) result.joined_along[name] = axes_[i];
        result[name] = std::move(all_[i]);
    }
    return result;
}

}  // namespace qk::graph::execute
