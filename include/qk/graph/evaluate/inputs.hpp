// SPDX-License-Identifier: Apache-2.0
// Reads data for a model's inputs from files: .npy, .npz, ONNX .pb tensors, images, or a folder of these.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/files/images.hpp"
#include "qk/graph/files/npy.hpp"
#include "qk/graph/model/model.hpp"

namespace qk::graph {

/// Reads a serialized TensorProto and the name in it.
named_tensor read_tensor_proto(const std::filesystem::path& file);

/// Reads the tensors of a file or folder. A .npy file gives one, named after the file; a .npz file gives its arrays; a .pb file gives one,
/// with the name in it. A folder gives those of its files in natural order ("x2" before "x10"); a folder with input_N.pb and output_N.pb
/// (ONNX test data) gives the inputs only. A PNG or JPEG image, or a folder of images (images.hpp), gives one tensor of bytes, N,H,W,C,
/// with each image resized to `size` if that is given.
std::vector<named_tensor> read_tensors(const std::filesystem::path& path, image_size size = {});

/// Reads a model's inputs from the arguments of `option`: FILE, or NAME=FILE (split at the first '=' if the text before it names an input).
/// Tensors without a matching name go to the model's inputs in order; if the model has one input, several of them are samples and are
/// joined on axis 0. Samples whose lengths differ along axes that the model leaves open stay ragged (named_tensors). If the graph does not
/// keep rows apart (execute/batch_axis.hpp), or `batch_axis` is no_batch_axis, files are not joined: each is a sample, ragged too. FILE may
/// be a list with commas, and a folder may hold .npz files of several inputs each, one file for each sample. Unless every input is given
/// exactly once, throws an error that names the file, the input and what is expected.
named_tensors read_inputs(const model& m, const std::vector<std::string>& arguments, const std::string& option = "--inputs",
                          image_size size = {}, std::optional<int> batch_axis = {});

/// Returns a tensor's name as a file name: '/', ':', control characters and bytes that are not UTF-8 become '_'.
std::string as_file_name(std::string name);

/// Joins tensors on axis 0. Types must be equal, shapes too but for axis 0; `what` names the tensors in errors.
tensor join(const std::vector<tensor>& parts, const std::string& what);

}  // namespace qk::graph
