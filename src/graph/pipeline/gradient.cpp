// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/pipeline/gradient.hpp"

#include "graph/pipeline/cancelling.hpp"
#include "qk/graph/files/npy.hpp"
#include "qk/graph/files/zip.hpp"
#include "qk/graph/pipeline/files.hpp"

namespace qk::graph::pipeline {

gradient_outcome gradient(const gradient_settings& settings) {
    if (settings.vector.empty() == settings.data.labels.empty())
        throw error(
            "give either --vector V.npy, for the gradient of the sum of v * y, or --labels Y.npy, for that of the mean cross-entropy");
    const stop_check here(stopping(settings.cancel));
    gradient_outcome done;
    output_set files(settings.overwrite);
    done.remarks = declare_run(files, settings.model, settings.data);
    files.input("--vector", settings.vector.file).output("-o", settings.output);
    const model m = settings.model.load();
    const named_tensors inputs = settings.data.load_inputs(m);
    if (const std::string whole = batch_remark(m, inputs); !whole.empty()) done.remarks.push_back("--inputs: " + whole);
    const gradient_options options{
        .threads = settings.data.threads, .output_index = settings.output_index, .ignore_label = settings.data.positions.ignore_label};
    done.result = settings.vector.empty() ? loss_gradient(m, inputs, settings.data.load_labels(m, inputs, settings.output_index), options)
                                          : vector_gradient(m, inputs, settings.vector.read(), options);
    if (settings.output.empty()) return done;
    std::vector<zip_entry> arrays;
    for (const auto& [name, value] : done.result.gradients) arrays.push_back({name + ".npy", to_npy(value)});
    files.write(settings.output, zip(arrays, settings.output));
    files.commit();
    return done;
}

}  // namespace qk::graph::pipeline
