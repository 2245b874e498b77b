// SPDX-License-Identifier: Apache-2.0
// A device behind a command, called as `CMD CASE.npz OUT.npz`: the first file has arrays of codes a [m][k], b [k][n], c [m][n] (and
// scale_a, scale_b of MX blocks), the second has d [m][n]. 4-bit codes stand two to a byte along k, the first in the low bits.
#pragma once

#include <string>

#include "qk/compare/dot.hpp"
#include "qk/graph/files.hpp"

namespace qk::tool {

/// Returns the operands of a case; where not `joined`, codes of 4 bits have a byte each.
std::vector<graph::named_tensor> arrays_of(const compare::dot_task& task, const compare::dot_case& c, bool joined = true);
/// Reads a case whose operands have the task's formats; sets task.k, and task.c to fp16 if c has 16 bits and task.c is fp32.
compare::dot_case case_of(const std::vector<graph::named_tensor>& arrays, const std::string& file, compare::dot_task& task);
/// Reads the codes d of a file; `bits` gets the bits of an element: 8, 16 or 32.
std::vector<std::uint64_t> results_of(const std::vector<graph::named_tensor>& arrays, const std::string& file, const product_shape& shape,
                                      int& bits);

/// Asks by files in a temporary folder of its own.
class commanded_device {
  public:
    explicit commanded_device(std::string command) : command_(std::move(command)) {}
    std::vector<std::uint64_t> ask(const compare::dot_task& task, const compare::dot_case& c, int& bits) const;

  private:
    std::string command_;
    graph::temporary_folder folder_{"qk_device", "--command"};
};

}  // namespace qk::tool
