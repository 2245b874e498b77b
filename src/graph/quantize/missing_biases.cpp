// SPDX-License-Identifier: Apache-2.0
#include "graph/quantize/missing_biases.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <set>

#include "graph/model/tensor_proto.hpp"
#include "graph/quantize/weight_rows.hpp"

namespace qk::graph {

using namespace detail;

std::vector<std::string> add_missing_biases(model& m, const precision_plan* only) {
    std::vector<std::pair<std::string, std::size_t>> added;
    std::set<std::string> names;  // those of all, so that each has the same whichever are wanted
    for (auto& n : *m.graph().mutable_node()) {
        if (!facts_of(n).has(ops::biased) || !product_axes_of(n) || n.input_size() < 2 || n.input_size() > 3 || !m.is_constant(n.input(1)))
            continue;
        if (n.input_size() == 3 && !n.input(2).empty()) continue;
        const tensor& w = m.constant(n.input(1));
        if (w.type() != data_type::float32) continue;
        const weight_rows rows = rows_of(n, w);
        if (!rows.refusal.empty()) continue;
        std::string name = n.input(1) + "_bias";
        while (m.is_constant(name) || m.producer(name) >= 0 || !m.uses(name).empty() || names.contains(name)) name += "_";
        names.insert(name);
        if (only != nullptr && only->find({name, n.name(), 2}) == nullptr && !only->moved.contains(name)) continue;
        if (n.input_size() == 2) n.add_input();
        n.set_input(2, name);
        added.emplace_back(name, rows.groups * rows.rows);
    }
    std::vector<std::string> given;
    for (const auto& [name, size] : added) {
        tensor zeros(data_type::float32, {static_cast<std::int64_t>(size)});
        std::fill(zeros.as<float>().begin(), zeros.as<float>().end(), 0.0f);
        to_proto(zeros, name, *m.graph().add_initializer());
        given.push_back(name);
    }
    m.reindex();
    return given;
}

}  // namespace qk::graph
