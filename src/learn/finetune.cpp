// SPDX-License-Identifier: Apache-2.0
// Definitions of finetune.hpp.
#include "qk/graph/learn/finetune.hpp"

#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <numbers>
#include <random>

#include "graph/evaluate/execute/quantize_value.hpp"
#include "graph/gradient/backward.hpp"
#include "graph/gradient/cross_entropy.hpp"
#include "graph/gradient/plan_scales.hpp"
#include "graph/gradient/sample_runs.hpp"
#include "graph/gradient/straight_through.hpp"
#include "graph/gradient/tape.hpp"
#include "qk/graph/plan/layers.hpp"

namespace qk::graph {
namespace {

using quantizers = std::vector<const quantizer*>;

tensor through(const quantizers& all, tensor value) {
    for (const quantizer* q : all) value = execute::quantized(*q, value, false, gradient::thread_allocator::get());
    return value;
}

/// Applies the plan's quantizers at every use; constants are quantized once per step.
class quantizing_visitor final : public gradient::edge_visitor {
  public:
    quantizing_visitor(const execute::network& net, const precision_plan& plan) : net_(&net), at_(net.nodes.size()) {
        for (std::size_t n = 0; n < net.nodes.size(); ++n)
            for (const execute::net_input& use : net.nodes[n].inputs) at_[n].push_back(of_use(plan, use));
        for (const execute::net_input& use : net.outputs) outputs_.push_back(of_use(plan, use));
    }
    void quantize_constants() {
        for (std::size_t n = 0; n < at_.size(); ++n)
            for (std::size_t i = 0; i < at_[n].size(); ++i) {
                const int v = net_->nodes[n].inputs[i].value;
                if (v < 0 || at_[n][i].empty()) continue;
                const tensor& constant = net_->values[static_cast<std::size_t>(v)].constant;
                if (!constant.empty()) constants_[{n, i}] = through(at_[n][i], constant);
            }
    }
    const quantizers& at_output(std::size_t output) const { return outputs_[output]; }

    tensor forward(std::size_t node, std::size_t input, const tensor& value) override {
        if (at_[node][input].empty()) return value;
        if (const auto known = constants_.find({node, input}); known != constants_.end()) return known->second;
        return through(at_[node][input], value);
    }
    const quantizers& at(std::size_t node, std::size_t input) const { return at_[node][input]; }

  private:
    static quantizers of_use(const precision_plan& plan, const execute::net_input& use) {
        quantizers all;
        for (const edge& e : use.edges)
            if (const quantizer* q = plan.find(e)) all.push_back(q);
        return all;
    }
    const execute::network* net_;
    std::vector<std::vector<quantizers>> at_;  ///< by node, then input
    std::vector<quantizers> outputs_;
    std::map<std::pair<std::size_t, std::size_t>, tensor> constants_;
};

/// Visits the forward and backward pass of one sample, and holds that sample's gradients by scales.
class sample_visitor final : public gradient::edge_visitor {
  public:
    sample_visitor(quantizing_visitor& all, const gradient::plan_scales& scales) : all_(&all), scales_(&scales), by_scale(scales.zeros()) {}
    tensor forward(std::size_t node, std::size_t input, const tensor& value) override { return all_->forward(node, input, value); }
    void backward(std::size_t node, std::size_t input, const tensor& value, std::span<tensor> gradients) override {
        for (const quantizer* q : all_->at(node, input)) {
            const int group = scales_->group_of(q);
            for (tensor& g : gradients)
                if (!g.empty())
                    g = gradient::straight_through(*q, value, g, group < 0 ? nullptr : &by_scale[static_cast<std::size_t>(group)]);
        }
    }

  private:
    quantizing_visitor* all_;
    const gradient::plan_scales* scales_;

  public:
    gradient::plan_scales::gradients by_scale;
};

/// A tensor that is trained, with Adam's averages (Kingma and Ba 2015).
struct parameter {
    std::size_t value;
    tensor now, best;
    std::vector<double> first, second;
    double size;  ///< size of a step at rate 1

