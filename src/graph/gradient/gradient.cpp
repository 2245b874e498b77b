// SPDX-License-Identifier: Apache-2.0
// Gradients in one call: samples run side by side, each on one thread with a tape of its own; sums over samples run in their order.
#include "qk/graph/gradient/gradient.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <set>

#include "graph/gradient/backward.hpp"
#include "graph/gradient/cross_entropy.hpp"
#include "graph/gradient/sample_runs.hpp"
#include "graph/gradient/tape.hpp"

namespace qk::graph {
namespace {

using gradient::accumulate;
using gradient::as_real;

/// The seed for one run's output, and what the run adds to the loss.
struct seeded {
    tensor seed;
    double loss = 0;
};
using seeder = std::function<seeded(const tensor& output, std::size_t first_sample, std::size_t samples)>;

/// A sum over samples, in double.
struct double_sum {
    std::vector<double> values;
    void add(const tensor& g) {  // float64 or float32, as gradients are
        if (values.empty()) values.assign(g.size(), 0.0);
        const auto of = [&]<class T>(T) {
            std::transform(values.begin(), values.end(), g.as<T>().data(), values.begin(),
                           [](double sum, T v) { return sum + static_cast<double>(v); });
        };
        g.type() == data_type::float64 ? of(double{}) : of(float{});
    }
};

tensor real_tensor(data_type type, const dims& shape, std::span<const double> values) {
    tensor t(gradient::gradient_type(type), shape);
    for (std::size_t i = 0; i < t.size(); ++i) {
        const double v = values.empty() ? 0.0 : values[i];
        if (t.type() == data_type::float64) t.as<double>()[i] = v;
        else t.as<float>()[i] = static_cast<float>(v);
    }
    return t;
}

/// Calls f(body, value) for every float initializer of bodies, those of bodies within them included.
template <class F>
void each_body_constant(const execute::network& net, F&& f) {
    for (const execute::net_node& node : net.nodes)
        for (const execute::subnetwork& s : node.bodies) {
            for (std::size_t v = 0; v < s.body->values.size(); ++v)
                if (gradient::is_real(s.body->values[v].constant.type())) f(*s.body, v);
            each_body_constant(*s.body, f);
        }
}

/// Sums a run's gradients by the initializers of bodies.
struct body_sums final : gradient::edge_visitor {
    explicit body_sums(bool any) : wanted(any) {}
    bool wants_bodies() const override { return wanted; }
    void in_body(const execute::network& body, std::size_t value, const tensor& g) override { accumulate(sums[{&body, value}], g); }
    bool wanted;
    std::map<std::pair<const execute::network*, std::size_t>, tensor> sums;
};

class gradient_run {
  public:
    gradient_run(const model& m, const named_tensors& inputs, const gradient_options& options)
        : runs_(m, inputs, options.threads, options.output_index),
          limit_(gradient::tape_limit(options.memory, runs_.runner.pool.threads())) {
        std::set<std::string> outside;
        for (const execute::net_value& v : net().values) outside.insert(v.name);
        each_body_constant(net(), [&](const execute::network& body, std::size_t v) {
            if (!outside.contains(body.values[v].name)) bodies_.try_emplace({&body, v});
        });
        roots_.assign(net().values.size(), 0);
        for (const int v : net().inputs) roots_[static_cast<std::size_t>(v)] = 1;
        for (std::size_t v = 0; v < roots_.size(); ++v)
            if (gradient::is_real(net().values[v].constant.type())) roots_[v] = 1;
        for (std::size_t i = 0; i < net().inputs.size(); ++i)  // integers have no gradient
            if (!gradient::is_real(runs_.data.inputs[i].type())) roots_[static_cast<std::size_t>(net().inputs[i])] = 0;
    }

    std::size_t samples() const { return runs_.cut.samples; }
    std::size_t runs() const { return runs_.cut.runs; }
    const std::string& output_name() const { return runs_.output_name; }
    const execute::network& net() const { return runs_.net(); }

