// SPDX-License-Identifier: Apache-2.0
// Builds a network from a model: names are resolved once, functions are expanded in place.
#include <algorithm>
#include <map>
#include <unordered_map>

#include "graph/evaluate/execute/network.hpp"
#include "graph/model/bind_attributes.hpp"
#include "graph/model/body_mark.hpp"
#include "graph/model/check.hpp"
#include "graph/ops/portable_call.hpp"
#include "graph/ops/table.hpp"

namespace qk::graph::execute {
namespace detail {

using opset_versions = std::map<std::string, int>;

/// Names visible in a graph or in a function's body.
struct scope {
    network* net = nullptr;
    scope* outer = nullptr;                ///< the scope around a subgraph
    std::vector<int>* captured = nullptr;  ///< where a subgraph notes what it takes from `outer`
    std::string prefix;                    ///< of names inside a function call: "call/"
    bool is_body = false;                  ///< of a function: the names of its nodes have the prefix already
    std::unordered_map<std::string, net_input> names;
    const opset_versions* versions = nullptr;
    int depth = 0;
};

class builder {
  public:
    builder(const model& m, large_constants how)
        : how_(how), most_copied_(m.proto().functions().empty() ? 0 : limits_of_expansion(m.proto()).bytes) {
        for (const auto& f : m.proto().functions()) functions_[function_key(domain_of(f.domain()), f.name(), overload_of(f))] = &f;
        for (const auto& o : m.proto().opset_import()) {
            auto& v = model_versions_[domain_of(o.domain())];
            v = std::max(v, static_cast<int>(o.version()));
        }
    }

    std::unique_ptr<network> build(const onnx::GraphProto& graph) {
        auto net = std::make_unique<network>();
        scope s{.net = net.get(), .prefix = {}, .names = {}, .versions = &model_versions_};
        add_graph(graph, s);
        return net;
    }

  private:
    static std::string domain_of(const std::string& d) { return d == "ai.onnx" ? "" : d; }
    static std::string function_key(const std::string& domain, const std::string& name, const std::string& overload) {
        return domain + ":" + name + ":" + overload;
    }

    static int new_value(network& net, std::string name) {
        net.values.push_back({std::move(name), {}, 0, nullptr});
        return static_cast<int>(net.values.size()) - 1;
    }

    /// Adds a graph's initializers, its other inputs, its nodes and its outputs.
    void add_graph(const onnx::GraphProto& graph, scope& s) {
        if (s.depth > 64) throw error("subgraphs or functions nested more than 64 deep around '" + graph.name() + "'");
        for (const auto& t : graph.initializer()) {
            const int id = new_value(*s.net, t.name());
            net_value& v = s.net->values.back();
            if (how_ == large_constants::late) v.late = source_of(t);
            if (v.late == nullptr) v.constant = to_tensor(t);
            s.names[t.name()] = {id, {}};
        }
        for (const auto& t : graph.sparse_initializer()) {
            const int id = new_value(*s.net, t.values().name());
            s.net->values.back().constant = to_tensor(t);
            s.names[t.values().name()] = {id, {}};
        }
        for (const auto& i : graph.input()) {
            if (s.names.contains(i.name()) && s.outer == nullptr) continue;  // only gives an initializer's type
            const int id = new_value(*s.net, i.name());
            s.names[i.name()] = {id, {}};
            s.net->inputs.push_back(id);
        }
        for (const auto& n : graph.node()) add_node(n, s);
        int number = 0;
        for (const auto& o : graph.output()) {
            net_input use = resolve(o.name(), s);
            if (use.value < 0) throw error("output '" + o.name() + "' of graph '" + graph.name() + "' is made by no node");
            use.edges.push_back({o.name(), "", number++});
            ++s.net->values[static_cast<std::size_t>(use.value)].uses;
            s.net->outputs.push_back(std::move(use));
        }
    }

    /// Returns the value that `name` means here, captured from an outer graph if need be; its value is -1 if the name is unknown.
    static net_input resolve(const std::string& name, scope& s) {
        if (const auto found = s.names.find(name); found != s.names.end()) return found->second;
        if (s.outer == nullptr) return {};
        const net_input outside = resolve(name, *s.outer);
        if (outside.value < 0) return {};
        net_value& there = s.outer->net->values[static_cast<std::size_t>(outside.value)];
        const int id = new_value(*s.net, there.name);
        if (there.is_constant()) {
            s.net->values.back().constant = there.constant;
            s.net->values.back().late = there.late;
        } else {
            ++there.uses;
            s.net->inputs.push_back(id);
            s.captured->push_back(outside.value);
        }
        s.names[name] = {id, outside.edges};
        return s.names[name];
    }

