# SPDX-License-Identifier: Apache-2.0
"""Remakes the golden files of ml_dtypes and ONNX Runtime from these packages: they give every bit of what tests/data packs.

    python3 tests/core/goldens_evidence.py build/release/test_data
"""
import sys
from pathlib import Path

try:
    import ml_dtypes
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper
except ImportError as missing:
    print(f"skipped: no {missing.name} here (./dev test makes build/venv)")
    sys.exit(0)

CASTS = {"bf16": "bfloat16", "fp16": "float16", "fp4_e2m1fn": "float4_e2m1fn", "fp6_e2m3fn": "float6_e2m3fn", "fp6_e3m2fn": "float6_e3m2fn", "fp8_e3m4": "float8_e3m4", "fp8_e4m3": "float8_e4m3",
         "fp8_e4m3b11fnuz": "float8_e4m3b11fnuz", "fp8_e4m3fn": "float8_e4m3fn", "fp8_e4m3fnuz": "float8_e4m3fnuz", "fp8_e5m2": "float8_e5m2", "fp8_e5m2fnuz": "float8_e5m2fnuz"}
CODES = {"int4": TensorProto.INT4, "int8": TensorProto.INT8, "int16": TensorProto.INT16, "uint4": TensorProto.UINT4, "uint8": TensorProto.UINT8, "uint16": TensorProto.UINT16,
         "fp8_e4m3fn": TensorProto.FLOAT8E4M3FN, "fp8_e5m2": TensorProto.FLOAT8E5M2}


def cast(name, x):
    kind = np.float16 if name == "fp16" else getattr(ml_dtypes, CASTS[name])
    with np.errstate(all="ignore"):
        return x.astype(kind).astype(np.float32)


def round_trip(name, x, row_scales):
    """Runs QuantizeLinear and DequantizeLinear; name is FORMAT_sSCALE[_zZERO] or int8_per_row."""
    kind, _, rest = name.partition("_per_row") if name.endswith("_per_row") else name.rpartition("_s")[::1]
    per_row = name.endswith("_per_row")
    scale, _, zero = (rest or "1").partition("_z")
    code = CODES[kind]
    held = [helper.make_tensor("scale", TensorProto.FLOAT, [len(x)] if per_row else [], row_scales if per_row else [float(scale)]),
            helper.make_tensor("zero", code, [len(x)] if per_row else [], [0] * len(x) if per_row else [int(zero or 0)])]
    where = {"axis": 0} if per_row else {}
    nodes = [helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"], **where), helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"], **where)]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)], [helper.make_tensor_value_info("y", TensorProto.FLOAT, x.shape)], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


def main():
    folder = Path(sys.argv[1]) / "goldens"
    row_scales = np.load(folder / "scales.per_row.npy")
    counts, wrong = {}, []
    for file in sorted(folder.glob("*.npy")):
        system, _, rest = file.stem.partition(".")
        if system not in ("ml_dtypes", "onnxruntime"):
            continue
        name, _, case = rest.rpartition(".")
        x, known = np.load(folder / f"input.{case}.npy"), np.load(file)
        y = cast(name, x) if system == "ml_dtypes" else round_trip(name, x, row_scales)
        if not ((y.view(np.uint32) == known.view(np.uint32)) | (np.isnan(y) & np.isnan(known))).all():
            wrong.append(file.name)
        counts[system] = counts.get(system, 0) + 1
    print(f"{counts}, of {len(wrong)} of which the packages give other bits: {' '.join(wrong)}")
    return 1 if wrong or sorted(counts.values()) != [90, 120] else 0


if __name__ == "__main__":
    sys.exit(main())
