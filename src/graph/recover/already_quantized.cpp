// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/recover/already_quantized.hpp"

#include <onnx/onnx_pb.h>

#include <map>
#include <string>
#include <string_view>

#include "graph/export/marks.hpp"
#include "graph/ops/op.hpp"
#include "qk/graph/base/names.hpp"
#include "qk/graph/model/attribute.hpp"

namespace qk::graph {

namespace {
bool works_as_call(const onnx::NodeProto& n) { return n.domain() == marks::function_domain || marks::tells_of_call(n.doc_string()); }
bool is_quantized(const onnx::NodeProto& n) { return works_as_call(n) || n.domain().starts_with("com.amd.quark") || works_on_codes(n); }
}  // namespace

std::vector<plan_note> note_quantized(const model& m) {
    std::map<std::string, int> found;
    for (const onnx::NodeProto& n : m.graph().node())
        if (is_quantized(n)) ++found[works_as_call(n) ? "function of style portable" : n.op_type()];
    if (found.empty()) return {};
    std::vector<std::string> counts;
    for (const auto& [op, count] : found) counts.push_back(std::to_string(count) + " x " + op);
    return {{plan_note::kind::requantized, m.label(),
             "it is quantized already (" + comma_separated(counts) +
                 "), and its values are rounded a second time: `qk inspect MODEL --save-float F.onnx` gives the float model underneath"}};
}

}  // namespace qk::graph
