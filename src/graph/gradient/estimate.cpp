// SPDX-License-Identifier: Apache-2.0
// Definitions of estimate.hpp: the quantizers that plans change, and one forward and several backward passes for each sample.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <deque>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/evaluate/execute/network.hpp"
#include "graph/evaluate/execute/quantize_value.hpp"
#include "graph/gradient/backward.hpp"
#include "graph/gradient/estimate.hpp"
#include "graph/gradient/probes.hpp"
#include "graph/gradient/sample_runs.hpp"
#include "graph/gradient/tape.hpp"
#include "graph/ops/op.hpp"
#include "graph/ops/sums.hpp"
#include "qk/graph/plan/layers.hpp"

namespace qk::graph::gradient {

// What reaches what in a network: nodes whose paths to an output lead through others, and values that are made of constants alone.

/// Marks by node those from which a path to the chosen output leads through one of `ends`, these included.
inline std::vector<char> nodes_behind(const execute::network& net, std::size_t output, const std::set<std::size_t>& ends) {
    std::vector<char> behind(net.nodes.size(), 0), leads(net.values.size(), 0), hidden(net.values.size(), 0);
    leads[static_cast<std::size_t>(net.outputs[output].value)] = 1;
    for (std::size_t n = net.nodes.size(); n-- > 0;) {
        const execute::net_node& node = net.nodes[n];
        bool useful = false;
        for (const int o : node.outputs) {
            if (o < 0) continue;
            useful = useful || leads[static_cast<std::size_t>(o)] != 0;
            behind[n] = behind[n] != 0 || hidden[static_cast<std::size_t>(o)] != 0;
        }
        if (useful && ends.contains(n)) behind[n] = 1;
        const auto mark = [&](int v) {
            if (v < 0) return;
            if (useful) leads[static_cast<std::size_t>(v)] = 1;
            if (behind[n] != 0) hidden[static_cast<std::size_t>(v)] = 1;
        };
        for (const execute::net_input& use : node.inputs) mark(use.value);
        for (const execute::subnetwork& s : node.bodies)
            for (const int v : s.captured) mark(v);
    }
    return behind;
}

/// Marks by value constants and what nodes make of constants alone (the Transpose of weights).
inline std::vector<char> from_constants(const execute::network& net) {
    std::vector<char> from(net.values.size(), 0);
    for (std::size_t v = 0; v < from.size(); ++v) from[v] = net.values[v].is_constant();
    for (const execute::net_node& n : net.nodes) {
        bool all = !n.inputs.empty() && n.bodies.empty() && !execute::is_random(n);
        for (const execute::net_input& i : n.inputs) all = all && (i.value < 0 || from[static_cast<std::size_t>(i.value)] != 0);
        for (const int o : n.outputs)
            if (o >= 0) from[static_cast<std::size_t>(o)] = all;
    }
    return from;
}

/// Adds the roots that errors of activations need if an input of the network has no gradient (token numbers): all values that are made of
/// constants and of something else. Constants are roots only if nodes have bodies, which may capture them: each pass would hold gradients
/// as large as the constants.
inline void add_roots_behind_constants(const execute::network& net, const std::vector<char>& from, std::vector<char>& roots) {
    for (const execute::net_node& n : net.nodes) {
        bool reads = false;
        for (const execute::net_input& i : n.inputs) reads = reads || (i.value >= 0 && from[static_cast<std::size_t>(i.value)] != 0);
        for (const int o : n.outputs)
            if (reads && o >= 0 && from[static_cast<std::size_t>(o)] == 0) roots[static_cast<std::size_t>(o)] = 1;
        if (n.bodies.empty()) continue;
        for (std::size_t v = 0; v < net.values.size(); ++v)  // bodies may capture constants
            if (!net.values[v].constant.empty()) roots[v] = 1;
    }
}

}  // namespace qk::graph::gradient

namespace qk::graph {
namespace {

using quantizers = std::vector<const quantizer*>;  ///< those of one use, in the order in which they apply

bool same(const quantizers& a, const quantizers& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const quantizer* x, const quantizer* y) { return x == y || *x == *y; });
}

