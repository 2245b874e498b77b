// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/search/metric_server.hpp"
#include "qk/graph/search/positions.hpp"

#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "graph/search/child_process.hpp"
#include "qk/graph/files/npy.hpp"
#include "qk/graph/files/temporary_folder.hpp"

namespace qk::graph {
namespace {

namespace fs = std::filesystem;

/// Quotes what a program said, cut for an error message and without control characters.
std::string shown(const std::string& text) {
    std::string s = text.substr(0, 120);
    for (char& c : s)
        if (static_cast<unsigned char>(c) < 32 || static_cast<unsigned char>(c) == 127) c = '?';
    return "'" + s + (text.size() > 120 ? "...'" : "'");
}

}  // namespace

struct metric_server::running {
    explicit running(const std::string& command) : program(command) {}
    /// In memory if the system has /dev/shm: a trial's outputs are read at once and then discarded.
    temporary_folder folder{"qk-metric", "--metric-server", {"/dev/shm"}};
    child_process program;
    bool wants_model = false;
    std::size_t trials = 0;
    tensor reference;  // last written to the file
    bool has_labels = false;
};

metric_server::metric_server(metric_server_options options) : options_(std::move(options)) {}
metric_server::~metric_server() = default;

void metric_server::fail(const std::string& what) {
    std::string said;
    if (running_) said = running_->program.last_error();
    running_.reset();
    throw error("--metric-server '" + options_.command + "' " + what + (said.empty() ? "" : "; it said " + shown(said)));
}

std::string metric_server::answer(const char* to_what) {
    std::string line;
    switch (running_->program.read_line(line, options_.timeout)) {
        case child_process::outcome::line: return line;
        case child_process::outcome::late: {
            std::string seconds = std::to_string(options_.timeout);
            seconds.erase(seconds.find_last_not_of('0') + 1);
            if (seconds.ends_with('.')) seconds.pop_back();
            fail("has not answered " + std::string(to_what) + " in " + seconds + " seconds (--metric-timeout gives it more)");
        }
        case child_process::outcome::ended: break;
    }
    const std::string how = running_->program.ending();
    fail((how.empty() ? "closed its standard output" : how) + " instead of answering " + to_what);
}

void metric_server::start() {
    running_ = std::make_unique<running>(options_.command);
    const std::string line = answer("that it is ready");
    if (line != "ready" && line != "ready model")
        fail("began with " + shown(line) + " instead of 'ready' or 'ready model' (what is not an answer belongs on standard error)");
    running_->wants_model = line == "ready model";
    if (running_->wants_model && !options_.write_model) fail("asks for models, and nothing here writes them");
}

double metric_server::measure(const tensor& outputs, const tensor& reference, std::span<const std::int64_t> labels,
                              const precision_plan& plan) {
    if (!running_) start();
    running& r = *running_;
    const fs::path output = r.folder / "output.npy", expected = r.folder / "reference.npy", classes = r.folder / "labels.npy",
                   written = r.folder / "model.onnx";
    write_npy(output, outputs);
    if (r.trials == 0 || r.reference.bytes() != reference.bytes()) write_npy(expected, reference), r.reference = reference;
    if (r.trials == 0 && !labels.empty()) write_npy(classes, labels_by_sample(labels, outputs)), r.has_labels = true;
    nlohmann::ordered_json request{{"trial", ++r.trials}, {"output", output.string()}, {"reference", expected.string()}};
    request["labels"] = r.has_labels ? nlohmann::ordered_json(classes.string()) : nlohmann::ordered_json(nullptr);
    if (r.wants_model) {
        options_.write_model(plan, written);
        request["model"] = written.string();
    }
    // A surplus answer would be taken for the next trial's.
    if (const std::string more = r.program.unread(); !more.empty())
        fail("said " + shown(more) + " that nothing asked for (one line for each trial)");
    const std::string trial = "trial " + std::to_string(r.trials);
    if (!r.program.send(request.dump())) {
        const std::string how = r.program.ending();
        fail((how.empty() ? "does not read any more" : how) + " before " + trial);
    }
    const std::string line = answer(trial.c_str());
    if (line.starts_with("error"))
        fail("reports of " + trial + ": " + shown(line.substr(std::min(line.find_first_not_of(" :", 5), line.size()))));
    char* end = nullptr;
    const double value = std::strtod(line.c_str(), &end);
    while (*end == ' ' || *end == '\t') ++end;
    if (end == line.c_str() || *end != '\0') fail("answered " + trial + " with " + shown(line) + ", which is no number");
    return value;
}

}  // namespace qk::graph
