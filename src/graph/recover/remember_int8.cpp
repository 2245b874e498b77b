// SPDX-License-Identifier: Apache-2.0
// Records in an exported model, for recover_plan, which int8 tensors it stores as uint8.
#include <onnx/onnx_pb.h>

#include <set>

#include "graph/export/marks.hpp"
#include "qk/graph/recover/recover.hpp"

namespace qk::graph {

void remember_int8(model& exported, const precision_plan& asked, const precision_plan& written) {
    std::set<std::string> names;
    for (const auto& [name, q] : asked.tensors)
        if (!(written.tensors.at(name).format == q.format)) names.insert(name);
    for (const auto& [e, q] : asked.edges)
        if (!(written.edges.at(e).format == q.format)) names.insert(e.tensor);
    if (names.empty()) return;
    std::string lines;
    for (const std::string& n : names) lines += n + "\n";
    auto* p = exported.proto().add_metadata_props();
    p->set_key(marks::int8_property);
    p->set_value(lines);
}

}  // namespace qk::graph
