// SPDX-License-Identifier: Apache-2.0
// What a call reads, as the caller has it: named by a file, or in memory. Copies share what is in memory.
#pragma once

#include <filesystem>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "qk/graph/evaluate/evaluator.hpp"
#include "qk/graph/files/images.hpp"
#include "qk/graph/model/model.hpp"
#include "qk/graph/quantize/plan_file.hpp"

namespace qk::graph::pipeline {

/// A model: the path of its file, its serialized bytes, or its message. External data lies beside a file; bytes and messages have none.
class model_source {
  public:
    std::string file;  ///< empty: in memory, or not given

    model_source() = default;
    model_source(std::string path) : file(std::move(path)) {}
    model_source(const char* path) : file(path) {}
    model_source(const std::filesystem::path& path) : file(path.string()) {}
    model_source(const onnx::ModelProto& message);
    /// Messages and reports call the model by `name`.
    static model_source of_bytes(std::string bytes, std::string name = "model");
    /// Takes no copy: `owner` keeps the bytes.
    static model_source of_bytes(std::string_view bytes, std::shared_ptr<const void> owner, std::string name = "model");

    bool in_memory() const { return owner_ != nullptr; }
    std::string_view bytes() const { return bytes_; }
    const std::string& name() const { return in_memory() ? name_ : file; }
    std::string short_name() const { return std::filesystem::path(name()).filename().string(); }  ///< without folder
    /// Throws error as model::load does, and for bytes that refer to external data.
    model load() const;

  private:
    std::shared_ptr<const void> owner_;
    std::string_view bytes_;
    std::string name_;
};

/// One array: an .npy file (of labels, also a folder of images), or values in memory.
class array_source {
  public:
    std::string file;

    array_source() = default;
    array_source(std::string path) : file(std::move(path)) {}
    array_source(const char* path) : file(path) {}
    array_source(const std::filesystem::path& path) : file(path.string()) {}
    array_source(tensor values) : values_(std::move(values)) {}
    array_source(const std::vector<std::int64_t>& values);

    bool empty() const { return file.empty() && values_.empty(); }
    /// Returns the file, or `otherwise`.
    std::string name(const char* otherwise) const { return values_.empty() ? file : otherwise; }
    tensor read() const;

  private:
    tensor values_;
};

/// Fills in the next batch, arrays by input ("" is the first input that has none), and returns true; or returns false at the end. The
/// arrays must stay as they are.
using next_batch = std::function<bool(named_tensors& batch)>;

/// Samples: files, arrays by input, or a function that gives batches.
class data_source {
  public:
    std::vector<std::string> files;  ///< FILE or INPUT=FILE

    data_source() = default;
    data_source(std::vector<std::string> arguments) : files(std::move(arguments)) {}
    data_source(std::initializer_list<std::string> arguments) : files(arguments) {}
    data_source(named_tensors arrays);
    /// The function is called when the data is first needed, to its end; batches are kept, and read again for later needs.
    template <class F>
    requires std::is_invocable_r_v<bool, F&, named_tensors&> data_source(F next) : data_source(next_batch(std::move(next)), 0) {}

    bool empty() const { return files.empty() && held_ == nullptr; }
    /// Reads the data for the model's inputs, as read_inputs() does. `option` names it in errors.
    named_tensors read(const model& m, const std::string& option, image_size size, std::optional<int> batch_axis) const;

  private:
    data_source(next_batch next, int);
    struct held;
    std::shared_ptr<held> held_;
};

/// A requests file, a saved plan or AIMET encodings: the path of the file, what parse_plan_file() returns, a plan, or requests.
class plan_source {
  public:
    std::string file;

    plan_source() = default;
    plan_source(std::string path) : file(std::move(path)) {}
    plan_source(const char* path) : file(path) {}
    plan_source(const std::filesystem::path& path) : file(path.string()) {}
    plan_source(plan_file content) : content_(std::make_shared<const plan_file>(std::move(content))) {}
    plan_source(precision_plan saved);
    plan_source(std::vector<request> requests);

    bool empty() const { return file.empty() && content_ == nullptr; }
    std::string name() const { return content_ == nullptr ? file : "plan"; }
    plan_file read() const { return content_ == nullptr ? load_plan_file(file) : *content_; }

  private:
    std::shared_ptr<const plan_file> content_;
};

/// Ends a call whose caller asked for it. No error of the call's, so that nobody takes it for one.
class cancelled : public std::runtime_error {
  public:
    cancelled() : std::runtime_error("cancelled") {}
};

/// Returns true when a call should end with `cancelled`. Asked between samples and between layers, from several threads at once.
using cancel_function = std::function<bool()>;

}  // namespace qk::graph::pipeline
