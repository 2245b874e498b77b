# SPDX-License-Identifier: Apache-2.0
"""Measures the numbers of docs/guide/export.md: speed and error of int8 models in onnxruntime by the type of their weights' codes (uint8
around 128, int8 beside uint8 activations, int8 beside int8).

usage: int8_speed.py QK SHARED [--seconds S]
Runs one sample at a time on one thread, the models in turn, and takes the least time of each, since other work on the machine only adds
time. Decibels are over all samples.
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

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "graph"))
import onnxruntime_runs as runs


def pictures(file, mean, deviation):
    x = np.load(file).astype(np.float32)
    return np.ascontiguousarray(((x - np.float32(mean)) / np.float32(deviation)).transpose(0, 3, 1, 2))


def networks(shared):
    data, models = shared / "data", shared / "models"
    yield "kwt1", models / "kwt1_mfcc.onnx", np.load(data / "speech_mfcc_119x98x40_f32.npy")
    yield "resnet20", models / "resnet20_cifar10_folded.onnx", pictures(data / "cifar10_2000_images_u8_nhwc.npy", [123.675, 116.28, 103.53], [58.395, 57.12, 57.375])[:500]
    yield "squeezenet1.1", models / "squeezenet1.1_imagenet.onnx", pictures(data / "imagenet150_images_227_u8_nhwc.npy", [123, 117, 104], [1, 1, 1])[:, ::-1].copy()


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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("qk")
    parser.add_argument("shared", type=Path)
    parser.add_argument("--seconds", type=float, default=4)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "signed.json").write_text(json.dumps({"name": "signed", "int8_weights": "signed"}))
        kinds = {"uint8 x uint8": [], "uint8 x int8": ["--target", folder / "signed.json"], "int8 x int8": ["--export", "qoperator", "--keep-int8"]}
        print("| network | " + " | ".join(f"{k}: ms, dB (optimizer off)" for k in kinds) + " |\n|" + "---|" * (1 + len(kinds)))
        for name, model, x in networks(given.shared):
            np.save(folder / "calibration.npy", x[::10])
            plain, files, heard = runs.run(str(model), x, batch=10), [], []
            for kind, options in kinds.items():
                files.append(folder / f"{name} {kind}.onnx")
                subprocess.run([given.qk, "quantize", "--recipe", "fast", model, "-o", files[-1], "--activation", "int8", "--weight", "int8", "--per-channel", "--calibration", folder / "calibration.npy", *options],
                               check=True, capture_output=True)
                heard.append([runs.decibels(runs.run(str(files[-1]), x, level, 10), plain) for level in ("on", "off")])
            took = least_times(files, x[:1], given.seconds)
            print(f"| {name} | " + " | ".join(f"{t:.2f}, {on:.1f} ({off:.1f})" for t, (on, off) in zip(took, heard)) + " |", flush=True)


if __name__ == "__main__":
    main()
