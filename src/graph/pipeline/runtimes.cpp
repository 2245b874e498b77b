// SPDX-License-Identifier: Apache-2.0
#include "graph/pipeline/runtimes.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <set>

#include "graph/pipeline/forced.hpp"
#include "graph/pipeline/python_program.hpp"
#include "graph/pipeline/tensors.hpp"
#include "graph/search/child_process.hpp"
#include "qk/graph/files/atomic_file.hpp"
#include "qk/graph/files/file.hpp"
#include "qk/graph/files/npy.hpp"
#include "qk/graph/files/temporary_folder.hpp"
#include "qk/graph/model/attribute.hpp"

namespace qk::graph::pipeline {
namespace {

/// Arguments: FOLDER MODEL MODE LIBRARY, where LIBRARY has operators for the functions of FOLDER/model.onnx, or is "". Modes: `rewrite`
/// writes FOLDER/optimized.onnx; `optimize` and `plain` run MODEL on FOLDER/run0/in0.npy,
/// ... and write FOLDER/run0/out0.npy, ... in the order of FOLDER/outputs.txt. Prints "ok NAME VERSION", or "failed: " and what went wrong.
constexpr const char* in_onnxruntime = R"py(
import os, sys, time
try:
    import numpy, onnxruntime
    folder, model, mode, library = sys.argv[1:]
    onnxruntime.set_default_logger_severity(3)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    if library:
        import ctypes
        own = ctypes.CDLL(library)
        own.qk_onnxruntime_problem.restype = ctypes.c_char_p
        if own.qk_onnxruntime_model(os.fsencode(os.path.join(folder, "model.onnx"))):
            raise RuntimeError(own.qk_onnxruntime_problem().decode(errors="replace"))
        options.register_custom_ops_library(library)
    if mode == "rewrite":
        options.optimized_model_filepath = os.path.join(folder, "optimized.onnx")
        onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    else:
        if mode == "plain":
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        names = [n for n in open(os.path.join(folder, "outputs.txt"), encoding="utf-8").read().split("\n") if n]
        inputs = [n for n in open(os.path.join(folder, "inputs.txt"), encoding="utf-8").read().split("\n") if n]
        run, seconds = 0, 0.0
        while os.path.isdir(os.path.join(folder, "run%d" % run)):
            place = os.path.join(folder, "run%d" % run)
            feed = {n: numpy.load(os.path.join(place, "in%d.npy" % i)) for i, n in enumerate(inputs)}
            start = time.perf_counter()
            values = session.run(names, feed)
            seconds += time.perf_counter() - start
            for i, value in enumerate(values):
                if isinstance(value, numpy.ndarray) and value.dtype.kind in "fiub":
                    numpy.save(os.path.join(place, "out%d.npy" % i), value)
            run += 1
        open(os.path.join(folder, "seconds.txt"), "w").write(repr(seconds))
    print("ok onnxruntime", onnxruntime.__version__)
except Exception as wrong:
    print("failed:", " ".join(str(wrong).split())[:400])
)py";

constexpr const char* in_openvino = R"py(
import os, sys, time
try:
    import numpy, openvino
    folder, model, mode, _ = sys.argv[1:]
    compiled = openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1})
    names = [n for n in open(os.path.join(folder, "outputs.txt"), encoding="utf-8").read().split("\n") if n]
    inputs = [n for n in open(os.path.join(folder, "inputs.txt"), encoding="utf-8").read().split("\n") if n]
    ports = {}
    for port in compiled.outputs:
        for name in port.get_names():
            ports[name] = port
    run, seconds = 0, 0.0
    while os.path.isdir(os.path.join(folder, "run%d" % run)):
        place = os.path.join(folder, "run%d" % run)
        feed = {n: numpy.load(os.path.join(place, "in%d.npy" % i)) for i, n in enumerate(inputs)}
        start = time.perf_counter()
        answer = compiled(feed)
        seconds += time.perf_counter() - start
        for i, name in enumerate(names):
            if name in ports:
                value = numpy.array(answer[ports[name]])
                if value.dtype.kind in "fiub":
                    numpy.save(os.path.join(place, "out%d.npy" % i), value)
        run += 1
    open(os.path.join(folder, "seconds.txt"), "w").write(repr(seconds))
    print("ok openvino", openvino.__version__.split("-")[0])
