// SPDX-License-Identifier: Apache-2.0
#include "graph/quantize/float_and_quantized_run.hpp"

#include <algorithm>
#include <utility>

#include "graph/evaluate/execute/quantize_value.hpp"
#include "graph/gradient/backward.hpp"

namespace qk::graph::detail {
namespace {

std::vector<tensor> run_body(const execute::network& net, std::span<const tensor> inputs);

/// Returns a network's values, by index, before its first node runs: its constants and the inputs.
std::vector<tensor> values_before(const execute::network& net, std::span<const tensor> inputs) {
    std::vector<tensor> values(net.values.size());
    for (std::size_t v = 0; v < values.size(); ++v) values[v] = net.values[v].constant;
    for (std::size_t i = 0; i < inputs.size(); ++i) values[static_cast<std::size_t>(net.inputs[i])] = inputs[i];
    return values;
}

std::vector<tensor> inputs_of(const execute::net_node& node, const std::vector<tensor>& values) {
    std::vector<tensor> in;
    for (const execute::net_input& i : node.inputs) in.push_back(i.value < 0 ? tensor() : values[static_cast<std::size_t>(i.value)]);
    return in;
}

/// Returns a function that runs the bodies of an If, Loop or Scan, which a plan does not reach.
op_context::subgraph_runner bodies_of(const execute::net_node& node, const std::vector<tensor>& around) {
    return [&node, &around](const onnx::GraphProto& graph, std::span<const tensor> given) {
        for (const execute::subnetwork& s : node.bodies) {
            if (s.graph != &graph) continue;
            std::vector<tensor> inputs(given.begin(), given.end());
            for (const int v : s.captured) inputs.push_back(around[static_cast<std::size_t>(v)]);
            return run_body(*s.body, inputs);
        }
        throw error("a subgraph that the node does not have");
    };
}

std::vector<tensor> run_body(const execute::network& net, std::span<const tensor> inputs) {
    std::vector<tensor> values = values_before(net, inputs);
    for (const execute::net_node& node : net.nodes) {
        const std::vector<tensor> in = inputs_of(node, values);
        std::vector<tensor> out(node.outputs.size());
        execute::detail::call_node(node, nullptr, in, out, gradient::thread_allocator::get(), bodies_of(node, values));
        for (std::size_t k = 0; k < out.size(); ++k)
            if (node.outputs[k] >= 0) values[static_cast<std::size_t>(node.outputs[k])] = out[k];
    }
    std::vector<tensor> results;
    for (const execute::net_input& o : net.outputs) results.push_back(values[static_cast<std::size_t>(o.value)]);
    return results;
}

}  // namespace

side_by_side::side_by_side(const model& m, const precision_plan& plan, const named_tensors& samples, int threads, std::size_t memory)
    : runs_(m, samples, threads, 0), plan_(&plan), last_(runs_.net().values.size(), 0) {
    const execute::network& net = runs_.net();
    for (std::size_t n = 0; n < net.nodes.size(); ++n) {
        for (const execute::net_input& i : net.nodes[n].inputs)
            if (i.value >= 0) last_[static_cast<std::size_t>(i.value)] = n;
        for (const execute::subnetwork& body : net.nodes[n].bodies)
            for (const int v : body.captured) last_[static_cast<std::size_t>(v)] = n;
    }
    choose_runs(memory);
}

std::vector<tensor> side_by_side::run_node(const execute::net_node& node, const values& own, std::span<const tensor> in) const {
    std::vector<tensor> out(node.outputs.size());
    execute::detail::call_node(node, nullptr, in, out, gradient::thread_allocator::get(), bodies_of(node, own));
    return out;
}

/// Runs one sample in float32 to measure how many bytes are alive at once, and chooses as many runs as fit.
void side_by_side::choose_runs(std::size_t memory) {
    const execute::network& net = runs_.net();
    values own = values_before(net, runs_.runner.inputs_of(runs_.data, runs_.cut, 0));
    std::size_t alive = 0, most = 1;
    for (std::size_t n = 0; n < net.nodes.size(); ++n) {
        const execute::net_node& node = net.nodes[n];
        const std::vector<tensor> in = inputs_of(node, own);
        const std::vector<tensor> out = run_node(node, own, in);
        std::size_t reads = in.empty() ? 0 : in[0].size_bytes();
        for (std::size_t k = 0; k < out.size(); ++k)
            if (node.outputs[k] >= 0) own[static_cast<std::size_t>(node.outputs[k])] = out[k], alive += out[k].size_bytes();
        most = std::max(most, 2 * alive + reads);
        for (std::size_t v = 0; v < own.size(); ++v)
            if (last_[v] == n && !own[v].empty() && net.values[v].constant.empty()) {
                alive -= std::min(alive, own[v].size_bytes());
                own[v] = {};
            }
    }
    const std::size_t all = runs_.cut.runs, taken = std::clamp<std::size_t>(memory / most, 1, all);
    for (std::size_t i = 0; i < taken; ++i) chosen_.push_back(i * all / taken);
}

tensor side_by_side::read_as(const execute::net_input& use, const tensor& value) const {
    tensor read = value;
    for (const edge& e : use.edges)
        if (const quantizer* q = plan_->find(e)) read = execute::quantized(*q, read, false, gradient::thread_allocator::get());
    return read;
}

/// Writes what a node reads to `in`, by run and input. With `constants_alone` it reads only constants again.
void side_by_side::read_inputs(const execute::net_node& node, std::vector<std::vector<tensor>>& in, bool constants_alone) {
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        const int v = node.inputs[i].value;
        if (v < 0) continue;
        const tensor& constant = runs_.net().values[static_cast<std::size_t>(v)].constant;
        if (constants_alone && constant.empty()) continue;
        const tensor once = constant.empty() ? tensor() : read_as(node.inputs[i], constant);
        runs_.runner.pool.for_each(chosen_.size(), [&](std::size_t r, execute::arena&) {
            in[r][i] = constant.empty() ? read_as(node.inputs[i], quantized_[r][static_cast<std::size_t>(v)]) : once;
        });
    }
}

