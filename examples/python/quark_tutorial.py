# SPDX-License-Identifier: Apache-2.0
"""AMD Quark's tutorial "Mixed Precision": power-of-two scales for tensors, and a search with an evaluation of one's own."""

from common import DataReader, input_model_path, top1_acc

import qk

config = qk.from_quark({
    "calibrate_method": "NonOverflow", "activation_type": "QInt16", "weight_type": "QInt8", "specific_tensor_precision": True,
    "extra_options": {"MixedPrecisionTensor": {"QInt8": ["stem.weight", "image"], "QInt16": ["head.weight"]}},
})
print("power-of-two scales", config.run(input_model_path, DataReader())["quantized_edges"])

config = qk.from_quark({
    "calibrate_method": "Percentile", "activation_type": "QInt16", "weight_type": "QInt8", "include_auto_mp": True,
    "extra_options": {"AutoMixprecision": {
        "ActTargetQuantType": "QInt8", "WeightTargetQuantType": "QInt8", "OutputIndex": 0, "Top1AccTarget": 0.1,
        "EvaluateFunction": top1_acc}},
})
found = config.run(input_model_path, DataReader(), max_trials=8)
print("automatic", found.metric, found.target_met)
