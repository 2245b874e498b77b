// SPDX-License-Identifier: Apache-2.0
// Definitions of written.hpp.
#include "support/written.hpp"

#include <fmt/format.h>
#include <onnx/onnx_pb.h>

#include "qk/graph/export/drop_activations.hpp"
#include "qk/graph/recover/recover.hpp"

namespace qk::tool {

graph::export_result write_plan(const graph::model& m, const graph::precision_plan& plan, graph::export_options options, bool keep_int8) {
    using style = graph::export_style;
    if (keep_int8) options.int8_weights = graph::int8_codes::as_signed;
    graph::model bare = m;
    std::vector<std::string> gone;
    if (options.style != style::amd) gone = graph::drop_needless_activations(bare, plan);
    graph::precision_plan written = plan;
    const bool unsigned_codes = options.style != style::amd && options.style != style::qinteger && !keep_int8;
    const std::size_t changed = unsigned_codes ? graph::store_activations_unsigned(written, m) : 0;
    graph::export_result result = graph::export_model(bare, written, options);
    if (changed > 0) {
        graph::remember_int8(result.exported, plan, written);
        result.notes.push_back(
            fmt::format("{} int8 activations written as uint8 with zero point + 128: the same values, and onnxruntime fuses more (qk "
                        "quantize --keep-int8 writes int8)",
                        changed));
    }
    if (!gone.empty())
        result.notes.push_back(
            fmt::format("{} Relu and Clip nodes left out: the quantizers behind them clamp to the same bounds", gone.size()));
    return result;
}

}  // namespace qk::tool
