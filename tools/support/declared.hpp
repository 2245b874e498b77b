// SPDX-License-Identifier: Apache-2.0
// What a verb reads, told to its output_set: so that no output takes an input's place, whichever option names it.
#pragma once

#include <string>

#include "options/data_options.hpp"
#include "options/option_table.hpp"
#include "options/precision_options.hpp"
#include "qk/graph/files/output_set.hpp"

namespace qk::tool {

/// --overwrite, which every verb that writes files has.
void add_overwrite(option_table& verb, bool& overwrite);

/// MODEL and its external data. Says on standard error when names in it have to change.
void declare(graph::output_set& files, const std::string& model);
/// --inputs, --calibration, --labels; --plan, --target.
void declare(graph::output_set& files, const data_options& data);
void declare(graph::output_set& files, const precision_options& precision);
/// --report and the JSON beside it.
void declare_report(graph::output_set& files, const std::string& report);

}  // namespace qk::tool