quantizers at_use(const precision_plan& plan, const execute::net_input& use) {
    quantizers all;
    for (const edge& e : use.edges)
        if (const quantizer* q = plan.find(e)) all.push_back(q);
    return all;
}

tensor quantized(const quantizers& all, tensor value) {
    for (const quantizer* q : all) value = execute::quantized(*q, value, false, gradient::thread_allocator::get());
    return value;
}

/// Returns what `all` quantize at a use of the constant of this name: its own value, or one that was rounded for a quantizer of them.
const tensor& under(const values_under& rounded, const std::string& name, const quantizers& all, const tensor& own) {
    if (rounded)
        for (const quantizer* q : all)
            if (const tensor* value = rounded(name, *q)) return *value;
    return own;
}

/// A use of a value with other quantizers than the base plan's.
struct change {
    quantizers what;
    std::size_t number;  ///< index among all changes
};
struct changed_use {
    quantizers base;
    std::vector<change> changes;
    bool at_node = false;  ///< constant weights whose errors are taken as errors of the node's result
};

/// Calls f(key) for every key that only one of two maps has, or under which they hold different values.
template <class Map, class F>
void each_difference(const Map& a, const Map& b, const F& f) {
    auto i = a.begin(), j = b.begin();
    while (i != a.end() || j != b.end()) {
        if (j == b.end() || (i != a.end() && i->first < j->first)) f((i++)->first);
        else if (i == a.end() || j->first < i->first) f((j++)->first);
        else {
            if (!(i->second == j->second)) f(i->first);
            ++i, ++j;
        }
    }
}

/// The changes that all plans make, and which of them each plan makes.
struct change_table {
    std::map<std::pair<std::size_t, std::size_t>, changed_use> uses;  ///< by node and input
    std::map<std::size_t, changed_use> outputs;                       ///< by output
    std::vector<std::vector<std::size_t>> by_plan;                    ///< indices of changes
    std::size_t count = 0;

    change_table(const execute::network& net, const precision_plan& base, const plan_list& plans)
        : by_plan(plans.count), net_(&net), producer_(net.values.size(), -1) {
        for (std::size_t n = 0; n < net.nodes.size(); ++n)
            for (const int o : net.nodes[n].outputs)
                if (o >= 0) producer_[static_cast<std::size_t>(o)] = static_cast<int>(n);
        // Only uses are compared of whose tensor a plan says something else than the base: there are many plans, and each differs in
        // little.
        std::vector<const execute::net_input*> all;
        for (const execute::net_node& n : net.nodes)
            for (const execute::net_input& i : n.inputs) all.push_back(&i);
        for (const execute::net_input& o : net.outputs) all.push_back(&o);
        std::unordered_map<std::string, std::vector<std::size_t>> of_tensor;
        for (std::size_t u = 0; u < all.size(); ++u)
            for (const edge& e : all[u]->edges) of_tensor[e.tensor].push_back(u);
        std::vector<changed_use> found(all.size());
        for (std::size_t p = 0; p < plans.count; ++p) {
            const precision_plan plan = plans.plan(p);
            std::set<std::size_t> touched;
            const auto touch = [&](const std::string& tensor) {
                if (const auto known = of_tensor.find(tensor); known != of_tensor.end())
                    touched.insert(known->second.begin(), known->second.end());
            };
            each_difference(plan.tensors, base.tensors, touch);
            each_difference(plan.edges, base.edges, [&](const edge& e) { touch(e.tensor); });
            for (const std::size_t u : touched) add(found[u], *all[u], p, base, plan);
        }
        std::size_t u = 0;
        for (std::size_t n = 0; n < net.nodes.size(); ++n)
            for (std::size_t i = 0; i < net.nodes[n].inputs.size(); ++i, ++u)
                if (!found[u].changes.empty()) uses.emplace(std::pair{n, i}, std::move(found[u]));
        for (std::size_t o = 0; o < net.outputs.size(); ++o, ++u)
            if (!found[u].changes.empty()) outputs.emplace(o, std::move(found[u]));
    }

