// SPDX-License-Identifier: Apache-2.0
#include <google/protobuf/unknown_field_set.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>

#include "graph/model/check.hpp"
#include "graph/model/subgraphs.hpp"
#include "graph/model/tensor_proto.hpp"
#include "qk/graph/model/attribute.hpp"

namespace qk::graph {
namespace detail {

inline constexpr int overload_field_of_node = 8, overload_field_of_function = 13, attribute_proto_field_of_function = 11;

inline std::string quoted_node(const onnx::NodeProto& n) { return "node '" + n.name() + "' (" + n.op_type() + ")"; }

/// Returns the length-delimited unknown fields with this number.
inline std::vector<std::string> unknown_strings(const google::protobuf::Message& m, int field) {
    std::vector<std::string> found;
    const google::protobuf::UnknownFieldSet& all = m.GetReflection()->GetUnknownFields(m);
    for (int i = 0; i < all.field_count(); ++i)
        if (all.field(i).number() == field && all.field(i).type() == google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED)
            found.push_back(all.field(i).length_delimited());
    return found;
}
template <class Message>
std::string overload(const Message& m, int field) {
    if constexpr (requires { m.overload(); }) {
        return m.overload();
    } else {
        const auto found = unknown_strings(m, field);
        return found.empty() ? "" : found.back();
    }
}
template <class Function>
std::vector<onnx::AttributeProto> defaults(const Function& f) {
    if constexpr (requires { f.attribute_proto(); }) {
        return {f.attribute_proto().begin(), f.attribute_proto().end()};
    } else {
        std::vector<onnx::AttributeProto> found;
        for (const std::string& bytes : unknown_strings(f, attribute_proto_field_of_function)) {
            onnx::AttributeProto a;
            if (!a.ParseFromString(bytes)) throw error("function '" + f.name() + "': malformed attribute default");
            found.push_back(std::move(a));
        }
        return found;
    }
}

/// The names visible at a place: its own and those around it.
struct name_scope {
    std::unordered_set<std::string_view> names;
    const name_scope* outside = nullptr;
    bool has(std::string_view name) const { return names.count(name) > 0 || (outside != nullptr && outside->has(name)); }
};

inline void check_arguments(const onnx::NodeProto& n) {
    const int inputs = least_inputs(n), outputs = least_outputs(n);
    if (n.input_size() < inputs)
        throw error(quoted_node(n) + " has " + std::to_string(n.input_size()) + " inputs where " + std::to_string(inputs) + " are needed");
    if (n.output_size() < outputs)
        throw error(quoted_node(n) + " has " + std::to_string(n.output_size()) + " outputs where " + std::to_string(outputs) +
                    " are needed");
}

/// Sorts by Kahn's algorithm; of the nodes that are ready, the one that stood first goes first, so that a sorted graph stays as it is.
template <class Nodes>
void sort_nodes(Nodes& nodes, const name_scope& before) {
    const int count = nodes.size();
    std::unordered_map<std::string_view, int> producer;
    for (int i = 0; i < count; ++i) {
        check_arguments(nodes.Get(i));
        for (const std::string& o : nodes.Get(i).output()) {
            if (o.empty()) continue;
            if (before.names.count(o)) throw error(quoted_node(nodes.Get(i)) + ": output '" + o + "' is already an input or initializer");
            if (!producer.emplace(o, i).second) throw error(quoted_node(nodes.Get(i)) + ": output '" + o + "' is made by another node too");
        }
    }
    std::vector<int> waiting(static_cast<std::size_t>(count), 0);
    std::vector<std::vector<int>> readers(waiting.size()), sources(waiting.size());
    for (int i = 0; i < count; ++i) {
        const onnx::NodeProto& n = nodes.Get(i);
        std::unordered_set<std::string_view> read(n.input().begin(), n.input().end());
        for_each_subgraph(n, [&](const onnx::GraphProto& g) { collect_outer(g, read); });
        for (const std::string_view name : read) {
            if (name.empty()) continue;
            if (const auto p = producer.find(name); p != producer.end()) {
                readers[static_cast<std::size_t>(p->second)].push_back(i);
                sources[static_cast<std::size_t>(i)].push_back(p->second);
                ++waiting[static_cast<std::size_t>(i)];
            } else if (!before.has(name)) {
                throw error(quoted_node(n) + ": its input '" + std::string(name) +
                            "' is made by no node and is no graph input or initializer");
            }
        }
    }
    std::priority_queue<int, std::vector<int>, std::greater<>> ready;
    for (int i = 0; i < count; ++i)
        if (waiting[static_cast<std::size_t>(i)] == 0) ready.push(i);
    std::vector<int> order;
    while (!ready.empty()) {
        const int i = ready.top();
        ready.pop();
        order.push_back(i);
        for (const int r : readers[static_cast<std::size_t>(i)])
            if (--waiting[static_cast<std::size_t>(r)] == 0) ready.push(r);
    }
    if (static_cast<int>(order.size()) < count) {
        // A node that still waits has a source that waits: going back long enough ends on a cycle.
        const auto waits = [&](int i) { return waiting[static_cast<std::size_t>(i)] > 0; };
        int at = 0;
        while (!waits(at)) ++at;
        for (std::unordered_set<int> seen; seen.insert(at).second;) {
            const auto& from = sources[static_cast<std::size_t>(at)];
            at = *std::find_if(from.begin(), from.end(), waits);
        }
        throw error(quoted_node(nodes.Get(at)) + " stands on a cycle: it needs its own result");
    }
    if (std::is_sorted(order.begin(), order.end())) return;
    Nodes sorted;
    sorted.Reserve(count);
    for (const int i : order) sorted.Add()->Swap(nodes.Mutable(i));
    nodes.Swap(&sorted);
}

/// Gives unique, non-empty names to the nodes of a graph and its subgraphs; of several with one name the first keeps it.
class node_namer {
  public:
    explicit node_namer(onnx::GraphProto& g) {
        each(g, [&](onnx::NodeProto& n) { reserved_.insert(n.name()); });
        each(g, [&](onnx::NodeProto& n) {
            if (!n.name().empty() && taken_.insert(n.name()).second) return;
            const std::string stem = (n.name().empty() ? n.op_type() : n.name()) + "_";
            std::size_t& next = next_.try_emplace(stem, n.name().empty() ? 0 : 2).first->second;
            std::string name;
            do name = stem + std::to_string(next++);
            while (reserved_.count(name) || !taken_.insert(name).second);
            n.set_name(name);
        });
    }