    parameter(std::size_t at, const tensor& start) : value(at), now(copy(start)), best(now), first(start.size(), 0.0), second(first) {
        double squares = 0;
        for (const float x : start.as<float>()) squares += static_cast<double>(x) * static_cast<double>(x);
        size = std::max(std::sqrt(squares / static_cast<double>(std::max<std::size_t>(start.size(), 1))), 0.01);
    }
    static tensor copy(const tensor& t) {
        tensor c(t.type(), t.shape());
        std::memcpy(c.bytes(), t.bytes(), t.size_bytes());
        return c;
    }
    /// Takes one step against `g`. `now` becomes a new tensor, so that holders of the old one do not see the step.
    void step(std::span<const double> g, double rate, double time) {
        constexpr double keep = 0.9, keep_squares = 0.999;
        tensor next(now.type(), now.shape());
        for (std::size_t i = 0; i < g.size(); ++i) {
            first[i] = keep * first[i] + (1 - keep) * g[i];
            second[i] = keep_squares * second[i] + (1 - keep_squares) * g[i] * g[i];
            const double mean = first[i] / (1 - std::pow(keep, time)), spread = std::sqrt(second[i] / (1 - std::pow(keep_squares, time)));
            const double by = spread > 0 ? rate * size * mean / (spread + 1e-12) : 0;
            next.as<float>()[i] = static_cast<float>(static_cast<double>(std::as_const(now).as<float>()[i]) - by);
        }
        now = next;
    }
};

class trainer {
  public:
    trainer(const model& m, const precision_plan& plan, const named_tensors& inputs, std::span<const std::int64_t> labels,
            const finetune_options& options)
        : runs_(m, inputs, options.threads, options.output_index),
          labels_(labels),
          options_(options),
          plan_(plan),
          scales_(m, plan_),
          visitor_(net(), plan_) {
        if (runs_.cut.samples_per_run != 1 || runs_.cut.runs < 2)
            throw error("fine-tuning needs two samples or more that run alone; this model and data give " + std::to_string(runs_.cut.runs) +
                        " run(s) of " + std::to_string(runs_.cut.samples_per_run) + " samples" +
                        (runs_.cut.whole.empty() ? "" : ": " + runs_.cut.whole));
        choose_parameters(m);
        make_targets();
        if (!labels.empty()) check_all_labels();
    }

    finetune_result run(const model& m, const progress& report) {
        const auto start = std::chrono::steady_clock::now();
        std::vector<std::size_t> order;
        for (std::size_t i = 0; i < runs_.cut.runs; ++i)
            if (labels_of(i) > 0) order.push_back(i);
        if (order.size() < 2) throw error("fine-tuning needs two samples whose labels count");
        std::mt19937_64 random(options_.seed + 1);
        shuffle(order, random);
        const auto kept =
            std::clamp<std::size_t>(static_cast<std::size_t>(options_.held_out * static_cast<double>(order.size())), 1, order.size() - 1);
        const std::vector<std::size_t> held(order.end() - static_cast<std::ptrdiff_t>(kept), order.end());
        order.resize(order.size() - kept);
        finetune_result result{m, plan_, {}, 0, order.size(), held.size(), 0};
        result.losses.push_back(loss_of(held));
        const std::size_t batch = static_cast<std::size_t>(std::max(options_.batch, 1)), steps = (order.size() + batch - 1) / batch;
        const double all = static_cast<double>(steps) * options_.epochs;
        const std::size_t patience = std::max<std::size_t>(3, static_cast<std::size_t>(options_.epochs) / 3);
        double time = 0;
        for (int epoch = 0; epoch < options_.epochs; ++epoch) {
            shuffle(order, random);
            for (std::size_t s = 0; s < steps; ++s) {
                // The rate falls to 0 along a cosine; it grows during the first twentieth of the steps, while Adam's averages are of few
                // steps.
                const double rate =
                    options_.rate * 0.5 * (1 + std::cos(std::numbers::pi * time / all)) * std::min(1.0, (time + 1) / (0.05 * all));
                time += 1;
                const std::size_t first = s * batch;
                learn(std::span(order).subspan(first, std::min(batch, order.size() - first)), rate, time);
            }
            result.losses.push_back(loss_of(held));
            if (report) report(static_cast<std::size_t>(epoch) + 1, static_cast<std::size_t>(options_.epochs));
            if (result.losses.back() < result.losses[result.best]) {
                result.best = result.losses.size() - 1;
                for (parameter& p : parameters_) p.best = p.now;
                scales_.remember();
            }
            if (result.losses.size() - 1 - result.best >= patience) break;
        }
        if (result.best > 0) put_best(result.learned);
        scales_.go_back();
        result.plan = plan_;
        result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        return result;
    }

  private:
    const execute::network& net() const { return runs_.net(); }
    std::size_t output() const { return static_cast<std::size_t>(runs_.output); }

    /// The order of std::shuffle depends on the standard library; this one is the same everywhere.
    static void shuffle(std::vector<std::size_t>& order, std::mt19937_64& random) {
        for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[static_cast<std::size_t>(random() % i)]);
    }

