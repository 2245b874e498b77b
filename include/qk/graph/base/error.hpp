// SPDX-License-Identifier: Apache-2.0
// The one exception of the graph module: a sentence for the user that names what is wrong, where, and what to do.
#pragma once

#include <stdexcept>
#include <string>

namespace qk::graph {

/// Reports wrong input or wrong use: a file, model, node, tensor, option or value that qk cannot use. The tool exits with status 2.
class error : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

}  // namespace qk::graph
