// SPDX-License-Identifier: Apache-2.0
// The product of a composite operator: its body (graph/ops/body.hpp) is recorded on a tape of its own and walked back over.
#include <memory>

#include "graph/gradient/backward.hpp"
#include "graph/gradient/bodies.hpp"
#include "graph/ops/body.hpp"

namespace qk::graph::gradient {
namespace {

/// Returns a value as products by hand read it: half precision is widened.
tensor in_gradient_type(const tensor& t) {
    if (!is_real(t.type())) return t;
    return gradient_type(t.type()) == data_type::float64 ? as_real<double>(t) : as_real<float>(t);
}

class recorded_body {
  public:
    explicit recorded_body(const backward_call& call) : body_(call.node(), call.row()) {
        const auto values = static_cast<std::size_t>(body_.values());
        net_.values.resize(values);
        for (const ops::op_body::node& n : body_.nodes()) {
            execute::net_node& to = net_.nodes.emplace_back(execute::net_node{n.view, n.op, {}, n.outputs, {}});
            for (const int v : n.inputs) to.inputs.push_back({v, {}});
        }
        std::vector<tensor> inputs;
        std::vector<char> roots(values, 0);
        for (std::size_t i = 0; i < call.input_count(); ++i) {
            if (!call.has_input(i)) continue;
            net_.inputs.push_back(static_cast<int>(i));
            inputs.push_back(in_gradient_type(call.input(i)));
            roots[i] = call.wants(i);
        }
        for (std::size_t k = 0; k < call.output_count(); ++k)
            if (const int v = body_.output(k); v >= 0) net_.outputs.push_back({v, {}});
        tape_ = record_graph(net_, inputs, roots, nullptr, no_limit, false, {});
    }

    void back(backward_call& call) const {
        std::vector<tensor> seeds;
        for (std::size_t k = 0; k < call.output_count(); ++k) {
            if (body_.output(k) >= 0) seeds.push_back(call.has_gradient(k) ? call.gradient(k) : tensor());
            else if (call.has_gradient(k)) call.fail("a gradient through output " + std::to_string(k) + " is not supported");
        }
        const std::vector<tensor> given = walk_back(net_, tape_, seeds);
        for (std::size_t i = 0; i < call.input_count(); ++i)
            if (call.wants(i) && !given[i].empty()) call.give(i, given[i]);
    }

  private:
    ops::op_body body_;
    execute::network net_;
    tape tape_;
};

}  // namespace

void through_body(backward_call& call) {
    call.once<std::shared_ptr<recorded_body>>([&] { return std::make_shared<recorded_body>(call); })->back(call);
}

}  // namespace qk::graph::gradient
