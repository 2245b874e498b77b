// SPDX-License-Identifier: Apache-2.0
// Definitions of traces.hpp.
#include "graph/gradient/traces.hpp"

#include <map>

#include "graph/gradient/backward.hpp"
#include "graph/gradient/probes.hpp"
#include "graph/gradient/sample_runs.hpp"
#include "graph/gradient/tape.hpp"

namespace qk::graph {
namespace {

/// Sums the squares of the gradients by weights over passes; the gradients themselves are dropped.
class square_probe final : public gradient::edge_visitor {
  public:
    square_probe(const execute::network& net, const std::map<std::size_t, std::size_t>& layers)
        : net_(&net), layers_(&layers), found(layers.size(), 0.0) {}

    void backward(std::size_t node, std::size_t input, const tensor&, std::span<tensor> gradients) override {
        const int v = net_->nodes[node].inputs[input].value;
        if (net_->values[static_cast<std::size_t>(v)].constant.empty()) return;
        const auto layer = layers_->find(node);
        for (tensor& g : gradients) {
            if (layer != layers_->end() && input == 1 && !g.empty()) {
                const tensor wide = gradient::as_real<double>(g);
                for (const double x : wide.as<double>()) found[layer->second] += x * x;
            }
            g = tensor();
        }
    }

  private:
    const execute::network* net_;
    const std::map<std::size_t, std::size_t>* layers_;  ///< by node: the index of its layer

  public:
    std::vector<double> found;  ///< by layer
};

}  // namespace

std::vector<double> average_hessian_traces(const model& m, const named_tensors& inputs, std::span<const std::string> layers,
                                           const estimate_options& options) {
    gradient::sample_runs runs(m, inputs, options.threads, options.output_index);
    const execute::network& net = runs.net();
    std::map<std::size_t, std::size_t> by_node;
    std::vector<char> roots(net.values.size(), 0);
    std::vector<double> size(layers.size(), 0.0);
    for (std::size_t v = 0; v < net.inputs.size(); ++v)
        roots[static_cast<std::size_t>(net.inputs[v])] = gradient::is_real(runs.data.inputs[v].type());
    for (std::size_t l = 0; l < layers.size(); ++l)
        for (std::size_t n = 0; n < net.nodes.size(); ++n) {
            const execute::net_node& node = net.nodes[n];
            if (node.view.name() != layers[l] || node.inputs.size() < 2 || node.inputs[1].value < 0) continue;
            const auto v = static_cast<std::size_t>(node.inputs[1].value);
            if (!gradient::is_real(net.values[v].constant.type())) continue;
            roots[v] = 1;
            by_node[n] = l;
            size[l] = static_cast<double>(net.values[v].constant.size());
        }
    std::map<std::size_t, std::size_t> place;  // by node: its index among the nodes found
    for (const auto& [n, l] : by_node) place.emplace(n, place.size());

    const std::size_t limit = gradient::tape_limit(options.memory, runs.runner.pool.threads());
    std::vector<std::vector<double>> done(runs.cut.runs);
    const auto chosen = static_cast<std::size_t>(runs.output);
    runs.for_each(done.size(), [&](std::size_t run) {
        gradient::tape t = gradient::record(net, runs.runner.inputs_of(runs.data, runs.cut, run), roots, nullptr, limit);
        const tensor y = t.values[static_cast<std::size_t>(net.outputs[chosen].value)];
        const std::size_t passes = gradient::probe_count(options.passes, runs.cut.runs, y.size());
        std::vector<std::vector<tensor>> seeds;
        const gradient::probe_choice choice{passes, runs.samples_of(run), true, options.seed, run};
        gradient::each_probe(gradient::as_real<double>(y), choice, [&](std::span<const double> v) {
            std::vector<tensor> seed(net.outputs.size());
            seed[chosen] = make_tensor<double>(y.shape(), v);
            seeds.push_back(std::move(seed));
        });
        square_probe probe(net, place);
        static_cast<void>(gradient::walk_back(net, std::move(t), std::move(seeds), &probe));
        const double scale = static_cast<double>(y.size()) / static_cast<double>(passes) / static_cast<double>(runs.cut.samples);
        for (double& s : probe.found) s *= scale;
        done[run] = std::move(probe.found);
    });
    std::vector<double> traces(layers.size(), 0.0);
    for (const auto& [n, l] : by_node)
        for (const auto& one : done) traces[l] += one[place.at(n)] / size[l];
    return traces;
}

}  // namespace qk::graph