except Exception as wrong:
    print("failed:", " ".join(str(wrong).split())[:400])
)py";

/// Makes these tensors outputs, too.
void add_outputs(onnx::GraphProto& g, const std::vector<std::string>& wanted) {
    std::set<std::string> given;
    for (const auto& o : g.output()) given.insert(o.name());
    for (const std::string& name : wanted)
        if (given.insert(name).second) g.add_output()->set_name(name);
}

void write_names(const std::filesystem::path& file, const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& n : names) {
        if (n.find('\n') != std::string::npos)
            throw error("the name of tensor '" + n + "' has a line end, which no list of names can hold");
        text += n + "\n";
    }
    write_file(file, text);
}

/// Saves the model with its weights in the message, or beside it where it is too large for one.
void save_with_outputs(const model& m, const std::vector<std::string>& wanted, const std::filesystem::path& file) {
    model all = m;
    add_outputs(all.graph(), wanted);
    all.reindex();
    all.save(file);
}

std::string ask(const std::string& runtime, const temporary_folder& folder, const std::filesystem::path& file, const char* mode,
                const std::filesystem::path& library) {
    const std::string line = first_line_of_python(runtime, runtime == "openvino" ? in_openvino : in_onnxruntime, folder.path().string(),
                                                  {folder.path().string(), file.string(), mode, library.string()}, 3600);
    if (!line.starts_with("ok ")) throw error(runtime + " did not run the model: " + (line.empty() ? "it ended without an answer" : line));
    return line.substr(3);
}

/// Returns those of the names that the optimized model still has.
std::vector<std::string> survivors(const onnx::ModelProto& optimized, const std::vector<std::string>& wanted) {
    std::set<std::string> left;
    for (const auto& n : optimized.graph().node()) left.insert(n.output().begin(), n.output().end());
    std::vector<std::string> all;
    for (const std::string& name : wanted)
        if (left.contains(name)) all.push_back(name);
    return all;
}

/// Returns the operators that make these tensors, with what says how exactly they compute.
std::map<std::string, std::string> makers(const onnx::ModelProto& optimized, const std::vector<std::string>& names) {
    const std::set<std::string> asked(names.begin(), names.end());
    std::map<std::string, std::string> all;
    for (const auto& n : optimized.graph().node())
        for (const std::string& t : n.output()) {
            if (!asked.contains(t)) continue;
            all[t] = n.op_type();
            if (const std::int64_t level = detail::int_attribute(n, "accuracy_level", 0); level != 0)
                all[t] += " with accuracy_level " + std::to_string(level);
        }
    return all;
}

}  // namespace