  private:
    template <class Visit>
    static void each(onnx::GraphProto& g, const Visit& visit) {
        for (auto& n : *g.mutable_node()) visit(n);
        for (auto& n : *g.mutable_node()) for_each_subgraph(n, [&](onnx::GraphProto& inner) { each(inner, visit); });
    }
    string_set reserved_, taken_;
    string_map<std::size_t> next_;
};

template <class Nodes>
void plain_domains(Nodes& nodes) {
    for (auto& n : nodes) {
        if (n.domain() == "ai.onnx") n.clear_domain();
        for_each_subgraph(n, [](onnx::GraphProto& g) { plain_domains(*g.mutable_node()); });
    }
}

inline void check_graph(onnx::GraphProto& g, const name_scope* outside) {
    name_scope scope{{}, outside};
    for (const auto& i : g.input()) {
        if (i.name().empty()) throw error("a graph input has no name");
        if (!scope.names.insert(i.name()).second) throw error("graph input '" + i.name() + "' is there twice");
    }
    std::unordered_set<std::string_view> initializers;
    const auto add = [&](const std::string& name) {
        if (name.empty()) throw error("an initializer has no name");
        if (!initializers.insert(name).second) throw error("initializer '" + name + "' is there twice");
        scope.names.insert(name);
    };
    for (const auto& t : g.initializer()) {
        add(t.name());
        if (t.data_type() != onnx::TensorProto::STRING) check_tensor(t);
    }
    for (const auto& t : g.sparse_initializer()) add(t.values().name());
    sort_nodes(*g.mutable_node(), scope);
    for (auto& n : *g.mutable_node()) {
        // A node's outputs may enter the scope before its subgraphs are checked: a subgraph that reads them was found above, as a cycle.
        scope.names.insert(n.output().begin(), n.output().end());
        for_each_subgraph(n, [&](onnx::GraphProto& inner) { check_graph(inner, &scope); });
    }
    for (const auto& o : g.output())
        if (!scope.has(o.name())) throw error("graph output '" + o.name() + "' is made by no node and is no graph input or initializer");
}

inline constexpr std::size_t most_nodes = 1'000'000;

/// Counts a node and those in its subgraphs.
inline std::size_t nodes_of(const onnx::NodeProto& n) {
    std::size_t sum = 1;
    for_each_subgraph(n, [&](const onnx::GraphProto& g) {
        for (const auto& inner : g.node()) sum += nodes_of(inner);
    });
    return sum;
}

/// Computes the size of a function with all that it calls; throws error for functions that call themselves, too deep or too often.
class function_sizes {
  public:
    explicit function_sizes(const onnx::ModelProto& m) {
        for (const auto& f : m.functions()) {
            const std::string domain = f.domain() == "ai.onnx" ? "" : f.domain();
            if (!functions_.emplace(key(domain, f.name(), overload_of(f)), entry{&f, 0}).second)
                throw error("function '" + f.name() + "' of the domain '" + domain + "' is there twice");
        }
        if (functions_.empty()) return;
        std::size_t all = 0;
        for (auto& [name, e] : functions_) size(e, 0);
        const std::size_t allowed = limits_of_expansion(m).nodes;
        for (const auto& n : m.graph().node()) {
            all += of(n, 0);
            if (all > allowed)
                throw error("the model's functions grow beyond " + std::to_string(allowed) +
                            " nodes when they are expanded, the most for a file of so few; write their nodes into the graph");
        }
    }

