// SPDX-License-Identifier: Apache-2.0
// The functions of style portable, for others that write or read them.
#pragma once

#include <onnx/onnx_pb.h>

#include <memory>
#include <string>
#include <vector>

#include "graph/export/marks.hpp"
#include "graph/export/writer.hpp"
#include "graph/model/check.hpp"
#include "qk/graph/model/model.hpp"

namespace qk::graph::detail {

class functions_writer : public quantizer_writer {
  public:
    using quantizer_writer::quantizer_writer;
    /// Returns whether an activation that could be a pair is a function all the same (export_options::pairs_of_bytes_alone).
    virtual bool is_called(const quantizer& q) const = 0;
    /// Counts an activation that is a pair, for notes.
    virtual void count_pair(const quantizer& q) = 0;
};
std::unique_ptr<functions_writer> make_functions_writer(graph_writer& g, const export_options& options, std::vector<std::string>& notes);

/// Returns the function that a node calls if qk wrote it, otherwise nullptr.
inline const onnx::FunctionProto* called_quantizer(const model& m, const onnx::NodeProto& n) {
    return n.domain() == marks::function_domain && n.output_size() == 1 ? find_function(m.proto(), n) : nullptr;
}

}  // namespace qk::graph::detail
