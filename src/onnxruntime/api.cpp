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

input_tensor run_context::input(std::size_t index) const {
    input_tensor t;
    std::size_t count = 0;
    expect(api_, api_.KernelContext_GetInputCount(context_, &count));
    const OrtValue* value = nullptr;
    if (index < count) expect(api_, api_.KernelContext_GetInput(context_, index, &value));
    if (value == nullptr) return t;
    OrtTensorTypeAndShapeInfo* info = nullptr;
    expect(api_, api_.GetTensorTypeAndShape(value, &info));
    const std::unique_ptr<OrtTensorTypeAndShapeInfo, void (*)(OrtTensorTypeAndShapeInfo*)> held(info, api_.ReleaseTensorTypeAndShapeInfo);
    std::size_t rank = 0;
    expect(api_, api_.GetDimensionsCount(info, &rank));
    t.shape.resize(rank);
    expect(api_, api_.GetDimensions(info, t.shape.data(), rank));
    expect(api_, api_.GetTensorShapeElementCount(info, &t.size));
    expect(api_, api_.GetTensorElementType(info, &t.type));
    void* data = nullptr;
    expect(api_, api_.GetTensorMutableData(const_cast<OrtValue*>(value), &data));
    t.data = data;
    return t;
}

void* run_context::memory_of_output(std::span<const std::int64_t> shape) const {
    OrtValue* value = nullptr;
    expect(api_, api_.KernelContext_GetOutput(context_, 0, shape.data(), shape.size(), &value));
    void* data = nullptr;
    expect(api_, api_.GetTensorMutableData(value, &data));
    return data;
}

}  // namespace qk::onnxruntime
