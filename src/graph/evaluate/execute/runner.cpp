// SPDX-License-Identifier: Apache-2.0
// Cuts data into runs, and joins their outputs.
#include <cmath>
#include <cstring>
#include <string_view>

#include "qk/graph/evaluate/execute/runner.hpp"

namespace qk::graph::execute {
namespace detail {

/// Returns whether an operator mixes samples of a batch though its result differs little: no trial would show it reliably.
inline bool looks_across_samples(const network& net) {
    for (const net_node& n : net.nodes) {
        const std::string_view op = n.view.op_type();
        if (op == "DynamicQuantizeLinear" || op == "DynamicQuantizeMatMul" || op == "DynamicQuantizeLSTM" || is_random(n)) return true;
        if (op == "BatchNormalization" && n.view.get_int("training_mode", 0) != 0) return true;
        for (const subnetwork& s : n.bodies)
            if (looks_across_samples(*s.body)) return true;
    }
    return false;
}

/// Returns whether values agree but for the order of sums and flipped roundings: within 2 % of the largest magnitude among those that
/// differ; exactly if they are not float32.
inline bool alike(const tensor& a, const tensor& b) {
    if (a.type() != b.type() || a.shape() != b.shape()) return false;
    if (a.type() != data_type::float32) return a.size_bytes() == 0 || std::memcmp(a.bytes(), b.bytes(), a.size_bytes()) == 0;
    const auto x = a.as<float>(), y = b.as<float>();
    float largest = 0, difference = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        if (std::isnan(x[i]) != std::isnan(y[i])) return false;
        if (std::isnan(x[i]) || x[i] == y[i]) continue;
        if (std::isinf(x[i]) || std::isinf(y[i])) return false;
        largest = std::max(largest, std::abs(x[i]));
        difference = std::max(difference, std::abs(x[i] - y[i]));
    }
    return difference <= 0.02f * largest;
}

/// Returns a result of a run as a tensor that outlives the arena.
inline tensor out_of(arena& memory, const tensor& t) {
    if (t.size_bytes() != 0 && memory.give_away(t.bytes(), t.size_bytes())) return t;
    tensor copy(t.type(), t.shape());
    if (t.size_bytes() != 0) std::memcpy(copy.bytes(), t.bytes(), t.size_bytes());
    return copy;
}

}  // namespace detail

bool runner::mixes_samples(const sample_set& data, const program& p) {
    if (detail::looks_across_samples(*net)) return true;
    const std::size_t last = data.count - 1;
    try {
        const auto a = once(p, data.slice(0, 1)), b = once(p, data.slice(last, 1));
        std::vector<tensor> both;
        for (std::size_t i = 0; i < data.inputs.size(); ++i) {
            const tensor& all = data.inputs[i];
            const tensor first = data.cut[i] ? rows(all, 0, 1) : all;
            both.push_back(data.cut[i] ? join_padded({first, rows(all, last, 1)}, first.shape()) : all);
        }
        const auto together = once(p, both);
        for (std::size_t i = 0; i < together.size(); ++i) {
            const tensor &t = together[i], &x = a[i], &y = b[i];
            if (t.rank() == 0 || x.rank() == 0 || x.dim(0) != 1 || y.dim(0) != 1 || t.dim(0) != 2) return true;
            if (!detail::alike(x, rows(t, 0, 1)) || !detail::alike(y, rows(t, 1, 1))) return true;
        }
        return false;
    } catch (const error&) {
        return true;  // one sample, or two, cannot run: the data must run as it is
    }
}

runner::cut runner::decide(const sample_set& data, const program& p, int batch) {
    if (data.ragged) {
        cut c = alone(data);
        c.ragged = true;
        return c;
    }
    if (data.count > 1 && data.symbolic) {
        if (!mixes_) mixes_ = mixes_samples(data, p);
        if (*mixes_) {
            cut c;
            c.samples = data.count;
            c.samples_per_run = batch > 0 ? std::min(static_cast<std::size_t>(batch), data.count) : data.count;
            c.runs = (data.count + c.samples_per_run - 1) / c.samples_per_run;
            c.join = c.runs > 1;
            return c;
        }
    }
    return alone(data);
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
            rows_.push_back(0);
            continue;
        }
        dims shape = first[i].shape();
        if (shape.empty()) shape = {in_run};  // a scalar for each run
        if (shape[0] % in_run != 0)
            throw error("output '" + m.outputs()[i].name + "' of shape " + to_string(shape) + " cannot be cut into " +
                        std::to_string(in_run) + " samples");
        rows_.push_back(shape[0] / in_run);
        shape[0] = rows_.back() * static_cast<std::int64_t>(c.samples);
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
        const std::size_t first = run * cut_.samples_per_run, n = std::min(cut_.samples_per_run, cut_.samples - first);
        dims expected = all_[i].shape();
        expected[0] = rows_[i] * static_cast<std::int64_t>(n);
        if (t.type() != all_[i].type() || (t.shape() != expected && !(t.rank() == 0 && expected == dims{1})))
            throw error("output '" + model_->outputs()[i].name + "' is " + name_of(t.type()) + " " + to_string(t.shape()) + " for sample " +
                        std::to_string(first) + " and cannot be joined with others that are " + name_of(all_[i].type()) + " " +
                        to_string(expected) + "; run such samples one by one");
        const std::size_t row = all_[i].size_bytes() / std::max<std::size_t>(cut_.samples, 1);
        if (t.size_bytes() != 0) std::memcpy(all_[i].bytes() + first * row, t.bytes(), t.size_bytes());
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
            if (shape.size() != longest.size() || outputs[i].type() != each_.front()[i].type() || shape[0] != longest[0])
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
    for (std::size_t i = 0; i < all_.size(); ++i) result[model_->outputs()[i].name] = std::move(all_[i]);
    return result;
}

}  // namespace qk::graph::execute
