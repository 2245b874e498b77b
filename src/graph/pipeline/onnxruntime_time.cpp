// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/pipeline/onnxruntime_time.hpp"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "graph/evaluate/execute/samples.hpp"
#include "graph/search/child_process.hpp"
#include "qk/graph/files/npy.hpp"
#include "qk/graph/files/temporary_folder.hpp"

namespace qk::graph::pipeline {
namespace {

/// Prints the version, then the medians of both models in milliseconds; or "failed: " and what went wrong. Takes turns, as the machine's
/// pace changes.
constexpr const char* timing_program = R"py(
import os, sys, time
try:
    import numpy, onnxruntime
    folder, *models = sys.argv[1:]
    onnxruntime.set_default_logger_severity(3)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    types = {"tensor(float)" : "float32",
                      "tensor(float16)" : "float16", "tensor(double)" : "float64", "tensor(bool)" : "bool"
}
    runs = []
    for model in models:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
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

/// Quotes a word for the shell.
std::string shell_word(const std::string& word) {
    std::string text = "'";
    for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return text + "'";
}

std::string first_line_of(const std::string& command) {
    child_process asked(command);
    std::string line;
    return asked.read_line(line, 120) == child_process::outcome::line ? line : "";
}

}  // namespace

std::string python_with_onnxruntime() {
    std::vector<std::string> tried;
    if (const char* own = std::getenv("QK_PYTHON"); own != nullptr && *own != '\0') {
        tried = {own};
    } else {
        if (const char* environment = std::getenv("VIRTUAL_ENV"); environment != nullptr && *environment != '\0')
            tried.push_back(std::string(environment) + "/bin/python");
        tried.insert(tried.end(), {"python3", "python"});
    }
    std::string names;
    for (const std::string& python : tried) {
        if (first_line_of(shell_word(python) + " -c 'import numpy, onnxruntime; print(\"yes\")' 2>/dev/null") == "yes") return python;
        names += (names.empty() ? "" : ", ") + python;
    }
    throw error("no python with onnxruntime and numpy was found (tried " + names + "); set QK_PYTHON to one that has them");
}

runtime_times time_in_onnxruntime(const std::filesystem::path& float_model, const std::filesystem::path& quantized_model, const model& m,
                                  const named_tensors* samples) {
    const std::string python = python_with_onnxruntime();
    const temporary_folder folder("qk-time", "timing");
    if (samples != nullptr) {
        const std::vector<tensor> first = execute::make_samples(m, *samples).slice(0, 1);
        for (std::size_t i = 0; i < first.size(); ++i) write_npy(folder / ("input" + std::to_string(i) + ".npy"), first[i]);
    }
    std::ofstream(folder / "time.py") << timing_program;
    const std::string line =
        first_line_of(shell_word(python) + " " + shell_word((folder / "time.py").string()) + " " + shell_word(folder.path().string()) +
                      " " + shell_word(float_model.string()) + " " + shell_word(quantized_model.string()));
    runtime_times times;
    char name[64] = {}, version[64] = {};
    if (std::sscanf(line.c_str(), "%63s %63s %lf %lf", name, version, &times.float_milliseconds, &times.milliseconds) != 4 ||
        std::string(name) != "onnxruntime")
        throw error("onnxruntime did not run the models: " + (line.empty() ? std::string("it ended without an answer") : line));
    times.runtime = std::string(name) + " " + version;
    return times;
}

}  // namespace qk::graph::pipeline
