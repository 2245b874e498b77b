# SPDX-License-Identifier: Apache-2.0
"""Runs models in onnxruntime, by optimizer level, on this processor or on an emulated one with AVX2 but no VNNI; and in OpenVINO.

usage: python -m evidence.runtimes JOBS.json    (`run_all` starts this under the emulator)

On such a processor onnxruntime's kernels for uint8 by int8 add pairs of products in 16 bits and saturate; with VNNI they do not.
"""
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile

from .running import TESTS, build, needs
from .values import decibels

needs("numpy", "onnxruntime")

import numpy as np
import onnxruntime as ort

ort.set_default_logger_severity(4)
LEVELS = {"off": ort.GraphOptimizationLevel.ORT_DISABLE_ALL, "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC, "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
          "on": ort.GraphOptimizationLevel.ORT_ENABLE_ALL}


def operators():
    """Returns the library of qk's operators beside the command; None where the build has none, for lack of onnxruntime's headers."""
    library = build() / "libqk_onnxruntime.so"
    return str(library) if library.exists() else None


def session(model, level="on", optimized=None, threads=1, library=None):
    """Returns a session for a model, a file or its bytes. The optimized model is written to the file `optimized`, if given; `library` has operators."""
    options = ort.SessionOptions()
    if library:
        options.register_custom_ops_library(str(library))
    options.graph_optimization_level = LEVELS[level]
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    if optimized:
        options.optimized_model_filepath = str(optimized)
    return ort.InferenceSession(model if isinstance(model, bytes) else str(model), options, providers=["CPUExecutionProvider"])


def outputs(model, inputs, level="on", names=None, **how):
    """Returns the outputs, or those of the names, in order. Inputs: a dict of arrays, or the file of an .npz. `how` goes to `session`."""
    return session(model, level, **how).run(names, inputs if isinstance(inputs, dict) else dict(np.load(inputs)))


def run(model, x, level="on", batch=0, optimized=None):
    """Returns the first output of a model with one input for the array x, `batch` samples at a time (0: all)."""
    runs = session(model, level, optimized)
    name = runs.get_inputs()[0].name
    step = batch or max(len(x), 1)
    return np.concatenate([runs.run(None, {name: x[i:i + step]})[0] for i in range(0, len(x), step)])


def in_openvino(model, inputs, fixed=False, **config):
    """Returns OpenVINO's outputs in order, computed in float32 where the file says nothing else; `fixed` gives the model the inputs' shapes."""
    import openvino
    core = openvino.Core()
    read = core.read_model(str(model))
    if fixed:
        read.reshape({n: list(v.shape) for n, v in inputs.items()})
    compiled = core.compile_model(read, "CPU", {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1, **config})
    found = compiled(inputs)
    return [np.array(found[i]) for i in range(len(compiled.outputs))]


def keeps(on, off, plain, bound=1.0):
    """Returns (whether the optimizer costs at most `bound` dB, a sentence). Outputs: with it, without it, of the float model."""
    a, b = decibels(on, plain), decibels(off, plain)
    return a >= min(b, 100) - bound, f"{a:.1f} dB with the optimizer, {b:.1f} without"


def emulator():
    """Returns (command that runs a program on a processor with AVX2 but no VNNI, ""), or (None, why there is none)."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return None, "this is no x86-64"
    found = shutil.which("qemu-x86_64")
    if not found:
        return None, "qemu-x86_64 is missing (package qemu-user)"
    version = re.search(r"version (\d+)\.(\d+)", subprocess.run([found, "--version"], capture_output=True, text=True).stdout)
    if not version or tuple(map(int, version.groups())) < (7, 2):
        return None, f"{found} is older than 7.2, from which on it has AVX2"
    return [found, "-cpu", "Haswell"], ""


def run_all(jobs, emulated=False):
    """Runs jobs: dicts of model (a file), x, and optionally level, batch, optimized. Returns an array or the text of an error for each."""
    if not emulated:
        return [attempt(job) for job in jobs]
    command, why = emulator()
    if command is None:
        raise RuntimeError(why)
    with tempfile.TemporaryDirectory() as folder:
        listed, saved = [], {}
        for i, job in enumerate(jobs):
            if id(job["x"]) not in saved:
                saved[id(job["x"])] = f"{folder}/x{i}.npy"
                np.save(saved[id(job["x"])], job["x"])
            listed.append({**job, "x": saved[id(job["x"])], "y": f"{folder}/y{i}.npy"})
        with open(f"{folder}/jobs.json", "w") as f:
            json.dump(listed, f)
        done = subprocess.run([*command, sys.executable, "-m", "evidence.runtimes", f"{folder}/jobs.json"], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(TESTS)})
        if done.returncode != 0:
            raise RuntimeError("under " + " ".join(command) + ": " + "\n".join(line for line in done.stderr.splitlines() if "qemu-x86_64: warning" not in line)[-500:])
        errors = json.loads(done.stdout)
        return [error or np.load(job["y"]) for error, job in zip(errors, listed)]


def attempt(job):
    try:
        return run(job["model"], job["x"], job.get("level", "on"), job.get("batch", 0), job.get("optimized"))
    except Exception as failed:  # the model does not load or run
        return str(failed)[:300]


def main():
    with open(sys.argv[1]) as f:
        jobs = json.load(f)
    errors = []
    for job in jobs:
        y = attempt({**job, "x": np.load(job["x"])})
        errors.append(y if isinstance(y, str) else "")
        if not isinstance(y, str):
            np.save(job["y"], y)
    print(json.dumps(errors))


if __name__ == "__main__":
    main()
