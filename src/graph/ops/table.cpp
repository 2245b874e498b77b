// SPDX-License-Identifier: Apache-2.0
// Defines find_op, which looks up the table of all groups. The table is built on first use. The build lists the folder groups/ in
// groups.inc (src/graph/CMakeLists.txt).
#include "graph/model/operator_name.hpp"
#include "graph/ops/all_ops.hpp"

#include <onnx/onnx_pb.h>

#include <limits>

#include "graph/model/check.hpp"
#include "qk/graph/model/attribute.hpp"

namespace qk::graph {
namespace ops {

#define QK_GROUP(NAME) op_group NAME##_group();
#include "graph/ops/groups.inc"
#undef QK_GROUP

const std::unordered_map<std::string, op_group>& table() {
    static const auto all = [] {
        std::unordered_map<std::string, op_group> map;
        const auto add = [&map](const op_group& group) {
            for (const op_entry& e : group) map[std::string(e.domain) + ":" + std::string(e.name)].push_back(e);
        };
#define QK_GROUP(NAME) add(NAME##_group());
#include "graph/ops/groups.inc"
#undef QK_GROUP
        return map;
    }();
    return all;
}

}  // namespace ops

const op_entry* find_op(std::string_view domain, std::string_view name, int version) {
    if (domain == "ai.onnx") domain = "";
    const auto found = ops::table().find(std::string(domain) + ":" + std::string(name));
    if (found == ops::table().end()) return nullptr;
    const op_entry* best = nullptr;
    for (const op_entry& e : found->second)
        if (e.since <= version && (best == nullptr || e.since > best->since)) best = &e;
    return best;
}

namespace {
const op_entry* newest_row(std::string_view domain, std::string_view op_type) {
    return find_op(domain, op_type, std::numeric_limits<int>::max());
}
const op_facts& facts_of_row(const op_entry* op) {
    static constexpr op_facts none{};
    return op == nullptr ? none : op->is;
}
}  // namespace

const op_facts& facts_of(const onnx::NodeProto& n) { return facts_of_row(newest_row(n.domain(), n.op_type())); }
const op_facts& facts_of_type(std::string_view op_type) { return facts_of_row(newest_row("", op_type)); }

layout_rule layout_rule_of(const node_view& n, const op_facts& is) {
    if (is.layout != nullptr) return is.layout(n);
    if (!n.proto().domain().empty() && n.proto().domain() != "ai.onnx") return layout_rule::plain;
    if (is.has(ops::one_by_one)) return layout_rule::unary;
    return is.has(ops::pairwise) && n.version() >= 7 ? layout_rule::binary : layout_rule::plain;
}

std::optional<product_axes> product_axes_of(const onnx::NodeProto& n) {
    const auto axes = facts_of(n).axes;
    return axes == nullptr ? std::nullopt : std::optional(axes(n));
}

int least_inputs(const onnx::NodeProto& n) {
    const operator_name op = operator_of(n);
    if (op.ends_with("QuantizeLinear") && op != "DynamicQuantizeLinear") return 2;  // of any domain
    if (!n.domain().empty() || detail::one_of(op, {"Optional", "SequenceEmpty"})) return 0;
    return facts_of(n).inputs;
}

int least_outputs(const onnx::NodeProto& n) { return facts_of(n).outputs; }

std::optional<type_source> type_source_of(const onnx::NodeProto& n, int output) {
    if (const op_entry* op = newest_row(n.domain(), n.op_type())) return op->is.types == nullptr ? type_source{} : op->is.types(n, output);
    // Operators that are not run here: what they make of words, or of a table's columns.
    if (detail::one_of(operator_of(n), {"TfIdfVectorizer", "Normalizer", "Scaler", "FeatureVectorizer", "LinearRegressor", "SVMRegressor",
                                        "TreeEnsembleRegressor"}))
        return type_source{-1, data_type::float32};
    if (operator_of(n) == "SequenceLength") return type_source{-1, data_type::int64};
    return std::nullopt;
}

bool works_on_codes(const onnx::NodeProto& n) {
    if (const op_entry* op = newest_row(n.domain(), n.op_type())) return op->is.has(ops::on_codes);
    const operator_name op = operator_of(n);  // of the newest runtimes, which are not run here
    return (n.domain().empty() || n.domain() == "com.microsoft") &&
           (op.starts_with("QLinear") || op.ends_with("QuantizeLinear") || op.ends_with("Integer") ||
            detail::one_of(op, {"MatMulBnb4", "MatMulFpQ4", "QAttention"}));
}

bool makes_sequence(const onnx::NodeProto& n, bool takes_one) {
    if (takes_one) return !detail::one_of(operator_of(n), {"SequenceAt", "SequenceLength", "ConcatFromSequence", "OptionalGetElement"});
    return detail::one_of(operator_of(n), {"SequenceConstruct", "SequenceEmpty", "SequenceInsert", "SequenceErase", "SplitToSequence",
                                           "SequenceMap", "Optional", "ZipMap"});
}

}  // namespace qk::graph
