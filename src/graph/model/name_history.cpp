// SPDX-License-Identifier: Apache-2.0
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <set>

#include "qk/graph/model/model.hpp"
#include "qk/graph/model/name_history.hpp"

namespace qk::graph {

namespace detail {
/// Follows a name through all passes. `seen` ends cycles, which a file with a name of ours could make.
inline void follow_names(const model& m, const successor& from, std::vector<successor>& found,
                         std::set<std::pair<std::string, bool>>& seen) {
    if (!seen.emplace(from.name, from.is_node).second) return;
    const name_history& h = m.history();
    if (from.is_node ? m.node_index(from.name) >= 0 : has_tensor(m, from.name)) {
        const auto same = [&](const successor& s) { return s.name == from.name && s.is_node == from.is_node; };
        if (std::ranges::none_of(found, same)) found.push_back(from);
    }
    const auto go_on = [&](const successor& next) {
        successor s = next;
        if (from.how == bond::part) s.how = bond::part;
        s.why = from.why.empty() || from.why == next.why ? next.why : from.why + ", and " + next.why;
        if (!from.why.empty()) s.factor.clear();  // of two changes, neither alone says what happened to the values
        follow_names(m, s, found, seen);
    };
    if (from.is_node) {
        if (const auto i = h.nodes().find(from.name); i != h.nodes().end())
            for (const successor& s : i->second.became) go_on(s);
    } else if (const auto i = h.tensors().find(from.name); i != h.tensors().end()) {
        for (const successor& s : i->second) go_on(s);
    }
}

inline std::vector<successor> successors(const model& m, std::string_view name, bool is_node) {
    std::vector<successor> found;
    std::set<std::pair<std::string, bool>> seen;
    follow_names(m, {.name = std::string(name), .is_node = is_node}, found, seen);
    std::erase_if(found, [&](const successor& s) { return s.name == name && s.is_node == is_node; });
    return found;
}
}  // namespace detail

void name_history::add_node(const std::string& name, const std::string& op_type, successor to) {
    folded_node& n = nodes_[name];
    n.op_type = op_type;
    n.became.push_back(std::move(to));
}

std::vector<successor> successors_of_tensor(const model& m, std::string_view name) { return detail::successors(m, name, false); }
std::vector<successor> successors_of_node(const model& m, std::string_view name) { return detail::successors(m, name, true); }

bool has_tensor(const model& m, std::string_view name) {
    if (m.producer(name) >= 0 || m.is_constant(name)) return true;
    return !name.empty() && &m.uses(name) != &m.uses("");  // an input has a list of uses, even an empty one; a name of nothing has none
}

std::vector<std::string> tensor_names(const model& m) {
    std::vector<std::string> all;
    for (const value_info& i : m.inputs()) all.push_back(i.name);
    for (const auto& i : m.graph().initializer()) all.push_back(i.name());
    for (const auto& i : m.graph().sparse_initializer()) all.push_back(i.values().name());
    for (const auto& n : m.graph().node())
        for (const std::string& o : n.output())
            if (!o.empty()) all.push_back(o);
    for (const auto& [name, became] : m.history().tensors())
        if (!has_tensor(m, name)) all.push_back(name);
    return all;
}

std::vector<std::string> node_names(const model& m) {
    std::vector<std::string> all;
    for (const auto& n : m.graph().node()) all.push_back(n.name());
    for (const auto& [name, n] : m.history().nodes())
        if (m.node_index(name) < 0) all.push_back(name);
    return all;
}

}  // namespace qk::graph
