// SPDX-License-Identifier: Apache-2.0
#include "learn/learn_rounding.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "graph/evaluate/execute/quantize_value.hpp"
#include "graph/gradient/backward.hpp"
#include "graph/ops/clamp.hpp"
#include "graph/ops/widened.hpp"
#include "graph/quantize/float_and_quantized_run.hpp"
#include "learn/learn_input_scale.hpp"
#include "learn/learn_rows.hpp"

namespace qk::graph {
namespace {

using namespace detail;

/// A layer that learns, or whose bias is corrected.
struct target {
    const onnx::NodeProto* node = nullptr;
    weight_rows rows;
    learned_weight result;
    std::string bias_problem;
    float least = -std::numeric_limits<float>::infinity(), most = std::numeric_limits<float>::infinity();
    bool learns = false;
};

bool rounds_to_nearest(const qk::semantics& s) {
    return s.rounding == rounding::half_even || s.rounding == rounding::half_away || s.rounding == rounding::half_up;
}

/// Returns why a layer cannot learn; empty: it can.
std::string problem_of(const model& m, const onnx::NodeProto& n, const quantizer& q, const weight_rows& rows) {
    if (!rows.refusal.empty()) return rows.refusal;
    if (m.uses(n.input(1)).size() != 1) return "other nodes read the same weights";
    if (!rounds_to_nearest(q.semantics)) return "their rounding is directed or stochastic";
    if (q.dynamic) return "their scales are found when the model runs";
    for (const auto& a : n.attribute())
        if ((a.name() == "alpha" || a.name() == "beta") && a.f() != 1.0f) return "the product or the bias is multiplied by " + a.name();
    return {};
}

/// Returns why a bias cannot be changed channel by channel; empty: it can. A layer without a bias has nothing to change.
std::string bias_problem_of(const model& m, const onnx::NodeProto& n, std::size_t channels) {
    if (n.input_size() < 3 || n.input(2).empty()) return "it has no bias";
    if (!m.is_constant(n.input(2))) return "its bias is computed";
    if (m.uses(n.input(2)).size() != 1) return "other nodes read the same bias";
    if (m.constant(n.input(2)).size() != channels) return "its bias has not one value a channel";
    return {};
}

/// Finds the bounds of a Relu or Clip behind a layer, if nothing else reads the layer's output.
void find_clamp(const model& m, target& t) {
    const auto& uses = m.uses(t.node->output(0));
    if (uses.size() != 1 || uses[0].node < 0) return;
    const onnx::NodeProto& next = m.graph().node(uses[0].node);
    if (kind_of(next) != layer_kind::activation) return;
    const auto bounds = ops::clamp_bounds_of(next, [&](const std::string& name) -> std::optional<float> {
        const tensor v = m.is_constant(name) ? ops::widened(m.constant(name)) : tensor();
        return v.type() == data_type::float32 && v.size() == 1 ? std::optional(v.as<float>()[0]) : std::nullopt;
    });
    t.least = static_cast<float>(bounds.lo), t.most = static_cast<float>(bounds.hi);
}

std::optional<target> target_of(const model& m, const onnx::NodeProto& n, const precision_plan& plan,
                                const std::function<weight_rounding(const std::string&)>& how, const learn_options& options) {
    if (kind_of(n) != layer_kind::compute || n.input_size() < 2) return std::nullopt;
    target t;
    t.node = &n;
    t.result.layer = n.name(), t.result.how = how(n.name());
    const bool asked = t.result.how == weight_rounding::adaround || t.result.how == weight_rounding::adaquant;
    const bool first = m.is_constant(n.input(0)), second = m.is_constant(n.input(1));
    if (first == second) return std::nullopt;
    t.result.weight = n.input(second ? 1 : 0);
    const quantizer* q = plan.find({t.result.weight, n.name(), second ? 1 : 0});
    const tensor w = ops::widened(m.constant(t.result.weight));
    if (w.type() != data_type::float32) return std::nullopt;
    const bool narrow = q != nullptr && bits_per_value(q->format) < 16;
    t.rows = rows_of(n, w);
    find_clamp(m, t);
    if (asked && narrow) {
        t.result.left = second ? problem_of(m, n, *q, t.rows) : "they are the first factor";
        t.bias_problem = t.result.left.empty() ? bias_problem_of(m, n, t.rows.groups * t.rows.rows) : t.result.left;
        if (t.result.left.empty() && n.input_size() > 2 && !n.input(2).empty() && !t.bias_problem.empty() &&
            t.bias_problem.find("other nodes") == std::string::npos)
            t.result.left = t.bias_problem;
        t.learns = t.result.left.empty();
    }
    if (options.correct_bias) {
        const bool quantizes = q != nullptr || plan.find({n.input(0), n.name(), 0}) != nullptr;
        t.bias_problem =
            !second || !t.rows.refusal.empty() ? "its weights are no matrix" : bias_problem_of(m, n, t.rows.groups * t.rows.rows);
        if (!quantizes && !t.learns) return std::nullopt;
        t.result.bias_left = t.bias_problem;
    } else if (!asked || !narrow) {
        return std::nullopt;
    }
    return t;
}

tensor rounded_to(const quantizer& q, const tensor& w, rounding direction) {
    quantizer directed = q;
    directed.semantics.rounding = direction;
    return applied(directed, w);
}

/// The neighbours of each weight on the grid at its block's scale. Both are the nearest value where that is neither of them (a clipped
/// weight, or a grid that moves with the direction of rounding): there is no choice.
struct neighbours {
    tensor nearest, low, high;
    neighbours(const quantizer& q, const tensor& w)
        : nearest(applied(q, w)), low(rounded_to(q, w, rounding::down)), high(rounded_to(q, w, rounding::up)) {
        for (std::size_t i = 0; i < w.size(); ++i) {
            const float n = nearest.as<float>()[i];
            float &l = low.as<float>()[i], &h = high.as<float>()[i];
            if (!(l <= h) || (n != l && n != h)) l = h = n;
        }
    }
    /// Returns the grid's step at each weight; the mean step where a weight has no choice.
    tensor unit() const {
        tensor u(low.type(), low.shape());
        double sum = 0, count = 0;
        for (std::size_t i = 0; i < u.size(); ++i) {
            u.as<float>()[i] = high.as<float>()[i] - low.as<float>()[i];
            if (u.as<float>()[i] > 0) sum += static_cast<double>(u.as<float>()[i]), count += 1;
        }
        for (float& v : u.as<float>())
            if (!(v > 0)) v = count > 0 ? static_cast<float>(sum / count) : 0.0f;
        return u;
    }
};

double decibels(double signal, double error) { return 10 * std::log10(signal / error); }

class learner {
  public:
    learner(model& m, precision_plan& plan, const named_tensors& samples, const std::function<weight_rounding(const std::string&)>& how,
            const learn_options& options)
        : m_(&m), plan_(&plan), options_(options) {
        for (const auto& n : m.graph().node())
            if (auto t = target_of(m, n, plan, how, options)) targets_.push_back(std::move(*t));
        const auto works = [](const target& t) { return t.learns || t.bias_problem.empty(); };
        if (std::ranges::none_of(targets_, works)) return;
        both_.emplace(m, plan, samples, options.threads, options.memory);
        at_.assign(both_->nodes(), nullptr);
        for (std::size_t n = 0; n < at_.size(); ++n)
            for (target& t : targets_)
                if (works(t) && both_->net().nodes[n].view.name() == t.node->name()) at_[n] = &t;
    }

