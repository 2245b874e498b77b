# SPDX-License-Identifier: Apache-2.0
"""AMD Quark for ONNX, "Mixed Precision": each of its samples with qk, by the same keys."""

from common import DataReader, images, input_model_path, labels

import qk

# Element-wise: block floats for activations, bfloat16 for weights, and the other way round.
for activation, weight in (("QBFP", "QBFloat16"), ("QBFloat16", "QBFP")):
    config = qk.from_quark({"calibrate_method": "MinMax", "activation_type": activation, "weight_type": weight})
    print("element-wise", config.run(input_model_path, DataReader())["quantized_edges"])

# Layer-wise: products in BFP16, the rest in bfloat16; then with both quantizers where two formats meet.
for dual in (False, True):
    config = qk.from_quark({
        "activation_type": "QBFloat16", "weight_type": "QBFloat16", "include_auto_mp": True,
        "extra_options": {"AutoMixprecision": {
            "TargetOpType": ["Conv", "ConvTranspose", "Gemm", "MatMul"], "TargetQuantType": "QBFP", "DualQuantNodes": dual}},
    })
    print("layer-wise", config.run(input_model_path, DataReader())["quantized_edges"])

# Tensor-wise: some tensors in formats of their own.
config = qk.from_quark({
    "activation_type": "QBFP", "weight_type": "QBFP", "specific_tensor_precision": True,
    "extra_options": {"MixedPrecisionTensor": {"QBFloat16": ["stem.weight", "image"], "QInt16": ["head.weight"]}},
})
print("tensor-wise", config.run(input_model_path, DataReader())["quantized_edges"])

# Automatic, by the distance of the outputs.
config = qk.from_quark({
    "activation_type": "QInt16", "weight_type": "QInt8", "include_auto_mp": True,
    "extra_options": {"AutoMixprecision": {
        "TargetOpType": ["Conv", "ConvTranspose", "Gemm", "MatMul"], "ActTargetQuantType": "QInt8", "WeightTargetQuantType": "QInt8",
        "OutputIndex": 0, "L2Target": 0.5}},
})
found = config.run(input_model_path, DataReader())
print("automatic, l2", found.metric, found.target_met)

# Automatic, by top-1 accuracy.
config = qk.from_quark({
    "activation_type": "QInt16", "weight_type": "QInt8", "include_auto_mp": True,
    "extra_options": {"AutoMixprecision": {
        "TargetOpType": ["Conv", "ConvTranspose", "Gemm", "MatMul"], "ActTargetQuantType": "QInt8", "WeightTargetQuantType": "QInt8",
        "OutputIndex": 0, "Top1AccTarget": 0.01}},
})
found = config.run(input_model_path, images, labels=labels)
print("automatic, top1", found.metric, found.target_met)
found.save("mixed.onnx")
