# SPDX-License-Identifier: Apache-2.0
"""Measures speed and error of int8 models in onnxruntime by what their weights' codes are.

usage: int8_speed.py QK SHARED [--seconds S] [--only NAME] [--emulated]

Rows: float32; uint8 around 128; int8 over the whole range; int8 of 7 bits (--reduce-range); pair-safe int8 (qk's default), per channel and
for the whole tensor. Every model is calibrated on some samples and judged on others. Times: one sample a run, one thread, the models in
turn; the least of each, since other work on the machine only adds time. --emulated adds decibels on a processor with AVX2 and no VNNI,
emulated by qemu-x86_64, for a processor that has VNNI.
"""
import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

try:
    import onnxruntime as ort
except ImportError as missing:
    print(f"skipped: no {missing.name} here (./dev test makes build/venv)")
    sys.exit(0)

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from evidence import runtimes as runs


def pictures(file, mean, deviation):
    x = np.load(file).astype(np.float32)
    return np.ascontiguousarray(((x - np.float32(mean)) / np.float32(deviation)).transpose(0, 3, 1, 2))


def networks(shared):
    """Yields (name, model, samples to calibrate on, other samples)."""
    data, models = shared / "data", shared / "models"
    x = pictures(data / "cifar10_2000_images_u8_nhwc.npy", [123.675, 116.28, 103.53], [58.395, 57.12, 57.375])
    yield "resnet20", models / "resnet20_cifar10_folded.onnx", x[:64], x[64:564]
    x = pictures(data / "imagenet150_images_227_u8_nhwc.npy", [123, 117, 104], [1, 1, 1])[:, ::-1].copy()
    yield "squeezenet1.1", models / "squeezenet1.1_imagenet.onnx", x[:24], x[24:124]
    x = np.load(data / "speech_mfcc_119x98x40_f32.npy")
    yield "kwt1", models / "kwt1_mfcc.onnx", x[:60], x[60:]


def session(path):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def least_times(paths, x, seconds):
    sessions = [session(p) for p in paths]
    name, times, start = sessions[0].get_inputs()[0].name, [[] for _ in paths], time.perf_counter()
    while time.perf_counter() - start < seconds or len(times[0]) < 10:
        for s, t in zip(sessions, times):
            began = time.perf_counter()
            s.run(None, {name: x})
            t.append(time.perf_counter() - began)
    return [1e3 * min(t) for t in times]


STATIC = ["--activation", "int8", "--weight", "int8"]
DYNAMIC = ["--approach", "dynamic", "--activation", "uint8", "--weight", "int8", "--per-channel", "--export", "qdq"]


def kinds(folder):
    """Returns the options of each kind of weights by name; "" stands for the float model."""
    for codes in ("signed", "unsigned"):
        (folder / f"{codes}.json").write_text(json.dumps({"name": codes, "int8_weights": codes}))
    wide, narrow = ["--target", folder / "unsigned.json"], ["--target", folder / "signed.json"]
    return {"float32": None, "uint8 around 128": [*STATIC, "--per-channel", *wide], "int8, whole range": [*STATIC, "--per-channel", *narrow],
            "int8, 7 bits": [*STATIC, "--per-channel", "--reduce-range"], "int8, pair-safe": [*STATIC, "--per-channel"],
            "per tensor: uint8 around 128": [*STATIC, *wide], "per tensor: pair-safe": STATIC,
            "dynamic: uint8 around 128": [*DYNAMIC, *wide], "dynamic: int8, whole range": [*DYNAMIC, *narrow], "dynamic: pair-safe": DYNAMIC}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("qk")
    parser.add_argument("shared", type=Path)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--only")
    parser.add_argument("--emulated", action="store_true")
    given = parser.parse_args()
    print("| network | weights | ms | of float32 | dB, optimizer on | off |" + (" AVX2 without VNNI, on |" if given.emulated else "") + "\n" + "|---" * (6 + given.emulated) + "|")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name, model, calibration, x in networks(given.shared):
            if given.only not in (None, name):
                continue
            np.save(folder / "calibration.npy", calibration)
            plain, files = runs.run(str(model), x, batch=10), {}
            for kind, options in kinds(folder).items():
                if kind.startswith("dynamic") and name != "kwt1":  # a Conv with dynamic scales stays in float32
                    continue
                files[kind] = str(model) if options is None else str(folder / f"{name} {kind}.onnx".replace(":", ""))
                if options is not None:
                    data = [] if kind.startswith("dynamic") else ["--calibration", folder / "calibration.npy"]
                    subprocess.run([given.qk, "quantize", "--recipe", "fast", model, "-o", files[kind], *options, *data], check=True, capture_output=True)
            took = dict(zip(files, least_times(files.values(), x[:1], given.seconds)))
            batch = lambda kind: 1 if kind.startswith("dynamic") else 10
            for kind, file in files.items():
                row = [f"{took[kind]:.3f}", f"{took[kind] / took['float32']:.2f}"]
                row += [f"{runs.decibels(runs.run(file, x, level, batch(kind)), plain):.1f}" if kind != "float32" else "" for level in ("on", "off")]
                if given.emulated:
                    (y,) = runs.run_all([{"model": file, "x": x[:16], "batch": batch(kind)}], True)
                    row.append(f"{runs.decibels(y, plain[:16]):.1f}" if kind != "float32" else "")
                print(f"| {name if kind == 'float32' else ''} | {kind} | " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
