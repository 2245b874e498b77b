# SPDX-License-Identifier: Apache-2.0
"""Remakes the golden files of ml_dtypes and ONNX Runtime from these packages: they give every bit of what tests/data packs.
"""
import sys
from collections import Counter
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import check, equal, folders, same
from evidence.graphs import model
from evidence.runtimes import outputs

evidence.needs("ml_dtypes")

import ml_dtypes
import numpy as np
from onnx import TensorProto, helper

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
    made = model(nodes, {"x": x.shape}, {"y": x.shape}, held, opset=21)
    return outputs(made.SerializeToString(), {"x": x}, "off")[0]


def test_goldens():
    folder = folders("goldens")[0] / "goldens"
    row_scales, counts = np.load(folder / "scales.per_row.npy"), Counter()
    for file in sorted(folder.glob("*.npy")):
        system, _, rest = file.stem.partition(".")
        if system not in ("ml_dtypes", "onnxruntime"):
            continue
        name, _, case = rest.rpartition(".")
        x = np.load(folder / f"input.{case}.npy")
        check(same(cast(name, x) if system == "ml_dtypes" else round_trip(name, x, row_scales), np.load(file)), f"{file.name}: the package gives other bits")
        counts[system] += 1
    equal(sorted(counts.values()), [90, 120], "files of each package")


if __name__ == "__main__":
    evidence.main()
