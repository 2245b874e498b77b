// SPDX-License-Identifier: Apache-2.0
#include "onnxruntime/api.hpp"

namespace qk::onnxruntime {

void fill_operation(OrtCustomOp& op) {
    op.version = interface_version;
    op.GetExecutionProviderType = [](const OrtCustomOp*) -> const char* { return nullptr; };
    op.GetInputMemoryType = [](const OrtCustomOp*, std::size_t) { return OrtMemTypeDefault; };
    op.GetOutputTypeCount = [](const OrtCustomOp*) -> std::size_t { return 1; };
    op.GetOutputCharacteristic = [](const OrtCustomOp*, std::size_t) { return INPUT_OUTPUT_REQUIRED; };
    op.GetVariadicInputMinArity = op.GetVariadicInputHomogeneity = op.GetVariadicOutputMinArity =
        op.GetVariadicOutputHomogeneity = [](const OrtCustomOp*) { return 0; };
    op.GetStartVersion = [](const OrtCustomOp*) { return 1; };
    op.GetEndVersion = [](const OrtCustomOp*) { return 1; };
}

namespace {

input_tensor tensor_of(const OrtApi& api, const OrtValue* value) {
    input_tensor t;
    if (value == nullptr) return t;
    OrtTensorTypeAndShapeInfo* info = nullptr;
    expect(api, api.GetTensorTypeAndShape(value, &info));
    const std::unique_ptr<OrtTensorTypeAndShapeInfo, void (*)(OrtTensorTypeAndShapeInfo*)> held(info, api.ReleaseTensorTypeAndShapeInfo);
    std::size_t rank = 0;
    expect(api, api.GetDimensionsCount(info, &rank));
    t.shape.resize(rank);
    expect(api, api.GetDimensions(info, t.shape.data(), rank));
    expect(api, api.GetTensorShapeElementCount(info, &t.size));
    expect(api, api.GetTensorElementType(info, &t.type));
    void* data = nullptr;
    expect(api, api.GetTensorMutableData(const_cast<OrtValue*>(value), &data));
    t.data = data;
    return t;
}

}  // namespace

std::optional<input_tensor> constant_of(const OrtApi& api, const OrtKernelInfo* info, std::size_t index) {
    std::size_t count = 0, size = 0;
    expect(api, api.KernelInfo_GetInputCount(info, &count));
    if (index >= count) return input_tensor();
    expect(api, api.KernelInfo_GetInputName(info, index, nullptr, &size));
    if (size <= 1) return input_tensor();  // an empty name
    int is_constant = 0;
    const OrtValue* value = nullptr;
    if (!succeeded(api, api.KernelInfoGetConstantInput_tensor(info, index, &is_constant, &value)) || is_constant == 0) return std::nullopt;
    return tensor_of(api, value);
}

input_tensor run_context::input(std::size_t index) const {
    std::size_t count = 0;
    expect(api_, api_.KernelContext_GetInputCount(context_, &count));
    const OrtValue* value = nullptr;
    if (index < count) expect(api_, api_.KernelContext_GetInput(context_, index, &value));
    return tensor_of(api_, value);
}

void* run_context::memory_of_output(std::span<const std::int64_t> shape) const {
    OrtValue* value = nullptr;
    expect(api_, api_.KernelContext_GetOutput(context_, 0, shape.data(), shape.size(), &value));
    void* data = nullptr;
    expect(api_, api_.GetTensorMutableData(value, &data));
    return data;
}

}  // namespace qk::onnxruntime
