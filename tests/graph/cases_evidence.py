# SPDX-License-Identifier: Apache-2.0
"""Runs the smallest models of reported defects (tests/data/cases.tar.xz), quantized for OpenVINO and in block formats, in onnxruntime with its optimizer off and on and in
OpenVINO: each gives what `qk evaluate` gives for the file.
"""
import sys
from importlib.util import find_spec
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import evidence
from evidence import at, check, evaluated, folders, qk
from evidence.runtimes import in_openvino, session

import numpy as np
import onnx

STYLES = {"for openvino": ["--target", "openvino"], "mxfp8_e4m3 and mxfp4, inline": ["--inline", "--activation", "mxfp8_e4m3", "--weight", "mxfp4"]}
# The float networks are other ones there: OpenVINO reads no sparse initializers, its RoiAlign samples elsewhere, and it does not round to float16 between nodes of float16.
NOT_IN_OPENVINO = ("sparse", "roialign", "pair_float16")


def in_batches(run, inputs, model):
    """Runs all samples, or as many at once as a network with a fixed first dimension takes."""
    try:
        return run(inputs)
    except Exception:
        count = max(v.shape[0] for v in inputs.values() if v.ndim)
        step = max(1, *(i.type.tensor_type.shape.dim[0].dim_value for i in model.graph.input if i.type.tensor_type.shape.dim))
        parts = [run({k: v if v.ndim == 0 or v.shape[0] != count else v[i:i + step] for k, v in inputs.items()}) for i in range(0, count, step)]
        return [np.concatenate(p) for p in zip(*parts)]


def runtimes(file, case):
    for level in ("off", "on"):
        yield f"onnxruntime, optimizer {level}", lambda x, level=level: session(file, level).run(None, x)
    if find_spec("openvino") and case not in NOT_IN_OPENVINO:
        yield "openvino", lambda x: in_openvino(file, x)


def decibels(got, wanted):
    got, wanted = np.asarray(got), np.asarray(wanted)
    if got.shape != wanted.shape:
        return -np.inf
    if wanted.dtype.kind != "f":
        return np.inf if np.array_equal(got, wanted) else -np.inf
    got, wanted = got.astype(np.float64), wanted.astype(np.float64)
    if not np.array_equal(np.isnan(got), np.isnan(wanted)):
        return -np.inf
    finite = np.isfinite(wanted) & np.isfinite(got)
    error = np.sum((got[finite] - wanted[finite]) ** 2)
    return np.inf if error == 0 else 10 * np.log10(np.sum(wanted[finite] ** 2) / error)


def test_every_case():
    for folder in sorted(p for p in folders("cases")[0].joinpath("cases").iterdir() if p.is_dir()):
        data = folder / "x.npz"
        inputs = dict(np.load(data))
        for model in sorted(folder.glob("*.onnx")):
            for style, options in STYLES.items():
                qk("quantize", model, "-o", at("q.onnx"), "--calibration", data, "--recipe", "fast", "--overwrite", *options)
                written = onnx.load(at("q.onnx"))
                outputs = evaluated(at("q.onnx"), data, output=[o.name for o in written.graph.output])
                for name, run in runtimes(at("q.onnx"), folder.name):
                    try:
                        told = min(map(decibels, in_batches(run, inputs, written), outputs))
                        said = ""
                    except Exception as error:
                        told, said = -np.inf, " ".join(str(error).split())[:300]
                    check(told > 40, f"{folder.name}/{model.stem}, {style}: {name} {told:.1f} dB beside qk {said}")


if __name__ == "__main__":
    evidence.main()
