// SPDX-License-Identifier: Apache-2.0
// Definitions of tape.hpp.
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "graph/evaluate/execute/network.hpp"
#include "graph/gradient/backward.hpp"
#include "graph/gradient/bodies.hpp"
#include "graph/gradient/checkpoints.hpp"
#include "graph/gradient/fast_convolution.hpp"
#include "graph/gradient/ops/quantization.hpp"
#include "graph/gradient/tape.hpp"
#include "graph/ops/conv.hpp"
#include "graph/ops/matmul.hpp"
#include "graph/ops/op.hpp"

namespace qk::graph::gradient {

// Multiplies the gradients of several passes by weights at once: as rows of one matrix, so that weights are read and packed once for all
// passes and not once for each.

/// Is true if only the gradient by input 0 is wanted and the node multiplies its rows by a matrix: MatMul, or Gemm with alpha 1 and without
/// transA.
inline bool multiplies_rows(const execute::net_node& node, std::span<const tensor> read, std::span<const char> wanted) {
    const auto axes = product_axes_of(node.view.proto());
    if (!axes || axes->windows || read.size() < 2) return false;
    for (std::size_t i = 0; i < wanted.size(); ++i)
        if ((wanted[i] != 0) != (i == 0)) return false;
    if (read[0].rank() < 2 || read[1].rank() != 2 || read[0].size() == 0 || read[1].size() == 0) return false;
    return axes->sums != 0 && node.view.get_float("alpha", 1.0f) == 1.0f;
}

/// Writes to `given`, by pass, the gradients by input 0. `gradients`, those of the result, are freed as they are read; for empty ones
/// nothing is written.
template <class T>
void rows_through_weights(const execute::net_node& node, const tensor& x, const tensor& weights, std::span<tensor> gradients,
                          std::span<tensor> given) {
    const bool turned = product_axes_of(node.view.proto())->in == 1;
    const tensor w = as_real<T>(weights);
    const std::int64_t n = w.dim(!turned), k = w.dim(turned);
    constexpr std::size_t most_bytes = std::size_t{16} << 20;  // bytes of gradients that are copied into one matrix
    for (std::size_t first = 0; first < gradients.size();) {
        std::vector<std::size_t> taken;
        std::size_t bytes = 0;
        for (; first < gradients.size() && (taken.empty() || bytes + gradients[first].size_bytes() <= most_bytes); ++first) {
            if (gradients[first].empty()) continue;
            taken.push_back(first);
            bytes += gradients[first].size_bytes();
        }
        if (taken.empty()) return;
        const std::int64_t rows = static_cast<std::int64_t>(x.size()) / k, all = rows * static_cast<std::int64_t>(taken.size());
        tensor together = gradients[taken[0]];
        if (taken.size() > 1) {
            together = tensor(type_of<T>, {all, n});
            std::byte* to = together.bytes();
            for (const std::size_t p : taken) {
                std::memcpy(to, std::as_const(gradients[p]).bytes(), gradients[p].size_bytes());
                to += gradients[p].size_bytes();
            }
        }
        for (const std::size_t p : taken) gradients[p] = tensor();
        tensor result(type_of<T>, {all, k});
        ops::multiply(std::as_const(together).as<T>().data(), false, w.as<T>().data(), !turned, result.as<T>().data(), all, k, n);
        const std::size_t size = x.size() * sizeof(T);
        for (std::size_t i = 0; i < taken.size(); ++i) {
            tensor& g = given[taken[i]] = tensor(type_of<T>, x.shape());
            std::memcpy(g.bytes(), std::as_const(result).bytes() + i * size, size);
        }
    }
}

/// Calls the function above with the element type of the gradients.
inline void rows_through_weights(const execute::net_node& node, std::span<const tensor> read, std::span<tensor> gradients,
                                 std::span<tensor> given) {
    for (const tensor& g : gradients) {
        if (g.empty()) continue;
        return g.type() == data_type::float64 ? rows_through_weights<double>(node, read[0], read[1], gradients, given)
                                              : rows_through_weights<float>(node, read[0], read[1], gradients, given);
    }
}

namespace {

/// Returns `g` in the type that gradients of values of `type` have.
tensor in_type(const tensor& g, data_type type) {
    return gradient_type(type) == data_type::float64 ? as_real<double>(g) : as_real<float>(g);
}

product_function product_of(const execute::net_node& node) {
    return find_backward(node.view.proto().domain(), node.view.op_type(), node.view.version());
}

/// Returns whether a gradient can flow to `output` of a node that has an active input.
bool carries_gradient(const execute::net_node& node, const tape& t, const tensor& output) {
    if (is_real(output.type())) return true;
    if (facts_of(node.view.proto()).has(ops::on_codes)) return true;
    // Codes that are only moved carry their gradient on.
    const int first = node.inputs.empty() ? -1 : node.inputs[0].value;
    return first >= 0 && t.active[static_cast<std::size_t>(first)] != 0 &&
           t.values[static_cast<std::size_t>(first)].type() == output.type() && product_of(node) != nullptr;
}

/// Runs a Conv of floats by oneDNN and returns true if that is fast for its shapes.
bool convolved(const execute::net_node& node, std::span<const tensor> in, tensor& y) {
    if (const auto axes = product_axes_of(node.view.proto()); !axes || !axes->windows || axes->transposed || in.size() < 2) return false;
    const bool biased = in.size() > 2 && !in[2].empty();
    for (std::size_t i = 0; i < (biased ? 3 : 2); ++i)
        if (in[i].type() != data_type::float32) return false;
    const std::int64_t group = node.view.get_int("group", 1);
    const ops::window w = ops::check_conv(node.view, in[0].shape(), in[1].shape(), biased ? &in[2] : nullptr, group);
    const auto way = fast_convolution::find(w, in[0].shape(), in[1].shape(), group);
    if (way == nullptr || !way->has_forward()) return false;
    y = tensor(data_type::float32, ops::image_shape(in[0].dim(0), in[1].dim(0), w.output));
    const auto of = [&](std::size_t i) { return in[i].as<float>().data(); };
    way->forward(of(0), of(1), biased ? of(2) : nullptr, y.as<float>().data());
    return true;
}

/// Returns the gradients of a node's inputs; `outputs` are those of its outputs.
std::vector<tensor> through_node(const execute::net_node& node, const tape& t, std::size_t number, std::span<const tensor> outputs,
                                 std::span<const char> wanted, std::any& kept) {
    const product_function product = product_of(node);
    if (product == nullptr)
        node.view.fail("no vector-Jacobian product for operator " +
                       (node.view.proto().domain().empty() ? std::string() : node.view.proto().domain() + ".") +
                       node.view.proto().op_type() + ", through which a gradient has to flow");
    std::vector<tensor> made, given(node.inputs.size());
    for (const int o : node.outputs) made.push_back(o < 0 ? tensor() : t.values[static_cast<std::size_t>(o)]);
    backward_call call(node.view, *node.op, t.read[number], made, outputs, wanted, given, &kept);
    try {
        product(call);
    } catch (const error& e) {
        if (std::string_view(e.what()).find("node '") != std::string_view::npos) throw;
        node.view.fail(e.what());
    }
    return given;
}

}  // namespace

void run_forward(const execute::net_node& node, std::span<const tensor> in, std::span<tensor> out) {
    if (!convolved(node, in, out[0]))
        execute::detail::call_node(node, nullptr, in, out, thread_allocator::get(), execute::detail::no_subgraphs());
}

void accumulate(tensor& sum, const tensor& g) {
    if (sum.empty()) {
        sum = g;
        return;
    }
    if (sum.buffer().use_count() > 1) {  // the buffer is shared
        tensor own(sum.type(), sum.shape());
        if (sum.size_bytes() != 0) std::memcpy(own.bytes(), std::as_const(sum).bytes(), sum.size_bytes());
        sum = own;
    }
    const auto add = [&]<class T>(T) {
        const tensor other = as_real<T>(g);
        const T* from = other.as<T>().data();
        T* to = sum.as<T>().data();
        for (std::size_t i = 0; i < sum.size(); ++i) to[i] += from[i];
    };
    sum.type() == data_type::float64 ? add(double{}) : add(float{});
}

namespace {

/// Records what a node reads. Returns whether a gradient can flow to any of it.
bool read_inputs(const execute::network& net, std::size_t n, tape& t, edge_visitor* visitor) {
    const execute::net_node& node = net.nodes[n];
    std::vector<tensor>& in = t.read[n];
    in.clear();
    bool any = false;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        const int v = node.inputs[i].value;
        in.push_back(v < 0 ? tensor() : t.values[static_cast<std::size_t>(v)]);
        if (v >= 0) any = any || t.active[static_cast<std::size_t>(v)] != 0;
        if (visitor != nullptr && v >= 0) in.back() = visitor->forward(n, i, in.back());
    }
    return any;
}

std::vector<tensor> run_node(const execute::network& net, std::size_t n, tape& t, bool own_constants) {
    const execute::net_node& node = net.nodes[n];
    std::vector<tensor> out(node.outputs.size());
    if (node.bodies.empty()) run_forward(node, t.read[n], out);
    else run_bodies(net, n, t, own_constants, t.read[n], out);
    return out;
}

}  // namespace

