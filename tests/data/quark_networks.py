# SPDX-License-Identifier: Apache-2.0
"""Has AMD Quark quantize the residual network of make_networks.py, and run what it wrote. Needs amd-quark, torch and a C++ compiler."""
import numpy as np
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader
from quark.onnx import ModelQuantizer
from quark.onnx.operators.custom_ops import get_library_path
from quark.onnx.quantization.config import Config
from quark.onnx.quantization.config.custom_config import get_default_config

FORMATS = ("A8W8", "BF16", "BFP16", "MX6", "MXFP8E4M3", "XINT8")


class Samples(CalibrationDataReader):
    def __init__(self, x):
        self.left = iter([{"input": x[i : i + 1]} for i in range(len(x))])

    def get_next(self):
        return next(self.left, None)


def write(folder):
    model, x = folder / "models" / "resnet20_made_folded.onnx", np.load(folder / "reference" / "resnet20_made_folded.input.input.npy")
    out = folder / "quark_models"
    out.mkdir(exist_ok=True)
    for name in FORMATS:
        to = out / f"resnet20_{name}.onnx"
        config = get_default_config(name)
        if name == "BFP16":  # ties away from zero, where the others have ties to even
            config.extra_options = {**config.extra_options, "BFPAttributes": {**config.extra_options["BFPAttributes"], "rounding_mode": 0}}
        ModelQuantizer(Config(global_quant_config=config)).quantize_model(str(model), str(to), Samples(x))
        settings = onnxruntime.SessionOptions()
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        settings.register_custom_ops_library(get_library_path())
        session = onnxruntime.InferenceSession(str(to), settings, providers=["CPUExecutionProvider"])
        np.save(out / f"resnet20_{name}.output.npy", session.run(None, {"input": x})[0])
