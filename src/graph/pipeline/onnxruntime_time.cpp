// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/pipeline/onnxruntime_time.hpp"

#include <cstdio>
#include <vector>

#include "graph/evaluate/execute/samples.hpp"
#include "graph/pipeline/python_program.hpp"
#include "qk/graph/files/npy.hpp"
#include "qk/graph/files/temporary_folder.hpp"

namespace qk::graph::pipeline {
namespace {

/// Arguments: FOLDER LIBRARY MODEL ...; with a library, the last model runs with its operators, too. Prints the version, then the medians
/// in milliseconds; or "failed: " and what went wrong. Takes turns, as the machine's pace changes.
constexpr const char* timing_program = R"py(
import os, sys, time
try:
    import numpy, onnxruntime
    folder, library, *models = sys.argv[1:]
    onnxruntime.set_default_logger_severity(3)
    def options(library):
        o = onnxruntime.SessionOptions()
        o.intra_op_num_threads = o.inter_op_num_threads = 1
        if library:
            o.register_custom_ops_library(library)
        return o
    types = {"tensor(float)": "float32", "tensor(float16)": "float16", "tensor(double)": "float64", "tensor(bool)": "bool"}
    runs = []
    for model, own in [(m, "") for m in models] + ([(models[-1], library)] if library else []):
        session = onnxruntime.InferenceSession(model, options(own), providers=["CPUExecutionProvider"])
        feed = {}
        for i, value in enumerate(session.get_inputs()):
            file = os.path.join(folder, "input%d.npy" % i)
            if os.path.exists(file):
                feed[value.name] = numpy.load(file)
            else:
                shape = [d if isinstance(d, int) and d > 0 else 1 for d in value.shape]
                feed[value.name] = numpy.zeros(shape, types.get(value.type, value.type[7:-1]))
        runs.append((session, feed, []))
    start, turns = time.perf_counter(), 0
    while turns < 5 or (turns < 200 and time.perf_counter() - start < 3):
        for session, feed, times in runs:
            begin = time.perf_counter()
            session.run(None, feed)
            times.append(time.perf_counter() - begin)
        turns += 1
    print("onnxruntime", onnxruntime.__version__, *["%.6g" % (1e3 * sorted(t[1:])[len(t[1:]) // 2]) for _, _, t in runs])
except Exception as wrong:
    print("failed:", " ".join(str(wrong).split())[:300])
)py";

}  // namespace

runtime_times time_in_onnxruntime(const std::filesystem::path& float_model, const std::filesystem::path& quantized_model, const model& m,
                                  const named_tensors* samples, bool has_functions) {
    const temporary_folder folder("qk-time", "timing");
    if (samples != nullptr) {
        const std::vector<tensor> first = execute::make_samples(m, *samples).slice(0, 1);
        for (std::size_t i = 0; i < first.size(); ++i) write_npy(folder / ("input" + std::to_string(i) + ".npy"), first[i]);
    }
    const std::string library = has_functions ? onnxruntime_library().string() : std::string();
    const std::string line = first_line_of_python("onnxruntime", timing_program, folder.path().string(),
                                                  {folder.path().string(), library, float_model.string(), quantized_model.string()}, 120);
    runtime_times times;
    char name[64] = {}, version[64] = {};
    double third = 0;
    const int read =
        std::sscanf(line.c_str(), "%63s %63s %lf %lf %lf", name, version, &times.float_milliseconds, &times.milliseconds, &third);
    if (read == 5) times.with_operators = third;
    if (read < 4 || std::string(name) != "onnxruntime")
        throw error("onnxruntime did not run the models: " + (line.empty() ? std::string("it ended without an answer") : line));
    times.runtime = std::string(name) + " " + version;
    return times;
}

}  // namespace qk::graph::pipeline