tape record_graph(const execute::network& net, std::span<const tensor> inputs, std::span<const char> roots, edge_visitor* visitor,
                  std::size_t limit, bool own_constants, std::span<const std::pair<int, tensor>> constants) {
    tape t;
    t.values.resize(net.values.size());
    t.active.assign(net.values.size(), 0);
    t.read.resize(net.nodes.size());
    t.bodies.resize(net.nodes.size());
    if (inputs.size() != net.inputs.size()) throw error("a graph got " + std::to_string(inputs.size()) + " inputs");
    for (std::size_t i = 0; i < inputs.size(); ++i) t.values[static_cast<std::size_t>(net.inputs[i])] = inputs[i];
    for (std::size_t v = 0; v < net.values.size(); ++v) {
        if (!net.values[v].constant.empty()) t.values[v] = net.values[v].constant;
        t.active[v] = roots[v];
    }
    for (const auto& [v, value] : constants) t.values[static_cast<std::size_t>(v)] = value;
    stretch_keeper keeper(net, t, limit);
    for (std::size_t n = 0; n < net.nodes.size(); ++n) {
        const execute::net_node& node = net.nodes[n];
        const bool inner = !node.bodies.empty();
        const bool any = read_inputs(net, n, t, visitor);
        std::vector<tensor> out = run_node(net, n, t, own_constants);
        bool flows = false;
        for (std::size_t k = 0; k < out.size(); ++k) {
            if (node.outputs[k] < 0) continue;
            const auto v = static_cast<std::size_t>(node.outputs[k]);
            t.active[v] =
                inner ? body_output_active(node, n, t, k) : (any || roots[v] != 0) && !out[k].empty() && carries_gradient(node, t, out[k]);
            flows = flows || t.active[v] != 0;
            t.values[v] = std::move(out[k]);
        }
        if (inner && !flows) t.bodies[n] = {};
        if (!any && !flows && !inner) t.read[n].clear();  // no product will read them
        keeper.after(n);
    }
    return t;
}

