// SPDX-License-Identifier: Apache-2.0
// Definitions of declared.hpp.
#include "support/declared.hpp"

#include "qk/graph/evaluate/tensor_files.hpp"
#include "qk/graph/model/model_files.hpp"
#include "support/console.hpp"
#include "support/processes.hpp"

namespace qk::tool {
namespace {

/// FILE or INPUT=FILE: which of them it is, the model will say; a file that exists under either name is protected.
void declare_data(graph::output_set& files, const char* option, const std::vector<std::string>& arguments) {
    for (const std::string& argument : arguments) {
        for (const auto& file : graph::files_of_tensors(argument)) files.input(option, file);
        if (const std::size_t equals = argument.find('='); equals != std::string::npos)
            for (const auto& file : graph::files_of_tensors(argument.substr(equals + 1))) files.input(option, file);
    }
}

}  // namespace

void add_overwrite(option_table& verb, bool& overwrite) {
    verb.add_flag("--overwrite", overwrite, "an output may take the place of a file that is read, or of another output");
}

void declare(graph::output_set& files, const std::string& model) {
    const graph::model_files found = graph::files_of_model(model);
    for (const auto& file : found.all) files.input("MODEL", file);
    if (found.renamed > 0 && processes::together().first())
        print(stderr, "{}: {} names are not UTF-8 and are read with their bytes spelled out (\\xff)\n", model, found.renamed);
}

void declare(graph::output_set& files, const data_options& data) {
    files.input("--labels", data.labels);
    declare_data(files, "--inputs", data.inputs);
    declare_data(files, "--calibration", data.calibration);
}

void declare(graph::output_set& files, const precision_options& precision) {
    files.input("--plan", precision.plan).input("--target", precision.target);
}

void declare_report(graph::output_set& files, const std::string& report) {
    files.output("--report", report).output("the JSON beside --report,", beside_report(report));
}

}  // namespace qk::tool
