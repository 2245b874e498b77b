// SPDX-License-Identifier: Apache-2.0
#include "graph/pipeline/generate.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>

#include "graph/evaluate/execute/samples.hpp"
#include "graph/model/check.hpp"
#include "graph/ops/elements.hpp"
#include "graph/ops/op.hpp"
#include "qk/graph/model/attribute.hpp"
#include "qk/graph/search/positions.hpp"

namespace qk::graph::pipeline {
namespace {

/// Returns the output of a node that continues its input `index`: it holds the same values, perhaps with more behind them; -1 if there is
/// none.
int continued_by(const model& m, const onnx::NodeProto& n, int index) {
    const op_facts& is = facts_of(n);
    if (const int output = is.continued_by(index); output >= 0) return output;
    if (index != 0) return -1;
    return is.has(ops::repeats) || find_function(m.proto(), n) != nullptr ? 0 : -1;  // a function: a quantizer of style portable
}

/// Returns the model output that a tensor leads to through such nodes; empty if there is none.
std::string comes_back_as(const model& m, const std::string& tensor, int depth = 0) {
    for (const auto& u : m.uses(tensor)) {
        if (u.node < 0) return tensor;
        const onnx::NodeProto& n = m.graph().node(u.node);
        const int output = u.input < 0 || depth > 12 ? -1 : continued_by(m, n, u.input);
        if (output < 0 || output >= n.output_size() || n.output(output).empty()) continue;
        if (std::string found = comes_back_as(m, n.output(output), depth + 1); !found.empty()) return found;
    }
    return {};
}

/// Returns the inputs that take a cache, each with the output that returns it: found by the graph, else by their names (past...,
/// present...).
std::map<std::string, std::string> caches_of(const model& m) {
    std::map<std::string, std::string> caches;
    for (const value_info& i : m.inputs()) {
        if (i.shape.size() < 3) continue;
        if (const std::string found = comes_back_as(m, i.name); !found.empty()) {
            caches[i.name] = found;
            continue;
        }
        for (const std::string past : {"past_key_values", "past"}) {
            const std::size_t at = i.name.find(past);
            if (at == std::string::npos || caches.contains(i.name)) continue;
            const std::string named = i.name.substr(0, at) + "present" + i.name.substr(at + past.size());
            for (const value_info& o : m.outputs())
                if (o.name == named) caches[i.name] = named;
        }
    }
    return caches;
}

tensor integers_of(data_type type, const dims& shape, const std::vector<std::int64_t>& values) {
    tensor t(type, shape);
    ops::write_elements<std::int64_t>(std::span<const std::int64_t>(values), type, t.bytes());
    return t;
}

bool says(const std::string& name, const char* word) { return name.find(word) != std::string::npos; }

/// One sample during generation: holds the inputs of the next run.
class continuation {
  public:
    continuation(const model& m, const std::string& ids, const std::map<std::string, std::string>& caches, named_tensors inputs)
        : model_(&m), ids_(ids), caches_(&caches), inputs_(std::move(inputs)) {}

    /// Runs the model and returns the logits of the last position.
    std::vector<float> run(const evaluator& runs, const precision_plan& plan, std::size_t output) {
        outputs_ = runs.run(inputs_, plan).outputs;
        const std::string& name = model_->outputs().at(output).name;
        const tensor& y = outputs_.at(name);
        if (y.rank() != 3 || y.dim(0) != 1 || y.dim(1) < 1)
            throw error("--generate needs logits [N,S,C], and output '" + name + "' is " + to_string(y.shape()) + " for a sample");
        std::vector<float> all(y.size());
        if (!ops::read_elements(y.type(), y.bytes(), std::span<float>(all))) throw error("output '" + name + "' holds no numbers");
        return {all.end() - static_cast<std::ptrdiff_t>(y.dim(2)), all.end()};
    }