tape record(const execute::network& net, std::span<const tensor> inputs, std::span<const char> roots, edge_visitor* visitor,
            std::size_t limit) {
    return record_graph(net, inputs, roots, visitor, limit, visitor != nullptr && visitor->wants_bodies(), {});
}

void rerun_node(const execute::network& net, std::size_t number, tape& t, edge_visitor* visitor) {
    const execute::net_node& node = net.nodes[number];
    read_inputs(net, number, t, visitor);
    bool held = node.bodies.empty() || t.bodies[number].graph != nullptr;
    for (const int o : node.outputs) held = held && (o < 0 || !t.values[static_cast<std::size_t>(o)].empty());
    if (held) return;
    std::vector<tensor> out = run_node(net, number, t, visitor != nullptr && visitor->wants_bodies());
    for (std::size_t k = 0; k < out.size(); ++k)
        if (node.outputs[k] >= 0) t.values[static_cast<std::size_t>(node.outputs[k])] = std::move(out[k]);
}

std::vector<tensor> walk_back(const execute::network& net, const tape& t, std::span<const tensor> seeds, edge_visitor* visitor) {
    const std::vector<tensor> one(seeds.begin(), seeds.end());
    return std::move(walk_back(net, t, std::span(&one, 1), visitor)[0]);
}

