// SPDX-License-Identifier: Apache-2.0
// The importance of the columns of a checkpoint's weights, from a file: how much each column counts when a weight is quantized.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "qk/checkpoint.hpp"

namespace qk::tool {

class importance_file {
  public:
    importance_file() = default;
    /// Reads an .npz with a float32 vector under each tensor's name, or llama.cpp's imatrix (.gguf, or the older .dat). Throws graph::error
    /// if none of its names is that of a weight of `c`; some that are none make a remark.
    importance_file(const std::string& file, const checkpoint::checkpoint& c);

    bool empty() const { return vectors_.empty(); }
    /// Returns the vector of a weight; empty: it has none.
    std::vector<float> of(const checkpoint::weight& w) const;
    /// Likewise for a type that it is quantized to: empty, too, where ggml's rule for the type looks at none.
    std::vector<float> of(const checkpoint::weight& w, ggml_type type);
    /// Prints a remark where the vectors that were asked for by type are none.
    void say_if_unused() const;

  private:
    std::string file_;
    std::map<std::string, std::vector<float>> vectors_;
    bool used_ = false;
};

}  // namespace qk::tool