  private:
    /// Returns whether every element of a value was moved only, from values that `what` rounded: rounding them again changes nothing.
    bool is_rounded(int value, const quantizers& what, const precision_plan& plan) const {
        const int producer = producer_[static_cast<std::size_t>(value)];
        if (producer < 0 || what.size() != 1) return false;
        const execute::net_node& node = net_->nodes[static_cast<std::size_t>(producer)];
        if (kind_of(node.view.proto()) != layer_kind::mover) return false;
        const quantizer& q = *what[0];
        const bool one_scale = !is_block_format(q.format) && q.scale.size() <= 1 && q.block_size == 0 && !q.dynamic;
        const op_facts& is = facts_of(node.view.proto());
        const bool keeps_blocks = is.has(ops::reshapes) || is.has(ops::repeats);
        if (!one_scale && !(keeps_blocks && is_block_format(q.format))) return false;
        const std::size_t moved = is.has(ops::joins) ? node.inputs.size() : 1;
        for (std::size_t i = 0; i < moved; ++i) {
            const execute::net_input& use = node.inputs[i];
            if (use.value < 0 || (!same(at_use(plan, use), what) && !is_rounded(use.value, what, plan))) return false;
        }
        return true;
    }

    void add(changed_use& u, const execute::net_input& use, std::size_t p, const precision_plan& base, const precision_plan& plan) {
        if (use.value < 0) return;
        u.base = at_use(base, use);
        quantizers what = at_use(plan, use);
        if (same(what, u.base) || is_rounded(use.value, what, plan)) return;
        auto known = std::find_if(u.changes.begin(), u.changes.end(), [&](const change& c) { return same(c.what, what); });
        if (known == u.changes.end()) {
            for (const quantizer*& q : what) q = &owned_.emplace_back(*q);  // the plan is a temporary
            known = u.changes.insert(known, {std::move(what), count++});
        }
        by_plan[p].push_back(known->number);
    }

    std::deque<quantizer> owned_;  ///< the quantizers of changes
    const execute::network* net_;
    std::vector<int> producer_;  ///< by value
};

/// Returns whether a node is linear in its input 1 once its bias is left out. Then its result for an error of its weights is the error of
/// its result: the node runs once with each error, and no pass has to find the weights' gradient.
bool is_linear_in_weights(const execute::net_node& node) { return product_axes_of(node.view.proto()).has_value(); }

double inner_product(const tensor& a, const tensor& b) {
    double sum = 0;
    const auto of = [&]<class T>(T) {
        const tensor x = gradient::as_real<T>(a), y = gradient::as_real<T>(b);
        const T *p = std::as_const(x).as<T>().data(), *q = std::as_const(y).as<T>().data();
        constexpr std::size_t run = 256;  // sums are in the values' type within a run, in double over runs
        for (std::size_t i = 0; i < x.size(); i += run) sum += static_cast<double>(ops::dot(p + i, q + i, std::min(run, x.size() - i)));
    };
    a.type() == data_type::float64 ? of(double{}) : of(float{});
    return sum;
}

/// Returns a - b in float32, in the memory of `a` if nobody else holds it.
tensor difference(tensor a, const tensor& b) {
    const tensor x = gradient::as_real<float>(a), y = gradient::as_real<float>(b);
    a = tensor();
    tensor d = x.buffer().use_count() == 1 ? x : tensor(data_type::float32, x.shape());
    const float *p = std::as_const(x).as<float>().data(), *q = std::as_const(y).as<float>().data();
    float* to = d.as<float>().data();
    for (std::size_t i = 0; i < d.size(); ++i) to[i] = p[i] - q[i];
    return d;
}