    void choose_parameters(const model& m) {
        const layer_view view(m);
        roots_.assign(net().values.size(), 0);
        for (const execute::net_node& node : net().nodes) {
            const int index = m.node_index(std::string(node.view.name()));
            if (index < 0) continue;
            const layer_view::node_info& info = view.nodes()[static_cast<std::size_t>(index)];
            for (std::size_t i = 0; i < node.inputs.size() && i < info.parts.size(); ++i) {
                const bool learns = info.kind == layer_kind::compute &&
                                    (info.parts[i] == layer_view::part::weight || info.parts[i] == layer_view::part::bias);
                const int v = node.inputs[i].value;
                if (!learns || v < 0 || roots_[static_cast<std::size_t>(v)] != 0) continue;
                const tensor& constant = net().values[static_cast<std::size_t>(v)].constant;
                if (constant.empty() || constant.type() != data_type::float32) continue;
                roots_[static_cast<std::size_t>(v)] = 1;
                parameters_.emplace_back(static_cast<std::size_t>(v), constant);
            }
        }
        if (parameters_.empty()) throw error("no layer of the model has constant float32 weights to learn");
    }

    void make_targets() {
        const std::vector<char> none(net().values.size(), 0);
        targets_.resize(runs_.cut.runs);
        runs_.for_each(targets_.size(), [&](std::size_t i) {
            const gradient::tape t = gradient::record(net(), runs_.runner.inputs_of(runs_.data, runs_.cut, i), none, nullptr, limit_);
            targets_[i] = gradient::as_real<double>(t.values[static_cast<std::size_t>(net().outputs[output()].value)]);
        });
        double squares = 0, count = 0;
        for (const tensor& t : targets_)
            for (const double v : t.as<double>()) squares += v * v, count += 1;
        power_ = squares > 0 ? squares / count : 1;
        visitor_.quantize_constants();
    }

    void check_all_labels() const {
        const std::size_t samples = targets_.size(), each = std::max<std::size_t>(labels_.size() / samples, 1);
        for (std::size_t run = 0; run < samples; ++run) {
            const choice_rows of = choices_of(targets_[run].shape(), each);
            check_label_count(labels_, samples, of);
            check_labels(labels_.first((run + 1) * each), each, of.classes, options_.ignore_label, run * each);
        }
        counting_labels(labels_, options_.ignore_label, "the labels");
    }

    /// Returns how many labels of a sample count; 1 where nothing is labelled.
    std::size_t labels_of(std::size_t run) const {
        if (labels_.empty()) return 1;
        const std::size_t each = labels_.size() / targets_.size();
        return static_cast<std::size_t>(
            std::ranges::count_if(labels_.subspan(run * each, each), [&](std::int64_t label) { return label != options_.ignore_label; }));
    }
    double labels_of(std::span<const std::size_t> samples) const {
        std::size_t count = 0;
        for (const std::size_t s : samples) count += labels_of(s);
        return static_cast<double>(count);
    }

    /// Returns the sum of the losses of one sample's labels under the plan; writes the seed of its gradient to `seed` unless that is null.
    double loss_and_seed(std::size_t run, const tensor& y, tensor* seed) const {
        const tensor value = gradient::as_real<double>(through(visitor_.at_output(output()), y));
        tensor g(data_type::float64, y.shape());
        double loss = 0;
        if (!labels_.empty()) {
            const std::size_t each = labels_.size() / targets_.size();
            const choice_rows of = choices_of(value.shape(), each);
            std::ranges::fill(g.as<double>(), 0.0);
            for (std::size_t i = 0; i < each; ++i) {
                const std::int64_t label = labels_[run * each + i];
                if (label == options_.ignore_label) continue;
                check_class(label, of.classes, label_index(run * each + i, each));
                loss += gradient::cross_entropy_gradient(value.as<double>().subspan(i * of.classes, of.classes), label, 1,
                                                         g.as<double>().subspan(i * of.classes, of.classes));
            }
        } else {
            if (value.size() != targets_[run].size()) throw error("output '" + runs_.output_name + "' changes its shape under the plan");
            const double n = static_cast<double>(std::max<std::size_t>(y.size(), 1)) * power_;
            for (std::size_t i = 0; i < y.size(); ++i) {
                const double d = value.as<double>()[i] - targets_[run].as<double>()[i];
                loss += d * d / n;
                g.as<double>()[i] = 2 * d / n;
            }
        }
        if (seed != nullptr) *seed = g;
        return loss;
    }

