// SPDX-License-Identifier: Apache-2.0
// What a verb reads and writes, told to its output_set.
#pragma once

#include <string>

#include "options/option_table.hpp"
#include "qk/graph/pipeline/files.hpp"

namespace qk::tool {

/// --overwrite, which every verb that writes files has.
void add_overwrite(option_table& verb, bool& overwrite);

/// pipeline::declare_model; its remark goes to standard error.
void declare(graph::output_set& files, const std::string& model);

}  // namespace qk::tool