namespace {

/// Returns the seeds as gradients of the values that are outputs.
std::vector<tensor> seeded_gradients(const execute::network& net, const tape& t, const std::vector<tensor>& seeds) {
    std::vector<tensor> gradients(net.values.size());
    for (std::size_t k = 0; k < seeds.size(); ++k) {
        if (seeds[k].empty()) continue;
        const auto v = static_cast<std::size_t>(net.outputs[k].value);
        if (t.active[v] == 0) continue;
        if (seeds[k].size() != t.values[v].size()) throw error("a gradient of an output does not have its shape");
        accumulate(gradients[v], in_type(seeds[k].reshaped(t.values[v].shape()), t.values[v].type()));
    }
    return gradients;
}

/// Walks back over one node; `gradients` are by pass, then value.
void walk_node(const execute::network& net, const tape& t, std::size_t n, std::vector<std::vector<tensor>>& gradients,
               edge_visitor* visitor) {
    const execute::net_node& node = net.nodes[n];
    const std::size_t passes = gradients.size();
    std::vector<std::vector<tensor>> outputs(node.outputs.size(), std::vector<tensor>(passes));  // by output, then pass
    bool any = false;
    for (std::size_t k = 0; k < outputs.size(); ++k)
        for (std::size_t p = 0; node.outputs[k] >= 0 && p < passes; ++p) {
            outputs[k][p] = std::exchange(gradients[p][static_cast<std::size_t>(node.outputs[k])], tensor());
            any = any || !outputs[k][p].empty();
        }
    if (!any) return;
    if (visitor != nullptr) visitor->at_node(t, n, outputs);
    std::vector<char> wanted(node.inputs.size(), 0);
    bool wants = !node.bodies.empty();
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        const int v = node.inputs[i].value;
        wanted[i] = v >= 0 && t.active[static_cast<std::size_t>(v)] != 0;
        wants = wants || wanted[i] != 0;
    }
    if (!wants || (node.bodies.empty() && visitor != nullptr && product_of(node) == nullptr && visitor->ends_at(n))) return;
    std::vector<std::vector<tensor>> given(node.inputs.size(), std::vector<tensor>(passes));  // by input, then pass
    std::any kept;
    const bool together = passes > 1 && multiplies_rows(node, t.read[n], wanted);
    if (together) rows_through_weights(node, t.read[n], outputs[0], given[0]);
    for (std::size_t p = 0; !together && p < passes; ++p) {
        std::vector<tensor> of_pass;
        bool flows = false;
        for (auto& o : outputs) {
            of_pass.push_back(std::move(o[p]));
            flows = flows || !of_pass.back().empty();
        }
        if (!flows) continue;
        std::vector<tensor> in = node.bodies.empty() ? through_node(node, t, n, of_pass, wanted, kept)
                                                     : through_bodies(net, n, t, of_pass, gradients[p], visitor);
        for (std::size_t i = 0; i < in.size(); ++i)
            if (!in[i].empty() && wanted[i] != 0)
                given[i][p] = in_type(in[i], t.values[static_cast<std::size_t>(node.inputs[i].value)].type());
    }
    for (std::size_t i = 0; i < given.size(); ++i) {
        if (wanted[i] == 0) continue;
        const auto v = static_cast<std::size_t>(node.inputs[i].value);
        if (visitor != nullptr) visitor->backward(n, i, t.values[v], given[i]);
        for (std::size_t p = 0; p < passes; ++p)
            if (!given[i][p].empty()) accumulate(gradients[p][v], std::exchange(given[i][p], tensor()));
    }
}

/// Walks back over all nodes. `used_up` and `used_seeds` are the tape and the seeds if nobody needs them afterwards, else null.
std::vector<std::vector<tensor>> walk(const execute::network& net, const tape& t, std::span<const std::vector<tensor>> seeds,
                                      edge_visitor* visitor, tape* used_up, std::vector<std::vector<tensor>>* used_seeds = nullptr) {
    std::vector<std::vector<tensor>> gradients;
    for (const std::vector<tensor>& pass : seeds) gradients.push_back(seeded_gradients(net, t, pass));
    if (used_seeds != nullptr) used_seeds->clear();
    for (std::size_t n = net.nodes.size(); n-- > 0;) {
        if (used_up != nullptr) recall(net, *used_up, n, visitor);
        walk_node(net, t, n, gradients, visitor);
        if (used_up == nullptr) continue;
        used_up->read[n] = {};
        used_up->bodies[n] = {};
        for (const int o : net.nodes[n].outputs)
            if (o >= 0) used_up->values[static_cast<std::size_t>(o)] = {};
    }
    return gradients;
}

}  // namespace

std::vector<std::vector<tensor>> walk_back(const execute::network& net, const tape& t, std::span<const std::vector<tensor>> seeds,
                                           edge_visitor* visitor) {
    if (t.stretches.empty()) return walk(net, t, seeds, visitor, nullptr);
    tape own = t;  // shares the tensors; what is run again is freed with the copy
    return walk(net, own, seeds, visitor, &own);
}

std::vector<std::vector<tensor>> walk_back(const execute::network& net, tape&& t, std::vector<std::vector<tensor>>&& seeds,
                                           edge_visitor* visitor) {
    return walk(net, t, seeds, visitor, &t, &seeds);
}

}  // namespace qk::graph::gradient
