# SPDX-License-Identifier: Apache-2.0
"""Automatic mixed precision of AMD Quark beside qk's, in one run, with the same model, samples and threads (needs numpy, onnxruntime, amd-quark).

    python bench/search_peers.py build/release/qk MODEL.onnx X.npy [--samples 256] [--threads 4] [--target-l2 T]

int16 activations and int8 weights to int8 and int8, until the L2 target is about to break; without --target-l2 every layer is narrowed.
A peer that is not installed is left out, with a line that says so. Seconds are those of calibration, sensitivities and mixing, as each tells or as taken here.
"""
import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np


def ours(a, x):
    run = subprocess.run([a.qk, "search", a.model, "--inputs", x, "--threads", str(a.threads), "--wide", "int16/int8", "--narrow", "int8/int8", "--json",
                          "--target-l2", repr(a.target_l2 or 1e30)], capture_output=True, text=True)
    if run.returncode == 2:
        sys.exit(run.stderr)
    r = json.loads(run.stdout)
    narrowed = sum(option == "int8/int8" for option in r["layers"].values())
    return r["seconds"], r["evaluations"], narrowed, len(r["layers"]), r["metric"]


def run_quark(a, x):
    os.environ["OMP_NUM_THREADS"] = str(a.threads)
    from quark.onnx import AutoMixprecisionConfig, CalibMethod, Int8Spec, Int16Spec, ModelQuantizer, QConfig, QLayerConfig
    from onnxruntime import InferenceSession
    from onnxruntime.quantization.calibrate import CalibrationDataReader

    data = np.load(x)
    name = InferenceSession(a.model, providers=["CPUExecutionProvider"]).get_inputs()[0].name

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.rewind()

        def rewind(self):
            self.rows = iter(data)

        def get_next(self):
            row = next(self.rows, None)
            return None if row is None else {name: row[None]}

    mixing = AutoMixprecisionConfig(target_layer_config=QLayerConfig(activation=Int8Spec(calibration_method=CalibMethod.MinMax), weight=Int8Spec(calibration_method=CalibMethod.MinMax)),
                                    data_size=len(data), metric_threshold=a.target_l2 or 0)
    config = QConfig(global_config=QLayerConfig(activation=Int16Spec(calibration_method=CalibMethod.MinMax), weight=Int8Spec(calibration_method=CalibMethod.MinMax)),
                     algo_config=[mixing])
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        ModelQuantizer(config).quantize_model(a.model, str(Path(folder) / "mixed.onnx"), Reader())
        return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("qk")
    parser.add_argument("model")
    parser.add_argument("inputs")
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--target-l2", type=float)
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        x = f"{folder}/x.npy"
        np.save(x, np.load(a.inputs)[: a.samples])
        seconds, evaluations, narrowed, layers, metric = ours(a, x)
        memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
        print(f"| who | seconds | memory, MB | what it did |\n|---|---|---|---|\n| qk | {seconds:.2f} | {memory} | {evaluations} evaluations, {narrowed} of {layers} layers narrowed, l2 {metric:.4g} |", flush=True)
        try:
            import quark.onnx  # noqa: F401  (its first import compiles operators: not counted)
        except ImportError:
            print("| AMD Quark | | | not installed (pip install amd-quark) |")
            return
        taken = run_quark(a, x)
        print(f"| AMD Quark {quark_version()} | {taken:.2f} | {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} | |")


def quark_version():
    from importlib.metadata import version
    return version("amd-quark")


if __name__ == "__main__":
    main()
