// SPDX-License-Identifier: Apache-2.0
// A style of export is a row: its name, its writer, what its files are, and what reads them back. The row stands in a source of styles/
// beside the writer, and styles.inc lists it; the exporter, the verbs, the targets and recovery ask the row, and know no style by name.
#pragma once

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "graph/export/writer.hpp"
#include "qk/graph/export/export.hpp"
#include "qk/graph/model/model.hpp"
#include "qk/graph/plan/plan.hpp"
#include "qk/graph/quantize/target.hpp"

namespace qk::graph::detail {

/// A node on codes, read back as the node on floats that stood in its place.
struct node_on_floats {
    struct operand {
        int input = 0;                  ///< of the node on floats
        std::string name{};             ///< the initializer with the codes, or the tensor that is quantized in each run
        quantizer how{};                ///< of the floats
        std::optional<tensor> value{};  ///< the floats behind codes
        const char* departs = nullptr;  ///< why `how` does not give these floats; they stay as their rounded values
    };
    onnx::NodeProto node{};           ///< has the names of the operands
    std::vector<operand> operands{};  ///< what a plan quantizes
    std::vector<int> parts{};         ///< other nodes that stand for the quantizers
    bool rounds_activations = false;  ///< multiplies with activations rounded to int8, which no quantizer of a plan does
};

/// What a node says of a plan: nothing, which quantizer its first input passes through, or which node on floats it was.
using read_back = std::variant<std::monostate, quantizer, node_on_floats>;

struct style_row {
    const char* name;
    const char* help;  ///< what it is for, in a line
    std::unique_ptr<quantizer_writer> (*writer)(graph_writer& g, const export_options& options, std::vector<std::string>& notes);
    /// What stands in its files beside ONNX's operators on floats and pairs, in the words of target_profile::file_form. `functions`:
    /// formats that no operator holds become some.
    std::array<std::string_view, 2> writes{};
    /// Reads node `node` where this style alone writes such nodes; null where others write them, too, and recovery itself reads them.
    read_back (*read)(const model& m, int node) = nullptr;
    const char* unread = nullptr;     ///< why no plan comes back from a file of whole layers in this style; null: one does
    bool for_onnxruntime = true;      ///< int8 weights, biases and Relus are written as onnxruntime's kernels and optimizer need them
    bool signed_activations = false;  ///< int8 activations are stored as int8, not as the same values in uint8
    bool floor_scales = false;        ///< MX scales follow the rule `floor` where nobody names one

    bool has(std::string_view what) const { return std::ranges::find(writes, what) != writes.end(); }
    /// Returns whether its files hold nothing but what `reads` has.
    bool is_read_by(const std::set<std::string_view>& reads) const {
        return std::ranges::all_of(writes, [&](std::string_view what) { return what.empty() || reads.contains(what); });
    }
};

/// Makes a writer, for the rows.
template <class Writer>
std::unique_ptr<quantizer_writer> make_writer(graph_writer& g, const export_options& options, std::vector<std::string>& notes) {
    return std::make_unique<Writer>(g, options, notes);
}

#define QK_STYLE(NAME) extern const style_row NAME##_style;
#include "graph/export/styles.inc"
#undef QK_STYLE

}  // namespace qk::graph::detail
