// SPDX-License-Identifier: Apache-2.0
#include "graph/quantize/open_bodies.hpp"
#include "graph/model/operator_name.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "graph/model/bind_attributes.hpp"
#include "graph/model/check.hpp"
#include "graph/model/edit.hpp"
#include "graph/model/subgraphs.hpp"
#include "graph/model/taken_names.hpp"
#include "graph/model/tensor_proto.hpp"
#include "graph/ops/run_node.hpp"
#include "graph/plan/operand_tables.hpp"
#include "qk/graph/model/attribute.hpp"
#include "qk/graph/plan/layers.hpp"

namespace qk::graph {
namespace detail {

using body_nodes = google::protobuf::RepeatedPtrField<onnx::NodeProto>;
using new_names = std::map<std::string, std::string>;

/// Loops of more turns stay loops: their layers would be as many nodes.
inline constexpr std::int64_t most_turns = 64;
inline constexpr std::size_t most_opened_nodes = 1 << 18;

/// Copies nodes from a body into the graph, under new names.
class body_opener {
  public:
    /// `every_call`: all calls and nothing else, instead of what holds layers.
    explicit body_opener(model& m, bool every_call = false) : m_(m), every_call_(every_call), most_(limits_of_expansion(m.proto())) {
        names_.take_graph(m.graph());
    }

    /// Opens what can be opened of one layer of bodies. Returns false when there was nothing.
    bool pass() {
        body_nodes all;
        bool any = false;
        for (auto& n : *m_.graph().mutable_node()) {
            const auto nodes = static_cast<std::size_t>(all.size());
            if (nodes < std::min(most_opened_nodes, most_.nodes) && copied_ < most_.bytes && open(n, all)) any = true;
            else all.Add()->Swap(&n);
        }
        m_.graph().mutable_node()->Swap(&all);
        if (any) m_.reindex();
        return any;
    }

    std::vector<std::string> sentences() const {
        std::vector<std::string> all;
        for (const auto& [what, opened] : opened_)
            all.push_back(std::to_string(opened.first) + " " + what + (opened.first == 1 ? "" : "s") + " ('" + opened.second +
                          (opened.first == 1 ? "')" : "', ...)") +
                          " opened: the nodes inside stand in the graph, and their layers are layers like others");
        return all;
    }

    void forget_functions() const {
        std::vector<const onnx::FunctionProto*> called;
        const auto look = [&](const auto& self, const auto& nodes) -> void {
            for (const onnx::NodeProto& n : nodes) {
                if (const auto* f = find_function(m_.proto(), n); f != nullptr && std::ranges::find(called, f) == called.end()) {
                    called.push_back(f);
                    self(self, f->node());
                }
                for_each_subgraph(n, [&](const onnx::GraphProto& g) { self(self, g.node()); });
            }
        };
        look(look, m_.graph().node());
        auto& functions = *m_.proto().mutable_functions();
        for (int k = functions.size(); k-- > 0;)
            if (std::ranges::find(called, &functions.Get(k)) == called.end()) functions.DeleteSubrange(k, 1);
    }

  private:
    void count(const std::string& what, const onnx::NodeProto& n) {
        auto& [count, first] = opened_.try_emplace(what, 0, n.name()).first->second;
        ++count;
    }

    static bool holds_layers(const onnx::ModelProto& m, const body_nodes& nodes) {
        return std::ranges::any_of(nodes, [&](const onnx::NodeProto& n) {
            if (kind_of(n) == layer_kind::compute || is_recurrent(n)) return true;
            if (const auto* f = find_function(m, n); f != nullptr && n.domain() != "qk" && holds_layers(m, f->node())) return true;
            bool inside = false;
            for_each_subgraph(n, [&](const onnx::GraphProto& g) { inside = inside || holds_layers(m, g.node()); });
            return inside;
        });
    }

    bool open(const onnx::NodeProto& n, body_nodes& to) {
        if (n.domain() == "qk") return false;  // quantizers of an export
        if (const onnx::FunctionProto* f = find_function(m_.proto(), n)) return open_call(n, *f, to);
        if (!n.domain().empty() || every_call_) return false;
        if (operator_of(n) == "If") return open_if(n, to);
        return operator_of(n) == "Loop" && open_loop(n, to);
    }

    /// Returns whether the model imports, or can import, what a function imports.
    bool takes_imports(const onnx::FunctionProto& f) {
        for (const auto& wanted : f.opset_import()) {
            const std::string domain = wanted.domain() == "ai.onnx" ? "" : wanted.domain();
            bool found = false;
            for (const auto& own : m_.proto().opset_import())
                if ((own.domain() == "ai.onnx" ? "" : own.domain()) == domain) {
                    found = true;
                    if (own.version() != wanted.version()) return false;
                }
            if (!found) *m_.proto().add_opset_import() = wanted;
        }
        return true;
    }