  private:
    static constexpr std::size_t most = most_nodes, deepest = 200, busy = std::numeric_limits<std::size_t>::max();
    struct entry {
        const onnx::FunctionProto* function;
        std::size_t size;  ///< 0: not known yet
    };
    static std::string key(const std::string& domain, const std::string& name, const std::string& overload) {
        return domain + '\0' + name + '\0' + overload;
    }
    std::size_t of(const onnx::NodeProto& n, std::size_t depth) {
        std::size_t sum = 1;
        if (!functions_.empty())
            if (const auto f = functions_.find(key(n.domain(), n.op_type(), overload_of(n))); f != functions_.end())
                sum += size(f->second, depth + 1);
        for_each_subgraph(n, [&](const onnx::GraphProto& g) {
            for (const auto& inner : g.node()) sum = std::min(most + 1, sum + of(inner, depth + 1));
        });
        return sum;
    }
    std::size_t size(entry& e, std::size_t depth) {
        const std::string who = "function '" + e.function->name() + "'";
        if (e.size == busy) throw error(who + " calls itself");
        if (e.size != 0) return e.size;
        if (depth > deepest) throw error(who + ": functions call each other more than " + std::to_string(deepest) + " deep");
        e.size = busy;
        std::size_t sum = 1;
        for (const auto& n : e.function->node()) {
            sum += of(n, depth);
            if (sum > most) throw error(who + " grows beyond " + std::to_string(most) + " nodes");
        }
        return e.size = sum;
    }
    string_map<entry> functions_;
};

inline void check_opsets(const google::protobuf::RepeatedPtrField<onnx::OperatorSetIdProto>& imports, const std::string& of) {
    for (const auto& o : imports)
        if ((o.domain().empty() || o.domain() == "ai.onnx") && (o.version() < oldest_opset || o.version() > newest_opset))
            throw error(of + " uses version " + std::to_string(o.version()) + " of the standard operators; qk knows " +
                        std::to_string(oldest_opset) + " to " + std::to_string(newest_opset));
}

inline void check_function(onnx::FunctionProto& f) {
    const std::string who = "function '" + f.name() + "'";
    check_opsets(f.opset_import(), who);
    plain_domains(*f.mutable_node());
    name_scope scope;
    const auto check_unique = [&](const char* what, const auto& names) {
        std::unordered_set<std::string_view> seen;
        for (const std::string& name : names)
            if (!seen.insert(name).second) throw error(std::string("its ") + what + " '" + name + "' is there twice");
    };
    try {
        check_unique("input", f.input());
        check_unique("output", f.output());
        check_unique("attribute", f.attribute());
        scope.names.insert(f.input().begin(), f.input().end());
        sort_nodes(*f.mutable_node(), scope);
        for (auto& n : *f.mutable_node()) {
            scope.names.insert(n.output().begin(), n.output().end());
            for_each_subgraph(n, [&](onnx::GraphProto& inner) { check_graph(inner, &scope); });
        }
        for (const std::string& o : f.output())
            if (!scope.has(o)) throw error("its output '" + o + "' is made by no node");
    } catch (const error& e) {
        throw error(who + ": " + e.what());
    }
}

}  // namespace detail

std::string overload_of(const onnx::NodeProto& n) { return detail::overload(n, detail::overload_field_of_node); }
std::string overload_of(const onnx::FunctionProto& f) { return detail::overload(f, detail::overload_field_of_function); }
std::vector<onnx::AttributeProto> default_attributes(const onnx::FunctionProto& f) { return detail::defaults(f); }

const onnx::FunctionProto* find_function(const onnx::ModelProto& m, const onnx::NodeProto& n) {
    for (const auto& f : m.functions()) {
        if (f.name() != n.op_type()) continue;
        const std::string_view domain = f.domain() == "ai.onnx" ? "" : std::string_view(f.domain());
        if (domain == n.domain() && overload_of(f) == overload_of(n)) return &f;
    }
    return nullptr;
}

expanded_limits limits_of_expansion(const onnx::ModelProto& m) {
    std::size_t nodes = 0;
    for (const auto& n : m.graph().node()) nodes += detail::nodes_of(n);
    for (const auto& f : m.functions())
        for (const auto& n : f.node()) nodes += detail::nodes_of(n);
    const std::uint64_t bytes = (1u << 28) + std::uint64_t{m.ByteSizeLong()} * 256;
    return {std::min(detail::most_nodes, 2'000 + 250 * nodes), static_cast<std::size_t>(std::min(bytes, std::uint64_t{1} << 31))};
}

void check_and_sort(onnx::ModelProto& m) {
    if (!m.has_graph()) throw error("not an ONNX model: it has no graph");
    detail::check_opsets(m.opset_import(), "the model");
    for (auto& f : *m.mutable_functions()) detail::check_function(f);
    detail::plain_domains(*m.mutable_graph()->mutable_node());
    detail::node_namer{*m.mutable_graph()};
    detail::check_graph(*m.mutable_graph(), nullptr);
    detail::function_sizes{m};
}

}  // namespace qk::graph