runtime_answer run_in_runtime(const std::string& runtime, const model& m, const std::vector<std::string>& wanted,
                              const std::vector<named_tensors>& runs, bool optimizes, const std::filesystem::path& library) {
    const temporary_folder folder("qk-diff", "the runtime's files");
    std::vector<std::string> names = wanted, inputs;
    for (const value_info& v : m.inputs()) inputs.push_back(v.name);
    std::filesystem::path file = folder / "model.onnx";
    const char* mode = "plain";
    onnx::ModelProto optimized;
    if (optimizes && runtime == "onnxruntime") {
        // Outputs in the middle would keep the optimizer from fusing. So it rewrites the model first, and what it has left runs as it is.
        m.save(file);
        ask(runtime, folder, file, "rewrite", library);
        if (!optimized.ParseFromString(read_file(folder / "optimized.onnx"))) throw error("onnxruntime's optimized model cannot be read");
        names = survivors(optimized, wanted);
        file = folder / "run.onnx";
        add_outputs(*optimized.mutable_graph(), names);
        write_file(file, optimized.SerializeAsString());
    } else if (optimizes) {
        names.clear();
        for (const value_info& o : m.outputs()) names.push_back(o.name);
        m.save(file);
    } else {
        save_with_outputs(m, wanted, file);
    }
    runtime_answer answer;
    if (optimizes && runtime == "onnxruntime") answer.made_by = makers(optimized, names);
    write_names(folder / "outputs.txt", names);
    write_names(folder / "inputs.txt", inputs);
    for (std::size_t r = 0; r < runs.size(); ++r) {
        const std::filesystem::path place = folder / ("run" + std::to_string(r));
        std::filesystem::create_directory(place);
        for (std::size_t i = 0; i < inputs.size(); ++i) write_npy(place / ("in" + std::to_string(i) + ".npy"), runs[r].at(inputs[i]));
    }
    answer.runtime = ask(runtime, folder, file, mode, library);
    answer.seconds = std::strtod(read_file(folder / "seconds.txt").c_str(), nullptr);
    for (std::size_t r = 0; r < runs.size(); ++r) {
        auto& values = answer.runs.emplace_back();
        for (std::size_t i = 0; i < names.size(); ++i)
            if (const auto made = folder / ("run" + std::to_string(r)) / ("out" + std::to_string(i) + ".npy");
                std::filesystem::exists(made))
                values[names[i]] = read_npy(made);
    }
    return answer;
}

double decibels_beside(const std::string& output, const runtime_answer& reference, const runtime_answer& other) {
    double signal = 0, noise = 0;
    for (std::size_t r = 0; r < reference.runs.size(); ++r) {
        const std::vector<double> a = numbers_of(reference.runs[r].at(output)), b = numbers_of(other.runs[r].at(output));
        if (a.size() != b.size()) throw error("output '" + output + "' has another shape in " + other.runtime);
        for (std::size_t i = 0; i < a.size(); ++i) {
            if (!std::isfinite(a[i])) continue;
            if (!std::isfinite(b[i])) return -std::numeric_limits<double>::infinity();
            signal += a[i] * a[i], noise += (a[i] - b[i]) * (a[i] - b[i]);
        }
    }
    return 10 * std::log10(signal / std::max(noise, 1e-300));
}

runtime_answer run_command(const std::string& command, const model& m, const std::vector<std::string>& wanted,
                           const std::vector<named_tensors>& runs) {
    const temporary_folder folder("qk-diff", "the command's files");
    save_with_outputs(m, wanted, folder / "model.onnx");
    std::vector<traced_tensor> traced;
    for (const std::string& name : wanted) traced.push_back({.name = name, .tensor = name, .node = {}, .op_type = {}});
    runtime_answer answer{.runtime = command, .runs = {}};
    for (std::size_t r = 0; r < runs.size(); ++r) {
        const std::filesystem::path in = folder / ("in" + std::to_string(r)), out = folder / ("out" + std::to_string(r));
        std::filesystem::create_directory(in);
        std::filesystem::create_directory(out);
        std::vector<std::string> names;
        for (const auto& [name, value] : runs[r]) names.push_back(name);
        const std::vector<std::string> files = file_names_for(names);
        for (std::size_t i = 0; i < names.size(); ++i) write_npy(in / (files[i] + ".npy"), runs[r].at(names[i]));
        child_process called(command + " " + shell_word((folder / "model.onnx").string()) + " " + shell_word(in.string()) + " " +
                             shell_word(out.string()) + "; echo \"qk: $?\"");
        std::string status;
        for (std::string line; called.read_line(line, 0) == child_process::outcome::line;) status = line;
        if (status != "qk: 0")
            throw error("--command: '" + command + "' failed" + (called.last_error().empty() ? "" : ": " + called.last_error()));
        answer.runs.push_back(tensor_folder(out, traced).run(0, 1));
    }
    return answer;
}

}  // namespace qk::graph::pipeline
