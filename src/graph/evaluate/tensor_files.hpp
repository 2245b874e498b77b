// SPDX-License-Identifier: Apache-2.0
// Lists the files that data is read from, and takes data that is in memory as files of it would be taken.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "qk/graph/evaluate/evaluator.hpp"

namespace qk::graph {

/// Returns every file that read_tensors(path) reads, external data of .pb files included; none if `path` does not exist.
std::vector<std::filesystem::path> files_of_tensors(const std::filesystem::path& path);

/// Returns what read_tensors(path) passes over in a folder: files that are no data, images beside arrays, sub-folders. Outputs of ONNX test
/// data are not among them.
std::vector<std::filesystem::path> passed_over(const std::filesystem::path& path);

/// Joins batches to the data of a model's inputs as read_inputs() joins the files of a folder; `option` names them in errors. The array ""
/// of a batch is the first input that has none. One batch is taken as it is, ragged shapes included.
named_tensors join_batches(const model& m, std::span<const named_tensors> batches, const std::string& option,
                           std::optional<int> batch_axis);

}  // namespace qk::graph