    gradient_result run(const seeder& seed) {
        const auto start = std::chrono::steady_clock::now();
        sums_.resize(net().values.size());
        outputs_.resize(runs_.cut.runs);
        gradient_result result;
        const auto at_once = static_cast<std::size_t>(runs_.runner.pool.threads());
        for (std::size_t first = 0; first < runs_.cut.runs; first += at_once) {
            std::vector<one_run> wave(std::min(at_once, runs_.cut.runs - first));
            runs_.for_each(wave.size(), [&](std::size_t i) { wave[i] = run_one(first + i, seed); });
            for (std::size_t i = 0; i < wave.size(); ++i) take(first + i, wave[i], result);
        }
        give(result);
        result.samples = runs_.cut.samples;
        result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        return result;
    }

  private:
    struct one_run {
        std::vector<tensor> gradients;  ///< by value
        std::map<std::pair<const execute::network*, std::size_t>, tensor> bodies;
        tensor output;
        double loss = 0, forward = 0, backward = 0;
    };

    one_run run_one(std::size_t run, const seeder& seed) {
        const auto start = std::chrono::steady_clock::now();
        body_sums bodies(!bodies_.empty());
        gradient::tape t = gradient::record(net(), runs_.runner.inputs_of(runs_.data, runs_.cut, run), roots_, &bodies, limit_);
        const auto recorded = std::chrono::steady_clock::now();
        one_run r;
        r.forward = std::chrono::duration<double>(recorded - start).count();
        r.output = t.values[static_cast<std::size_t>(net().outputs[static_cast<std::size_t>(runs_.output)].value)];
        seeded s = seed(r.output, runs_.first_of(run), runs_.samples_of(run));
        r.loss = s.loss;
        std::vector<std::vector<tensor>> seeds(1, std::vector<tensor>(net().outputs.size()));
        seeds[0][static_cast<std::size_t>(runs_.output)] = s.seed;
        r.gradients = std::move(gradient::walk_back(net(), std::move(t), std::move(seeds), &bodies)[0]);
        r.bodies = std::move(bodies.sums);
        r.backward = std::chrono::duration<double>(std::chrono::steady_clock::now() - recorded).count();
        return r;
    }

    void take(std::size_t run, one_run& r, gradient_result& result) {
        result.loss += r.loss;
        result.forward_seconds += r.forward;
        result.backward_seconds += r.backward;
        outputs_[run] = r.output;
        for (std::size_t i = 0; i < net().inputs.size(); ++i) {
            const auto v = static_cast<std::size_t>(net().inputs[i]);
            if (roots_[v] == 0 || runs_.data.axes[i] < 0) continue;
            tensor& all = inputs_[i];
            if (all.empty()) all = real_tensor(runs_.data.inputs[i].type(), runs_.data.inputs[i].shape(), {});
            if (r.gradients[v].empty()) continue;
            execute::put_rows(all, runs_.data.axes[i], runs_.first_of(run) * runs_.data.rows_each(i), r.gradients[v]);
            r.gradients[v] = tensor();
        }
        for (std::size_t v = 0; v < r.gradients.size(); ++v)
            if (!r.gradients[v].empty()) sums_[v].add(r.gradients[v]);
        for (const auto& [at, g] : r.bodies)
            if (const auto place = bodies_.find(at); place != bodies_.end()) place->second.add(g);
    }

    void give(gradient_result& result) {
        for (std::size_t i = 0; i < net().inputs.size(); ++i) {
            const auto v = static_cast<std::size_t>(net().inputs[i]);
            if (roots_[v] == 0) continue;
            tensor& g = result.gradients[net().values[v].name];
            g = inputs_.contains(i) ? inputs_[i] : real_tensor(runs_.data.inputs[i].type(), runs_.data.inputs[i].shape(), sums_[v].values);
        }
        for (std::size_t v = 0; v < net().values.size(); ++v) {
            const tensor& constant = net().values[v].constant;
            if (roots_[v] != 0 && !constant.empty())
                result.gradients[net().values[v].name] = real_tensor(constant.type(), constant.shape(), sums_[v].values);
        }
        for (const auto& [at, sum] : bodies_) {
            const execute::net_value& v = at.first->values[at.second];
            result.gradients.try_emplace(v.name, real_tensor(v.constant.type(), v.constant.shape(), sum.values));
        }
        result.output = joined();
    }