    std::vector<learned_weight> run(const progress& report) {
        if (both_)
            both_->walk([&](std::size_t n) { return at_[n] != nullptr; },
                        [&](const side_by_side::visit& here) {
                            if (at_[here.node]->learns) learn(*at_[here.node], here);
                        },
                        [&](const side_by_side::visit& here, const std::vector<tensor>& made) {
                            return options_.correct_bias && at_[here.node]->bias_problem.empty() && correct(*at_[here.node], here, made);
                        },
                        report);
        for (auto& initializer : *m_->graph().mutable_initializer())
            if (const auto found = changed_.find(initializer.name()); found != changed_.end())
                to_proto(found->second, found->first, initializer);
        m_->reindex();
        std::vector<learned_weight> results;
        for (target& t : targets_) results.push_back(std::move(t.result));
        return results;
    }

  private:
    tensor& constant_of(const side_by_side::visit& here, std::size_t input) {
        return both_->net().values[static_cast<std::size_t>(here.at->inputs[input].value)].constant;
    }
    void change(const side_by_side::visit& here, std::size_t input, const std::string& name, const tensor& value) {
        tensor& place = constant_of(here, input);
        place = ops::narrowed(value, place.type());
        changed_[name] = place;
    }
    bool has_bias(const target& t) const { return t.node->input_size() > 2 && !t.node->input(2).empty(); }

