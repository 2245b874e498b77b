// SPDX-License-Identifier: Apache-2.0
// Measures with a user's program that is started once and answers with one line for each trial (docs/guide/search.md, "A measure of your
// own").
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "qk/graph/base/tensor.hpp"
#include "qk/graph/plan/plan.hpp"

namespace qk::graph {

struct metric_server_options {
    std::string command;
    double timeout = 600;  ///< seconds for each answer, the first one included; 0: as long as it takes
    /// Writes the model under a plan, for a program that wants models. Unset: such a program is an error.
    std::function<void(const precision_plan& plan, const std::filesystem::path& file)> write_model;
};

/// The program speaks first: it prints "ready", or "ready model" if it wants each trial's model as a file. For each trial it reads a line
/// of JSON,
///   {"trial": 1, "output": FILE.npy, "reference": FILE.npy, "labels": FILE.npy or null, "model": FILE.onnx}    ("model" if it wants one)
/// and answers with a number, or with "error" and a sentence. The files lie in shared memory where the system has it. The program should
/// end when its standard input ends.
class metric_server {
  public:
    /// Starts nothing. The first measure() starts the program: of several processes only one measures.
    explicit metric_server(metric_server_options options);
    ~metric_server();

    /// Returns the program's number. Throws an error with the command and what it said if it cannot be run, ends, is late, reports an
    /// error, or answers with anything but a number. After an error the next call starts it anew.
    double measure(const tensor& outputs, const tensor& reference, std::span<const std::int64_t> labels, const precision_plan& plan);

    const std::string& command() const { return options_.command; }

  private:
    struct running;
    void start();
    std::string answer(const char* to_what);
    [[noreturn]] void fail(const std::string& what);

    metric_server_options options_;
    std::unique_ptr<running> running_;
};

}  // namespace qk::graph