/// Runs a node of the quantized network. Where it reads the same buffers as in the float network, it takes that network's result.
void side_by_side::run_quantized(std::size_t n, const std::vector<std::vector<tensor>>& in, const std::vector<std::vector<tensor>>& plain,
                                 std::vector<std::vector<tensor>>& made) {
    const execute::net_node& node = runs_.net().nodes[n];
    runs_.runner.pool.for_each(chosen_.size(), [&](std::size_t r, execute::arena&) {
        bool same = true;
        for (std::size_t i = 0; i < node.inputs.size(); ++i) {
            const int v = node.inputs[i].value;
            same = same && (v < 0 || in[r][i].buffer() == plain_[r][static_cast<std::size_t>(v)].buffer());
        }
        for (const execute::subnetwork& body : node.bodies)
            for (const int v : body.captured)
                same = same && quantized_[r][static_cast<std::size_t>(v)].buffer() == plain_[r][static_cast<std::size_t>(v)].buffer();
        made[r] = same || execute::is_random(node) ? plain[r] : run_node(node, quantized_[r], in[r]);
    });
}

void side_by_side::walk(const std::function<bool(std::size_t)>& wanted, const std::function<void(const visit&)>& before,
                        const std::function<bool(const visit&, const std::vector<tensor>&)>& after, const progress& report) {
    const execute::network& net = runs_.net();
    for (const std::size_t run : chosen_) plain_.push_back(values_before(net, runs_.runner.inputs_of(runs_.data, runs_.cut, run)));
    quantized_ = plain_;
    for (std::size_t n = 0; n < net.nodes.size(); ++n) {
        const execute::net_node& node = net.nodes[n];
        std::vector<std::vector<tensor>> plain(chosen_.size()), made(chosen_.size());
        runs_.runner.pool.for_each(
            chosen_.size(), [&](std::size_t r, execute::arena&) { plain[r] = run_node(node, plain_[r], inputs_of(node, plain_[r])); });
        std::vector<std::vector<tensor>> in(chosen_.size(), std::vector<tensor>(node.inputs.size()));
        read_inputs(node, in, false);
        visit here{n, &node, {}, {}, {}};
        const bool stops = wanted(n);
        if (stops) {
            for (std::size_t r = 0; r < chosen_.size(); ++r) {
                here.reads.push_back(in[r][0]), here.makes.push_back(plain[r][0]);
                here.unread.push_back(node.inputs[0].value < 0 ? tensor() : quantized_[r][static_cast<std::size_t>(node.inputs[0].value)]);
            }
            before(here);
            read_inputs(node, in, !std::exchange(again_, false));
        }
        run_quantized(n, in, plain, made);
        if (stops && after) {
            std::vector<tensor> outputs;
            for (const auto& m : made) outputs.push_back(m[0]);
            if (after(here, outputs)) {
                read_inputs(node, in, true);
                run_quantized(n, in, plain, made);
            }
        }
        for (std::size_t r = 0; r < chosen_.size(); ++r)
            for (std::size_t k = 0; k < node.outputs.size(); ++k)
                if (node.outputs[k] >= 0) {
                    plain_[r][static_cast<std::size_t>(node.outputs[k])] = plain[r][k];
                    quantized_[r][static_cast<std::size_t>(node.outputs[k])] = made[r][k];
                }
        for (std::size_t v = 0; v < net.values.size(); ++v)
            if (last_[v] <= n && net.values[v].constant.empty())
                for (std::size_t r = 0; r < chosen_.size(); ++r) plain_[r][v] = {}, quantized_[r][v] = {};
        if (report) report(n + 1, net.nodes.size());
    }
    plain_.clear(), quantized_.clear();
}

}  // namespace qk::graph::detail
