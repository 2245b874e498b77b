# SPDX-License-Identifier: Apache-2.0
"""Compares automatic mixed precision of AMD Quark and Qualcomm AIMET with qk's, in one run, with the same model, samples and threads.

Needs numpy and onnxruntime; amd-quark and aimet-onnx are measured if they are installed.

    python bench/search_peers.py build/release/qk MODEL.onnx X.npy [--samples 256] [--threads 4] [--target-l2 T]

Narrows int16 activations and int8 weights to int8 and int8 until the L2 target would break; without --target-l2 every layer is narrowed.
A line says which peers are not installed. Seconds cover calibration, sensitivities and mixing, as qk reports them or as measured here, but
no imports. Each peer runs in a process of its own; memory is that process's peak.
"""
import argparse
import importlib.util
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
        return time.perf_counter() - start, ""


def run_aimet(a, x):
    import onnx
    from aimet_onnx.common.defs import CallbackFunc, QuantizationDataType
    from aimet_onnx.mixed_precision import choose_mixed_precision
    from aimet_onnx.quantsim import QuantizationSimModel
    from onnxruntime import InferenceSession, SessionOptions

    data = np.load(x)
    options = SessionOptions()
    options.intra_op_num_threads = a.threads
    plain = InferenceSession(a.model, options, providers=["CPUExecutionProvider"])
    name = plain.get_inputs()[0].name
    reference = [plain.run(None, {name: row[None]})[0] for row in data]
    scores = []

    def forward(session, *_):
        for row in data:
            session.run(None, {name: row[None]})

    def score(session, *_):
        scores.append(-float(np.mean([np.linalg.norm((session.run(None, {name: row[None]})[0] - y).astype(np.float64)) for row, y in zip(data, reference)])))
        return scores[-1]

    integer = QuantizationDataType.int
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        sim = QuantizationSimModel(onnx.load(a.model), param_type="int8", activation_type="int16", quant_scheme="min_max", providers=["CPUExecutionProvider"],
                                   session_options_kwargs={"intra_op_num_threads": a.threads})
        sim.compute_encodings([{name: row[None]} for row in data])
        choose_mixed_precision(sim, [((16, integer), (8, integer)), ((8, integer), (8, integer))], CallbackFunc(score), CallbackFunc(score), a.target_l2, folder, True,
                               CallbackFunc(forward))
        return time.perf_counter() - start, f"{len(scores)} evaluations, l2 of the last {-scores[-1]:.4g}"


PEERS = {"amd-quark": ("AMD Quark", run_quark, "quark.onnx"), "aimet-onnx": ("AIMET", run_aimet, "aimet_onnx")}


def measure_alone(a):
    """Measures one peer in this process and prints the result as JSON on the last line."""
    import importlib
    from importlib.metadata import version

    _, run, module = PEERS[a.peer]
    importlib.import_module(module)  # Quark compiles operators at its first import
    seconds, did = run(a, a.inputs)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print("\n" + json.dumps({"version": version(a.peer), "seconds": seconds, "memory": memory, "did": did}))


def row_of(a, peer, x):
    label, _, module = PEERS[peer]
    if importlib.util.find_spec(module.split(".")[0]) is None:
        return f"| {label} | | | not installed (pip install {peer}) |"
    target = [] if a.target_l2 is None else ["--target-l2", repr(a.target_l2)]
    command = [sys.executable, str(Path(__file__).resolve()), a.qk, str(Path(a.model).resolve()), x, "--samples", str(a.samples), "--threads", str(a.threads), "--peer", peer, *target]
    # Runs in the samples' folder, since Quark leaves files in the working directory.
    run = subprocess.run(command, capture_output=True, text=True, cwd=Path(x).parent, env={**os.environ, "OMP_NUM_THREADS": str(a.threads)})
    if run.returncode != 0:
        return f"| {label} | | | failed: {(run.stderr.strip().splitlines() or ['no message'])[-1]} |"
    r = json.loads(run.stdout.strip().splitlines()[-1])
    return f"| {label} {r['version']} | {r['seconds']:.2f} | {r['memory']} | {r['did']} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("qk")
    parser.add_argument("model")
    parser.add_argument("inputs")
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--target-l2", type=float)
    parser.add_argument("--peer", choices=PEERS, help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.peer:
        measure_alone(a)
        return
    with tempfile.TemporaryDirectory() as folder:
        x = f"{folder}/x.npy"
        np.save(x, np.load(a.inputs)[: a.samples])
        seconds, evaluations, narrowed, layers, metric = ours(a, x)
        memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
        print(f"| who | seconds | memory, MB | what it did |\n|---|---|---|---|\n| qk | {seconds:.2f} | {memory} | {evaluations} evaluations, {narrowed} of {layers} layers narrowed, l2 {metric:.4g} |", flush=True)
        for peer in PEERS:
            print(row_of(a, peer, x), flush=True)


if __name__ == "__main__":
    main()
