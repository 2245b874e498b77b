// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/pipeline/files.hpp"

#include "graph/evaluate/tensor_files.hpp"
#include "graph/model/model_bytes.hpp"
#include "qk/graph/base/names.hpp"
#include "qk/graph/model/model_files.hpp"
#include "qk/graph/quantize/remarks.hpp"

namespace qk::graph::pipeline {
namespace {

/// Declares FILE or INPUT=FILE. Only the model says which of them an argument is, so a file that exists under either name is protected.
/// Adds a remark on what a folder holds besides data.
void declare_data(output_set& files, const char* option, const std::vector<std::string>& arguments, std::vector<std::string>& remarks) {
    for (const std::string& argument : arguments) {
        std::vector<std::string> names{argument};
        if (const std::size_t equals = argument.find('='); equals != std::string::npos) names.push_back(argument.substr(equals + 1));
        for (const std::string& name : names) {
            for (const auto& file : files_of_tensors(name)) files.input(option, file);
            std::vector<std::string> others;
            for (const auto& file : passed_over(name)) others.push_back(file.lexically_relative(name).string());
            if (!others.empty())
                remarks.push_back(std::string(option) + " " + name + ": passes over what is no data there: " + listed(others, 8));
        }
    }
}

}  // namespace

std::vector<std::string> declare_model(output_set& files, const model_source& model) {
    const model_files found = model.in_memory() ? model_files{{}, count_renamed(model.bytes())} : files_of_model(model.file);
    for (const auto& file : found.all) files.input("MODEL", file);
    if (found.renamed == 0) return {};
    return {model.name() + ": " + std::to_string(found.renamed) + " names are not UTF-8 and are read with their bytes spelled out (\\xff)"};
}

std::vector<std::string> declare(output_set& files, const data_settings& data) {
    std::vector<std::string> remarks;
    files.input("--labels", data.labels.file);
    declare_data(files, "--inputs", data.inputs.files, remarks);
    declare_data(files, "--calibration", data.calibration.files, remarks);
    if (data.positions.ignore_label != ignored_label && data.labels.empty() && !data.positions.next_token)
        remarks.push_back(std::string(warning_mark) + "unused: option --ignore-label has no effect: there are no --labels");
    return remarks;
}

std::vector<std::string> declare_run(output_set& files, const model_source& model, const data_settings& data,
                                     const precision_settings& precision) {
    std::vector<std::string> remarks = declare_model(files, model);
    for (std::string& r : declare(files, data)) remarks.push_back(std::move(r));
    files.input("--plan", precision.plan.file).input("--target", precision.target);
    return remarks;
}

void declare_report(output_set& files, const std::string& report) {
    files.output("--report", report).output("the JSON beside --report,", beside_report(report));
}

std::filesystem::path beside_report(const std::string& report) {
    return report.empty() ? std::filesystem::path() : std::filesystem::path(report).replace_extension(".json");
}

}  // namespace qk::graph::pipeline