/// Sums <g, e> for every change and pass during the walk over a tape.
class change_probe final : public gradient::edge_visitor {
  public:
    change_probe(const execute::network& net, const change_table& table,
                 const std::map<std::pair<std::size_t, std::size_t>, std::vector<tensor>>& errors, const values_under& rounded,
                 std::size_t passes)
        : net_(&net), table_(&table), errors_(&errors), rounded_(&rounded), found(table.count, std::vector<double>(passes, 0.0)) {}

    void at_node(const gradient::tape& t, std::size_t node, std::span<const std::vector<tensor>> gradients) override {
        const auto use = table_->uses.find({node, 1});
        const execute::net_node& n = net_->nodes[node];
        if (use == table_->uses.end() || !use->second.at_node) return;
        for (std::size_t c = 0; c < use->second.changes.size(); ++c) {
            const std::vector<tensor> in{t.read[node][0], error_of({node, 1}, use->second, c, t.read[node][1])};
            std::vector<tensor> out(1);
            gradient::run_forward(n, in, out);
            take(use->second.changes[c].number, gradients[0], out[0]);
        }
    }

    void backward(std::size_t node, std::size_t input, const tensor& value, std::span<tensor> gradients) override {
        const auto use = table_->uses.find({node, input});
        if (use != table_->uses.end() && !use->second.at_node)
            for (std::size_t c = 0; c < use->second.changes.size(); ++c)
                take(use->second.changes[c].number, gradients, error_of({node, input}, use->second, c, value));
        if (!constant_of(node, input).empty())
            for (tensor& g : gradients) g = tensor();  // not needed any more
    }

    bool ends_at(std::size_t node) override {
        ends.push_back(node);
        return true;
    }

    const tensor& constant_of(std::size_t node, std::size_t input) const {
        return net_->values[static_cast<std::size_t>(net_->nodes[node].inputs[input].value)].constant;
    }
    /// Returns the error that a change puts into a value: stored for small constants, else computed now.
    tensor error_of(const std::pair<std::size_t, std::size_t>& where, const changed_use& use, std::size_t c, const tensor& value) const {
        if (const auto known = errors_->find(where); known != errors_->end()) return known->second[c];
        const std::string& name = net_->values[static_cast<std::size_t>(net_->nodes[where.first].inputs[where.second].value)].name;
        return difference(quantized(use.changes[c].what, under(*rounded_, name, use.changes[c].what, value)),
                          quantized(use.base, under(*rounded_, name, use.base, value)));
    }

    void take(std::size_t number, std::span<const tensor> gradients, const tensor& e) {
        for (std::size_t p = 0; p < gradients.size(); ++p)
            if (!gradients[p].empty()) found[number][p] += inner_product(gradients[p], e);
    }

  private:
    const execute::network* net_;
    const change_table* table_;
    const std::map<std::pair<std::size_t, std::size_t>, std::vector<tensor>>* errors_;
    const values_under* rounded_;

  public:
    std::vector<std::vector<double>> found;  ///< by change, then pass
    std::vector<std::size_t> ends;           ///< nodes without a product at which gradients ended
};