    tensor joined() const {
        if (outputs_.size() == 1) return outputs_[0];
        dims shape = outputs_[0].shape();
        if (shape.empty()) shape = {1};
        std::size_t bytes = 0;
        shape[0] = 0;
        for (const tensor& o : outputs_) shape[0] += o.rank() == 0 ? 1 : o.dim(0);
        tensor all(outputs_[0].type(), shape);
        for (const tensor& o : outputs_) {
            if (bytes + o.size_bytes() > all.size_bytes())
                throw error("output '" + runs_.output_name +
                            "' has other shapes for other samples and cannot be joined; give one sample at a time");
            std::memcpy(all.bytes() + bytes, o.bytes(), o.size_bytes());
            bytes += o.size_bytes();
        }
        return all;
    }

    gradient::sample_runs runs_;
    std::size_t limit_;
    std::vector<char> roots_;
    std::vector<double_sum> sums_;  ///< by value
    std::map<std::pair<const execute::network*, std::size_t>, double_sum> bodies_;
    std::map<std::size_t, tensor> inputs_;  ///< gradients of inputs that are cut into samples
    std::vector<tensor> outputs_;           ///< by run
};

/// Returns a run's part of v: rows of axis 0.
tensor part_of(const tensor& v, const std::string& output, const tensor& y, std::size_t run_first, std::size_t samples, std::size_t all) {
    if (samples == all) {
        if (v.shape() != y.shape())
            throw error("--vector has shape " + to_string(v.shape()) + ", output '" + output + "' has shape " + to_string(y.shape()));
        return v;
    }
    dims expected = y.shape();
    const std::size_t rows = expected.empty() ? 1 : static_cast<std::size_t>(expected[0]) / samples;
    if (expected.empty()) expected = {1};
    expected[0] = static_cast<std::int64_t>(rows * all);
    if (v.shape() != expected)
        throw error("--vector has shape " + to_string(v.shape()) + ", output '" + output + "' of all samples has shape " +
                    to_string(expected));
    return execute::rows(v, run_first * rows, samples * rows);
}

}  // namespace

gradient_result vector_gradient(const model& m, const named_tensors& inputs, const tensor& v, const gradient_options& options) {
    if (!gradient::is_real(v.type())) throw error(std::string("--vector is of type ") + name_of(v.type()) + "; give floats");
    gradient_run run(m, inputs, options);
    return run.run([&](const tensor& y, std::size_t first, std::size_t samples) {
        return seeded{part_of(v, run.output_name(), y, first, samples, run.samples()), 0};
    });
}

gradient_result loss_gradient(const model& m, const named_tensors& inputs, std::span<const std::int64_t> labels,
                              const gradient_options& options) {
    gradient_run run(m, inputs, options);
    const std::size_t all = labels.size(), count = counting_labels(labels, options.ignore_label, "the labels");
    return run.run([&](const tensor& y, std::size_t first, std::size_t samples) {
        if (run.runs() == 1) samples = y.rank() == 0 ? 1 : static_cast<std::size_t>(y.dim(0));  // a batch as the model takes it
        const std::size_t total = run.runs() == 1 ? samples : run.samples(), each = std::max<std::size_t>(all / total, 1);
        dims one = y.shape();
        if (!one.empty()) one[0] /= static_cast<std::int64_t>(samples);
        const choice_rows of = choices_of(one, each);
        check_label_count(labels, total, of);
        const tensor wide = as_real<double>(y);
        tensor g(data_type::float64, y.shape());
        std::ranges::fill(g.as<double>(), 0.0);
        seeded s;
        for (std::size_t i = 0; i < samples * of.rows; ++i) {
            const std::int64_t label = labels[first * of.rows + i];
            if (label == options.ignore_label) continue;
            check_class(label, of.classes, label_index(first * of.rows + i, each));
            s.loss += gradient::cross_entropy_gradient(wide.as<double>().subspan(i * of.classes, of.classes), label, count,
                                                       g.as<double>().subspan(i * of.classes, of.classes));
        }
        s.seed = g;
        return s;
    });
}

}  // namespace qk::graph