    /// Makes `token` the next input: alone if there is a cache, else behind everything read so far.
    void append(std::int64_t token) {
        const bool cached = !caches_->empty();
        for (auto& [name, value] : inputs_) {
            if (const auto c = caches_->find(name); c != caches_->end()) {
                // In a merged decoder the branch that reads a cache returns empty tensors for what the encoder filled once.
                if (const tensor& made = outputs_.at(c->second); made.size() > 0 || value.size() == 0) value = made;
                continue;
            }
            if (name != ids_ && says(name, "encoder")) continue;  // what comes from an encoder stays
            std::vector<std::int64_t> v = as_integers(value);
            if (name == ids_) v = next(std::move(v), token, cached);
            else if (says(name, "mask")) v.push_back(1);
            else if (cached && value.type() == data_type::boolean && says(name, "cache")) v.assign(v.size(), 1);  // the cached branch
            else if (says(name, "position")) v = next(v, v.empty() ? 0 : v.back() + 1, cached);
            else if (says(name, "type")) v = next(v, 0, cached);
            else if (says(name, "seqlens") || says(name, "sequence_length") || says(name, "past_seq"))
                for (std::int64_t& length : v) length += 1;
            else
                throw error(
                    "--generate cannot continue input '" + name +
                    "': it is no ids, mask, positions, types, lengths or cache that comes back as an output, nor named after an encoder");
            const bool grows = value.rank() == 2;
            value = integers_of(value.type(), grows ? dims{1, static_cast<std::int64_t>(v.size())} : value.shape(), v);
        }
    }

  private:
    static std::vector<std::int64_t> next(std::vector<std::int64_t> before, std::int64_t last, bool cached) {
        if (cached) before.clear();
        before.push_back(last);
        return before;
    }

    const model* model_;
    std::string ids_;
    const std::map<std::string, std::string>* caches_;
    named_tensors inputs_, outputs_;
};

/// Returns the inputs of one sample, without the padding behind its prompt.
named_tensors prompt_of(const model& m, const named_tensors& prompts, const std::string& ids, const std::string& mask, std::size_t sample,
                        std::size_t samples) {
    named_tensors own;
    std::int64_t length = -1;
    for (const value_info& i : m.inputs()) own[i.name] = execute::sample_of(prompts, i.name, sample, samples);
    if (!mask.empty()) {
        if (!own.contains(mask)) throw error("--mask '" + mask + "' is no input of the model");
        const std::vector<std::int64_t> shown = as_integers(own.at(mask));
        for (std::size_t p = 0; p < shown.size(); ++p)
            if (shown[p] != 0) length = static_cast<std::int64_t>(p) + 1;
    }
    const std::int64_t whole = own.at(ids).shape().back();
    if (length > 0 && length < whole)
        for (auto& [name, value] : own)
            if (value.rank() == 2 && value.dim(1) == whole) value = execute::corner(value, {value.dim(0), length});
    return own;
}

}  // namespace

generated generate(const evaluator& runs, const named_tensors& prompts, const precision_plan& plan, const generate_settings& settings) {
    const model& m = runs.source();
    const std::string ids = token_input(m, settings.mask);
    if (ids.empty()) throw error("--generate needs an input of token ids, integers [N,S]");
    const auto caches = caches_of(m);
    const auto samples = static_cast<std::size_t>(prompts.at(ids).dim(0));
    const auto output = static_cast<std::size_t>(settings.output_index);
    generated result;
    std::map<std::string, metric_terms> sums;
    std::size_t count = 0;
    for (const std::string& name : settings.metrics)
        if (!find_metric(name).by_position)
            throw error("--generate measures choices, and " + name + " is none: kl, loss, perplexity, top1, top5, agreement");
    for (std::size_t s = 0; s < samples; ++s) {
        const named_tensors own = prompt_of(m, prompts, ids, settings.mask, s, samples);
        continuation plain(m, ids, caches, own), planned(m, ids, caches, own);
        std::vector<std::int64_t>& tokens = result.tokens.emplace_back();
        for (std::size_t step = 0; step < settings.steps; ++step) {
            const std::vector<float> reference = plain.run(runs, {}, output), y = planned.run(runs, plan, output);
            const std::int64_t token = std::max_element(reference.begin(), reference.end()) - reference.begin();
            tokens.push_back(token);
            for (const std::string& name : settings.metrics) {
                const metric_terms one = find_metric(name).sample(y, reference, token);
                for (std::size_t i = 0; i < counted; ++i) sums[name][i] += one[i];
            }
            ++count;
            plain.append(token), planned.append(token);
        }
    }
    for (const std::string& name : settings.metrics) result.metrics[name] = find_metric(name).finish(sums[name], count);
    return result;
}

}  // namespace qk::graph::pipeline
