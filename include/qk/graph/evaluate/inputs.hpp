// SPDX-License-Identifier: Apache-2.0
// Data for a model's inputs from files: .npy, .npz, ONNX .pb tensors, a folder of any of them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/files/images.hpp"
#include "qk/graph/files/npy.hpp"
#include "qk/graph/model/model.hpp"

namespace qk::graph {

/// A serialized TensorProto, and the name in it.
named_tensor read_tensor_proto(const std::filesystem::path& file);

/// The tensors of a file or folder. .npy: one, named after the file; .npz: its arrays; .pb: one, with the name that it holds. A folder:
/// those of its files in natural order ("x2" before "x10"); of a folder with input_N.pb and output_N.pb (ONNX test data) the inputs only.
/// A PNG or JPEG image, or a folder of images (images.hpp): one tensor of bytes, N,H,W,C, each image made `size` if that is given.
std::vector<named_tensor> read_tensors(const std::filesystem::path& path, image_size size = {});

/// What the arguments of `option` give a model: FILE, or NAME=FILE (split at the first '=' when what stands left of it names an input).
/// Tensors without a matching name go to the model's inputs in order; when the model has one input, several of them are samples and are
/// joined on axis 0. Samples whose lengths differ along axes that the model leaves open stay ragged (named_tensors). FILE may be a list
/// with commas, and a folder may hold .npz files of several inputs each: a sample a file. Every input is there exactly once, or an error
/// names the file, the input and what is expected.
named_tensors read_inputs(const model& m, const std::vector<std::string>& arguments, const std::string& option = "--inputs",
                          image_size size = {});

/// A tensor's name as a file name: '/' and ':' become '_'.
std::string as_file_name(std::string name);

/// Tensors of one type and equal shapes but for axis 0, joined on it; `what` names them in errors.
tensor join(const std::vector<tensor>& parts, const std::string& what);

}  // namespace qk::graph