class estimation {
  public:
    estimation(const model& m, const named_tensors& inputs, const precision_plan& base, const plan_list& plans,
               const estimate_options& options)
        : runs_(m, inputs, options.threads, options.output_index), table_(runs_.net(), base, plans), options_(options) {
        const execute::network& net = runs_.net();
        roots_.assign(net.values.size(), 0);
        for (std::size_t i = 0; i < net.inputs.size(); ++i)
            roots_[static_cast<std::size_t>(net.inputs[i])] = gradient::is_real(runs_.data.inputs[i].type());
        const std::vector<char> constants = gradient::from_constants(net);
        if (!std::all_of(runs_.data.inputs.begin(), runs_.data.inputs.end(), [](const tensor& t) { return gradient::is_real(t.type()); }))
            gradient::add_roots_behind_constants(net, constants, roots_);
        const std::size_t passes = gradient::probe_count(options.passes, runs_.cut.runs, std::numeric_limits<std::size_t>::max());
        // Beside many backward passes it costs little to run a stretch of the forward pass again.
        if (options.memory == 0 && passes >= 8) limit_ = std::min(limit_, most_recorded);
        const auto constant_of = [&](const std::pair<std::size_t, std::size_t>& where) -> const tensor& {
            return net.values[static_cast<std::size_t>(net.nodes[where.first].inputs[where.second].value)].constant;
        };
        std::size_t held = 0, all = 0;
        for (const auto& [where, use] : table_.uses)
            if (const tensor& constant = constant_of(where); !constant.empty()) all += use.changes.size() * constant.size() * sizeof(float);
        for (auto& [where, use] : table_.uses) {
            const execute::net_node& node = net.nodes[where.first];
            const auto v = static_cast<std::size_t>(node.inputs[where.second].value);
            const tensor& constant = constant_of(where);
            const bool is_input = std::find(net.inputs.begin(), net.inputs.end(), static_cast<int>(v)) != net.inputs.end();
            if (constants[v] == 0 && !is_input) roots_[v] = 1;  // an activation, perhaps made of token numbers alone
            if (constants[v] == 0 || (!constant.empty() && !gradient::is_real(constant.type()))) continue;
            use.at_node = where.second == 1 && is_linear_in_weights(node) && use.changes.size() <= passes;
            if (!use.at_node) roots_[v] = 1;
            if (constant.empty()) continue;
            // The errors of all weights are as large as the weights, once for each format: for large models they are computed for each
            // sample.
            held += use.changes.size() * element_count(constant.shape()) * sizeof(float);
            if (held > (all > most_held ? most_of_large : most_held)) continue;
            const auto as = [&](const quantizers& what) {
                return quantized(what, under(options_.rounded, net.values[v].name, what, constant));
            };
            const tensor as_base = as(use.base);
            for (const change& c : use.changes) errors_[where].push_back(difference(as(c.what), as_base));
        }
    }

    change_estimates run() {
        const auto start = std::chrono::steady_clock::now();
        std::vector<one_run> done(runs_.cut.runs);
        runs_.for_each(done.size(), [&](std::size_t i) { done[i] = run_one(i); });
        change_estimates result;
        result.samples = runs_.cut.samples;
        result.passes = static_cast<int>(done[0].passes);
        result.values = done[0].values;
        const double n = static_cast<double>(done.size());
        std::set<std::size_t> ends;
        for (const one_run& r : done) {
            result.power += r.power / n;
            ends.insert(r.ends.begin(), r.ends.end());
        }
        const std::vector<char> behind = gradient::nodes_behind(runs_.net(), static_cast<std::size_t>(runs_.output), ends);
        std::vector<char> unknown(table_.count, 0);
        for (const auto& [where, use] : table_.uses)
            for (const change& c : use.changes) unknown[c.number] = behind[where.first];
        for (std::size_t p = 0; p < table_.by_plan.size(); ++p) {
            double added = 0, variance = 0;
            for (const one_run& r : done) {
                added += r.added[p] / n;
                variance += r.variance[p] / (n * n);
            }
            result.added.push_back(added);
            result.standard_error.push_back(std::sqrt(variance));
            const auto& changes = table_.by_plan[p];
            result.unknown.push_back(std::any_of(changes.begin(), changes.end(), [&](std::size_t c) { return unknown[c] != 0; }));
        }
        result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        return result;
    }

  private:
    struct one_run {
        std::vector<double> added, variance;  ///< by plan
        std::vector<std::size_t> ends;        ///< nodes
        double power = 0;
        std::size_t passes = 0, values = 0;
    };

