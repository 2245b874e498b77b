// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/pipeline/sources.hpp"

#include <onnx/onnx_pb.h>

#include <mutex>

#include "graph/evaluate/tensor_files.hpp"
#include "graph/model/model_bytes.hpp"
#include "qk/graph/evaluate/inputs.hpp"

namespace qk::graph::pipeline {

model_source::model_source(const onnx::ModelProto& message) { *this = of_bytes(serialized(message)); }

model_source model_source::of_bytes(std::string bytes, std::string name) {
    const auto own = std::make_shared<const std::string>(std::move(bytes));
    return of_bytes(*own, own, std::move(name));
}

model_source model_source::of_bytes(std::string_view bytes, std::shared_ptr<const void> owner, std::string name) {
    model_source made;
    made.owner_ = std::move(owner), made.bytes_ = bytes, made.name_ = std::move(name);
    return made;
}

model model_source::load() const { return in_memory() ? model::parse(bytes_, {}, name_) : model::load(file); }

array_source::array_source(const std::vector<std::int64_t>& values)
    : values_(make_tensor<std::int64_t>({static_cast<std::int64_t>(values.size())}, values)) {}

tensor array_source::read() const { return values_.empty() ? read_npy(file) : values_; }

plan_source::plan_source(precision_plan saved) {
    plan_file content;
    content.plan = std::move(saved);
    content_ = std::make_shared<const plan_file>(std::move(content));
}

plan_source::plan_source(std::vector<request> requests) {
    plan_file content;
    content.requests = std::move(requests);
    content_ = std::make_shared<const plan_file>(std::move(content));
}

/// What was given, or the function that has not been asked yet.
struct data_source::held {
    std::vector<named_tensors> batches;
    next_batch next;
    std::mutex one;
};

data_source::data_source(named_tensors arrays) : held_(std::make_shared<held>()) { held_->batches.push_back(std::move(arrays)); }
data_source::data_source(next_batch next, int) : held_(std::make_shared<held>()) { held_->next = std::move(next); }

named_tensors data_source::read(const model& m, const std::string& option, image_size size, std::optional<int> batch_axis) const {
    if (held_ == nullptr) return read_inputs(m, files, option, size, batch_axis);
    const std::lock_guard lock(held_->one);
    while (held_->next) {
        named_tensors batch;
        if (held_->next(batch)) held_->batches.push_back(std::move(batch));
        else held_->next = {};
    }
    if (held_->batches.empty()) throw error(option + ": the function that gives batches gave none");
    return join_batches(m, held_->batches, option, batch_axis);
}

}  // namespace qk::graph::pipeline
