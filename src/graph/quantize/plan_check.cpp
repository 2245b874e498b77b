// SPDX-License-Identifier: Apache-2.0
// Checks that a plan fits a model.
#include <onnx/onnx_pb.h>

#include "graph/plan/axis_view.hpp"
#include "qk/graph/base/names.hpp"
#include "qk/graph/quantize/plan_file.hpp"

namespace qk::graph {

void check_plan(const precision_plan& plan, const model& m, const std::string& label) {
    const auto check = [&](const std::string& tensor, const quantizer& q) {
        if (!has_tensor(m, tensor))
            throw error(label + ": the model has no tensor '" + tensor + "'." + did_you_mean(tensor, tensor_names(m)));
        if (!m.is_constant(tensor) || q.scale.empty()) return;
        const dims shape = m.constant_shape(tensor);
        if (q.block_size > 0) {
            const along_axis a = detail::seen_by_blocks(shape, q.axis, q.flatten);
            if (const std::size_t blocks = scales_along(q, a); q.scale.size() != blocks)
                throw error(label + ": tensor '" + tensor + "' has shape " + to_string(shape) + ", whose blocks of " +
                            std::to_string(q.block_size) + " need " + std::to_string(blocks) + " scales, not " +
                            std::to_string(q.scale.size()));
            return;
        }
        if (q.scale.size() == 1) return;
        const std::size_t axis = resolve_axis(q.axis, shape.size());
        if (shape.empty() || static_cast<std::size_t>(shape[axis]) != q.scale.size())
            throw error(label + ": tensor '" + tensor + "' has shape " + to_string(shape) + " and " + std::to_string(q.scale.size()) +
                        " scales along axis " + std::to_string(axis));
    };
    for (const auto& [name, q] : plan.tensors) check(name, q);
    for (const auto& [name, moved] : plan.moved) {
        if (!m.is_constant(name)) throw error(label + ": \"moved\" names '" + name + "', which is no constant of the model");
        const auto size = static_cast<std::int64_t>(element_count(m.constant_shape(name)));
        for (const std::int64_t i : moved.place)
            if (i < 0 || i >= size)
                throw error(label + ": \"moved\" has place " + std::to_string(i) + " of tensor '" + name + "', which has " +
                            std::to_string(size) + " elements");
    }
    for (const auto& [layer, unit] : plan.accumulators)
        if (m.node_index(layer) < 0)
            throw error(label + ": the model has no layer '" + layer + "', which " + unit + " would multiply." +
                        did_you_mean(layer, node_names(m)));
    for (const auto& [e, q] : plan.edges) {
        check(e.tensor, q);
        if (e.consumer.empty()) {
            if (e.index < 0 || static_cast<std::size_t>(e.index) >= m.outputs().size())
                throw error(label + ": the model has no output number " + std::to_string(e.index));
            if (const std::string& name = m.outputs()[static_cast<std::size_t>(e.index)].name; name != e.tensor)
                throw error(label + ": output " + std::to_string(e.index) + " of the model is '" + name + "', not tensor '" + e.tensor +
                            "'");
            continue;
        }
        const int n = m.node_index(e.consumer);
        if (n < 0) throw error(label + ": the model has no layer '" + e.consumer + "'." + did_you_mean(e.consumer, node_names(m)));
        const auto& node = m.graph().node(n);
        if (e.index < 0 || e.index >= node.input_size() || node.input(e.index) != e.tensor)
            throw error(label + ": input " + std::to_string(e.index) + " of layer '" + e.consumer + "' is not tensor '" + e.tensor + "'");
    }
}

}  // namespace qk::graph