    bool open_call(const onnx::NodeProto& call, const onnx::FunctionProto& f, body_nodes& to) {
        if ((!every_call_ && !holds_layers(m_.proto(), f.node())) || !takes_imports(f)) return false;
        for (const auto& n : f.node()) copied_ += bytes_to_bind(n, call, f);
        if (copied_ > most_.bytes) return false;
        new_names values;
        for (int k = 0; k < f.input_size(); ++k) values[f.input(k)] = k < call.input_size() ? call.input(k) : "";
        body_nodes nodes = f.node();
        for (auto& n : nodes) bind_attributes(n, call, f);
        const std::vector<std::string> results(f.output().begin(), f.output().end());
        put(call, nodes, results, values, to);
        count("call of the model's function", call);
        return true;
    }

    bool open_if(const onnx::NodeProto& n, body_nodes& to) {
        if (n.input_size() != 1 || !m_.is_constant(n.input(0))) return false;
        const tensor condition = m_.constant(n.input(0));
        if (condition.type() != data_type::boolean || condition.size() != 1) return false;
        const auto* branch = find_attribute(n, condition.as<std::uint8_t>()[0] != 0 ? "then_branch" : "else_branch");
        if (branch == nullptr || branch->g().sparse_initializer_size() > 0 || !holds_layers(m_.proto(), branch->g().node())) return false;
        new_names values;
        const std::vector<std::string> results = take_constants(n, branch->g(), values);
        put(n, branch->g().node(), results, values, to);
        count("If of a constant condition", n);
        return true;
    }

    /// Puts a body's initializers into the graph. Returns the names of its results, as the body has them.
    std::vector<std::string> take_constants(const onnx::NodeProto& n, const onnx::GraphProto& body, new_names& values) {
        for (const auto& t : body.initializer()) {
            onnx::TensorProto& own = *m_.graph().add_initializer();
            own = t;
            own.set_name(values[t.name()] = names_.fresh(n.name() + "/" + t.name()));
        }
        std::vector<std::string> results;
        for (const auto& o : body.output()) results.push_back(o.name());
        return results;
    }

    std::optional<std::int64_t> constant_number(const std::string& name) const {
        if (name.empty() || !m_.is_constant(name)) return std::nullopt;
        const tensor t = m_.constant(name);
        if (t.size() != 1) return std::nullopt;
        if (t.type() == data_type::int64) return t.as<std::int64_t>()[0];
        return t.type() == data_type::boolean ? std::optional<std::int64_t>(t.as<std::uint8_t>()[0]) : std::nullopt;
    }
    /// Is true where a body always goes on: its condition is the one that it was given, or a constant that is true.
    static bool goes_on(const onnx::GraphProto& body) {
        const std::string& result = body.output(0).name();
        if (result == body.input(1).name()) return true;
        for (const auto& t : body.initializer())
            if (t.name() == result) {
                const tensor value = to_tensor(t, {});
                return value.type() == data_type::boolean && value.size() == 1 && value.as<std::uint8_t>()[0] != 0;
            }
        for (const auto& inner : body.node()) {
            if (inner.output_size() != 1 || inner.output(0) != result) continue;
            if (operator_of(inner) == "Identity") return inner.input(0) == body.input(1).name();
            if (const auto value = operator_of(inner) == "Constant" ? constant_value(inner) : std::nullopt)
                return value->type() == data_type::boolean && value->size() == 1 && value->as<std::uint8_t>()[0] != 0;
        }
        return false;
    }

    /// Opens a Loop whose number of turns is known, which carries all that it gives.
    bool open_loop(const onnx::NodeProto& n, body_nodes& to) {
        const auto* attribute = find_attribute(n, "body");
        if (attribute == nullptr || n.input_size() < 2) return false;
        const onnx::GraphProto& body = attribute->g();
        const auto turns = constant_number(n.input(0));
        const int carried = n.input_size() - 2;
        if (!turns || *turns < 0 || *turns > most_turns || (!n.input(1).empty() && constant_number(n.input(1)) != 1) ||
            body.input_size() != carried + 2 || body.output_size() != carried + 1 || !goes_on(body) || body.sparse_initializer_size() > 0 ||
            !holds_layers(m_.proto(), body.node()))
            return false;
        new_names constants;
        std::vector<std::string> results = take_constants(n, body, constants);
        std::vector<std::string> state(n.input().begin() + 2, n.input().end());
        tensor goes(data_type::boolean, {});
        goes.as<std::uint8_t>()[0] = 1;
        const std::string yes = named_constant(n.name() + "/true", goes);
        for (std::int64_t turn = 0; turn < *turns; ++turn) {
            new_names values = constants;
            values[body.input(0).name()] =
                named_constant(n.name() + "/turn", make_tensor<std::int64_t>({}, std::vector<std::int64_t>{turn}));
            values[body.input(1).name()] = yes;
            for (int k = 0; k < carried; ++k) values[body.input(k + 2).name()] = state[static_cast<std::size_t>(k)];
            copy(n.name() + "/" + std::to_string(turn), body.node(), values, to);
            for (int k = 0; k < carried; ++k) state[static_cast<std::size_t>(k)] = outer(values, results[static_cast<std::size_t>(k) + 1]);
        }
        for (int k = 0; k < n.output_size(); ++k)
            if (!n.output(k).empty()) same(state[static_cast<std::size_t>(k)], n.output(k), to);
        count("Loop of a constant number of turns", n);
        return true;
    }

