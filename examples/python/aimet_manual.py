# SPDX-License-Identifier: Apache-2.0
"""AIMET's "Manual mixed precision": the same requests, by the names of layers in an ONNX file."""

from common import images, input_model_path

import qk

mp_configurator = qk.Plan(activation="int8", weight="int8")
mp_configurator.set_precision("block1.depthwise", activation="int16", param={"weight": "int16"})  # a leaf layer
mp_configurator.set_precision("block2.*", activation="int16", param={"weight": "int16"})  # a layer made of layers
mp_configurator.set_op_type_precision("GlobalAveragePool", activation="int16")  # all layers of a type
mp_configurator.set_model_input_precision(activation="int16")
mp_configurator.set_model_output_precision(activation="int16")
result = mp_configurator.apply(input_model_path, images, log_file="mmp_log.txt", strict=False)
result.save("mixed.onnx")
qk.write_aimet(result.plan, "mixed.encodings", "2.0.0")
print(result["quantized_edges"], result.plan["stem"].weight)
