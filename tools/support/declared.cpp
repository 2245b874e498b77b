// SPDX-License-Identifier: Apache-2.0
#include "support/declared.hpp"

#include "support/console.hpp"
#include "support/processes.hpp"

namespace qk::tool {

void add_overwrite(option_table& verb, bool& overwrite) {
    verb.add_flag("--overwrite", overwrite, "an output may take the place of a file that is read, or of another output");
}

void declare(graph::output_set& files, const graph::pipeline::model_source& model) {
    for (const std::string& remark : graph::pipeline::declare_model(files, model))
        if (processes::together().first()) print(stderr, "{}\n", remark);
}

}  // namespace qk::tool