    void add_node(const onnx::NodeProto& proto, scope& s) {
        const std::string domain = domain_of(proto.domain());
        const char* portable = nullptr;
        if (!functions_.empty())
            if (const auto f = functions_.find(function_key(domain, proto.op_type(), overload_of(proto))); f != functions_.end()) {
                portable = is_as_written(*f->second) ? ops::portable_row_of(proto) : nullptr;
                if (portable == nullptr) return add_call(proto, *f->second, s);
            }
        const auto v = s.versions->find(domain);
        const int version = v == s.versions->end() ? 1 : v->second;
        net_node node{node_view(proto, version), find_op(domain, portable != nullptr ? portable : proto.op_type(), version), {}, {}, {}};
        if (node.op == nullptr)
            node.view.fail("operator " + (domain.empty() ? std::string() : domain + ".") + proto.op_type() + " of opset " +
                           std::to_string(version) + " is not supported by the evaluator");
        int index = 0;
        for (const std::string& name : proto.input()) {
            net_input use;
            if (!name.empty()) {
                use = resolve(name, s);
                if (use.value < 0) node.view.fail("input '" + name + "' is made by no earlier node and is no input or initializer");
                use.edges.push_back({s.prefix + name, proto.name(), index});
                if (!s.prefix.empty())
                    for (const edge& e : use.edges) count_copied(sizeof e + e.tensor.size() + e.consumer.size(), proto);
                ++s.net->values[static_cast<std::size_t>(use.value)].uses;
            }
            node.inputs.push_back(std::move(use));
            ++index;
        }
        for (const auto& a : proto.attribute()) {
            if (a.has_g()) add_body(a.g(), node, s);
            for (const auto& g : a.graphs()) add_body(g, node, s);
        }
        for (const std::string& name : proto.output()) {
            int id = -1;
            if (!name.empty()) {
                // A function's formal output already stands for the call's value.
                if (const auto formal = formal_outputs_.find(s.prefix + name); formal != formal_outputs_.end()) id = formal->second;
                else id = new_value(*s.net, s.prefix + name);
                s.names[name] = {id, {}};
            }
            node.outputs.push_back(id);
        }
        s.net->nodes.push_back(std::move(node));
    }

    void add_body(const onnx::GraphProto& graph, net_node& node, scope& s) {
        subnetwork sub;
        sub.graph = &graph;
        sub.body = std::make_unique<network>();
        scope inner{.net = sub.body.get(),
                    .outer = &s,
                    .captured = &sub.captured,
                    .prefix = s.prefix,
                    .names = {},
                    .versions = s.versions,
                    .depth = s.depth + 1};
        // The graph's own inputs come first; captures found on the way are added behind them.
        add_graph(graph, inner);
        node.bodies.push_back(std::move(sub));
    }

    /// Expands a call of a model-local function; its tensors and nodes are called "CALL/NAME".
    void add_call(const onnx::NodeProto& call, const onnx::FunctionProto& f, scope& s) {
        if (s.depth > 64) throw error("node '" + call.name() + "' (" + call.op_type() + "): functions nested more than 64 deep");
        auto& versions = owned_versions_.emplace_back();
        for (const auto& o : f.opset_import()) versions[domain_of(o.domain())] = static_cast<int>(o.version());
        scope inner{.net = s.net,
                    .prefix = (s.is_body ? "" : s.prefix) + call.name() + "/",
                    .is_body = true,
                    .names = {},
                    .versions = &versions,
                    .depth = s.depth + 1};
        for (int i = 0; i < f.input_size() && i < call.input_size(); ++i) {
            if (call.input(i).empty()) continue;
            net_input use = resolve(call.input(i), s);
            if (use.value < 0)
                throw error("node '" + call.name() + "' (" + call.op_type() + "): input '" + call.input(i) +
                            "' is made by no earlier node");
            use.edges.push_back({s.prefix + call.input(i), call.name(), i});
            inner.names[f.input(i)] = std::move(use);
        }
        for (int i = 0; i < f.output_size() && i < call.output_size(); ++i) {
            if (call.output(i).empty()) continue;
            const auto formal = formal_outputs_.find(s.prefix + call.output(i));
            const int id = formal != formal_outputs_.end() ? formal->second : new_value(*s.net, s.prefix + call.output(i));
            formal_outputs_[inner.prefix + f.output(i)] = id;
            s.names[call.output(i)] = {id, {}};
        }
        int number = 0;
        for (const auto& n : f.node()) {
            const auto names = static_cast<std::size_t>(1 + n.output_size());
            count_copied(n.ByteSizeLong() + graph::detail::bytes_to_bind(n, call, f) + names * (inner.prefix.size() + sizeof(net_value)),
                         call);
            onnx::NodeProto& body = s.net->owned.emplace_back(n);
            body.set_name(inner.prefix + (n.name().empty() ? n.op_type() + "_" + std::to_string(number) : n.name()));
            ++number;
            graph::detail::bind_attributes(body, call, f);
            for (std::string& name : *body.mutable_input())  // an optional input that the call leaves out
                if (!name.empty() && is_formal(f, name) && !inner.names.contains(name)) name.clear();
            add_node(body, inner);
        }
    }

    /// Adds to the bytes of expanded functions: the file is smaller by as much as its functions are called often and deep.
    void count_copied(std::size_t bytes, const onnx::NodeProto& at) {
        copied_ += bytes;
        if (copied_ > most_copied_)
            throw error("node '" + at.name() + "' (" + at.op_type() +
                        "): the bodies and names of all function calls together hold more than " + std::to_string(most_copied_ >> 20) +
                        " MB; make their constants inputs, or call fewer functions");
    }

    /// Returns whether a function is one of a portable file, with the body that qk wrote: its calls say what it computes.
    bool is_as_written(const onnx::FunctionProto& f) {
        if (f.domain() != "qk") return false;
        const auto [known, fresh] = as_written_.try_emplace(&f, false);
        if (fresh) known->second = graph::detail::is_as_signed(f);
        return known->second;
    }

    static bool is_formal(const onnx::FunctionProto& f, const std::string& name) {
        return std::find(f.input().begin(), f.input().end(), name) != f.input().end();
    }

    large_constants how_;
    std::unordered_map<std::string, const onnx::FunctionProto*> functions_;
    std::unordered_map<const onnx::FunctionProto*, bool> as_written_;
    std::size_t most_copied_;
    std::size_t copied_ = 0;                               ///< bytes of copied function bodies and of the names in them
    std::unordered_map<std::string, int> formal_outputs_;  ///< "call/formal" to the value it stands for
    opset_versions model_versions_;
    std::deque<opset_versions> owned_versions_;
};

}  // namespace detail

std::unique_ptr<network> make_network(const model& m, large_constants how) { return detail::builder(m, how).build(m.graph()); }

}  // namespace qk::graph::execute
