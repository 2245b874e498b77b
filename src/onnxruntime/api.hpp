// SPDX-License-Identifier: Apache-2.0
// onnxruntime's C interface, version 17 of it: everything that qk's operators ask of a session.
#pragma once

#include <onnxruntime_c_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace qk::onnxruntime {

/// The version that the library asks for, whatever the header: 1.17 is the oldest runtime that it serves.
inline constexpr std::uint32_t interface_version = 17;
static_assert(ORT_API_VERSION >= interface_version, "qk's operators need the headers of onnxruntime 1.17 or later");

/// What is wrong with a node, a file or an input, in a sentence.
class refusal : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// Throws what onnxruntime said.
inline void expect(const OrtApi& api, OrtStatus* status) {
    if (status == nullptr) return;
    const std::string said = api.GetErrorMessage(status);
    api.ReleaseStatus(status);
    throw refusal(said);
}
/// Returns whether a call succeeded, whose failure only means that there is no such thing.
inline bool succeeded(const OrtApi& api, OrtStatus* status) {
    if (status != nullptr) api.ReleaseStatus(status);
    return status == nullptr;
}

/// Runs `work`, and makes a status of what it throws: no exception may reach onnxruntime.
template <class Work>
OrtStatus* as_status(const OrtApi& api, const Work& work) noexcept {
    try {
        work();
        return nullptr;
    } catch (const refusal& e) {
        return api.CreateStatus(ORT_INVALID_ARGUMENT, e.what());
    } catch (const std::exception& e) {
        return api.CreateStatus(ORT_FAIL, e.what());
    }
}

/// Fills in what operators of qk have in common: one output, the CPU, version 1. Names, types and functions are left to set.
void fill_operation(OrtCustomOp& op);

/// An input of a run; without `data` where the call leaves it out.
struct input_tensor {
    const void* data = nullptr;
    ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    std::vector<std::int64_t> shape;
    std::size_t size = 0;

    bool is_there() const { return type != ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED; }
    template <class T>
    std::span<const T> as() const {
        return {static_cast<const T*>(data), size};
    }
};

/// Returns input `index` of a node where it is a constant of the model or left out, else nothing.
std::optional<input_tensor> constant_of(const OrtApi& api, const OrtKernelInfo* info, std::size_t index);

/// One run of a kernel.
class run_context {
  public:
    run_context(const OrtApi& api, OrtKernelContext* context) : api_(api), context_(context) {
        OrtMemoryInfo* info = nullptr;
        expect(api, api.CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &info));
        const std::unique_ptr<OrtMemoryInfo, void (*)(OrtMemoryInfo*)> held(info, api.ReleaseMemoryInfo);
        expect(api, api.KernelContext_GetAllocator(context, info, &arena_));
    }
    ~run_context() {
        for (void* p : taken_) arena_->Free(arena_, p);
        api_.ReleaseAllocator(arena_);
    }
    run_context(const run_context&) = delete;
    run_context& operator=(const run_context&) = delete;

    input_tensor input(std::size_t index) const;
    /// Returns the memory of the output, which is of type T, in this shape.
    template <class T>
    std::span<T> output(std::span<const std::int64_t> shape) const {
        std::size_t size = 1;
        for (const std::int64_t d : shape) size *= static_cast<std::size_t>(d);
        return {static_cast<T*>(memory_of_output(shape)), size};
    }

    /// Returns room in the session's arena until the run ends.
    template <class T>
    std::span<T> room_for(std::size_t n) {
        if (n == 0) return {};
        void* p = arena_->Alloc(arena_, n * sizeof(T));
        if (p == nullptr) throw refusal("the session's arena has no " + std::to_string(n * sizeof(T)) + " bytes left");
        taken_.push_back(p);
        return {static_cast<T*>(p), n};
    }

    /// Calls work(0) ... work(n - 1) on the session's threads. `work` throws nothing.
    template <class Work>
    void in_parallel(std::size_t n, const Work& work) const {
        if (n == 1) return work(std::size_t{0});
        const auto call = [](void* w, std::size_t i) { (*static_cast<const Work*>(w))(i); };
        if (n > 1) expect(api_, api_.KernelContext_ParallelFor(context_, call, n, 0, const_cast<Work*>(&work)));
    }

  private:
    void* memory_of_output(std::span<const std::int64_t> shape) const;

    const OrtApi& api_;
    OrtKernelContext* context_;
    OrtAllocator* arena_ = nullptr;
    std::vector<void*> taken_;
};

}  // namespace qk::onnxruntime