    std::string named_constant(const std::string& stem, const tensor& value) {
        const std::string name = names_.fresh(stem);
        to_proto(value, name, *m_.graph().add_initializer());
        return name;
    }

    static std::string outer(const new_names& values, const std::string& name) {
        const auto found = values.find(name);
        return found == values.end() ? name : found->second;
    }
    void same(const std::string& from, const std::string& result, body_nodes& to) {
        onnx::NodeProto& n = *to.Add();
        n.set_op_type("Identity");
        n.set_name(names_.fresh(result + "/Identity"));
        n.add_input(from), n.add_output(result);
    }

    /// Copies the nodes of a body and gives its results the names of the node's outputs.
    void put(const onnx::NodeProto& n, const body_nodes& nodes, const std::vector<std::string>& results, new_names& values,
             body_nodes& to) {
        new_names wanted;  // results that a node makes take the name at once
        for (std::size_t k = 0; k < results.size() && k < static_cast<std::size_t>(n.output_size()); ++k)
            if (const std::string& o = n.output(static_cast<int>(k)); !o.empty()) wanted.try_emplace(results[k], o);
        copy(n.name(), nodes, values, to, wanted);
        for (std::size_t k = 0; k < results.size() && k < static_cast<std::size_t>(n.output_size()); ++k) {
            const std::string& o = n.output(static_cast<int>(k));
            if (const std::string from = outer(values, results[k]); !o.empty() && from != o) same(from, o, to);
        }
    }

    void copy(const std::string& prefix, const body_nodes& nodes, new_names& values, body_nodes& to, const new_names& wanted = {}) {
        for (const auto& inner : nodes) {
            onnx::NodeProto& n = *to.Add();
            n = inner;
            copied_ += inner.ByteSizeLong() + static_cast<std::size_t>(1 + inner.output_size()) * prefix.size();
            for (std::string& i : *n.mutable_input())
                if (!i.empty()) i = outer(values, i);
            for (std::string& o : *n.mutable_output()) {
                if (o.empty()) continue;
                const auto own = wanted.find(o);
                o = values[o] = own != wanted.end() ? own->second : names_.fresh(prefix + "/" + o);
            }
            n.set_name(names_.fresh(prefix + "/" + (inner.name().empty() ? inner.op_type() : inner.name())));
            for_each_subgraph(n, [&](onnx::GraphProto& g) { rename(prefix, g, values); });
        }
    }

    /// Renames what a body inside of a body has and reads.
    void rename(const std::string& prefix, onnx::GraphProto& g, new_names values) {
        const auto own = [&](const std::string& name) { return values[name] = names_.fresh(prefix + "/" + name); };
        for (auto& v : *g.mutable_input()) v.set_name(own(v.name()));
        for (auto& t : *g.mutable_initializer()) t.set_name(own(t.name()));
        for (auto& t : *g.mutable_sparse_initializer()) t.mutable_values()->set_name(own(t.values().name()));
        for (auto& n : *g.mutable_node()) {
            for (std::string& i : *n.mutable_input())
                if (!i.empty()) i = outer(values, i);
            for (std::string& o : *n.mutable_output())
                if (!o.empty()) o = own(o);
            n.set_name(names_.fresh(prefix + "/" + n.name()));
            for_each_subgraph(n, [&](onnx::GraphProto& inner) { rename(prefix, inner, values); });
        }
        for (auto& v : *g.mutable_output()) v.set_name(outer(values, v.name()));
        g.clear_value_info();
    }

    model& m_;
    bool every_call_;
    expanded_limits most_;
    std::size_t copied_ = 0;  ///< bytes of opened bodies and of the names in them
    taken_names names_;
    std::map<std::string, std::pair<int, std::string>> opened_;
};

/// Opens what can be opened, however deep it lies.
inline void open_all(body_opener& opener, model& m) {
    bool any = false;
    while (opener.pass()) any = true;
    if (any) opener.forget_functions();
    if (any) m.reindex();
}

}  // namespace detail

std::vector<std::string> open_bodies(model& m) {
    detail::body_opener opener(m);
    detail::open_all(opener, m);
    return opener.sentences();
}

void open_calls(model& m) {
    detail::body_opener opener(m, true);
    detail::open_all(opener, m);
}

}  // namespace qk::graph