    /// Returns the bias, one value for each channel: as the quantized network adds it if `quantized`, else as stored.
    std::vector<float> bias_of(const target& t, const side_by_side::visit& here, bool quantized) {
        std::vector<float> bias(t.rows.groups * t.rows.rows, 0.0f);
        if (!has_bias(t)) return bias;
        const tensor value = ops::widened(quantized ? both_->read_as(here.at->inputs[2], constant_of(here, 2)) : constant_of(here, 2));
        for (std::size_t i = 0; i < bias.size(); ++i) bias[i] = value.as<float>()[i];
        return bias;
    }

    std::size_t place_limit(const weight_rows& rows) const {
        const std::size_t row = rows.groups * (rows.columns + rows.rows) * sizeof(float);
        return std::clamp<std::size_t>(options_.memory / 2 / row, 256, std::max<std::size_t>(options_.places, 256));
    }

    std::vector<layer_samples> samples_of(const target& t, const side_by_side::visit& here, const tensor& w,
                                          const std::vector<place>& places) {
        std::vector<layer_samples> samples;
        for (std::size_t g = 0; g < t.rows.groups; ++g)
            samples.push_back(gather_samples(here, t.rows, w.shape(), g, places, both_->pool()));
        return samples;
    }

    /// Chooses the scale of the layer's input with the least error of the output; an int32 bias follows. Returns that error.
    double learn_input(const target& t, const side_by_side::visit& here, layer_problem& problem, std::vector<layer_samples>& samples,
                       const std::vector<place>& places, const tensor& w, const tensor& nearest, double start) {
        if (!input_scale_learns(*m_, *plan_, *t.node)) return start;
        quantizer& how = *plan_->entry_of({t.node->input(0), t.node->name(), 0});
        const quantizer before = how;
        side_by_side::visit moved = here;
        const auto read_with = [&](float factor) {
            quantizer q = before;
            q.scale[0] *= factor;
            both_->pool().for_each(moved.reads.size(), [&](std::size_t r, execute::arena&) {
                moved.reads[r] = execute::quantized(q, here.unread[r], false, gradient::thread_allocator::get());
            });
            samples = samples_of(t, moved, w, places);
        };
        const float factor = better_factor(
            [&](float by) {
                read_with(by);
                return output_error(problem, nearest, problem.bias, both_->pool());
            },
            start);
        read_with(factor);
        if (factor == 1) return start;
        how.scale[0] *= factor;
        bias_follows(t, [&](std::size_t) { return factor; });
        both_->read_again();
        problem.bias = bias_of(t, here, true);
        return output_error(problem, nearest, problem.bias, both_->pool());
    }

    void learn(target& t, const side_by_side::visit& here) {
        const tensor w = ops::widened(constant_of(here, 1));
        quantizer& how = *plan_->entry_of({t.result.weight, t.node->name(), 1});
        const std::vector<place> places = choose_places(here, t.rows, place_limit(t.rows), options_.seed);
        std::vector<layer_samples> samples = samples_of(t, here, w, places);
        layer_problem problem{&t.rows, &samples, bias_of(t, here, true), t.least, t.most, options_.iterations};
        const double signal = output_power(problem);
        const neighbours grid(how, w);
        double nearest = output_error(problem, grid.nearest, problem.bias, both_->pool());
        t.result.nearest = t.result.learned = decibels(signal, nearest);
        t.result.weight_sqnr = sqnr(w.as<float>(), grid.nearest.as<float>());
        const bool finite = std::isfinite(nearest) && nearest > 0 && !places.empty();
        if (!finite || options_.iterations < 1) return;
        if (t.result.how == weight_rounding::adaround) {
            tensor chosen = learn_adaround(problem, w, grid.low, grid.high, both_->pool());
            for (int i = 0; i < 3; ++i) chosen = applied(how, chosen);
            keep(t, here, problem, signal, nearest, w, {chosen, how, problem.bias});
        } else {
            nearest = learn_input(t, here, problem, samples, places, w, grid.nearest, nearest);
            t.result.learned = decibels(signal, nearest);
            const bool moves = has_bias(t) && t.bias_problem.empty();
            adaquant_state best = learn_adaquant(problem, {w, how, problem.bias}, grid.unit(), moves, both_->pool());
            for (int i = 0; i < 3; ++i) best.weight = applied(best.how, best.weight);
            keep(t, here, problem, signal, nearest, w, best);
        }
    }

