// SPDX-License-Identifier: Apache-2.0
// NumPy's .npy and .npz files: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "qk/graph/base/tensor.hpp"

namespace qk::graph {

/// A tensor with the name that its file gives it; "" if none.
struct named_tensor {
    std::string name;
    tensor value;
};

/// Reads bool, (u)int8 to 64, float16/32/64, complex64/128; C or Fortran order; either byte order; format versions 1 to 3.
/// Anything else, and every malformed file, throws error that begins with the file's name.
tensor read_npy(const std::filesystem::path& file);
/// Parses the bytes of a .npy file as read_npy does; `label` names the file in errors.
tensor parse_npy(std::string_view bytes, const std::string& label);

/// Writes version 1, C order, little endian, into a file beside `file` that is then renamed. A type that NumPy lacks is written with the
/// same values in one that it has: bfloat16, FP8, float4e2m1, e8m0 as float32; int4 and int2 as int8; uint4 and uint2 as uint8.
void write_npy(const std::filesystem::path& file, const tensor& value);
std::string to_npy(const tensor& value);

/// Returns the arrays of an archive in its order, with names without ".npy". Reads stored and deflated entries, and zip64.
std::vector<named_tensor> read_npz(const std::filesystem::path& file);
/// Writes stored (not compressed) entries, as np.savez does.
void write_npz(const std::filesystem::path& file, const std::vector<named_tensor>& arrays);

}  // namespace qk::graph