    one_run run_one(std::size_t run) {
        const execute::network& net = runs_.net();
        gradient::tape t = gradient::record(net, runs_.runner.inputs_of(runs_.data, runs_.cut, run), roots_, nullptr, limit_);
        const auto chosen = static_cast<std::size_t>(runs_.output);
        const tensor y = t.values[static_cast<std::size_t>(net.outputs[chosen].value)];
        const tensor wide = gradient::as_real<double>(y);
        one_run r;
        r.values = y.size();
        r.passes = gradient::probe_count(options_.passes, runs_.cut.runs, r.values);
        if (r.values == 0) throw error("output '" + runs_.output_name + "' has no values");
        const double n = static_cast<double>(r.values), rows = static_cast<double>(runs_.samples_of(run));
        for (const double v : wide.as<double>()) r.power += v * v / n;

        const bool divergence = options_.form == estimated_form::divergence;
        std::vector<std::vector<tensor>> seeds;
        // Seeds have the type in which they are walked back, and each is freed afterwards: with a large vocabulary they are larger than all
        // else.
        const bool in_doubles = y.type() == data_type::float64 || table_.outputs.contains(chosen);
        const gradient::probe_choice choice{r.passes, runs_.samples_of(run), divergence, options_.seed, run};
        gradient::each_probe(wide, choice, [&](std::span<const double> vector) {
            std::vector<tensor> seed(net.outputs.size());
            if (in_doubles) {
                seed[chosen] = make_tensor<double>(y.shape(), vector);
            } else {
                seed[chosen] = tensor(data_type::float32, y.shape());
                std::transform(vector.begin(), vector.end(), seed[chosen].as<float>().begin(),
                               [](double v) { return static_cast<float>(v); });
            }
            seeds.push_back(std::move(seed));
        });
        change_probe probe(net, table_, errors_, options_.rounded, r.passes);
        if (const auto own = table_.outputs.find(chosen); own != table_.outputs.end()) {
            const tensor base = quantized(own->second.base, y);
            std::vector<tensor> by_pass;
            for (const auto& s : seeds) by_pass.push_back(s[chosen]);
            for (const change& c : own->second.changes) probe.take(c.number, by_pass, difference(quantized(c.what, y), base));
        }
        static_cast<void>(gradient::walk_back(net, std::move(t), std::move(seeds), &probe));
        r.ends = std::move(probe.ends);

        // Squared error: mean over the output's values. Divergence: half the form of Fisher, mean over samples.
        const double scale = n / static_cast<double>(r.passes) * (options_.form == estimated_form::divergence ? 0.5 / rows : 1 / n);
        for (const std::vector<std::size_t>& changes : table_.by_plan) {
            double squares = 0, fourth = 0;
            for (std::size_t p = 0; p < r.passes; ++p) {
                double a = 0;
                for (const std::size_t c : changes) a += probe.found[c][p];
                squares += a * a;
                fourth += a * a * a * a;
            }
            r.added.push_back(scale * squares);
            // If a is normal with variance s^2, a^2 has the variance 2 s^4, which 2/3 a^4 estimates. With all vectors the result is exact.
            r.variance.push_back(scale * scale * fourth * 2 / 3 * (1 - static_cast<double>(r.passes) / n));
        }
        return r;
    }

    static constexpr std::size_t most_held = std::size_t{512} << 20;      ///< bytes of errors that are computed once, if these are all
    static constexpr std::size_t most_of_large = std::size_t{64} << 20;   ///< the same for models with more
    static constexpr std::size_t most_recorded = std::size_t{256} << 20;  ///< bytes of a forward pass with many backward passes

    gradient::sample_runs runs_;
    change_table table_;
    estimate_options options_;
    std::size_t limit_ = gradient::tape_limit(options_.memory, runs_.runner.pool.threads());
    std::vector<char> roots_;
    std::map<std::pair<std::size_t, std::size_t>, std::vector<tensor>> errors_;  ///< errors of constants, by use, then change
};

}  // namespace

change_estimates estimate_changes(const model& m, const named_tensors& inputs, const precision_plan& base,
                                  std::span<const precision_plan> plans, const estimate_options& options) {
    return estimate_changes(m, inputs, base, {plans.size(), [&](std::size_t p) { return plans[p]; }}, options);
}

change_estimates estimate_changes(const model& m, const named_tensors& inputs, const precision_plan& base, const plan_list& plans,
                                  const estimate_options& options) {
    return estimation(m, inputs, base, plans, options).run();
}

}  // namespace qk::graph