    /// Stores what was learned if it is better than rounding to nearest.
    void keep(target& t, const side_by_side::visit& here, const layer_problem& problem, double signal, double nearest, const tensor& before,
              const adaquant_state& learned) {
        const double error = output_error(problem, learned.weight, learned.bias, both_->pool());
        if (!(error < nearest)) return;
        t.result.learned = decibels(signal, error);
        t.result.weight_sqnr = sqnr(before.as<float>(), learned.weight.as<float>());
        change(here, 1, t.result.weight, learned.weight);
        if (t.result.how != weight_rounding::adaquant) return;
        rescale(t, learned.how);
        if (has_bias(t) && t.bias_problem.empty()) {
            const std::vector<float> own = bias_of(t, here, false);
            tensor bias(data_type::float32, constant_of(here, 2).shape());
            for (std::size_t i = 0; i < own.size(); ++i) bias.as<float>()[i] = own[i] + (learned.bias[i] - problem.bias[i]);
            change(here, 2, t.node->input(2), bias);
        }
    }

    /// Multiplies the scales of an int32 bias, which are products of input and weight scales, by factor(channel).
    template <class Factor>
    void bias_follows(const target& t, const Factor& factor) {
        const edge of_bias{has_bias(t) ? t.node->input(2) : std::string(), t.node->name(), 2};
        if (!has_bias(t) || plan_->find(of_bias) == nullptr) return;
        quantizer& bias = *plan_->entry_of(of_bias);
        if (bias.format != qk::format(int32)) return;
        for (std::size_t i = 0; i < bias.scale.size(); ++i) bias.scale[i] *= factor(i);
    }

    /// Puts the learned scales of the weight into the plan.
    void rescale(const target& t, const quantizer& learned) {
        quantizer& how = *plan_->entry_of({t.result.weight, t.node->name(), 1});
        if (how.scale.empty()) return;
        bias_follows(t, [&](std::size_t i) {
            const std::size_t c = how.scale.size() == 1 ? 0 : i % how.scale.size();
            return learned.scale[c] / how.scale[c];
        });
        how.scale = learned.scale;
    }

    /// Adds the mean difference between the float and the quantized output of each channel to the bias.
    bool correct(target& t, const side_by_side::visit& here, const std::vector<tensor>& made) {
        const bool convolution = product_axes_of(*t.node)->windows;
        std::vector<double> sum(t.rows.groups * t.rows.rows, 0.0);
        double count = 0;
        for (std::size_t r = 0; r < made.size(); ++r) {
            const tensor whole = ops::widened(here.makes[r]), narrow = ops::widened(made[r]);
            const channel_of channel(t.rows, whole.shape(), convolution);
            for (std::size_t i = 0; i < whole.size(); ++i)
                sum[channel(i)] += static_cast<double>(whole.as<float>()[i]) - static_cast<double>(narrow.as<float>()[i]);
            count += static_cast<double>(whole.size() / sum.size());
        }
        std::vector<float> own = bias_of(t, here, false);
        tensor bias(data_type::float32, constant_of(here, 2).shape());
        for (std::size_t i = 0; i < own.size(); ++i) {
            const double by = count > 0 && std::isfinite(sum[i]) ? sum[i] / count : 0;
            t.result.bias_moved = std::max(t.result.bias_moved, std::fabs(by));
            bias.as<float>()[i] = static_cast<float>(static_cast<double>(own[i]) + by);
        }
        change(here, 2, t.node->input(2), bias);
        return true;
    }

    model* m_;
    precision_plan* plan_;
    learn_options options_;
    std::vector<target> targets_;
    std::optional<side_by_side> both_;
    std::vector<target*> at_;  ///< by index of the network's node
    std::map<std::string, tensor> changed_;
};

}  // namespace

}  // namespace qk::graph

namespace qk::learn {

std::vector<graph::learned_weight> learn_rounding(graph::model& m, graph::precision_plan& plan, const graph::named_tensors& samples,
                                                  const std::function<graph::weight_rounding(const std::string&)>& how,
                                                  const graph::learn_options& options, const graph::progress& report) {
    return graph::learner(m, plan, samples, how, options).run(report);
}

}  // namespace qk::learn
