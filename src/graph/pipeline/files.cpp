// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/pipeline/files.hpp"

#include "qk/graph/evaluate/tensor_files.hpp"
#include "qk/graph/model/model_files.hpp"

namespace qk::graph::pipeline {
namespace {

/// Declares FILE or INPUT=FILE. Only the model says which of them an argument is, so a file that exists under either name is protected.
void declare_data(output_set& files, const char* option, const std::vector<std::string>& arguments) {
    for (const std::string& argument : arguments) {
        for (const auto& file : files_of_tensors(argument)) files.input(option, file);
        if (const std::size_t equals = argument.find('='); equals != std::string::npos)
            for (const auto& file : files_of_tensors(argument.substr(equals + 1))) files.input(option, file);
    }
}

}  // namespace

std::vector<std::string> declare_model(output_set& files, const std::string& model) {
    const model_files found = files_of_model(model);
    for (const auto& file : found.all) files.input("MODEL", file);
    if (found.renamed == 0) return {};
    return {model + ": " + std::to_string(found.renamed) + " names are not UTF-8 and are read with their bytes spelled out (\\xff)"};
}

void declare(output_set& files, const data_settings& data) {
    files.input("--labels", data.labels);
    declare_data(files, "--inputs", data.inputs);
    declare_data(files, "--calibration", data.calibration);
}

std::vector<std::string> declare_run(output_set& files, const std::string& model, const data_settings& data,
                                     const precision_settings& precision) {
    std::vector<std::string> remarks = declare_model(files, model);
    declare(files, data);
    files.input("--plan", precision.plan).input("--target", precision.target);
    return remarks;
}

void declare_report(output_set& files, const std::string& report) {
    files.output("--report", report).output("the JSON beside --report,", beside_report(report));
}

std::filesystem::path beside_report(const std::string& report) {
    return report.empty() ? std::filesystem::path() : std::filesystem::path(report).replace_extension(".json");
}

}  // namespace qk::graph::pipeline