    double loss_of(std::span<const std::size_t> samples) {
        const std::vector<char> none(net().values.size(), 0);
        std::vector<double> losses(samples.size());
        runs_.for_each(samples.size(), [&](std::size_t i) {
            const gradient::tape t =
                gradient::record(net(), runs_.runner.inputs_of(runs_.data, runs_.cut, samples[i]), none, &visitor_, limit_);
            losses[i] = loss_and_seed(samples[i], t.values[static_cast<std::size_t>(net().outputs[output()].value)], nullptr);
        });
        double sum = 0;
        const double count = labels_of(samples);
        for (const double l : losses) sum += l / count;
        return sum;
    }

    void learn(std::span<const std::size_t> samples, double rate, double time) {
        const double count = labels_of(samples);
        std::vector<std::vector<tensor>> gradients(samples.size());
        std::vector<gradient::plan_scales::gradients> by_scale(samples.size());
        runs_.for_each(samples.size(), [&](std::size_t i) {
            sample_visitor visitor(visitor_, scales_);
            gradient::tape t = gradient::record(net(), runs_.runner.inputs_of(runs_.data, runs_.cut, samples[i]), roots_, &visitor, limit_);
            std::vector<std::vector<tensor>> seeds(1, std::vector<tensor>(net().outputs.size()));
            loss_and_seed(samples[i], t.values[static_cast<std::size_t>(net().outputs[output()].value)], &seeds[0][output()]);
            gradients[i] = std::move(gradient::walk_back(net(), std::move(t), std::move(seeds), &visitor)[0]);
            by_scale[i] = std::move(visitor.by_scale);
        });
        std::vector<std::vector<double>> sums;
        double squares = 0;
        for (parameter& p : parameters_) {
            std::vector<double>& sum = sums.emplace_back(p.now.size(), 0.0);
            for (const auto& one : gradients) {
                if (one[p.value].empty()) continue;
                const tensor g = gradient::as_real<double>(one[p.value]);
                for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += g.as<double>()[i] / count;
            }
            for (const double g : sum) squares += g * g * p.size * p.size;
        }
        gradient::plan_scales::gradients scales = scales_.zeros();
        for (const auto& one : by_scale)
            for (std::size_t k = 0; k < scales.size(); ++k)
                for (std::size_t i = 0; i < scales[k].size(); ++i) scales[k][i] += one[k][i] / count;
        const double clip = clip_at(std::sqrt(squares));
        for (std::size_t k = 0; k < parameters_.size(); ++k) {
            for (double& g : sums[k]) g *= clip;
            parameters_[k].step(sums[k], rate, time);
            runs_.runner.net->values[parameters_[k].value].constant = parameters_[k].now;
        }
        for (auto& group : scales)
            for (double& g : group) g *= clip;
        scales_.step(scales, rate, time);
        visitor_.quantize_constants();
    }

    /// Returns the factor that cuts a batch's gradient to three times the usual length if it is longer.
    double clip_at(double length) {
        if (!std::isfinite(length)) return 0;
        const double clip = usual_ > 0 && length > 3 * usual_ ? 3 * usual_ / length : 1;
        usual_ = usual_ > 0 ? 0.9 * usual_ + 0.1 * length * clip : length;
        return clip;
    }

    void put_best(model& learned) const {
        std::map<std::string, const tensor*> by_name;
        for (const parameter& p : parameters_) by_name[net().values[p.value].name] = &p.best;
        for (auto& initializer : *learned.graph().mutable_initializer()) {
            const auto found = by_name.find(initializer.name());
            if (found == by_name.end()) continue;
            const std::string name = initializer.name();
            initializer.Clear();
            to_proto(*found->second, name, initializer);
        }
        learned.reindex();
    }

    gradient::sample_runs runs_;
    std::span<const std::int64_t> labels_;
    finetune_options options_;
    precision_plan plan_;
    gradient::plan_scales scales_;
    quantizing_visitor visitor_;
    std::size_t limit_ = gradient::tape_limit(options_.memory, runs_.runner.pool.threads());
    std::vector<char> roots_;
    std::vector<parameter> parameters_;
    std::vector<tensor> targets_;  ///< by run: the float model's output
    double power_ = 1, usual_ = 0;
};

}  // namespace

finetune_result finetune(const model& m, const precision_plan& plan, const named_tensors& inputs, std::span<const std::int64_t> labels,
                         const finetune_options& options, const progress& report) {
    if (options.epochs < 0 || !(options.rate > 0) || !(options.held_out > 0 && options.held_out < 1))
        throw error("fine-tuning needs a rate above 0 and a held-out share between 0 and 1");
    return trainer(m, plan, inputs, labels, options).run(m, report);
}

}  // namespace qk::graph
